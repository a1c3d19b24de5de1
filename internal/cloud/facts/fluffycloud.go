package facts

var fluffycloud = Cloud{Name: "fluffycloud", Display: "FluffyCloud", Ours: true}
