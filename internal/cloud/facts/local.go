package facts

var local = Cloud{Name: "local", Display: "Local", Regions: "this machine", Proven: "on real machines", Ours: true, Hardware: Here, SharesFiles: true}
