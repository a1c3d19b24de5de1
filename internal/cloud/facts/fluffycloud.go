package facts

var fluffycloud = Cloud{Name: "fluffycloud", Display: "FluffyCloud", Regions: "its server's, with zones", Proven: "it is ours", Ours: true, SharesFiles: true}
