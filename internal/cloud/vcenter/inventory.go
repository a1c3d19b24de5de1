package vcenter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Size is an instance type: vCPUs, GiB of memory, and GPUs of a kind.
type Size struct {
	CPUs, GiB, GPUs int
	GPU             string
}

var sizeForm = lazyregexp.New(`^vm-(\d{1,4})c-(\d{1,6})g(?:-(\d{1,2})x(.+))?$`)

func (s Size) String() string {
	name := fmt.Sprintf("vm-%dc-%dg", s.CPUs, s.GiB)
	if s.GPUs > 0 {
		name += fmt.Sprintf("-%dx%s", s.GPUs, s.GPU)
	}
	return name
}

// ParseSize reads the name of an instance type.
func ParseSize(name string) (s Size, err error) {
	part := sizeForm.FindStringSubmatch(name)
	if part == nil {
		return s, fmt.Errorf("%q is no size of a VM on vSphere, such as vm-4c-16g or vm-8c-64g-1xA100", name)
	}
	s.CPUs, _ = strconv.Atoi(part[1])
	s.GiB, _ = strconv.Atoi(part[2])
	s.GPUs, _ = strconv.Atoi(part[3])
	if s.GPU = part[4]; s.CPUs < 1 || s.GiB < 1 || (s.GPUs > 0) != (s.GPU != "") {
		return s, fmt.Errorf("%q is no size of a VM", name)
	}
	return s, nil
}

// Device is a GPU that a host can hand to a VM.
type Device struct {
	ID, Name      string
	Vendor, Model uint16
}

// Host is one that VMs run on.
type Host struct {
	Ref
	Name             string
	Usable           bool // connected, and not in maintenance
	Cores, MHz       int
	UsedMHz, UsedMiB int
	MiB              int
	GPUs             []Device
	Machines         []Ref // that are on it
}

// Free are the vCPUs and the MiB that nothing uses.
func (h Host) Free() (cpus, mib int) {
	return (h.Cores*h.MHz - h.UsedMHz) / max(h.MHz, 1), h.MiB - h.UsedMiB
}

// OfKind are the GPUs of a kind.
func (h Host) OfKind(name string) []Device {
	return slices.DeleteFunc(slices.Clone(h.GPUs), func(d Device) bool { return d.Name != name })
}

// Zone is a cluster of hosts, or a host of its own.
type Zone struct {
	Name       string
	Pool       Ref
	Datacenter Ref
	Folder     Ref // of the datacenter's VMs
	Hosts      []Host
}

// Inventory is what a vCenter has besides VMs.
type Inventory struct {
	Zones   []Zone
	parents map[Ref]Ref
	Version float64
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

// Look reads the inventory, of the clusters that the credentials name.
func (v *VCenter) Look(ctx context.Context) (Inventory, error) {
	in := Inventory{parents: map[Ref]Ref{}}
	all, err := v.properties(ctx, nil, inventoryOf...)
	if err != nil {
		return in, err
	}
	s, err := v.login(ctx, nil)
	if err != nil {
		return in, err
	}
	in.Version = s.version
	folders := map[Ref]Ref{}
	for _, o := range all {
		in.parents[o.Ref] = o.Props["parent"].Ref()
		if o.Kind == "Datacenter" {
			folders[o.Ref] = o.Props["vmFolder"].Ref()
		}
	}
	taken := map[string]bool{}
	for _, o := range all {
		name := o.Text("name")
		if !strings.HasSuffix(o.Kind, "ComputeResource") || len(v.Clusters) > 0 && !slices.Contains(v.Clusters, name) {
			continue
		}
		if taken[name] {
			return in, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: v.Name}, Err: fmt.Errorf("%s has two clusters with the name %s; rename one, or list the others under clusters: in ~/%s", v.Name, name, Path)}
		}
		taken[name] = true
		z := Zone{Name: name, Pool: o.Props["resourcePool"].Ref(), Datacenter: in.Datacenter(o.Ref)}
		z.Folder = folders[z.Datacenter]
		for _, h := range all {
			if h.Kind == "HostSystem" && h.Props["parent"].Ref() == o.Ref {
				z.Hosts = append(z.Hosts, readHost(h))
			}
		}
		slices.SortFunc(z.Hosts, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
		in.Zones = append(in.Zones, z)
	}
	slices.SortFunc(in.Zones, func(a, b Zone) int { return cmp.Compare(a.Name, b.Name) })
	return in, nil
}

// Datacenter is the one that a folder or something else is in.
func (in Inventory) Datacenter(of Ref) Ref {
	for range len(in.parents) {
		if of.Kind == "Datacenter" {
			return of
		}
		of = in.parents[of]
	}
	return Ref{}
}

// ZoneOf is the zone of a host; "": it is in none of ours.
func (in Inventory) ZoneOf(at Ref) string {
	for _, z := range in.Zones {
		if slices.ContainsFunc(z.Hosts, func(h Host) bool { return h.Ref == at }) {
			return z.Name
		}
	}
	return ""
}

func readHost(o Object) Host {
	number := func(name string) int {
		n, _ := strconv.ParseInt(o.Text(name), 10, 64)
		return int(n)
	}
	h := Host{
		Ref: o.Ref, Name: o.Text("name"), Usable: o.Text("runtime.connectionState") == "connected" && o.Text("runtime.inMaintenanceMode") != "true",
		Cores: number("summary.hardware.numCpuCores"), MHz: number("summary.hardware.cpuMhz"), MiB: number("summary.hardware.memorySize") >> 20,
		UsedMHz: number("summary.quickStats.overallCpuUsage"), UsedMiB: number("summary.quickStats.overallMemoryUsage"),
	}
	for _, m := range o.Props["vm"].All("ManagedObjectReference") {
		h.Machines = append(h.Machines, m.Ref())
	}
	through := map[string]bool{}
	for _, p := range o.Props["config.pciPassthruInfo"].All("HostPciPassthruInfo") {
		through[p.Text("id")] = p.Text("passthruActive") == "true"
	}
	for _, p := range o.Props["hardware.pciDevice"].All("HostPciDevice") {
		word := func(name string) uint16 { // it is written with a sign
			n, _ := strconv.ParseInt(p.Text(name), 10, 32)
			return uint16(n)
		}
		if class := word("classId"); through[p.Text("id")] && word("vendorId") == nvidia && (class == 0x0300 || class == 0x0302) {
			h.GPUs = append(h.GPUs, Device{p.Text("id"), GPUName(p.Text("deviceName")), nvidia, word("deviceId")})
		}
	}
	return h
}

const nvidia = 0x10de

var (
	inBrackets = lazyregexp.New(`\[(.+)\]`)
	gigabytes  = lazyregexp.New(`(?i)(\d+) ?GB`)
)

// GPUName is what tasks call a device, as A100-80GB for "GA100 [A100 PCIe 80GB]".
func GPUName(deviceName string) string {
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

// Sizes are those that a zone's largest hosts could hold if they were empty.
func (z Zone) Sizes(version float64) (all []Size) {
	fits := func(s Size) bool {
		return slices.ContainsFunc(z.Hosts, func(h Host) bool {
			return s.CPUs <= h.Cores && s.GiB<<10 <= h.MiB && (s.GPUs == 0 || s.GPUs <= len(h.OfKind(s.GPU)))
		})
	}
	add := func(s Size) {
		if fits(s) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	for _, cpus := range []int{1, 2, 4, 8, 16, 32, 64, 96, 128} {
		for _, each := range []int{2, 4, 8} {
			add(Size{CPUs: cpus, GiB: cpus * each})
		}
	}
	for _, h := range z.Hosts {
		for _, d := range h.GPUs {
			if version < dynamicDevices {
				break
			}
			most := len(h.OfKind(d.Name))
			for _, n := range []int{1, 2, 4, 8, most} {
				for _, each := range []int{4, 8, 16} {
					for _, memory := range []int{4, 8} {
						add(Size{n * each, n * each * memory, n, d.Name})
					}
				}
			}
		}
	}
	return all
}
