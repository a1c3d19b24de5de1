package fsm

import (
	"maps"
	"slices"
	"testing"

	"github.com/skypilot-go/sky/api"
)

// walk asks a table about every state and every event.
func walk[S, E ~string](t *testing.T, name string, table Table[S, E], states []S) {
	t.Helper()
	events := map[E]bool{}
	for _, row := range table {
		for e := range row {
			events[e] = true
		}
	}
	for _, s := range table.States() {
		if !slices.Contains(states, s) {
			t.Errorf("%s: %q is no state of the API", name, s)
		}
		if _, ok := table[s]; !ok {
			t.Errorf("%s: %q can be reached but has no row", name, s)
		}
		for e := range events {
			next, ok := table.Next(s, e)
			want, in := table[s][e]
			if ok != in || next != want {
				t.Errorf("%s: Next(%q, %q) = %q, %v", name, s, e, next, ok)
			}
			if ok && !slices.Contains(table.Into(next), s) {
				t.Errorf("%s: Into(%q) lacks %q", name, next, s)
			}
		}
	}
	if _, ok := table.Next(table.States()[0], "no such event"); ok {
		t.Errorf("%s: an unknown event happened", name)
	}
}

func TestRequestLifeCycle(t *testing.T) {
	all := []api.RequestStatus{api.RequestPending, api.RequestRunning, api.RequestSucceeded, api.RequestFailed, api.RequestCancelled}
	walk(t, "requests", Requests(), all)
	for _, s := range all {
		if final := len(Requests()[s]) == 0; final != s.Terminal() {
			t.Errorf("%s: final %v, terminal %v", s, final, s.Terminal())
		}
		if s != api.RequestPending && len(Requests().Into(s)) == 0 {
			t.Errorf("%s cannot be reached", s)
		}
	}
	if len(Requests().Into(api.RequestPending)) > 0 {
		t.Error("a request waits twice")
	}
}

func TestClusterLifeCycle(t *testing.T) {
	walk(t, "clusters", Clusters(), []api.ClusterStatus{ClusterAbsent, api.ClusterInit, api.ClusterUp, api.ClusterAutostopping, api.ClusterStopped})
	for s, row := range Clusters() {
		if _, ok := row[ClusterGone]; ok == (s == ClusterAbsent) {
			t.Errorf("%q: whatever exists can go, and nothing else", s)
		}
		if row[ClusterProvisioning] != api.ClusterInit {
			t.Errorf("%q: launching leads to %q", s, row[ClusterProvisioning])
		}
	}
	if got := slices.Sorted(maps.Keys(Clusters()[ClusterAbsent])); len(got) != 1 {
		t.Errorf("a cluster begins with a launch, not with %v", got)
	}
}
