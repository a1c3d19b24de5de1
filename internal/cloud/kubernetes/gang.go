package kubernetes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// A gang is a cluster whose pods wait for nodes, as far as other gangs are
// concerned. Two gangs that each hold a part of the nodes that both need would
// wait for each other for ever: all but the oldest give theirs back.
type gang struct {
	key       string    // of the cluster, among all installations
	name      string    // of the cluster, for people
	since     time.Time // when it began to wait, by the cluster's clock
	held      int       // pods with a node
	missing   int       // pods for which the scheduler found none
	devices   []string  // extended resources that a pod asks for, sorted
	placement map[string][]string
}

// half reports whether a gang holds nodes and waits for more.
func (g *gang) half() bool { return g.held > 0 && g.missing > 0 }

// before orders gangs: who has waited longer comes first.
func (g *gang) before(h *gang) bool {
	return cmp.Or(g.since.Compare(h.since), cmp.Compare(g.key, h.key)) < 0
}

// contends reports whether nodes that one gang holds may be what the other needs:
// both ask for a device in common, or for none, and no label of nodes keeps them
// apart.
func (g *gang) contends(h *gang) bool {
	if len(g.devices) == 0 != (len(h.devices) == 0) {
		return false
	}
	if len(g.devices) > 0 && !slices.ContainsFunc(g.devices, func(d string) bool { return slices.Contains(h.devices, d) }) {
		return false
	}
	for label, values := range g.placement {
		other, both := h.placement[label]
		if both && !slices.ContainsFunc(values, func(v string) bool { return slices.Contains(other, v) }) {
			return false
		}
	}
	return true
}

// yieldTo is the gang that mine gives its nodes to: of those that hold a part of
// what they need, and compete with it, the one that has waited longest; nil if
// that is mine. It is pure, and every API server finds the same.
func yieldTo(mine *gang, others []gang) *gang {
	if !mine.half() {
		return nil
	}
	first := mine
	for i := range others {
		if o := &others[i]; o.key != mine.key && o.half() && o.contends(mine) && o.before(first) {
			first = o
		}
	}
	if first == mine {
		return nil
	}
	return first
}

// annotationWaiting keeps since when a gang waits for pods that are made anew.
const annotationWaiting = "sky-waiting-since"

// gangsOf sorts pods by their clusters.
func gangsOf(pods []pod) []gang {
	byKey := map[string]*gang{}
	var keys []string
	for i := range pods {
		p := &pods[i]
		labels := p.Metadata.Labels
		if labels[cloud.TagRank] == "" || p.ended() || p.Metadata.DeletionTimestamp != nil {
			continue
		}
		key := strings.Join([]string{p.Metadata.Namespace, labels[cloud.TagInstallation], labels[cloud.TagCluster], labels[cloud.TagHash]}, "/")
		g := byKey[key]
		if g == nil {
			g = &gang{key: key, name: cmp.Or(p.Metadata.Annotations["skypilot-cluster-name"], labels[cloud.TagCluster]), devices: p.devices(), placement: p.placement()}
			byKey[key] = g
			keys = append(keys, key)
		}
		if at := p.waitingSince(); g.since.IsZero() || at.Before(g.since) {
			g.since = at
		}
		scheduled := p.Status.Conditions.of("PodScheduled")
		switch {
		case p.Spec.NodeName != "":
			g.held++
		case scheduled.Status != "True" && scheduled.Reason == "Unschedulable":
			g.missing++
		}
	}
	out := make([]gang, len(keys))
	for i, key := range keys {
		out[i] = *byKey[key]
	}
	return out
}

// waitingSince is when the pod's gang began to wait, by the cluster's clock.
func (p *pod) waitingSince() time.Time {
	if at, err := time.Parse(time.RFC3339, p.Metadata.Annotations[annotationWaiting]); err == nil && at.Before(p.Metadata.CreationTimestamp.Time) {
		return at
	}
	return p.Metadata.CreationTimestamp.Time
}

// devices are the extended resources that the pod asks for.
func (p *pod) devices() []string {
	var out []string
	for _, c := range p.Spec.Containers {
		for _, of := range []map[string]string{c.Resources.Requests, c.Resources.Limits} {
			for name := range of {
				if strings.Contains(name, "/") && !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// placement is which values of labels the pod's nodes must have, as far as one
// label decides alone.
func (p *pod) placement() map[string][]string {
	out := map[string][]string{}
	for label, value := range p.Spec.NodeSelector {
		out[label] = []string{value}
	}
	if terms := p.Spec.Affinity.NodeAffinity.Required.Terms; len(terms) == 1 { // several are alternatives
		for _, e := range terms[0].Expressions {
			if e.Operator == "In" {
				out[e.Key] = e.Values
			}
		}
	}
	return out
}
