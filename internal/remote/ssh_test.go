//go:build linux

package remote

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/remote/nodeagent"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
	"github.com/skypilot-go/sky/internal/state"
)

// TestMain lets the test binary be the agent that is brought onto nodes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(nodeagent.Main(os.Args[2:]))
	}
	code := m.Run()
	if dir, err := runtimeDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

const user = "abcd1234"

// machines are hosts with an sshd that admit the user's key, as a cloud's do.
type machines struct {
	t     *testing.T
	home  string
	hosts []*sshtest.Server
	c     *state.Cluster
}

func newMachines(t *testing.T, n int) *machines {
	t.Helper()
	m := &machines{t: t, home: t.TempDir()}
	_, public, err := sshconn.UserKey(filepath.Join(m.home, ".sky"), user)
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(public))
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.NewAuthority("c")
	if err != nil {
		t.Fatal(err)
	}
	m.c = &state.Cluster{Name: "c", NameOnCloud: "c-1", Hash: "hash", UserHash: user, Certs: state.Seal(certs), Epoch: 1, NumNodes: n}
	for rank := range n {
		h := sshtest.Start(t, key)
		m.hosts = append(m.hosts, h)
		m.c.Nodes = append(m.c.Nodes, cloud.Node{
			ID: fmt.Sprint("n", rank), Rank: rank, State: cloud.NodeRunning, Created: time.Now(),
			// Each has an address of its own, where its agent listens.
			InternalIP: fmt.Sprintf("127.%d.%d.%d", 100+rank, os.Getpid()>>8&255, 1+os.Getpid()&127),
			Reach:      cloud.Reach{Method: "ssh", Host: "127.0.0.1", Port: h.Port(), User: "u"},
		})
		t.Cleanup(func() { m.endAgent(h) })
	}
	return m
}

func (m *machines) connector() *Connector {
	pool := sshconn.New(sshconn.Options{Home: m.home, KnownHosts: filepath.Join(m.home, "known_hosts"), Timeout: time.Minute})
	m.t.Cleanup(pool.Close)
	return New(Options{
		BuildID: buildid.ID(), RuntimeDir: filepath.Join(m.home, "runtime"), SkyDir: filepath.Join(m.home, ".sky"),
		SSH: pool, SSHConfig: m.home,
	})
}

func (m *machines) ensure(r *Connector) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Minute)
	defer cancel()
	return r.Ensure(ctx, m.c)
}

func (m *machines) endAgent(h *sshtest.Server) {
	if l, ok := nodeagent.Running(h.Home); ok {
		syscall.Kill(l.PID, syscall.SIGKILL)
		proc.Wait(context.Background(), l.PID, l.Start)
	}
}

func TestAgentsAreBroughtOntoMachines(t *testing.T) {
	m := newMachines(t, 3)
	r := m.connector()
	if err := m.ensure(r); err != nil {
		t.Fatal(err)
	}
	info := func(rank int) *agentapi.Info {
		t.Helper()
		client, err := r.Node(m.c, rank)
		if err != nil {
			t.Fatal(err)
		}
		i, err := client.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	pids := []int{info(0).PID, info(1).PID, info(2).PID}
	for i, h := range m.hosts {
		for _, name := range []string{"node.key", "node.pem", "ca.pem"} {
			if st, err := os.Stat(filepath.Join(h.Home, ".sky/agent", name)); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("host %d: %s: %v, %v", i, name, st, err)
			}
		}
	}

	// Once more there is nothing to do, and nothing is done.
	sessions := m.hosts[0].Sessions.Load()
	if err := m.ensure(r); err != nil || info(0).PID != pids[0] || m.hosts[0].Sessions.Load() != sessions {
		t.Errorf("%v; agent %d after %d; %d more sessions", err, info(0).PID, pids[0], m.hosts[0].Sessions.Load()-sessions)
	}

	// A server that knows nothing finds them, and one that died is replaced
	// without the binary being sent again.
	m.endAgent(m.hosts[1])
	fresh := m.connector()
	for i := range m.c.Nodes {
		m.c.Nodes[i].Reach.Agent = ""
	}
	uploaded := modTime(t, m.hosts[1].Home)
	if err := m.ensure(fresh); err != nil {
		t.Fatal(err)
	}
	if info(0).PID != pids[0] || info(1).PID == pids[1] {
		t.Errorf("agents %d, %d after %v", info(0).PID, info(1).PID, pids)
	}
	if modTime(t, m.hosts[1].Home) != uploaded {
		t.Error("the binary was sent again")
	}
}

func modTime(t *testing.T, home string) time.Time {
	t.Helper()
	st, err := os.Stat(filepath.Join(home, ".sky/runtime", buildid.ID(), "sky"))
	if err != nil {
		t.Fatal(err)
	}
	return st.ModTime()
}

func TestMachinesWithoutToolsToUnpack(t *testing.T) {
	m := newMachines(t, 1)
	bin := t.TempDir()
	for _, tool := range []string{"sh", "cat", "chmod", "mv", "mkdir", "rm", "uname"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		os.Symlink(path, filepath.Join(bin, tool))
	}
	m.hosts[0].Set(func(k *sshtest.Knobs) { k.Env = map[string]string{"PATH": bin} })
	if err := m.ensure(m.connector()); err != nil {
		t.Fatal(err)
	}
}

func TestMachinesWhereForwardingIsForbidden(t *testing.T) {
	m := newMachines(t, 1)
	m.hosts[0].Set(func(k *sshtest.Knobs) { k.NoForwarding = true })
	r := m.connector()
	if err := m.ensure(r); err != nil {
		t.Fatal(err)
	}
	client, _ := r.Head(m.c)
	if _, err := client.Info(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAPortThatIsTaken(t *testing.T) {
	m := newMachines(t, 2)
	m.c.Nodes[1].InternalIP = m.c.Nodes[0].InternalIP // two users of one machine
	if err := m.ensure(m.connector()); err != nil {
		t.Fatal(err)
	}
	if m.c.Nodes[0].Reach.Agent == m.c.Nodes[1].Reach.Agent {
		t.Errorf("both listen on %s", m.c.Nodes[0].Reach.Agent)
	}
}

func TestAMachineThatIsStillBooting(t *testing.T) {
	m := newMachines(t, 1)
	m.hosts[0].Set(func(k *sshtest.Knobs) { k.Down = true })
	go func() {
		time.Sleep(1200 * time.Millisecond)
		m.hosts[0].Set(func(k *sshtest.Knobs) { k.Down = false })
	}()
	if err := m.ensure(m.connector()); err != nil {
		t.Fatal(err)
	}
}

// A machine that is switched on again is as old as its disk.
func TestAnOldMachineThatWasJustSwitchedOn(t *testing.T) {
	m := newMachines(t, 1)
	m.c.Nodes[0].Created = time.Now().Add(-24 * time.Hour)
	m.hosts[0].Set(func(k *sshtest.Knobs) { k.Down = true })
	r := m.connector()
	if err := m.ensure(r); !is[*sshconn.UnreachableError](err) {
		t.Fatalf("whoever only looks waited for it, or got %v", err)
	}
	var waited string
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ctx = cloud.WithWaitReports(ctx, func(what string) {
		waited = what
		m.hosts[0].Set(func(k *sshtest.Knobs) { k.Down = false })
	})
	if err := r.Install(ctx, m.c, Containers{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(waited, "head to boot: ") {
		t.Errorf("what it waited for was called %q", waited)
	}
}

func TestOfManyNodesTheFirstThatIsWaitedForIsTold(t *testing.T) {
	var told []string
	w := &waiting{told: func(what string) { told = append(told, what) }, of: make([]string, 3)}
	w.hear(2, "worker2")
	w.hear(1, "worker1")
	w.hear(2, "worker2 again")
	w.hear(1, "")
	w.hear(2, "")
	if want := []string{"worker2", "worker1", "worker1", "worker2 again"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestWhatCanBeWrongWithAMachine(t *testing.T) {
	said := func(text string, code int) func(*machines) {
		return func(m *machines) {
			shell := filepath.Join(m.home, "shell")
			os.WriteFile(shell, fmt.Appendf(nil, "#!/bin/sh\necho '%s'; echo '%s' >&2\nexit %d\n", text, text, code), 0o755)
			m.hosts[0].Set(func(k *sshtest.Knobs) { k.Shell = shell })
		}
	}
	for _, tt := range []struct {
		name  string
		wrong func(*machines)
		is    func(error) bool
	}{
		{"the key is refused", func(m *machines) { m.hosts[0].Set(func(k *sshtest.Knobs) { k.Allow = nil }) }, is[*sshconn.AuthError]},
		{"nobody is there", func(m *machines) { m.hosts[0].Close() }, is[*sshconn.UnreachableError]},
		{"another key than the cloud told", func(m *machines) {
			_, other := sshtest.NewKey(m.t)
			m.c.Nodes[0].Reach.HostKey = string(ssh.MarshalAuthorizedKey(other.PublicKey()))
		}, is[*sshconn.HostKeyError]},
		{"no shell", said("This account is currently not available.", 1), is[*sshconn.NoShellError]},
		{"a full disk", said("cat: write error: No space left on device", 1), is[*sshconn.NoSpaceError]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachines(t, 1)
			m.c.Nodes[0].Created = time.Now().Add(-time.Hour) // no longer booting
			tt.wrong(m)
			err := m.ensure(m.connector())
			var node *NodeError
			if !tt.is(err) || !errors.As(err, &node) || node.Node != "head" {
				t.Errorf("%T: %v", err, err)
			}
		})
	}
}

func is[T error](err error) bool {
	var want T
	return errors.As(err, &want)
}

func TestAnUploadThatIsCutOffIsNotTakenForTheAgent(t *testing.T) {
	m := newMachines(t, 1)
	r := m.connector()
	old := filepath.Join(m.hosts[0].Home, ".sky/runtime", r.o.BuildID, ".up-1") // left by a power cut
	if err := errors.Join(os.MkdirAll(filepath.Dir(old), 0o700), os.WriteFile(old, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	go func() { // break the connection again and again for a while
		for range 3 {
			time.Sleep(150 * time.Millisecond)
			m.hosts[0].Cut()
		}
		close(stop)
	}()
	m.c.Nodes[0].Created = time.Now().Add(-time.Hour)
	for {
		err := m.ensure(r)
		if err == nil {
			break
		}
		select {
		case <-stop:
			stop = nil
		default:
			if stop == nil {
				t.Fatalf("it fails although nothing is wrong any more: %v", err)
			}
		}
	}
	if client, err := r.Head(m.c); err != nil {
		t.Error(err)
	} else if _, err := client.Info(t.Context()); err != nil {
		t.Error(err)
	}
	// What was cut off notices that at its own pace.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(m.hosts[0].Home, ".sky/runtime/*/.up-*"))
		if err != nil || len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", left)
		}
	}
}

func TestPlatforms(t *testing.T) {
	for _, tt := range []struct{ system, machine, want string }{
		{"Linux", "x86_64", "linux/amd64"}, {"Linux", "aarch64", "linux/arm64"},
		{"Darwin", "arm64", "darwin/arm64"}, {"Linux", "riscv64", "error"}, {"FreeBSD", "amd64", "error"},
	} {
		goos, goarch, err := platform(tt.system, tt.machine)
		got := goos + "/" + goarch
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.system, tt.machine, got, tt.want)
		}
	}
	r := New(Options{BuildID: "x", RuntimeDir: t.TempDir()})
	if _, err := r.binary("darwin", "arm64"); err == nil || !strings.Contains(err.Error(), "sky-agent-darwin-arm64") {
		t.Errorf("%v", err)
	}
}

// A cluster of more nodes than the server likes to serve by itself: it brings
// the agent to the first ones, and they bring it to the others.
func TestNodesBringTheAgentToEachOther(t *testing.T) {
	m := newMachines(t, 12)
	said := func() (server, nodes int, text string) {
		var log strings.Builder
		r := m.connector()
		r.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		if err := m.ensure(r); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		for line := range strings.Lines(log.String()) {
			switch {
			case !strings.Contains(line, "agent brought onto a node"):
			case strings.Contains(line, "from=server"):
				server++
			default:
				nodes++
			}
		}
		return server, nodes, log.String()
	}
	if server, nodes, log := said(); server != spreadFirst || nodes != 12-spreadFirst {
		t.Errorf("the server brought it to %d, nodes to %d\n%s", server, nodes, log)
	}
	for _, h := range m.hosts {
		m.endAgent(h)
	}
	if server, nodes, log := said(); server+nodes != 0 {
		t.Errorf("it was brought there again\n%s", log)
	}
	// One that lost it gets it from a node if nobody else is free, or from the
	// server; nobody else gets anything.
	m.endAgent(m.hosts[7])
	os.RemoveAll(filepath.Join(m.hosts[7].Home, ".sky", "runtime"))
	if server, nodes, log := said(); server+nodes != 1 {
		t.Errorf("the server brought it to %d, nodes to %d\n%s", server, nodes, log)
	}
}

// Nodes that cannot reach each other, or that are the user's own, get it from the
// server.
func TestNodesThatCannotHelpEachOther(t *testing.T) {
	m := newMachines(t, 10)
	r := m.connector()
	var log strings.Builder
	r.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for _, h := range m.hosts {
		h.Set(func(k *sshtest.Knobs) { k.OnlyClient = "SSH-2.0-sky" })
	}
	if err := m.ensure(r); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if n := strings.Count(log.String(), "from=server"); n != 10 {
		t.Errorf("the server brought it to %d\n%s", n, log.String())
	}
}

func TestEntriesForTheUsersSSH(t *testing.T) {
	m := newMachines(t, 2)
	r := m.connector()
	config := filepath.Join(m.home, ".ssh", "config")
	os.MkdirAll(filepath.Dir(config), 0o700)
	real := filepath.Join(m.home, "dotfiles")
	os.WriteFile(real, []byte("Host mine\n  User me\n"), 0o644)
	os.Symlink(real, config)
	for range 2 {
		if err := r.WriteSSHConfig(m.c); err != nil {
			t.Fatal(err)
		}
	}
	b, _ := os.ReadFile(real)
	if string(b) != "Include ~/.sky/generated/ssh/*\n\nHost mine\n  User me\n" {
		t.Errorf("%q", b)
	}
	if st, err := os.Lstat(config); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	entry := filepath.Join(m.home, ".sky/generated/ssh/c")
	b, err := os.ReadFile(entry)
	for _, want := range []string{"Host c\n", "Host c-worker1\n", "  StrictHostKeyChecking yes\n", "  SetEnv SKY_CLUSTER_NAME=c-1\n", fmt.Sprintf("  Port %d\n", m.hosts[1].Port())} {
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%q is missing in:\n%s%v", want, b, err)
		}
	}
	r.Forget("other")
	if _, err := os.Stat(entry); err != nil {
		t.Error(err)
	}
	r.Forget("hash")
	if _, err := os.Stat(entry); err == nil {
		t.Error("the entry is left")
	}
}

func TestASmallAgentThatTheBuildCarriesGoesOntoMachines(t *testing.T) {
	agent, id := otherBuild(t)
	m := newMachines(t, 2)
	r := m.connector()
	r.o.Agents = func(goos, goarch string) ([]byte, bool) {
		return agent, goos == runtime.GOOS && goarch == runtime.GOARCH
	}
	for round := range 2 { // a server that comes later knows it, too
		if err := m.ensure(r); err != nil {
			t.Fatal(err)
		}
		client, err := r.Node(m.c, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i, err := client.Info(t.Context()); err != nil || i.BuildID != id {
			t.Errorf("round %d: %+v, %v; the agent is build %s", round, i, err, id)
		}
		installed, _ := filepath.Glob(filepath.Join(m.hosts[1].Home, ".sky/runtime/*"))
		if want := filepath.Join(m.hosts[1].Home, ".sky/runtime", id); len(installed) != 1 || installed[0] != want {
			t.Errorf("round %d: builds on the machine: %v", round, installed)
		}
		sessions := m.hosts[1].Sessions.Load()
		if err := m.ensure(r); err != nil || m.hosts[1].Sessions.Load() != sessions {
			t.Errorf("round %d: nothing was missing: %v, %d more sessions", round, err, m.hosts[1].Sessions.Load()-sessions)
		}
		agents := r.o.Agents
		r = m.connector()
		r.o.Agents = agents
	}
}

// otherBuild is a compressed copy of this program with another build id.
func otherBuild(t *testing.T) (packed []byte, id string) {
	t.Helper()
	text, err := os.ReadFile(buildid.Self())
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	note := f.Section(".note.go.buildid")
	last := &text[note.Offset+note.Size-1]
	*last ^= 1
	path := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err = buildid.Of(path); err != nil || id == buildid.ID() {
		t.Fatalf("%q, %v", id, err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(text, nil), id
}
