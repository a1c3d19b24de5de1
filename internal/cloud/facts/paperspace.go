package facts

var paperspace = Cloud{Name: "paperspace", Display: "Paperspace"}
