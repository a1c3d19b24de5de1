package vm

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// settleLooks is how often something new is looked for before it counts as missing.
const settleLooks = 15

// Recent remembers what was lately made for clusters, so that it is given back
// although no list has it yet.
type Recent struct {
	settle time.Duration // after which lists are believed
	mu     sync.Mutex
	of     map[cloud.ClusterID]*Made
}

// Made is what was made for one cluster. Its maps say in which region each thing
// is.
type Made struct {
	machines map[string]string
	others   map[Thing]string
	lost     time.Time // when a call's answer was lost that may have made more
	last     time.Time
	known    bool // this process saw all calls
	settle   time.Duration
}

// Thing is something other than a machine.
type Thing struct{ Kind, Name string }

// with lets f change what is remembered of a cluster.
func (r *Recent) with(id cloud.ClusterID, f func(*Made)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[cloud.ClusterID]*Made{}
	}
	for other, m := range r.of {
		if other != id && time.Since(m.last) > r.settle { // every list has it
			delete(r.of, other)
		}
	}
	m := r.of[id]
	if m == nil {
		m = &Made{machines: map[string]string{}, others: map[Thing]string{}}
		r.of[id] = m
	}
	m.last = time.Now()
	f(m)
}

// machines notes machines that a call made.
func (r *Recent) machines(id cloud.ClusterID, region string, ids []string) {
	r.with(id, func(m *Made) {
		for _, i := range ids {
			m.machines[i] = region
		}
	})
}

// Add notes a thing that a call made.
func (r *Recent) Add(id cloud.ClusterID, region string, t Thing) {
	r.with(id, func(m *Made) { m.others[t] = region })
}

// Remove notes that a thing is gone.
func (r *Recent) Remove(id cloud.ClusterID, t Thing) {
	r.with(id, func(m *Made) { delete(m.others, t) })
}

// Lost notes that a call had no answer that may have made something.
func (r *Recent) Lost(id cloud.ClusterID) { r.with(id, func(m *Made) { m.lost = time.Now() }) }

// begin notes a launch. If it is resumed, a process which died may have made a call
// without an answer, unless this one has seen them all.
func (r *Recent) begin(id cloud.ClusterID, resumed bool) {
	r.with(id, func(m *Made) {
		if resumed && !m.known {
			m.lost = time.Now()
		}
		m.known = true
	})
}

// forget is for clusters that are gone.
func (r *Recent) forget(id cloud.ClusterID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, id)
}

// Made is what was made for a cluster.
func (r *Recent) Made(id cloud.ClusterID) (m Made) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.of[id]; have != nil {
		m = Made{machines: maps.Clone(have.machines), others: maps.Clone(have.others), lost: have.lost, last: have.last, settle: r.settle}
	}
	return m
}

// Of lists the things of a kind in a region, by name.
func (m Made) Of(kind, region string) []string {
	var out []string
	for t, at := range m.others {
		if t.Kind == kind && at == region {
			out = append(out, t.Name)
		}
	}
	slices.Sort(out)
	return out
}

// All lists the things of a kind in all regions, by name.
func (m Made) All(kind string) []string {
	var out []string
	for t := range m.others {
		if t.Kind == kind {
			out = append(out, t.Name)
		}
	}
	slices.Sort(out)
	return out
}

// unsure reports that lists may lack something of the cluster's.
func (m Made) unsure() bool { return time.Since(m.lost) < m.settle }

// Young reports that something of the cluster's was made so lately that a call may
// not know it.
func (m Made) Young() bool { return time.Since(m.last) < m.settle }
