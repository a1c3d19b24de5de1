package fluffycloud

import (
	"context"
	"fmt"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is FluffyCloud for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

var states = map[fluffyapi.State]vm.State{
	fluffyapi.Pending: vm.Pending, fluffyapi.Running: vm.Running, fluffyapi.Stopping: vm.Stopping,
	fluffyapi.Stopped: vm.Stopped, fluffyapi.Terminating: vm.Ending, fluffyapi.Terminated: vm.Ended,
}

// List asks for the instances with the cluster's tags. All regions are one list.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	api, err := d.api()
	if err != nil {
		return nil, err
	}
	all, err := fluffyapi.All(ctx, fluffyapi.Query{Tags: id.Tags()}, api.Instances)
	if err != nil {
		return nil, err
	}
	list := make([]vm.Machine, len(all))
	for n, i := range all {
		list[n] = vm.Machine{
			ID: i.ID, Region: i.Region, Zone: i.Zone, State: states[i.State], RawState: string(i.State), Reason: i.Reason, Reclaimed: i.Reason != "",
			Type: i.Type, Spot: i.Spot, Tags: i.Tags, PrivateIP: i.PrivateIP, PublicIP: i.PublicIP, Created: i.Created,
			Reach:  cloud.Reach{Method: "ssh", Host: i.PublicIP, Port: i.SSHPort, User: i.SSHUser, HostKey: i.HostKey, Machine: cloud.MachinePowerOff},
			Detail: i,
		}
	}
	return list, nil
}

// Create makes one instance of each rank.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	api, err := d.api()
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) { return create(ctx, api, l.Spec, rank) })
}

// create asks for the instance of a rank. A token of this attempt may have made
// one that is gone by now; the next token follows from that one.
func create(ctx context.Context, api fluffyapi.API, spec cloud.LaunchSpec, rank int) (string, error) {
	tags := spec.AllTags(rank)
	token := fmt.Sprintf("%s-%d", spec.Token, rank)
	for {
		i, err := api.Create(ctx, fluffyapi.Create{
			ClientToken: token,
			Name:        fmt.Sprintf("%s-%s-%d", spec.ID.Name, vm.Digest(spec.ID), rank),
			Zone:        spec.Offer.Zone, Type: spec.Offer.InstanceType, Spot: spec.Offer.Spot,
			Tags: tags, SSHKey: spec.AuthorizedKey, Firewall: firewallName(spec.ID),
			DiskGB: spec.DiskGB, Image: spec.ImageID,
		})
		if err != nil || states[i.State] != vm.Ended && states[i.State] != vm.Ending {
			return i.ID, err
		}
		token = fmt.Sprintf("%s-%d-%s", spec.Token, rank, i.ID)
	}
}

func (d driver) Start(ctx context.Context, spec cloud.LaunchSpec, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, api fluffyapi.API, id string) (fluffyapi.Instance, error) {
		return api.Start(ctx, id, fluffyapi.Start{SSHKey: spec.AuthorizedKey})
	})
}

func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, api fluffyapi.API, id string) (fluffyapi.Instance, error) {
		return api.Stop(ctx, id)
	})
}

func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, api fluffyapi.API, id string) (fluffyapi.Instance, error) {
		return api.Terminate(ctx, id)
	})
}

func (d driver) each(ctx context.Context, machines []vm.Machine, call func(context.Context, fluffyapi.API, string) (fluffyapi.Instance, error)) error {
	api, err := d.api()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := call(ctx, api, m.ID)
		return err
	})
}

// Connect makes the cluster's firewall.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	return d.openPorts(ctx, spec.ID, spec.Ports)
}

// Disconnect removes the cluster's firewall.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	api, err := d.api()
	if err != nil {
		return nil, err
	}
	firewalls, err := d.firewalls(ctx, id)
	if err != nil {
		return nil, err
	}
	return vm.Remove(d, firewalls, func(f fluffyapi.Firewall) string { return "the firewall " + f.Name },
		func(f fluffyapi.Firewall) error { return api.DeleteFirewall(ctx, f.Name) })
}

func firewallName(id cloud.ClusterID) string { return id.Name + "-" + vm.Digest(id) }

func validName(spec cloud.LaunchSpec) error {
	name := spec.ID.Name
	if name == "" || len(name) > maxName {
		return fmt.Errorf("a cluster's name has 1 to %d bytes, %q has %d", maxName, name, len(name))
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-') {
			return fmt.Errorf("%q holds %q; the names of FluffyCloud have small letters, digits and dashes", name, r)
		}
	}
	return nil
}
