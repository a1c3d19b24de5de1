package aws

import (
	"cmp"
	"context"
	"regexp"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
)

// The fast network of EC2: Elastic Fabric Adapters, in machines that are put
// close together.

// efaFamilies are the machines whose adapters sky sets up.
var efaFamilies = regexp.MustCompile(`^(g4dn|g5|g6|gr6|g6e|p4d|p4de|p5|p5e|p5en|p6-b200|p6-b300)\.`)

// efaImages have the drivers; the first name that Amazon publishes counts.
var efaImages = []string{
	"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20250808",
	"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) *",
}

// adapters is how many EFAs a machine of this launch can have; 0 if it wants
// or has none.
func (p *Provider) adapters(ctx context.Context, spec cloud.LaunchSpec) (int, error) {
	if spec.NetworkTier != "best" || !efaFamilies.MatchString(spec.Offer.InstanceType) {
		return 0, nil
	}
	client, err := p.ec2(ctx, spec.Offer.Region)
	if err != nil {
		return 0, err
	}
	in := &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{types.InstanceType(spec.Offer.InstanceType)}}
	most := 0
	for pages := ec2.NewDescribeInstanceTypesPaginator(client, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, translate(ctx, spec.Offer.Place, err)
		}
		for _, t := range page.InstanceTypes {
			if t.NetworkInfo != nil && t.NetworkInfo.EfaInfo != nil {
				most = int(sdk.ToInt32(t.NetworkInfo.EfaInfo.MaximumEfaInterfaces))
			}
		}
	}
	return most, nil
}

// fabric are the network interfaces of a machine with so many adapters. More
// than one cannot be had together with a public address.
func fabric(first types.InstanceNetworkInterfaceSpecification, machine string, adapters int, internal bool) []types.InstanceNetworkInterfaceSpecification {
	first.InterfaceType = sdk.String("efa")
	out := []types.InstanceNetworkInterfaceSpecification{first}
	if !internal || adapters < 2 {
		return out
	}
	out[0].AssociatePublicIpAddress = nil // may not even be mentioned
	for card := 1; card < adapters; card++ {
		kind := "efa-only"
		if (machine == "p5.48xlarge" || machine == "p5e.48xlarge") && card%4 == 0 {
			kind = "efa"
		}
		out = append(out, types.InstanceNetworkInterfaceSpecification{
			DeviceIndex: sdk.Int32(1), NetworkCardIndex: sdk.Int32(int32(card)), InterfaceType: sdk.String(kind),
			Groups: first.Groups, DeleteOnTermination: sdk.Bool(true),
		})
	}
	return out
}

// efaImage finds the newest image with the drivers; false if there is none.
func (p *Provider) efaImage(ctx context.Context, at cloud.Place) (image, bool, error) {
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return image{}, false, err
	}
	for _, name := range efaImages {
		images, err := listImages(ctx, client, at, &ec2.DescribeImagesInput{Owners: []string{"amazon"}, Filters: []types.Filter{
			{Name: sdk.String("name"), Values: []string{name}}, {Name: sdk.String("state"), Values: []string{"available"}},
		}})
		if err != nil {
			return image{}, false, err
		}
		if len(images) > 0 {
			return readImage(slices.MaxFunc(images, func(a, b types.Image) int {
				return cmp.Compare(sdk.ToString(a.CreationDate), sdk.ToString(b.CreationDate))
			})), true, nil
		}
	}
	return image{}, false, nil
}

// leaveTo lets machines of a group send what they like to each other, which
// EFAs want to be said.
func (p *Provider) leaveTo(ctx context.Context, at cloud.Place, groupID string) error {
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return err
	}
	err = p.known(ctx, groupKnown+groupID, newGroup, func() error {
		_, err := client.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: sdk.String(groupID),
			IpPermissions: missingRules(groupID, nil, nil)[:1]})
		return err
	})
	if err != nil && codeOf(err) != "InvalidPermission.Duplicate" {
		return translate(ctx, at, err)
	}
	return nil
}

func placementGroup(id cloud.ClusterID) string {
	return "sky-pg-" + inName(id.Name) + "-" + digest(id.Installation, id.Name, id.Hash)
}

// closeTogether makes the cluster's placement group, which is removed with it.
func (p *Provider) closeTogether(ctx context.Context, at cloud.Place, id cloud.ClusterID) (string, error) {
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return "", err
	}
	name := placementGroup(id)
	err = cloud.Settled(ctx, func(ctx context.Context) error {
		_, err := client.CreatePlacementGroup(ctx, &ec2.CreatePlacementGroupInput{
			GroupName: sdk.String(name), Strategy: types.PlacementStrategyCluster,
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypePlacementGroup, Tags: toTags(id.Tags())}},
		})
		return err
	})
	p.fresh.with(id, func(m *making) { m.placements[name] = at.Region })
	if err != nil && codeOf(err) != "InvalidPlacementGroup.Duplicate" {
		return "", translate(ctx, at, err)
	}
	return name, nil
}

// removePlacement removes the placement groups of a cluster in a region.
// It returns those that are left.
func (p *Provider) removePlacement(ctx context.Context, client *ec2.Client, at cloud.Place, id cloud.ClusterID, made making, settled bool) (left []string, err error) {
	// A call without pages.
	out, err := client.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{Filters: filters(id)})
	if codeOf(err) == "UnauthorizedOperation" {
		return nil, nil // who may not look at them is not one to have made them
	}
	if err != nil {
		return nil, translate(ctx, at, err)
	}
	names := in(at.Region, made.placements)
	for _, g := range out.PlacementGroups {
		if name := sdk.ToString(g.GroupName); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		_, err := client.DeletePlacementGroup(ctx, &ec2.DeletePlacementGroupInput{GroupName: sdk.String(name)})
		if err == nil {
			p.fresh.with(id, func(m *making) { delete(m.placements, name) })
		}
		switch codeOf(err) {
		case "InvalidPlacementGroup.Unknown":
			if _, mine := made.placements[name]; mine && !settled && made.young() {
				left = append(left, "the placement group "+name)
			}
			continue
		case "InvalidPlacementGroup.InUse":
			left = append(left, "the placement group "+name)
			continue
		}
		if err != nil {
			return nil, translate(ctx, at, err)
		}
	}
	return left, nil
}
