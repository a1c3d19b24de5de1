package facts

var local = Cloud{Name: "local", Display: "Local", Ours: true, Hardware: Here}
