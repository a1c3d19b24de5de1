//go:build linux

package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/remote/nodeagent"
	"github.com/skypilot-go/sky/internal/state"
)

// newCluster is a cluster whose nodes are reached in one way. Each has a loopback
// address of its own.
func newCluster(t *testing.T, method string, n int) *state.Cluster {
	t.Helper()
	certs, err := pki.NewAuthority("c")
	if err != nil {
		t.Fatal(err)
	}
	c := &state.Cluster{Name: "c", NameOnCloud: "c-1", Hash: "hash", UserHash: user, Certs: state.Seal(certs), Epoch: 1, NumNodes: n}
	for rank := range n {
		c.Nodes = append(c.Nodes, cloud.Node{
			ID: fmt.Sprint("n", rank), Rank: rank, State: cloud.NodeRunning, Created: time.Now(),
			InternalIP: fmt.Sprintf("127.%d.%d.%d", 60+rank, os.Getpid()>>8&255, 1+os.Getpid()&127),
			Reach:      cloud.Reach{Method: method},
		})
	}
	return c
}

// endAgent ends the agent of a home folder and returns its process id.
func endAgent(home string) int {
	l, ok := nodeagent.Running(home)
	if ok {
		syscall.Kill(l.PID, syscall.SIGKILL)
		proc.Wait(context.Background(), l.PID, l.Start)
	}
	return l.PID
}

// agent asks a node's agent about itself.
func agent(t *testing.T, r *Connector, c *state.Cluster, rank int) *agentapi.Info {
	t.Helper()
	client, err := r.Node(c, rank)
	if err != nil {
		t.Fatal(err)
	}
	i, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// newLocal is a cluster of nodes on this machine.
func newLocal(t *testing.T, n int) *state.Cluster {
	t.Helper()
	c := newCluster(t, "local", n)
	for i := range c.Nodes {
		home := filepath.Join(t.TempDir(), "home")
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		c.Nodes[i].Reach.Home = home
		t.Cleanup(func() { endAgent(home) })
	}
	return c
}

// runtimeDir holds the copies of the agent that the tests send; making them takes
// longer than most tests.
var runtimeDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "sky-remote-test-") })

func connectorOf(t *testing.T, change func(*Options)) *Connector {
	t.Helper()
	dir, err := runtimeDir()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{BuildID: buildid.ID(), RuntimeDir: dir, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	return New(o)
}

// mortal starts agents on this machine that end at once, the first times.
type mortal struct {
	r      *Connector
	deaths atomic.Int64 // still to come
}

func (m *mortal) Start(ctx context.Context, c *state.Cluster, n cloud.Node) (string, error) {
	address, err := (*localTransport)(m.r).start(ctx, c, n, nil, nil)
	if err == nil && m.deaths.Add(-1) >= 0 {
		endAgent(n.Reach.Home)
	}
	return address, err
}

func (m *mortal) Dial(ctx context.Context, n cloud.Node, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// An agent that is killed between its start and its configuration is started again,
// and not for ever.
func TestAnAgentThatEndsAsItIsConfiguredIsStartedAgain(t *testing.T) {
	for deaths, want := range map[int64]bool{1: true, 4: true, 1000: false} {
		m := new(mortal)
		m.deaths.Store(deaths)
		m.r = connectorOf(t, func(o *Options) { o.Transports = map[string]Transport{"local": m} })
		c := newLocal(t, 2)
		err := m.r.Ensure(t.Context(), c)
		if (err == nil) != want {
			t.Errorf("after %d deaths: %v", deaths, err)
		}
		if want && agent(t, m.r, c, 0).Epoch != c.Epoch {
			t.Error("the head is not configured")
		}
		if ended := deaths - m.deaths.Load(); ended > 2*ensureTries {
			t.Errorf("agents were started %d times", ended)
		}
	}
}

func TestAgentsOfNodesOnThisMachine(t *testing.T) {
	c := newLocal(t, 2)
	r := connectorOf(t, nil)
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	first := agent(t, r, c, 0).PID
	if i := agent(t, r, c, 1); i.Home != c.Nodes[1].Reach.Home || i.Epoch != c.Epoch {
		t.Errorf("%+v", i)
	}
	if err := connectorOf(t, nil).Ensure(t.Context(), c); err != nil || agent(t, r, c, 0).PID != first {
		t.Errorf("another server started it anew: %v", err)
	}
	endAgent(c.Nodes[0].Reach.Home)
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	r.Forget(c.Hash)
	if i := agent(t, r, c, 0); i.PID == first {
		t.Errorf("agent %d answers although it was killed", first)
	}
}

func TestAnAgentOnThisMachineThatKnowsAnotherAuthorityIsReplaced(t *testing.T) {
	c := newLocal(t, 1)
	if err := connectorOf(t, nil).Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	certs, err := pki.NewAuthority("c")
	if err != nil {
		t.Fatal(err)
	}
	c.Certs = state.Seal(certs)
	if err := connectorOf(t, nil).Ensure(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestWhyANodeCannotBeSetUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		wrong func(*state.Cluster)
		says  string
	}{
		{"no nodes", func(c *state.Cluster) { c.Nodes = nil }, "the cluster has no nodes"},
		{"a way of later versions", func(c *state.Cluster) { c.Nodes[0].Reach.Method = "radio" }, `head: reaching it: this version of sky cannot reach nodes by "radio"`},
		{"no ssh", func(c *state.Cluster) { c.Nodes[0].Reach.Method = "ssh" }, "head: starting the agent: this server was not set up for ssh"},
		{"no containers", func(c *state.Cluster) { c.Nodes[0].Reach.Method = "docker" }, "head: starting the agent: this server was not set up for containers"},
		{"no Kubernetes", func(c *state.Cluster) { c.Nodes[0].Reach.Method = "kubernetes" }, "head: starting the agent: this server was not set up for Kubernetes"},
		{"an address of another machine", func(c *state.Cluster) { c.Nodes[0].InternalIP = "192.0.2.1" }, "head: starting the agent: it ended at once"},
		{"damaged certificates", func(c *state.Cluster) { c.Certs = state.Seal([]byte("x")) }, "head: starting the agent: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newLocal(t, 1)
			tt.wrong(c)
			if err := connectorOf(t, nil).Ensure(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), tt.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNodesThatAreNoMachinesNeedNoAgents(t *testing.T) {
	c := newCluster(t, cloud.ReachNone, 2)
	if err := connectorOf(t, nil).Ensure(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestNodesThatNobodyCanTalkTo(t *testing.T) {
	c := newLocal(t, 1)
	r := connectorOf(t, nil)
	for rank, says := range map[int]string{
		-1: "there is no node -1", 1: "cluster c has 1 nodes; there is no node 1", 0: "no agent was started yet on head of cluster c",
	} {
		if _, err := r.Node(c, rank); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("node %d: %v", rank, err)
		}
	}
	for _, method := range []string{"docker", "kubernetes", "ssh"} {
		c.Nodes[0].Reach = cloud.Reach{Method: method, Agent: "127.0.0.1:1"}
		client, err := r.Head(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "this server was not set up for") {
			t.Errorf("%s: %v", method, err)
		}
		r.Forget(c.Hash)
	}
	c.Certs = state.Seal([]byte("x"))
	if _, err := r.Head(c); err == nil {
		t.Error("somebody without certificates may talk to it")
	}
}

// What an agent's start says, after what login scripts print.
func TestWhatTheStartOfAnAgentSays(t *testing.T) {
	broken := errors.New("the connection broke")
	for _, tt := range []struct {
		name, out string
		err       error
		address   string
		says      string
	}{
		{"it listens", "hello\n" + `{"pid":7,"address":"10.0.0.1:46590"}` + "\n", nil, "10.0.0.1:46590", ""},
		{"it refuses", `{"error":"the certificates are incomplete"}`, errors.New("exit code 1"), "", "the certificates are incomplete"},
		{"its disk is full", `{"error":"write /x: no space left on device","no_space":true}`, errors.New("exit code 1"), "", "the disk of host is full"},
		{"nothing", "", broken, "", "the connection broke"},
		{"nothing and no error", "", nil, "", `it gave no answer that makes sense: ""`},
		{"words", "command not found", nil, "", `it gave no answer that makes sense: "command not found"`},
		{"JSON of somebody else", `{"level":"info"}`, nil, "", "it gave no answer that makes sense"},
		{"JSON of somebody else, and it failed", `{"level":"info"}`, broken, "", "the connection broke"},
	} {
		life, err := started("host", []byte(tt.out), tt.err)
		if said := fmt.Sprint(err); life.Address != tt.address || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(said, tt.says) {
			t.Errorf("%s: %+v, %v", tt.name, life, err)
		}
	}
}
