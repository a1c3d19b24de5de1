// Package jobs keeps managed jobs going until they have ended by themselves:
// it gets a cluster for a task, watches the job on it, replaces the cluster
// when its machines are taken away, and gives it back in the end.
//
// Everything a controller knows is in the database. It looks at what is there,
// decides with a pure function what comes next, does that, writes it down, and
// begins anew. So it does not matter at which line a server dies: another one,
// or its next life, takes the job's lease and goes on from what is written. A
// job is submitted to its cluster under a name of its own for each attempt, and
// an agent never runs the same name twice.
//
// A cluster is given up only on proof: the provider says that machines are
// gone, or the agent's record says how the job ended. Silence is neither.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/shelf"
	"github.com/skypilot-go/sky/internal/state"
)

// Deps are what a Manager works with.
type Deps struct {
	Store     *state.Store
	Executor  *execution.Executor
	Clusters  *cluster.Manager
	Log       *slog.Logger
	ServerID  string
	Dir       string           // where files and logs of jobs are kept that no other server needs
	LogLimits diskspace.Limits // of the logs in Dir
	Launches  int              // how many clusters are brought up at once; 0: 16 a core, at most 256
	// Patience is for how long the agent of a job may be silent although the
	// provider says that its machines run, before they are ended and the job is run
	// elsewhere; 0, and nil: for ever.
	Patience func() time.Duration
	// Callbacks tells where event_callback scripts run besides the nodes of their
	// jobs; nil: nowhere.
	Callbacks func(ctx context.Context, owner state.User) CallbackPlace
	// Admit lets the administrator's policy judge the launch of a task's cluster,
	// and finds the configuration that holds for it: the server's with sent, the
	// client's, laid over. nil: no configuration.
	Admit func(ctx context.Context, user state.User, dag string, sent map[string]any, out io.Writer) (string, *config.Config, error)
}

// Manager looks after the managed jobs of an installation.
type Manager struct {
	store    database
	log      *slog.Logger
	server   string
	dir      string
	world    world
	admit    func(context.Context, state.User, string, map[string]any, io.Writer) (string, *config.Config, error)
	check    func(ctx context.Context, dag string) error // whether tasks can be run at all
	told     func(ctx context.Context, owner state.User) CallbackPlace
	patience func() time.Duration // see [Deps]
	kept     shelf.Logs
	files    files
	slots    *slots
	rows     cluster.Bells[int] // by job: what is stored of it changed
	logs     cluster.Bells[int] // by job: its logs grew
	poke     chan struct{}

	room     func(job int, n int64) error // takes room for so much of a job's log
	books    *diskspace.Ledger            // of the logs; nil: without limits, in tests
	ownersMu sync.Mutex
	owners   map[int]string // of jobs with logs

	waitingMu sync.Mutex
	waiting   map[string]string // why copies of logs wait, by attempt

	mostLog int64         // bytes of an attempt's log that are kept
	gather  time.Duration // how long what a job prints may wait to be kept

	untidy  atomic.Bool      // jobs ended that had files
	tidying atomic.Bool      // their files are just being removed
	unused  map[string]int64 // leases without a controller at the latest heartbeat, with their epochs

	mu       sync.Mutex
	running  map[int]*controller
	lastBeat time.Time // when the leases were renewed last
	wg       sync.WaitGroup
}

// launchesAtOnce is how many clusters a server brings up at the same time: as
// many as its cores can start agents on. Most of a launch is waiting for a cloud.
func launchesAtOnce() int { return min(16*runtime.GOMAXPROCS(0), 256) }

// New returns a manager; Run makes it work.
func New(d Deps) *Manager {
	m := newManager(stored{d.Store}, &onClusters{store: d.Store, executor: d.Executor, clusters: d.Clusters}, d.Log, d.ServerID, d.Dir, d.Launches)
	m.check = d.Executor.ValidateDag
	m.admit = d.Admit
	m.told = d.Callbacks
	if d.Store.Shared() {
		m.kept = shelf.Stored{Store: d.Store, Prefix: "jobs/"}
		m.mostLog, m.gather = shelf.MaxLog-state.MaxPiece, gatherFor
		m.files.shared = &shelf.Files{Store: d.Store}
		m.boundLogs(&diskspace.Ledger{Again: shelf.CountAgain}, shelf.StoredLimits(d.LogLimits))
	} else {
		m.boundLogs(&diskspace.Ledger{Dir: m.dir}, d.LogLimits)
	}
	if d.Patience != nil {
		m.patience = d.Patience
	}
	return m
}

func newManager(store database, w world, log *slog.Logger, server, dir string, launches int) *Manager {
	if launches == 0 {
		launches = launchesAtOnce()
	}
	m := &Manager{
		store: store, world: w, log: log, server: server, dir: dir,
		kept: shelf.Folder(dir), files: files{dir: filepath.Join(dir, "files"), fetching: make(chan struct{}, 1)},
		poke: make(chan struct{}, 1), running: map[int]*controller{},
		room:    func(int, int64) error { return nil },
		mostLog: mostLog, patience: func() time.Duration { return 0 },
	}
	m.slots = newSlots(launches, m.wake)
	return m
}

// callbackPlace is where the callbacks of an owner's jobs run besides their nodes.
func (m *Manager) callbackPlace(ctx context.Context, owner state.User) CallbackPlace {
	if m.told == nil {
		return CallbackPlace{}
	}
	return m.told(ctx, owner)
}

// wake makes Run look for what can be launched.
func (m *Manager) wake() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// How long a lease on a job holds without renewal, how often leases are renewed,
// and how often jobs of dead servers are looked for.
const (
	leaseTTL  = 6 * time.Second
	beatEvery = 2 * time.Second
	lookEvery = time.Second
)

// errLeaseLost is the cause of a controller's context whose lease is another's.
var errLeaseLost = fmt.Errorf("another server took over this job: %w", state.ErrHandover)

// Run works on jobs until ctx ends. What it leaves unfinished goes on with
// another server or the next life of this one.
func (m *Manager) Run(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	m.beaten(m.store.Now())
	m.untidy.Store(true)
	var beats sync.WaitGroup // apart: taking over many jobs takes longer than a lease holds
	beats.Go(func() { m.beatAll(ctx) })
	mine := m.server // what an earlier life of this server held is not waited for
	tick := true
	for ctx.Err() == nil {
		if tick {
			if m.adoptAll(ctx, mine) {
				mine = ""
			}
			m.ringCancelled(ctx)
			m.submitDue(ctx)
			m.tidy(ctx)
		}
		m.dispatch(ctx)
		select {
		case <-ctx.Done():
		case <-m.poke:
			tick = false
		case <-t.C:
			tick = true
		}
	}
	beats.Wait()
	m.handOver()
}

// How long after files could not be removed it is tried again; it doubles.
const (
	tidyPause     = 10 * time.Second
	tidyPauseMost = 10 * time.Minute
)

// tidy removes the files of jobs that ended since it did so last, for as long as
// it takes.
func (m *Manager) tidy(ctx context.Context) {
	if !m.untidy.Load() || !m.tidying.CompareAndSwap(false, true) {
		return
	}
	m.wg.Go(func() {
		defer m.tidying.Store(false)
		for pause := tidyPause; ctx.Err() == nil; pause = min(2*pause, tidyPauseMost) {
			m.untidy.Store(false)
			err := m.files.sweep(ctx, m.store)
			if err == nil || ctx.Err() != nil {
				return
			}
			m.log.WarnContext(ctx, "files of ended jobs not removed; to be tried again", "after", pause, "err", err)
			sleep(ctx, pause)
		}
	})
}

// handOver leaves every job as it is, for whoever comes next.
func (m *Manager) handOver() {
	m.mu.Lock()
	for _, c := range m.running {
		c.cancel(state.ErrHandover)
	}
	m.mu.Unlock()
	m.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := m.store.Leases().Beat(ctx, state.ManagedLease, m.server, 0); err != nil {
		m.log.Warn("leases on managed jobs not given up; they run out by themselves", "err", err)
	}
}

// beatAll renews the leases now and then until ctx ends.
func (m *Manager) beatAll(ctx context.Context) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		m.beat(ctx)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
}

// beaten notes when the leases were renewed.
func (m *Manager) beaten(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastBeat = at
}

// held tells whether the leases of this server hold for certain.
func (m *Manager) held() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store.Now().Sub(m.lastBeat) < leaseTTL
}

// beat renews the leases and stops the controllers whose lease is lost.
func (m *Manager) beat(ctx context.Context) {
	at := m.store.Now()
	m.mu.Lock()
	before := maps.Clone(m.running) // leases that are taken from now on may be missing in the answer
	m.mu.Unlock()
	held, err := m.store.Leases().Beat(ctx, state.ManagedLease, m.server, leaseTTL)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		m.log.ErrorContext(ctx, "leases on managed jobs not renewed", "err", err)
		if m.held() {
			return
		}
		held = nil // by now others may act
	} else {
		m.beaten(at)
	}
	m.giveUp(ctx, held)
	for _, c := range before {
		if held[c.lease.Name] != c.lease.Epoch && !c.over.Load() {
			c.cancel(errLeaseLost)
		}
	}
}

// giveUp releases the leases that no controller has used for a while: whoever took
// them got no further, and as long as this server holds them nobody works on the
// jobs.
func (m *Manager) giveUp(ctx context.Context, held map[string]int64) {
	unused := map[string]int64{}
	m.mu.Lock()
	used := make(map[string]bool, len(m.running))
	for _, c := range m.running {
		used[c.lease.Name] = true
	}
	m.mu.Unlock()
	for name, epoch := range held {
		if used[name] {
			continue
		}
		unused[name] = epoch
		if m.unused[name] != epoch {
			continue
		}
		if err := m.store.Leases().Release(ctx, state.Lease{Name: name, Owner: m.server, Epoch: epoch}); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "lease on a managed job not given up", "lease", name, "err", err)
		}
	}
	m.unused = unused
}

// adoptAll takes over jobs under way that no live server holds, and those of
// mine; it tells whether it could look.
func (m *Manager) adoptAll(ctx context.Context, mine string) bool {
	ids, err := m.store.ManagedJobs().Orphans(ctx, mine)
	if err != nil {
		if ctx.Err() == nil {
			m.log.WarnContext(ctx, "managed jobs not listed", "err", err)
		}
		return false
	}
	m.mu.Lock()
	ids = slices.DeleteFunc(ids, func(id int) bool { return m.running[id] != nil })
	m.mu.Unlock()
	// In an order of its own, so that servers that do this at the same time share
	// the jobs instead of asking for the same ones.
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for some := range slices.Chunk(ids, adoptedAtOnce) {
		if ctx.Err() != nil {
			break
		}
		if err := m.adopt(ctx, some); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "managed jobs not taken over", "jobs", len(some), "err", err)
		}
	}
	return true
}

// adoptedAtOnce is how many jobs are taken over with one call: others that take
// some get theirs meanwhile, and whoever cancels them does not wait for long.
const adoptedAtOnce = 100

// adopt starts the controllers of those of the jobs whose leases this server gets.
// Leases that it got before something failed are given up soon, see [Manager.giveUp].
func (m *Manager) adopt(ctx context.Context, ids []int) error {
	names, of := make([]string, len(ids)), make(map[string]int, len(ids))
	for i, id := range ids {
		names[i] = leaseName(id)
		of[names[i]] = id
	}
	got, err := m.store.Leases().AcquireAll(ctx, names, m.server, leaseTTL)
	if err != nil {
		return err
	}
	leases := make(map[int]state.Lease, len(got))
	for _, l := range got {
		leases[of[l.Name]] = l
	}
	found, err := m.store.ManagedJobs().AdoptAll(ctx, leases)
	if err != nil {
		return err
	}
	for _, a := range found {
		m.start(a, leases[a.Job.ID], false)
		delete(leases, a.Job.ID)
	}
	for _, l := range leases { // of jobs that ended meanwhile
		err = errors.Join(err, m.store.Leases().Release(ctx, l))
	}
	return err
}

// leaseName is the name of the lease on a job.
func leaseName(id int) string { return state.ManagedLease + strconv.Itoa(id) }

// start begins to work on a job, which is as it is stored.
func (m *Manager) start(a state.ManagedAdopted, lease state.Lease, slot bool) {
	id := a.Job.ID
	c := &controller{m: m, id: id, lease: lease, slot: slot, adopted: &a}
	cctx, cancel := context.WithCancelCause(context.Background())
	c.cancel = cancel
	m.mu.Lock()
	m.running[id] = c
	m.mu.Unlock()
	m.wg.Go(func() {
		c.run(cctx)
		m.mu.Lock()
		delete(m.running, id)
		m.mu.Unlock()
		cancel(nil)
		m.rows.Ring(id)
	})
}

// ringCancelled makes controllers look whose jobs were cancelled, perhaps
// through another server, and that do not know it.
func (m *Manager) ringCancelled(ctx context.Context) {
	asked, err := m.store.ManagedJobs().Cancelled(ctx)
	if err != nil {
		return
	}
	for id, by := range asked {
		m.mu.Lock()
		c := m.running[id]
		m.mu.Unlock()
		if c != nil && !c.knows(by) {
			m.rows.Ring(id)
		}
	}
}

// dispatch hands free slots to whoever comes first: jobs of this server that
// want to launch again, and jobs that nobody has claimed yet.
func (m *Manager) dispatch(ctx context.Context) {
	for late := 0; m.slots.free() && ctx.Err() == nil && late < claimedMost; {
		id, priority, err := m.store.ManagedJobs().Next(ctx)
		switch {
		case errors.Is(err, state.ErrNotFound):
			if !m.slots.grantFirst() {
				return
			}
			continue
		case err != nil:
			m.log.WarnContext(ctx, "managed jobs not listed", "err", err)
			return
		}
		if m.slots.grantBefore(priority, id) {
			continue
		}
		if ok, err := m.claim(ctx, id); err != nil || !ok {
			if err != nil && ctx.Err() == nil && !errors.Is(err, state.ErrConflict) {
				m.log.WarnContext(ctx, "managed job not claimed", "job", id, "err", err)
			}
			if err != nil {
				return // the next look tells
			}
			late++
			sleep(ctx, rand.N(claimedPause)) // somebody else is claiming it; what comes after it is for anybody
		}
	}
}

// After another server was quicker with a job there is a pause, so long at most;
// and after so many of them a look at what else there is to do.
const (
	claimedPause = 20 * time.Millisecond
	claimedMost  = 50
)

// claim takes a waiting job together with a slot.
func (m *Manager) claim(ctx context.Context, id int) (bool, error) {
	lease, got, err := m.store.Leases().Acquire(ctx, leaseName(id), m.server, leaseTTL)
	if err != nil || !got {
		return false, err
	}
	j, err := m.store.ManagedJobs().Adopt(ctx, id, lease)
	if err == nil {
		err = schedule(j, claimed)
	}
	if err == nil {
		err = m.store.ManagedJobs().Save(ctx, state.ManagedChange{Job: j})
	}
	if err != nil {
		return false, errors.Join(err, m.store.Leases().Release(ctx, lease))
	}
	m.slots.take()
	m.start(state.ManagedAdopted{Job: j}, lease, true) // one that waited has made no attempt
	return true, nil
}
