package catalog

import (
	"math"
	"slices"
	"strings"
	"sync"
)

// Google's list prices hosts and accelerators apart. joinGCP makes what can be
// rented of them: every host with every accelerator that goes into it, TPU
// slices with the virtual machine that comes with them, and TPUs behind a host.

// gcpHosts are the machine types that accelerators of a kind come built into,
// by count. Any other GPU is attached to a machine of the n1 family.
var gcpHosts = sync.OnceValue(func() map[string]map[float64][]string {
	return map[string]map[float64][]string{
		"A100":      {1: {"a2-highgpu-1g"}, 2: {"a2-highgpu-2g"}, 4: {"a2-highgpu-4g"}, 8: {"a2-highgpu-8g"}, 16: {"a2-megagpu-16g"}},
		"A100-80GB": {1: {"a2-ultragpu-1g"}, 2: {"a2-ultragpu-2g"}, 4: {"a2-ultragpu-4g"}, 8: {"a2-ultragpu-8g"}},
		"L4": {1: {"g2-standard-4", "g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-32"},
			2: {"g2-standard-24"}, 4: {"g2-standard-48"}, 8: {"g2-standard-96"}},
		"H100":      {1: {"a3-highgpu-1g"}, 2: {"a3-highgpu-2g"}, 4: {"a3-highgpu-4g"}, 8: {"a3-highgpu-8g"}},
		"H100-MEGA": {8: {"a3-megagpu-8g"}},
		"H200":      {8: {"a3-ultragpu-8g"}},
		"B200":      {8: {"a4-highgpu-8g"}},
	}
})

// gcpLimit is the largest host that so many GPUs may be attached to.
type gcpLimit struct{ cpus, memory float64 }

var gcpLimits = sync.OnceValue(func() map[string]map[float64]gcpLimit {
	return map[string]map[float64]gcpLimit{
		"K80":  {1: {8, 52}, 2: {16, 104}, 4: {32, 208}, 8: {64, 208}},
		"V100": {1: {12, 78}, 2: {24, 156}, 4: {48, 312}, 8: {96, 624}},
		"T4":   {1: {48, 312}, 2: {48, 312}, 4: {96, 624}},
		"P4":   {1: {24, 156}, 2: {48, 312}, 4: {96, 624}},
		"P100": {1: {16, 104}, 2: {32, 208}, 4: {96, 624}},
	}
})

// gcpZoneLimits are zones where other limits hold.
var gcpZoneLimits = sync.OnceValue(func() map[string]map[string]gcpLimit {
	return map[string]map[string]gcpLimit{
		"K80:8":  {"asia-east1-a": {64, 416}, "us-east1-d": {64, 416}},
		"P100:4": {"us-east1-c": {64, 208}, "europe-west1-d": {64, 208}, "europe-west1-b": {64, 208}},
	}
})

// gcpDefaultCPUs is the least host for so many attached GPUs when no size is
// asked for; what is not listed gets eight vCPUs each.
var gcpDefaultCPUs = sync.OnceValue(func() map[string]map[float64]float64 {
	return map[string]map[float64]float64{
		"K80": {1: 4, 2: 8, 4: 16, 8: 32, 16: 64},
		"T4":  {1: 4, 2: 8, 4: 48},
	}
})

const tpuVM = "TPU-VM"

// tpuHost is the size of the machine that a TPU slice comes with.
func tpuHost(name string) (cpus, memory float64) {
	if strings.HasPrefix(name, "tpu-v4") {
		return 240, 400
	}
	return 96, 334
}

// us-central2-b is missing from the list of hosts although TPUs are rented
// there with one.
var (
	tpuNodeHost  = "n1-highmem-8"
	tpuNodeExtra = struct {
		zone, region string
		price, spot  float64
	}{"us-central2-b", "us-central2", 0.473212, 0.099624}
)

func (b *builder) joinGCP() {
	hosts := map[string]int{}
	var parts []int // accelerators without a host
	for i := range b.kinds {
		switch k := &b.kinds[i]; {
		case k.instance != "" && k.accelerator == "":
			hosts[k.instance] = i
		case k.instance == "" || k.instance == tpuVM:
			parts = append(parts, i)
		}
	}
	b.addTPUNodeHost(hosts)
	n1 := n1Hosts(b.kinds)
	consumed := map[int]bool{}
	for _, p := range parts {
		acc := b.kinds[p]
		rows := b.rows[p]
		b.rows[p] = nil
		if strings.HasPrefix(acc.accelerator, "tpu-") {
			b.addTPU(acc, rows, hosts)
			continue
		}
		built := gcpHosts()[acc.accelerator]
		for _, name := range built[acc.count] {
			if h, ok := hosts[name]; ok {
				b.join(h, acc, rows, false)
				consumed[h] = true
			}
		}
		if built == nil {
			for _, h := range n1 {
				b.join(h, acc, rows, true)
			}
		}
	}
	for h := range consumed {
		b.rows[h] = nil // such a host is never rented without what is built in
	}
}

func n1Hosts(kinds []kind) []int {
	var out []int
	for i := range kinds {
		if k := &kinds[i]; k.accelerator == "" && strings.HasPrefix(k.instance, "n1-") {
			out = append(out, i)
		}
	}
	return out
}

func (b *builder) addTPUNodeHost(hosts map[string]int) {
	h, ok := hosts[tpuNodeHost]
	if !ok {
		return
	}
	region, err := b.regions.id([]byte(tpuNodeExtra.region))
	if err != nil {
		return
	}
	zone, err := b.zones.id([]byte(tpuNodeExtra.zone))
	if err != nil || slices.ContainsFunc(b.rows[h], func(r row) bool { return r.zone == zone }) {
		return
	}
	b.rows[h] = append(b.rows[h], row{region: region, zone: zone, price: tpuNodeExtra.price, spot: tpuNodeExtra.spot})
}

// addTPU adds a slice with its own machine, and the same behind a host.
func (b *builder) addTPU(acc kind, rows []row, hosts map[string]int) {
	vm := acc
	vm.instance, vm.assumed = tpuVM, true
	vm.cpus, vm.memory = tpuHost(acc.accelerator)
	b.kinds, b.rows = append(b.kinds, vm), append(b.rows, rows)
	if h, ok := hosts[tpuNodeHost]; ok {
		b.join(h, acc, rows, false)
		last := &b.kinds[len(b.kinds)-1]
		last.tpuNode, last.listed = true, false
	}
}

// join adds a host with accelerators, in every zone that has both. attach is
// for hosts that are chosen by size.
func (b *builder) join(host int, acc kind, rows []row, attach bool) {
	h := b.kinds[host]
	k := acc
	k.instance, k.cpus, k.memory, k.arch, k.attached = h.instance, h.cpus, h.memory, h.arch, attach
	if attach {
		k.defaultCPUs = gcpDefaultCPUs()[acc.accelerator][acc.count]
		if k.defaultCPUs == 0 {
			k.defaultCPUs = 8 * acc.count
		}
	}
	byZone := make(map[uint16]row, len(b.rows[host]))
	for _, r := range b.rows[host] {
		byZone[r.zone] = r
	}
	var joined []row
	for _, r := range rows {
		at, ok := byZone[r.zone]
		if !ok || attach && !gcpAttaches(&k, b.zones.list[r.zone]) {
			continue
		}
		joined = append(joined, row{r.region, r.zone, sum(at.price, r.price), sum(at.spot, r.spot), r.seq})
	}
	b.kinds, b.rows = append(b.kinds, k), append(b.rows, joined)
}

// sum rounds away what adding decimal fractions in binary leaves behind.
func sum(a, b float64) float64 {
	if s := a + b; !math.IsNaN(s) {
		return math.Round(s*1e8) / 1e8
	}
	return none
}

func gcpAttaches(k *kind, zone string) bool {
	limit, ok := gcpLimits()[k.accelerator][k.count]
	if other, exists := gcpZoneLimits()[FormatCount(k.accelerator, k.count)][zone]; exists {
		limit, ok = other, true
	}
	return !ok || k.cpus <= limit.cpus && k.memory <= limit.memory
}
