package fetch

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Offers are rows as what can be rented now, for clouds whose price lists say that, too.
func Offers(name string, rows []Row) []cloud.Offer {
	all := []cloud.Offer{} // nil would say that a price list knows better
	for _, r := range rows {
		o := cloud.Offer{Place: cloud.Place{Cloud: name, Region: r.Region, Zone: r.Zone}, InstanceType: r.InstanceType, CPUs: r.CPUs, MemoryGiB: r.MemoryGiB}
		if r.Accelerator != "" {
			o.Accelerators = map[string]float64{r.Accelerator: r.Count}
		}
		for i, price := range []float64{r.Price, r.Spot} {
			if o.Spot, o.HourlyPrice = i == 1, price; price > 0 && !math.IsNaN(price) {
				all = append(all, o)
			}
		}
	}
	slices.SortFunc(all, func(a, b cloud.Offer) int {
		return cmp.Or(strings.Compare(a.InstanceType, b.InstanceType), strings.Compare(a.Region, b.Region), strings.Compare(a.Zone, b.Zone), cmp.Compare(a.HourlyPrice, b.HourlyPrice))
	})
	return all
}
