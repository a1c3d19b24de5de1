package facts

import "time"

var cudo = Cloud{
	Name: "cudo", Display: "Cudo", Regions: "price list: data centers",
	Prices:   &Prices{Hosted: true, Refresh: 7 * time.Hour, MemoryPerCPU: 2},
	Lacks:    []Feature{Spot, Image, Docker, DiskTier, NetTier, LocalDisk},
	Settings: onlyIdentity("Cudo"),
}
