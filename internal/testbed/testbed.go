//go:build unix

// Package testbed is a whole installation inside a test: servers that come and go
// and may end at any step, FluffyCloud's model as the cloud, agents in memory, and
// a SQLite database. It is made inside of a testing/synctest bubble, so time is
// virtual. Nothing in it records calls to be compared: tests look at what is there
// in the end (machines, records, jobs).
package testbed

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/agentclient/agenttest"
	"github.com/skypilot-go/sky/internal/buckets"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/wrap"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/internal/volumes"
)

func init() { filesync.Warm() } // before there is a bubble

// Bed is an installation with its cloud.
type Bed struct {
	T     testing.TB
	Cloud *model.Cloud
	Store *state.Store
	// Account is who rents: whose machines the servers see.
	Account string
	// StaysOn: machines cannot switch themselves off, as on many clouds.
	StaysOn bool
	// Reaching is called when a server is about to start the agent of an instance;
	// nil: nothing is.
	Reaching func(id string)
	// Dialed is called with each connection that a server makes to an instance's agent,
	// and returns the one that the server uses; nil: it is used as it is.
	Dialed func(s *Server, id string, conn net.Conn) net.Conn

	dir string

	mu    sync.Mutex
	nodes map[string]*machine // by instance id
	alive *Server             // the latest
}

// machine is a node and since when it is switched on.
type machine struct {
	*agenttest.Node
	on bool
}

// Ann is who works with the installation.
var Ann = state.User{ID: "a1b2c3d4", Name: "ann", Role: "admin"}

const installation = "testbed"

// Build is the agents' build.
const Build = "test-build"

// New makes an installation without a server. change adjusts its cloud.
func New(t testing.TB, change ...func(*model.Config)) *Bed {
	t.Helper()
	cfg := model.Config{
		Seed: 1,
		Regions: []model.Region{
			{Name: "north", Zones: []string{"north-a", "north-b"}},
			{Name: "south", Zones: []string{"south-a"}, Factor: 1.5},
		},
		Types: []model.Type{{Name: "puff", CPUs: 2, MemoryGiB: 8, Price: 1, SpotPrice: 0.4}, {Name: "fluff", CPUs: 8, MemoryGiB: 32, Price: 3, SpotPrice: 1}},
		Boot:  model.Delay{Min: 3 * time.Second, Max: 6 * time.Second},
		Halt:  model.Delay{Min: time.Second, Max: 2 * time.Second},
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := model.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sky"), []byte("the program\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(t.Context(), filepath.Join(databaseDir(t, dir), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	b := &Bed{T: t, Cloud: c, Store: store, Account: "ann", dir: dir, nodes: map[string]*machine{}}
	t.Cleanup(func() {
		b.mu.Lock()
		s := b.alive
		b.mu.Unlock()
		if s != nil {
			s.End()
		}
		for _, n := range b.nodes {
			n.PowerOff()
			n.Wait()
		}
		store.Close()
	})
	return b
}

// databaseDir is in memory where that is possible: nobody pulls the plug here, and
// a disk makes every commit wait.
func databaseDir(t testing.TB, dir string) string {
	mem, err := os.MkdirTemp("/dev/shm", "testbed-")
	if err != nil {
		return dir
	}
	t.Cleanup(func() { os.RemoveAll(mem) })
	return mem
}

// Server is one life of the API server, as far as clusters go.
type Server struct {
	*failpoint.Process
	Store     *state.Store
	Providers *cloud.Registry
	Provision *provision.Engine
	Remote    *remote.Connector
	Clusters  *cluster.Manager
	Executor  *execution.Executor

	bed   *Bed
	mu    sync.Mutex
	conns []net.Conn
	watch sync.WaitGroup
}

// Boot starts a server, after the one before has ended. It ends after that many
// half steps, see [failpoint.New]. Attempts that the one before left open are
// settled first, as the real one does.
func (b *Bed) Boot(halfSteps int) *Server {
	b.T.Helper()
	b.mu.Lock()
	before := b.alive
	b.mu.Unlock()
	if before != nil {
		before.End()
	}
	s := &Server{Process: failpoint.New(context.Background(), halfSteps, state.ErrHandover), bed: b}
	b.mu.Lock()
	b.alive = s
	b.mu.Unlock()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("SKYPILOT_DEBUG") != "" {
		log = slog.New(slog.NewTextHandler(b.T.Output(), nil))
	}
	s.Store = b.Store.Gated(func(change func() error) error { return s.Do("database", change) })
	api := model.Gated(b.Cloud.Account(b.Account, "owner"), s.Do)
	var rents cloud.Provider = fluffycloud.New(fluffycloud.Options{API: api, Stamp: b.Account, Poll: 2 * time.Second})
	if b.StaysOn {
		rents = staysOn{rents}
	}
	s.Providers = wrap.All(cloud.NewRegistry(rents),
		func(string, wrap.Method, time.Duration, error) {})
	s.Provision = provision.New(installation, s.Providers, s.Store, log)
	s.Remote = remote.New(remote.Options{BuildID: Build, Binary: filepath.Join(b.dir, "sky"), RuntimeDir: filepath.Join(b.dir, "runtime"), Logger: log,
		SkyDir: filepath.Join(b.dir, ".sky"), SSH: sshconn.New(sshconn.Options{Home: b.dir, KnownHosts: filepath.Join(b.dir, "known_hosts")}),
		Transports: map[string]remote.Transport{"ssh": transport{s}}})
	s.Clusters = cluster.New(cluster.Deps{Store: s.Store, Providers: s.Providers, Provision: s.Provision, Remote: s.Remote, Log: log, ServerID: "local"})
	vols := volumes.New(volumes.Deps{Store: s.Store, Providers: s.Providers, Installation: installation, ServerID: "local", Log: log, Config: Config})
	s.Executor = execution.New(execution.Deps{
		Store: s.Store, Providers: s.Providers, Provision: s.Provision, Remote: s.Remote, Clusters: s.Clusters, Volumes: vols,
		Buckets:  buckets.New(buckets.Deps{Store: s.Store, Remote: s.Remote, ServerID: "local", Dir: filepath.Join(b.dir, "buckets"), Log: log, Config: Config}),
		Catalogs: catalog.NewStore(catalog.StoreOptions{Dir: filepath.Join(b.dir, "catalogs")}), Log: log, BuildID: Build,
	})
	if before != nil {
		if err := s.Provision.Settle(s.Context()); err != nil && !s.Dead() {
			b.T.Logf("settling: %v", err)
		}
	}
	return s
}

// staysOn is a cloud whose machines cannot switch themselves off.
type staysOn struct{ cloud.Provider }

func (p staysOn) Unwrap() cloud.Provider { return p.Provider }

func (p staysOn) Features() cloud.Features {
	f := p.Provider.Features()
	f.Lacks = maps.Clone(f.Lacks)
	if f.Lacks == nil {
		f.Lacks = map[cloud.Feature]string{}
	}
	f.Lacks[cloud.FeatureAutostop], f.Lacks[cloud.FeatureAutodown] = "a puff cannot switch itself off", "a puff cannot end itself"
	return f
}

// Config is the configuration of a server that says nothing.
func Config() *config.Config {
	c, err := config.FromMap(config.Server, config.Origin{}, nil)
	if err != nil {
		panic(err)
	}
	return c
}

// Watch follows the agents of all clusters until the server ends, as the real one
// does.
func (s *Server) Watch() { s.watch.Go(func() { s.Clusters.Watch(s.Context()) }) }

// End kills the server and waits until nothing of it runs.
func (s *Server) End() {
	s.Kill()
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	s.watch.Wait()
}

// Request is a call that outlives servers.
type Request struct {
	ID      string
	Attempt int
	User    state.User
	Out     *Output

	mu   sync.Mutex
	kept []byte
}

// NewRequest is a call of Ann's that no server has seen yet.
func NewRequest() *Request { return &Request{ID: uuid.NewString(), User: Ann, Out: &Output{}} }

// Call is the request on this server.
func (s *Server) Call(r *Request) cluster.Call {
	r.mu.Lock()
	r.Attempt++
	attempt := r.Attempt
	r.mu.Unlock()
	return cluster.Call{
		RequestID: r.ID, User: r.User, Attempt: attempt, Command: "sky " + r.ID[:4], Out: r.Out, Config: Config(), Files: upload.OwnMachine(),
		Load: func() []byte {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.kept
		},
		Save: func(_ context.Context, b []byte) error {
			return s.Do("progress", func() error {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.kept = slices.Clone(b)
				return nil
			})
		},
	}
}

// Resume runs f on a server that ends after that many half steps and, if it did,
// again on the next one, which does not end.
func (b *Bed) Resume(halfSteps int, f func(*Server) error) (died bool, err error) {
	b.T.Helper()
	s := b.Boot(halfSteps)
	err = f(s)
	if !s.Dead() {
		return false, err
	}
	s = b.Boot(failpoint.Endless)
	return true, f(s)
}

// EveryHalfStep runs a scenario in a bubble of its own for each half step that a
// server can die at: for 0, 1, 2 … until f reports that the server did not die of so
// many any more. With -short it is every seventh.
func EveryHalfStep(t *testing.T, f func(t *testing.T, halfSteps int) (died bool)) {
	t.Helper()
	stride := 1
	if testing.Short() { // under the race detector, to which they are much alike
		stride = 7
	}
	for n, died := 0, true; died && !t.Failed(); n += stride {
		t.Run(fmt.Sprint("after ", n, " half steps"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { died = f(t, n) })
		})
	}
}

// Launch runs or resumes a launch.
func (s *Server) Launch(r *Request, name, task string, change ...func(*api.LaunchBody)) (*api.LaunchResult, error) {
	body := api.LaunchBody{Task: task, ClusterName: name}
	for _, f := range change {
		f(&body)
	}
	return s.Executor.Launch(s.Context(), s.Call(r), body)
}

// Start switches a stopped cluster on.
func (s *Server) Start(r *Request, name string) error {
	_, err := s.Executor.Start(s.Context(), s.Call(r), api.StartBody{ClusterName: name})
	return err
}

// Stop switches a cluster off.
func (s *Server) Stop(r *Request, name string) error {
	return s.Clusters.Stop(s.Context(), s.Call(r), api.StopBody{ClusterName: name})
}

// Down gives a cluster back.
func (s *Server) Down(r *Request, name string) error {
	return s.Clusters.Down(s.Context(), s.Call(r), api.StopBody{ClusterName: name})
}

// Output is where a request tells of its progress.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Spin and StopSpin are for terminals.
func (o *Output) Spin(string) {}
func (o *Output) StopSpin()   {}

// transport reaches the nodes.
type transport struct{ s *Server }

func (t transport) Start(ctx context.Context, c *state.Cluster, n cloud.Node) (string, error) {
	if f := t.s.bed.Reaching; f != nil {
		f(n.ID)
	}
	node, err := t.booted(ctx, n.ID)
	if err != nil {
		return "", err
	}
	certs, err := c.Certs.Open()
	if err != nil {
		return "", err
	}
	files, err := pki.IssueNode(certs, n.ID)
	if err != nil {
		return "", err
	}
	if err := t.s.Do("agent.start", func() error { return node.Start(Build, files) }); err != nil {
		return "", err
	}
	return n.InternalIP + ":46590", ctx.Err()
}

// boots is how long a machine may take to answer, as sshd's transport has it.
const boots = 15 * time.Minute

// booted waits for a machine that does not answer: nobody can tell by its silence
// whether it boots or is gone.
func (t transport) booted(ctx context.Context, id string) (*agenttest.Node, error) {
	for began := time.Now(); ; {
		if node := t.s.bed.Node(id); node != nil {
			return node, nil
		}
		if t.s.Dead() || time.Since(began) > boots {
			return nil, fmt.Errorf("machine %s does not run", id)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

func (t transport) Dial(ctx context.Context, n cloud.Node, _ string) (net.Conn, error) {
	if t.s.Dead() {
		return nil, failpoint.ErrDead
	}
	node := t.s.bed.Node(n.ID)
	if node == nil {
		return nil, fmt.Errorf("machine %s does not run", n.ID)
	}
	conn, err := node.Dial(ctx)
	if err != nil {
		return nil, err
	}
	t.s.mu.Lock()
	t.s.conns = append(t.s.conns, conn)
	t.s.mu.Unlock()
	if f := t.s.bed.Dialed; f != nil {
		conn = f(t.s, n.ID, conn)
	}
	return conn, nil
}

// Node is what runs on an instance; nil: it is not running.
func (b *Bed) Node(id string) *agenttest.Node {
	running := slices.ContainsFunc(b.Cloud.Machines(), func(m model.Machine) bool { return m.ID == id && m.State == fluffyapi.Running })
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[id]
	switch {
	case !running:
		if n != nil && n.on {
			n.PowerOff()
			n.on = false
		}
		return nil
	case n == nil:
		home := filepath.Join(b.dir, "nodes", id)
		if err := os.MkdirAll(home, 0o700); err != nil {
			b.T.Error(err)
		}
		o := agenttest.Options{ID: id, Home: home, Gate: b.gate, Off: func(how string) { b.off(id, how) }}
		if b.StaysOn {
			o.Off = nil
		}
		n = &machine{Node: agenttest.New(o)}
		b.nodes[id] = n
	}
	n.on = true
	return n.Node
}

// gate makes calls of agents steps of the server that is alive.
func (b *Bed) gate(name string, call func() error) error {
	b.mu.Lock()
	s := b.alive
	b.mu.Unlock()
	return s.Do(name, call)
}

func (b *Bed) off(id, how string) {
	if how == "terminate" {
		_ = b.Cloud.Kill(id, "")
	} else {
		_ = b.Cloud.Halt(id)
	}
	b.Node(id)
}

// Inject makes calls to the cloud go wrong from now on, until Cloud.Remove.
func (b *Bed) Inject(f model.Fault) {
	b.T.Helper()
	if err := b.Cloud.Inject(f); err != nil {
		b.T.Fatal(err)
	}
}

// Machines are the instances that exist, by the name of their cluster on the
// cloud: "NAME running" or "NAME stopped".
func (b *Bed) Machines() []string {
	var out []string
	for _, m := range b.Cloud.Machines() {
		if m.State == fluffyapi.Terminated || m.State == fluffyapi.Terminating {
			continue
		}
		state := string(m.State)
		if m.State == fluffyapi.Pending {
			state = string(fluffyapi.Running)
		}
		name, _, _ := strings.Cut(m.Name, "-"+Ann.ID)
		out = append(out, name+" "+state)
	}
	slices.Sort(out)
	return out
}

// WantMachines fails the test unless these are the cloud's machines.
func (b *Bed) WantMachines(want ...string) {
	b.T.Helper()
	if got := b.Machines(); !slices.Equal(got, want) {
		b.T.Errorf("machines: %q, want %q", got, want)
	}
}

// WantNothingLeft fails the test if a cluster left a record or anything that costs.
func (b *Bed) WantNothingLeft(name string) {
	b.T.Helper()
	b.WantMachines()
	if c := b.Cluster(name); c != nil {
		b.T.Errorf("the record is still there: %v %s", c, c.LastEvent)
	}
	if f := b.Firewalls(); len(f) > 0 {
		b.T.Errorf("firewalls: %q", f)
	}
	open, err := b.Store.Attempts().Open(context.Background())
	if err != nil || len(open) > 0 {
		b.T.Errorf("attempts that are open: %+v, %v", open, err)
	}
}

// Firewalls are the names of the firewalls that exist.
func (b *Bed) Firewalls() []string {
	var out []string
	for _, f := range b.Cloud.Firewalls() {
		out = append(out, f.Name)
	}
	return out
}

// Head is the head of a cluster on record; it fails the test if there is none.
func (b *Bed) Head(name string) *agenttest.Node { b.T.Helper(); return b.Nodes(name)[0] }

// Nodes are the running nodes of a cluster on record, by rank; it fails the test if
// one is missing.
func (b *Bed) Nodes(name string) []*agenttest.Node {
	b.T.Helper()
	c := b.Cluster(name)
	if c == nil || len(c.Nodes) == 0 {
		b.T.Fatalf("cluster %s has no nodes on record", name)
	}
	out := make([]*agenttest.Node, len(c.Nodes))
	for rank, n := range c.Nodes {
		if out[rank] = b.Node(n.ID); out[rank] == nil {
			b.T.Fatalf("node %d of cluster %s does not run", rank, name)
		}
	}
	return out
}

// Cluster is a cluster's record; nil: there is none.
func (b *Bed) Cluster(name string) *state.Cluster {
	c, err := b.Store.Clusters().Get(context.Background(), name)
	if err != nil {
		return nil
	}
	return c
}
