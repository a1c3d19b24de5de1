package facts

var hyperbolic = Cloud{
	Name: "hyperbolic", Display: "Hyperbolic",
	Prices:   &Prices{AnySize: true},
	Lacks:    []Feature{Stop, MultiNode, Spot, Image, Docker, DiskTier, NetTier, LocalDisk, Ports, Storage},
	Settings: onlyIdentity("Hyperbolic"),
}
