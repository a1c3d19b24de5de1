package facts

var shadeform = Cloud{Name: "shadeform", Display: "Shadeform"}
