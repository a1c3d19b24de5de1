package facts

var paperspace = Cloud{
	Name: "paperspace", Display: "Paperspace",
	Prices:   &Prices{Hosted: true, MaxDisk: 2000},
	Lacks:    []Feature{Spot, Image, DiskTier, NetTier, LocalDisk},
	Settings: onlyIdentity("Paperspace"),
}
