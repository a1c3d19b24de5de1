package aws

import (
	"context"
	"slices"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is EC2 for the shared provider of machines.
type driver struct{ *Provider }

var _ vm.Ranker = driver{}

func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	return d.regions.Find(ctx, id, where)
}

func (d driver) Start(ctx context.Context, spec cloud.LaunchSpec, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, client *ec2.Client, ids []string) error {
		_, err := client.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids}, once)
		return err
	})
}

func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, client *ec2.Client, ids []string) error {
		_, err := client.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})
		return err
	})
}

func (d driver) Delete(ctx context.Context, id cloud.ClusterID, machines []vm.Machine) error {
	d.leaveGroup(ctx, id, machines)
	return d.each(ctx, machines, func(ctx context.Context, client *ec2.Client, ids []string) error {
		_, err := client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
		return err
	})
}

// each makes a call for the instances of each region. That some changed meanwhile
// is told only when nothing else is wrong.
func (p *Provider) each(ctx context.Context, machines []vm.Machine, call func(context.Context, *ec2.Client, []string) error) (changed error) {
	byRegion := map[string][]string{}
	for _, m := range machines {
		byRegion[m.Region] = append(byRegion[m.Region], m.ID)
	}
	for region, ids := range byRegion {
		client, err := p.ec2(ctx, region)
		if err != nil {
			return err
		}
		slices.Sort(ids)
		switch err := call(ctx, client, ids); {
		case gone(err):
			changed = err
		case err != nil:
			return translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
		}
	}
	return changed
}

// Refusal says in sky's words why a call failed.
func (driver) Refusal(ctx context.Context, at cloud.Place, err error) error {
	return translate(ctx, at, err)
}

// Kind says what changed since it was looked at, and what may have had an effect.
func (driver) Kind(err error) vm.Kind {
	switch {
	case codeOf(err) == "InvalidInstanceID.NotFound":
		return vm.Missing
	case codeOf(err) == "InvalidAMIName.Duplicate":
		return vm.Changed
	case gone(err):
		return vm.Changed
	case refused(err):
		return vm.Refused
	}
	return vm.Lost
}

// WhenOff sets what EC2 does with the cluster's machines when they power off.
func (p *Provider) WhenOff(ctx context.Context, id cloud.ClusterID, ends bool) error {
	if id.Name == "" {
		return nil
	}
	done, err := p.Take(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	list, err := p.find(ctx, id)
	if err != nil {
		return err
	}
	behavior := types.ShutdownBehaviorStop
	if ends {
		behavior = types.ShutdownBehaviorTerminate
	}
	for _, m := range list {
		if !exists(m) || m.Spot { // a spot machine always ends
			continue
		}
		client, err := p.ec2(ctx, m.Region)
		if err != nil {
			return err
		}
		_, err = client.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{
			InstanceId: sdk.String(m.ID), InstanceInitiatedShutdownBehavior: &types.AttributeValue{Value: sdk.String(string(behavior))},
		})
		if err != nil && !gone(err) {
			return translate(ctx, cloud.Place{Cloud: Name, Region: m.Region}, err)
		}
	}
	return nil
}

// Disconnect removes the security groups and the placement group that were made
// for the cluster, in whatever region they are.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, settled bool) ([]string, error) {
	regions, err := d.regions.Open(ctx)
	if err != nil {
		return nil, err
	}
	made := d.Recent().Made(id)
	var mu sync.Mutex
	var left []string
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, region := range regions {
		g.Go(func() error {
			more, err := d.removeGroupsOf(ctx, region, id, made, settled)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, more...)
			return err
		})
	}
	return left, g.Wait()
}

// removeGroupsOf removes those of one region: what is listed, and what was made
// and may not be listed yet. With settled, what AWS does not know is gone.
// It returns those that are left.
func (p *Provider) removeGroupsOf(ctx context.Context, region string, id cloud.ClusterID, made vm.Made, settled bool) (left []string, err error) {
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
	lately := made.Of(securityGroups, region)
	names := slices.Clone(lately)
	for _, g := range groups {
		names = append(names, sdk.ToString(g.GroupId))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		_, err := client.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: sdk.String(name)})
		if err == nil {
			p.Recent().Remove(id, vm.Thing{Kind: securityGroups, Name: name})
		}
		switch codeOf(err) {
		case "InvalidGroup.NotFound", "InvalidGroupId.NotFound", "InvalidSecurityGroupID.NotFound":
			if slices.Contains(lately, name) && !settled && made.Young() {
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
