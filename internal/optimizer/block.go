package optimizer

import (
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// BlockedBy is the first of a task's blocked resources that an offer matches; -1: none.
// A pattern with a zone leaves an offer alone that has none.
func BlockedBy(patterns []task.BlockedResources, o *cloud.Offer) int {
	for i := range patterns {
		if matches(&patterns[i], o) {
			return i
		}
	}
	return -1
}

func matches(p *task.BlockedResources, o *cloud.Offer) bool {
	is := func(want, has string) bool { return want == "" || strings.EqualFold(want, has) }
	return is(p.Cloud, o.Cloud) && is(p.Region, o.Region) && is(p.Zone, o.Zone) && is(p.InstanceType, o.InstanceType) &&
		(p.UseSpot == nil || *p.UseSpot == o.Spot) && offersAccelerator(o, p.Accelerator, p.AcceleratorCount)
}

func offersAccelerator(o *cloud.Offer, name string, count float64) bool {
	if name == "" {
		return true
	}
	if canonical, _ := catalog.CanonicalAccelerator(name, nil); canonical != "" {
		name = canonical
	}
	for have, n := range o.Accelerators {
		if strings.EqualFold(have, name) && (count == 0 || n == count) {
			return true
		}
	}
	return false
}
