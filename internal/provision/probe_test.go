package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// telling is a scripted cloud that knows which zones have room.
type telling struct {
	*scripted
	mu    sync.Mutex
	room  map[string]bool
	asked int
	takes time.Duration // each answer
}

func (p *telling) Available(ctx context.Context, o cloud.Offer, _ int) (cloud.Availability, error) {
	if !sleep(ctx, p.takes) {
		return cloud.Availability{}, &cloud.UnreachableError{Err: ctx.Err()}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.room[o.Zone] {
		return cloud.Availability{Verdict: cloud.AvailableNow}, nil
	}
	return cloud.Availability{Verdict: cloud.AvailableNone, Reason: "sold out"}, nil
}

func (p *telling) free(zone string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room[zone] = true
}

// full refuses every launch but in zones with room.
func full(room ...string) func(context.Context, cloud.LaunchSpec) error {
	return func(_ context.Context, s cloud.LaunchSpec) error {
		if slices.Contains(room, s.Offer.Zone) {
			return nil
		}
		return &cloud.CapacityError{Place: s.Offer.Place, Err: errors.New("sold out")}
	}
}

func tellingStage(t *testing.T, room ...string) (*stage, *telling) {
	s := newStage(t, full(room...))
	p := &telling{scripted: s.p, room: map[string]bool{}}
	for _, z := range room {
		p.room[z] = true
	}
	s.providers = cloud.NewRegistry(p)
	return s, p
}

func zones(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("z%02d", i)
	}
	return out
}

func TestAskedFirst(t *testing.T) {
	launches := func(s *stage) []string {
		return slices.DeleteFunc(slices.Clone(s.p.calls), func(c string) bool { return !strings.HasPrefix(c, "launch") })
	}
	t.Run("only what has room is tried", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := tellingStage(t, "z49")
			if _, err := s.provision(t.Context(), Options{}, zones(50)...); err != nil {
				t.Fatal(err)
			}
			if got := launches(s); len(got) != 1 || p.asked != 50 {
				t.Errorf("%d questions, then %v", p.asked, got)
			}
		})
	})
	t.Run("where there is room, one question", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := tellingStage(t, "z00")
			if _, err := s.provision(t.Context(), Options{}, zones(50)...); err != nil || p.asked != 1 {
				t.Errorf("%v after %d questions", err, p.asked)
			}
		})
	})
	t.Run("a hint may be wrong, and is not why a launch fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := tellingStage(t, "z02")
			p.room = map[string]bool{}
			o, err := s.provision(t.Context(), Options{}, zones(4)...)
			if err != nil || o.Zone != "z02" || !strings.Contains(s.out.String(), "although aws says: sold out") {
				t.Errorf("%v %v\n%s", o.Zone, err, s.out.String())
			}
		})
	})
	t.Run("a cloud that does not answer holds nobody up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := tellingStage(t, "z00")
			p.takes = time.Hour
			start := time.Now()
			if _, err := s.provision(t.Context(), Options{}, "z00"); err != nil || time.Since(start) > probeTime {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
	})
	t.Run("nobody is asked who must not be", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := tellingStage(t, "z01")
			if _, err := s.provision(t.Context(), Options{NoProbes: true}, zones(2)...); err != nil || p.asked != 0 || len(launches(s)) != 2 {
				t.Errorf("%v after %d questions and %v", err, p.asked, launches(s))
			}
		})
	})
}

func TestAwaitRoom(t *testing.T) {
	unplaced := &UnplacedError{Nodes: 1, Attempts: []*AttemptError{{Offer: zone("a"), Outcome: Capacity}}}
	for _, tt := range []struct {
		name        string
		happens     func(s *stage, p *telling, cancel func())
		least, most time.Duration
	}{
		{"nothing happens", func(*stage, *telling, func()) {}, time.Hour, time.Hour},
		{"machines are given back here", func(s *stage, _ *telling, _ func()) { s.Freed() }, 10 * time.Minute, 10*time.Minute + afterNotify},
		{"the cloud has room", func(_ *stage, p *telling, _ func()) { p.free("a") }, 10 * time.Minute, 10*time.Minute + watchMost},
		{"nobody wants it any more", func(_ *stage, _ *telling, cancel func()) { cancel() }, 10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := tellingStage(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(10*time.Minute, func() { tt.happens(s, p, cancel) })
				start := time.Now()
				s.AwaitRoom(ctx, unplaced, time.Hour)
				if took := time.Since(start); took < tt.least || took > tt.most {
					t.Errorf("it took %v, want %v to %v", took, tt.least, tt.most)
				}
				if p.asked > 300 {
					t.Errorf("the cloud was asked %d times", p.asked)
				}
				time.Sleep(time.Hour) // the event that nobody waits for any more
			})
		})
	}
}

// What the cloud said all along is no reason to try again at once: an attempt
// was refused although it said so.
func TestAwaitRoomIsNotFooled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tellingStage(t, "a")
		start := time.Now()
		s.AwaitRoom(t.Context(), &UnplacedError{Nodes: 1, Attempts: []*AttemptError{{Offer: zone("a"), Outcome: Capacity}}}, time.Hour)
		if took := time.Since(start); took != time.Hour {
			t.Errorf("woken after %v", took)
		}
	})
}

// slow is a cloud whose every call takes as long as a real API's.
type slow struct {
	*scripted
	latency time.Duration
	spent   time.Duration // on calls; one at a time
}

func (p *slow) call() {
	start := time.Now()
	time.Sleep(p.latency)
	p.spent += time.Since(start)
}
func (p *slow) Prepare(ctx context.Context, s cloud.LaunchSpec) error {
	p.call()
	return p.scripted.Prepare(ctx, s)
}
func (p *slow) Launch(ctx context.Context, s cloud.LaunchSpec) ([]cloud.Node, error) {
	p.call()
	return p.scripted.Launch(ctx, s)
}
func (p *slow) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	p.call()
	return p.scripted.Nodes(ctx, id)
}
func (p *slow) Terminate(ctx context.Context, id cloud.ClusterID) error {
	p.call()
	return p.scripted.Terminate(ctx, id)
}

// TestFailingOverCostsWhatTheCloudTakes: between the calls to a cloud with fifty
// full zones nothing waits, and each refusal costs two writes to the disk: that it
// begins, and how it ended.
func TestFailingOverCostsWhatTheCloudTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, full("z50"))
		p := &slow{scripted: s.p, latency: 100 * time.Millisecond}
		s.providers = cloud.NewRegistry(p)
		start := time.Now()
		if o, err := s.provision(t.Context(), Options{}, zones(51)...); err != nil || o.Zone != "z50" {
			t.Fatal(o, err)
		}
		if took := time.Since(start); took != p.spent {
			t.Errorf("%v, of which the cloud took %v", took, p.spent)
		}
		if most := 2*51 + 1; s.mem.writes > most { // the last one's cluster is confirmed
			t.Errorf("%d writes, not %d", s.mem.writes, most)
		}
	})
}

// BenchmarkFiftyFullZones fails over fifty full zones of a cloud whose calls take
// 20 ms, with the real database, and reports what is spent besides on all of it.
func BenchmarkFiftyFullZones(b *testing.B) {
	for b.Loop() {
		db, err := state.Open(b.Context(), filepath.Join(b.TempDir(), "sky.db"))
		if err != nil {
			b.Fatal(err)
		}
		p := &slow{scripted: &scripted{launch: full("z50"), running: map[cloud.ClusterID][]cloud.Node{}}, latency: 20 * time.Millisecond}
		e := New("i", cloud.NewRegistry(p), db, slog.New(slog.DiscardHandler))
		c := &state.Cluster{Name: "c", Hash: "h", NameOnCloud: "c-u", Status: api.ClusterInit, NumNodes: 2, Offer: zone("z00"), LaunchedAt: time.Now()}
		if err := db.Clusters().Create(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		var tier []cloud.Offer
		for _, z := range zones(51) {
			tier = append(tier, zone(z))
		}
		start := time.Now()
		if _, _, err := e.Provision(b.Context(), Request{Cluster: c, Nodes: 2, Tiers: [][]cloud.Offer{tier}}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric((time.Since(start) - p.spent).Seconds(), "s-besides")
		b.ReportMetric(p.spent.Seconds(), "s-in-the-cloud")
		db.Close()
	}
}
