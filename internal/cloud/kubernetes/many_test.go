package kubernetes

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Besides the one request that a pod cannot be made or removed without, a
// cluster of many pods takes no more than one of few.
func TestManyPodsTakeFewRequests(t *testing.T) {
	f := startFake(t)
	var mu sync.Mutex
	counted := map[string]int{}
	f.hook.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(r.URL.Path, "/pods") {
			counted[r.Method]++
		}
		return false
	})
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	const many = 60
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: many, Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}}
	if nodes, err := p.Launch(t.Context(), spec); err != nil || len(nodes) != many {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if left := f.inventory(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	mu.Lock()
	defer mu.Unlock()
	if counted["POST"] != many || counted["DELETE"] != many || counted["GET"] >= many/2 {
		t.Errorf("requests for %d pods: %v", many, counted)
	}
}

// A pod that stays is looked into when the others are gone.
func TestAPodThatStaysIsNotTakenForGone(t *testing.T) {
	f := startFake(t)
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 3, Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	w, err := p.at("here", nil)
	if err != nil {
		t.Fatal(err)
	}
	pods, _, err := w.pods(t.Context(), spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if pod.rank() != 1 {
			if err := w.delete(t.Context(), &pod, soon); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left, err := w.leave(t.Context(), nodesOf(spec.ID), slices.DeleteFunc(slices.Clone(pods), func(p pod) bool { return p.rank() == 1 }), time.Now().Add(time.Minute)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if left, err := w.leave(t.Context(), nodesOf(spec.ID), pods, time.Now().Add(50*time.Millisecond)); err != nil || !slices.ContainsFunc(left, func(p pod) bool { return p.rank() == 1 }) {
		t.Errorf("%v, %v", left, err)
	}
}
