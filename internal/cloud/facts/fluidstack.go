package facts

var fluidstack = Cloud{
	Name: "fluidstack", Display: "Fluidstack",
	Prices:   &Prices{Hosted: true, CPUs: 6},
	Lacks:    []Feature{Spot, Image, DiskTier, NetTier, LocalDisk},
	Settings: onlyIdentity("FluidStack"),
}
