package execution

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// tiers order disk tiers from slow to fast.
var tiers = []string{"low", "medium", "high", "ultra"}

// fits checks that a cluster which exists can take a task: any one of the
// task's requests must ask for no more than the cluster has. CPUs and memory
// are not looked at: they sized the machine when it was rented; see [smaller].
func fits(c *state.Cluster, t *task.Task, exec bool) error {
	if t.NumNodes > c.NumNodes {
		return mismatchError(c, []string{fmt.Sprintf("the task wants %d nodes, the cluster has %d", t.NumNodes, c.NumNodes)})
	}
	if at := optimizer.BlockedBy(t.BlockedResources, &c.Offer); at >= 0 {
		return mismatchError(c, []string{"the task's blocked_resources exclude it: " + t.BlockedResources[at].String()})
	}
	var reasons []string
	for _, r := range t.Resources {
		reason := mismatch(c, t, r, exec)
		if reason == "" {
			return nil
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return mismatchError(c, reasons)
}

// smaller says what sizes and tiers of machines a task that fits asks for and the
// cluster does not have; "": it has them. The task runs all the same.
func smaller(c *state.Cluster, t *task.Task, exec bool) string {
	said := ""
	for _, r := range t.Resources {
		if mismatch(c, t, r, exec) != "" {
			continue
		}
		var lacks []string
		cpus, cerr := catalog.ParseAmount(r.CPUs)
		if cerr == nil && c.Offer.CPUs > 0 && !cpus.Least(c.Offer.CPUs, c.Offer.CPUs) {
			lacks = append(lacks, fmt.Sprintf("%s (the task asks for %s)", cpuCount(c.Offer.CPUs), r.CPUs))
		}
		memory, merr := catalog.ParseAmount(r.Memory)
		if merr == nil && c.Offer.MemoryGiB > 0 && !memory.Least(c.Offer.MemoryGiB, c.Offer.CPUs) {
			lacks = append(lacks, fmt.Sprintf("%v GB of memory (the task asks for %s)", c.Offer.MemoryGiB, r.Memory))
		}
		if had := cmp.Or(c.Machine.DiskGB, task.DefaultDiskSize); r.DiskSize > had && facts.Of(c.Offer.Cloud).Hardware == facts.Rented {
			lacks = append(lacks, fmt.Sprintf("a system disk of %d GB (the task asks for %d)", had, r.DiskSize))
		}
		if r.NetworkTier == "best" && c.Machine.NetworkTier != "best" {
			lacks = append(lacks, "the standard network (the task asks for best)")
		}
		if r.LocalDisk != "" && c.Machine.LocalDisk == "" {
			lacks = append(lacks, fmt.Sprintf("the system disk (the task asks for local disks: %s)", r.LocalDisk))
		}
		if len(lacks) == 0 {
			return ""
		}
		said = cmp.Or(said, strings.Join(lacks, " and "))
	}
	return said
}

func cpuCount(n float64) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%v CPUs", n)
}

// warnSmaller says that the machines of a cluster that exists are smaller than a task
// asks for.
func warnSmaller(call cluster.Call, c *state.Cluster, t *task.Task, exec bool) {
	if lacks := smaller(c, t, exec); lacks != "" {
		fmt.Fprintf(call.Out, "⚠ Cluster %s exists and has on each node only %s; the task runs with that. To have more, launch on a new cluster.\n", c.Name, lacks)
	}
}

// warnDisk says that the size of disk that a task asks for has no effect on a cloud:
// nodes on machines that are there already use their disks.
func warnDisk(call cluster.Call, p cloud.Provider, t *task.Task) {
	for _, r := range t.Resources {
		if r.DiskSize > 0 && facts.Of(p.Name()).Hardware != facts.Rented {
			fmt.Fprintf(call.Out, "⚠ The disk size of %d GB has no effect on %s: %s.\n", r.DiskSize, p.Name(), p.Features().Lacks[cloud.FeatureDiskTier])
			return
		}
	}
}

func mismatchError(c *state.Cluster, reasons []string) error {
	return &api.Error{
		Type:    api.ErrResourcesMismatch,
		Message: fmt.Sprintf("Cluster %q (%v, %s) cannot run this task: %s.", c.Name, c.Offer.Place, c.Offer.InstanceType, strings.Join(reasons, "; or: ")),
		Hint:    "Launch it on another cluster (sky launch -c NEW_NAME), or give this one back first: sky down " + c.Name,
	}
}

// mismatch says what of one request the cluster lacks; "" means nothing.
func mismatch(c *state.Cluster, t *task.Task, r task.Resources, exec bool) string {
	o := c.Offer
	switch {
	case r.Cloud != "" && !strings.EqualFold(r.Cloud, o.Cloud):
		return fmt.Sprintf("the task wants %s, the cluster is on %s", r.Cloud, o.Cloud)
	case r.Region != "" && !strings.EqualFold(r.Region, o.Region):
		return fmt.Sprintf("the task wants region %s, the cluster is in %s", r.Region, cmp.Or(o.Region, "none"))
	case r.Zone != "" && !strings.EqualFold(r.Zone, o.Zone):
		return fmt.Sprintf("the task wants zone %s, the cluster is in %s", r.Zone, cmp.Or(o.Zone, "none"))
	case len(r.Regions) > 0 && !slices.Contains(r.Regions, o.Region):
		return fmt.Sprintf("the task wants one of the regions %s, the cluster is in %s", strings.Join(r.Regions, ", "), o.Region)
	case len(r.Zones) > 0 && !slices.Contains(r.Zones, o.Zone):
		return fmt.Sprintf("the task wants one of the zones %s, the cluster is in %s", strings.Join(r.Zones, ", "), o.Zone)
	case r.InstanceType != "" && !strings.EqualFold(r.InstanceType, o.InstanceType):
		return fmt.Sprintf("the task wants %s machines, the cluster has %s", r.InstanceType, o.InstanceType)
	case r.UseSpot != nil && *r.UseSpot != o.Spot:
		return fmt.Sprintf("the task says use_spot: %t, the cluster was rented with use_spot: %t", *r.UseSpot, o.Spot)
	}
	for _, a := range r.Accelerators {
		if _, have := device(o.Accelerators, a.Name); have < a.Count {
			return fmt.Sprintf("the task wants %s:%v on each node, the cluster has %v", a.Name, a.Count, have)
		}
	}
	if r.DiskTier != "" && r.DiskTier != "best" && slices.Index(tiers, r.DiskTier) > slices.Index(tiers, tierOf(c)) {
		return fmt.Sprintf("the task wants disk tier %s, the cluster has %s", r.DiskTier, tierOf(c))
	}
	if reason := otherImage(c, r); reason != "" {
		return reason
	}
	for _, v := range r.Volumes {
		want := diskOf(v)
		if !slices.ContainsFunc(c.Machine.Disks, func(d cloud.Disk) bool { return d.Path == want.Path && d.Name == want.Name }) {
			return fmt.Sprintf("the task wants the disk %s at %s, and the cluster has none such", cmp.Or(want.Name, "of its own"), want.Path)
		}
	}
	if exec && !containsAll(c.Ports, r.Ports) {
		return fmt.Sprintf("the task wants ports %s open, the cluster has %s", strings.Join(r.Ports, ", "), orNone(c.Ports))
	}
	return ""
}

// otherImage reports that the request names another image than the cluster has.
func otherImage(c *state.Cluster, r task.Resources) string {
	if len(r.ImageID) == 0 {
		return ""
	}
	machine, container := c.Machine.ImagesAt(c.Offer.Place)
	m, k := cloud.ImageChoice{By: r.ImageID}.In(c.Offer.Region)
	switch {
	case k != "" && k != container:
		return fmt.Sprintf("the task wants the image docker:%s, the cluster has %s", k, cmp.Or(container, "none"))
	case m != "" && m != machine:
		return fmt.Sprintf("the task wants the image %s, the cluster has %s", m, cmp.Or(machine, "the cloud's own"))
	}
	return ""
}

// device finds among the accelerators of a node those that a task means: by their
// name, by a part of it that names no other accelerator, or by their memory
// ("40GB+"). count is 0 if there are none.
func device(have map[string]float64, wanted string) (name string, count float64) {
	names := slices.Sorted(maps.Keys(have))
	equals := func(other string) bool {
		i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, other) })
		if i >= 0 {
			name, count = names[i], have[names[i]]
		}
		return i >= 0
	}
	if equals(wanted) {
		return name, count
	}
	if memory, ok := catalog.ParseMemoryRequest(wanted); ok {
		for _, a := range memory.Accelerators() {
			if equals(a.Name) {
				break
			}
		}
		return name, count
	}
	if canonical, _ := catalog.CanonicalAccelerator(wanted, names); canonical != "" {
		equals(canonical)
	}
	return name, count
}

// takesItsTask reports whether a node of a planned offer has the accelerators that
// its job will ask for.
func takesItsTask(c optimizer.Candidate) bool {
	for _, a := range c.Resources.Accelerators {
		if _, have := device(c.Offer.Accelerators, a.Name); have < a.Count {
			return false
		}
	}
	return true
}

func tierOf(c *state.Cluster) string {
	tier := c.Machine.DiskTier
	if tier == "best" { // at least that, wherever there are tiers
		return "high"
	}
	return cmp.Or(tier, "medium")
}

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}
