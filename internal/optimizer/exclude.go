package optimizer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/task"
)

// nothingFits explains why a task has no candidate.
func (f *finder) nothingFits() error {
	e := &NoFeasibleError{Task: f.task.Name, Nodes: f.nodes}
	for i := range f.reqs {
		req := &f.reqs[i]
		e.Requests = append(e.Requests, Describe(req.res))
		considered := false
		for _, s := range f.problem.Sources {
			if !f.eligible(s, req.res) {
				continue
			}
			considered = true
			x := f.exclude(s, req)
			x.Cloud, x.DisplayName, x.Request = s.Name(), s.DisplayName(), Describe(req.res)
			e.Clouds = append(e.Clouds, x)
		}
		if !considered {
			e.Clouds = append(e.Clouds, Exclusion{Cloud: req.res.Cloud, DisplayName: cmp.Or(req.res.Cloud, "-"), Request: Describe(req.res),
				Constraint: NotEnabled, Reason: notEnabled(req.res.Cloud, f.problem.Refused)})
		}
		e.Similar = append(e.Similar, f.similar(req)...)
	}
	return e
}

func notEnabled(name string, refused map[string]string) string {
	if name == "" {
		return "nothing is enabled: run sky check to see what to set up"
	}
	if why := refused[name]; why != "" {
		return fmt.Sprintf("it is not enabled: %s (sky check %s tells what to do)", why, name)
	}
	return fmt.Sprintf("it is not enabled: run sky check %s to see why", name)
}

// relaxation takes one constraint out of a query.
type relaxation struct {
	constraint Constraint
	asked      func(*catalog.Query) bool
	drop       func(*catalog.Query)
}

// What is easiest to give up comes first: a size or place that was asked for is named
// before the number of accelerators when either would help.
var relaxations = []relaxation{
	{InstanceType, func(q *catalog.Query) bool { return q.InstanceType != "" }, func(q *catalog.Query) { q.InstanceType = "" }},
	{AccelName, func(q *catalog.Query) bool { return q.Accelerator != "" }, func(q *catalog.Query) { q.Accelerator, q.Count = "", 0 }},
	{CPUs, func(q *catalog.Query) bool { return !q.CPUs.Any() }, func(q *catalog.Query) { q.CPUs, q.AnyCPUs = catalog.Amount{}, true }},
	{Memory, func(q *catalog.Query) bool { return !q.Memory.Any() }, func(q *catalog.Query) { q.Memory, q.AnyMemory = catalog.Amount{}, true }},
	{Region, func(q *catalog.Query) bool { return len(q.Regions) > 0 }, func(q *catalog.Query) { q.Regions, q.Zones = nil, nil }},
	{Zone, func(q *catalog.Query) bool { return len(q.Zones) > 0 }, func(q *catalog.Query) { q.Zones = nil }},
	{SpotOnly, func(q *catalog.Query) bool { return q.Spot }, func(q *catalog.Query) { q.Spot = false }},
	{AccelCount, func(q *catalog.Query) bool { return q.Count != 0 }, func(q *catalog.Query) { q.Count = 0 }},
	{DiskTier, func(q *catalog.Query) bool { return q.DiskTier != "" }, func(q *catalog.Query) { q.DiskTier = "" }},
	{DiskSize, func(q *catalog.Query) bool { return q.DiskGB != 0 }, func(q *catalog.Query) { q.DiskGB = 0 }},
	{LocalDisk, func(q *catalog.Query) bool { return q.LocalDisk != "" }, func(q *catalog.Query) { q.LocalDisk = "" }},
	{MaxHourlyCost, func(q *catalog.Query) bool { return q.MaxHourly > 0 }, func(q *catalog.Query) { q.MaxHourly = 0 }},
	{CPUs, defaultSize, func(q *catalog.Query) { q.AnyCPUs, q.AnyMemory = true, true }},
}

// defaultSize reports whether a query leaves the size of the machine to the source.
func defaultSize(q *catalog.Query) bool {
	return q.CPUs.Any() && q.Memory.Any() && !q.AnyCPUs && !q.AnyMemory && q.Accelerator == "" && q.InstanceType == ""
}

// exclude finds the one constraint that keeps a source from serving a request. Of
// several accelerators that would do, the one that comes nearest is looked at.
func (f *finder) exclude(s Source, req *request) Exclusion {
	if reason := f.lacking(s, req.res); reason != "" {
		return Exclusion{Constraint: Feature, Reason: reason}
	}
	queries := req.queries(s)
	if len(queries) == 0 {
		queries = []catalog.Query{req.query}
	}
	all := make([]Exclusion, len(queries))
	for i, q := range queries {
		all[i] = f.excludeQuery(s, q, req.query.Accelerator)
		if all[i].Constraint == RuledOut {
			return all[i]
		}
	}
	return slices.MinFunc(all, func(a, b Exclusion) int {
		switch {
		case a.Nearest == nil && b.Nearest == nil:
			return 0
		case a.Nearest == nil:
			return 1
		case b.Nearest == nil:
			return -1
		}
		return cmp.Or(cmp.Compare(a.gap, b.gap), cmp.Compare(a.Nearest.HourlyPrice, b.Nearest.HourlyPrice))
	})
}

// excludeQuery finds the one constraint that keeps a source from answering a query: the
// first whose removal alone leaves offers, else the one that leaves none when
// constraints are added one after the other. Reasons call the accelerator by the name
// that was asked for.
func (f *finder) excludeQuery(s Source, q catalog.Query, asked string) Exclusion {
	named := q
	named.Accelerator = asked
	if offers := s.Find(q); len(offers) > 0 {
		return Exclusion{Constraint: RuledOut, Reason: "every offer that fits is excluded by blocked_resources"}
	}
	if q.Families < catalog.AllFamilies {
		q.Families = catalog.AllFamilies
		if offers := f.unblocked(s.Find(q)); len(offers) > 0 {
			near := slices.MinFunc(offers, func(a, b cloud.Offer) int { return cmp.Compare(a.HourlyPrice, b.HourlyPrice) })
			return Exclusion{Constraint: InstanceType, Nearest: &near, Change: "instance_type: " + near.InstanceType,
				Reason: fmt.Sprintf("only unusual machines fit, such as %s; they are taken if no cloud has a usual one", near.InstanceType)}
		}
	}
	if t, ok := s.(tailored); ok {
		return Exclusion{Constraint: tightest(&q), Reason: t.WhyNot(q)}
	}
	// Dropping the accelerator altogether gives a different machine, which helps
	// nobody: it is named only if nothing else explains the lack.
	for _, r := range relaxations {
		if r.constraint == AccelName || !r.asked(&q) {
			continue
		}
		loose := q
		r.drop(&loose)
		if near, ok := f.nearest(s, r.constraint, &q, loose); ok {
			_, list := s.(priceList)
			return Exclusion{Constraint: r.constraint, Reason: reasonFor(r.constraint, &named, &near), Nearest: &near, Change: change(r.constraint, &near),
				gap: gapOf(r.constraint, &q, &near), unpriced: list && near.HourlyPrice == 0}
		}
	}
	tight := catalog.Query{Families: catalog.AllFamilies, AnyCPUs: true, AnyMemory: true}
	for _, r := range []Constraint{InstanceType, AccelName, AccelCount, CPUs, Memory, Region, Zone, SpotOnly, DiskTier, DiskSize, LocalDisk, MaxHourlyCost} {
		restore(r, &tight, &q)
		if len(s.Find(tight)) == 0 {
			return Exclusion{Constraint: r, Reason: reasonFor(r, &named, nil)}
		}
	}
	return Exclusion{Constraint: AccelName, Reason: "it offers nothing that fits"}
}

// tightest names what a query that is answered to size is most about.
func tightest(q *catalog.Query) Constraint {
	switch {
	case q.Accelerator != "":
		return AccelName
	case q.InstanceType != "":
		return InstanceType
	case len(q.Regions) > 0 && q.CPUs.Any() && q.Memory.Any():
		return Region
	case q.CPUs.Any() && !q.Memory.Any():
		return Memory
	}
	return CPUs
}

func (f *finder) unblocked(offers []cloud.Offer) []cloud.Offer {
	var out []cloud.Offer
	for i := range offers {
		if BlockedBy(f.task.BlockedResources, &offers[i]) < 0 {
			out = append(out, offers[i])
		}
	}
	return out
}

func restore(c Constraint, to, from *catalog.Query) {
	switch c {
	case InstanceType:
		to.InstanceType = from.InstanceType
	case AccelName:
		to.Accelerator, to.TPUNode = from.Accelerator, from.TPUNode
	case AccelCount:
		to.Count = from.Count
	case CPUs:
		to.CPUs, to.AnyCPUs = from.CPUs, from.AnyCPUs
	case Memory:
		to.Memory, to.AnyMemory = from.Memory, from.AnyMemory
	case Region:
		to.Regions = from.Regions
	case Zone:
		to.Zones = from.Zones
	case SpotOnly:
		to.Spot = from.Spot
	case DiskTier:
		to.DiskTier = from.DiskTier
	case DiskSize:
		to.DiskGB = from.DiskGB
	case LocalDisk:
		to.LocalDisk = from.LocalDisk
	case MaxHourlyCost:
		to.MaxHourly = from.MaxHourly
	}
}

// nearest is the offer of a source that answers loose and comes nearest to a
// constraint of q. Unusual families of instance types must come nearer than the usual
// ones, since those are taken first.
func (f *finder) nearest(s Source, c Constraint, q *catalog.Query, loose catalog.Query) (near cloud.Offer, ok bool) {
	for loose.Families = catalog.UsualFamilies; loose.Families <= catalog.AllFamilies; loose.Families++ {
		offers := f.unblocked(s.Find(loose))
		if len(offers) == 0 {
			continue
		}
		if found := nearestOffer(c, q, offers); !ok || gapOf(c, q, &found) < gapOf(c, q, &near) {
			near, ok = found, true
		}
	}
	return near, ok
}

// nearestOffer picks, of offers that satisfy all but one constraint, the one
// that comes nearest to it; among equals the cheapest.
func nearestOffer(c Constraint, q *catalog.Query, offers []cloud.Offer) cloud.Offer {
	return slices.MinFunc(offers, func(a, b cloud.Offer) int {
		return cmp.Or(cmp.Compare(gapOf(c, q, &a), gapOf(c, q, &b)), cmp.Compare(a.HourlyPrice, b.HourlyPrice))
	})
}

// gapOf is how far an offer is from a constraint that it does not keep.
func gapOf(c Constraint, q *catalog.Query, o *cloud.Offer) float64 {
	switch c {
	case AccelCount:
		return shortfall(o.Accelerators[acceleratorOf(o, q.Accelerator)], q.Count)
	case CPUs:
		return shortfall(o.CPUs, q.CPUs.N)
	case Memory:
		want := q.Memory.N
		if q.Memory.PerCPU {
			want *= o.CPUs
		}
		return shortfall(o.MemoryGiB, want)
	}
	return 0
}

// shortfall measures how far from what is wanted something is; too little is
// worse than too much.
func shortfall(have, want float64) float64 {
	if have < want {
		return (want-have)*1e3 + 1e3
	}
	return have - want
}

func acceleratorOf(o *cloud.Offer, name string) string {
	for n := range o.Accelerators {
		if strings.EqualFold(n, name) {
			return n
		}
	}
	return name
}

func change(c Constraint, o *cloud.Offer) string {
	switch c {
	case InstanceType:
		return "another instance_type"
	case AccelCount:
		return "accelerators: " + acceleratorText(o.Accelerators)
	case CPUs:
		return fmt.Sprintf("cpus: %v", o.CPUs)
	case Memory:
		return fmt.Sprintf("memory: %v", o.MemoryGiB)
	case Region, Zone:
		return "infra: " + o.Place.String()
	case SpotOnly:
		return "use_spot: false"
	case MaxHourlyCost:
		return fmt.Sprintf("max_hourly_cost: %v", math.Ceil(o.HourlyPrice*100)/100)
	}
	return "without " + string(c)
}

func reasonFor(c Constraint, q *catalog.Query, near *cloud.Offer) string {
	switch c {
	case InstanceType:
		return fmt.Sprintf("instance type %s does not have all of that", q.InstanceType)
	case AccelName:
		if _, byMemory := catalog.ParseMemoryRequest(q.Accelerator); byMemory {
			return fmt.Sprintf("it has no accelerator with %s of memory", q.Accelerator)
		}
		return fmt.Sprintf("it does not offer %s", q.Accelerator)
	case AccelCount:
		if near != nil {
			return fmt.Sprintf("%s is not offered; the nearest is %s", catalog.FormatCount(q.Accelerator, q.Count), acceleratorText(near.Accelerators))
		}
		return fmt.Sprintf("it does not offer %s", catalog.FormatCount(q.Accelerator, q.Count))
	case CPUs:
		if defaultSize(q) && near != nil {
			return fmt.Sprintf("no such machine has the default size; ask for one, such as %v vCPUs and %v GB of memory", near.CPUs, near.MemoryGiB)
		}
		if defaultSize(q) {
			return "no such machine has the default size"
		}
		if near != nil {
			return fmt.Sprintf("no such machine has %s vCPUs; the nearest has %v", q.CPUs, near.CPUs)
		}
		return fmt.Sprintf("no such machine has %s vCPUs", q.CPUs)
	case Memory:
		if near != nil {
			return fmt.Sprintf("no such machine has %s GB of memory; the nearest has %v", q.Memory, near.MemoryGiB)
		}
		return fmt.Sprintf("no such machine has %s GB of memory", q.Memory)
	case Region:
		return fmt.Sprintf("not offered in %s", strings.Join(q.Regions, ", "))
	case Zone:
		return fmt.Sprintf("not offered in %s", strings.Join(q.Zones, ", "))
	case SpotOnly:
		return "not offered as spot"
	case DiskTier:
		return fmt.Sprintf("no disk of tier %s with such a machine", q.DiskTier)
	case DiskSize:
		return fmt.Sprintf("no disk of %d GB with such a machine", q.DiskGB)
	case LocalDisk:
		return fmt.Sprintf("no such machine has a local disk %s", q.LocalDisk)
	case MaxHourlyCost:
		if near != nil {
			return fmt.Sprintf("dearer than $%v per hour; the cheapest is $%.2f", q.MaxHourly, near.HourlyPrice)
		}
		return fmt.Sprintf("dearer than $%v per hour", q.MaxHourly)
	}
	return string(c)
}

// similar lists accelerators whose name contains the one asked for, in at least
// that number, without just that; where neither is on offer, names spelled alike.
func (f *finder) similar(req *request) []string {
	want := req.query.Accelerator
	if want == "" || len(req.accelerators) > 1 {
		return nil
	}
	var out []string
	offered := false // as it was asked for: something else is in the way
	for _, s := range f.problem.Sources {
		if !f.eligible(s, req.res) {
			continue
		}
		for _, n := range s.Names(catalog.AcceleratorOffers) {
			name, count := splitCount(n)
			switch {
			case strings.EqualFold(name, want) && count == req.query.Count:
				offered = true
			case strings.Contains(strings.ToLower(name), strings.ToLower(want)) && count >= req.query.Count && !slices.Contains(out, n):
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	if len(out) == 0 && !offered {
		out = similar.Closest(want, f.offered(req.res), 5)
	}
	return out
}

func splitCount(s string) (string, float64) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 1
	}
	a, err := catalog.ParseAmount(s[i+1:])
	if err != nil {
		return s, 1
	}
	return s[:i], a.N
}

// Describe writes a request the way plans and errors show it: "A100:8, 32+
// vCPUs on aws/us-east-1 (spot)".
func Describe(r *task.Resources) string {
	var parts []string
	if r.InstanceType != "" {
		parts = append(parts, r.InstanceType)
	}
	for _, a := range r.Accelerators {
		parts = append(parts, catalog.FormatCount(a.Name, a.Count))
	}
	if r.CPUs != "" {
		parts = append(parts, r.CPUs+" vCPUs")
	}
	if r.Memory != "" {
		parts = append(parts, r.Memory+" GB")
	}
	if r.MaxHourlyCost > 0 {
		parts = append(parts, fmt.Sprintf("at most $%v per hour", r.MaxHourlyCost))
	}
	if len(parts) == 0 {
		parts = append(parts, "a machine of default size")
	}
	s := strings.Join(parts, ", ")
	where := cloud.Place{Cloud: r.Cloud, Region: strings.Join(places(r.Region, r.Regions), ","), Zone: strings.Join(places(r.Zone, r.Zones), ",")}
	if where != (cloud.Place{}) {
		where.Cloud = cmp.Or(where.Cloud, "*")
		s += " on " + where.String()
	}
	if wantsSpot(r) {
		s += " (spot)"
	}
	return s
}
