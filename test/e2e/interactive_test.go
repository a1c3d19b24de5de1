//go:build e2e && linux

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An interactive node is launched, connected to, and connected to again; a port in use
// is known before anything is rented.
func TestInteractiveNode(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	port := used.Addr().(*net.TCPAddr).Port
	w.fails(1, []string{fmt.Sprintf("port %d of this machine cannot be forwarded", port), "in use"}, "cpunode", "-y", "--infra", "local", "-p", fmt.Sprintf("%d:80", port))
	if left := w.folders(); len(left) > 0 {
		t.Errorf("a port in use left %v", left)
	}
	shell := func(input string, args ...string) string {
		t.Helper()
		c := w.command(args...)
		c.Stdin = strings.NewReader(input)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("sky %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	out := shell("echo here: $HOME", "cpunode", "-y", "-c", "lab", "--infra", "local", "-i", "30")
	wants(t, out, "Setting up interactive node lab", "here: ", "node-0/home", "sky cpunode -c lab", "sky stop lab", "sky down lab")
	wants(t, w.sky("status"), "lab", "30m")
	out = shell("echo again; false", "cpunode", "-c", "lab", "-i", "45", "--down")
	wants(t, out, "again", "sky cpunode -c lab")
	if strings.Contains(out, "Setting up") {
		t.Errorf("a node that is up is launched again:\n%s", out)
	}
	wants(t, w.sky("status"), "45m (down)")
	w.fails(2, []string{"exists and is not what the options ask for", "sky gpunode -c NEW_NAME"}, "gpunode", "-c", "lab", "--gpus", "A100")
	w.sky("stop", "-y", "lab")
	wants(t, shell("echo awake", "cpunode", "-y", "-c", "lab"), "Setting up interactive node lab", "awake")
	w.sky("down", "-y", "lab")
}

// Ports are forwarded through the server: until Ctrl-C, and until the node is gone.
func TestForwardedPorts(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "c1", "--infra", "local", "--num-nodes", "2")
	var served [2]*httptest.Server
	for i := range served {
		served[i] = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(rw, "server %d got %d bytes", i, n)
		}))
		defer served[i].Close()
	}
	port := func(s *httptest.Server) string { _, p, _ := net.SplitHostPort(s.Listener.Addr().String()); return p }
	// begin forwards both ports and returns where they are here.
	begin := func(node string) (cmd *exec.Cmd, at []string, ended func() (string, int)) {
		t.Helper()
		cmd = w.command("ssh", "c1", "--node", node, "-N", "-p", "0:"+port(served[0]), "-L", "0:127.0.0.1:"+port(served[1]))
		r, wr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = wr, wr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wr.Close()
		t.Cleanup(func() { _ = cmd.Process.Kill(); r.Close() })
		lines := bufio.NewReader(r)
		for range 2 {
			line, err := lines.ReadString('\n')
			address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
			if err != nil || !strings.Contains(line, "leads to") || address == "" {
				t.Fatalf("%q %v", line, err)
			}
			at = append(at, address)
		}
		return cmd, at, func() (string, int) {
			rest, _ := io.ReadAll(lines)
			_ = cmd.Wait()
			return string(rest), cmd.ProcessState.ExitCode()
		}
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(address string) string {
		res, err := client.Post("http://"+address, "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return string(b)
	}
	closed := func(at []string) {
		t.Helper()
		for _, address := range at {
			if c, err := net.Dial("tcp", address); err == nil {
				c.Close()
				t.Errorf("%s is still open", address)
			}
		}
	}
	cmd, at, ended := begin("1")
	for i, address := range at {
		if got, want := post(address), fmt.Sprintf("server %d got 1048576 bytes", i); got != want {
			t.Errorf("port %d: %s", i, got)
		}
	}
	served[0].Close()
	post(at[0])
	_ = cmd.Process.Signal(syscall.SIGINT)
	if out, code := ended(); code == 0 || !strings.Contains(out, "cannot connect to localhost:"+port(served[0])) {
		t.Errorf("exit %d\n%s", code, out)
	}
	closed(at)
	_, at, ended = begin("0")
	if got := post(at[1]); got != "server 1 got 1048576 bytes" {
		t.Error(got)
	}
	w.sky("down", "-y", "c1")
	if out, code := ended(); code != 1 || !strings.Contains(out, "c1") {
		t.Errorf("the node is gone: exit %d\n%s", code, out)
	}
	closed(at)
}

// A shell with a forwarded port on a rented machine, which is reached through its sshd:
// the port is there while the shell is open.
func TestForwardedPortsOfARentedMachine(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 0)
	f.sky("launch", "-y", "-c", "c1", "--infra", "fluffycloud")
	served := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "hello") }))
	defer served.Close()
	_, port, _ := net.SplitHostPort(served.Listener.Addr().String())
	cmd := f.command("ssh", "c1", "-p", "0:127.0.0.1:"+port)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(r).ReadString('\n')
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if err != nil || address == "" {
		t.Fatalf("%q %v", line, err)
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if string(b) != "hello" {
		t.Errorf("%q", b)
	}
	in.Close() // the shell's end
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("the port outlives the shell")
	}
	f.sky("down", "-y", "c1")
}
