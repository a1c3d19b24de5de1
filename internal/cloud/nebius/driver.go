package nebius

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/nebius/nebiusapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Nebius for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// states are Nebius's words for what a machine does, by their numbers. One that has an error
// never runs.
var states = []struct {
	word string
	is   vm.State
}{
	{"UNSPECIFIED", vm.Unknown}, {"CREATING", vm.Pending}, {"UPDATING", vm.Pending}, {"STARTING", vm.Pending}, {"RUNNING", vm.Running}, {"STOPPING", vm.Stopping}, {"STOPPED", vm.Stopped},
	{"DELETING", vm.Ending}, {"ERROR", vm.Pending},
}

// reconciling is the word for a machine that is off and is being made, or switched on.
const reconciling = "STOPPED, reconciling"

// List looks in the regions where the cluster may be.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	return d.regions.Find(ctx, id, where)
}

// in are the ids of the projects in a region.
func (d driver) in(ctx context.Context, region string) (ids []string, err error) {
	all, err := d.projects(ctx)
	for _, p := range all {
		if p.Region() == region {
			ids = append(ids, p.Metadata.ID)
		}
	}
	return ids, err
}

func (d driver) list(ctx context.Context, region string, id cloud.ClusterID) (found []vm.Machine, err error) {
	c, _, err := d.client(nebiusapi.Compute)
	if err != nil {
		return nil, err
	}
	projects, err := d.in(ctx, region)
	if err != nil {
		return nil, err
	}
	for _, project := range projects {
		all, err := nebiusapi.List[nebiusapi.Instance](ctx, c, nebiusapi.Instances, project)
		if err != nil {
			return nil, err
		}
		for _, i := range all {
			if tags, ours := names.Tags(id, i.Metadata.Name); ours {
				m := machine(i, region, tags)
				m.Reach.ProxyCommand = vm.ByRegion(d.settings()["ssh_proxy_command"], region)
				if err := d.began(ctx, c, i, &m); err != nil {
					return nil, err
				}
				found = append(found, m)
			}
		}
	}
	return found, nil
}

func machine(i nebiusapi.Instance, region string, tags map[string]string) vm.Machine {
	m := vm.Machine{
		ID: i.Metadata.ID, Region: region, RawState: fmt.Sprintf("state %d", i.Status.State), Type: i.Spec.Resources.Platform + "_" + i.Spec.Resources.Preset, Spot: i.Spec.Preemptible != nil,
		Tags: tags, Created: i.Metadata.Created, Reach: cloud.Reach{Method: "ssh", Port: 22, User: user, Machine: cloud.MachinePowerOff}, Detail: i,
	}
	if n := int(i.Status.State); n >= 0 && n < len(states) {
		m.State, m.RawState = states[n].is, states[n].word
	}
	switch {
	case m.State != vm.Stopped:
	case i.Status.Reconciling:
		m.State, m.RawState = vm.Pending, reconciling
	case i.Spec.Stopped:
	case m.Spot:
		m.Reason = "Nebius took it back, or it switched itself off"
	default:
		m.Reason = "it switched itself off"
	}
	internal := len(i.Spec.Interfaces) > 0 && i.Spec.Interfaces[0].Public == nil
	if len(i.Status.Interfaces) > 0 { // addresses may have a mask
		m.PrivateIP, _, _ = strings.Cut(i.Status.Interfaces[0].Private.Address, "/")
		m.PublicIP, _, _ = strings.Cut(i.Status.Interfaces[0].Public.Address, "/")
	}
	if m.Reach.Host = m.PublicIP; internal {
		m.Reach.Host = m.PrivateIP
	}
	return m
}

// began hears from the operation that made or started a machine why it does not run.
func (d driver) began(ctx context.Context, c *rest.Client, i nebiusapi.Instance, m *vm.Machine) error {
	id, ok := d.begun.Load(m.ID)
	if m.State == vm.Running {
		d.begun.Delete(m.ID)
	}
	broken := m.RawState == "ERROR"
	if broken {
		m.Failure = &rest.Error{Status: 409, Code: "ERROR", Message: "the machine " + m.ID + " has an error that it does not get over"}
	}
	if !ok || i.Status.Reconciling || !broken && m.State != vm.Stopped {
		return nil
	}
	o, err := nebiusapi.GetOperation(ctx, c, id.(string))
	if err != nil {
		if d.Kind(err) == vm.Missing { // operations are forgotten one day
			return nil
		}
		return err
	}
	if err := nebiusapi.Failure(o); err != nil {
		m.Failure = err
	}
	return nil
}

const user = "ubuntu"

// ready is what the machines of a launch are made with.
type ready struct{ project, subnet, group, cluster string }

// Create makes a machine of each rank, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.client(nebiusapi.Compute)
	if err != nil {
		return nil, err
	}
	if found, err := d.room(ctx, l.Spec.Offer); err == nil { // what is not known stops nobody
		if err := enough(l.Spec.Offer, found, len(ranks)); err != nil {
			return nil, err
		}
	}
	if err := d.rose(ctx, l.Spec.Offer); err != nil {
		return nil, err
	}
	d.regions.Learn(l.Spec.ID, l.Spec.Offer.Region)
	prepare := func() (ready, error) { return d.prepared(ctx, l.Spec) }
	return vm.OneByOneWith(ctx, d, l, ranks, prepare, func(ctx context.Context, r ready, rank int) (string, error) { return d.create(ctx, c, l.Spec, r, rank) })
}

func (d driver) create(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec, r ready, rank int) (string, error) {
	name := names.Of(spec.ID, rank)
	boot, err := d.disk(ctx, c, spec, r.project, name)
	if err != nil {
		return "", err
	}
	s, err := body(spec, r, boot)
	if err != nil {
		return "", err
	}
	o, err := nebiusapi.Create(ctx, c, nebiusapi.Instances, nebiusapi.Metadata{Parent: r.project, Name: name, Labels: spec.Labels}, s)
	if err == nil {
		d.begun.Store(o.Resource, o.ID)
	}
	return o.Resource, err
}

func body(spec cloud.LaunchSpec, r ready, boot string) (s nebiusapi.InstanceSpec, err error) {
	if s.Resources.Platform, s.Resources.Preset, err = parseType(spec.Offer.InstanceType); err != nil {
		return s, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	card := nebiusapi.NetworkInterface{Subnet: r.subnet, Name: "eth0", Private: &struct{}{}, Groups: []nebiusapi.ByID{{ID: r.group}}}
	if internal, _ := spec.Settings["use_internal_ips"].(bool); !internal {
		static, _ := spec.Settings["use_static_ip_address"].(bool)
		card.Public = &nebiusapi.PublicIP{Static: static}
	}
	s.Interfaces, s.Boot, s.Recovery = []nebiusapi.NetworkInterface{card}, &nebiusapi.AttachedDisk{Mode: nebiusapi.ReadWrite, Disk: nebiusapi.ByID{ID: boot}}, nebiusapi.Fail
	if r.cluster != "" {
		s.GPUCluster = &nebiusapi.ByID{ID: r.cluster}
	}
	if spec.Offer.Spot {
		s.Preemptible = &nebiusapi.Preemptible{OnPreemption: nebiusapi.OnPreemptionStop, Priority: 1}
	}
	var mounts [][]string
	all, _ := spec.Settings["filesystems"].([]any)
	for n, entry := range all {
		of, _ := entry.(map[string]any)
		id, _ := of["filesystem_id"].(string)
		path, _ := of["mount_path"].(string)
		if id == "" || path == "" {
			return s, &cloud.InvalidError{Place: spec.Offer.Place, Err: errors.New("nebius.region_configs: each of filesystems needs a filesystem_id and a mount_path")}
		}
		fs := nebiusapi.Filesystem{Mode: nebiusapi.ReadWrite, Tag: fmt.Sprintf("sky-filesystem-%d", n), Of: nebiusapi.ByID{ID: id}}
		if of["attach_mode"] == "READ_ONLY" {
			fs.Mode = nebiusapi.ReadOnly
		}
		s.Filesystems = append(s.Filesystems, fs)
		mounts = append(mounts, []string{fs.Tag, path, "virtiofs", map[int32]string{nebiusapi.ReadOnly: "ro,nofail", nebiusapi.ReadWrite: "rw,nofail"}[fs.Mode], "0", "0"})
	}
	config := map[string]any{"users": []any{map[string]any{
		"name": user, "shell": "/bin/bash", "sudo": "ALL=(ALL) NOPASSWD:ALL", "lock_passwd": true, "ssh_authorized_keys": []string{strings.TrimSpace(spec.AuthorizedKey)},
	}}}
	if mounts != nil {
		config["mounts"] = mounts
	}
	text, err := json.Marshal(config) // which is YAML, too
	s.UserData = "#cloud-config\n" + string(text) + "\n"
	return s, err
}

// What disks are, by the tier that is asked for: their type, and what their sizes are
// multiples of, in GiB.
var tiers = map[string]struct {
	kind int32
	of   int64
}{"": {1, 1}, "medium": {1, 1}, "low": {3, 93}, "high": {4, 93}, "best": {4, 93}}

const defaultDiskGB = 100

func bootDisk(spec cloud.LaunchSpec) nebiusapi.DiskSpec {
	tier := tiers[spec.DiskTier]
	size := int64(cmp.Or(spec.DiskGB, defaultDiskGB))
	s := nebiusapi.DiskSpec{GiB: (size + tier.of - 1) / tier.of * tier.of, Type: tier.kind}
	switch {
	case strings.HasPrefix(spec.ImageID, "computeimage-"):
		s.Image = spec.ImageID
	case spec.ImageID != "":
		s.Family = &nebiusapi.Family{Name: spec.ImageID}
	case strings.HasPrefix(spec.Offer.InstanceType, "gpu"):
		s.Family = &nebiusapi.Family{Name: "ubuntu24.04-cuda13.0"}
	default:
		s.Family = &nebiusapi.Family{Name: "ubuntu24.04-driverless"}
	}
	return s
}

// disk makes the boot disk of a machine. One that is there already, and that no machine has,
// is left of one that is gone: it is not used again.
func (d driver) disk(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec, project, name string) (string, error) {
	for again := false; ; again = true {
		o, err := d.make(ctx, c, nebiusapi.Disks, project, name, bootDisk(spec))
		if err == nil {
			return o.Resource, d.diskReady(ctx, c, o.Resource)
		} else if again || d.Kind(err) != vm.Changed {
			return "", err
		}
		old, err2 := nebiusapi.Find[nebiusapi.Disk](ctx, c, nebiusapi.Disks, project, name)
		if err2 != nil || old.Status.Attached != "" {
			return "", errors.Join(err, err2)
		}
		if err := d.remove(ctx, c, nebiusapi.Disks, old.Metadata.ID); err != nil && d.Kind(err) != vm.Missing {
			return "", err
		}
	}
}

// diskReady waits until a disk can be used.
func (d driver) diskReady(ctx context.Context, c *rest.Client, id string) error {
	_, err := rest.Await(ctx, d.tuning.Poll, func(ctx context.Context) (nebiusapi.Disk, bool, error) {
		v, err := nebiusapi.Get[nebiusapi.Disk](ctx, c, nebiusapi.Disks, id)
		if err == nil && v.Status.State == nebiusapi.DiskError {
			err = &rest.Error{Status: 409, Code: "ERROR", Message: "the disk " + id + " could not be made: " + v.Status.Why}
		}
		return v, v.Status.State == nebiusapi.DiskReady, err
	})
	return err
}

// act begins something that takes machines their time.
func (d driver) act(ctx context.Context, machines []vm.Machine, method string, remember bool) error {
	c, _, err := d.client(nebiusapi.Compute)
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		o, err := nebiusapi.Do(ctx, c, nebiusapi.Instances, method, m.ID)
		if err == nil && remember {
			d.begun.Store(m.ID, o.ID)
		}
		if d.Kind(err) == vm.Busy { // it is in another state by now
			err = errors.Join(&rest.Error{Status: 409, Code: "ABORTED", Message: m.ID + " is in another state"}, err)
		}
		return err
	})
}

// Start switches machines on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.act(ctx, machines, "Start", true)
}

// Stop switches machines off. Their disks go on costing money.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.act(ctx, machines, "Stop", false)
}

// Delete begins to delete machines.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.act(ctx, machines, "Delete", false)
}
