package aws

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Kinds of things that are made beside machines.
const (
	securityGroups  = "security group"
	placementGroups = "placement group"
)

// group is the security group that a cluster's machines are in.
type group struct {
	name string
	// ours: the cluster's own, made for its ports and removed with it; shared
	// ones are the installation's, or the user's if not managed.
	ours, managed bool
	closed        bool // not even ssh comes in from outside
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return fmt.Sprintf("%x", sum[:5])
}

func sharedGroup(installation string) string { return "sky-sg-" + digest(installation) }

func ownGroup(id cloud.ClusterID) string {
	return "sky-sg-" + inName(id.Name) + "-" + digest(id.Installation, id.Name, id.Hash)
}

// inName is as much of a cluster's name as the name of a group may hold, which
// has 255 characters at most.
func inName(name string) string { return name[:min(len(name), 200)] }

// groupOf decides which group a cluster's machines are in.
func groupOf(s Settings, id cloud.ClusterID, ports []string) group {
	if g := named(s.SecurityGroups, id.Name); g != "" {
		return group{name: g}
	}
	if len(ports) > 0 {
		return group{name: ownGroup(id), ours: true, managed: true, closed: s.UseSSM}
	}
	return group{name: sharedGroup(id.Installation), managed: true, closed: s.UseSSM}
}

// findGroup gives the group of that name; nil if there is none.
func findGroup(ctx context.Context, client *ec2.Client, at cloud.Place, vpc, name string) (*types.SecurityGroup, error) {
	list, err := listGroups(ctx, client, at, []types.Filter{
		{Name: sdk.String("group-name"), Values: []string{literal(name)}},
		{Name: sdk.String("vpc-id"), Values: []string{vpc}},
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

func listGroups(ctx context.Context, client *ec2.Client, at cloud.Place, by []types.Filter) ([]types.SecurityGroup, error) {
	var out []types.SecurityGroup
	for pages := ec2.NewDescribeSecurityGroupsPaginator(client, &ec2.DescribeSecurityGroupsInput{Filters: by}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, at, err)
		}
		out = append(out, page.SecurityGroups...)
	}
	return out, nil
}

// ensureGroup makes the group if it is managed and missing, and lets in what
// belongs in: everything from the group itself, ssh and the ports from
// everywhere. It returns the group's id.
func (p *Provider) ensureGroup(ctx context.Context, at cloud.Place, vpc string, id cloud.ClusterID, g group, ports []string) (string, error) {
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return "", err
	}
	have, err := findGroup(ctx, client, at, vpc, g.name)
	if err != nil {
		return "", err
	}
	if !g.managed {
		if have == nil {
			return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: at.Region},
				Err: fmt.Errorf("VPC %s has no security group %q (aws.security_group_name in the configuration)", vpc, g.name)}
		}
		return sdk.ToString(have.GroupId), nil
	}
	if have == nil {
		if have, err = p.makeGroup(ctx, client, at, vpc, id, g); err != nil {
			return "", err
		}
	}
	groupID := sdk.ToString(have.GroupId)
	if !g.closed {
		ports = append([]string{"22"}, ports...)
	}
	for _, rule := range missingRules(groupID, have.IpPermissions, ports) {
		err := p.known(ctx, groupKnown+groupID, newGroup, func() error {
			_, err := client.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: have.GroupId, IpPermissions: []types.IpPermission{rule}})
			return err
		})
		if err != nil && codeOf(err) != "InvalidPermission.Duplicate" {
			return "", translate(ctx, at, err)
		}
	}
	return groupID, nil
}

func (p *Provider) makeGroup(ctx context.Context, client *ec2.Client, at cloud.Place, vpc string, id cloud.ClusterID, g group) (*types.SecurityGroup, error) {
	tags := map[string]string{"skypilot": "true", cloud.TagInstallation: id.Installation}
	if g.ours {
		tags = id.Tags()
		tags["skypilot"] = "true"
	}
	var out *ec2.CreateSecurityGroupOutput
	err := cloud.Settled(ctx, func(ctx context.Context) (err error) {
		out, err = client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
			GroupName: sdk.String(g.name), VpcId: sdk.String(vpc), Description: sdk.String("Made by sky"),
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup, Tags: toTags(tags)}},
		})
		return err
	})
	if g.ours {
		switch {
		case err == nil:
			p.Recent().Add(id, at.Region, vm.Thing{Kind: securityGroups, Name: sdk.ToString(out.GroupId)})
		case !refused(err):
			p.Recent().Lost(id)
		}
	}
	if codeOf(err) == "InvalidGroup.Duplicate" { // it is not listed yet, or somebody was quicker
		for range settleTries {
			have, err := findGroup(ctx, client, at, vpc, g.name)
			if err != nil || have != nil {
				return have, err
			}
			cloud.ReportWait(ctx, "EC2 to list the security group "+g.name)
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(p.o.Poll):
			}
		}
		return nil, &cloud.UnreachableError{Err: fmt.Errorf("the security group %s exists and is not listed yet", g.name)}
	}
	if err != nil {
		return nil, translate(ctx, at, err)
	}
	return &types.SecurityGroup{GroupId: out.GroupId}, nil
}

// missingRules are the ways in that a group lacks.
func missingRules(groupID string, have []types.IpPermission, ports []string) []types.IpPermission {
	within := func(r types.IpPermission) bool {
		return sdk.ToString(r.IpProtocol) == "-1" && slices.ContainsFunc(r.UserIdGroupPairs, func(g types.UserIdGroupPair) bool { return sdk.ToString(g.GroupId) == groupID })
	}
	var out []types.IpPermission
	if !slices.ContainsFunc(have, within) {
		out = append(out, types.IpPermission{IpProtocol: sdk.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: sdk.String(groupID)}}})
	}
	for _, ports := range ports {
		a, b, err := cloud.PortRange(ports)
		from, to := int32(a), int32(b)
		if err != nil || slices.ContainsFunc(have, func(r types.IpPermission) bool { return open(r, from, to) }) {
			continue
		}
		out = append(out, types.IpPermission{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(from), ToPort: sdk.Int32(to),
			IpRanges: []types.IpRange{{CidrIp: sdk.String("0.0.0.0/0")}}})
	}
	return out
}

// open reports whether a rule lets the world reach all ports of the range.
func open(r types.IpPermission, from, to int32) bool {
	world := slices.ContainsFunc(r.IpRanges, func(i types.IpRange) bool { return sdk.ToString(i.CidrIp) == "0.0.0.0/0" })
	switch sdk.ToString(r.IpProtocol) {
	case "-1":
		return world
	case "tcp":
		return world && sdk.ToInt32(r.FromPort) <= from && to <= sdk.ToInt32(r.ToPort)
	}
	return false
}

func toTags(m map[string]string) []types.Tag {
	var out []types.Tag
	for k, v := range m {
		out = append(out, types.Tag{Key: sdk.String(k), Value: sdk.String(v)})
	}
	slices.SortFunc(out, func(a, b types.Tag) int { return strings.Compare(*a.Key, *b.Key) })
	return out
}

// OpenPorts lets the world reach ports of a cluster that runs. Machines in the
// installation's shared group are moved to a group of the cluster's own first.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	done, err := p.Take(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	list, err := p.find(ctx, id)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(m vm.Machine) bool { return !exists(m) })
	if id.Name == "" || len(list) == 0 {
		return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no cluster %s", id.Name)}
	}
	at := cloud.Place{Cloud: Name, Region: list[0].Region, Zone: list[0].Zone}
	s := p.o.Settings()
	g := groupOf(s, id, ports)
	if !g.managed {
		return nil // the user's own group, and the user's own rules
	}
	net, err := p.network(ctx, at, s)
	if err != nil {
		return err
	}
	groupID, err := p.ensureGroup(ctx, at, net.vpc, id, g, ports)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(m vm.Machine) bool { return about(m).fabric }) {
		if err := p.leaveTo(ctx, at, groupID); err != nil {
			return err
		}
	}
	return p.moveTo(ctx, at, list, groupID)
}

// moveTo puts the machines into one security group; those that are in it stay.
func (p *Provider) moveTo(ctx context.Context, at cloud.Place, list []vm.Machine, groupID string) error {
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return err
	}
	for _, m := range list {
		i := about(m)
		if slices.Contains(i.groups, groupID) || !exists(m) {
			continue
		}
		err := p.known(ctx, groupKnown+groupID, newGroup, func() error {
			if len(i.nics) < 2 {
				_, err := client.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: sdk.String(m.ID), Groups: []string{groupID}})
				return err
			}
			for _, nic := range slices.Backward(i.nics) { // the first, by which the machine is judged, last
				_, err := client.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: sdk.String(nic), Groups: []string{groupID}})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && !gone(err) {
			return translate(ctx, at, err)
		}
	}
	return nil
}

// Bounds of leaveGroup: what it does may not keep machines running for long.
const (
	mostLeaving   = 16
	leavingAtOnce = 4
	leavingTime   = 10 * time.Second
)

// leaveGroup moves a cluster's machines from its own security group to the one of
// the installation before they end. They cost nothing once they are asked to end,
// but are in their group until they are taken apart, which takes a minute, and 20
// on metal; nobody has to wait for that to remove the group. What does not work
// is waited for instead, and so is what is in a placement group.
func (p *Provider) leaveGroup(ctx context.Context, id cloud.ClusterID, list []vm.Machine) {
	own := ownGroup(id)
	list = slices.DeleteFunc(slices.Clone(list), func(m vm.Machine) bool {
		return !exists(m) || len(about(m).nics) > 1 || !slices.Contains(about(m).groupNames, own)
	})
	if len(list) == 0 || len(list) > mostLeaving {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leavingTime)
	defer cancel()
	at := cloud.Place{Cloud: Name, Region: list[0].Region}
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return
	}
	to, err := findGroup(ctx, client, at, about(list[0]).vpc, sharedGroup(id.Installation))
	if err != nil || to == nil {
		return
	}
	var g errgroup.Group
	g.SetLimit(leavingAtOnce)
	for _, m := range list {
		g.Go(func() error { return p.moveTo(ctx, at, []vm.Machine{m}, sdk.ToString(to.GroupId)) })
	}
	_ = g.Wait() // see above
}

// gone reports whether a call failed since the machine has ended meanwhile.
func gone(err error) bool {
	switch codeOf(err) {
	case "InvalidInstanceID.NotFound", "InvalidNetworkInterfaceID.NotFound", "IncorrectInstanceState", "IncorrectState":
		return true
	}
	return false
}
