package kubernetes

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

// An account that may only look is no place for anything: it must not be the
// cheapest one.
func TestAnAccountThatMayOnlyLook(t *testing.T) {
	for _, denied := range []string{"pods/", "pods/exec"} {
		f, other := startFake(t), startFake(t)
		f.denied = []string{denied}
		for _, f := range []*fake{f, other} {
			f.addNode("n1", nil, map[string]string{"cpu": "8", "memory": "32Gi"})
		}
		all := contexts(t, map[string]string{"look": f.server.URL, "work": other.server.URL}, "look")
		sections := func(allowed ...any) catalog.Sections {
			return func(string) map[string]any { return map[string]any{"allowed_contexts": allowed} }
		}
		alone := New(Options{Contexts: all, Sections: func() catalog.Sections { return sections("look") }})
		if _, err := alone.Check(t.Context()); !is[*cloud.PermissionError](err) || !strings.Contains(err.Error(), "namespace team") {
			t.Errorf("without %s: %v", denied, err)
		}
		if _, err := alone.Tailored(t.Context(), sections("look")); !is[*cloud.PermissionError](err) {
			t.Errorf("without %s, planning: %v", denied, err)
		}
		both := New(Options{Contexts: all, Sections: func() catalog.Sections { return sections("look", "work") }})
		if id, err := both.Check(t.Context()); err != nil || len(id) != 1 {
			t.Errorf("one of two contexts: %v %v", id, err)
		}
		if places, err := both.CheckPlaces(t.Context(), "", sections("look", "work")); err != nil || len(places) != 2 || places[0].Region != "look" || !is[*cloud.PermissionError](places[0].Err) || places[1].Err != nil {
			t.Errorf("each of two contexts: %+v %v", places, err)
		}
		s, err := both.Tailored(t.Context(), sections("look", "work"))
		if err != nil {
			t.Fatal(err)
		}
		if offers := s.Find(catalog.Query{}); len(offers) != 1 || offers[0].Region != "work" {
			t.Errorf("without %s, offers: %v", denied, offers)
		}
	}
}

// What merely has the name that ours would have is left alone.
func TestPortsOfSomebodyElse(t *testing.T) {
	id := cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}
	for _, tt := range []struct{ way, path, name string }{
		{"loadbalancer", "/api/v1/namespaces/team/services", "web--skypilot-lb"},
		{"ingress", "/api/v1/namespaces/team/services", "web--skypilot-svc--8080"},
		{"ingress", "/apis/networking.k8s.io/v1/namespaces/team/ingresses", "web-skypilot-ingress-8080"},
	} {
		f := startFake(t)
		theirs := obj{"apiVersion": "v1", "kind": "Thing", "metadata": obj{"name": tt.name, "namespace": "team", "labels": obj{"app": "theirs"}}, "spec": obj{"selector": obj{"app": "theirs"}}}
		f.put(tt.path, theirs)
		f.put("/apis/networking.k8s.io/v1/ingressclasses", obj{"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": obj{"name": ingressClass}})
		p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
		spec := cloud.LaunchSpec{ID: id, Nodes: 1, Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}, Ports: []string{"8080"},
			Settings: map[string]any{"ports": tt.way}}
		err := p.Prepare(t.Context(), spec)
		if !is[*cloud.InvalidError](err) || !strings.Contains(err.Error(), tt.name) {
			t.Errorf("%s: %v", tt.name, err)
		}
		f.mu.Lock()
		if spec := asObj(f.objects[tt.path][tt.name]["spec"]); spec["ports"] != nil {
			t.Errorf("%s was changed: %v", tt.name, spec)
		}
		f.mu.Unlock()
		if err := p.Terminate(t.Context(), id); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		if f.objects[tt.path][tt.name] == nil {
			t.Errorf("%s was removed", tt.name)
		}
		f.mu.Unlock()
	}
}

// Calls are repeated; patience with an image is not.
func TestPatienceWithAPodOutlivesACall(t *testing.T) {
	var tr trouble
	t0 := time.Unix(1_000_000, 0)
	at := func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
	if since := tr.since("a", false, at(0)); since != at(0) {
		t.Error(since)
	}
	tr.since("a", true, at(1))
	tr.since("b", true, at(20))
	if since := tr.since("a", true, at(50)); since != at(1) {
		t.Errorf("forgotten: %v", since)
	}
	if tr.since("a", false, at(60)); tr.since("a", true, at(70)) != at(70) {
		t.Error("what was over counts")
	}
	tr.since("c", true, at(20).Add(troubleAge+time.Second))
	if _, kept := tr.begun["b"]; kept {
		t.Error("kept for ever")
	}
}
