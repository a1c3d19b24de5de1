package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

// sizes are the pods that could be cut in the contexts that answered.
type sizes struct {
	contexts []tailored
}

// tailored is one context as planning sees it.
type tailored struct {
	inv  *inventory
	conf settings
}

// Tailored looks at the nodes of every context in use. A context that cannot be
// looked at, or where the account may make no pods, offers nothing; when none can, the first one's error is returned.
func (p *Provider) Tailored(ctx context.Context, sections catalog.Sections) (catalog.Tailored, error) {
	looks, err := p.look(ctx, sections, "", false)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for i := range looks {
		if l := &looks[i]; l.err == nil {
			wg.Go(func() { l.err = refused(ctx, l.place(), l.mayRent(ctx)) })
		}
	}
	wg.Wait()
	s := &sizes{}
	var failed error
	for _, l := range looks {
		if l.err != nil {
			failed = cmp.Or(failed, l.err)
			continue
		}
		s.contexts = append(s.contexts, tailored{l.inv, l.conf})
	}
	if len(s.contexts) == 0 && failed != nil {
		return nil, failed
	}
	return s, nil
}

// The size of a pod where the task leaves it open.
const (
	defaultCPUs      = 2
	cpusPerDevice    = 4
	memoryPerCPU     = 1
	memoryPerCPUWith = 4 // where the pod has devices
)

// wanted is the size that a query asks for.
func wanted(q catalog.Query) (podSize, error) {
	if q.InstanceType != "" {
		return parseSize(q.InstanceType)
	}
	s := podSize{accelerator: q.Accelerator, accelerators: math.Ceil(q.Count)}
	if s.accelerator != "" {
		s.accelerators = max(s.accelerators, 1)
		s.accelerator, s.accelerators = onGKE(s.accelerator, s.accelerators)
	}
	perCPU := float64(memoryPerCPU)
	s.cpus = defaultCPUs
	if s.accelerator != "" {
		s.cpus, perCPU = cpusPerDevice*s.accelerators, memoryPerCPUWith
	}
	if q.CPUs.N > 0 {
		s.cpus = q.CPUs.N
	}
	switch {
	case q.Memory.PerCPU:
		s.memoryGB = q.Memory.N * s.cpus
	case q.Memory.N > 0:
		s.memoryGB = q.Memory.N
	default:
		s.memoryGB = perCPU * s.cpus
	}
	return s, nil
}

// tpuNames are how GKE calls what catalogs call tpu-v6e-8: the slice's kind, and
// the number of chips as a count.
var tpuNames = []struct{ prefix, name string }{
	{"tpu-v6e-", "tpu-v6e-slice"}, {"tpu-v5p-", "tpu-v5p-slice"}, {"tpu-v5litepod-", "tpu-v5-lite-podslice"},
	{"tpu-v5lite-", "tpu-v5-lite-device"}, {"tpu-v4-", "tpu-v4-podslice"},
}

func onGKE(name string, count float64) (string, float64) {
	lower := strings.ToLower(name)
	for _, t := range tpuNames {
		var chips int
		if rest, ok := strings.CutPrefix(lower, t.prefix); ok {
			if n, err := fmt.Sscanf(rest, "%d", &chips); err == nil && n == 1 {
				return t.name, float64(chips)
			}
		}
	}
	return name, count
}

// Find lists the pod that answers the query, in each context that has a node
// for it or may get one.
func (s *sizes) Find(q catalog.Query) []cloud.Offer {
	var out []cloud.Offer
	for i := range s.contexts {
		if o, why := s.contexts[i].offer(q); why == "" {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b cloud.Offer) int { return cmp.Compare(a.HourlyPrice, b.HourlyPrice) })
	return out
}

// offer is the pod for a query, or why there is none.
func (t *tailored) offer(q catalog.Query) (o cloud.Offer, why string) {
	context := t.inv.context
	if len(q.Regions) > 0 && !slices.ContainsFunc(q.Regions, func(r string) bool { return strings.EqualFold(r, context) }) {
		return o, "the context was not asked for"
	}
	if len(q.Zones) > 0 {
		return o, "Kubernetes contexts have no zones"
	}
	want, err := wanted(q)
	if err != nil {
		return o, err.Error()
	}
	may := choice{allowedNodes: t.conf.AllowedNodes, spot: q.Spot, fast: q.FastNetwork}
	if q.InstanceType == "" {
		want = t.inv.clamp(want, may)
	}
	if want.accelerator != "" {
		want.accelerator = t.known(want.accelerator)
	}
	if ok, why := t.inv.fit(want, may); !ok && !t.grows(want, may) {
		return o, why
	}
	o = want.offer(context, t.conf.Pricing)
	o.Spot = q.Spot
	if q.MaxHourly > 0 && o.HourlyPrice > q.MaxHourly {
		return o, fmt.Sprintf("%s costs $%.2f per hour there", o.InstanceType, o.HourlyPrice)
	}
	return o, ""
}

// known is the accelerator's name as it was asked for, in the spelling of the
// nodes where it is the same.
func (t *tailored) known(name string) string {
	for i := range t.inv.nodes {
		if a := t.inv.nodes[i].accelerator; strings.EqualFold(a, name) {
			return a
		}
	}
	return name
}

// grows reports whether an autoscaler may add a node for the pod.
func (t *tailored) grows(want podSize, may choice) bool {
	switch {
	case t.conf.Autoscaler == "", may.fast: // what network a new node would have is not known
		return false
	case may.spot && t.conf.Autoscaler != "gke":
		return false
	}
	if want.accelerator == "" {
		return true
	}
	return t.growthFormatter() != nil
}

// growthFormatter is how nodes that an autoscaler adds will be labelled.
func (t *tailored) growthFormatter() *formatter { return growthFormatter(t.conf, t.inv.formatter) }

func growthFormatter(conf settings, present *formatter) *formatter {
	of := map[string]string{"gke": "GKE", "karpenter": "Karpenter", "coreweave": "CoreWeave", "nebius": "Nebius", "generic": "SkyPilot"}
	name, ok := of[conf.Autoscaler]
	if conf.Autoscaler == "generic" && present != nil && present.write != nil {
		return present
	}
	if !ok {
		return nil
	}
	i := slices.IndexFunc(formatters, func(f formatter) bool { return f.name == name })
	return &formatters[i]
}

// WhyNot says why no context has a node for the query.
func (s *sizes) WhyNot(q catalog.Query) string {
	var reasons []string
	for i := range s.contexts {
		t := &s.contexts[i]
		if len(q.Regions) > 0 && !slices.ContainsFunc(q.Regions, func(r string) bool { return strings.EqualFold(r, t.inv.context) }) {
			continue
		}
		if _, why := t.offer(q); why != "" {
			reasons = append(reasons, t.inv.context+": "+why)
		}
	}
	if len(reasons) == 0 {
		return "no context that is in use was asked for"
	}
	return strings.Join(reasons, "; ")
}

// Names lists contexts and accelerators; sizes have no list.
func (s *sizes) Names(k catalog.NameKind) []string {
	var out []string
	add := func(n string) {
		if n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for i := range s.contexts {
		inv := s.contexts[i].inv
		if k == catalog.RegionNames {
			add(inv.context)
		}
		for j := range inv.nodes {
			m := &inv.nodes[j]
			switch {
			case m.accelerator == "":
			case k == catalog.AcceleratorNames:
				add(m.accelerator)
			case k == catalog.AcceleratorOffers:
				for _, n := range counts(m.has.accelerators) {
					add(catalog.FormatCount(m.accelerator, n))
				}
			}
		}
	}
	return out
}

// counts are the numbers of devices that people ask of a node: powers of two
// and all of them.
func counts(most float64) []float64 {
	var out []float64
	for n := 1.0; n < most; n *= 2 {
		out = append(out, n)
	}
	if most >= 1 {
		out = append(out, math.Floor(most))
	}
	return out
}

// Offers lists the usual sizes: a pod without devices, and one for each number
// of devices that a node has. [Provider.Tailored] knows every other.
func (p *Provider) Offers(ctx context.Context) ([]cloud.Offer, error) {
	t, err := p.Tailored(ctx, p.sections())
	if err != nil {
		return nil, err
	}
	s := t.(*sizes)
	offers := []cloud.Offer{}
	for i := range s.contexts {
		c := &s.contexts[i]
		queries := []catalog.Query{{}}
		for _, name := range (&sizes{s.contexts[i : i+1]}).Names(catalog.AcceleratorNames) {
			most := 0.0
			for j := range c.inv.nodes {
				if m := &c.inv.nodes[j]; m.accelerator == name {
					most = max(most, m.has.accelerators)
				}
			}
			for _, n := range counts(most) {
				queries = append(queries, catalog.Query{Accelerator: name, Count: n})
			}
		}
		for _, q := range queries {
			o, why := c.offer(q)
			if why == "" && !slices.ContainsFunc(offers, func(h cloud.Offer) bool { return h.Place == o.Place && h.InstanceType == o.InstanceType }) {
				offers = append(offers, o)
			}
		}
	}
	return offers, nil
}
