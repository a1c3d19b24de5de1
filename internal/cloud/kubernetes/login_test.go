package kubernetes

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/registry"
)

const secretsPath = "/api/v1/namespaces/team/secrets"

func withLogin(password string) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 1, Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"},
		ImageID: "docker:team/train:1", Login: &registry.Login{Username: "robot", Password: password, Server: "r.io"},
		Settings: map[string]any{"pod_config": map[string]any{"spec": map[string]any{"imagePullSecrets": []any{map[string]any{"name": "mine"}}}}}}
}

// A login is kept for the machines, renewed, named in pods besides the user's own
// secrets, and goes with the cluster.
func TestALoginGoesWithItsCluster(t *testing.T) {
	f := startFake(t)
	theirs := obj{"apiVersion": "v1", "kind": "Secret", "metadata": obj{"name": "mine", "namespace": "team"}}
	f.put(secretsPath, theirs)
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	spec := withLogin("one")
	kept := func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		o := f.objects[secretsPath][loginName(spec.ID)]
		if o == nil {
			return ""
		}
		if asObj(asObj(o["metadata"])["labels"])[cloud.TagHash] != "h" || o["type"] != loginType {
			t.Errorf("the secret is %v", o)
		}
		text, _ := base64.StdEncoding.DecodeString(asObj(o["data"])[".dockerconfigjson"].(string))
		return string(text)
	}
	for _, password := range []string{"one", "one", "two"} {
		spec = withLogin(password)
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if got := kept(); got != string(spec.Login.File()) {
			t.Errorf("with %s: %s", password, got)
		}
	}
	// What is made later knows the registry only.
	spec.Login = &registry.Login{Server: "r.io"}
	if err := p.Prepare(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	text := jsonOf(f.objects["/api/v1/namespaces/team/pods"]["web-head"])
	f.mu.Unlock()
	for _, want := range []string{`"image":"r.io/team/train:1"`, `"imagePullSecrets":[{"name":"mine"},{"name":"` + loginName(spec.ID) + `"}]`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if kept() == "" {
		t.Error("the login was removed")
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if got := f.inventory(); len(got) != 1 || got[0] != secretsPath+"/mine" {
		t.Errorf("left: %v", got)
	}
}

// Who may not delete secrets leaves none behind, because none is made; and gives
// clusters back all the same.
func TestALoginThatCouldNotBeRemoved(t *testing.T) {
	f := startFake(t)
	f.hook.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method != "DELETE" || !strings.HasPrefix(r.URL.Path, secretsPath) {
			return false
		}
		refuseWith(w, 403, "Forbidden", `secrets "x" is forbidden: User "ann" cannot delete resource "secrets"`)
		return true
	})
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	spec := withLogin("one")
	err := p.Prepare(t.Context(), spec)
	if !is[*cloud.PermissionError](err) || !strings.Contains(err.Error(), "create, patch and delete secrets") {
		t.Errorf("%T %v", err, err)
	}
	if got := f.inventory(); len(got) > 0 {
		t.Errorf("made: %v", got)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
}
