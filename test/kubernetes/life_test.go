//go:build kubernetes && linux

package kubernetes

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The image has busybox and nothing else: no bash, no C library, no sudo.
func TestAGangOfPods(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.write("src/data.txt", "what was sent\n")
	task := w.task("task.yaml", "localhost/shell:1", `num_nodes: 3
workdir: src
envs: {GREETING: salut}
run: |
  echo "$GREETING from rank $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES: $(cat data.txt)"
`)
	w.sky([]string{"Kubernetes: enabled"}, "check", "kubernetes")
	w.sky([]string{"salut from rank 0 of 3: what was sent", "salut from rank 1 of 3: what was sent", "salut from rank 2 of 3: what was sent", "SUCCEEDED"},
		"launch", "-y", "-c", "gang", task)
	if n := len(w.names("pods")); n != 3 {
		t.Errorf("%d pods run", n)
	}
	w.sky([]string{"once more"}, "exec", "gang", "--", "echo once more")
	w.refused([]string{"FAILED"}, "exec", "gang", "--", "exit 3")
	w.sky([]string{"SUCCEEDED", "FAILED"}, "queue", "gang")
	w.sky([]string{"once more"}, "logs", "gang", "2", "--no-follow")
	if out, _ := w.run("stop", "-y", "gang"); !strings.Contains(out, "the nodes are pods, which cannot be stopped") {
		t.Errorf("stopping pods:\n%s", out)
	}
	w.sky([]string{"UP"}, "status", "-r", "gang")
	w.sky(nil, "down", "-y", "gang")
	if left := w.names("pods"); len(left) > 0 {
		t.Errorf("pods are left: %v", left)
	}
}

// The image has one program, which is no shell; what is needed comes from
// another image. The machine has that one already.
func TestAnImageWithoutAShell(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	task := w.task("task.yaml", "localhost/bare:1", "num_nodes: 2\nrun: |\n  sleep 0 && echo rank $SKYPILOT_NODE_RANK of $(ls /bin)\n")
	w.sky([]string{"rank 0 of sleep", "rank 1 of sleep", "SUCCEEDED"}, "launch", "-y", "-c", "bare", task)
	w.sky([]string{"again"}, "exec", "bare", "--", "echo again")
}

// A pod ends by itself, without any rights in the cluster.
func TestAClusterGivesItselfBack(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	task := w.task("task.yaml", "localhost/shell:1", "run: echo done\n")
	w.sky([]string{"done"}, "launch", "-y", "-c", "brief", "--down", task)
	eventually(t, "the cluster to be given back", func() bool {
		out, _ := w.run("status", "-r")
		return strings.Contains(out, "No existing clusters")
	})
}

// Earlier clients send autostop beside the task. Pods cannot be stopped.
func TestAutostopBesideTheTaskIsNotPlannedOntoPods(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.sky([]string{"Kubernetes: enabled"}, "check", "kubernetes")
	launch := func(more string) (answer string, code int) {
		t.Helper()
		call := func(method, path, body string) *http.Response {
			req, err := http.NewRequest(method, "http://127.0.0.1:"+w.port+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-SkyPilot-API-Version", "24")
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { res.Body.Close() })
			return res
		}
		res := call("POST", "/launch", `{"task":"resources:\n  infra: kubernetes\nrun: echo hi\n","cluster_name":"old","dryrun":true`+more+`}`)
		res = call("GET", "/api/get?request_id="+res.Header.Get("X-Skypilot-Request-Id"), "")
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), res.StatusCode
	}
	if said, code := launch(`,"idle_minutes_to_autostop":10`); code < 400 || !strings.Contains(said, "which cannot be stopped; use autodown") {
		t.Errorf("autostop: %d\n%s", code, said)
	}
	if said, code := launch(`,"idle_minutes_to_autostop":10,"down":true`); code != 200 {
		t.Errorf("autodown: %d\n%s", code, said)
	}
}

// A pod that is evicted goes on until the hooks of its task have run, and no
// longer.
func TestHooksRunBeforeAPodIsEvicted(t *testing.T) {
	t.Parallel()
	saved := t.TempDir()
	if err := os.Chmod(saved, 0o777); err != nil {
		t.Fatal(err)
	}
	w := newWorkstation(t, `
  allowed_nodes: {names: [real-1]}
  post_provision_runcmd: ["echo $HOME >>/saved/first", [touch, /saved/a b]]
  pod_config:
    spec:
      containers: [{imagePullPolicy: IfNotPresent, volumeMounts: [{name: saved, mountPath: /saved}]}]
      volumes: [{name: saved, hostPath: {path: `+saved+`}}]
`)
	task := w.task("task.yaml", "localhost/shell:1", `num_nodes: 2
run: sleep 1000
config:
  hooks: [{run: "echo begun >/saved/begun; sleep 4; echo $SKYPILOT_HOOK_EVENT >/saved/ended", events: [preemption], timeout: 120}]
`)
	w.sky(nil, "launch", "-y", "-d", "-c", "hooked", task)
	pods := w.names("pods")
	if len(pods) != 2 {
		t.Fatalf("pods: %v", pods)
	}
	w.sky(nil, "exec", "hooked", "-d", "--", "true") // what is for new pods does not run again
	w.sky(nil, "launch", "-y", "-d", "-c", "hooked", task)
	if b, err := os.ReadFile(filepath.Join(saved, "first")); strings.Count(string(b), "\n") != 2 {
		t.Errorf("the commands for new pods wrote %q (%v)", b, err)
	}
	if _, err := os.Stat(filepath.Join(saved, "a b")); err != nil {
		t.Error(err)
	}
	for _, pod := range pods { // as when their machine is drained
		mustAsk(t, "POST", "/api/v1/namespaces/"+w.namespace+"/pods/"+pod+"/eviction", obj{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": obj{"name": pod}})
	}
	eventually(t, "the pods to be gone", func() bool { return len(w.names("pods")) == 0 })
	if b, err := os.ReadFile(filepath.Join(saved, "ended")); string(b) != "preemption\n" {
		t.Errorf("the hook wrote %q (%v)", b, err)
	}
	w.sky(nil, "down", "-y", "hooked")
}
