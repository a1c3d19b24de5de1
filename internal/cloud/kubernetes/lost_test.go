package kubernetes

import (
	"net/http"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

// A server that lost its disk, or another one of several, finds clusters that
// were made by the settings of a workspace or of a request. To take such a
// cluster for gone would leave it running.
func TestClustersOfWhichNobodyRemembersWhereTheyAre(t *testing.T) {
	in := func(settings map[string]any) catalog.Sections { return func(string) map[string]any { return settings } }
	for _, tt := range []struct {
		name     string
		settings map[string]any // that it is made by
		seesAll  bool           // the account may list the pods of all namespaces
		found    bool
	}{
		{"in the namespace of another workspace", map[string]any{"namespace": "research"}, false, true},
		{"in a namespace that a request named", map[string]any{"namespace": "mine"}, true, true},
		{"where nobody may look", map[string]any{"namespace": "mine"}, false, false},
	} {
		f, other := startFake(t), startFake(t)
		f.hook.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if tt.seesAll || r.Method != http.MethodGet || r.URL.Path != "/api/v1/pods" {
				return false
			}
			refuseWith(w, 403, "Forbidden", `pods is forbidden: User "ann" cannot list resource "pods" in API group "" at the cluster scope`)
			return true
		})
		all := contexts(t, map[string]string{"here": f.server.URL, "there": other.server.URL}, "there")
		provider := func() *Provider {
			return New(Options{Contexts: all, Dir: t.TempDir(), Everywhere: func() []catalog.Sections {
				return []catalog.Sections{in(nil), in(map[string]any{"namespace": "research", "allowed_contexts": []any{"here", "gone"}})}
			}})
		}
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 2, Settings: tt.settings,
			Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}}
		if _, err := provider().Launch(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		p := provider() // with a memory of its own
		for _, id := range []cloud.ClusterID{spec.ID, {Installation: "i"}} {
			if nodes, err := p.Nodes(t.Context(), id); err != nil || (len(nodes) == 2) != tt.found {
				t.Errorf("%s: %+v: %v %v", tt.name, id, nodes, err)
			}
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil {
			t.Error(err)
		}
		if left := f.inventory(); tt.found && len(left) > 0 {
			t.Errorf("%s: left: %v", tt.name, left)
		}
	}
}

// What is refused at once is given back without asking contexts that have
// nothing to do with it: one that is dead would hold up everything.
func TestALaunchThatIsRefusedIsGivenBackWhereItWas(t *testing.T) {
	f, dead := startFake(t), startFake(t)
	dead.server.Close()
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL, "dead": dead.server.URL}, "here"), Dir: t.TempDir(),
		Sections: func() catalog.Sections {
			return func(string) map[string]any { return map[string]any{"allowed_contexts": "all"} }
		}})
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 1, Settings: map[string]any{"enable_docker": true},
		Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}}
	if err := p.Prepare(t.Context(), spec); !is[*cloud.InvalidError](err) {
		t.Errorf("%v", err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	if _, err := p.Nodes(t.Context(), spec.ID); !is[*cloud.UnreachableError](err) {
		t.Errorf("a cluster that may be where nobody answers: %v", err)
	}
}
