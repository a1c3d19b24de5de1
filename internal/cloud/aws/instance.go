package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
)

// instance is what EC2 says of a machine that carries our tags.
type instance struct {
	id, region, zone, zoneID string
	state                    types.InstanceStateName
	index                    int32 // within the call that made it
	rank                     int   // by its tag; -1: none yet
	tags                     map[string]string
	privateIP, publicIP      string
	launched                 time.Time // since when it is on
	created                  time.Time
	reasonCode, reason       string
	vpc                      string
	groups, groupNames       []string // of its security groups: ids, names
	nics                     []string // ids of its network interfaces
	fabric                   bool     // some of them are fast ones
	spot                     bool
}

// exists reports whether the machine is there, on or off.
func (i instance) exists() bool {
	return i.state != types.InstanceStateNameTerminated && i.state != types.InstanceStateNameShuttingDown
}

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
func (p *Provider) describe(ctx context.Context, region string, id cloud.ClusterID) ([]instance, error) {
	client, err := p.ec2(ctx, region)
	if err != nil {
		return nil, err
	}
	var out []instance
	pages := ec2.NewDescribeInstancesPaginator(client, &ec2.DescribeInstancesInput{Filters: filters(id), MaxResults: sdk.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				got := read(region, i)
				// Without an installation the filter also finds what is not ours at all.
				if got.tags[cloud.TagInstallation] != "" {
					out = append(out, got)
				}
			}
		}
	}
	return out, nil
}

func read(region string, i types.Instance) instance {
	out := instance{
		id: sdk.ToString(i.InstanceId), region: region, rank: -1, tags: map[string]string{},
		privateIP: sdk.ToString(i.PrivateIpAddress), publicIP: sdk.ToString(i.PublicIpAddress),
		launched: sdk.ToTime(i.LaunchTime), index: sdk.ToInt32(i.AmiLaunchIndex), vpc: sdk.ToString(i.VpcId),
		spot: i.InstanceLifecycle == types.InstanceLifecycleTypeSpot,
	}
	// An instance that is started again says when that was; the disk that it
	// was made with is as old as it is.
	out.created = out.launched
	for _, d := range i.BlockDeviceMappings {
		if d.Ebs != nil && d.Ebs.AttachTime != nil && d.Ebs.AttachTime.Before(out.created) {
			out.created = *d.Ebs.AttachTime
		}
	}
	if i.State != nil {
		out.state = i.State.Name
	}
	if i.Placement != nil {
		out.zone = sdk.ToString(i.Placement.AvailabilityZone)
		out.zoneID = sdk.ToString(i.Placement.AvailabilityZoneId)
	}
	for _, t := range i.Tags {
		out.tags[sdk.ToString(t.Key)] = sdk.ToString(t.Value)
	}
	if r, err := strconv.Atoi(out.tags[cloud.TagRank]); err == nil && r >= 0 {
		out.rank = r
	}
	if i.StateReason != nil {
		out.reasonCode, out.reason = sdk.ToString(i.StateReason.Code), sdk.ToString(i.StateReason.Message)
	}
	for _, g := range i.SecurityGroups {
		out.groups = append(out.groups, sdk.ToString(g.GroupId))
		out.groupNames = append(out.groupNames, sdk.ToString(g.GroupName))
	}
	for _, n := range i.NetworkInterfaces {
		out.nics = append(out.nics, sdk.ToString(n.NetworkInterfaceId))
		out.fabric = out.fabric || strings.HasPrefix(sdk.ToString(n.InterfaceType), "efa")
	}
	return out
}

// inZone reports whether the machine is in the zone, which may be a name
// (us-east-1a) or an id (use1-az1); "" is any.
func (i instance) inZone(zone string) bool {
	return zone == "" || strings.EqualFold(zone, i.zone) || strings.EqualFold(zone, i.zoneID)
}

// byAge orders instances of one cluster: those of a call in its order.
func byAge(a, b instance) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.index, b.index), cmp.Compare(a.id, b.id))
}

// seated gives ranks to the instances that exist and have none: the lowest that
// are free, in the order of their age. It changes the list and returns what it
// gave, by instance id.
func seated(list []instance) map[string]int {
	taken := map[int]bool{}
	var without []*instance
	for n := range list {
		switch i := &list[n]; {
		case !i.exists():
		case i.rank >= 0:
			taken[i.rank] = true
		default:
			without = append(without, i)
		}
	}
	slices.SortFunc(without, func(a, b *instance) int { return byAge(*a, *b) })
	given := map[string]int{}
	next := 0
	for _, i := range without {
		for taken[next] {
			next++
		}
		taken[next] = true
		i.rank = next
		given[i.id] = next
	}
	return given
}

// endedByUs are the reasons of ends that somebody asked for.
var endedByUs = []string{"", "Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown", "User initiated"}

// node says in sky's words what an instance is; false for those that ended
// because somebody asked for it.
func (p *Provider) node(i instance) (cloud.Node, bool, error) {
	s := p.o.Settings()
	n := cloud.Node{
		ID: i.id, Cluster: i.tags[cloud.TagCluster], Hash: i.tags[cloud.TagHash], Rank: i.rank,
		Place:      cloud.Place{Cloud: Name, Region: i.region, Zone: i.zone},
		InternalIP: i.privateIP, ExternalIP: i.publicIP, Created: i.created, Reason: i.why(),
		About: cloud.AboutTags(i.tags, "", i.spot),
		Reach: cloud.Reach{Method: "ssh", Host: i.publicIP, Port: 22, User: s.user(), ProxyCommand: s.proxy(i.region), Machine: cloud.MachinePowerOff},
	}
	if s.InternalIPs || i.publicIP == "" {
		n.Reach.Host = i.privateIP
	}
	if s.throughSSM(i.region) {
		n.Reach.ProxyCommand = ssmCommand(s.Profile, i.region, i.id)
	}
	if s.WithoutAgents {
		n.Reach = cloud.Reach{Method: cloud.ReachNone, Host: n.Reach.Host}
	}
	switch i.state {
	case types.InstanceStateNamePending:
		n.State = cloud.NodePending
	case types.InstanceStateNameRunning:
		n.State = cloud.NodeRunning
	case types.InstanceStateNameStopping:
		n.State = cloud.NodeStopping
	case types.InstanceStateNameStopped:
		n.State = cloud.NodeStopped
	case types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated:
		n.State = cloud.NodeGone
		return n, !slices.Contains(endedByUs, i.reasonCode), nil
	default:
		return n, false, unknownState(i)
	}
	return n, true, nil
}

// why is the reason of the state in AWS's own words; "" for those that are no
// news.
func (i instance) why() string {
	switch {
	case i.state == types.InstanceStateNameRunning, i.state == types.InstanceStateNamePending,
		i.exists() && strings.Contains(i.reasonCode, "UserInitiated"):
		return ""
	case i.reasonCode == "":
		return i.reason
	case i.reason == "":
		return i.reasonCode
	case strings.Contains(i.reason, i.reasonCode):
		return i.reason
	}
	return i.reasonCode + ": " + i.reason
}

// unknownState is a broken answer: it proves nothing about the machine.
func unknownState(i instance) error {
	return &cloud.UnreachableError{Err: fmt.Errorf("%s is said to be %q, which is no state that this version of sky knows", i.id, i.state)}
}
