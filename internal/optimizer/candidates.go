package optimizer

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/task"
)

// finder lists the candidates of one task.
type finder struct {
	problem *Problem
	task    *task.Task
	nodes   int
	reqs    []request
	// unfiltered leaves offers in that the task's blocked resources match.
	unfiltered bool
	matched    []int // how many offers each of the task's blocked resources excluded
}

// candidates lists every offer that satisfies one of the task's requests and is
// not ruled out, request by request, source by source. Unusual families of instance
// types are looked at if the usual ones of all sources have nothing.
func (f *finder) candidates() ([]Candidate, error) {
	for i := range f.task.Resources {
		req, err := f.newRequest(&f.task.Resources[i])
		if err != nil {
			return nil, err
		}
		f.reqs = append(f.reqs, req)
	}
	for families := catalog.UsualFamilies; families <= catalog.AllFamilies; families++ {
		for i := range f.reqs {
			f.reqs[i].query.Families = families
		}
		if out := f.search(); len(out) > 0 {
			return out, nil
		}
	}
	return nil, f.nothingFits()
}

// search asks each source for each request.
func (f *finder) search() []Candidate {
	var found []answer
	n := 0
	f.matched = make([]int, len(f.task.BlockedResources))
	for i := range f.reqs {
		req := &f.reqs[i]
		for si, s := range f.problem.Sources {
			if !f.eligible(s, req.res) || f.lacking(s, req.res) != "" {
				continue
			}
			for _, q := range req.queries(s) {
				add := func(a answer) {
					a.entry, a.source = int32(i), int32(si)
					found = append(found, a)
					n += a.selection.Len() + len(a.offers)
				}
				q.EachZone = f.blocksZones()
				if zones, ok := f.byReservedZone(s, q); ok {
					a := newAnswer(s, zones)
					a.reserved = true
					add(a)
				}
				add(newAnswer(s, q))
			}
		}
	}
	out := make([]Candidate, 0, n)
	for i := range found {
		out = f.collect(out, &found[i])
	}
	return out
}

// blocksZones reports whether the task must not use single zones, so that the zones of
// a region are not alike.
func (f *finder) blocksZones() bool {
	return slices.ContainsFunc(f.task.BlockedResources, func(b task.BlockedResources) bool { return b.Zone != "" })
}

// answer is what a source has for a query: a selection of a price list, or
// offers.
type answer struct {
	list          bool
	reserved      bool // only what reservations have room for counts
	selection     catalog.Selection
	offers        []cloud.Offer
	wanted        string
	entry, source int32
}

func newAnswer(s Source, q catalog.Query) answer {
	a := answer{}
	if q.Accelerator != "" {
		a.wanted = catalog.FormatCount(q.Accelerator, q.Count)
	}
	if list, ok := s.(priceList); ok {
		a.list, a.selection = true, list.Select(q)
	} else {
		a.offers = s.Find(q)
	}
	return a
}

// collect appends the offers of an answer that are not ruled out.
func (f *finder) collect(out []Candidate, a *answer) []Candidate {
	res := f.reqs[a.entry].res
	add := func(o *cloud.Offer) {
		if a.reserved && !f.problem.covered(o) || f.problem.outside(o.Cloud, o.Region) != "" {
			return
		}
		if at := BlockedBy(f.task.BlockedResources, o); at >= 0 && !f.unfiltered {
			f.matched[at]++
			return
		}
		out = append(out, Candidate{Offer: *o, Resources: res, NumNodes: f.nodes, Unpriced: a.list && o.HourlyPrice == 0, LastResort: res.Cloud == "" && lastResort(f.problem.Sources[a.source]), wanted: a.wanted, entry: a.entry, source: a.source})
		c := &out[len(out)-1]
		if f.problem.estimate(f.task, c); a.reserved && c.Offer.PaidShare == 0 {
			out = out[:len(out)-1]
		}
	}
	a.selection.Each(add)
	for i := range a.offers {
		add(&a.offers[i])
	}
	return out
}

// eligible reports whether a source takes part in a request at all.
func (f *finder) eligible(s Source, r *task.Resources) bool {
	if r.Cloud != "" {
		return strings.EqualFold(r.Cloud, s.Name())
	}
	return !lastResort(s) || !slices.ContainsFunc(f.problem.Sources, rents)
}

// rents reports whether a source has more than the user's own machines, which may be
// taken, all of them, so that the machine sky runs on is the next place.
func rents(s Source) bool { return !lastResort(s) && s.Name() != facts.SSH }

func lastResort(s Source) bool {
	l, ok := s.(*Listed)
	return ok && l.LastResort
}

// lacking says why a source cannot serve a request whatever it rents, or "".
func (f *finder) lacking(s Source, r *task.Resources) string {
	if r.Region != "" {
		if why := f.problem.outside(s.Name(), r.Region); why != "" {
			return why
		}
	}
	lacks, hosts := s.Lacks(), 0
	for _, a := range r.Accelerators {
		hosts = max(hosts, facts.TPUHosts(a.Name))
	}
	for _, need := range f.needs(r) {
		if _, stays := lacks[cloud.FeatureStop]; need == cloud.FeatureAutostop && !stays {
			continue // the server stops machines that cannot do it themselves
		}
		if reason, ok := lacks[need]; ok {
			if reason == "" {
				reason = "it cannot do " + string(need)
			}
			if need == cloud.FeatureStorage && !strings.Contains(reason, "COPY") {
				reason += "; mode: COPY works"
			}
			return reason
		}
		if reason, ok := cloud.LackingSlice(hosts, need); ok {
			return reason
		}
	}
	return ""
}

// needs lists the features that a request wants of its cloud.
func (f *finder) needs(r *task.Resources) []cloud.Feature {
	var needs []cloud.Feature
	want := func(feature cloud.Feature, wanted bool) {
		if wanted {
			needs = append(needs, feature)
		}
	}
	want(cloud.FeatureMultiNode, f.nodes > 1)
	want(cloud.FeatureSpot, wantsSpot(r))
	want(cloud.FeatureDiskTier, r.DiskTier != "" && r.DiskTier != "best")
	want(cloud.FeatureNetTier, r.NetworkTier == "best")
	want(cloud.FeatureDocker, containerImage(r))
	want(cloud.FeatureImage, machineImage(r) != "")
	want(cloud.FeaturePorts, len(r.Ports) > 0 && f.task.Service == nil && !f.problem.Replica)
	want(cloud.FeatureLocalDisk, r.LocalDisk != "")
	if a := r.Autostop; a != nil && a.Enabled {
		want(cloud.FeatureAutostop, !a.Down) // machines that cannot end themselves the server ends
	}
	for _, m := range f.task.StorageMounts {
		want(cloud.FeatureStorage, m.Mode != "COPY")
	}
	return needs
}

// containerImage reports whether the request names an image of containers.
func containerImage(r *task.Resources) bool {
	for region, id := range r.ImageID {
		if region == "docker" || strings.HasPrefix(id, "docker:") {
			return true
		}
	}
	return false
}

func wantsSpot(r *task.Resources) bool { return r.UseSpot != nil && *r.UseSpot }

// request is a task's request in the words of the sources.
type request struct {
	res   *task.Resources
	query catalog.Query
	// accelerators are alternatives; empty when none is asked for.
	accelerators []task.Accelerator
}

// queries is what to ask a source for the request: one query, or one per
// accelerator when memory was asked for.
func (r *request) queries(s Source) []catalog.Query {
	if len(r.accelerators) <= 1 {
		return []catalog.Query{r.query}
	}
	offered := s.Names(catalog.AcceleratorNames)
	var out []catalog.Query
	for _, a := range r.accelerators {
		if !slices.ContainsFunc(offered, func(n string) bool { return strings.EqualFold(n, a.Name) }) {
			continue
		}
		q := r.query
		q.Accelerator, q.Count = a.Name, a.Count
		out = append(out, q)
	}
	return out
}

// newRequest translates and checks a request.
func (f *finder) newRequest(r *task.Resources) (request, error) {
	req := request{res: r}
	var err error
	if req.query.CPUs, err = catalog.ParseAmount(r.CPUs); err != nil {
		return req, f.invalid("cpus", r.CPUs, err.Error(), nil)
	}
	if req.query.Memory, err = catalog.ParseAmount(r.Memory); err != nil {
		return req, f.invalid("memory", r.Memory, err.Error(), nil)
	}
	q := &req.query
	q.InstanceType = r.InstanceType
	q.Spot, q.FastNetwork = wantsSpot(r), r.NetworkTier == "best"
	q.Regions, q.Zones = places(r.Region, r.Regions), places(r.Zone, r.Zones)
	q.DiskTier, q.DiskGB, q.LocalDisk, q.MaxHourly = r.DiskTier, r.DiskSize, r.LocalDisk, r.MaxHourlyCost
	if vm, ok := r.AcceleratorArgs["tpu_vm"].(bool); ok && !vm {
		q.TPUNode = true
	}
	if len(q.Regions) == 0 {
		q.Regions = imageRegions(r)
	}
	if err := f.acceleratorsOf(&req); err != nil {
		return req, err
	}
	return req, f.check(&req)
}

// imageRegions are the regions a task has images for, if it has no image for
// the rest of the world.
func imageRegions(r *task.Resources) []string {
	var regions []string
	for region := range r.ImageID {
		if region == "" {
			return nil
		}
		if region == "docker" { // runs on any machine
			continue
		}
		regions = append(regions, region)
	}
	slices.Sort(regions)
	return regions
}

func places(one string, many []string) []string {
	if one != "" {
		return []string{one}
	}
	return many
}

// acceleratorsOf settles which accelerators a request means.
func (f *finder) acceleratorsOf(req *request) error {
	if len(req.res.Accelerators) == 0 {
		return nil
	}
	a := req.res.Accelerators[0]
	if memory, ok := catalog.ParseMemoryRequest(a.Name); ok {
		for _, k := range memory.Accelerators() {
			req.accelerators = append(req.accelerators, task.Accelerator{Name: k.Name, Count: a.Count})
		}
		req.query.Accelerator, req.query.Count = memory.String(), a.Count
		if len(req.accelerators) == 1 {
			req.query.Accelerator = req.accelerators[0].Name
		}
		return nil
	}
	name := a.Name
	if _, known := catalog.FindAccelerator(name); !known || name == "" {
		canonical, several := catalog.CanonicalAccelerator(name, f.offered(req.res))
		if canonical == "" {
			return f.invalid("accelerators", name, "it could be any of several accelerators", several)
		}
		name = canonical
	} else {
		name, _ = catalog.CanonicalAccelerator(name, nil)
	}
	req.accelerators = []task.Accelerator{{Name: name, Count: a.Count}}
	req.query.Accelerator, req.query.Count = name, a.Count
	return nil
}

// offered lists the accelerator names of the sources a request may use.
func (f *finder) offered(r *task.Resources) []string {
	var names []string
	for _, s := range f.problem.Sources {
		if !f.eligible(s, r) {
			continue
		}
		for _, n := range s.Names(catalog.AcceleratorNames) {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}
