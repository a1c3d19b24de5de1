// Package lease divides the work of an installation among its servers: each thing
// that somebody must look after, such as a managed job or a service, is worked on by
// the one server that holds its lease. A [Set] renews the leases of one kind of thing,
// takes over those of servers that are gone, and stops work whose lease is lost.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// How long a lease holds without renewal, how often leases are renewed, and how
// often things of dead servers should be looked for.
const (
	TTL       = 6 * time.Second
	BeatEvery = 2 * time.Second
	LookEvery = time.Second
)

// ErrLost is the cause of the context of work whose lease is another server's.
var ErrLost = fmt.Errorf("another server took this over: %w", state.ErrHandover)

// Store is the store of leases, see [state.Leases].
type Store interface {
	Acquire(ctx context.Context, name, owner string, ttl time.Duration) (state.Lease, bool, error)
	AcquireAll(ctx context.Context, names []string, owner string, ttl time.Duration) ([]state.Lease, error)
	Release(ctx context.Context, l state.Lease) error
	Beat(ctx context.Context, prefix, owner string, ttl time.Duration) (map[string]int64, error)
}

// Kind says what is leased.
type Kind[K comparable] struct {
	What   string // in messages: "managed jobs"
	Prefix string // of the names of the leases, followed by the key
	// Orphans lists the things under way whose lease no live server holds, and those
	// of owner, which may be "".
	Orphans func(ctx context.Context, owner string) ([]K, error)
	// Adopt makes the holder of leases the only one who may write the things, and
	// starts work on those of which that is true with [Set.Start].
	Adopt func(ctx context.Context, leases map[K]state.Lease) error
}

// Set is the things of a kind that one server works on.
type Set[K comparable] struct {
	kind   Kind[K]
	store  func() Store
	now    func() time.Time // by the database's clock
	server string
	log    *slog.Logger

	mine   string           // what an earlier life of this server held is not waited for
	unused map[string]int64 // leases without work at the latest beat, with their epochs

	mu       sync.Mutex
	works    map[K]*work
	lastBeat time.Time        // when the leases were renewed last
	renewed  map[string]int64 // by that beat, with their epochs
	adopting map[string]bool  // leases whose work is being started
	wg       sync.WaitGroup
}

// Work is what is done about one thing.
type Work interface {
	// Run works until ctx ends or nothing is left to do.
	Run(ctx context.Context)
	// Over reports that the end of the thing is written, or just being written: its
	// lease is gone or going. It does not block, and calls nothing of the Set.
	Over() bool
}

// Hold is the right of work to write, until its context ends.
type Hold struct {
	Lease  state.Lease
	cancel context.CancelCauseFunc
}

// Lost ends the work: somebody saw that the lease is another server's.
func (h *Hold) Lost() { h.cancel(ErrLost) }

type work struct {
	Work
	hold *Hold
}

// New returns an empty set of the server. now is the time by the database's clock.
func New[K comparable](kind Kind[K], store func() Store, now func() time.Time, server string, log *slog.Logger) *Set[K] {
	return &Set[K]{kind: kind, store: store, now: now, server: server, log: log, mine: server, works: map[K]*work{}}
}

// Name is the name of the lease on a thing.
func (s *Set[K]) Name(key K) string { return s.kind.Prefix + fmt.Sprint(key) }

// Get returns the work on a thing.
func (s *Set[K]) Get(key K) (w Work, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.works[key]; ok {
		return w.Work, true
	}
	return nil, false
}

// Len is how many things are worked on.
func (s *Set[K]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.works)
}

// Held reports whether the leases hold for certain.
func (s *Set[K]) Held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Sub(s.lastBeat) < TTL
}

// Keep renews the leases until ctx ends. It runs beside [Set.Adopt]: taking over many
// things takes longer than a lease holds.
func (s *Set[K]) Keep(ctx context.Context) {
	t := time.NewTicker(BeatEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		s.beat(ctx)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
}

// Begin notes that the leases hold from now on; it comes before Keep and Adopt.
func (s *Set[K]) Begin() { s.renew(s.now(), nil) }

// renew takes note of a renewal of the leases that began at a time, and stops the work
// whose lease was not among them. Nobody sees [Set.Held] between the two.
func (s *Set[K]) renew(at time.Time, renewed map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastBeat, s.renewed = at, renewed
	for _, w := range s.works {
		if s.lost(w.hold.Lease) && !w.Over() {
			w.hold.Lost()
		}
	}
}

// lost reports that somebody else may have the lease: the latest renewal began after it
// was taken and did not find it, or none began and it ran out.
func (s *Set[K]) lost(l state.Lease) bool {
	if taken := l.Expires.Add(-TTL); !taken.Before(s.lastBeat) {
		return !s.now().Before(l.Expires)
	}
	return s.renewed[l.Name] != l.Epoch
}

// beat renews the leases.
func (s *Set[K]) beat(ctx context.Context) {
	at := s.now()
	held, err := s.store().Beat(ctx, s.kind.Prefix, s.server, TTL)
	if err == nil {
		s.renew(at, held)
		s.giveUp(ctx, held)
		return
	}
	if ctx.Err() != nil {
		return
	}
	s.log.ErrorContext(ctx, "leases not renewed", "of", s.kind.What, "err", err)
	if s.Held() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.works { // by now others may act
		if !w.Over() {
			w.hold.Lost()
		}
	}
}

// giveUp releases the leases that no work has used for a while: whoever took them got
// no further, and as long as this server holds them nobody works on the things.
func (s *Set[K]) giveUp(ctx context.Context, held map[string]int64) {
	unused := map[string]int64{}
	s.mu.Lock()
	used := maps.Clone(s.adopting)
	if used == nil {
		used = make(map[string]bool, len(s.works))
	}
	for _, w := range s.works {
		used[w.hold.Lease.Name] = true
	}
	s.mu.Unlock()
	for name, epoch := range held {
		if used[name] {
			continue
		}
		unused[name] = epoch
		if s.unused[name] != epoch {
			continue
		}
		if err := s.store().Release(ctx, state.Lease{Name: name, Owner: s.server, Epoch: epoch}); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "lease not given up", "lease", name, "err", err)
		}
	}
	s.unused = unused
}

// Adopt takes over things that no live server holds, the first time also those that
// an earlier life of this server held. One call at a time is made of it.
func (s *Set[K]) Adopt(ctx context.Context) {
	keys, err := s.kind.Orphans(ctx, s.mine)
	if err != nil {
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "not listed", "what", s.kind.What, "err", err)
		}
		return
	}
	s.mine = ""
	s.mu.Lock()
	keys = slices.DeleteFunc(keys, func(k K) bool { return s.works[k] != nil })
	s.mu.Unlock()
	// In an order of its own, so that servers that do this at the same time share
	// the things instead of asking for the same ones.
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for some := range slices.Chunk(keys, adoptedAtOnce) {
		if ctx.Err() != nil {
			break
		}
		if err := s.adopt(ctx, some); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "not taken over", "what", s.kind.What, "number", len(some), "err", err)
		}
	}
}

// adoptedAtOnce is how many things are taken over with one call: others that take
// some get theirs meanwhile, and whoever writes to them does not wait for long.
const adoptedAtOnce = 100

// adopt starts work on those of the things whose leases this server gets. Leases that
// it got before something failed are given up soon, see [Set.giveUp].
func (s *Set[K]) adopt(ctx context.Context, keys []K) error {
	names, of := make([]string, len(keys)), make(map[string]K, len(keys))
	for i, k := range keys {
		names[i] = s.Name(k)
		of[names[i]] = k
	}
	s.adopts(names)
	defer s.adopts(nil)
	got, err := s.store().AcquireAll(ctx, names, s.server, TTL)
	if err != nil {
		return err
	}
	leases := make(map[K]state.Lease, len(got))
	for _, l := range got {
		leases[of[l.Name]] = l
	}
	if err := s.kind.Adopt(ctx, leases); err != nil {
		return err
	}
	for k, l := range leases { // of things that ended meanwhile
		if _, started := s.Get(k); !started {
			err = errors.Join(err, s.store().Release(ctx, l))
		}
	}
	return err
}

// adopts notes the leases whose work is being started, which may take a while.
func (s *Set[K]) adopts(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adopting = make(map[string]bool, len(names))
	for _, n := range names {
		s.adopting[n] = true
	}
}

// Acquire asks for the lease on one thing; ok is false while another server has it.
func (s *Set[K]) Acquire(ctx context.Context, key K) (l state.Lease, ok bool, err error) {
	return s.store().Acquire(ctx, s.Name(key), s.server, TTL)
}

// Release gives a lease back with which no work was started.
func (s *Set[K]) Release(ctx context.Context, l state.Lease) error { return s.store().Release(ctx, l) }

// Start begins the work that make returns; then is called after its end. If the lease
// was lost since it was taken, the context of the work has ended before it begins.
func (s *Set[K]) Start(key K, l state.Lease, make func(*Hold) Work, then func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	h := &Hold{l, cancel}
	w := make(h)
	s.mu.Lock()
	s.works[key] = &work{w, h}
	if s.lost(l) {
		h.Lost()
	}
	s.mu.Unlock()
	s.wg.Go(func() {
		w.Run(ctx)
		s.mu.Lock()
		delete(s.works, key)
		s.mu.Unlock()
		cancel(nil)
		then()
	})
}

// HandOver ends all work, which leaves every thing as it is for whoever comes next, and
// gives the leases up.
func (s *Set[K]) HandOver() {
	s.mu.Lock()
	for _, w := range s.works {
		w.hold.cancel(state.ErrHandover)
	}
	s.mu.Unlock()
	s.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := s.store().Beat(ctx, s.kind.Prefix, s.server, 0); err != nil {
		s.log.Warn("leases not given up; they run out by themselves", "of", s.kind.What, "err", err)
	}
}
