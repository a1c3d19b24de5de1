package facts

var vsphere = Cloud{
	Name: "vsphere", Display: "vSphere", Regions: "vCenters, with clusters", Proven: "VMware's vCenter simulator, real agents, killed",
	Prices: &Prices{CPUs: 2, EachZone: true}, // zones are clusters of a vCenter
	Lacks:  []Feature{Spot, Docker, DiskTier, NetTier, LocalDisk},
}
