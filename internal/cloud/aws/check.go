package aws

import (
	"context"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Check asks whose credentials these are and whether they may look at regions
// and zones; it tells Options.Zones what it learnt. Without credentials it does
// no I/O.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	client, err := p.sts(ctx)
	if err != nil {
		return nil, err
	}
	me, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, translate(ctx, cloud.Place{Cloud: Name}, err)
	}
	user := sdk.ToString(me.UserId)
	if err := p.learnZones(ctx, user); err != nil {
		return nil, err
	}
	return cloud.Identity{user, sdk.ToString(me.Account)}, nil
}

// learnZones asks all regions for their zones if somebody wants to know: price
// lists name zones by ids, which every account sees under names of its own.
func (p *Provider) learnZones(ctx context.Context, user string) error {
	if p.o.Zones == nil {
		_, err := p.allRegions(ctx)
		return err
	}
	_, found, err := vm.Everywhere(ctx, &p.regions, p.zones)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, zones := range found {
		for id, name := range zones {
			names[id] = name
		}
	}
	p.o.Zones(user, names)
	return nil
}

// zones are the names of a region's zones by their ids.
func (p *Provider) zones(ctx context.Context, region string) (map[string]string, error) {
	client, err := p.ec2(ctx, region)
	if err != nil {
		return nil, err
	}
	out, err := client.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{}) // a call without pages
	if err != nil {
		return nil, translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
	}
	names := map[string]string{}
	for _, z := range out.AvailabilityZones {
		if z.State == types.AvailabilityZoneStateAvailable || z.State == "" {
			names[sdk.ToString(z.ZoneId)] = sdk.ToString(z.ZoneName)
		}
	}
	return names, nil
}
