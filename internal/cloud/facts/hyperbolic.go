package facts

var hyperbolic = Cloud{Name: "hyperbolic", Display: "Hyperbolic"}
