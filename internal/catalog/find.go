package catalog

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
)

// Find lists every offer that answers the query, the cheapest instance type
// first and its places in the order to try them. Offers are per region, or per
// zone for spot, for clouds that rent by zone, and where zones are asked for.
func (t *Table) Find(q Query) []cloud.Offer {
	sel := t.Select(q)
	if sel.Len() == 0 {
		return nil
	}
	out := make([]cloud.Offer, 0, sel.Len())
	sel.Each(func(o *cloud.Offer) { out = append(out, *o) })
	return out
}

// Selection is the answer to a query before it is spelled out.
type Selection struct {
	filter filter
	found  []match
	n      int
}

// Len is the number of offers.
func (s *Selection) Len() int { return s.n }

// Each yields the offers in the order of [Table.Find]. An offer is only valid
// during the call.
func (s *Selection) Each(yield func(o *cloud.Offer)) {
	f := &s.filter
	t := f.t
	var o cloud.Offer
	for _, m := range s.found {
		k := &t.kinds[m.kind]
		o = cloud.Offer{Place: cloud.Place{Cloud: t.traits.name}, InstanceType: k.instance, Accelerators: k.accelerators, Spot: f.q.Spot}
		if !k.assumed {
			o.CPUs, o.MemoryGiB = k.cpus, k.memory
		}
		if hosts := facts.TPUHosts(k.accelerator); hosts > 1 && k.instance == tpuVM {
			o.Hosts = hosts
		}
		f.each(m.kind, func(i uint32, price float64) {
			o.HourlyPrice, o.Region = price, t.regions[t.region[i]]
			if f.byZone || f.q.Spot {
				o.Zone = t.zones[t.zone[i]]
			}
			yield(&o)
		})
	}
}

// Select finds what answers the query.
func (t *Table) Select(q Query) Selection {
	if tr := &t.traits; q.DiskGB > 0 && (q.DiskGB < tr.MinDisk || tr.MaxDisk > 0 && q.DiskGB > tr.MaxDisk) {
		return Selection{}
	}
	q = t.traits.sized(q)
	regions, ok := subset(t.regions, q.Regions)
	zones, ok2 := subset(t.zones, q.Zones)
	if !ok || !ok2 {
		return Selection{}
	}
	s := Selection{filter: filter{t: t, q: q, regions: regions, zones: zones, byZone: t.traits.EachZone || q.EachZone || len(q.Zones) > 0}}
	switch {
	case q.InstanceType != "":
		s.take(t.byInstance[q.InstanceType])
	case q.Accelerator != "":
		s.take(t.kindsOf[strings.ToLower(q.Accelerator)])
	default:
		s.take(t.sizes[q.Families])
	}
	return s
}

// take selects, of the given kinds, what answers the query.
func (s *Selection) take(kinds []int32) {
	s.found = s.filter.t.matches(&s.filter.q, kinds)
	slices.SortStableFunc(s.found, func(a, b match) int {
		if a.price == 0 && b.price == 0 { // of one's own machines a task gets no more than it needs
			one, other := &s.filter.t.kinds[a.kind], &s.filter.t.kinds[b.kind]
			return cmp.Or(cmp.Compare(one.count, other.count), cmp.Compare(one.cpus, other.cpus), cmp.Compare(one.memory, other.memory))
		}
		return cmp.Compare(a.price, b.price)
	})
	for _, m := range s.found {
		s.filter.each(m.kind, func(uint32, float64) { s.n++ })
	}
}

type match struct {
	kind  int32
	price float64
}

// matches lists those of the kinds that fit, in their order.
func (t *Table) matches(q *Query, kinds []int32) []match {
	var out []match
	for _, i := range kinds {
		k := &t.kinds[i]
		if !t.fits(k, q) {
			continue
		}
		price := k.minPrice
		if q.Spot {
			price = k.minSpot
		}
		if !math.IsInf(price, 1) {
			out = append(out, match{i, price})
		}
	}
	return out
}

func (t *Table) fits(k *kind, q *Query) bool {
	if q.Accelerator != "" {
		if !strings.EqualFold(k.accelerator, q.Accelerator) || q.Count != 0 && !SameCount(k.count, q.Count) {
			return false
		}
	} else if k.attached {
		return false // asking for the host alone does not ask for what it could carry
	}
	if k.tpuNode != q.TPUNode && strings.HasPrefix(k.accelerator, "tpu-") {
		return false
	}
	if !q.CPUs.Fits(k.cpus, k.cpus) || !q.Memory.Fits(k.memory, k.cpus) {
		return false
	}
	if k.attached && q.InstanceType == "" {
		if q.CPUs.Any() && q.Memory.Any() && k.cpus < k.defaultCPUs || q.Memory.Any() && k.memory < 4*k.cpus {
			return false
		}
	}
	if q.DiskTier != "" && q.DiskTier != "best" && t.traits.Disk != nil && !t.traits.Disk(k.instance, q.DiskTier) {
		return false
	}
	return q.LocalDisk == "" || k.hasLocalDisk(q.LocalDisk)
}

// hasLocalDisk answers "nvme:100+" (at least 100 GB) and "ssd:375" (within a
// GB). NVMe disks are solid state too.
func (k *kind) hasLocalDisk(want string) bool {
	mode, size, _ := strings.Cut(strings.ToLower(want), ":")
	if k.localDisk != mode && !(mode == "ssd" && k.localDisk == "nvme") {
		return false
	}
	size, atLeast := strings.CutSuffix(size, "+")
	gb, err := strconv.ParseFloat(size, 64)
	if err != nil {
		return k.localDiskGB > 0
	}
	return atLeast && k.localDiskGB >= gb || math.Abs(k.localDiskGB-gb) <= 1
}

// filter picks the rows of a kind.
type filter struct {
	t              *Table
	q              Query
	regions, zones []bool // nil: all
	byZone         bool
}

// each calls f with every row of a kind that passes, and its price.
func (f *filter) each(id int32, yield func(i uint32, price float64)) {
	t, k := f.t, &f.t.kinds[id]
	if f.q.Spot {
		for _, i := range t.bySpot[k.spots.from:k.spots.to] {
			if f.passes(i, t.spot[i]) {
				yield(i, t.spot[i])
			}
		}
		return
	}
	for i := k.rows.from; i < k.rows.to; i++ {
		if (f.byZone || t.regionHead[i]) && f.passes(i, t.price[i]) {
			yield(i, t.price[i])
		}
	}
}

func (f *filter) passes(i uint32, price float64) bool {
	t := f.t
	return !math.IsNaN(price) &&
		(f.regions == nil || f.regions[t.region[i]]) &&
		(f.zones == nil || f.zones[t.zone[i]]) &&
		(f.q.MaxHourly == 0 || price <= f.q.MaxHourly)
}

// subset marks the names that are wanted, in any case. It is nil when all are;
// ok is false when none is known.
func subset(names, wanted []string) (marked []bool, ok bool) {
	if len(wanted) == 0 {
		return nil, true
	}
	for i, n := range names {
		for _, w := range wanted {
			if strings.EqualFold(n, w) {
				if marked == nil {
					marked = make([]bool, len(names))
				}
				marked[i] = true
			}
		}
	}
	return marked, marked != nil
}
