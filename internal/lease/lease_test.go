package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// testEnv is the database of an installation, and the things in it.
type testEnv struct {
	t  *testing.T
	db *state.Store

	ended []atomic.Bool // by thing
	slow  bool          // servers start so

	mu    sync.Mutex
	held  map[string]state.Lease
	works map[int][]*server // who works on a thing, by key
}

func newTestEnv(t *testing.T, things int) *testEnv {
	t.Helper()
	db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &testEnv{t: t, db: db, ended: make([]atomic.Bool, things), held: map[string]state.Lease{}, works: map[int][]*server{}}
}

// server is one life of a server.
type server struct {
	w    *testEnv
	name string
	set  *Set[int]
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	dead    bool // its process is gone: nothing that it does counts
	away    bool // the database does not answer
	lossy   bool // calls have their effect, and the answers get lost
	refuses bool // adoption fails after the leases were taken
	slow    bool // adoption takes longer than a lease holds
}

var errAway = errors.New("the database does not answer")

func (s *server) flag(f *bool, to bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*f = to
}

func (s *server) is(f *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *f
}

// call makes a call of the database with the faults of the server.
func (s *server) call(do func() error) error {
	if s.is(&s.away) || s.is(&s.dead) {
		return errAway
	}
	err := do()
	if s.is(&s.lossy) {
		return errAway
	}
	return err
}

func (s *server) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (l state.Lease, ok bool, err error) {
	err = s.call(func() (err error) {
		l, ok, err = s.w.db.Leases().Acquire(ctx, name, owner, ttl)
		s.w.note(l)
		return err
	})
	return l, ok && err == nil, err
}

func (s *server) AcquireAll(ctx context.Context, names []string, owner string, ttl time.Duration) (ls []state.Lease, err error) {
	err = s.call(func() (err error) {
		ls, err = s.w.db.Leases().AcquireAll(ctx, names, owner, ttl)
		s.w.note(ls...)
		return err
	})
	return ls, err
}

func (s *server) Release(ctx context.Context, l state.Lease) error {
	return s.call(func() error {
		s.w.mu.Lock()
		if h := s.w.held[l.Name]; h.Owner == l.Owner && h.Epoch == l.Epoch {
			delete(s.w.held, l.Name)
		}
		s.w.mu.Unlock()
		return s.w.db.Leases().Release(ctx, l)
	})
}

func (s *server) Beat(ctx context.Context, prefix, owner string, ttl time.Duration) (held map[string]int64, err error) {
	err = s.call(func() (err error) {
		held, err = s.w.db.Leases().Beat(ctx, prefix, owner, ttl)
		for name, epoch := range held {
			s.w.note(state.Lease{Name: name, Owner: owner, Epoch: epoch, Expires: s.w.db.Now().Add(ttl)})
		}
		return err
	})
	return held, err
}

func (env *testEnv) note(ls ...state.Lease) {
	env.mu.Lock()
	defer env.mu.Unlock()
	for _, l := range ls {
		env.held[l.Name] = l
	}
}

// orphans lists what is under way and on no live server, and what owner holds.
func (env *testEnv) orphans(owner string) (keys []int) {
	env.mu.Lock()
	defer env.mu.Unlock()
	for k := range env.ended {
		h, held := env.held[fmt.Sprint("thing/", k)]
		if !env.ended[k].Load() && (!held || !h.Expires.After(env.db.Now()) || owner != "" && h.Owner == owner) {
			keys = append(keys, k)
		}
	}
	return keys
}

// The log has what failed, once, and nothing of calls that worked or that the server's
// own end cut off.
func TestTheLogHasWhatFailed(t *testing.T) {
	for _, tt := range []struct {
		name      string
		away, end bool // the database does not answer; the server ends
		want      []string
	}{
		{"all works", false, false, nil},
		{"the database does not answer", true, false, []string{"not listed", "lease not given up"}},
		{"the server ends", true, true, nil},
	} {
		env := newTestEnv(t, 1)
		s := &server{w: env, name: "a", away: tt.away}
		var log bytes.Buffer
		set := New(Kind[int]{What: "things", Prefix: "thing/",
			Orphans: func(context.Context, string) (keys []int, err error) {
				return nil, s.call(func() error { return nil })
			},
		}, func() Store { return s }, env.db.Now, "a", slog.New(slog.NewTextHandler(&log, nil)))
		ctx, end := context.WithCancel(t.Context())
		if tt.end {
			end()
		}
		set.Adopt(ctx)
		for range 2 { // what two beats in a row find without work is given up
			set.giveUp(ctx, map[string]int64{"thing/0": 1})
		}
		end()
		var got []string
		for line := range strings.Lines(log.String()) {
			for _, text := range []string{"not listed", "lease not given up"} {
				if strings.Contains(line, text) {
					got = append(got, text)
				}
			}
		}
		if !slices.Equal(got, tt.want) || strings.Count(log.String(), "\n") != len(tt.want) {
			t.Errorf("%s: the log has %q, want %q", tt.name, log.String(), tt.want)
		}
	}
}

// job is the work on a thing: it goes on until it is ended or told to stop.
type job struct {
	s   *server
	key int
	h   *Hold
}

func (j *job) Over() bool { return j.s.w.ended[j.key].Load() }

func (j *job) Run(ctx context.Context) {
	env := j.s.w
	env.mu.Lock()
	env.works[j.key] = append(env.works[j.key], j.s)
	env.mu.Unlock()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && !j.Over() {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	env.mu.Lock()
	if i := slices.Index(env.works[j.key], j.s); i >= 0 {
		env.works[j.key] = slices.Delete(env.works[j.key], i, i+1)
	}
	env.mu.Unlock()
}

// serve starts a life of the server of that name.
func (env *testEnv) serve(name string) *server {
	ctx, stop := context.WithCancel(context.Background())
	s := &server{w: env, name: name, stop: stop, slow: env.slow}
	s.set = New(Kind[int]{
		What: "things", Prefix: "thing/",
		Orphans: func(ctx context.Context, owner string) (keys []int, err error) {
			err = s.call(func() error { keys = env.orphans(owner); return nil })
			return keys, err
		},
		Adopt: func(ctx context.Context, leases map[int]state.Lease) error {
			if s.is(&s.slow) {
				time.Sleep(TTL + time.Second)
			}
			if s.is(&s.refuses) {
				return errors.New("adoption failed")
			}
			for k, l := range leases {
				if !env.ended[k].Load() {
					s.set.Start(k, l, func(h *Hold) Work { return &job{s: s, key: k, h: h} }, func() {})
				}
			}
			return nil
		},
	}, func() Store { return s }, env.db.Now, name, slog.New(slog.DiscardHandler))
	s.set.Begin()
	s.wg.Go(func() { s.set.Keep(ctx) })
	s.wg.Go(func() {
		t := time.NewTicker(LookEvery)
		defer t.Stop()
		for ctx.Err() == nil {
			s.set.Adopt(ctx)
			select {
			case <-ctx.Done():
			case <-t.C:
			}
		}
	})
	return s
}

// kill ends the life at once: nothing is given up, and its work is gone.
func (s *server) kill() {
	s.flag(&s.dead, true)
	s.stop()
	s.wg.Wait()
	s.set.HandOver() // ends the goroutines; the database does not hear of it
}

// leave ends the life in order.
func (s *server) leave() {
	s.stop()
	s.wg.Wait()
	s.set.HandOver()
}

// check fails the test if two servers may act on a thing at the same time.
func (env *testEnv) check() {
	env.t.Helper()
	env.mu.Lock()
	defer env.mu.Unlock()
	for k, at := range env.works {
		var may []string
		for _, s := range at {
			if !s.is(&s.dead) && s.set.Held() {
				may = append(may, s.name)
			}
		}
		if len(may) > 1 {
			env.t.Errorf("thing %d is worked on by %v", k, may)
		}
	}
}

// workers says who works on each thing that is under way.
func (env *testEnv) workers() map[int][]string {
	env.mu.Lock()
	defer env.mu.Unlock()
	out := map[int][]string{}
	for k := range env.ended {
		if !env.ended[k].Load() {
			out[k] = nil
			for _, s := range env.works[k] {
				out[k] = append(out[k], s.name)
			}
		}
	}
	return out
}

// settled fails the test unless each thing is worked on by one server.
func (env *testEnv) settled(when string) {
	env.t.Helper()
	for k, names := range env.workers() {
		if len(names) != 1 {
			env.t.Errorf("%s: thing %d is worked on by %v", when, k, names)
		}
	}
}

// Whatever happens to three servers, no two of them may act on one thing, and once
// nothing happens any more each thing is worked on.
func TestServersShareThings(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				env := newTestEnv(t, 120)
				servers := []*server{env.serve("a"), env.serve("b"), env.serve("c")}
				for range 60 {
					s := &servers[r.IntN(len(servers))]
					switch r.IntN(9) {
					case 0:
						(*s).kill()
						time.Sleep(time.Duration(r.IntN(9000)) * time.Millisecond)
						*s = env.serve((*s).name)
					case 1:
						(*s).leave()
						*s = env.serve((*s).name)
					case 2:
						(*s).flag(&(*s).away, true)
					case 3:
						(*s).flag(&(*s).lossy, true)
					case 4:
						(*s).flag(&(*s).refuses, true)
					case 5:
						(*s).flag(&(*s).slow, true)
					case 6:
						for range 5 {
							env.ended[r.IntN(120)].Store(true)
						}
					default:
						(*s).flag(&(*s).away, false)
						(*s).flag(&(*s).lossy, false)
						(*s).flag(&(*s).refuses, false)
						(*s).flag(&(*s).slow, false)
					}
					for range r.IntN(30) {
						time.Sleep(100 * time.Millisecond)
						env.check()
					}
				}
				for _, s := range servers {
					s.flag(&s.away, false)
					s.flag(&s.lossy, false)
					s.flag(&s.refuses, false)
					s.flag(&s.slow, false)
				}
				for range 200 {
					time.Sleep(100 * time.Millisecond)
					env.check()
				}
				env.settled("in the end")
				for _, s := range servers {
					s.leave()
				}
			})
		})
	}
}

// The things of a server that died are taken over as soon as its leases ran out; those
// of one that left, with the next look.
func TestThingsAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, 10)
		a := env.serve("a")
		time.Sleep(LookEvery)
		env.settled("alone")
		b := env.serve("b")
		time.Sleep(10 * time.Second)
		if n := b.set.Len(); n != 0 {
			t.Errorf("%d things were taken from a server that lives", n)
		}
		a.kill()
		time.Sleep(TTL + LookEvery + time.Millisecond)
		env.settled("after a died")
		a = env.serve("a")
		b.leave()
		time.Sleep(LookEvery + time.Millisecond)
		env.settled("after b left")
		a.leave()
	})
}

// A server that was started again goes on with its own things at once.
func TestAnEarlierLifeIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, 10)
		a := env.serve("a")
		time.Sleep(LookEvery)
		a.kill()
		a = env.serve("a")
		synctest.Wait()
		env.settled("at once")
		a.leave()
	})
}

// A server keeps its work while its leases hold, whether the database answers or not.
func TestAMomentWithoutTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, 10)
		a := env.serve("a")
		time.Sleep(BeatEvery + time.Millisecond)
		first, _ := a.set.Get(0)
		a.flag(&a.away, true)
		time.Sleep(TTL - BeatEvery)
		a.flag(&a.away, false)
		time.Sleep(BeatEvery)
		env.settled("after a moment")
		if again, _ := a.set.Get(0); again != first || first == nil {
			t.Error("the work was begun anew")
		}
		a.flag(&a.away, true)
		time.Sleep(TTL + BeatEvery)
		if n := a.set.Len(); n != 0 || a.set.Held() {
			t.Errorf("without leases, %d things are worked on", n)
		}
		a.flag(&a.away, false)
		a.leave()
	})
}

// Adoption may last until the leases are another server's: then nothing is worked on.
func TestAdoptionThatIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, 10)
		env.slow = true
		a := env.serve("a")
		env.slow = false
		time.Sleep(LookEvery) // its adoption is under way
		a.flag(&a.away, true)
		time.Sleep(TTL - BeatEvery)
		b := env.serve("b")
		for range 5 * 10 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			env.check()
			if a.set.Len() > 0 {
				t.Error("work was begun on leases that ran out")
			}
		}
		a.flag(&a.slow, false)
		a.flag(&a.away, false)
		for range 10 * 10 {
			time.Sleep(100 * time.Millisecond)
			env.check()
		}
		env.settled("in the end")
		a.leave()
		b.leave()
	})
}

// Work whose lease is another's is told why its context ends.
func TestLostWorkKnowsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, 1)
		a := env.serve("a")
		time.Sleep(LookEvery)
		cause := make(chan error, 1)
		l, ok, err := a.set.Acquire(t.Context(), 7)
		if err != nil || !ok {
			t.Fatalf("the lease is free, and Acquire says %v, %v", ok, err)
		}
		a.set.Start(7, l, func(*Hold) Work {
			return until(func(ctx context.Context) { <-ctx.Done(); cause <- context.Cause(ctx) })
		}, func() {})
		b := env.serve("b")
		if _, ok, _ := b.set.Acquire(t.Context(), 7); ok {
			t.Error("two servers have the lease")
		}
		a.flag(&a.away, true)
		if err := <-cause; !errors.Is(err, ErrLost) || !errors.Is(err, state.ErrHandover) {
			t.Errorf("the work ended with %v", err)
		}
		a.flag(&a.away, false)
		a.leave()
		b.leave()
	})
}

type until func(context.Context)

func (u until) Run(ctx context.Context) { u(ctx) }
func (u until) Over() bool              { return false }
