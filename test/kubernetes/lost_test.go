//go:build kubernetes && linux

package kubernetes

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
)

// simulatedMachine adds a machine that only the API server and KWOK know.
func simulatedMachine(t *testing.T, name string) {
	t.Helper()
	has := obj{"cpu": "4", "memory": "16Gi", "pods": "110"}
	made(t, "/api/v1/nodes", obj{"apiVersion": "v1", "kind": "Node", "metadata": obj{"name": name, "annotations": obj{"kwok.x-k8s.io/node": "fake"},
		"labels": obj{"kubernetes.io/hostname": name}}, "status": obj{"capacity": has, "allocatable": has}})
}

// A machine that is deleted, as by an autoscaler, takes its pods with it: that is
// proof, and comes without the machine's word. So does one that is tainted for
// maintenance. New pods go where there is room.
func TestMachinesThatAreTakenAway(t *testing.T) {
	t.Parallel()
	ctx, ns := t.Context(), newNamespace(t)
	mustScript(t, "fake", place, "1")
	p := provider(t, t.TempDir())
	launch := func(name, machine string) cloud.ClusterID {
		t.Helper()
		spec := small(cloud.ClusterID{Installation: "lost", Name: name, Hash: "h1"}, 1)
		spec.Settings = obj{"namespace": ns, "provision_timeout": 120, "allowed_nodes": obj{"names": []any{machine}}}
		if _, err := p.Launch(ctx, spec); err != nil {
			t.Fatal(err)
		}
		return spec.ID
	}
	gone := func(id cloud.ClusterID, why string) {
		t.Helper()
		said := ""
		eventually(t, "the pod of "+id.Name+" to be gone", func() bool {
			now, err := p.Nodes(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range now {
				if n.State != cloud.NodeGone {
					return false
				}
				said = n.Reason
			}
			return true
		})
		if said != "" && !strings.Contains(said, why) {
			t.Errorf("%s: %q, want %q", id.Name, said, why)
		}
		if err := p.Terminate(ctx, id); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{ns + "-deleted", ns + "-tainted"} {
		simulatedMachine(t, name)
	}
	deleted, tainted := launch("deleted", ns+"-deleted"), launch("tainted", ns+"-tainted")
	mustAsk(t, "DELETE", "/api/v1/nodes/"+ns+"-deleted", nil)
	mustAsk(t, "PATCH", "/api/v1/nodes/"+ns+"-tainted", obj{"spec": obj{"taints": []any{obj{"key": "maintenance", "effect": "NoExecute"}}}})
	gone(tainted, "taken out of use")
	gone(deleted, "its machine is gone")
}

// A managed job whose machine is drained goes on in a new pod.
func TestAManagedJobOnAMachineThatIsDrained(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	task := w.task("job.yaml", "localhost/shell:1", `run: |
  echo "begun, $SKYPILOT_TASK_ID"
  while [ ! -e /tmp/end ]; do sleep 0.2; done
`)
	w.sky(nil, "jobs", "launch", "-y", "-d", "-n", "drained", task)
	status := func() string {
		out, _ := w.run("jobs", "queue", "-o", "json")
		return out
	}
	var first string
	eventually(t, "the job to run", func() bool {
		pods := w.names("pods")
		if len(pods) == 1 && strings.Contains(status(), `"RUNNING"`) {
			first = w.uid("pods/" + pods[0])
		}
		return first != ""
	})
	name := w.names("pods")[0]
	mustAsk(t, "POST", w.path("pods/"+name+"/eviction"), obj{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": obj{"name": name}})
	second := ""
	eventually(t, "the job to run in another pod", func() bool {
		pods := w.names("pods")
		if len(pods) != 1 || !strings.Contains(status(), `"RUNNING"`) {
			return false
		}
		second = pods[0]
		uid := w.uid("pods/" + second)
		return uid != "" && uid != first
	})
	eventually(t, "the job to end", func() bool {
		kubernetes.NewContexts("").Exec(t.Context(), "real/"+w.namespace+"/"+second, []string{"touch", "/tmp/end"}, nil)
		return strings.Contains(status(), `"SUCCEEDED"`)
	})
	eventually(t, "the pod to be given back", func() bool { return len(w.names("pods")) == 0 })
}

// uid is an object's, or "" when there is none.
func (w *workstation) uid(of string) string {
	o, code, err := ask("GET", w.path(of), nil)
	if err != nil || code != 200 {
		return ""
	}
	uid, _ := in(o, "metadata", "uid").(string)
	return uid
}

// A machine that dies and is deleted, as by a cloud that took it back: there is
// nobody left to say that its pods ended, and none is needed. What is given back
// meanwhile ends, and the rest is seen as gone.
func TestAMachineThatNeverComesBack(t *testing.T) {
	w := newWorkstation(t, settings)
	task := w.task("task.yaml", "localhost/shell:1", "run: echo here\n")
	w.sky([]string{"here"}, "launch", "-y", "-c", "one", task)
	w.sky([]string{"here"}, "launch", "-y", "-c", "two", task)
	mustScript(t, "kill", place, "kubelet")
	back := false
	again := func() {
		if !back {
			back = true
			mustScript(t, "again", place, "kubelet")
			eventually(t, "the machine", func() bool {
				_, code, err := ask("GET", "/api/v1/nodes/real-1", nil)
				return err == nil && code == http.StatusOK && ready(t)
			})
		}
	}
	t.Cleanup(again)
	mustAsk(t, "DELETE", "/api/v1/nodes/real-1", nil)
	w.sky(nil, "down", "-y", "one")
	if left := w.names("pods"); slices.ContainsFunc(left, func(p string) bool { return strings.HasPrefix(p, "one-") }) {
		t.Errorf("pods are left: %v", left)
	}
	eventually(t, "the other cluster to be seen as gone", func() bool {
		out, _ := w.run("status", "-r")
		return strings.Contains(out, "No existing clusters")
	})
	if left := w.names("pods"); len(left) > 0 {
		t.Errorf("pods are left: %v", left)
	}
	again()
	w.sky([]string{"here"}, "launch", "-y", "-c", "three", task)
}
