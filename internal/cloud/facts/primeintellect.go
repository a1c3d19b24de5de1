package facts

var primeintellect = Cloud{Name: "primeintellect", Display: "PrimeIntellect"}
