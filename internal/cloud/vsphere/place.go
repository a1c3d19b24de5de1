package vsphere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud/vcenter"
)

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
func pick(hosts []vcenter.Host, s vcenter.Size, n int, busy map[vcenter.Ref]int) ([]vcenter.Host, error) {
	left := slices.Clone(hosts)
	gpus := make([]int, len(left))
	for i, h := range left {
		gpus[i] = len(h.OfKind(s.GPU)) - busy[h.Ref]
	}
	var picked []vcenter.Host
	for range n {
		best := -1
		for i, h := range left {
			cpus, mib := h.Free()
			if !h.Usable || cpus < s.CPUs || mib < s.GiB<<10 || s.GPUs > 0 && gpus[i] < s.GPUs {
				continue
			}
			if _, most := left[max(best, 0)].Free(); best < 0 || mib > most {
				best = i
			}
		}
		if best < 0 {
			return nil, fmt.Errorf("%d of %d VMs of the size %v fit: %s", len(picked), n, s, room(left, gpus, s))
		}
		picked = append(picked, hosts[best])
		left[best].UsedMHz += s.CPUs * left[best].MHz
		left[best].UsedMiB += s.GiB << 10
		gpus[best] -= s.GPUs
	}
	return picked, nil
}

// room says what hosts have left, for people.
func room(hosts []vcenter.Host, gpus []int, s vcenter.Size) string {
	var all []string
	for i, h := range hosts {
		cpus, mib := h.Free()
		line := fmt.Sprintf("%s has %d vCPUs and %d GiB left", h.Name, cpus, max(mib, 0)>>10)
		switch {
		case !h.Usable:
			line = h.Name + " is in maintenance or not connected"
		case s.GPUs > 0:
			line += fmt.Sprintf(" and %d %s", gpus[i], s.GPU)
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

// template is a VM that others are made from.
type template struct {
	vcenter.Ref
	name, tags string // its name, and what its notes say
	datacenter vcenter.Ref
}

// templatesOf are all that there are.
func templatesOf(ctx context.Context, v *vcenter.VCenter, in vcenter.Inventory) (all []template, err error) {
	found, err := v.Properties(ctx, nil, "VirtualMachine", "name", "parent", "config.template", "config.annotation")
	for _, o := range found {
		if o.Text("config.template") == "true" {
			all = append(all, template{o.Ref, o.Text("name"), o.Text("config.annotation"), in.Datacenter(o.Props["parent"].Ref())})
		}
	}
	slices.SortFunc(all, func(a, b template) int { return cmp.Compare(a.name, b.name) })
	return all, err
}

// choose is the template for a size: the one of that name, else the one with the name or,
// in its notes, the word of an image for such machines.
func choose(all []template, datacenter vcenter.Ref, image string, s vcenter.Size) (template, error) {
	want := []string{"SKYPILOT-CPU"}
	switch {
	case image != "":
		want = []string{image}
	case s.GPUs > 0:
		want = []string{"GPU-" + s.GPU, "SKYPILOT-NVIDIA"}
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
