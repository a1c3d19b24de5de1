package nebius

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/grpc"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Nebius for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// Messages of nebius.compute.v1.
type (
	instance struct {
		Metadata metadata     `pb:"1"`
		Spec     instanceSpec `pb:"2"`
		Status   struct {
			State      int32 `pb:"1"`
			Interfaces []struct {
				Private address `pb:"3"`
				Public  address `pb:"4"`
			} `pb:"2"`
			Reconciling bool `pb:"5"`
		} `pb:"3"`
	}
	address struct {
		Address string `pb:"1"`
	}
	instanceSpec struct {
		Resources struct {
			Platform string `pb:"1"`
			Preset   string `pb:"2"`
		} `pb:"2"`
		GPUCluster  *byID              `pb:"3"`
		Interfaces  []networkInterface `pb:"4"`
		Boot        *attachedDisk      `pb:"5"`
		Filesystems []filesystem       `pb:"7"`
		UserData    string             `pb:"8"`
		Stopped     bool               `pb:"13"` // somebody asked for it
		Recovery    int32              `pb:"15"`
		Preemptible *preemptible       `pb:"19"`
	}
	networkInterface struct {
		Subnet  string    `pb:"1"`
		Name    string    `pb:"2"`
		Private *struct{} `pb:"3"`
		Public  *publicIP `pb:"4"`
		Groups  []byID    `pb:"7"`
	}
	publicIP struct {
		Static bool `pb:"3"`
	}
	attachedDisk struct {
		Mode int32 `pb:"1"`
		Disk byID  `pb:"2"`
	}
	filesystem struct {
		Mode int32  `pb:"1"`
		Tag  string `pb:"2"`
		Of   byID   `pb:"3"`
	}
	preemptible struct {
		OnPreemption int32 `pb:"1"`
		Priority     int32 `pb:"2"`
	}
	disk struct {
		Metadata metadata `pb:"1"`
		Status   struct {
			State    int32  `pb:"1"`
			Why      string `pb:"2"`
			Attached string `pb:"3"` // to a machine
		} `pb:"3"`
	}
	diskSpec struct {
		GiB    int64   `pb:"4"`
		Type   int32   `pb:"6"`
		Image  string  `pb:"8"`
		Family *family `pb:"10"`
	}
	family struct {
		Name string `pb:"1"`
	}
)

const (
	readOnly, readWrite = 1, 2 // AttachMode
	stop                = 1    // PreemptionPolicy
	diskReady           = 2    // DiskStatus.State
	diskError           = 5    //
	fail                = 1    // InstanceRecoveryPolicy: what powers off stays off
)

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

// The services of machines and their disks.
const (
	instances = "nebius.compute.v1.InstanceService"
	disks     = "nebius.compute.v1.DiskService"
)

// List looks in the regions where the cluster may be.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	return d.regions.Find(ctx, id, where)
}

// in are the ids of the projects in a region.
func (d driver) in(ctx context.Context, region string) (ids []string, err error) {
	all, err := d.projects(ctx)
	for _, p := range all {
		if p.region() == region {
			ids = append(ids, p.Metadata.ID)
		}
	}
	return ids, err
}

func (d driver) list(ctx context.Context, region string, id cloud.ClusterID) (found []vm.Machine, err error) {
	c, _, err := d.client(compute)
	if err != nil {
		return nil, err
	}
	projects, err := d.in(ctx, region)
	if err != nil {
		return nil, err
	}
	for _, project := range projects {
		all, err := list[instance](ctx, c, instances, project)
		if err != nil {
			return nil, err
		}
		for _, i := range all {
			if tags, ours := names.Tags(id, i.Metadata.Name); ours {
				m := i.machine(region, tags)
				if err := d.began(ctx, c, i, &m); err != nil {
					return nil, err
				}
				found = append(found, m)
			}
		}
	}
	return found, nil
}

func (i instance) machine(region string, tags map[string]string) vm.Machine {
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
func (d driver) began(ctx context.Context, c *rest.Client, i instance, m *vm.Machine) error {
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
	o, err := look(ctx, c, id.(string))
	if err != nil {
		if d.Kind(err) == vm.Missing { // operations are forgotten one day
			return nil
		}
		return err
	}
	if err := failure(o); err != nil {
		m.Failure = err
	}
	return nil
}

const user = "ubuntu"

// ready is what the machines of a launch are made with.
type ready struct{ project, subnet, group, cluster string }

// Create makes a machine of each rank, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.client(compute)
	if err != nil {
		return nil, err
	}
	if found, err := d.room(ctx, l.Spec.Offer); err == nil { // what is not known stops nobody
		if err := enough(l.Spec.Offer, found, len(ranks)); err != nil {
			return nil, err
		}
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
	o, err := grpc.Call[operation](ctx, c, instances+"/Create", "", creation[instanceSpec]{metadata{Parent: r.project, Name: name, Labels: spec.Labels}, s})
	if err == nil {
		err = failure(o)
	}
	if err == nil {
		d.begun.Store(o.Resource, o.ID)
	}
	return o.Resource, err
}

func body(spec cloud.LaunchSpec, r ready, boot string) (s instanceSpec, err error) {
	if s.Resources.Platform, s.Resources.Preset, err = parseType(spec.Offer.InstanceType); err != nil {
		return s, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	card := networkInterface{Subnet: r.subnet, Name: "eth0", Private: &struct{}{}, Groups: []byID{{r.group}}}
	if internal, _ := spec.Settings["use_internal_ips"].(bool); !internal {
		static, _ := spec.Settings["use_static_ip_address"].(bool)
		card.Public = &publicIP{Static: static}
	}
	s.Interfaces, s.Boot, s.Recovery = []networkInterface{card}, &attachedDisk{readWrite, byID{boot}}, fail
	if r.cluster != "" {
		s.GPUCluster = &byID{r.cluster}
	}
	if spec.Offer.Spot {
		s.Preemptible = &preemptible{stop, 1}
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
		fs := filesystem{readWrite, fmt.Sprintf("sky-filesystem-%d", n), byID{id}}
		if of["attach_mode"] == "READ_ONLY" {
			fs.Mode = readOnly
		}
		s.Filesystems = append(s.Filesystems, fs)
		mounts = append(mounts, []string{fs.Tag, path, "virtiofs", map[int32]string{readOnly: "ro,nofail", readWrite: "rw,nofail"}[fs.Mode], "0", "0"})
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

func bootDisk(spec cloud.LaunchSpec) diskSpec {
	tier := tiers[spec.DiskTier]
	size := int64(cmp.Or(spec.DiskGB, defaultDiskGB))
	s := diskSpec{GiB: (size + tier.of - 1) / tier.of * tier.of, Type: tier.kind}
	switch {
	case strings.HasPrefix(spec.ImageID, "computeimage-"):
		s.Image = spec.ImageID
	case spec.ImageID != "":
		s.Family = &family{spec.ImageID}
	case strings.HasPrefix(spec.Offer.InstanceType, "gpu"):
		s.Family = &family{"ubuntu24.04-cuda13.0"}
	default:
		s.Family = &family{"ubuntu24.04-driverless"}
	}
	return s
}

// disk makes the boot disk of a machine. One that is there already, and that no machine has,
// is left of one that is gone: it is not used again.
func (d driver) disk(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec, project, name string) (string, error) {
	for again := false; ; again = true {
		o, err := d.do(ctx, c, disks+"/Create", creation[diskSpec]{metadata{Parent: project, Name: name}, bootDisk(spec)})
		if err == nil {
			return o.Resource, d.diskReady(ctx, c, o.Resource)
		} else if again || d.Kind(err) != vm.Changed {
			return "", err
		}
		old, err2 := grpc.Call[disk](ctx, c, disks+"/GetByName", "", byName{project, name})
		if err2 != nil || old.Status.Attached != "" {
			return "", errors.Join(err, err2)
		}
		if _, err := d.do(ctx, c, disks+"/Delete", byID{old.Metadata.ID}); err != nil && d.Kind(err) != vm.Missing {
			return "", err
		}
	}
}

// diskReady waits until a disk can be used.
func (d driver) diskReady(ctx context.Context, c *rest.Client, id string) error {
	_, err := rest.Await(ctx, d.tuning.Poll, func(ctx context.Context) (disk, bool, error) {
		v, err := grpc.Call[disk](ctx, c, disks+"/Get", "", byID{id})
		if err == nil && v.Status.State == diskError {
			err = &rest.Error{Status: 409, Code: "ERROR", Message: "the disk " + id + " could not be made: " + v.Status.Why}
		}
		return v, v.Status.State == diskReady, err
	})
	return err
}

// act begins something that takes machines their time.
func (d driver) act(ctx context.Context, machines []vm.Machine, method string, remember bool) error {
	c, _, err := d.client(compute)
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		o, err := grpc.Call[operation](ctx, c, instances+"/"+method, "", byID{m.ID})
		if err == nil {
			err = failure(o)
		}
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
