package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// registerKubernetes makes known what clients ask about clusters that they have
// already.
func (d *daemon) registerKubernetes() {
	d.engine.HandleRead("sky.realtime_kubernetes_gpu_availability", verb(d.kubernetesGPUs))
	d.engine.HandleRead("sky.kubernetes_node_info", verb(d.kubernetesNodes))
	d.engine.Handle("sky.local_up", api.ScheduleShort, silent(d.localUp))
	d.engine.Handle("sky.local_down", api.ScheduleShort, silent(d.localDown))
}

// localUp looks whether the cluster that kind has made on this machine can be
// used; it makes none.
func (d *daemon) localUp(ctx context.Context, call cluster.Call, b api.LocalUpBody) error {
	p, sections, err := d.pods(&call, b.Envelope)
	if err != nil {
		return err
	}
	name, at := kindCluster(b.Name)
	call.Out.Spin("Looking at context " + at)
	who, used, err := p.CheckContext(ctx, at, sections)
	if _, absent := errors.AsType[*cloud.InvalidError](err); absent {
		return &api.Error{Type: api.ErrNotSupported, Message: err.Error() + ". This version of sky makes no Kubernetes cluster itself.",
			Hint: "Make it with https://kind.sigs.k8s.io, and run this again: kind create cluster --name " + name + ". Any other context of the kubeconfig can be used at once: sky check kubernetes"}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(call.Out, "✓ Context %s answers (%s).\nUse it: sky launch --infra k8s/%s\n", at, who, at)
	if !used {
		fmt.Fprintf(call.Out, "It takes part in plans that name no context when kubernetes.allowed_contexts lists it, or: kubectl config use-context %s\n", at)
	}
	return nil
}

// localDown says whether the cluster that kind has made can go. As localUp made
// nothing there is nothing else to undo: the cluster and its context are kind's.
func (d *daemon) localDown(ctx context.Context, call cluster.Call, b api.LocalDownBody) error {
	name, at := kindCluster(b.Name)
	all, err := d.store.Clusters().List(ctx, state.ClusterFilter{})
	if err != nil {
		return err
	}
	seen, others := onContext(all, at, call.Scope.Sees)
	end := "kind delete cluster --name " + name
	switch {
	case len(seen) > 0:
		return &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf("Context %s still has clusters of sky: %s. They would be lost without a word.", at, strings.Join(seen, ", ")),
			Hint: "Give them back: sky down " + strings.Join(seen, " ") + ". Then nothing of sky is left there, and kind can remove its cluster: " + end}
	case others > 0:
		return &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf("Context %s still has %d clusters of other workspaces.", at, others),
			Hint: "Whoever owns them gives them back with sky down. Then kind can remove its cluster: " + end}
	}
	fmt.Fprintf(call.Out, "✓ Nothing of sky is on context %s. sky local up made no Kubernetes cluster and so none is removed; one that kind made goes with: %s\n", at, end)
	return nil
}

// onContext names the clusters on a context that a caller sees, and counts the
// others. It is pure.
func onContext(all []*state.Cluster, at string, sees func(workspace string) bool) (seen []string, others int) {
	for _, c := range all {
		switch {
		case c.Offer.Place.Cloud != kubernetes.Name || c.Offer.Place.Region != at:
		case sees(c.Workspace):
			seen = append(seen, c.Name)
		default:
			others++
		}
	}
	return seen, others
}

// kindCluster is what kind calls a cluster, and its context.
func kindCluster(asked *string) (name, context string) {
	name = "skypilot"
	if asked != nil && *asked != "" {
		name = *asked
	}
	return name, "kind-" + name
}

// pods is the provider of pods, with the settings that hold for a request.
func (d *daemon) pods(call *cluster.Call, env api.Envelope) (*kubernetes.Provider, catalog.Sections, error) {
	if err := d.configure(call, env); err != nil {
		return nil, nil, err
	}
	p, ok := d.providers.Get(kubernetes.Name)
	if !ok {
		return nil, nil, errors.New("this server was built without Kubernetes")
	}
	pods, ok := cloud.As[*kubernetes.Provider](p)
	if !ok {
		return nil, nil, fmt.Errorf("%s is not what it is called", p.Name())
	}
	return pods, call.Config.Sections(config.Scope{Cloud: kubernetes.Name}), nil
}

// kubernetesGPUs lists the accelerators of contexts and how many are free.
func (d *daemon) kubernetesGPUs(ctx context.Context, call cluster.Call, b api.GPUAvailabilityBody) (any, error) {
	if b.IsSSH != nil && *b.IsSSH {
		return d.poolGPUs(ctx, call, b)
	}
	p, sections, err := d.pods(&call, b.Envelope)
	if err != nil {
		return nil, err
	}
	f := kubernetes.GPUFilter{}
	if b.Context != nil {
		f.Context = *b.Context
	}
	if b.NameFilter != nil {
		f.Name = *b.NameFilter
	}
	if b.QuantityFilter != nil {
		f.Quantity = *b.QuantityFilter
	}
	found, err := p.Available(ctx, sections, f)
	if err != nil {
		return nil, err
	}
	out := []api.ContextGPUs{}
	for _, c := range found {
		list := []api.GPUAvailability{}
		for _, g := range c.GPUs {
			list = append(list, api.GPUAvailability{GPU: g.Name, Counts: g.Counts, Capacity: g.Capacity, Available: g.Available})
		}
		out = append(out, api.ContextGPUs{Context: c.Context, GPUs: list})
	}
	return out, nil
}

func (d *daemon) kubernetesNodes(ctx context.Context, call cluster.Call, b api.NodeInfoBody) (any, error) {
	if b.Context != nil && strings.HasPrefix(*b.Context, facts.PoolPrefix) {
		return d.poolNodes(ctx, call, b.Envelope, *b.Context)
	}
	p, sections, err := d.pods(&call, b.Envelope)
	if err != nil {
		return nil, err
	}
	name := ""
	if b.Context != nil {
		name = *b.Context
	}
	nodes, err := p.NodeInfos(ctx, sections, name)
	if err != nil {
		return nil, err
	}
	out := api.KubernetesNodes{Nodes: map[string]api.KubernetesNode{}}
	for _, n := range nodes {
		node := api.KubernetesNode{
			Name: n.Name, Address: n.Address, CPUs: &n.CPUs, MemoryGB: &n.Memory, CPUFree: n.CPUsFree, MemFree: n.MemoryFree,
			Ready: &n.Ready, Cordoned: &n.Cordoned, Taints: []api.KubernetesTaint{},
		}
		if n.Accelerator != "" {
			node.AcceleratorType = &n.Accelerator
		}
		node.Total.Count, node.Free.Available = int(n.Accelerators), int(n.Free)
		for _, t := range n.Taints {
			node.Taints = append(node.Taints, api.KubernetesTaint(t))
		}
		out.Nodes[n.Name] = node
		if n.Free < 0 {
			out.Hint = "The account may not list the pods of all namespaces, so what is free is not known."
		}
	}
	return out, nil
}

// sections are a cloud's settings by region, as the server's configuration has
// them just then.
func (d *daemon) sections(name string) func() catalog.Sections {
	return func() catalog.Sections {
		return d.settings.current().Sections(config.Scope{Cloud: name})
	}
}

// everywhere are a cloud's settings by region in each workspace.
func (d *daemon) everywhere(name string) func() []catalog.Sections {
	return func() (all []catalog.Sections) {
		c := d.settings.current()
		for _, w := range c.Workspaces() {
			all = append(all, c.Sections(config.Scope{Cloud: name, Workspace: w.Name}))
		}
		return all
	}
}
