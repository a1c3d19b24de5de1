//go:build kubernetes && linux

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
)

func TestPodsThatCannotRun(t *testing.T) {
	t.Parallel()
	// A registry that has nothing.
	l, err := net.Listen("tcp", strings.TrimSuffix(address, ".1")+".254:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := &http.Server{Handler: http.NotFoundHandler()}
	go registry.Serve(l)
	at := l.Addr().String()
	plainly(t, at)
	t.Cleanup(func() { registry.Close() })

	w := newWorkstation(t, settings)
	launch := func(name, image string, want ...string) {
		t.Helper()
		w.refused(want, "launch", "-y", "-c", name, w.task(name+".yaml", image, "run: echo hi\n"))
	}
	launch("none", at+"/nothing:1", "cannot be pulled", "/nothing:1")
	launch("odd", "localhost/NO:1", "NO:1")

	big := w.write("big.yaml", "resources:\n  infra: kubernetes\n  cpus: 99\n  image_id: docker:localhost/shell:1\nrun: echo hi\n")
	w.refused([]string{"no node is large enough", "real-1", "99"}, "launch", "-y", "-c", "big", big)
	gpu := w.write("gpu.yaml", "resources:\n  infra: kubernetes\n  accelerators: H100:1\n  image_id: docker:localhost/shell:1\nrun: echo hi\n")
	w.refused([]string{"H100"}, "launch", "-y", "-c", "gpu", gpu)
	if left := w.names("pods"); len(left) > 0 {
		t.Errorf("pods are left: %v", left)
	}
}

func TestAMachineThatIsFull(t *testing.T) {
	w := newWorkstation(t, settings+"  provision_timeout: 2\n")
	has, err := strconv.ParseFloat(in(mustAsk(t, "GET", "/api/v1/nodes/real-1", nil), "status", "allocatable", "cpu").(string), 64)
	if err != nil {
		t.Fatal(err)
	}
	hold := w.write("hold.yaml", fmt.Sprintf("resources:\n  infra: kubernetes\n  cpus: %.1f\n  memory: 0.1\n  image_id: docker:localhost/shell:1\n", 0.6*has))
	w.sky(nil, "launch", "-y", "-c", "first", hold)
	w.refused([]string{"no capacity", "the nearest, real-1, has", "free of", "Insufficient cpu"}, "launch", "-y", "-c", "second", hold)
}

func TestAQuotaOfTheNamespace(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	quotas := w.path("resourcequotas")
	mustAsk(t, "POST", quotas, map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "few"}, "spec": map[string]any{"hard": map[string]any{"pods": "1"}}})
	eventually(t, "the quota to hold", func() bool {
		_, known := mustAsk(t, "GET", quotas+"/few", nil)["status"].(map[string]any)["hard"]
		return known
	})
	w.refused([]string{"kubernetes/real", "quota", "exceeded quota: few"}, "launch", "-y", "-c", "q", w.task("q.yaml", "localhost/shell:1", "num_nodes: 2\n"))
}

func TestAPodThatRunsOutOfMemory(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings+"  set_pod_resource_limits: true\n")
	task := w.task("task.yaml", "localhost/shell:1", "run: echo fine\n")
	w.sky([]string{"fine"}, "launch", "-y", "-c", "small", task)
	// More than the pod may have. Whoever the kernel picks, the job does not succeed.
	w.refused([]string{"FAILED"}, "exec", "small", "--", "tail /dev/zero")
}

func TestAPodThatSomebodyDeletes(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.sky([]string{"SUCCEEDED"}, "launch", "-y", "-c", "prey", w.task("task.yaml", "localhost/shell:1", "run: echo here\n"))
	mustAsk(t, "DELETE", w.path("pods/"+w.names("pods")[0]), nil)
	eventually(t, "the cluster to be seen as gone", func() bool {
		out, _ := w.run("status", "-r")
		return strings.Contains(out, "No existing clusters")
	})
}

func TestTheAPIServerRestarts(t *testing.T) {
	w := newWorkstation(t, settings)
	w.sky(nil, "launch", "-y", "-c", "on", w.task("task.yaml", "localhost/shell:1", "run: echo here\n"))
	w.sky(nil, "exec", "on", "-d", "--", "while [ ! -e /tmp/end ]; do sleep 0.2; done; echo it went on")
	mustScript(t, "kill", place, "kube-apiserver")
	w.run("status", "-r") // it cannot be seen, and nothing is concluded from that
	mustScript(t, "again", place, "kube-apiserver")
	eventually(t, "the API server", isReady)
	eventually(t, "the machine", func() bool { return ready(t) })
	w.sky([]string{"UP"}, "status", "-r", "on")
	if res, err := kubernetes.NewContexts("").Exec(t.Context(), "real/"+w.namespace+"/"+w.names("pods")[0], []string{"touch", "/tmp/end"}, nil); err != nil || res.Code != 0 {
		t.Fatal(res, err)
	}
	w.sky([]string{"it went on"}, "logs", "on", "2")
}

// isReady reports whether the API server serves; it says so in plain text.
func isReady() bool {
	req, _ := http.NewRequest("GET", "https://"+net.JoinHostPort(address, "6443")+"/readyz", nil)
	req.Header.Set("Authorization", "Bearer admintoken")
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == 200
}

// A machine that does not answer proves nothing, also when somebody told the
// API server to delete the pod.
func TestAMachineThatIsSilent(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	p := provider(t, dir)
	id := cloud.ClusterID{Installation: "silent", Name: "quiet", Hash: "h1"}
	spec := small(id, 1)
	if err := p.Prepare(ctx, spec); err != nil {
		t.Fatal(err)
	}
	nodes, err := p.Launch(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	mustScript(t, "kill", place, "kubelet")
	back := false
	t.Cleanup(func() {
		if !back {
			mustScript(t, "again", place, "kubelet")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		eventually(t, "the machine", func() bool { return ready(t) })
		if err := p.Terminate(ctx, id); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the machine to be missed", func() bool { return !ready(t) })
	state := func() cloud.Node {
		now, err := p.Nodes(ctx, id)
		if err != nil || len(now) != 1 || now[0].ID != nodes[0].ID {
			t.Fatalf("%v %v", now, err)
		}
		return now[0]
	}
	if n := state(); n.State != cloud.NodeRunning {
		t.Errorf("a silent machine's pod: %+v", n)
	}
	_, _, pod, err := kubernetes.Locate(nodes[0].Reach.Host)
	if err != nil {
		t.Fatal(err)
	}
	mustAsk(t, "DELETE", "pods/"+pod, nil)
	if n := state(); n.State != cloud.NodeRunning || !strings.Contains(n.Reason, "real-1 has not said yet that it ended") {
		t.Errorf("a silent machine's pod that is to be deleted: %+v", n)
	}
	var unreachable *cloud.UnreachableError
	if err := p.Terminate(ctx, id); !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "out-of-service") {
		t.Errorf("giving back what nobody can see: %v", err)
	}
	state() // and it is not forgotten
	mustScript(t, "again", place, "kubelet")
	back = true
	eventually(t, "the machine to end the pod", func() bool {
		now, err := p.Nodes(ctx, id)
		return err == nil && len(now) == 0
	})
}

func provider(t testing.TB, dir string) *kubernetes.Provider {
	return kubernetes.New(kubernetes.Options{Contexts: kubernetes.NewContexts(dir), Dir: filepath.Join(dir, "places"), Sections: func() catalog.Sections {
		return func(string) map[string]any { return onReal() }
	}})
}

// onReal is settings for the provider alone.
func onReal() map[string]any {
	return map[string]any{
		"allowed_nodes": map[string]any{"names": []any{"real-1"}}, "provision_timeout": 60,
		"pod_config": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"imagePullPolicy": "IfNotPresent"}}}},
	}
}

func small(id cloud.ClusterID, nodes int) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: id, Nodes: nodes, Token: "t", ImageID: "docker:localhost/shell:1", Settings: onReal(),
		Offer: cloud.Offer{Place: cloud.Place{Cloud: kubernetes.Name, Region: "real"}, InstanceType: "0.01CPU--0.01GB", CPUs: 0.01, MemoryGiB: 0.01}}
}

// A pod that has its machine and cannot start there says why while it is waited
// for, and ends with whoever waited.
func TestAPodThatDoesNotStart(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, `
  allowed_nodes: {names: [real-1]}
  pod_config: {spec: {containers: [{imagePullPolicy: IfNotPresent, volumeMounts: [{name: papers, mountPath: /papers}]}], volumes: [{name: papers, secret: {secretName: nowhere}}]}}
`)
	c := exec.Command(binary, "launch", "-y", "-c", "stuck", w.task("task.yaml", "localhost/shell:1", "run: echo here\n"))
	c.Env = w.env
	out, err := os.Create(filepath.Join(w.home, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	said := func() string {
		text, _ := os.ReadFile(out.Name())
		return strings.Join(strings.Fields(string(text)), " ") // long lines are folded
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	eventually(t, "the reason to be told", func() bool {
		text := said()
		select {
		case err := <-ended:
			t.Fatalf("the launch ended: %v\n%s", err, text)
		default:
		}
		return strings.Contains(text, "to start on real-1 (FailedMount: ") && strings.Contains(text, `secret "nowhere" not found`)
	})
	w.sky(nil, "down", "-y", "stuck")
	if err := <-ended; err == nil {
		t.Errorf("the launch succeeded: %s", said())
	}
	if left := w.names("pods"); len(left) > 0 {
		t.Errorf("pods are left: %v", left)
	}
}
