package facts

import "time"

var seeweb = Cloud{
	Name: "seeweb", Display: "Seeweb", Regions: "offered now",
	Prices: &Prices{Refresh: 8 * time.Hour, AnySize: true},
	Lacks:  []Feature{MultiNode, Spot, Image, DiskTier, NetTier, LocalDisk},
}
