package ibm

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/ibmapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is IBM Cloud for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// byID and byName are how requests name other things.
type (
	byID struct {
		ID string `json:"id"`
	}
	byName struct {
		Name string `json:"name"`
	}
)

// instance is a machine as the API has it.
type instance struct {
	ibmapi.Named
	Profile byName `json:"profile"`
	Zone    byName `json:"zone"`
	Reasons []struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"status_reasons"`
	Card struct {
		ID string `json:"id"`
		IP struct {
			Address string `json:"address"`
		} `json:"primary_ip"`
	} `json:"primary_network_interface"`
}

// states are IBM's words for what a machine does. One that failed has never run, and is removed.
var states = map[string]vm.State{
	"pending": vm.Pending, "starting": vm.Pending, "restarting": vm.Pending, "failed": vm.Ending, "running": vm.Running, "stopping": vm.Stopping, "stopped": vm.Stopped, "deleting": vm.Ending,
}

// address is a floating one as the API has it.
type address struct {
	ibmapi.Named
	Address string `json:"address"`
	Target  byID   `json:"target"` // the network card that has it
}

// List looks in the regions where the cluster may be.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	return d.regions.Find(ctx, id, where)
}

// list are the machines in a region. One of a cluster that is on its way and has no address
// gets it here: then one that was made before a crash comes to its address, too.
func (d driver) list(ctx context.Context, region string, id cloud.ClusterID) (found []vm.Machine, err error) {
	c, keys, err := d.in(ctx, region)
	if err != nil {
		return nil, err
	}
	all, err := ibmapi.List[instance](ctx, c, "instances", nil)
	if err != nil {
		return nil, err
	}
	var addresses []address
	for _, i := range all {
		tags, ours := names.Tags(id, i.Name)
		if !ours {
			continue
		}
		if addresses == nil {
			if addresses, err = ibmapi.List[address](ctx, c, "floating_ips", nil); err != nil {
				return nil, err
			}
		}
		m := i.machine(region, tags)
		if _, asked := d.begun.Load(i.ID); asked && i.Status == "stopped" && d.begun.CompareAndDelete(i.ID, true) {
			m.Failure = i.failure()
		}
		switch {
		case m.State == vm.Running:
			d.begun.Delete(i.ID)
		case i.Status == "failed" && id.Name != "": // it holds the name of its rank, and nothing else
			_, _ = ibmapi.Do[any](ctx, c, "DELETE", "/instances/"+url.PathEscape(i.ID), nil) // again at the next look
		}
		if n := slices.IndexFunc(addresses, func(a address) bool { return a.Target.ID == i.Card.ID && i.Card.ID != "" }); n >= 0 {
			m.PublicIP, m.Reach.Host = addresses[n].Address, addresses[n].Address
		} else if id.Name != "" && m.Failure == nil && i.Card.ID != "" && (m.State == vm.Running || m.State == vm.Pending) {
			if err := d.reachable(ctx, c, keys["resource_group_id"], i, addresses); err != nil && d.Kind(err) != vm.Lost {
				m.Failure = err // which is of importance to a launch only
			}
		}
		found = append(found, m)
	}
	return found, nil
}

const user = "ubuntu"

func (i instance) machine(region string, tags map[string]string) vm.Machine {
	m := vm.Machine{
		ID: i.ID, Region: region, Zone: i.Zone.Name, State: states[i.Status], RawState: i.Status, Type: i.Profile.Name, Tags: tags, Created: i.Created, PrivateIP: i.Card.IP.Address,
		Reach: cloud.Reach{Method: "ssh", Port: 22, User: user}, Detail: i,
	}
	if m.PrivateIP == "0.0.0.0" { // it has none yet
		m.PrivateIP = ""
	}
	for _, why := range i.Reasons {
		m.Reason = cmp.Or(m.Reason, strings.TrimSuffix(cmp.Or(why.Message, why.Code), "."))
	}
	return m
}

// failure is why a machine does not run; nil: nothing is known.
func (i instance) failure() error {
	for _, why := range i.Reasons {
		if i.Status == "failed" || strings.HasPrefix(why.Code, "cannot_start") {
			return &rest.Error{Status: 409, Code: why.Code, Message: why.Message}
		}
	}
	if i.Status == "failed" {
		return &rest.Error{Status: 409, Code: "failed", Message: "IBM does not say why the machine " + i.ID + " failed"}
	}
	return nil
}

// NotStarted says why a machine that was made ended before it ran.
func (d driver) NotStarted(at cloud.Place, m vm.Machine, err error) error {
	if i, ok := m.Detail.(instance); ok && i.failure() != nil {
		return d.Refusal(context.Background(), at, i.failure())
	}
	return &cloud.CapacityError{Place: at, Err: err}
}

// ready is what the machines of a launch are made with.
type ready struct{ group, vpc, subnet, security, image, key string }

// Create makes a machine of each rank.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, keys, err := d.in(ctx, l.Spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	d.regions.Learn(l.Spec.ID, l.Spec.Offer.Region)
	prepare := func() (ready, error) { return d.prepared(ctx, c, keys["resource_group_id"], l.Spec) }
	return vm.OneByOneWith(ctx, d, l, ranks, prepare, func(ctx context.Context, r ready, rank int) (string, error) {
		made, err := ibmapi.Do[instance](ctx, c, "POST", "/instances", body(l.Spec, r, rank))
		return made.ID, err
	})
}

const defaultDiskGB = 100

func body(spec cloud.LaunchSpec, r ready, rank int) map[string]any {
	size := min(max(cmp.Or(spec.DiskGB, defaultDiskGB), 100), 250) // that is what boot disks may have
	return map[string]any{
		"name": names.Of(spec.ID, rank), "profile": byName{spec.Offer.InstanceType}, "zone": byName{spec.Offer.Zone}, "vpc": byID{r.vpc}, "image": byID{r.image}, "keys": []byID{{r.key}}, "resource_group": byID{r.group},
		"primary_network_interface": map[string]any{"name": "eth0", "subnet": byID{r.subnet}, "security_groups": []byID{{r.security}}},
		"boot_volume_attachment": map[string]any{"delete_volume_on_instance_delete": true, "volume": map[string]any{
			"capacity": size, "profile": byName{"general-purpose"},
		}},
	}
}

// reachable gives a machine an address that is reached from outside. The address has the name
// of the machine, which is unique: one that is there was of a machine before this one.
func (d driver) reachable(ctx context.Context, c *rest.Client, group string, i instance, have []address) error {
	return cloud.Settled(ctx, func(ctx context.Context) error {
		target := map[string]any{"target": byID{i.Card.ID}}
		n := slices.IndexFunc(have, func(a address) bool { return a.Name == i.Name })
		if n >= 0 {
			if _, err := ibmapi.Do[any](ctx, c, "DELETE", "/floating_ips/"+url.PathEscape(have[n].ID), nil); err != nil && d.Kind(err) != vm.Missing {
				return err
			}
		}
		target["name"], target["resource_group"] = i.Name, byID{group}
		_, err := ibmapi.Do[any](ctx, c, "POST", "/floating_ips", target)
		if d.Kind(err) == vm.Changed { // another was faster
			return nil
		}
		return err
	})
}

// act calls an action of machines.
func (d driver) act(ctx context.Context, machines []vm.Machine, kind string) error {
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		c, _, err := d.In(m.Region)
		if err == nil {
			_, err = ibmapi.Do[any](ctx, c, "POST", "/instances/"+url.PathEscape(m.ID)+"/actions", map[string]any{"type": kind})
		}
		if d.Kind(err) == vm.Busy { // it is in another state by now
			err = errors.Join(&rest.Error{Status: 409, Code: "invalid_state", Message: m.ID + " is in another state"}, err)
		}
		return err
	})
}

// Start switches machines on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	err := d.act(ctx, machines, "start")
	for _, m := range machines {
		d.begun.Store(m.ID, true)
	}
	return err
}

// Stop switches machines off. Their disks and addresses go on costing money.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.act(ctx, machines, "stop")
}

// Delete begins to delete machines.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "DELETE", "/instances/%s?"+ibmapi.With(nil).Encode(), nil)
}
