//go:build kubernetes && linux

package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/api"
)

// chat is the service chat; nil: there is none.
func (w *workstation) chat() *api.Service {
	w.t.Helper()
	out, code := w.run("serve", "status", "-o", "json")
	var list []api.Service
	if i := strings.IndexByte(out, '['); code != 0 || i < 0 || json.Unmarshal([]byte(out[i:]), &list) != nil {
		w.t.Fatalf("sky serve status: exit %d\n%s", code, out)
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// served waits until a version of the service has that many ready replicas and no others.
func (w *workstation) served(n, version int) *api.Service {
	w.t.Helper()
	var last *api.Service
	defer func() {
		if w.t.Failed() {
			log, _ := w.run("serve", "logs", "--controller", "--no-follow", "chat")
			w.t.Logf("the service is %+v; its controller says:\n%s", last, log)
		}
	}()
	eventually(w.t, fmt.Sprintf("%d ready replicas of version %d", n, version), func() bool {
		last = w.chat()
		ready := 0
		for _, r := range last.Replicas {
			if r.Status == string(api.ReplicaReady) && r.Version == version {
				ready++
			}
		}
		return ready == n && len(last.Replicas) == n
	})
	return last
}

// answer is what a service says at a path.
func answer(t testing.TB, at, path string) string {
	t.Helper()
	resp, err := (&http.Client{Timeout: time.Minute}).Get(at + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %q %v", path, resp.Status, b, err)
	}
	return string(b)
}

// Replicas are pods, and neither the server nor the balancer beside it is in their
// network: both reach them through the agents.
func TestAServiceOfPods(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	if err := os.Mkdir(filepath.Join(w.home, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(w.home, "src", "served"), "./served")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	version := func(name string) string {
		return w.task(name+".yaml", "localhost/shell:1", `name: chat
service:
  readiness_probe: {path: /health, endpoint_probe_interval_seconds: 1}
  replicas: 2
  ports: 8080
  drain_seconds: 20
workdir: src
envs: {VERSION: `+name+`}
run: exec ./served 0.0.0.0:8080
`)
	}
	t.Cleanup(func() { w.run("serve", "down", "-y", "--purge", "chat") }) // what a failure left
	w.sky([]string{"Service chat is starting"}, "serve", "up", "-y", "-n", "chat", version("v1"))
	s := w.served(2, 1)
	at := *s.Endpoint
	w.asksAll(at, "v1", s)
	for _, kind := range []string{"services", "/apis/networking.k8s.io/v1/namespaces/" + w.namespace + "/ingresses"} {
		for _, name := range w.names(kind) {
			if strings.Contains(name, "skypilot-lb") || strings.Contains(name, "ingress") {
				t.Errorf("a replica has %s of its own", name)
			}
		}
	}

	// A balancer beside the server, at another address of this machine.
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	balancer := exec.Command(binary, "serve", "balancer", "--host", "127.0.0.2", "--state-dir", filepath.Join(w.home, "balancer"), "--drain-seconds", "5")
	balancer.Env, balancer.Dir = w.env, w.home
	var said bytes.Buffer
	balancer.Stderr = &said
	if err := balancer.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() { defer close(over); balancer.Wait() }()
	defer func() {
		balancer.Process.Signal(syscall.SIGTERM)
		<-over
		if t.Failed() {
			t.Logf("the balancer says:\n%s", &said)
		}
	}()
	beside := "http://" + net.JoinHostPort("127.0.0.2", u.Port())
	eventually(t, "the balancer to answer", func() bool {
		resp, err := http.Get(beside)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	w.asksAll(beside, "v1", s)

	// An update while requests go through both.
	asking, stop := context.WithCancel(t.Context())
	failed := make(chan string, 2)
	for _, at := range []string{at, beside} {
		go func() {
			why := ""
			for asking.Err() == nil && why == "" {
				resp, err := http.Get(at + "/?ms=20")
				if err != nil {
					why = err.Error()
					break
				}
				if resp.StatusCode != http.StatusOK {
					why = at + ": " + resp.Status
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			failed <- why
		}()
	}
	w.sky(nil, "serve", "update", "-y", "chat", version("v2"))
	s = w.served(2, 2)
	stop()
	for range 2 {
		if why := <-failed; why != "" {
			t.Errorf("a request during the update: %s", why)
		}
	}
	w.asksAll(at, "v2", s)
	w.sky([]string{"serving v2 on"}, "serve", "logs", "chat", fmt.Sprint(s.Replicas[0].ID), "--no-follow")
	w.sky(nil, "serve", "down", "-y", "chat")
	eventually(t, "the service to be gone", func() bool { return w.chat() == nil })
	if left := w.names("pods"); len(left) > 0 {
		t.Errorf("pods are left: %v", left)
	}
}

// asksAll sees that both replicas answer at a balancer, and that what is not one short
// request goes through, too.
func (w *workstation) asksAll(at, version string, s *api.Service) {
	w.t.Helper()
	seen := map[string]bool{}
	eventually(w.t, "answers of both replicas", func() bool {
		seen[answer(w.t, at, "/")] = true
		for _, r := range s.Replicas {
			if !seen[fmt.Sprint(version, " ", r.ID)] {
				return false
			}
		}
		return true
	})
	if got := answer(w.t, at, "/stream?n=20"); !strings.Contains(got, "data: 19\n") || !strings.HasSuffix(got, "data: done by "+version+"\n\n") {
		w.t.Errorf("a stream ended with %q", got[max(0, len(got)-80):])
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	resp, err := (&http.Client{Timeout: time.Minute}).Post(at+"/upload", "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	sum, err := io.ReadAll(resp.Body)
	if resp.Body.Close(); err != nil || len(sum) != 64 {
		w.t.Errorf("an upload: %s %q %v", resp.Status, sum, err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, at+"/websocket", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.CloseNow()
	for _, text := range []string{"one", "two"} {
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			w.t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || string(got) != version+" "+text {
			w.t.Fatalf("the echo of %q is %q, %v", text, got, err)
		}
	}
}
