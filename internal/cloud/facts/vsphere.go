package facts

var vsphere = Cloud{
	Name: "vsphere", Display: "vSphere", Proven: "on VMware's vCenter simulator, with real agents and a server that is killed",
	Prices: &Prices{CPUs: 2, EachZone: true}, // zones are clusters of a vCenter
	Lacks:  []Feature{Spot, Docker, DiskTier, NetTier, LocalDisk, Storage},
}
