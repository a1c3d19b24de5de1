package aws

import (
	"context"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
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
	regions, err := p.allRegions(ctx)
	if err != nil || p.o.Zones == nil {
		return err
	}
	found := make([]map[string]string, len(regions))
	g, gctx := errgroup.WithContext(ctx)
	for i, region := range regions {
		g.Go(func() error {
			client, err := p.ec2(gctx, region)
			if err != nil {
				return err
			}
			out, err := client.DescribeAvailabilityZones(gctx, &ec2.DescribeAvailabilityZonesInput{})
			if err != nil {
				return translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
			}
			found[i] = map[string]string{}
			for _, z := range out.AvailabilityZones {
				if z.State == types.AvailabilityZoneStateAvailable || z.State == "" {
					found[i][sdk.ToString(z.ZoneId)] = sdk.ToString(z.ZoneName)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
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
