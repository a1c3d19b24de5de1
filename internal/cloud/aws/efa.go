package aws

import (
	"cmp"
	"context"
	"errors"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// The fast network of EC2: Elastic Fabric Adapters, in machines that are put
// close together.

// efaFamilies are the machines whose adapters sky sets up.
var efaFamilies = lazyregexp.New(`^(g4dn|g5|g6|gr6|g6e|p4d|p4de|p5|p5e|p5en|p6-b200|p6-b300)\.`)

// efaImages have the drivers; the first name that Amazon publishes counts.
var efaImages = []string{
	"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20250808",
	"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) *",
}

// adapters are the network cards of a machine of this launch that can have an
// EFA, one each; none if it wants or has none.
func (p *Provider) adapters(ctx context.Context, spec cloud.LaunchSpec) ([]int, error) {
	if spec.NetworkTier != "best" || !efaFamilies.MatchString(spec.Offer.InstanceType) {
		return nil, nil
	}
	client, err := p.ec2(ctx, spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	in := &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{types.InstanceType(spec.Offer.InstanceType)}}
	var out []int
	for pages := ec2.NewDescribeInstanceTypesPaginator(client, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, spec.Offer.Place, err)
		}
		for _, t := range page.InstanceTypes {
			if t.NetworkInfo != nil && t.NetworkInfo.EfaInfo != nil {
				out = efaCards(spec.Offer.InstanceType, *t.NetworkInfo)
			}
		}
	}
	return out, nil
}

// plainFirst matches machines whose first network card can have no EFA, in case
// EC2 does not say which can.
var plainFirst = lazyregexp.New(`^p6-b300\.`)

// efaCards are the indexes of the network cards that can have an EFA, in order,
// as many as the machine may have.
func efaCards(machine string, info types.NetworkInfo) []int {
	fast := func(kind types.NetworkCardInterfaceType) bool {
		return kind == types.NetworkCardInterfaceTypeEfa || kind == types.NetworkCardInterfaceTypeEfaOnly
	}
	var out []int
	for _, card := range info.NetworkCards {
		if slices.ContainsFunc(card.InterfaceTypes, fast) {
			out = append(out, int(sdk.ToInt32(card.NetworkCardIndex)))
		}
	}
	most := int(sdk.ToInt32(info.EfaInfo.MaximumEfaInterfaces))
	if len(out) == 0 { // EC2 does not say
		first := 0
		if plainFirst.MatchString(machine) {
			first = 1
		}
		for n := range most {
			out = append(out, first+n)
		}
	}
	slices.Sort(out)
	return out[:min(most, len(out))]
}

// errPlainFirst refuses machines that would be rented without what was asked for.
var errPlainFirst = errors.New("its fast adapters come beside an ordinary one, and AWS gives machines with several no public address; " +
	"set aws.use_internal_ips (and how they are reached: aws.ssh_proxy_command or aws.use_ssm), or take network_tier: best out of the task")

// fabric are the network interfaces of a machine with adapters on these network
// cards. More than one interface cannot be had together with a public address.
// The first is on the first card, which not every machine has adapters on.
func fabric(first types.InstanceNetworkInterfaceSpecification, machine string, adapters []int, internal bool) ([]types.InstanceNetworkInterfaceSpecification, error) {
	rest := adapters
	if adapters[0] == 0 {
		first.InterfaceType = sdk.String("efa")
		rest = adapters[1:]
	} else if !internal {
		return nil, errPlainFirst
	}
	out := []types.InstanceNetworkInterfaceSpecification{first}
	if !internal || len(rest) == 0 {
		return out, nil
	}
	out[0].AssociatePublicIpAddress = nil // may not even be mentioned
	for _, card := range rest {
		kind := "efa-only"
		if (machine == "p5.48xlarge" || machine == "p5e.48xlarge") && card%4 == 0 {
			kind = "efa"
		}
		out = append(out, types.InstanceNetworkInterfaceSpecification{
			DeviceIndex: sdk.Int32(1), NetworkCardIndex: sdk.Int32(int32(card)), InterfaceType: sdk.String(kind),
			Groups: first.Groups, DeleteOnTermination: sdk.Bool(true),
		})
	}
	return out, nil
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
	p.Recent().Add(id, at.Region, vm.Thing{Kind: placementGroups, Name: name})
	if err != nil && codeOf(err) != "InvalidPlacementGroup.Duplicate" {
		return "", translate(ctx, at, err)
	}
	return name, nil
}

// removePlacement removes the placement groups of a cluster in a region.
// It returns those that are left.
func (p *Provider) removePlacement(ctx context.Context, client *ec2.Client, at cloud.Place, id cloud.ClusterID, made vm.Made, settled bool) (left []string, err error) {
	// A call without pages.
	out, err := client.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{Filters: filters(id)})
	if codeOf(err) == "UnauthorizedOperation" {
		return nil, nil // who may not look at them is not one to have made them
	}
	if err != nil {
		return nil, translate(ctx, at, err)
	}
	lately := made.Of(placementGroups, at.Region)
	names := slices.Clone(lately)
	for _, g := range out.PlacementGroups {
		names = append(names, sdk.ToString(g.GroupName))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		_, err := client.DeletePlacementGroup(ctx, &ec2.DeletePlacementGroupInput{GroupName: sdk.String(name)})
		if err == nil {
			p.Recent().Remove(id, vm.Thing{Kind: placementGroups, Name: name})
		}
		switch codeOf(err) {
		case "InvalidPlacementGroup.Unknown":
			if slices.Contains(lately, name) && !settled && made.Young() {
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
