//go:build kubernetes && linux

package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

const (
	registryUser = "robot"
	registryPass = "hunter2"
)

// beside is an address of this machine that the cluster's machines reach, with a
// port that is free.
func beside(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", strings.TrimSuffix(address, ".1")+".254:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// daemon runs a program until the test ends, or this process.
func daemon(t *testing.T, log, name string, args ...string) *os.Process {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		patience := time.AfterFunc(10*time.Second, func() { c.Process.Kill() })
		c.Wait()
		patience.Stop()
		if t.Failed() {
			said, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", name, said[max(0, len(said)-4000):])
		}
	})
	return c.Process
}

// plainly lets the machine's containerd talk to a registry without TLS.
func plainly(t *testing.T, at string) {
	t.Helper()
	hosts := filepath.Join(place, "registries", at, "hosts.toml")
	os.MkdirAll(filepath.Dir(hosts), 0o755)
	if err := os.WriteFile(hosts, []byte(fmt.Sprintf("server = \"http://%s\"\n[host.\"http://%s\"]\n", at, at)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// startRegistry runs Docker's own registry with a password, and an image in
// it as team/shell:1.
func startRegistry(t *testing.T) (at string) {
	t.Helper()
	dir, at := t.TempDir(), beside(t)
	hash, err := bcrypt.GenerateFromPassword([]byte(registryPass), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	users := write("users", registryUser+":"+string(hash)+"\n")
	conf := write("config.yml", fmt.Sprintf("version: 0.1\nlog: {level: warn}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: '%s'}\nauth: {htpasswd: {realm: test, path: %s}}\n",
		filepath.Join(dir, "data"), at, users))
	daemon(t, filepath.Join(dir, "log"), "/usr/bin/docker-registry", "serve", conf)
	plainly(t, at)
	eventually(t, "the registry", func() bool {
		res, err := client.Get("http://" + at + "/v2/")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusUnauthorized
	})
	ctr := func(args ...string) {
		t.Helper()
		args = append([]string{"-a", filepath.Join(place, "containerd.sock"), "-n", "k8s.io", "images"}, args...)
		if out, err := exec.Command("ctr", args...).CombinedOutput(); err != nil {
			t.Fatalf("ctr %v: %v\n%s", args, err, out)
		}
	}
	ctr("push", "--plain-http", "--user", registryUser+":"+registryPass, at+"/team/shell:1", "localhost/private:1")
	return at
}

// always lets pods pull, as they do unless somebody says otherwise.
const always = "\n  allowed_nodes: {names: [real-1]}\n"

// An image comes from a registry with a password: with a login in the task, which
// goes with the cluster, or with a Secret that is there. A launch that the
// registry refuses ends and says what to do.
func TestAPrivateRegistry(t *testing.T) {
	t.Parallel()
	at := startRegistry(t)
	w := newWorkstation(t, always)
	login := func(password string) string {
		return fmt.Sprintf("secrets: {SKYPILOT_DOCKER_USERNAME: %s, SKYPILOT_DOCKER_PASSWORD: %s, SKYPILOT_DOCKER_SERVER: '%s'}\n", registryUser, password, at)
	}
	patch := func(secret string) string {
		return "config: {kubernetes: {pod_config: {spec: {imagePullSecrets: [{name: " + secret + "}]}}}}\n"
	}
	logins := func() (ours []string) {
		for _, name := range w.names("secrets") {
			if strings.HasSuffix(name, "-skypilot-registry") {
				ours = append(ours, name)
			}
		}
		return ours
	}
	const run = "run: echo it came\n"
	whole := at + "/team/shell:1"
	for _, c := range []struct{ name, image, more, says string }{
		{"open", whole, "", "refuses who does not log in; set SKYPILOT_DOCKER_USERNAME"},
		{"guess", "team/shell:1", login("guess"), "refuses the task's login; look at SKYPILOT_DOCKER_USERNAME"},
		{"gone", whole, patch("nobody-has-it"), "refuses the login of nobody-has-it (imagePullSecrets); look whether the secret is in namespace " + w.namespace},
		{"tag", "team/shell:2", login(registryPass), "has none of that name and tag"},
	} {
		w.refused([]string{"cannot be pulled, as " + at, c.says}, "launch", "-y", "-c", c.name, w.task(c.name+".yaml", c.image, run+c.more))
	}
	if left := append(w.names("pods"), logins()...); len(left) > 0 {
		t.Errorf("refused launches left %v", left)
	}

	w.sky([]string{"it came", "SUCCEEDED"}, "launch", "-y", "-c", "ours", w.task("ours.yaml", "team/shell:1", "num_nodes: 2\n"+run+login(registryPass)))
	kept := logins()
	if len(kept) != 1 {
		t.Fatalf("logins in the cluster: %v", kept)
	}
	// A pod that is made again later pulls with the same login.
	for _, name := range w.names("pods") {
		if strings.HasSuffix(name, "-worker1") {
			mustAsk(t, "DELETE", w.path("pods/"+name), obj{"gracePeriodSeconds": 0})
		}
	}
	eventually(t, "the worker to be missed", func() bool {
		out, _ := w.run("status", "-r", "ours", "-o", "json")
		return strings.Contains(out, `"INIT"`)
	})
	w.sky(nil, "start", "-y", "ours")
	if n := len(w.names("pods")); n != 2 {
		t.Errorf("%d pods after a start", n)
	}
	if out := w.sky([]string{"ours"}, "status", "-v", "-o", "json"); strings.Contains(out, registryPass) {
		t.Errorf("the password is shown:\n%s", out)
	}
	w.sky(nil, "down", "-y", "ours")
	if left := logins(); len(left) > 0 {
		t.Errorf("the login outlives the cluster: %v", left)
	}

	auths, _ := json.Marshal(obj{"auths": obj{at: obj{"username": registryUser, "password": registryPass}}})
	mustAsk(t, "POST", w.path("secrets"), obj{"apiVersion": "v1", "kind": "Secret", "metadata": obj{"name": "theirs"}, "type": "kubernetes.io/dockerconfigjson",
		"data": obj{".dockerconfigjson": base64.StdEncoding.EncodeToString(auths)}})
	w.sky([]string{"it came", "SUCCEEDED"}, "launch", "-y", "-c", "named", w.task("named.yaml", whole, run+patch("theirs")))
	w.sky(nil, "down", "-y", "named")
	if left := w.names("secrets"); len(left) != 1 || left[0] != "theirs" {
		t.Errorf("secrets after all: %v", left)
	}
	mustAsk(t, "DELETE", w.path("secrets/theirs"), nil)
}
