package facts

var primeintellect = Cloud{
	Name: "primeintellect", Display: "PrimeIntellect", Regions: "offered now: data centers",
	Prices:   &Prices{AnySize: true},
	Lacks:    []Feature{Stop, MultiNode, Image, Docker, DiskTier, NetTier, LocalDisk, Ports},
	Settings: onlyIdentity("PrimeIntellect"),
}
