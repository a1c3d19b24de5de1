package kubernetes

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
)

// GPUs is what a context has of one accelerator, and what is free of it now.
type GPUs struct {
	Name      string
	Counts    []float64 // that one node can give
	Capacity  float64
	Available float64 // 0 also where nobody may know
}

// ContextGPUs are the accelerators of one context.
type ContextGPUs struct {
	Context string
	GPUs    []GPUs
}

// GPUFilter narrows a list of accelerators. Zero fields narrow nothing.
type GPUFilter struct {
	Context  string
	Name     string  // a part of the name, in any case
	Quantity float64 // that one node must be able to give
}

// Available lists what the contexts in use have. One that cannot be looked at is
// left out; when none can, the first one's error is returned.
func (p *Provider) Available(ctx context.Context, sections catalog.Sections, f GPUFilter) ([]ContextGPUs, error) {
	looks, err := p.look(ctx, sections, f.Context, true)
	if err != nil {
		return nil, err
	}
	out := []ContextGPUs{}
	var failed error
	for _, l := range looks {
		if l.err != nil {
			failed = cmp.Or(failed, l.err)
			continue
		}
		out = append(out, ContextGPUs{l.context, l.inv.gpus(f)})
	}
	if len(out) == 0 && failed != nil {
		return nil, failed
	}
	return out, nil
}

func (inv *inventory) gpus(f GPUFilter) []GPUs {
	out := []GPUs{}
	for i := range inv.nodes {
		m := &inv.nodes[i]
		if m.accelerator == "" || m.has.accelerators == 0 || !strings.Contains(strings.ToLower(m.accelerator), strings.ToLower(f.Name)) || m.has.accelerators < f.Quantity {
			continue
		}
		j := slices.IndexFunc(out, func(g GPUs) bool { return g.Name == m.accelerator })
		if j < 0 {
			out, j = append(out, GPUs{Name: m.accelerator}), len(out)
		}
		g := &out[j]
		g.Capacity += m.has.accelerators
		if ok, _ := m.usable(choice{spot: m.spot()}); ok && !inv.blind {
			g.Available += m.free.accelerators
		}
		for _, n := range counts(m.has.accelerators) {
			if !slices.Contains(g.Counts, n) && (f.Quantity == 0 || n == f.Quantity) {
				g.Counts = append(g.Counts, n)
			}
		}
	}
	for i := range out {
		slices.Sort(out[i].Counts)
	}
	slices.SortFunc(out, func(a, b GPUs) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// NodeInfo is one machine of a context.
type NodeInfo struct {
	Name         string
	Address      string
	Accelerator  string // "": none, or none that a label names
	Accelerators float64
	Free         float64 // of them; -1: nobody may know
	CPUs, Memory float64
	CPUsFree     *float64
	MemoryFree   *float64
	Ready        bool
	Cordoned     bool
	Taints       []Taint
}

// Taint keeps pods off a node that do not tolerate it.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// NodeInfos lists the nodes of a context; "" is the first one in use.
func (p *Provider) NodeInfos(ctx context.Context, sections catalog.Sections, name string) ([]NodeInfo, error) {
	if name == "" {
		names, err := p.contexts(sections)
		if err != nil {
			return nil, err
		}
		name = names[0]
	}
	looks, err := p.look(ctx, sections, name, true)
	if err != nil {
		return nil, err
	}
	if looks[0].err != nil {
		return nil, looks[0].err
	}
	inv := looks[0].inv
	out := []NodeInfo{}
	for i := range inv.nodes {
		m := &inv.nodes[i]
		n := NodeInfo{
			Name: m.Metadata.Name, Address: m.address(), Accelerator: m.accelerator, Accelerators: m.has.accelerators, Free: m.free.accelerators,
			CPUs: m.has.cpus, Memory: m.has.memoryGB, Ready: m.ready(), Cordoned: m.Spec.Unschedulable,
		}
		if inv.blind {
			n.Free = -1
		} else {
			n.CPUsFree, n.MemoryFree = &m.free.cpus, &m.free.memoryGB
		}
		for _, t := range m.Spec.Taints {
			n.Taints = append(n.Taints, Taint(t))
		}
		out = append(out, n)
	}
	return out, nil
}
