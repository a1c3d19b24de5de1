//go:build kubernetes && linux

// Package kubernetes runs the real binary and the provider against a real
// cluster: control plane, kubelet and containerd on this machine. It starts one
// by itself (cluster.sh), which takes root on Debian, and minutes for the first
// time, when it builds what it needs (setup.sh):
//
//	go test -tags kubernetes ./test/kubernetes
package kubernetes

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/test/harness"
)

var (
	binary  string
	place   string // where the cluster is
	address string // of it, and of this machine as pods see it
)

func TestMain(m *testing.M) {
	os.Exit(inPlace(m.Run))
}

// inPlace builds the binary, starts the cluster, runs the tests and ends it.
// With SKY_TEST_PLACE, a folder, the cluster stays there for the next time;
// "cluster.sh down $SKY_TEST_PLACE" ends it.
func inPlace(tests func() int) (code int) {
	place = os.Getenv("SKY_TEST_PLACE")
	if place == "" {
		var err error
		if place, err = os.MkdirTemp("", "sky-kubernetes-"); err != nil {
			panic(err)
		}
		defer func() {
			if err := script("down", place); err != nil {
				fmt.Fprintln(os.Stderr, "ending the cluster:", err)
				code = 1
			}
		}()
	}
	if _, err := os.Stat(filepath.Join(place, "up")); err != nil {
		if err := script("up", place); err != nil {
			fmt.Fprintln(os.Stderr, "starting a cluster:", err)
			return 1
		}
		if err := os.WriteFile(filepath.Join(place, "up"), nil, 0o600); err != nil {
			panic(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(place, "address"))
	if err != nil {
		panic(err)
	}
	address = strings.TrimSpace(string(b))
	os.Setenv("KUBECONFIG", kubeconfig())
	binary = filepath.Join(place, "sky")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "../../cmd/sky") // as .ci/run builds it for release
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building sky: %v\n%s", err, out)
		return 1
	}
	return tests()
}

// script runs cluster.sh. Its output goes to a file: the cluster's programs
// would keep a pipe open.
func script(args ...string) error {
	out, err := os.CreateTemp("", "cluster-*.log")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.Command("bash", append([]string{"cluster.sh"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name())
		return fmt.Errorf("cluster.sh %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return nil
}

func mustScript(t testing.TB, args ...string) {
	t.Helper()
	if err := script(args...); err != nil {
		t.Fatal(err)
	}
}

func kubeconfig() string { return filepath.Join(place, "kubeconfig") }

var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// ask asks the API server, in the default namespace, as an administrator.
func ask(method, path string, body any) (map[string]any, int, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, 0, err
		}
		in = bytes.NewReader(b)
	}
	if !strings.HasPrefix(path, "/") {
		path = "/api/v1/namespaces/default/" + path
	}
	req, err := http.NewRequest(method, "https://"+net.JoinHostPort(address, "6443")+path, in)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Authorization", "Bearer admintoken")
	req.Header.Set("Content-Type", map[string]string{"PATCH": "application/merge-patch+json"}[method])
	if method != "PATCH" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	var out map[string]any
	err = json.NewDecoder(res.Body).Decode(&out)
	return out, res.StatusCode, err
}

func mustAsk(t testing.TB, method, path string, body any) map[string]any {
	t.Helper()
	out, code, err := ask(method, path, body)
	if err != nil || code >= 300 {
		t.Fatalf("%s %s: %d %v %v", method, path, code, err, out["message"])
	}
	return out
}

// names lists the objects of a kind.
func names(t testing.TB, path string) (out []string) {
	t.Helper()
	items, _ := mustAsk(t, "GET", path, nil)["items"].([]any)
	for _, item := range items {
		meta := item.(map[string]any)["metadata"].(map[string]any)
		out = append(out, meta["name"].(string))
	}
	return out
}

// eventually waits until ok; the limit is for what never comes.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	harness.Eventually(t, what, 3*time.Minute, ok)
}

// ready reports whether the machine answers, and pods may go there again.
func ready(t testing.TB) bool {
	node := mustAsk(t, "GET", "/api/v1/nodes/real-1", nil)
	if taints, _ := node["spec"].(map[string]any)["taints"].([]any); len(taints) > 0 {
		return false
	}
	for _, c := range node["status"].(map[string]any)["conditions"].([]any) {
		if c := c.(map[string]any); c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}

// settings put pods onto the real machine, from images that it has.
const settings = `
  allowed_nodes: {names: [real-1]}
  pod_config: {spec: {containers: [{imagePullPolicy: IfNotPresent}]}}
`

// workstation is a [harness.Workstation] with a namespace of the cluster.
type workstation struct {
	t         testing.TB
	home      string
	env       []string
	namespace string
	port      string // of the user's server
	after     func() // when everything is given back; nil: nothing
}

func (w *workstation) of() *harness.Workstation {
	return &harness.Workstation{T: w.t, Home: w.home, Env: w.env, Binary: binary}
}

func newWorkstation(t testing.TB, settings string) *workstation {
	t.Helper()
	home, err := os.MkdirTemp(place, "user-")
	if err != nil {
		t.Fatal(err)
	}
	port := porttest.Free(t)
	w := &workstation{t: t, home: home, namespace: filepath.Base(home), port: strconv.Itoa(port), env: []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "USER=tester", "SHELL=/bin/bash", "LANG=C.UTF-8",
		"SKY_API_PORT=" + strconv.Itoa(port), "KUBECONFIG=" + kubeconfig(),
	}}
	w.write(".sky/config.yaml", "kubernetes:\n  namespace: "+w.namespace+settings)
	mustAsk(t, "POST", "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": w.namespace}})
	t.Cleanup(w.close)
	return w
}

// close gives everything back and looks whether anything is left.
func (w *workstation) close() {
	if w.t.Failed() {
		w.t.Logf("server log:\n%s", harness.TailOf(w.of().ServerLog(), 6000))
	}
	if out, code := w.run("down", "-a", "-y"); code != 0 {
		w.t.Errorf("down -a: exit %d\n%s", code, out)
	}
	w.run("api", "stop")
	for _, kind := range []string{"pods", "services", "persistentvolumeclaims", "secrets", "/apis/networking.k8s.io/v1/namespaces/" + w.namespace + "/ingresses"} {
		if left := w.names(kind); len(left) > 0 {
			w.t.Errorf("%s are left: %v", kind, left)
		}
	}
	if w.after != nil {
		w.after()
	}
	mustAsk(w.t, "DELETE", "/api/v1/namespaces/"+w.namespace, nil)
	os.RemoveAll(w.home)
}

// path is that of a kind, or of an object, in the user's namespace.
func (w *workstation) path(of string) string { return "/api/v1/namespaces/" + w.namespace + "/" + of }

func (w *workstation) names(kind string) []string {
	w.t.Helper()
	if strings.HasPrefix(kind, "/") {
		return names(w.t, kind)
	}
	return names(w.t, w.path(kind))
}

func (w *workstation) write(name, text string) string {
	w.t.Helper()
	return w.of().Write(name, text)
}

// run runs sky and returns what it printed and its exit code.
func (w *workstation) run(args ...string) (string, int) {
	w.t.Helper()
	return w.of().RunFor(5*time.Minute, args...)
}

// sky must succeed and print all of want.
func (w *workstation) sky(want []string, args ...string) string {
	w.t.Helper()
	out, code := w.run(args...)
	if code != 0 {
		w.t.Fatalf("sky %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	w.has(out, want, args)
	return out
}

// refused must fail and print all of want.
func (w *workstation) refused(want []string, args ...string) {
	w.t.Helper()
	out, code := w.run(args...)
	if code == 0 {
		w.t.Errorf("sky %s: succeeded\n%s", strings.Join(args, " "), out)
	}
	w.has(out, want, args)
}

func (w *workstation) has(out string, want, args []string) {
	w.t.Helper()
	flat := strings.Join(strings.Fields(out), " ") // long lines are folded
	for _, s := range want {
		if !strings.Contains(flat, s) {
			w.t.Errorf("sky %s: no %q in\n%s", strings.Join(args, " "), s, out)
		}
	}
}

// task is a file that asks for a small pod of that image.
func (w *workstation) task(name, image, more string) string {
	return w.write(name, "resources:\n  infra: kubernetes\n  cpus: 0.1\n  memory: 0.1\n  image_id: docker:"+image+"\n"+more)
}
