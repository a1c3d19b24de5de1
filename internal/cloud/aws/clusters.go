package aws

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Nodes lists the instances with the cluster's tags. Those that AWS ended by
// itself are listed as a proof, until another machine has their rank.
func (p *Provider) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	list, err := p.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.toNodes(list)
}

func (p *Provider) toNodes(list []instance) ([]cloud.Node, error) {
	type incarnation struct{ cluster, hash string }
	type seat struct {
		incarnation
		rank int
	}
	byCluster := map[incarnation][]instance{}
	for _, i := range list {
		c := incarnation{i.tags[cloud.TagCluster], i.tags[cloud.TagHash]}
		byCluster[c] = append(byCluster[c], i)
	}
	nodes := make([]cloud.Node, 0, len(list))
	taken := map[seat]bool{}
	for c, instances := range byCluster {
		seated(instances)
		for _, i := range instances {
			n, ok, err := p.node(i)
			if err != nil {
				return nil, err
			}
			if !ok || n.Rank < 0 && n.State == cloud.NodeGone {
				continue
			}
			if n.State != cloud.NodeGone {
				taken[seat{c, n.Rank}] = true
			}
			nodes = append(nodes, n)
		}
	}
	// The latest proof is the one that counts.
	slices.SortStableFunc(nodes, func(a, b cloud.Node) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Rank, b.Rank), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return slices.DeleteFunc(nodes, func(n cloud.Node) bool {
		s := seat{incarnation{n.Cluster, n.Hash}, n.Rank}
		gone := n.State == cloud.NodeGone && taken[s]
		taken[s] = true
		return gone
	}), nil
}

// existing is how many of the machines are there, on or off.
func existing(list []instance) int {
	n := 0
	for _, i := range list {
		if i.exists() {
			n++
		}
	}
	return n
}

// Stop switches the cluster's machines off and waits until they are.
func (p *Provider) Stop(ctx context.Context, id cloud.ClusterID) error {
	if id.Name == "" {
		return nil // no cluster has no name; the tags of none would fit all
	}
	leave, err := p.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	w := &wait{what: "the machines to stop", most: slowToEnd * p.o.Timeout}
	return p.until(ctx, w, func(ctx context.Context) (bool, error) {
		list, err := p.find(ctx, id)
		if err != nil {
			return false, err
		}
		w.what = machinesTo("stop", existing(list), list, func(i instance) bool { return i.state == types.InstanceStateNameStopped })
		rest := true
		toStop := map[string][]string{}
		for _, i := range list {
			if _, _, err := p.node(i); err != nil {
				return false, err
			}
			switch i.state {
			case types.InstanceStateNamePending, types.InstanceStateNameRunning:
				rest = false
				toStop[i.region] = append(toStop[i.region], i.id)
			case types.InstanceStateNameStopping:
				rest = false
			}
		}
		return rest, p.each(ctx, toStop, func(ctx context.Context, client *ec2.Client, ids []string) error {
			_, err := client.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})
			return err
		})
	})
}

// WhenOff sets what EC2 does with the cluster's machines when they power off.
func (p *Provider) WhenOff(ctx context.Context, id cloud.ClusterID, ends bool) error {
	if id.Name == "" {
		return nil
	}
	leave, err := p.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	list, err := p.find(ctx, id)
	if err != nil {
		return err
	}
	behavior := types.ShutdownBehaviorStop
	if ends {
		behavior = types.ShutdownBehaviorTerminate
	}
	for _, i := range list {
		if !i.exists() || i.spot { // a spot machine always ends
			continue
		}
		client, err := p.ec2(ctx, i.region)
		if err != nil {
			return err
		}
		_, err = client.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{
			InstanceId: sdk.String(i.id), InstanceInitiatedShutdownBehavior: &types.AttributeValue{Value: sdk.String(string(behavior))},
		})
		if err != nil && !gone(err) {
			return translate(ctx, cloud.Place{Cloud: Name, Region: i.region}, err)
		}
	}
	return nil
}

// each makes a call for the instances of each region; a call that fails since
// the machines changed meanwhile is no failure.
func (p *Provider) each(ctx context.Context, ids map[string][]string, call func(context.Context, *ec2.Client, []string) error) error {
	for region, list := range ids {
		client, err := p.ec2(ctx, region)
		if err != nil {
			return err
		}
		slices.Sort(list)
		err = cloud.Settled(ctx, func(ctx context.Context) error { return call(ctx, client, list) })
		if err != nil && !gone(err) {
			return translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
		}
	}
	return nil
}

// Terminate ends the cluster's machines, waits until they cost nothing, and
// removes its security group and placement group.
func (p *Provider) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if id.Name == "" {
		return nil // no cluster has no name; the tags of none would fit all
	}
	leave, err := p.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	// What is remembered may be old, and what is not found here is paid for.
	p.regions.forget(id)
	looks := 0
	w := &wait{what: "the machines to end", most: p.o.Timeout}
	err = p.until(ctx, w, func(ctx context.Context) (bool, error) {
		list, err := p.findEverywhere(ctx, id)
		if err != nil {
			return false, err
		}
		if n := existing(list); n > 0 {
			w.what = machinesTo("end", n, list, func(instance) bool { return false })
		} else {
			w.what = "AWS to list all machines of the cluster, in case there are more"
		}
		made := p.fresh.things(id)
		if looks++; !made.young() {
			made.instances = nil // they would be listed
		}
		rest := !made.unsure() || looks > settleTries
		ending := map[string][]string{}
		for _, i := range list {
			if _, _, err := p.node(i); err != nil {
				return false, err
			}
			delete(made.instances, i.id)
			if i.exists() {
				rest = false
				ending[i.region] = append(ending[i.region], i.id)
			}
		}
		unlisted, err := p.endUnlisted(ctx, made.instances)
		if err != nil {
			return false, err
		}
		rest = rest && (!unlisted || looks > settleTries)
		if len(ending) > 0 {
			p.leaveGroup(ctx, id, list)
		}
		return rest, p.each(ctx, ending, endInstances)
	})
	if err != nil {
		return err
	}
	p.regions.forget(id)
	if err := p.removeGroups(ctx, id); err != nil {
		return err
	}
	p.fresh.forget(id)
	return nil
}

// endUnlisted ends instances that were made and are in no list yet, or not any
// more. It reports whether some of them are not known to AWS.
func (p *Provider) endUnlisted(ctx context.Context, regions map[string]string) (unknown bool, err error) {
	for id, region := range regions {
		client, err := p.ec2(ctx, region)
		if err != nil {
			return false, err
		}
		err = cloud.Settled(ctx, func(ctx context.Context) error { return endInstances(ctx, client, []string{id}) })
		switch {
		case codeOf(err) == "InvalidInstanceID.NotFound":
			unknown = true
		case err != nil && !gone(err):
			return false, translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
		}
	}
	return unknown, nil
}

// removeGroups removes the security groups that were made for the cluster, once
// nothing is in them any more.
func (p *Provider) removeGroups(ctx context.Context, id cloud.ClusterID) error {
	regions, err := p.openRegions(ctx)
	if err != nil {
		return err
	}
	looks := 0
	w := &wait{what: "the security group to be free", most: slowToEnd * p.o.Timeout}
	return p.until(ctx, w, func(ctx context.Context) (bool, error) {
		looks++
		made := p.fresh.things(id)
		var mu sync.Mutex
		var left []string
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for _, region := range regions {
			g.Go(func() error {
				more, err := p.removeGroupsOf(gctx, region, id, made, looks > settleTries)
				mu.Lock()
				defer mu.Unlock()
				left = append(left, more...)
				return err
			})
		}
		err := g.Wait()
		if slices.Sort(left); len(left) > 0 {
			if err == nil {
				err = p.endLate(ctx, id)
			}
			w.what = strings.Join(left, " and ") + " to be free: the machines in it have ended, and AWS is still taking them apart"
		}
		return len(left) == 0 && (!made.unsure() || looks > settleTries), err
	})
}

// endLate ends machines that were not listed when the others ended: another server
// made them, and their security group is in use.
func (p *Provider) endLate(ctx context.Context, id cloud.ClusterID) error {
	list, err := p.findEverywhere(ctx, id)
	if err != nil {
		return err
	}
	ending := map[string][]string{}
	for _, i := range list {
		if i.exists() {
			ending[i.region] = append(ending[i.region], i.id)
		}
	}
	return p.each(ctx, ending, endInstances)
}

func endInstances(ctx context.Context, client *ec2.Client, ids []string) error {
	_, err := client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	return err
}

// removeGroupsOf removes those of one region: what is listed, and what was made
// and may not be listed yet. With settled, what AWS does not know is gone.
// It returns those that are left.
func (p *Provider) removeGroupsOf(ctx context.Context, region string, id cloud.ClusterID, made making, settled bool) (left []string, err error) {
	at := cloud.Place{Cloud: Name, Region: region}
	client, err := p.ec2(ctx, region)
	if err != nil {
		return nil, err
	}
	groups, err := listGroups(ctx, client, at, filters(id))
	if err != nil {
		return nil, err
	}
	left, err = p.removePlacement(ctx, client, at, id, made, settled)
	if err != nil {
		return nil, err
	}
	names := in(region, made.groups)
	for _, g := range groups {
		if name := sdk.ToString(g.GroupId); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		_, err := client.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: sdk.String(name)})
		if err == nil {
			p.fresh.with(id, func(m *making) { delete(m.groups, name) })
		}
		switch codeOf(err) {
		case "InvalidGroup.NotFound", "InvalidGroupId.NotFound", "InvalidSecurityGroupID.NotFound":
			if _, mine := made.groups[name]; mine && !settled && made.young() {
				left = append(left, "the security group "+name)
			}
			continue
		case "DependencyViolation", "InvalidGroup.InUse":
			left = append(left, "the security group "+name)
			continue
		}
		if err != nil {
			return nil, translate(ctx, at, err)
		}
	}
	return left, nil
}

// in are the things of one region.
func in(region string, things map[string]string) []string {
	var out []string
	for thing, at := range things {
		if at == region {
			out = append(out, thing)
		}
	}
	slices.Sort(out)
	return out
}
