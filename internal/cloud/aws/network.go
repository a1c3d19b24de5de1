package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
)

// network is where the machines of a cluster may be put.
type network struct {
	vpc     string
	subnets []subnet // in the order in which they are tried
}

type subnet struct {
	id, zone, zoneID, name string
	public                 bool // what is in it can be reached from outside
	givesAddresses         bool // to what is put in it
}

// network finds the VPC and those of its subnets that fit the zone and how
// machines are reached.
func (p *Provider) network(ctx context.Context, at cloud.Place, s Settings) (network, error) {
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return network{}, err
	}
	vpc, err := findVPC(ctx, client, at, s.VPC)
	if err != nil {
		return network{}, err
	}
	ours := []types.Filter{{Name: sdk.String("vpc-id"), Values: []string{vpc}}}
	var subnets []types.Subnet
	for pages := ec2.NewDescribeSubnetsPaginator(client, &ec2.DescribeSubnetsInput{Filters: ours}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return network{}, translate(ctx, at, err)
		}
		subnets = append(subnets, page.Subnets...)
	}
	var tables []types.RouteTable
	for pages := ec2.NewDescribeRouteTablesPaginator(client, &ec2.DescribeRouteTablesInput{Filters: ours}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return network{}, translate(ctx, at, err)
		}
		tables = append(tables, page.RouteTables...)
	}
	fit, err := choose(readSubnets(subnets, tables), at.Zone, s.Subnets, s.InternalIPs)
	if err != nil {
		return network{}, &cloud.InvalidError{Place: at, Err: fmt.Errorf("VPC %s: %w", vpc, err)}
	}
	return network{vpc: vpc, subnets: fit}, nil
}

func findVPC(ctx context.Context, client *ec2.Client, at cloud.Place, name string) (string, error) {
	filter := types.Filter{Name: sdk.String("is-default"), Values: []string{"true"}}
	if name != "" {
		filter = types.Filter{Name: sdk.String("tag:Name"), Values: []string{literal(name)}}
	}
	var vpcs []types.Vpc
	for pages := ec2.NewDescribeVpcsPaginator(client, &ec2.DescribeVpcsInput{Filters: []types.Filter{filter}}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", translate(ctx, at, err)
		}
		vpcs = append(vpcs, page.Vpcs...)
	}
	var err error
	switch n := len(vpcs); {
	case n == 1:
		return sdk.ToString(vpcs[0].VpcId), nil
	case n == 0 && name == "":
		err = errors.New("the region has no default VPC; make one with: aws ec2 create-default-vpc --region " + at.Region + ", or name yours in the configuration as aws.vpc_name")
	case n == 0:
		err = fmt.Errorf("no VPC has the tag Name=%s (aws.vpc_name in the configuration)", name)
	default:
		err = fmt.Errorf("%d VPCs have the tag Name=%s; aws.vpc_name must name exactly one", n, name)
	}
	return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: at.Region}, Err: err}
}

// readSubnets reports which subnets are public: those whose own route table, or
// the VPC's main one if they have none, leads to an internet gateway.
func readSubnets(list []types.Subnet, tables []types.RouteTable) []subnet {
	own := map[string]bool{}
	mainPublic := false
	for _, t := range tables {
		public := slices.ContainsFunc(t.Routes, func(r types.Route) bool { return strings.HasPrefix(sdk.ToString(r.GatewayId), "igw-") })
		for _, a := range t.Associations {
			if sdk.ToBool(a.Main) {
				mainPublic = public
			}
			if id := sdk.ToString(a.SubnetId); id != "" {
				own[id] = public
			}
		}
	}
	var out []subnet
	for _, s := range list {
		if s.State != types.SubnetStateAvailable {
			continue
		}
		id := sdk.ToString(s.SubnetId)
		public, ok := own[id]
		if !ok {
			public = mainPublic
		}
		n := subnet{id: id, zone: sdk.ToString(s.AvailabilityZone), zoneID: sdk.ToString(s.AvailabilityZoneId),
			public: public, givesAddresses: sdk.ToBool(s.MapPublicIpOnLaunch)}
		for _, t := range s.Tags {
			if sdk.ToString(t.Key) == tagName {
				n.name = sdk.ToString(t.Value)
			}
		}
		out = append(out, n)
	}
	return out
}

// choose gives the subnets that a launch may use, latest zone first. zone may
// be a name or an id, "" is any; names limit the choice by the tag Name.
func choose(list []subnet, zone string, names []string, internal bool) ([]subnet, error) {
	if len(names) > 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(s subnet) bool { return !slices.Contains(names, s.name) })
		if len(list) == 0 {
			return nil, fmt.Errorf("none of its subnets has the tag Name=%s (aws.subnet_names in the configuration)", strings.Join(names, " or "))
		}
	}
	reachable := slices.DeleteFunc(slices.Clone(list), func(s subnet) bool {
		if internal {
			return s.public || s.givesAddresses
		}
		return !s.public
	})
	if len(reachable) == 0 {
		if internal {
			return nil, errors.New("it has no private subnet, which aws.use_internal_ips wants")
		}
		return nil, errors.New("it has no subnet with a route to an internet gateway; machines could not be reached. Make one, or set aws.use_internal_ips and aws.ssh_proxy_command")
	}
	fit := slices.DeleteFunc(slices.Clone(reachable), func(s subnet) bool {
		return zone != "" && !strings.EqualFold(zone, s.zone) && !strings.EqualFold(zone, s.zoneID)
	})
	if len(fit) == 0 {
		return nil, fmt.Errorf("it has no such subnet in zone %s", zone)
	}
	slices.SortStableFunc(fit, func(a, b subnet) int { return cmp.Or(cmp.Compare(b.zone, a.zone), cmp.Compare(a.id, b.id)) })
	return fit, nil
}
