package facts

var shadeform = Cloud{
	Name: "shadeform", Display: "Shadeform", Regions: "offered now",
	Prices:   &Prices{AnySize: true},
	Lacks:    []Feature{Stop, MultiNode, Image, Docker, DiskTier, NetTier, LocalDisk},
	Settings: onlyIdentity("Shadeform"),
}
