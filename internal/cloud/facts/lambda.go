package facts

import "time"

var lambda = Cloud{
	Name: "lambda", Display: "Lambda",
	Prices:   &Prices{Hosted: true, Refresh: 7 * time.Hour, CPUs: 30, RegionClass: usFirst},
	Lacks:    []Feature{Stop, Spot, Image, DiskTier, NetTier, LocalDisk},
	Settings: onlyIdentity("Lambda"),
}
