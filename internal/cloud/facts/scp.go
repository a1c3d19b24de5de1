package facts

import "strings"

var scp = Cloud{
	Name: "scp", Display: "SCP",
	Prices: &Prices{Hosted: true, Beside: []string{Images}, MemoryPerCPU: 2, MinDisk: 100, MaxDisk: 300, RegionClass: financialLast},
	Lacks:  []Feature{Spot, Image, Docker, DiskTier, NetTier, LocalDisk},
}

// financialLast: these zones are open only to financial institutions.
func financialLast(region string) int {
	if strings.Contains(region, "-FIN-") {
		return 1
	}
	return 0
}
