package facts

var local = Cloud{Name: "local", Display: "Local", Proven: "on real machines", Ours: true, Hardware: Here, SharesFiles: true}
