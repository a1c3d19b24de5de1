package jobs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/state"
)

// life is one run of a server. It may die at any call to the database or to
// the environment: before the call, or after it had its effect and before the answer
// is read. The dead touch nothing.
type life struct {
	ctx  context.Context // ends with it
	mu   sync.Mutex
	fuse int // calls left; negative: it does not die of them
	dead bool
	acts atomic.Bool // what only looks for something to do does not count as a call
	end  func()      // told when it dies
}

var errDead = errors.New("this server is dead")

// newLife is one that goes on until it is told otherwise; end is told when it
// dies.
func newLife(end func()) *life {
	l := &life{fuse: -1}
	ctx, cancel := context.WithCancel(context.Background())
	l.ctx, l.end = ctx, func() { cancel(); end() }
	return l
}

// breath is where a life may end.
func (l *life) breath() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDead
	}
	if l.fuse == 0 {
		l.dead = true
		l.end()
		return errDead
	}
	l.fuse--
	return nil
}

// light makes a life end after so many more calls.
func (l *life) light(calls int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fuse = calls
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// live makes a call as long as the life lasts.
func live[T any](l *life, f func() (T, error)) (T, error) {
	var none T
	if err := l.breath(); err != nil {
		return none, err
	}
	v, err := f()
	if dead := l.breath(); dead != nil {
		return none, dead
	}
	return v, err
}

// poll is live for calls that a server repeats every second or so.
func poll[T any](l *life, f func() (T, error)) (T, error) {
	if !l.acts.Load() {
		return live(l, f)
	}
	var none T
	if l.isDead() {
		return none, errDead
	}
	v, err := f()
	if l.isDead() {
		return none, errDead
	}
	return v, err
}

func liveOnly(l *life, f func() error) error {
	_, err := live(l, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// crashingDatabase is the database as a server that may die uses it.
type crashingDatabase struct {
	managedJobs
	d database
	l *life
}

func (m crashingDatabase) Now() time.Time            { return m.d.Now() }
func (m crashingDatabase) ManagedJobs() managedJobs  { return m }
func (m crashingDatabase) Leases() lease.Store       { return crashingLeases{m} }
func (m crashingDatabase) Clusters() *state.Clusters { return m.d.Clusters() }

func (m crashingDatabase) ManagedSchedules() managedSchedules { return m.d.ManagedSchedules() }

func (m crashingDatabase) Get(ctx context.Context, id int) (*state.ManagedJob, error) {
	return live(m.l, func() (*state.ManagedJob, error) { return m.d.ManagedJobs().Get(ctx, id) })
}

func (m crashingDatabase) Attempts(ctx context.Context, id int) ([]*state.ManagedAttempt, error) {
	return live(m.l, func() ([]*state.ManagedAttempt, error) { return m.d.ManagedJobs().Attempts(ctx, id) })
}

func (m crashingDatabase) Attempt(ctx context.Context, id, task, n int) (*state.ManagedAttempt, error) {
	return live(m.l, func() (*state.ManagedAttempt, error) { return m.d.ManagedJobs().Attempt(ctx, id, task, n) })
}

func (m crashingDatabase) Save(ctx context.Context, c state.ManagedChange) error {
	return liveOnly(m.l, func() error { return m.d.ManagedJobs().Save(ctx, c) })
}

func (m crashingDatabase) Report(ctx context.Context, id, task, n int, r state.ManagedReport) error {
	return liveOnly(m.l, func() error { return m.d.ManagedJobs().Report(ctx, id, task, n, r) })
}

func (m crashingDatabase) Adopt(ctx context.Context, id int, l state.Lease) (*state.ManagedJob, error) {
	return live(m.l, func() (*state.ManagedJob, error) { return m.d.ManagedJobs().Adopt(ctx, id, l) })
}

func (m crashingDatabase) AdoptAll(ctx context.Context, leases map[int]state.Lease) ([]state.ManagedAdopted, error) {
	return live(m.l, func() ([]state.ManagedAdopted, error) { return m.d.ManagedJobs().AdoptAll(ctx, leases) })
}

func (m crashingDatabase) Next(ctx context.Context) (id, priority int, err error) {
	_, err = poll(m.l, func() (_ struct{}, err error) {
		id, priority, err = m.d.ManagedJobs().Next(ctx)
		return struct{}{}, err
	})
	return id, priority, err
}

func (m crashingDatabase) Orphans(ctx context.Context, owner string) ([]int, error) {
	return poll(m.l, func() ([]int, error) { return m.d.ManagedJobs().Orphans(ctx, owner) })
}

func (m crashingDatabase) Cancelled(ctx context.Context) (map[int]time.Time, error) {
	return poll(m.l, func() (map[int]time.Time, error) { return m.d.ManagedJobs().Cancelled(ctx) })
}

func (m crashingDatabase) FilesInUse(ctx context.Context) (map[string]bool, error) {
	return poll(m.l, func() (map[string]bool, error) { return m.d.ManagedJobs().FilesInUse(ctx) })
}

type crashingLeases struct{ crashingDatabase }

func (m crashingLeases) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (l state.Lease, got bool, err error) {
	err = liveOnly(m.l, func() (err error) { l, got, err = m.d.Leases().Acquire(ctx, name, owner, ttl); return err })
	return l, got && err == nil, err
}

func (m crashingLeases) AcquireAll(ctx context.Context, names []string, owner string, ttl time.Duration) ([]state.Lease, error) {
	return live(m.l, func() ([]state.Lease, error) { return m.d.Leases().AcquireAll(ctx, names, owner, ttl) })
}

func (m crashingLeases) Release(ctx context.Context, l state.Lease) error {
	return liveOnly(m.l, func() error { return m.d.Leases().Release(ctx, l) })
}

func (m crashingLeases) Beat(ctx context.Context, prefix, owner string, ttl time.Duration) (map[string]int64, error) {
	return poll(m.l, func() (map[string]int64, error) { return m.d.Leases().Beat(ctx, prefix, owner, ttl) })
}
