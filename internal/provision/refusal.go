package provision

import (
	"errors"

	"github.com/skypilot-go/sky/internal/cloud"
)

// ruledOut says how much of the map a refusal closes.
//
//	credentials                    the cloud, or the region that has its own
//	permission                     the place the error names
//	quota                          that machine in the region
//	price                          that offer
//	capacity, preempted, partial   that machine in the place the error names
//	invalid                        that machine there, spot or not
//	throttled, unreachable,
//	timeout                        that machine in the zone that was asked for
//	what nobody understands        everything in the place that was asked for
//
// Clouds have more codes than anybody knows, and new ones: one that is not understood
// says nothing of other places.
func ruledOut(o cloud.Offer, err error) cloud.Block {
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
		return b
	case Permission:
		e, _ := errors.AsType[*cloud.PermissionError](err)
		return cloud.BlockPlace(within(e.Place, o))
	case Quota:
		e, _ := errors.AsType[*cloud.QuotaError](err)
		at := within(e.Place, o)
		at.Zone = ""
		return machine(at)
	case Price:
		return cloud.BlockOffer(o)
	case Capacity:
		e, _ := errors.AsType[*cloud.CapacityError](err)
		return machine(within(e.Place, o))
	case Invalid:
		e, _ := errors.AsType[*cloud.InvalidError](err)
		b := machine(within(e.Place, o))
		b.Spot = nil
		return b
	case Preempted, Partial, Throttled, Unreachable, Timeout:
		return machine(o.Place)
	}
	return cloud.BlockPlace(o.Place)
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
