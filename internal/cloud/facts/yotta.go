package facts

var yotta = Cloud{Name: "yotta", Display: "Yotta"}
