package vsphere

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vcenter"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is vSphere for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
	vm.Unconnected // VMs bring their key, and have the network of their template
}

// Refusal is the meaning of a fault. Credentials are those of one vCenter.
func (d driver) Refusal(ctx context.Context, at cloud.Place, err error) error {
	err = d.Refusals.Refusal(ctx, at, err)
	var auth *cloud.AuthError
	if errors.As(err, &auth) {
		auth.Region = at.Region
	}
	return err
}

const user = "ubuntu"

// silent is the state of a VM that is on and whose address is not known yet.
const silent = "poweredOn, without an address: VMware Tools have not started in it"

// states are vSphere's words for what a VM does. What is suspended holds no host, and goes
// on when it is switched on.
var states = map[string]vm.State{"poweredOn": vm.Running, "poweredOff": vm.Stopped, "suspended": vm.Stopped}

// List looks in the vCenters where the cluster may be.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	return d.regions.Find(ctx, id, where)
}

// list are the VMs of a vCenter. The names of all are read first: the rest of each is a lot.
func (d driver) list(ctx context.Context, region string, id cloud.ClusterID) (found []vm.Machine, err error) {
	v, err := d.in(region)
	if err != nil {
		return nil, err
	}
	all, err := v.Properties(ctx, nil, "VirtualMachine", "name")
	if err != nil {
		return nil, err
	}
	var ours []vcenter.Ref
	for _, o := range all {
		if _, is := names.Tags(id, o.Text("name")); is {
			ours = append(ours, o.Ref)
		}
	}
	if len(ours) == 0 {
		return nil, nil
	}
	all, err = v.Properties(ctx, ours, "VirtualMachine",
		"name", "runtime.powerState", "runtime.connectionState", "runtime.host", "config.createDate", "config.template", "config.annotation", "guest.ipAddress", "guest.net",
	)
	if err != nil {
		return nil, err
	}
	in, err := d.known(ctx, v)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		tags, is := names.Tags(id, o.Text("name"))
		if !is || o.Text("config.template") == "true" {
			continue
		}
		at := o.Props["runtime.host"].Ref()
		zone := in.ZoneOf(at)
		if zone == "" && at.ID != "" { // a host that was added lately
			d.memo.Forget(v.Name)
			if in, err = d.known(ctx, v); err != nil {
				return nil, err
			}
			zone = in.ZoneOf(at)
		}
		found = append(found, d.machine(o, region, zone, tags))
	}
	return found, nil
}

func (d driver) machine(o vcenter.Object, region, zone string, tags map[string]string) vm.Machine {
	power := o.Text("runtime.powerState")
	m := vm.Machine{
		ID: o.Text("name"), Region: region, Zone: zone, State: states[power], RawState: power, Tags: tags, PublicIP: address(o),
		Reach: cloud.Reach{Method: "ssh", Port: 22, User: user, Machine: cloud.MachinePowerOff}, Detail: o.Ref,
	}
	m.Created, _ = time.Parse(time.RFC3339, o.Text("config.createDate"))
	m.PrivateIP, m.Reach.Host = m.PublicIP, m.PublicIP
	if _, line, ok := strings.Cut(o.Text("config.annotation"), sizeLine); ok {
		m.Type, _, _ = strings.Cut(line, "\n")
	}
	switch {
	case power == "poweredOn" && m.PublicIP == "":
		m.RawState = silent
	case m.State == vm.Stopped:
		m.Reason = "vCenter says that it is " + power
		d.halting.Delete(m.ID)
	}
	if c := o.Text("runtime.connectionState"); c != "connected" && c != "" {
		m.Reason = "vCenter says that the VM is " + c
	}
	return m
}

// address is the one of a VM's network card under which others reach it. What programs in the
// VM make, as bridges of containers, are no cards.
func address(o vcenter.Object) string {
	all := []string{}
	for _, card := range o.Props["guest.net"].All("GuestNicInfo") {
		if n, err := strconv.Atoi(card.Text("deviceConfigId")); err == nil && n >= 0 {
			for _, ip := range card.All("ipAddress") {
				all = append(all, ip.Text(""))
			}
		}
	}
	for _, text := range append(all, o.Text("guest.ipAddress")) {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() && (ip.IsGlobalUnicast() || ip.IsLoopback()) {
			return text
		}
	}
	return ""
}

// room are hosts for so many VMs of an offer, and where they are. Without room it is a
// CapacityError.
func (d driver) room(ctx context.Context, o cloud.Offer, n int) (in vcenter.Inventory, z vcenter.Zone, picked []vcenter.Host, err error) {
	v, err := d.in(o.Region)
	if err != nil {
		return in, z, nil, err
	}
	s, err := vcenter.ParseSize(o.InstanceType)
	if err != nil {
		return in, z, nil, &cloud.InvalidError{Place: o.Place, Err: err}
	}
	if in, err = v.Look(ctx); err != nil {
		return in, z, nil, err
	}
	i := slices.IndexFunc(in.Zones, func(z vcenter.Zone) bool { return strings.EqualFold(z.Name, o.Zone) })
	if i < 0 {
		var known []string
		for _, z := range in.Zones {
			known = append(known, z.Name)
		}
		return in, z, nil, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("%s has no cluster %q, but %s", o.Region, o.Zone, strings.Join(known, ", "))}
	}
	z = in.Zones[i]
	busy := map[vcenter.Ref]int{}
	if s.GPUs > 0 {
		if busy, err = taken(ctx, v, z.Hosts, s.GPU); err != nil {
			return in, z, nil, err
		}
	}
	if picked, err = pick(z.Hosts, s, n, busy); err != nil {
		err = &cloud.CapacityError{Place: o.Place, Err: err}
	}
	return in, z, picked, err
}

// taken is how many GPUs of a kind the VMs that are on have, by their host.
func taken(ctx context.Context, v *vcenter.VCenter, hosts []vcenter.Host, gpu string) (map[vcenter.Ref]int, error) {
	of := map[vcenter.Ref]vcenter.Host{}
	var machines []vcenter.Ref
	for _, h := range hosts {
		if len(h.OfKind(gpu)) > 0 {
			for _, m := range h.Machines {
				of[m] = h
				machines = append(machines, m)
			}
		}
	}
	busy := map[vcenter.Ref]int{}
	if len(machines) == 0 {
		return busy, nil
	}
	all, err := v.Properties(ctx, machines, "VirtualMachine", "runtime.powerState", "config.hardware.device")
	for _, o := range all {
		if o.Text("runtime.powerState") != "poweredOn" {
			continue
		}
		h := of[o.Ref]
		for _, d := range o.Props["config.hardware.device"].All("VirtualDevice") {
			id := d.Text("backing.assignedId") + d.Text("backing.id")
			if d.Kind() == "VirtualPCIPassthrough" && slices.ContainsFunc(h.OfKind(gpu), func(g vcenter.Device) bool { return g.ID == id }) {
				busy[h.Ref]++
			}
		}
	}
	return busy, err
}

// begun is how long a call waits for what it began, before it is looked at again.
const begun = 10 * time.Second

// Create makes a VM of each rank from a template, and switches it on.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	spec := l.Spec
	in, z, hosts, err := d.room(ctx, spec.Offer, len(ranks))
	if err != nil {
		return nil, err
	}
	v, err := d.in(spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	s, err := vcenter.ParseSize(spec.Offer.InstanceType)
	if err != nil {
		return nil, err
	}
	all, err := templatesOf(ctx, v, in)
	if err != nil {
		return nil, err
	}
	from, err := choose(all, z.Datacenter, spec.ImageID, s)
	if err != nil {
		return nil, &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
	}
	disk, err := largerDisk(ctx, v, from.Ref, spec.DiskGB)
	if err != nil {
		return nil, err
	}
	d.regions.Learn(spec.ID, spec.Offer.Region)
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		name, at := names.Of(spec.ID, rank), hosts[slices.Index(ranks, rank)]
		made, err := v.Task(ctx, d.tuning.Timeout, from.Ref, "CloneVM_Task", vcenter.Link("folder", z.Folder), vcenter.Leaf("name", name), cloneSpec(spec, s, z.Pool, at, rank, disk))
		if err == nil && made.ID != "" {
			_, err = v.Task(ctx, begun, made, "PowerOnVM_Task")
		}
		return name, err
	})
}

// largerDisk is the first disk of a template as a larger one; nil: it is large enough.
func largerDisk(ctx context.Context, v *vcenter.VCenter, template vcenter.Ref, gb int) (*vcenter.Element, error) {
	if gb == 0 {
		return nil, nil
	}
	all, err := v.Properties(ctx, []vcenter.Ref{template}, "VirtualMachine", "config.hardware.device")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	for _, d := range all[0].Props["config.hardware.device"].All("VirtualDevice") {
		size := d.At("capacityInKB")
		if d.Kind() != "VirtualDisk" || size == nil {
			continue
		}
		if have, err := strconv.Atoi(size.Content); err != nil || have >= gb<<20 {
			return nil, nil
		}
		size.Content = strconv.Itoa(gb << 20)
		if bytes := d.At("capacityInBytes"); bytes != nil {
			bytes.Content = strconv.Itoa(gb << 30)
		}
		d.XMLName.Local = "device"
		return d, nil
	}
	return nil, nil
}

// sizeLine begins the line of a VM's notes with its size.
const sizeLine = "size: "

// mostPerSocket is how many vCPUs a socket of a VM has at most.
const mostPerSocket = 64

// largeGPU is the memory in GB from which a GPU needs a larger window of addresses.
const largeGPU = 16

// cloneSpec is what a VM is made with.
func cloneSpec(spec cloud.LaunchSpec, s vcenter.Size, pool vcenter.Ref, at vcenter.Host, rank int, disk *vcenter.Element) *vcenter.Element {
	notes := []string{"Made by sky.", "cluster: " + spec.ID.Name, "rank: " + strconv.Itoa(rank), sizeLine + s.String()}
	for _, key := range slices.Sorted(maps.Keys(spec.Labels)) {
		notes = append(notes, key+": "+spec.Labels[key])
	}
	name := names.Of(spec.ID, rank)
	extra := [][2]string{
		{"guestinfo.metadata", encoded(map[string]any{"instance-id": name, "local-hostname": name})}, {"guestinfo.metadata.encoding", "base64"},
		{"guestinfo.userdata", userData(spec.AuthorizedKey)}, {"guestinfo.userdata.encoding", "base64"},
		{"sky.cluster", spec.ID.Name}, {"sky.rank", strconv.Itoa(rank)}, {"sky.installation", spec.ID.Installation}, {"sky.hash", spec.ID.Hash},
	}
	var changes []*vcenter.Element
	if disk != nil {
		changes = append(changes, vcenter.Elem("deviceChange", vcenter.Leaf("operation", "edit"), disk))
	}
	backing := vcenter.Elem("backing", vcenter.Leaf("deviceName", "")).As("VirtualPCIPassthroughDynamicBackingInfo")
	models := map[uint16]bool{} // that have the same name: those of slots and of boards
	for _, g := range at.OfKind(s.GPU) {
		if !models[g.Model] {
			models[g.Model] = true
			backing.Kids = append(backing.Kids, vcenter.Elem("allowedDevice", vcenter.Leaf("vendorId", g.Vendor), vcenter.Leaf("deviceId", g.Model)))
		}
	}
	for i := range s.GPUs {
		changes = append(changes, vcenter.Elem("deviceChange", vcenter.Leaf("operation", "add"), vcenter.Elem("device", vcenter.Leaf("key", -100-i), backing).As("VirtualPCIPassthrough")))
	}
	if gb := gpuMemory(s.GPU); s.GPUs > 0 && gb >= largeGPU {
		extra = append(extra, [2]string{"pciPassthru.use64bitMMIO", "TRUE"}, [2]string{"pciPassthru.64bitMMIOSizeGB", strconv.Itoa(2 * gb * s.GPUs)})
	}
	perSocket := s.CPUs // has to divide the vCPUs, which those of the template may not
	if perSocket > mostPerSocket {
		perSocket /= 2
	}
	config := vcenter.Elem("config", vcenter.Leaf("annotation", strings.Join(notes, "\n")), vcenter.Leaf("numCPUs", s.CPUs), vcenter.Leaf("numCoresPerSocket", perSocket), vcenter.Leaf("memoryMB", s.GiB<<10))
	config.Kids = append(config.Kids, changes...)
	config.Kids = append(config.Kids, vcenter.Elem("memoryAllocation", vcenter.Leaf("reservation", s.GiB<<10)))
	for _, x := range extra {
		value := vcenter.Leaf("value", x[1]).As("xsd:string")
		config.Kids = append(config.Kids, vcenter.Elem("extraConfig", vcenter.Leaf("key", x[0]), value).As("OptionValue"))
	}
	config.Kids = append(config.Kids, vcenter.Leaf("memoryReservationLockedToMax", true))
	return vcenter.Elem("spec", vcenter.Elem("location", vcenter.Link("pool", pool), vcenter.Link("host", at.Ref)), vcenter.Leaf("template", false), config, vcenter.Leaf("powerOn", false))
}

// encoded is JSON, which is YAML too, as cloud-init takes it from VMware Tools.
func encoded(v any) string {
	text, _ := json.Marshal(v)
	return base64.StdEncoding.EncodeToString(text)
}

// userData lets the key in. The user is made if the template has none.
func userData(key string) string {
	text, _ := json.Marshal(map[string]any{
		"users": []any{"default", map[string]any{
			"name": user, "sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash", "lock_passwd": true, "ssh_authorized_keys": []string{strings.TrimSpace(key)},
		}},
		"bootcmd": [][]string{{"sh", "-c", vm.QuietUpdates}},
	})
	return base64.StdEncoding.EncodeToString([]byte("#cloud-config\n" + string(text) + "\n"))
}

// each makes a call about each VM.
func (d driver) each(ctx context.Context, machines []vm.Machine, call func(ctx context.Context, v *vcenter.VCenter, m vm.Machine, on vcenter.Ref) error) error {
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		v, err := d.in(m.Region)
		if err != nil {
			return err
		}
		on, _ := m.Detail.(vcenter.Ref)
		return call(ctx, v, m, on)
	})
}

// Start switches VMs on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, v *vcenter.VCenter, m vm.Machine, on vcenter.Ref) error {
		_, err := v.Task(ctx, begun, on, "PowerOnVM_Task")
		return err
	})
}

// grace is how long a guest may take to shut down before its VM is switched off.
const grace = 2 * time.Minute

// Stop asks the guests to shut down, and switches off those that do not in time or cannot.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, v *vcenter.VCenter, m vm.Machine, on vcenter.Ref) error {
		since, asked := d.halting.LoadOrStore(m.ID, time.Now())
		if !asked && m.RawState != silent {
			_, err := v.Call(ctx, on, "ShutdownGuest")
			if err == nil {
				return nil
			}
			if c := vcenter.Code(err); c != "ToolsUnavailable" && c != "NotSupported" && c != "InvalidState" {
				d.halting.Delete(m.ID)
				return err
			}
		} else if began, ok := since.(time.Time); ok && asked && time.Since(began) < grace {
			return nil
		}
		d.halting.Delete(m.ID)
		_, err := v.Task(ctx, begun, on, "PowerOffVM_Task")
		return err
	})
}

// Delete switches VMs off and removes them with their disks.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, v *vcenter.VCenter, m vm.Machine, on vcenter.Ref) error {
		if m.RawState != "poweredOff" {
			if _, err := v.Task(ctx, begun, on, "PowerOffVM_Task"); err != nil && vcenter.Code(err) != "InvalidPowerState" {
				return err
			}
		}
		_, err := v.Task(ctx, begun, on, "Destroy_Task")
		return err
	})
}
