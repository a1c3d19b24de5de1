package catalog

import (
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// traits are the facts of a cloud that decide which rows of its price list
// answer a request that leaves things open.
type traits struct {
	name, display string
	// family matches the instance types to prefer when only a size is asked for.
	// Nil: all alike. Of the rest, those that match arm come last, since programs and
	// images are made for x86 as a rule, and those that match special are for
	// requests that name them.
	family, arm, special *lazyregexp.Regexp
	// size for a request that asks for none; memory is GiB per vCPU.
	cpus, memoryPerCPU float64
	// anySize: there is no default size.
	anySize bool
	// eachZone: machines are rented in a zone, not in a region.
	eachZone bool
	// regionClass puts regions with a lower number before others, whatever they
	// cost. Nil: all alike.
	regionClass func(region string) int
	// disk reports whether disks of a tier can be had with an instance type.
	disk func(instance, tier string) bool
	// minDisk and maxDisk bound the system disk, in GB; 0: unbounded.
	minDisk, maxDisk int
}

// Name and DisplayName of a cloud are here also for clouds that have no price
// list of their own.
var allTraits = []traits{
	{name: "aws", display: "AWS", regionClass: usFirst, family: lazyregexp.New(`^(m6i|m6id|m7i|r6i|r6id|r7i|c6i|c6id|c7i)\.`),
		arm: lazyregexp.New(`^(a1|[a-z]+[0-9]+g[a-z0-9]*)\.`), special: lazyregexp.New(`^(mac[^.]*|t1|m1|m2|c1)\.`)}, // dedicated hosts; no image for them
	{name: "azure", display: "Azure", family: lazyregexp.New(`^Standard_([DE]\d+s_v5|F\d+s_v2)$`), disk: azureDisk,
		arm: lazyregexp.New(`^Standard_[A-Z]+[0-9]+[a-z]*p[a-z]*_`)},
	{name: "gcp", display: "GCP", eachZone: true, family: lazyregexp.New(`^n[24]-(standard|highmem|highcpu)-`),
		arm: lazyregexp.New(`^(t2a|c4a|n4a)-`), special: lazyregexp.New(`^(a[0-9]|g2|g4)-`)}, // hosts of accelerators
	{name: "ibm", display: "IBM", family: lazyregexp.New(`^bx2-`)},
	{name: "lambda", display: "Lambda", cpus: 30, regionClass: usFirst},
	{name: "scp", display: "SCP", memoryPerCPU: 2, minDisk: 100, maxDisk: 300, regionClass: financialLast},
	{name: "oci", display: "OCI", family: lazyregexp.New(`^VM\.Standard(\.E|3)`), disk: noUltra,
		arm: lazyregexp.New(`^(VM|BM)\.Standard\.A`)},
	{name: "kubernetes", display: "Kubernetes", cpus: 2, memoryPerCPU: 1},
	{name: "runpod", display: "RunPod", anySize: true},
	{name: "vast", display: "Vast"},
	{name: "vsphere", display: "vSphere", cpus: 2},
	{name: "cudo", display: "Cudo", memoryPerCPU: 2},
	{name: "fluidstack", display: "Fluidstack", cpus: 6},
	{name: "paperspace", display: "Paperspace"},
	{name: "primeintellect", display: "PrimeIntellect"},
	{name: "do", display: "DO"},
	{name: "nebius", display: "Nebius"},
	{name: "ssh", display: "SSH", cpus: 2, memoryPerCPU: 1},
	{name: "slurm", display: "Slurm", eachZone: true, cpus: 2, memoryPerCPU: 1},
	{name: "hyperbolic", display: "Hyperbolic"},
	{name: "seeweb", display: "Seeweb"},
	{name: "shadeform", display: "Shadeform"},
	{name: "yotta", display: "Yotta"},
	{name: "mithril", display: "Mithril"},
	{name: "verda", display: "Verda"},
}

// traitsOf gives the facts of a cloud; an unknown one has the usual defaults.
func traitsOf(cloud string) traits {
	t := traits{name: cloud, display: cloud}
	for _, k := range allTraits {
		if k.name == cloud {
			t = k
		}
	}
	if t.cpus == 0 {
		t.cpus = 8
	}
	if t.memoryPerCPU == 0 {
		t.memoryPerCPU = 4
	}
	return t
}

// DisplayName is how tables show a cloud: "AWS" for "aws".
func DisplayName(cloud string) string { return traitsOf(cloud).display }

// azureDisk: premium disks, which medium and better are made of, attach only
// to sizes whose features include an s (Standard_D8s_v5).
func azureDisk(instance, tier string) bool {
	switch tier {
	case "ultra":
		return false
	case "medium", "high":
		size := strings.TrimPrefix(instance, "Standard_")
		size, _, _ = strings.Cut(size, "_")
		return strings.ContainsRune(strings.TrimLeft(size, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"), 's')
	}
	return true
}

func noUltra(_, tier string) bool { return tier != "ultra" }

// sizeFamilies are the first ones that an instance type belongs to; ok is false if it
// is not for requests of only a size.
func (t *traits) sizeFamilies(k *kind) (f Families, ok bool) {
	matches := func(r *lazyregexp.Regexp) bool { return r != nil && r.MatchString(k.instance) }
	switch {
	case t.family == nil:
		return UsualFamilies, true
	case k.accelerators != nil || k.instance == "" || k.attached:
		return 0, false
	case matches(t.family):
		return UsualFamilies, true
	case matches(t.special):
		return 0, false
	case matches(t.arm) || strings.HasPrefix(k.arch, "arm"):
		return AllFamilies, true
	}
	return UnusualFamilies, true
}

// sized fills in the default size where a query leaves it open.
func (t *traits) sized(q Query) Query {
	if t.anySize || q.InstanceType != "" || q.Accelerator != "" {
		return q
	}
	if q.CPUs.Any() && q.Memory.Any() && !q.AnyCPUs && !q.AnyMemory {
		q.CPUs = Amount{N: t.cpus, AtLeast: true}
	}
	if q.Memory.Any() && !q.AnyMemory {
		q.Memory = Amount{N: t.memoryPerCPU, PerCPU: true}
	}
	return q
}

func usFirst(region string) int {
	if strings.HasPrefix(region, "us-") {
		return 0
	}
	return 1
}

// financialLast: these zones are open only to financial institutions.
func financialLast(region string) int {
	if strings.Contains(region, "-FIN-") {
		return 1
	}
	return 0
}
