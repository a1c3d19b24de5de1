//go:build unix

package fluffycloud_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/machine"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/proc"
)

// rented is a provider over a real cloud with one cluster on it.
type rented struct {
	*realCloud
	p     *fluffycloud.Provider
	spec  cloud.LaunchSpec
	nodes []cloud.Node
}

func rent(t *testing.T, o cloud.Offer, n int) *rented {
	t.Helper()
	r := &rented{realCloud: startCloud(t)}
	r.p = fluffycloud.New(fluffycloud.Options{API: r.client(t, "owner"), Poll: 10 * time.Millisecond})
	r.spec = cloud.LaunchSpec{
		ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h1"}, Offer: o, Nodes: n, Token: "t1", AuthorizedKey: r.authorizedKey(),
	}
	r.launch(t)
	return r
}

func (r *rented) launch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.p.Prepare(ctx, r.spec); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.nodes, err = r.p.Launch(ctx, r.spec); err != nil {
		t.Fatal(err)
	}
}

func (r *rented) folder(n cloud.Node) string { return filepath.Join(r.dir, "machines", n.ID) }

// processes are those of a machine, as the system lists them.
func (r *rented) processes(n cloud.Node) []int { return proc.Marked(machine.EnvMachine, r.folder(n)) }

func (r *rented) ssh(t *testing.T, n cloud.Node) *ssh.Client {
	t.Helper()
	c, err := r.dial(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (r *rented) session(t *testing.T, n cloud.Node) *ssh.Session {
	t.Helper()
	s, err := r.ssh(t, n).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}

func TestASessionIsLikeOneOfOpenSSH(t *testing.T) {
	r := rent(t, offer("east-a", false), 1)
	n := r.nodes[0]
	for _, tt := range []struct{ name, line, stdin, stdout, stderr string }{
		{"output and errors are apart", "echo out; echo err >&2", "", "out\n", "err\n"},
		{"input ends", "cat; echo end", "data\n", "data\nend\n", ""},
		{"it begins in the home", `test "$PWD" = "$HOME" && echo home`, "", "home\n", ""},
		{"the machine's programs come first", "command -v poweroff | sed 's,.*/bin/,bin/,'", "", "bin/poweroff\n", ""},
		{"sudo is there", "sudo -n env A=1 sh -c 'echo $A'", "", "1\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := r.session(t, n)
			var out, errs bytes.Buffer
			s.Stdin, s.Stdout, s.Stderr = strings.NewReader(tt.stdin), &out, &errs
			if err := s.Run(tt.line); err != nil || out.String() != tt.stdout || errs.String() != tt.stderr {
				t.Errorf("%v, stdout %q, stderr %q", err, &out, &errs)
			}
		})
	}
	t.Run("the exit status is told", func(t *testing.T) {
		var exit *ssh.ExitError
		if err := r.session(t, n).Run("exit 7"); !errors.As(err, &exit) || exit.ExitStatus() != 7 {
			t.Error(err)
		}
	})
	t.Run("the signal is told", func(t *testing.T) {
		var exit *ssh.ExitError
		if err := r.session(t, n).Run("kill -KILL $$"); !errors.As(err, &exit) || exit.Signal() != "KILL" {
			t.Error(err)
		}
	})
	t.Run("signals are passed on", func(t *testing.T) {
		s := r.session(t, n)
		out, err := s.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start("trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if err := s.Signal("USR1"); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out)
		var exit *ssh.ExitError
		if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 3 || string(rest) != "caught\n" {
			t.Errorf("%v, %q", err, rest)
		}
	})
	t.Run("the environment is passed on, except for what names the machine", func(t *testing.T) {
		s := r.session(t, n)
		if err := s.Setenv("GREETING", "hi there"); err != nil {
			t.Error(err)
		}
		if err := s.Setenv(machine.EnvMachine, "elsewhere"); err == nil {
			t.Error("a session can leave its machine")
		}
		if out, err := s.Output("echo $GREETING"); err != nil || string(out) != "hi there\n" {
			t.Errorf("%v, %q", err, out)
		}
	})
	t.Run("a terminal has a size that can change", func(t *testing.T) {
		s := r.session(t, n)
		if err := s.RequestPty("xterm", 30, 90, ssh.TerminalModes{}); err != nil {
			t.Fatal(err)
		}
		in, err := s.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out lockedBuffer
		s.Stdout = &out
		if err := s.Shell(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(in, "stty size; echo $TERM")
		eventually(t, "30 90", func() bool { return strings.Contains(out.String(), "30 90") && strings.Contains(out.String(), "xterm") })
		if err := s.WindowChange(40, 100); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(in, "stty size")
		eventually(t, "40 100", func() bool { return strings.Contains(out.String(), "40 100") })
		fmt.Fprintln(in, "exit 4")
		var exit *ssh.ExitError
		if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 4 {
			t.Error(err)
		}
	})
	t.Run("what was started without a terminal outlives the connection", func(t *testing.T) {
		c := r.ssh(t, n)
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run("sleep 600 >/dev/null 2>&1 </dev/null & echo $! > sleeper"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		time.Sleep(50 * time.Millisecond)
		var pid int
		if _, err := fmt.Sscan(r.exec(t, n, "cat sleeper", ""), &pid); err != nil || !proc.Alive(pid, "") {
			t.Errorf("process %d ended with the connection (%v)", pid, err)
		}
	})
}

func TestLoginsNeedTheKeyAndTheUser(t *testing.T) {
	r := rent(t, offer("east-a", false), 1)
	stranger := &realCloud{dir: r.dir, key: startKey(t)}
	if c, err := stranger.dial(r.nodes[0]); err == nil {
		c.Close()
		t.Error("a stranger's key lets in")
	}
	root := r.nodes[0]
	root.Reach.User = "root"
	if c, err := r.dial(root); err == nil {
		c.Close()
		t.Error("another user is let in")
	}
}

func TestPortsAndSocketsAreForwarded(t *testing.T) {
	r := rent(t, offer("east-a", false), 1)
	c := r.ssh(t, r.nodes[0])
	for _, tt := range []struct{ network, address string }{
		{"tcp", net.JoinHostPort(r.nodes[0].InternalIP, "0")},
		{"unix", filepath.Join(r.folder(r.nodes[0]), "home", "agent.sock")},
	} {
		t.Run(tt.network, func(t *testing.T) {
			l, err := net.Listen(tt.network, tt.address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				all, _ := io.ReadAll(conn) // ends by the half that is closed
				fmt.Fprintf(conn, "got %d", len(all))
			}()
			conn, err := c.Dial(tt.network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(make([]byte, 300_000)); err != nil {
				t.Fatal(err)
			}
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(conn); err != nil || string(got) != "got 300000" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	if conn, err := c.Dial("unix", "/nonexistent/socket"); err == nil {
		conn.Close()
		t.Error("a socket that is not there was forwarded")
	}
}

func TestNvidiaSMISaysWhatTheTypeSays(t *testing.T) {
	o := offer("east-a", false)
	o.InstanceType = "fluff-a100-8"
	r := rent(t, o, 1)
	id := strings.TrimPrefix(r.nodes[0].ID, "fc-")
	for line, want := range map[string]string{
		"nvidia-smi --query-gpu=uuid --format=csv,noheader | tail -1":                             "GPU-" + id + "-0000-4000-8000-000000000007\n",
		"nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits | sort | uniq -c": "      8 NVIDIA A100-SXM4-40GB, 40960\n",
		"nvidia-smi --query-gpu=index,memory.used --format=csv -i 3":                              "index, memory.used\n3, 0 MiB\n",
		"nvidia-smi -L | wc -l":                                      "8\n",
		"nvidia-smi | grep -c A100":                                  "8\n",
		"nvidia-smi --query-gpu=nonsense --format=csv 2>&1; echo $?": "nonsense\nField \"nonsense\" is not a valid field to query.\n2\n",
	} {
		if got := r.exec(t, r.nodes[0], line, ""); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	r.spec.ID.Name, r.spec.Offer, r.spec.Token = "plain", offer("east-a", false), "t2"
	r.launch(t)
	if got := r.exec(t, r.nodes[0], "nvidia-smi >/dev/null; echo $?", ""); got != "9\n" {
		t.Errorf("a machine without GPUs: %q", got)
	}
}

// stubborn leaves processes behind that ignore what they can; one hides in a
// session of its own.
const stubborn = `sh -c 'trap "" TERM HUP; (setsid sh -c "trap \"\" TERM; while :; do sleep 1; done" &) ; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &`

func TestMachinesThatEndTakeTheirProcessesAlong(t *testing.T) {
	r := rent(t, offer("east-a", true), 4)
	for _, n := range r.nodes {
		r.exec(t, n, stubborn, "")
		eventually(t, "the machine has its processes", func() bool { return len(r.processes(n)) >= 4 })
	}
	body := map[string]any{}
	r.admin(t, "POST", "instances/"+r.nodes[1].ID+"/kill", body)
	r.admin(t, "POST", "instances/"+r.nodes[2].ID+"/preempt", body)
	r.admin(t, "POST", "instances/"+r.nodes[3].ID+"/halt", body)
	for _, n := range r.nodes[1:] {
		eventually(t, fmt.Sprintf("rank %d has no processes", n.Rank), func() bool { return len(r.processes(n)) == 0 })
	}
	if len(r.processes(r.nodes[0])) < 3 { // its ssh server and two shells, whose sleeps come and go
		t.Error("the head lost processes with the others")
	}
	if err := r.p.Stop(t.Context(), r.spec.ID); err != nil {
		t.Fatal(err)
	}
	if left := r.processes(r.nodes[0]); len(left) > 0 {
		t.Errorf("stopped, and %v still run", left)
	}
	if err := r.p.Terminate(t.Context(), r.spec.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(r.dir, "machines")); len(left) > 0 {
		t.Errorf("folders are left: %v", left)
	}
}

func TestAKilledServerFindsItsMachinesAgain(t *testing.T) {
	r := rent(t, offer("east-a", false), 2)
	r.exec(t, r.nodes[0], "echo kept > data; sleep 600 >/dev/null 2>&1 </dev/null &", "")
	var before []int
	eventually(t, "the ssh server and the sleeper run, and the shell has ended", func() bool {
		before = r.processes(r.nodes[0])
		return len(before) == 2 && strings.Contains(commandLine(before[1])+commandLine(before[0]), "sleep")
	})
	r.kill()
	for _, n := range r.nodes { // the machines do not need the server
		if got := r.exec(t, n, "echo up", ""); got != "up\n" {
			t.Errorf("rank %d: %q", n.Rank, got)
		}
	}
	// One breaks while nobody looks.
	for _, pid := range r.processes(r.nodes[1]) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	r.serve(t)
	r.p = fluffycloud.New(fluffycloud.Options{API: r.client(t, "owner"), Poll: 10 * time.Millisecond})
	eventually(t, "the broken machine is seen as stopped", func() bool {
		nodes, err := r.p.Nodes(t.Context(), r.spec.ID)
		return err == nil && len(nodes) == 2 && nodes[0].State == cloud.NodeRunning && nodes[1].State == cloud.NodeStopped
	})
	if now := r.processes(r.nodes[0]); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("the healthy machine had %v and has %v", before, now)
	}
	old := r.nodes
	r.launch(t)
	if r.nodes[0].ID != old[0].ID || r.nodes[1].ID != old[1].ID || r.exec(t, r.nodes[0], "cat data", "") != "kept\n" {
		t.Errorf("%v after %v", r.nodes, old)
	}
}

func commandLine(pid int) string {
	out, _ := exec.Command("ps", "-o", "args=", "-p", fmt.Sprint(pid)).Output()
	return string(out)
}

func TestServersAreKilledAtAnyMoment(t *testing.T) {
	r := rent(t, offer("east-a", false), 1)
	for round := range 6 {
		r.spec.ID.Name, r.spec.Token, r.spec.Nodes = fmt.Sprintf("c%d", round), fmt.Sprintf("r%d", round), 3
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		launched := make(chan error, 1)
		go func() {
			_ = r.p.Prepare(ctx, r.spec)
			_, err := r.p.Launch(ctx, r.spec)
			launched <- err
		}()
		time.Sleep(time.Duration(round*round) * 3 * time.Millisecond)
		r.kill()
		<-launched
		cancel()
		r.serve(t)
		r.p = fluffycloud.New(fluffycloud.Options{API: r.client(t, "owner"), Poll: 10 * time.Millisecond})
		r.launch(t) // as the engine does after a crash
		all, err := r.p.Nodes(t.Context(), cloud.ClusterID{Installation: "i", Name: r.spec.ID.Name})
		if err != nil || len(all) != 3 {
			t.Fatalf("round %d: %v, %v", round, all, err)
		}
		if err := r.p.Terminate(t.Context(), r.spec.ID); err != nil {
			t.Fatal(err)
		}
	}
	folders, err := os.ReadDir(filepath.Join(r.dir, "machines"))
	if err != nil || len(folders) != 1 {
		t.Errorf("%d machines are left, want the first one: %v", len(folders), err)
	}
}

func TestTokensAndBodiesAreChecked(t *testing.T) {
	r := startCloud(t)
	ctx := t.Context()
	reader := r.client(t, "reader")
	if a, err := reader.Account(ctx); err != nil || a.Role != "reader" {
		t.Errorf("%+v, %v", a, err)
	}
	codes := map[string]struct {
		want fluffyapi.Code
		call func() error
	}{
		"a reader may not touch": {fluffyapi.Forbidden, func() error { _, err := reader.Create(ctx, fluffyapi.Create{}); return err }},
		"nobody's token": {fluffyapi.Unauthorized, func() error {
			_, err := fluffyapi.NewClient(new(rest.Clients), r.endpoint(t), "x").Account(ctx)
			return err
		}},
		"the operator is no customer":   {fluffyapi.Forbidden, func() error { _, err := r.client(t, "admin").Account(ctx); return err }},
		"an instance that is not there": {fluffyapi.NotFound, func() error { _, err := reader.Instance(ctx, "fc-1"); return err }},
		"a page that is not there":      {fluffyapi.Invalid, func() error { _, err := reader.Instances(ctx, fluffyapi.Query{Page: "x"}); return err }},
		"a create of nothing":           {fluffyapi.Invalid, func() error { _, err := r.client(t, "owner").Create(ctx, fluffyapi.Create{}); return err }},
	}
	for name, c := range codes {
		var e *fluffyapi.Error
		if err := c.call(); !errors.As(err, &e) || e.Code != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if out, err := command(t, "serve", "--dir", t.TempDir(), "--listen", "0.0.0.0:0").CombinedOutput(); err == nil || !strings.Contains(string(out), "this machine alone") {
		t.Errorf("it serves the world: %s", out)
	}
	if out, err := command(t, "serve", "--dir", r.dir, "--listen", "127.0.0.1:0").CombinedOutput(); err == nil || !strings.Contains(string(out), "another server") {
		t.Errorf("two servers in one folder: %s", out)
	}
}

func TestTheLedgerOfRealMachinesEndsWithThem(t *testing.T) {
	r := rent(t, offer("east-a", false), 2)
	if err := r.p.Terminate(t.Context(), r.spec.ID); err != nil {
		t.Fatal(err)
	}
	var ledger []model.Bill
	if err := json.Unmarshal(r.admin(t, "GET", "ledger", nil), &ledger); err != nil || len(ledger) != 2 {
		t.Fatalf("%v, %v", ledger, err)
	}
	for _, b := range ledger {
		if b.To.IsZero() || b.Price <= 0 {
			t.Errorf("%+v", b)
		}
	}
}
