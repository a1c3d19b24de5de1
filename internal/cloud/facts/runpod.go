package facts

import "time"

var runpod = Cloud{
	Name: "runpod", Display: "RunPod", Regions: "price list: countries, with data centers",
	Prices:   &Prices{Hosted: true, Refresh: 7 * time.Hour, AnySize: true, EachZone: true}, // zones are data centers
	Lacks:    []Feature{MultiNode, DiskTier, Storage, NetTier, LocalDisk},
	Volumes:  []string{"runpod-network-volume"},
	Settings: onlyIdentity("RunPod"),
}
