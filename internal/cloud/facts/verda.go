package facts

import "time"

var verda = Cloud{
	Name: "verda", Display: "Verda",
	Prices:   &Prices{Hosted: true, Refresh: 7 * time.Hour},
	Lacks:    []Feature{Stop, DiskTier, NetTier, LocalDisk},
	Settings: onlyIdentity("Verda"),
}
