package facts

var yotta = Cloud{
	Name: "yotta", Display: "Yotta",
	Prices: &Prices{Hosted: true, AnySize: true},
	Lacks:  []Feature{Stop, MultiNode, Spot, Image, DiskTier, NetTier, LocalDisk, Storage},
}
