package aws

import (
	"context"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// detail is what only this provider needs to know of a machine.
type detail struct {
	reasonCode         string // of its state
	vpc                string
	groups, groupNames []string // of its security groups: ids, names
	nics               []string // ids of its network interfaces
	fabric             bool     // some of them are fast ones
}

// about is the machine's detail; one that is in no list yet has none.
func about(m vm.Machine) detail {
	d, _ := m.Detail.(detail)
	return d
}

var states = map[types.InstanceStateName]vm.State{
	types.InstanceStateNamePending: vm.Pending, types.InstanceStateNameRunning: vm.Running,
	types.InstanceStateNameStopping: vm.Stopping, types.InstanceStateNameStopped: vm.Stopped,
	types.InstanceStateNameShuttingDown: vm.Ending, types.InstanceStateNameTerminated: vm.Ended,
}

// exists reports whether the machine is there, on or off.
func exists(m vm.Machine) bool { return m.State != vm.Ending && m.State != vm.Ended }

// The tags of SkyPilot's own instances, besides those of package cloud.
const (
	tagRayCluster = "ray-cluster-name"
	tagRayType    = "ray-node-type"
	tagName       = "Name"
	tagUser       = "skypilot-user"
)

// filters find the instances of a cluster, or of an installation.
func filters(id cloud.ClusterID) []types.Filter {
	tags := id.Tags()
	out := []types.Filter{}
	for _, key := range []string{cloud.TagInstallation, cloud.TagCluster, cloud.TagHash} {
		if v, ok := tags[key]; ok {
			out = append(out, types.Filter{Name: sdk.String("tag:" + key), Values: []string{literal(v)}})
		}
	}
	if len(out) == 0 {
		out = append(out, types.Filter{Name: sdk.String("tag-key"), Values: []string{cloud.TagInstallation}})
	}
	return out
}

// literal keeps EC2 from reading * and ? in a filter as wildcards.
func literal(v string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(v)
}

// describe lists the instances of a region with the cluster's tags.
func (p *Provider) describe(ctx context.Context, region string, id cloud.ClusterID) ([]vm.Machine, error) {
	client, err := p.ec2(ctx, region)
	if err != nil {
		return nil, err
	}
	var out []vm.Machine
	pages := ec2.NewDescribeInstancesPaginator(client, &ec2.DescribeInstancesInput{Filters: filters(id), MaxResults: sdk.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out = append(out, p.machine(region, i))
			}
		}
	}
	return out, nil
}

// machine reads what EC2 says of an instance.
func (p *Provider) machine(region string, i types.Instance) vm.Machine {
	m := vm.Machine{
		ID: sdk.ToString(i.InstanceId), Region: region, Type: string(i.InstanceType), Spot: i.InstanceLifecycle == types.InstanceLifecycleTypeSpot,
		PrivateIP: sdk.ToString(i.PrivateIpAddress), PublicIP: sdk.ToString(i.PublicIpAddress),
		Created: sdk.ToTime(i.LaunchTime), Order: int(sdk.ToInt32(i.AmiLaunchIndex)), Tags: map[string]string{},
	}
	// An instance that is started again says when that was; the disk that it
	// was made with is as old as it is.
	for _, d := range i.BlockDeviceMappings {
		if d.Ebs != nil && d.Ebs.AttachTime != nil && d.Ebs.AttachTime.Before(m.Created) {
			m.Created = *d.Ebs.AttachTime
		}
	}
	if i.State != nil {
		m.State, m.RawState = states[i.State.Name], string(i.State.Name)
	}
	if i.Placement != nil {
		m.Zone, m.ZoneID = sdk.ToString(i.Placement.AvailabilityZone), sdk.ToString(i.Placement.AvailabilityZoneId)
	}
	for _, t := range i.Tags {
		m.Tags[sdk.ToString(t.Key)] = sdk.ToString(t.Value)
	}
	d := detail{vpc: sdk.ToString(i.VpcId)}
	if r := i.StateReason; r != nil {
		d.reasonCode = sdk.ToString(r.Code)
		m.Reason, m.Reclaimed = why(m.State, d.reasonCode, sdk.ToString(r.Message)), !slices.Contains(endedByUs, d.reasonCode)
	}
	for _, g := range i.SecurityGroups {
		d.groups = append(d.groups, sdk.ToString(g.GroupId))
		d.groupNames = append(d.groupNames, sdk.ToString(g.GroupName))
	}
	for _, n := range i.NetworkInterfaces {
		d.nics = append(d.nics, sdk.ToString(n.NetworkInterfaceId))
		d.fabric = d.fabric || strings.HasPrefix(sdk.ToString(n.InterfaceType), "efa")
	}
	m.Detail, m.Reach = d, p.reach(m)
	return m
}

// reach is the way to a machine by the settings of this moment.
func (p *Provider) reach(m vm.Machine) cloud.Reach {
	s := p.o.Settings()
	r := cloud.Reach{Method: "ssh", Host: m.PublicIP, Port: 22, User: s.user(), ProxyCommand: s.ProxyCommand.In(m.Region), Machine: cloud.MachinePowerOff}
	if s.InternalIPs || m.PublicIP == "" {
		r.Host = m.PrivateIP
	}
	if s.throughSSM(m.Region) {
		r.ProxyCommand = ssmCommand(s.Profile, m.Region, m.ID)
	}
	if s.WithoutAgents {
		r = cloud.Reach{Method: cloud.ReachNone, Host: r.Host}
	}
	return r
}

// endedByUs are the reasons of ends that somebody asked for.
var endedByUs = []string{"", "Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown", "User initiated"}

// why is the reason of a state in AWS's own words; "" for those that are no news.
func why(state vm.State, code, text string) string {
	switch {
	case state == vm.Running, state == vm.Pending,
		state != vm.Ending && state != vm.Ended && strings.Contains(code, "UserInitiated"):
		return ""
	case code == "":
		return text
	case text == "":
		return code
	case strings.Contains(text, code):
		return text
	}
	return code + ": " + text
}
