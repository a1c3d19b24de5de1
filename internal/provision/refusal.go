package provision

import (
	"errors"

	"github.com/skypilot-go/sky/internal/cloud"
)

// ruledOut says how much of the map a refusal closes; false means the error is
// none of the map's business and is shown at once.
//
//	credentials                    the cloud, or the region that has its own
//	permission                     the place the error names
//	quota                          that machine in the region
//	capacity, preempted, partial   that machine in the place the error names
//	invalid                        that machine there, spot or not
//	throttled, unreachable,
//	timeout                        that machine in the zone that was asked for
func ruledOut(o cloud.Offer, err error) (cloud.Block, bool) {
	spot := o.Spot
	machine := func(p cloud.Place) cloud.Block {
		b := cloud.BlockPlace(p)
		b.InstanceType, b.Spot = o.InstanceType, &spot
		return b
	}
	switch Outcome(err) {
	case Credentials:
		b := cloud.Block{Cloud: o.Cloud}
		if e, _ := errors.AsType[*cloud.AuthError](err); e.Region == o.Region {
			b.Region = e.Region
		}
		return b, true
	case Permission:
		e, _ := errors.AsType[*cloud.PermissionError](err)
		return cloud.BlockPlace(within(e.Place, o)), true
	case Quota:
		e, _ := errors.AsType[*cloud.QuotaError](err)
		at := within(e.Place, o)
		at.Zone = ""
		return machine(at), true
	case Capacity:
		e, _ := errors.AsType[*cloud.CapacityError](err)
		return machine(within(e.Place, o)), true
	case Invalid:
		e, _ := errors.AsType[*cloud.InvalidError](err)
		b := machine(within(e.Place, o))
		b.Spot = nil
		return b, true
	case Preempted, Partial, Throttled, Unreachable, Timeout:
		return machine(o.Place), true
	}
	return cloud.Block{}, false
}

// within is the place an error names if the offer is in it. A place that is
// narrower than what was asked for, or somewhere else, says less than the
// offer's own, which was refused all the same.
func within(named cloud.Place, o cloud.Offer) cloud.Place {
	b := cloud.BlockPlace(named)
	if named.Cloud == "" || !b.Matches(&o) {
		return o.Place
	}
	return named
}
