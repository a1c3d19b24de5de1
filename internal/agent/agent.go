//go:build unix

package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// Agent is one node's agent.
type Agent struct {
	o       Options
	log     *slog.Logger
	now     func() time.Time
	ctx     context.Context // of this life of the agent
	stop    context.CancelCauseFunc
	started time.Time
	nodeID  string

	queue   *queue
	ranks   *ranks
	mounts  *mounts
	watch   *watcher
	hub     *hub
	dialTLS *tls.Config
	kicked  chan struct{}
	wg      sync.WaitGroup // drivers and loops
	conns   sync.WaitGroup // upgraded connections

	looked chan struct{}

	submitting  sync.RWMutex // held for writing while the agent changes clusters
	configuring sync.Mutex
	setting     sync.Mutex // one change of autostop at a time
	hooking     sync.Mutex // hooks run once; who comes second waits for them

	mu       sync.Mutex // guards what follows
	spec     *agentapi.ClusterSpec
	state    agentapi.AgentState
	stuck    string // why its machine could not be stopped
	allEnded bool   // and the machine is left to the server
	jobs     map[int]*openJob
	counts   map[api.JobStatus]int
	reports  map[int]agentapi.Job // that have ended and somebody must learn how
	clients  map[string]*agentclient.Client
	idle     idleness
	notice   *agentapi.Notice
}

// errShutDown is why an agent's context ends when it was asked to go.
var errShutDown = errors.New("shut down")

// lifeFile is the content of agent.json.
type lifeFile struct {
	PID     int    `json:"pid"`
	Start   string `json:"start"`
	Address string `json:"address"`
	BuildID string `json:"build_id"`
}

// Run serves until ctx ends, which leaves jobs running for the next agent to
// adopt, or until the agent is shut down, which ends them. Only one agent can
// run in a Dir. Certificates must be there (pki.NodeFiles.Write).
func Run(ctx context.Context, o Options) error {
	if o.Dir == "" {
		o.Dir = filepath.Join(o.Home, ".sky", "agent")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.endGrace == 0 {
		o.endGrace = proc.Grace
	}
	proc.CloseOnExec() // jobs get nothing that whoever started this agent had open
	if err := os.MkdirAll(filepath.Join(o.Dir, "logs"), 0o700); err != nil {
		return err
	}
	lock, err := takeLock(ctx, o.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	serveTLS, dialTLS, err := pki.NodeConfigs(o.Dir)
	if err != nil {
		return fmt.Errorf("certificates of this node: %w", err)
	}
	ln, err := listen(ctx, o.Listen, lastAddress(o.Dir) == o.Listen, takeoverWait)
	if err != nil {
		return err
	}
	defer ln.Close()
	a, err := open(ctx, o, dialTLS)
	if err != nil {
		return err
	}
	err = a.serve(ctx, ln, serveTLS)
	if cerr := a.close(); err == nil {
		err = cerr
	}
	return err
}

// takeoverWait is how long an agent waits for an earlier one to be gone. One that
// was killed while it started a process holds its lock and its port until that
// runs.
const takeoverWait = 3 * time.Second

// takeLock makes sure that this is the only agent in dir.
func takeLock(ctx context.Context, dir string) (*flock.Flock, error) {
	ctx, cancel := context.WithTimeout(ctx, takeoverWait)
	defer cancel()
	l := flock.New(filepath.Join(dir, "agent.lock"))
	if _, err := l.TryLockContext(ctx, 10*time.Millisecond); err != nil {
		l.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("another agent runs in %s", dir)
		}
		return nil, err
	}
	return l, nil
}

// open reads the state of an earlier agent.
func open(ctx context.Context, o Options, dialTLS *tls.Config) (*Agent, error) {
	q, err := openQueue(o.Dir)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		o: o, log: o.Logger, now: o.Now, started: o.Now(), queue: q, dialTLS: dialTLS, hub: newHub(),
		kicked: make(chan struct{}, 1), looked: make(chan struct{}, 1), state: agentapi.AgentRunning,
		jobs: map[int]*openJob{}, counts: map[api.JobStatus]int{}, reports: map[int]agentapi.Job{}, clients: map[string]*agentclient.Client{},
	}
	a.ctx, a.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	a.watch = newWatcher(a.ctx)
	if a.ranks, err = newRanks(a.ctx, o.Home, o.Dir, o.endGrace, a.log, a.watch); err != nil {
		return nil, errors.Join(err, a.close())
	}
	if a.mounts, err = newMounts(a.ctx, o.Home, a.ranks.sh, programEnv(o.Home), q, a.log, a.publishState); err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.mounts.now, a.mounts.goneAfter = a.now, cmp.Or(o.mountsGone, mountsGone)
	a.ranks.ready = a.mounts.readyFor
	spec := &agentapi.ClusterSpec{}
	ok, err := q.load("cluster", spec)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	if ok {
		a.spec = spec
		a.nodeID = spec.Nodes[spec.Self].ID
		if err := errors.Join(a.recoverJobs(), a.recoverIdle(), a.recoverTeardown()); err != nil {
			return nil, errors.Join(err, a.close())
		}
	}
	return a, nil
}

func (a *Agent) close() error {
	a.stop(nil)
	a.wg.Wait()
	if a.ranks != nil {
		a.ranks.wg.Wait()
	}
	if a.mounts != nil {
		a.mounts.client.Close()
	}
	a.mu.Lock()
	for _, c := range a.clients {
		c.Close()
	}
	a.mu.Unlock()
	return a.queue.close()
}

// serve answers calls until ctx ends or the agent is shut down.
func (a *Agent) serve(ctx context.Context, ln net.Listener, tlsc *tls.Config) error {
	start, err := proc.StartTime(os.Getpid())
	if err != nil {
		return err
	}
	life, err := json.Marshal(lifeFile{os.Getpid(), start, ln.Addr().String(), a.o.BuildID})
	if err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(a.o.Dir, "agent.json"), append(life, '\n'), 0o600); err != nil {
		return err
	}
	tlsc = tlsc.Clone()
	tlsc.NextProtos = []string{"http/1.1"} // upgrades need it
	srv := &http.Server{
		Handler:           a.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return a.ctx },
	}
	defer context.AfterFunc(ctx, func() { a.stop(ctx.Err()) })()
	a.wg.Go(a.scheduler)
	a.wg.Go(func() { a.autostopper(a.autostop) })
	a.wg.Go(a.watchNotices)
	a.wg.Go(a.mounts.supervise)
	a.kick()
	a.log.Info("agent started", "address", ln.Addr().String(), "dir", a.o.Dir, "version", a.o.Version)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(tls.NewListener(ln, tlsc)) }()
	select {
	case err := <-served:
		a.stop(err)
		return err
	case <-a.ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close()
	}
	<-served
	a.conns.Wait()
	if err := context.Cause(a.ctx); !errors.Is(err, errShutDown) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// configure makes the agent a member of a cluster, or tells it what has changed
// there.
func (a *Agent) configure(spec *agentapi.ClusterSpec) (*agentapi.Info, error) {
	a.configuring.Lock()
	defer a.configuring.Unlock()
	if spec.Self < 0 || spec.Self >= len(spec.Nodes) {
		return nil, invalid("the cluster's list of nodes does not contain this one")
	}
	a.mu.Lock()
	old := a.spec
	a.mu.Unlock()
	if old != nil && spec.Epoch < old.Epoch {
		return nil, stale(spec.Epoch, old.Epoch)
	}
	fresh := *spec
	if fresh.Capacity.CPUs <= 0 {
		fresh.Capacity.CPUs = float64(cpuCount())
	}
	if reflect.DeepEqual(old, &fresh) {
		return a.info(), nil // servers say it again when they connect
	}
	if old != nil && old.Hash != spec.Hash {
		if err := a.changeCluster(); err != nil {
			return nil, err
		}
	}
	if err := a.wantedAgain(fresh.Epoch); err != nil {
		return nil, err
	}
	if err := a.queue.put("cluster", &fresh); err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.spec, a.nodeID = &fresh, fresh.Nodes[fresh.Self].ID
	info := a.infoLocked()
	a.mu.Unlock()
	a.activity()
	a.kick()
	return info, nil
}

// changeCluster forgets the cluster that this machine belonged to.
func (a *Agent) changeCluster() error {
	a.submitting.Lock()
	defer a.submitting.Unlock()
	if _, err := a.cancel(a.ctx, &agentapi.CancelRequest{All: true}); err != nil {
		return err
	}
	if err := a.ranks.endAll(a.ctx, a.o.endGrace); err != nil {
		return err
	}
	a.mu.Lock()
	left := make([]*openJob, 0, len(a.jobs))
	for _, j := range a.jobs {
		left = append(left, j)
	}
	a.mu.Unlock()
	for _, j := range left {
		select {
		case <-j.done:
		case <-time.After(cancelWait(a.o.endGrace)):
			return fmt.Errorf("job %d of the earlier cluster does not end", j.id)
		}
	}
	if err := a.mounts.forget(a.ctx, agentapi.FlushTime); err != nil {
		return err
	}
	if err := a.queue.reset(); err != nil {
		return err
	}
	a.mu.Lock()
	clear(a.counts)
	clear(a.reports)
	a.mu.Unlock()
	return a.setAutostop(nil)
}

func (a *Agent) info() *agentapi.Info {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.infoLocked()
}

func (a *Agent) infoLocked() *agentapi.Info {
	info := &agentapi.Info{
		Version: a.o.Version, BuildID: a.o.BuildID, Platform: runtime.GOOS + "/" + runtime.GOARCH, NodeID: a.nodeID, PID: os.Getpid(), BootID: proc.BootID(),
		StartedAt: seconds(a.started), Home: a.o.Home, State: a.state,
		Autostop: a.idle.setting(), IdleSince: a.idle.sinceSeconds(), Jobs: map[string]int{},
		Notice: a.notice, Stuck: a.stuck, Ended: a.allEnded, Mounts: a.mounts.info(),
	}
	if a.spec != nil {
		info.Epoch = a.spec.Epoch
	}
	for s, n := range a.counts {
		if n > 0 {
			info.Jobs[string(s)] = n
		}
	}
	return info
}

func (a *Agent) isHead() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spec == nil || a.spec.Self == 0
}

func invalid(msg string) error { return &agentapi.Error{Code: agentapi.CodeInvalid, Message: msg} }

func stale(got, have int64) error {
	return &agentapi.Error{Code: agentapi.CodeStaleEpoch,
		Message: fmt.Sprintf("the cluster has been changed meanwhile (epoch %d, the call is from epoch %d)", have, got)}
}
