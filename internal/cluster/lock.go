package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
)

// How long a lease on a cluster holds without renewal, and how often it is
// renewed and asked for.
const (
	lockTTL   = 7 * time.Second
	lockRenew = time.Second
	lockPoll  = 200 * time.Millisecond
)

var now = time.Now

// errLockLost is the cause of a context whose lease was taken over.
var errLockLost = fmt.Errorf("another server took over: %w", state.ErrHandover)

// Locks give each thing of one kind one writer: a queue in this process, and a
// lease in the database against other servers.
type Locks struct {
	store  *state.Store
	server string
	kind   string

	mu   sync.Mutex
	held map[string]*slot
}

// slot is one thing's place in the queue: whoever holds the token.
type slot struct {
	token  chan struct{}
	users  int
	looks  bool      // who has it only looks at provider and agents
	looked time.Time // when the latest look at provider and agents that succeeded began
}

// NewLocks returns the locks of a server for things of a kind.
func NewLocks(store *state.Store, server, kind string) *Locks {
	return &Locks{store: store, server: server, kind: kind, held: map[string]*slot{}}
}

// Lock waits until the caller is the only one to change the thing of that name.
// The returned context ends when the lease is lost; unlock must be called.
func (l *Locks) Lock(ctx context.Context, name string) (context.Context, func(), error) {
	return l.lock(ctx, name, claim{waits: forAll})
}

// TryLock is Lock without waiting; ok is false when somebody has it.
func (l *Locks) TryLock(ctx context.Context, name string) (lctx context.Context, unlock func(), ok bool, err error) {
	return busy(l.lock(ctx, name, claim{waits: forNobody}))
}

func busy(lctx context.Context, unlock func(), err error) (context.Context, func(), bool, error) {
	if errors.Is(err, errBusy) {
		return nil, nil, false, nil
	}
	return lctx, unlock, err == nil, err
}

// Lock waits until the caller is the only one to change the cluster. The
// returned context ends when the lease is lost; unlock must be called.
func (m *Manager) Lock(ctx context.Context, name string) (_ context.Context, unlock func(), err error) {
	_, span := trace.Start(ctx, "wait for the lock of "+name) // what is done under it is not part of the span
	defer func() { span.End(err) }()
	return m.locks.Lock(ctx, name)
}

// TryLock is Lock without waiting; ok is false when somebody has it.
func (m *Manager) TryLock(ctx context.Context, name string) (lctx context.Context, unlock func(), ok bool, err error) {
	return m.locks.TryLock(ctx, name)
}

var errBusy = errors.New("somebody else works on it")

// claim is what somebody wants a lock for.
type claim struct {
	looks bool // only to look at provider and agents
	waits waitFor
	late  <-chan time.Time // ends the wait with errBusy; nil: only the context does
}

// waitFor is whom a claim waits for.
type waitFor int

const (
	forAll   waitFor = iota
	forLooks         // those who only look, and other servers, of which nobody knows what they do
	forNobody
)

func (l *Locks) lock(ctx context.Context, name string, c claim) (context.Context, func(), error) {
	s := l.enter(name)
	if err := l.queue(ctx, s, c); err != nil {
		l.leave(name, s)
		return nil, nil, err
	}
	release := func() { l.pass(s); l.leave(name, s) }
	lease, err := l.lease(ctx, name, c)
	if err != nil {
		release()
		return nil, nil, err
	}
	lctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.keep(lctx, lease, cancel)
	}()
	return lctx, func() {
		cancel(nil)
		<-done
		// A lease that cannot be released runs out by itself.
		rctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		_ = l.store.Leases().Release(rctx, lease)
		release()
	}, nil
}

// queue waits for the slot's token.
func (l *Locks) queue(ctx context.Context, s *slot, c claim) error {
	select {
	case s.token <- struct{}{}:
		l.taken(s, c)
		return nil
	default:
	}
	if c.waits == forNobody || c.waits == forLooks && !l.onlyLooks(s) {
		return errBusy
	}
	select {
	case s.token <- struct{}{}:
		l.taken(s, c)
		return nil
	case <-c.late:
		return errBusy
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// taken notes what the token was taken for.
func (l *Locks) taken(s *slot, c claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.looks = c.looks
}

// pass gives the token to the next one.
func (l *Locks) pass(s *slot) {
	l.taken(s, claim{})
	<-s.token
}

// onlyLooks reports whether whoever has the token only looks.
func (l *Locks) onlyLooks(s *slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.looks
}

func (l *Locks) lease(ctx context.Context, name string, c claim) (state.Lease, error) {
	for {
		lease, ok, err := l.store.Leases().Acquire(ctx, l.kind+"/"+name, l.server, lockTTL)
		if err != nil || ok {
			return lease, err
		}
		if c.waits == forNobody {
			return lease, errBusy
		}
		select {
		case <-ctx.Done():
			return lease, context.Cause(ctx)
		case <-c.late:
			return lease, errBusy
		case <-time.After(lockPoll):
		}
	}
}

// keep renews the lease until ctx ends.
func (l *Locks) keep(ctx context.Context, lease state.Lease, lost context.CancelCauseFunc) {
	t := time.NewTicker(lockRenew)
	defer t.Stop()
	held := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		began := time.Now()
		rctx, cancel := context.WithTimeout(ctx, lockTTL/3)
		renewed, err := l.store.Leases().Renew(rctx, lease, lockTTL)
		cancel()
		switch {
		case err == nil:
			lease, held = renewed, began
		case ctx.Err() != nil:
			return
		case errors.Is(err, state.ErrConflict), l.store.Shared() && time.Since(held) > lockTTL-2*lockRenew:
			lost(errLockLost) // it is another's, or may be before we can ask again
			return
		}
	}
}

func (l *Locks) enter(name string) *slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.held[name]
	if s == nil {
		s = &slot{token: make(chan struct{}, 1)}
		l.held[name] = s
	}
	s.users++
	return s
}

// looked notes that a look at a cluster succeeded, for those who wait for it.
func (l *Locks) looked(name string, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.held[name]; s != nil {
		s.looked = began
	}
}

// lookedSince reports whether a look at a cluster that began after a time has
// succeeded, as far as those know who have waited for it since then.
func (l *Locks) lookedSince(name string, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.held[name]
	return s != nil && s.looked.After(since)
}

func (l *Locks) leave(name string, s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(l.held, name)
	}
}
