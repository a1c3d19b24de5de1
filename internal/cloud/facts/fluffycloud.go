package facts

var fluffycloud = Cloud{Name: "fluffycloud", Display: "FluffyCloud", Proven: "it is ours", Ours: true, SharesFiles: true}
