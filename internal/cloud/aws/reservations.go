package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
)

// reservation is capacity that the user has paid for already.
type reservation struct {
	id, zone, zoneID string
	block            bool // a capacity block, which is bought for a time
}

// reservation finds the one of the user's reservations that all missing nodes
// fit into; nil if the cluster is to use none.
func (p *Provider) reservation(ctx context.Context, spec cloud.LaunchSpec, s Settings, nodes int) (*reservation, error) {
	if len(s.Reservations) == 0 || spec.Offer.Spot {
		return nil, nil
	}
	client, err := p.ec2(ctx, spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	// By type, since an id of another region is an error to EC2.
	in := &ec2.DescribeCapacityReservationsInput{Filters: []types.Filter{{Name: sdk.String("instance-type"), Values: []string{spec.Offer.InstanceType}}}}
	var list []types.CapacityReservation
	for pages := ec2.NewDescribeCapacityReservationsPaginator(client, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, spec.Offer.Place, err)
		}
		list = append(list, page.CapacityReservations...)
	}
	return reserved(spec, list, s.Reservations, nodes)
}

// reserved decides which of the named reservations holds the nodes: the one
// with most room. A capacity block that has not begun is worth waiting for.
func reserved(spec cloud.LaunchSpec, list []types.CapacityReservation, names []string, nodes int) (*reservation, error) {
	var fit, coming []types.CapacityReservation
	for _, r := range list {
		at := instance{zone: sdk.ToString(r.AvailabilityZone), zoneID: sdk.ToString(r.AvailabilityZoneId)}
		if !slices.Contains(names, sdk.ToString(r.CapacityReservationId)) || sdk.ToString(r.InstanceType) != spec.Offer.InstanceType || !at.inZone(spec.Offer.Zone) {
			continue
		}
		switch r.State {
		case types.CapacityReservationStateActive:
			if int(sdk.ToInt32(r.AvailableInstanceCount)) >= nodes {
				fit = append(fit, r)
			}
		case types.CapacityReservationStateScheduled, types.CapacityReservationStatePending, types.CapacityReservationStatePaymentPending,
			types.CapacityReservationStateAssessing, types.CapacityReservationStateDelayed:
			if int(sdk.ToInt32(r.TotalInstanceCount)) >= nodes {
				coming = append(coming, r)
			}
		}
	}
	slices.SortFunc(fit, func(a, b types.CapacityReservation) int {
		return cmp.Or(cmp.Compare(sdk.ToInt32(b.AvailableInstanceCount), sdk.ToInt32(a.AvailableInstanceCount)),
			strings.Compare(sdk.ToString(a.CapacityReservationId), sdk.ToString(b.CapacityReservationId)))
	})
	if len(fit) > 0 {
		r := fit[0]
		return &reservation{id: sdk.ToString(r.CapacityReservationId), zone: sdk.ToString(r.AvailabilityZone), zoneID: sdk.ToString(r.AvailabilityZoneId),
			block: r.ReservationType == types.CapacityReservationTypeCapacityBlock}, nil
	}
	if len(coming) > 0 {
		slices.SortFunc(coming, func(a, b types.CapacityReservation) int {
			return sdk.ToTime(a.StartDate).Compare(sdk.ToTime(b.StartDate))
		})
		when := "later"
		if start := sdk.ToTime(coming[0].StartDate); !start.IsZero() {
			when = "at " + start.UTC().Format(time.RFC3339)
		}
		return nil, &cloud.CapacityError{Place: spec.Offer.Place,
			Err: fmt.Errorf("the capacity reservation %s is %s and begins %s", sdk.ToString(coming[0].CapacityReservationId), coming[0].State, when)}
	}
	return nil, nil
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
