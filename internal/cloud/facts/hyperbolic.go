package facts

var hyperbolic = Cloud{
	Name: "hyperbolic", Display: "Hyperbolic", Regions: "one",
	Prices:   &Prices{AnySize: true},
	Lacks:    []Feature{Stop, MultiNode, Spot, Image, Docker, DiskTier, NetTier, LocalDisk, Ports, Storage},
	Settings: onlyIdentity("Hyperbolic"),
}
