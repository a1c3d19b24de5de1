package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// reservation is capacity that the user has paid for already.
type reservation struct {
	id, zone, zoneID string
	block            bool // a capacity block, which is bought for a time
}

// reservations finds those of the user's that the missing nodes are to be in, by
// rank; ranks that are absent are rented on demand. With together they have to be
// near each other.
func (p *Provider) reservations(ctx context.Context, spec cloud.LaunchSpec, s Settings, ranks []int, together bool) (map[int]*reservation, error) {
	if len(s.Reservations) == 0 || spec.Offer.Spot {
		return nil, nil
	}
	// What is free changes with each call that this launch makes. One that is made
	// again because its answer was lost must ask for the same.
	if plan, ok := p.plans.Load(spec.Token); ok {
		return plan.(map[int]*reservation), nil
	}
	// By type, since an id of another region is an error to EC2.
	list, err := p.describeReservations(ctx, spec.Offer.Place, "instance-type", spec.Offer.InstanceType)
	if err != nil {
		return nil, err
	}
	shares, err := reserved(spec, list, s, len(ranks), together)
	if err != nil {
		return nil, err
	}
	plan := map[int]*reservation{}
	rest := ranks
	for _, sh := range shares {
		for _, rank := range rest[:sh.nodes] {
			plan[rank] = sh.in
		}
		rest = rest[sh.nodes:]
	}
	p.plans.Store(spec.Token, plan)
	return plan, nil
}

// describeReservations reads the reservations of a region that pass a filter.
func (p *Provider) describeReservations(ctx context.Context, at cloud.Place, filter, value string) ([]types.CapacityReservation, error) {
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return nil, err
	}
	in := &ec2.DescribeCapacityReservationsInput{Filters: []types.Filter{{Name: sdk.String(filter), Values: []string{value}}}}
	var list []types.CapacityReservation
	for pages := ec2.NewDescribeCapacityReservationsPaginator(client, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, at, err)
		}
		list = append(list, page.CapacityReservations...)
	}
	return list, nil
}

// freeIn is how many machines can be put into a reservation now. A capacity block is over
// when its time is.
func freeIn(r types.CapacityReservation) int {
	if r.State != types.CapacityReservationStateActive || isBlock(r) && r.EndDate != nil && !time.Now().Before(*r.EndDate) {
		return 0
	}
	return int(sdk.ToInt32(r.AvailableInstanceCount))
}

func isBlock(r types.CapacityReservation) bool {
	return r.ReservationType == types.CapacityReservationTypeCapacityBlock
}

func (s *Settings) names(r types.CapacityReservation) bool {
	return slices.Contains(s.Reservations, sdk.ToString(r.CapacityReservationId))
}

// open reports whether EC2 puts machines of sky's into a reservation that is not named,
// and the settings ask for that.
func (s *Settings) open(r types.CapacityReservation) bool {
	return s.Prioritize && r.InstanceMatchCriteria == types.InstanceMatchCriteriaOpen && !isBlock(r) &&
		r.InstancePlatform == types.CapacityReservationInstancePlatformLinuxUnix && r.Tenancy == types.CapacityReservationTenancyDefault &&
		sdk.ToString(r.PlacementGroupArn) == ""
}

// ListReservations asks each region for the active reservations.
func (p *Provider) ListReservations(ctx context.Context, section map[string]any, regions []string) ([]cloud.Reservation, error) {
	s := ReadSettings(section)
	if !s.Prioritize && len(s.Reservations) == 0 {
		return nil, nil
	}
	open, err := p.regions.Open(ctx)
	if err != nil {
		return nil, err
	}
	if regions != nil {
		open = slices.DeleteFunc(open, func(region string) bool { return !slices.Contains(regions, region) })
	}
	found, errs := inRegions(open, func(region string) (out []cloud.Reservation, err error) {
		at := cloud.Place{Cloud: Name, Region: region}
		list, err := p.describeReservations(ctx, at, "state", string(types.CapacityReservationStateActive))
		for _, r := range list {
			at.Zone = sdk.ToString(r.AvailabilityZone)
			one := cloud.Reservation{Place: at, InstanceType: sdk.ToString(r.InstanceType), Free: freeIn(r), Near: cloud.NearWhole}
			switch {
			case one.Free == 0:
			case s.names(r):
				out = append(out, one)
			case s.open(r):
				one.Near = cloud.NearNone // they are in a placement group
				out = append(out, one)
			}
		}
		return out, err
	})
	if len(errs) > 1 {
		return found, fmt.Errorf("%w (and %d more regions say so or the like)", errs[0], len(errs)-1)
	}
	return found, errors.Join(errs...)
}

// share is how many nodes a reservation takes.
type share struct {
	in    *reservation
	nodes int
}

// reserved decides which of the named reservations hold the nodes: the one with
// most room if they all fit into it, else as many as are needed, those with most
// room first. What fits into none is rented on demand, unless a reservation that
// has not begun would hold all nodes: that is worth waiting for. Nodes that have
// to be together are in reservations of one zone, all of them, or in none.
func reserved(spec cloud.LaunchSpec, list []types.CapacityReservation, s Settings, nodes int, together bool) ([]share, error) {
	var open, coming []types.CapacityReservation
	for _, r := range list {
		at := vm.Machine{Zone: sdk.ToString(r.AvailabilityZone), ZoneID: sdk.ToString(r.AvailabilityZoneId)}
		if !s.names(r) || sdk.ToString(r.InstanceType) != spec.Offer.InstanceType || !at.InZone(spec.Offer.Zone) {
			continue
		}
		switch r.State {
		case types.CapacityReservationStateActive:
			if freeIn(r) > 0 {
				open = append(open, r)
			}
		case types.CapacityReservationStateScheduled, types.CapacityReservationStatePending, types.CapacityReservationStatePaymentPending,
			types.CapacityReservationStateAssessing, types.CapacityReservationStateDelayed:
			if int(sdk.ToInt32(r.TotalInstanceCount)) >= nodes {
				coming = append(coming, r)
			}
		}
	}
	slices.SortFunc(open, func(a, b types.CapacityReservation) int {
		return cmp.Or(cmp.Compare(sdk.ToInt32(b.AvailableInstanceCount), sdk.ToInt32(a.AvailableInstanceCount)),
			strings.Compare(sdk.ToString(a.CapacityReservationId), sdk.ToString(b.CapacityReservationId)))
	})
	if together {
		open = oneZone(open, nodes)
	}
	var shares []share
	missing := nodes
	for _, r := range open {
		if missing == 0 {
			break
		}
		n := min(missing, int(sdk.ToInt32(r.AvailableInstanceCount)))
		missing -= n
		shares = append(shares, share{&reservation{id: sdk.ToString(r.CapacityReservationId), zone: sdk.ToString(r.AvailabilityZone), zoneID: sdk.ToString(r.AvailabilityZoneId),
			block: isBlock(r)}, n})
	}
	if missing > 0 && len(coming) > 0 {
		return nil, notYet(spec.Offer.Place, coming)
	}
	return shares, nil
}

// oneZone are the reservations of the zone with most room, if that holds all
// nodes; they are in order.
func oneZone(open []types.CapacityReservation, nodes int) []types.CapacityReservation {
	room := map[string]int{}
	best := ""
	for _, r := range open {
		zone := sdk.ToString(r.AvailabilityZone)
		room[zone] += int(sdk.ToInt32(r.AvailableInstanceCount))
		if room[zone] > room[best] || room[zone] == room[best] && zone < best {
			best = zone
		}
	}
	if room[best] < nodes {
		return nil
	}
	return slices.DeleteFunc(open, func(r types.CapacityReservation) bool { return sdk.ToString(r.AvailabilityZone) != best })
}

// notYet says when the first of the reservations begins.
func notYet(at cloud.Place, coming []types.CapacityReservation) error {
	slices.SortFunc(coming, func(a, b types.CapacityReservation) int {
		return sdk.ToTime(a.StartDate).Compare(sdk.ToTime(b.StartDate))
	})
	when, start := "later", sdk.ToTime(coming[0].StartDate)
	if !start.IsZero() {
		when = "at " + start.UTC().Format(time.RFC3339)
	}
	return &cloud.CapacityError{Place: at, Expected: start,
		Err: fmt.Errorf("the capacity reservation %s is %s and begins %s", sdk.ToString(coming[0].CapacityReservationId), coming[0].State, when)}
}

// use makes a call for instances one for instances of the reservation.
func (r *reservation) use(in *ec2.RunInstancesInput) {
	in.CapacityReservationSpecification = &types.CapacityReservationSpecification{
		CapacityReservationTarget: &types.CapacityReservationTarget{CapacityReservationId: sdk.String(r.id)},
	}
	if r.block {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeCapacityBlock}
	}
}

// within are the subnets in the reservation's zone.
func (r *reservation) within(list []subnet) []subnet {
	return slices.DeleteFunc(slices.Clone(list), func(s subnet) bool { return s.zone != r.zone && s.zoneID != r.zoneID })
}
