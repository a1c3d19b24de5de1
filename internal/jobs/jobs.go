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
// A cluster is given up only when the loss is confirmed: the provider says that machines are
// gone, or the agent's record says how the job ended. Silence is neither.
package jobs

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/buckets"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/taskfiles"
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
	Files     *taskfiles.Files // of jobs and of what else is launched again; nil: in Dir, of jobs alone
	Buckets   *buckets.Manager // for the files of jobs that travel through jobs.bucket; nil: none do
	Launches  int              // how many clusters are brought up at once; 0: 16 a core, at most 256
	// Patience is for how long the agent of a job may be silent although the
	// provider says that its machines run, before they are ended and the job is run
	// elsewhere; 0, and nil: for ever.
	Patience func() time.Duration
	// Callbacks says where event_callback scripts run besides the nodes of their
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
	env      environment
	admit    func(context.Context, state.User, string, map[string]any, io.Writer) (string, *config.Config, error)
	check    func(ctx context.Context, dag string) error // whether tasks can be run at all
	told     func(ctx context.Context, owner state.User) CallbackPlace
	patience func() time.Duration // see [Deps]
	kept     logstore.Logs
	files    *taskfiles.Files
	buckets  *buckets.Manager // nil: files of jobs travel without a bucket
	slots    *slots
	rows     notify.Keyed[int] // by job: what is stored of it changed
	logs     notify.Keyed[int] // by job: its logs grew
	poke     chan struct{}

	room     func(job int, n int64) error // takes room for so much of a job's log
	books    *diskspace.Ledger            // of the logs; nil: without limits, in tests
	ownersMu sync.Mutex
	owners   map[int]string // of jobs with logs

	waitingMu sync.Mutex
	waiting   map[string]string // why copies of logs wait, by attempt

	mostLog int64         // bytes of an attempt's log that are kept
	gather  time.Duration // how long what a job prints may wait to be kept

	untidy  atomic.Bool     // jobs ended that had files
	tidying atomic.Bool     // their files are just being removed
	held    *lease.Set[int] // the jobs that this server works on, each by a controller
	wg      sync.WaitGroup
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
	if d.Files != nil {
		m.files = d.Files
	}
	m.buckets = d.Buckets
	if d.Store.Shared() {
		m.kept = logstore.Stored{Store: d.Store, Prefix: "jobs/"}
		m.mostLog, m.gather = logstore.MaxLog-state.MaxPiece, logstore.GatherFor
		m.boundLogs(&diskspace.Ledger{Again: logstore.CountAgain}, logstore.StoredLimits(d.LogLimits))
	} else {
		m.boundLogs(&diskspace.Ledger{Dir: m.dir}, d.LogLimits)
	}
	if d.Patience != nil {
		m.patience = d.Patience
	}
	return m
}

func newManager(store database, w environment, log *slog.Logger, server, dir string, launches int) *Manager {
	if launches == 0 {
		launches = launchesAtOnce()
	}
	m := &Manager{
		store: store, env: w, log: log, server: server, dir: dir,
		kept:    logstore.Folder(dir),
		poke:    make(chan struct{}, 1),
		room:    func(int, int64) error { return nil },
		mostLog: mostLog, patience: func() time.Duration { return 0 },
	}
	m.files = taskfiles.New(filepath.Join(dir, "files"), nil, func(ctx context.Context) (map[string]bool, error) { return m.store.ManagedJobs().FilesInUse(ctx) })
	m.slots = newSlots(launches, m.wake)
	m.held = lease.New(lease.Kind[int]{
		What: "managed jobs", Prefix: state.ManagedLease,
		Orphans: func(ctx context.Context, owner string) ([]int, error) {
			return m.store.ManagedJobs().Orphans(ctx, owner)
		},
		Adopt: m.adopt,
	}, func() lease.Store { return m.store.Leases() }, func() time.Time { return m.store.Now() }, server, log)
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

// Run works on jobs until ctx ends. What it leaves unfinished goes on with
// another server or the next life of this one.
func (m *Manager) Run(ctx context.Context) {
	t := time.NewTicker(lease.LookEvery)
	defer t.Stop()
	m.held.Begin()
	m.untidy.Store(true)
	var beats sync.WaitGroup
	beats.Go(func() { m.held.Keep(ctx) })
	tick := true
	for ctx.Err() == nil {
		if tick {
			m.held.Adopt(ctx)
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
	m.held.HandOver()
	m.wg.Wait()
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
			err := m.files.Sweep(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			m.log.WarnContext(ctx, "files of ended jobs not removed; to be tried again", "after", pause, "err", err)
			sleep(ctx, pause)
		}
	})
}

// adopt starts the controllers of those of the jobs whose leases this server got.
func (m *Manager) adopt(ctx context.Context, leases map[int]state.Lease) error {
	found, err := m.store.ManagedJobs().AdoptAll(ctx, leases)
	if err != nil {
		return err
	}
	for _, a := range found {
		m.start(a, leases[a.Job.ID], false)
	}
	return nil
}

// start begins to work on a job, which is as it is stored.
func (m *Manager) start(a state.ManagedAdopted, l state.Lease, slot bool) {
	id := a.Job.ID
	m.held.Start(id, l, func(h *lease.Hold) lease.Work {
		return &controller{m: m, id: id, hold: h, slot: slot, adopted: &a}
	}, func() { m.rows.Notify(id) })
}

// ringCancelled makes controllers look whose jobs were cancelled, perhaps
// through another server, and that do not know it.
func (m *Manager) ringCancelled(ctx context.Context) {
	asked, err := m.store.ManagedJobs().Cancelled(ctx)
	if err != nil {
		return
	}
	for id, by := range asked {
		if w, ok := m.held.Get(id); ok && !w.(*controller).knows(by) {
			m.rows.Notify(id)
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
	l, got, err := m.held.Acquire(ctx, id)
	if err != nil || !got {
		return false, err
	}
	j, err := m.store.ManagedJobs().Adopt(ctx, id, l)
	if err == nil {
		err = schedule(j, claimed)
	}
	if err == nil {
		err = m.store.ManagedJobs().Save(ctx, state.ManagedChange{Job: j})
	}
	if err != nil {
		return false, errors.Join(err, m.held.Release(ctx, l))
	}
	m.slots.take()
	m.start(state.ManagedAdopted{Job: j}, l, true) // one that waited has made no attempt
	return true, nil
}
