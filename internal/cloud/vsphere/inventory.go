package vsphere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// size is an instance type: vCPUs, GiB of memory, and GPUs of a kind.
type size struct {
	cpus, gib, gpus int
	gpu             string
}

var sizeForm = lazyregexp.New(`^vm-(\d{1,4})c-(\d{1,6})g(?:-(\d{1,2})x(.+))?$`)

func (s size) String() string {
	name := fmt.Sprintf("vm-%dc-%dg", s.cpus, s.gib)
	if s.gpus > 0 {
		name += fmt.Sprintf("-%dx%s", s.gpus, s.gpu)
	}
	return name
}

// parseSize reads the name of an instance type.
func parseSize(name string) (s size, err error) {
	part := sizeForm.FindStringSubmatch(name)
	if part == nil {
		return s, fmt.Errorf("%q is no size of a VM on vSphere, such as vm-4c-16g or vm-8c-64g-1xA100", name)
	}
	s.cpus, _ = strconv.Atoi(part[1])
	s.gib, _ = strconv.Atoi(part[2])
	s.gpus, _ = strconv.Atoi(part[3])
	if s.gpu = part[4]; s.cpus < 1 || s.gib < 1 || (s.gpus > 0) != (s.gpu != "") {
		return s, fmt.Errorf("%q is no size of a VM", name)
	}
	return s, nil
}

// device is a GPU that a host can hand to a VM.
type device struct {
	id, name      string
	vendor, model uint16
}

// host is one that VMs run on.
type host struct {
	ref
	name             string
	usable           bool // connected, and not in maintenance
	cores, mhz       int
	usedMHz, usedMiB int
	mib              int
	gpus             []device
	machines         []ref // that are on it
}

// free are the vCPUs and the MiB that nothing uses.
func (h host) free() (cpus, mib int) {
	return (h.cores*h.mhz - h.usedMHz) / max(h.mhz, 1), h.mib - h.usedMiB
}

// ofKind are the GPUs of a kind.
func (h host) ofKind(name string) []device {
	return slices.DeleteFunc(slices.Clone(h.gpus), func(d device) bool { return d.name != name })
}

// zone is a cluster of hosts, or a host of its own.
type zone struct {
	name       string
	pool       ref
	datacenter ref
	folder     ref // of the datacenter's VMs
	hosts      []host
}

// inventory is what a vCenter has besides VMs.
type inventory struct {
	zones   []zone
	parents map[ref]ref
	version float64
}

var inventoryOf = []wanted{
	{"Folder", []string{"parent"}},
	{"Datacenter", []string{"parent", "vmFolder"}},
	{"ComputeResource", []string{"name", "parent", "resourcePool"}},
	{"HostSystem", []string{
		"name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode", "summary.hardware.cpuMhz", "summary.hardware.numCpuCores", "summary.hardware.memorySize",
		"summary.quickStats.overallCpuUsage", "summary.quickStats.overallMemoryUsage", "config.pciPassthruInfo", "hardware.pciDevice", "vm",
	}},
}

// look reads the inventory, of the clusters that the credentials name.
func (v *vcenter) look(ctx context.Context) (inventory, error) {
	in := inventory{parents: map[ref]ref{}}
	all, err := v.properties(ctx, nil, inventoryOf...)
	if err != nil {
		return in, err
	}
	s, err := v.login(ctx, nil)
	if err != nil {
		return in, err
	}
	in.version = s.version
	folders := map[ref]ref{}
	for _, o := range all {
		in.parents[o.ref] = o.props["parent"].ref()
		if o.kind == "Datacenter" {
			folders[o.ref] = o.props["vmFolder"].ref()
		}
	}
	taken := map[string]bool{}
	for _, o := range all {
		name := o.text("name")
		if !strings.HasSuffix(o.kind, "ComputeResource") || len(v.Clusters) > 0 && !slices.ContainsFunc(v.Clusters, func(c named) bool { return c.Name == name }) {
			continue
		}
		if taken[name] {
			return in, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: v.Name}, Err: fmt.Errorf("%s has two clusters with the name %s; rename one, or list the others under clusters: in ~/%s", v.Name, name, path)}
		}
		taken[name] = true
		z := zone{name: name, pool: o.props["resourcePool"].ref(), datacenter: in.datacenter(o.ref)}
		z.folder = folders[z.datacenter]
		for _, h := range all {
			if h.kind == "HostSystem" && h.props["parent"].ref() == o.ref {
				z.hosts = append(z.hosts, readHost(h))
			}
		}
		slices.SortFunc(z.hosts, func(a, b host) int { return cmp.Compare(a.name, b.name) })
		in.zones = append(in.zones, z)
	}
	slices.SortFunc(in.zones, func(a, b zone) int { return cmp.Compare(a.name, b.name) })
	return in, nil
}

// datacenter is the one that a folder or something else is in.
func (in inventory) datacenter(of ref) ref {
	for range len(in.parents) {
		if of.kind == "Datacenter" {
			return of
		}
		of = in.parents[of]
	}
	return ref{}
}

// zoneOf is the zone of a host; "": it is in none of ours.
func (in inventory) zoneOf(at ref) string {
	for _, z := range in.zones {
		if slices.ContainsFunc(z.hosts, func(h host) bool { return h.ref == at }) {
			return z.name
		}
	}
	return ""
}

func readHost(o object) host {
	number := func(name string) int {
		n, _ := strconv.ParseInt(o.text(name), 10, 64)
		return int(n)
	}
	h := host{
		ref: o.ref, name: o.text("name"), usable: o.text("runtime.connectionState") == "connected" && o.text("runtime.inMaintenanceMode") != "true",
		cores: number("summary.hardware.numCpuCores"), mhz: number("summary.hardware.cpuMhz"), mib: number("summary.hardware.memorySize") >> 20,
		usedMHz: number("summary.quickStats.overallCpuUsage"), usedMiB: number("summary.quickStats.overallMemoryUsage"),
	}
	for _, m := range o.props["vm"].all("ManagedObjectReference") {
		h.machines = append(h.machines, m.ref())
	}
	through := map[string]bool{}
	for _, p := range o.props["config.pciPassthruInfo"].all("HostPciPassthruInfo") {
		through[p.text("id")] = p.text("passthruActive") == "true"
	}
	for _, p := range o.props["hardware.pciDevice"].all("HostPciDevice") {
		word := func(name string) uint16 { // it is written with a sign
			n, _ := strconv.ParseInt(p.text(name), 10, 32)
			return uint16(n)
		}
		if class := word("classId"); through[p.text("id")] && word("vendorId") == nvidia && (class == 0x0300 || class == 0x0302) {
			h.gpus = append(h.gpus, device{p.text("id"), gpuName(p.text("deviceName")), nvidia, word("deviceId")})
		}
	}
	return h
}

const nvidia = 0x10de

var (
	inBrackets = lazyregexp.New(`\[(.+)\]`)
	gigabytes  = lazyregexp.New(`(?i)(\d+) ?GB`)
)

// gpuName is what tasks call a device, as A100-80GB for "GA100 [A100 PCIe 80GB]".
func gpuName(deviceName string) string {
	name := strings.TrimPrefix(deviceName, "NVIDIA")
	if part := inBrackets.FindStringSubmatch(name); part != nil {
		name = part[1]
	}
	gib := 0
	if part := gigabytes.FindStringSubmatch(name); part != nil {
		gib, _ = strconv.Atoi(part[1])
	}
	for known := range cloud.NVIDIAAccelerators(fmt.Sprintf("%s, %d", strings.ReplaceAll(name, ",", " "), gib<<10)) {
		return known
	}
	return name
}

// gpuMemory is that of a GPU in GB; of those that sky does not know it is much.
func gpuMemory(name string) int {
	for _, a := range catalog.Accelerators() {
		if strings.EqualFold(a.Name, name) && a.MemoryGB > 0 {
			return int(math.Ceil(a.MemoryGB))
		}
	}
	return 96
}

// pick finds hosts for n VMs of a size, each where most memory is left. busy are the GPUs
// that VMs have, by host. Its error says what is missing.
func pick(hosts []host, s size, n int, busy map[ref]int) ([]host, error) {
	left := slices.Clone(hosts)
	gpus := make([]int, len(left))
	for i, h := range left {
		gpus[i] = len(h.ofKind(s.gpu)) - busy[h.ref]
	}
	var picked []host
	for range n {
		best := -1
		for i, h := range left {
			cpus, mib := h.free()
			if !h.usable || cpus < s.cpus || mib < s.gib<<10 || s.gpus > 0 && gpus[i] < s.gpus {
				continue
			}
			if _, most := left[max(best, 0)].free(); best < 0 || mib > most {
				best = i
			}
		}
		if best < 0 {
			return nil, fmt.Errorf("%d of %d VMs of the size %v fit: %s", len(picked), n, s, room(left, gpus, s))
		}
		picked = append(picked, hosts[best])
		left[best].usedMHz += s.cpus * left[best].mhz
		left[best].usedMiB += s.gib << 10
		gpus[best] -= s.gpus
	}
	return picked, nil
}

// room says what hosts have left, for people.
func room(hosts []host, gpus []int, s size) string {
	var all []string
	for i, h := range hosts {
		cpus, mib := h.free()
		line := fmt.Sprintf("%s has %d vCPUs and %d GiB left", h.name, cpus, max(mib, 0)>>10)
		switch {
		case !h.usable:
			line = h.name + " is in maintenance or not connected"
		case s.gpus > 0:
			line += fmt.Sprintf(" and %d %s", gpus[i], s.gpu)
		}
		all = append(all, line)
	}
	if len(all) == 0 {
		return "the cluster has no hosts"
	}
	if n := len(all) - 3; n > 0 {
		all = append(all[:3], fmt.Sprintf("%d more hosts", n))
	}
	return strings.Join(all, ", ")
}

// sizes are those that a zone's largest hosts could hold if they were empty.
func (z zone) sizes(version float64) (all []size) {
	fits := func(s size) bool {
		return slices.ContainsFunc(z.hosts, func(h host) bool {
			return s.cpus <= h.cores && s.gib<<10 <= h.mib && (s.gpus == 0 || s.gpus <= len(h.ofKind(s.gpu)))
		})
	}
	add := func(s size) {
		if fits(s) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	for _, cpus := range []int{1, 2, 4, 8, 16, 32, 64, 96, 128} {
		for _, each := range []int{2, 4, 8} {
			add(size{cpus: cpus, gib: cpus * each})
		}
	}
	for _, h := range z.hosts {
		for _, d := range h.gpus {
			if version < dynamicDevices {
				break
			}
			most := len(h.ofKind(d.name))
			for _, n := range []int{1, 2, 4, 8, most} {
				for _, each := range []int{4, 8, 16} {
					for _, memory := range []int{4, 8} {
						add(size{n * each, n * each * memory, n, d.name})
					}
				}
			}
		}
	}
	return all
}

// template is a VM that others are made from.
type template struct {
	ref
	name, tags string // its name, and what its notes say
	datacenter ref
}

// templates are all that there are.
func (v *vcenter) templates(ctx context.Context, in inventory) (all []template, err error) {
	found, err := v.properties(ctx, nil, wanted{"VirtualMachine", []string{"name", "parent", "config.template", "config.annotation"}})
	for _, o := range found {
		if o.text("config.template") == "true" {
			all = append(all, template{o.ref, o.text("name"), o.text("config.annotation"), in.datacenter(o.props["parent"].ref())})
		}
	}
	slices.SortFunc(all, func(a, b template) int { return cmp.Compare(a.name, b.name) })
	return all, err
}

// choose is the template for a size: the one of that name, else the one with the name or,
// in its notes, the word of an image for such machines.
func choose(all []template, datacenter ref, image string, s size) (template, error) {
	want := []string{"SKYPILOT-CPU"}
	switch {
	case image != "":
		want = []string{image}
	case s.gpus > 0:
		want = []string{"GPU-" + s.gpu, "SKYPILOT-NVIDIA"}
	}
	for _, name := range want {
		for _, t := range all {
			if t.datacenter == datacenter && (strings.EqualFold(t.name, name) || image == "" && slices.ContainsFunc(strings.Fields(t.tags), func(w string) bool { return strings.EqualFold(w, name) })) {
				return t, nil
			}
		}
	}
	return template{}, errors.New("there is no VM template with the name " + strings.Join(want, " or ") + " in the datacenter of the cluster, nor one with that word in its notes; see docs/vsphere.md for how to make it")
}
