package kubernetes

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skypilot-go/sky/internal/cloud"
)

// What a machine that does not answer may still run is never forgotten; what its machine,
// or the cluster, only forgot to remove is.
func TestDeletedPodsThatDoNotGo(t *testing.T) {
	const pods = "/api/v1/namespaces/team/pods"
	for _, tt := range []struct {
		name    string
		machine string // "Ready" of its condition; "": the machine is gone
		phase   string
		held    bool // a finalizer keeps it
		goes    bool // it goes by itself
		another bool // one with the same name has come meanwhile
		want    string
		left    bool
	}{
		{"it goes by itself", "True", "Running", false, true, false, "", false},
		{"another one has its name", "True", "Running", false, false, true, "", true},
		{"its machine works and does not report its end", "True", "Running", false, false, false, "", false},
		{"its machine is gone", "", "Running", false, false, false, "", false},
		{"its machine does not answer", "Unknown", "Running", false, false, false, "may still run", true},
		{"it ended before its machine went silent", "False", "Succeeded", false, false, false, "", false},
		{"a finalizer keeps it", "True", "Running", true, false, false, "a finalizer?", true},
	} {
		f := startFake(t)
		f.mu.Lock()
		f.drop("/api/v1/nodes", "node-1")
		f.mu.Unlock()
		if tt.machine != "" {
			f.put("/api/v1/nodes", obj{"apiVersion": "v1", "kind": "Node", "metadata": obj{"name": "node-1"},
				"status": obj{"conditions": []any{obj{"type": "Ready", "status": tt.machine}}}})
		}
		aPod := func() obj {
			return obj{"apiVersion": "v1", "kind": "Pod", "metadata": obj{"name": "p", "namespace": "team"},
				"spec": obj{"nodeName": "node-1"}, "status": obj{"phase": tt.phase}}
		}
		f.put(pods, aPod())
		w, err := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()}).at("here", nil)
		if err != nil {
			t.Fatal(err)
		}
		all, _, err := list[pod](t.Context(), w.client, podsResource, "team", metav1.ListOptions{})
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		wait := 20 * time.Millisecond
		switch {
		case tt.another:
			f.mu.Lock()
			f.drop(pods, "p")
			f.mu.Unlock()
			f.put(pods, aPod())
		case tt.goes:
			wait = time.Minute
			time.AfterFunc(10*time.Millisecond, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.drop(pods, "p")
			})
		case tt.held:
			f.hook.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if r.Method == http.MethodDelete {
					say(w, 200, obj{"kind": "Status", "status": "Success"})
				}
				return r.Method == http.MethodDelete
			})
		}
		err = w.endsWithin(t.Context(), &all[0], wait, 2*wait)
		if tt.want == "" && err != nil || tt.want != "" && (!is[*cloud.UnreachableError](err) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", tt.name, err)
		}
		f.mu.Lock()
		if left := f.objects[pods]["p"] != nil; left != tt.left {
			t.Errorf("%s: it is left: %v", tt.name, left)
		}
		f.mu.Unlock()
	}
}
