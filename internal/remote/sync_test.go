//go:build linux

package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/internal/agentclient/agenttest"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/state"
)

// memory reaches nodes whose agents are in this process.
type memory struct {
	nodes []*agenttest.Node
	dials atomic.Int64
	// limit is after how many bytes the next connection to a node breaks; 0: it
	// cannot be made, and less: it does not break.
	limit func(rank int) int64
	sent  atomic.Int64
}

func (m *memory) Start(_ context.Context, c *state.Cluster, n cloud.Node) (string, error) {
	certs, err := c.Certs.Open()
	if err != nil {
		return "", err
	}
	files, err := pki.IssueNode(certs, n.ID)
	if err != nil {
		return "", err
	}
	return n.InternalIP + ":46590", m.nodes[n.Rank].Start("build", files)
}

func (m *memory) Dial(ctx context.Context, n cloud.Node, _ string) (net.Conn, error) {
	m.dials.Add(1)
	limit := int64(-1)
	if m.limit != nil {
		limit = m.limit(n.Rank)
	}
	if limit == 0 {
		return nil, errors.New("connection refused")
	}
	conn, err := m.nodes[n.Rank].Dial(ctx)
	if err != nil {
		return nil, err
	}
	conn = &counted{conn, &m.sent}
	if limit > 0 {
		conn = agenttest.CutAfter(conn, limit, func() error { conn.Close(); return syscall.ECONNRESET })
	}
	return conn, nil
}

// counted is a connection whose bytes are counted.
type counted struct {
	net.Conn
	sent *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// inMemory is a cluster of n nodes that know their places.
func inMemory(t *testing.T, n int) (*Connector, *memory, *state.Cluster) {
	t.Helper()
	c := newCluster(t, "memory", n)
	m := &memory{}
	for _, node := range c.Nodes {
		n := agenttest.New(agenttest.Options{ID: node.ID, Home: t.TempDir()})
		m.nodes = append(m.nodes, n)
		t.Cleanup(n.Crash)
	}
	r := connectorOf(t, func(o *Options) { o.Transports = map[string]Transport{"memory": m} })
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Forget(c.Hash) })
	return r, m, c
}

// size is that of the file that is sent: more than is on the way at a time.
const size = 4 << 20

// file is a file of that many random bytes and how it is sent.
func file(t *testing.T) (content []byte, o filesync.Options) {
	t.Helper()
	content = make([]byte, size)
	rand.Read(content)
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return content, filesync.Options{Src: filesync.Local(path), Dst: "~/data", Cache: t.TempDir()}
}

func arrived(t *testing.T, n *agenttest.Node, content []byte) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(n.Home(), "data"))
	if err != nil || string(got) != string(content) {
		t.Errorf("%d bytes arrived, %v", len(got), err)
	}
}

func TestFilesAreSentToEveryNode(t *testing.T) {
	r, m, c := inMemory(t, 3)
	content, o := file(t)
	stats, err := r.Sync(t.Context(), c, o, nil)
	if err != nil || stats.Files != 1 || stats.SentBytes != size {
		t.Errorf("%+v, %v", stats, err)
	}
	for _, n := range m.nodes {
		arrived(t, n, content)
	}
}

func TestASyncGoesOnWhereItsConnectionBroke(t *testing.T) {
	r, m, c := inMemory(t, 1)
	content, o := file(t)
	before := m.dials.Load()
	m.sent.Store(0)
	m.limit = func(int) int64 {
		if m.dials.Load() <= before+2 {
			return size * 2 / 3
		}
		return -1
	}
	if _, err := r.Sync(t.Context(), c, o, nil); err != nil {
		t.Fatal(err)
	}
	arrived(t, m.nodes[0], content)
	if sent := m.sent.Load(); sent > size*3/2 {
		t.Errorf("%d bytes travelled for %d", sent, size)
	}
}

func TestASyncWhoseConnectionAlwaysBreaksIsGivenUp(t *testing.T) {
	r, m, c := inMemory(t, 2)
	content, o := file(t)
	before := m.dials.Load()
	m.limit = func(rank int) int64 { return int64(-1 + rank) } // only the worker cannot be reached
	_, err := r.Sync(t.Context(), c, o, nil)
	var node *NodeError
	if !errors.As(err, &node) || node.Node != "worker1" || node.Step != "copying "+o.Src.String() || !strings.HasSuffix(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	if n := m.dials.Load() - before; n != 1+4 {
		t.Errorf("%d connections were tried", n)
	}
	arrived(t, m.nodes[0], content)
}

func TestASyncThatIsRefusedIsNotTriedAgain(t *testing.T) {
	r, m, c := inMemory(t, 1)
	_, o := file(t)
	if err := os.Mkdir(filepath.Join(m.nodes[0].Home(), "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := m.dials.Load()
	if _, err := r.Sync(t.Context(), c, o, nil); !is[*filesync.ConflictError](err) {
		t.Errorf("%v", err)
	}
	if n := m.dials.Load() - before; n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

func TestACancelledSyncDoesNotWaitForItsNextTry(t *testing.T) {
	r, m, c := inMemory(t, 1)
	_, o := file(t)
	ctx, cancel := context.WithCancel(t.Context())
	before := m.dials.Load()
	m.limit = func(int) int64 {
		if m.dials.Load() == before+2 {
			cancel()
		}
		return 0
	}
	if _, err := r.Sync(ctx, c, o, nil); err == nil {
		t.Error("it is said to have worked")
	}
	if n := m.dials.Load() - before; n != 2 {
		t.Errorf("%d connections were tried", n)
	}
}

func TestASyncToNoNodesIsAnError(t *testing.T) {
	c := newCluster(t, "memory", 0)
	if _, err := connectorOf(t, nil).Sync(t.Context(), c, filesync.Options{}, nil); err == nil {
		t.Error("it is said to have worked")
	}
}

func TestOnlyBrokenConnectionsAreTriedAgain(t *testing.T) {
	for err, want := range map[error]bool{
		&brokenConn{errors.New("x")}: true, &NodeError{Err: &brokenConn{errors.New("x")}}: true,
		&net.OpError{Op: "read", Err: errors.New("x")}: true, &filesync.StalledError{}: true,
		io.EOF: true, io.ErrUnexpectedEOF: true, io.ErrClosedPipe: true, net.ErrClosed: true, os.ErrDeadlineExceeded: true,
		syscall.ECONNRESET: true, syscall.EPIPE: true,
		syscall.ENOSPC: false, os.ErrPermission: false, context.Canceled: false, &filesync.ConflictError{}: false,
	} {
		if retryable(err) != want {
			t.Errorf("%T %v: tried again: %v", err, err, !want)
		}
	}
}
