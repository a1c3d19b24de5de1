package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inventory is what the nodes of a context have, and what is free of it.
type inventory struct {
	context   string
	nodes     []machine
	formatter *formatter // nil: no node says which accelerators it has
	blind     bool       // pods may not be listed, so nobody knows what is free
}

// machine is one node.
type machine struct {
	node
	accelerator string // as tasks call it
	label       string // the label that says so, and its value
	value       string
	deviceKey   string
	has, free   podSize
}

// survey looks at the nodes, and at the pods if free is set. What was allowed
// is what there is: without the right to see all pods nothing is known to be
// taken.
func (k *client) survey(ctx context.Context, free bool) (*inventory, error) {
	inv := &inventory{context: k.context}
	var nodes []node
	var pods []pod
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		nodes, _, err = list[node](gctx, k, nodesResource, "", metav1.ListOptions{ResourceVersion: cached})
		return err
	})
	if free {
		g.Go(func() (err error) {
			pods, _, err = list[pod](gctx, k, podsResource, "", metav1.ListOptions{
				ResourceVersion: cached, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed",
			})
			if apierrors.IsForbidden(err) {
				inv.blind = true
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	inv.take(nodes, pods)
	return inv, nil
}

func (inv *inventory) take(nodes []node, pods []pod) {
	inv.formatter = formatterOf(nodes)
	taken := map[string]resources{}
	for i := range pods {
		name := pods[i].Spec.NodeName
		if name == "" || pods[i].ended() {
			continue
		}
		if taken[name] == nil {
			taken[name] = resources{}
		}
		taken[name].add(pods[i].requests())
	}
	for i := range nodes {
		inv.nodes = append(inv.nodes, newMachine(&nodes[i], inv.formatter, taken[nodes[i].Metadata.Name]))
	}
	slices.SortFunc(inv.nodes, func(a, b machine) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
}

func newMachine(n *node, f *formatter, taken resources) machine {
	m := machine{node: *n}
	all := read(n.Status.Allocatable)
	if len(all) == 0 {
		all = read(n.Status.Capacity)
	}
	m.has = podSize{cpus: all["cpu"], memoryGB: all.memoryGB()}
	if f != nil {
		m.label, m.value, m.accelerator = f.of(n)
	}
	for _, key := range deviceKeys {
		if all[key] > 0 {
			m.deviceKey, m.has.accelerators = key, all[key]
			break
		}
	}
	if m.accelerator != "" && m.deviceKey == "" {
		m.deviceKey = deviceKey(m.accelerator)
	}
	m.has.accelerator = m.accelerator
	m.free = m.has
	m.free.cpus = max(0, all["cpu"]-taken["cpu"])
	m.free.memoryGB = max(0, (all["memory"]-taken["memory"])/(1<<30))
	if m.deviceKey != "" {
		m.free.accelerators = max(0, m.has.accelerators-taken[m.deviceKey])
	}
	return m
}

// usable reports whether new pods may go to the node, and why not.
func (m *machine) usable(may choice) (ok bool, why string) {
	switch {
	case !m.ready():
		return false, "it is not ready"
	case m.Spec.Unschedulable:
		return false, "it is cordoned"
	case !may.admits(&m.node):
		return false, "allowed_nodes leaves it out"
	case may.spot && !m.spot():
		return false, "it is no spot machine"
	case may.fast && m.fabric() == nil:
		return false, "it has no fast network that is known here"
	}
	for _, t := range m.Spec.Taints {
		if t.Effect != "NoSchedule" && t.Effect != "NoExecute" || slices.Contains(deviceKeys, t.Key) && m.has.accelerators > 0 || t.Key == gkeSpotKey && may.spot {
			continue
		}
		return false, "it has the taint " + t.Key
	}
	return true, ""
}

// choice is which nodes will do, whatever their size.
type choice struct {
	allowedNodes
	spot bool // only machines that may be taken back
	fast bool // only machines with a fast network
}

func (a allowedNodes) admits(n *node) bool {
	if !a.any() {
		return true
	}
	for key, value := range a.Labels {
		if n.Metadata.Labels[key] == value {
			return true
		}
	}
	return slices.Contains(a.Names, n.Metadata.Name) || slices.Contains(a.IPs, n.address())
}

// memoryUnit is what a pod's G is of the GB that nodes are counted in.
const memoryUnit = 1e9 / (1 << 30)

// holds reports whether a pod of that size goes into what a node has or has free.
func (s podSize) holds(want podSize) bool {
	const slack = 1e-6
	return s.cpus+slack >= want.cpus && s.memoryGB+slack >= want.memoryGB*memoryUnit && s.accelerators >= want.accelerators
}

// matching are the nodes for pods that want the accelerator; without one, all.
func (inv *inventory) matching(want podSize, may choice) []*machine {
	var out []*machine
	for i := range inv.nodes {
		m := &inv.nodes[i]
		if ok, _ := m.usable(may); !ok {
			continue
		}
		if want.accelerator != "" && (m.accelerator == "" || !sameAccelerator(want.accelerator, m.accelerator)) {
			continue
		}
		out = append(out, m)
	}
	return out
}

// fit says whether a pod of that size goes onto some node when it is empty;
// why says what is missing and what is nearest.
func (inv *inventory) fit(want podSize, may choice) (ok bool, why string) {
	ready := inv.matching(podSize{}, may)
	if len(ready) == 0 {
		return false, inv.noneReady(may)
	}
	nodes := inv.matching(want, may)
	if len(nodes) == 0 {
		if have := inv.kinds(ready); have != "" {
			return false, fmt.Sprintf("no ready node has %s; there are %s", want.accelerator, have)
		}
		if inv.formatter == nil && slices.ContainsFunc(ready, func(m *machine) bool { return m.has.accelerators > 0 }) {
			return false, fmt.Sprintf("no node says that it has %s: nodes have GPUs and no label that names them (sky gpus label)", want.accelerator)
		}
		return false, fmt.Sprintf("no ready node has %s, nor any other GPU", want.accelerator)
	}
	for _, m := range nodes {
		if m.has.holds(want) {
			return true, ""
		}
	}
	n := nearest(nodes, want, func(m *machine) podSize { return m.has })
	return false, fmt.Sprintf("no node is large enough: %s were asked for, and the nearest, %s, has %v", want, n.Metadata.Name, n.has)
}

// full says what is free now where pods of that size could go.
func (inv *inventory) full(want podSize, may choice, pods int) string {
	if ok, why := inv.fit(want, may); !ok {
		return why
	}
	nodes := inv.matching(want, may)
	if inv.blind {
		return fmt.Sprintf("%s were asked for; what is free on the %d nodes that could have it is not known: the account may not see all pods", want, len(nodes))
	}
	room := 0
	for _, m := range nodes {
		for left := m.free; left.holds(want); room++ {
			left.cpus -= want.cpus
			left.memoryGB -= want.memoryGB * memoryUnit
			left.accelerators -= want.accelerators
			if want.cpus+want.memoryGB+want.accelerators == 0 {
				break
			}
		}
	}
	if room > 0 {
		return fmt.Sprintf("%d pods with %s were asked for, and there is room for %d now", pods, want, room)
	}
	n := nearest(nodes, want, func(m *machine) podSize { return m.free })
	return fmt.Sprintf("%s were asked for, and no node has as much free; the nearest, %s, has %v free of %v", want, n.Metadata.Name, n.free, n.has)
}

func (inv *inventory) noneReady(may choice) string {
	if len(inv.nodes) == 0 {
		return "the cluster has no nodes"
	}
	count := map[string]int{}
	var reasons []string
	for i := range inv.nodes {
		if _, why := inv.nodes[i].usable(may); why != "" {
			if count[why]++; count[why] == 1 {
				reasons = append(reasons, why)
			}
		}
	}
	slices.SortFunc(reasons, func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b)) })
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%d: %s", count[r], r)
	}
	return fmt.Sprintf("none of the %d nodes can be used (%s)", len(inv.nodes), strings.Join(reasons, "; "))
}

// kinds lists the accelerators of nodes, as in "A100:8, T4:4".
func (inv *inventory) kinds(nodes []*machine) string {
	most := map[string]float64{}
	for _, m := range nodes {
		if m.accelerator != "" {
			most[m.accelerator] = max(most[m.accelerator], m.has.accelerators)
		}
	}
	var out []string
	for name, n := range most {
		out = append(out, name+":"+number(n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// nearest is the node that lacks least of what is wanted, in the resource of
// which it lacks most.
func nearest(nodes []*machine, want podSize, have func(*machine) podSize) *machine {
	lacks := func(m *machine) float64 {
		h := have(m)
		part := func(want, have float64) float64 {
			if want <= 0 || have >= want {
				return 0
			}
			return (want - have) / want
		}
		return part(want.accelerators, h.accelerators)*100 + part(want.cpus, h.cpus) + part(want.memoryGB*memoryUnit, h.memoryGB)
	}
	return slices.MinFunc(nodes, func(a, b *machine) int {
		return cmp.Or(cmp.Compare(lacks(a), lacks(b)), strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
}

// clamp makes a request for a whole node fit: what a node says that it has is
// more than pods may take of it.
func (inv *inventory) clamp(want podSize, may choice) podSize {
	nodes := inv.matching(want, may)
	within := func(want float64, capacity, limit func(*machine) float64) float64 {
		const same = 0.01
		least := want
		for _, m := range nodes {
			switch has := capacity(m); {
			case has > want+same:
				return want // there is a larger one
			case math.Abs(has-want) <= same:
				least = min(least, floor1(limit(m)))
			}
		}
		return max(least, 0.1)
	}
	capacity := func(m *machine) resources { return read(m.Status.Capacity) }
	cpus := within(want.cpus, func(m *machine) float64 { return capacity(m)["cpu"] },
		func(m *machine) float64 { return m.has.cpus - 0.1*capacity(m)["cpu"] })
	memory := within(want.memoryGB, func(m *machine) float64 { return capacity(m).memoryGB() },
		func(m *machine) float64 { return m.has.memoryGB - 0.05*capacity(m).memoryGB() })
	want.cpus, want.memoryGB = cpus, memory
	return want
}
