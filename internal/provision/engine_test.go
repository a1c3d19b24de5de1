package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// scripted is a cloud whose launches do what a test says.
type scripted struct {
	launch    func(ctx context.Context, s cloud.LaunchSpec) error // after it, unless it failed, the gang runs
	terminate func() error                                        // nil: succeeds
	after     func()                                              // follows a termination
	listFails bool

	mu      sync.Mutex
	running map[cloud.ClusterID][]cloud.Node
	calls   []string
	stamp   string
}

func (p *scripted) Name() string                                    { return "aws" }
func (p *scripted) DisplayName() string                             { return "AWS" }
func (p *scripted) Features() cloud.Features                        { return cloud.Features{MaxNameLength: 20} }
func (p *scripted) Check(context.Context) (cloud.Identity, error)   { return nil, nil }
func (p *scripted) Offers(context.Context) ([]cloud.Offer, error)   { return nil, nil }
func (p *scripted) Prepare(context.Context, cloud.LaunchSpec) error { return nil }
func (p *scripted) CredentialStamp() string                         { return p.stamp }
func (p *scripted) said(format string, args ...any) {
	p.calls = append(p.calls, fmt.Sprintf(format, args...))
}

func (p *scripted) Launch(ctx context.Context, s cloud.LaunchSpec) ([]cloud.Node, error) {
	p.mu.Lock()
	p.said("launch %s as %s", s.Offer.Zone, s.ID.Name)
	p.mu.Unlock()
	err := p.launch(ctx, s)
	if err == nil {
		p.up(s, s.Nodes)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[s.ID], err
}

// up makes n nodes run.
func (p *scripted) up(s cloud.LaunchSpec, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[s.ID] = nil
	for rank := range n {
		p.running[s.ID] = append(p.running[s.ID], cloud.Node{ID: fmt.Sprint(s.ID.Name, rank), Cluster: s.ID.Name, Hash: s.ID.Hash, Rank: rank, State: cloud.NodeRunning, Place: s.Offer.Place})
	}
}

func (p *scripted) Nodes(_ context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listFails {
		return nil, &cloud.UnreachableError{Err: errors.New("no list")}
	}
	var all []cloud.Node
	for k, nodes := range p.running {
		if id.Name == "" || k == id {
			all = append(all, nodes...)
		}
	}
	return all, nil
}

func (p *scripted) Terminate(_ context.Context, id cloud.ClusterID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said("terminate %s", id.Name)
	if p.terminate != nil {
		if err := p.terminate(); err != nil {
			return err
		}
	}
	delete(p.running, id)
	if p.after != nil {
		p.after()
	}
	return nil
}

// stage is an engine over a scripted cloud and a record of cluster c.
type stage struct {
	*Engine
	p   *scripted
	mem *memory
	c   *state.Cluster
	out bytes.Buffer
}

func newStage(t *testing.T, launch func(context.Context, cloud.LaunchSpec) error) *stage {
	s := &stage{p: &scripted{launch: launch, running: map[cloud.ClusterID][]cloud.Node{}}, mem: newMemory()}
	s.Engine = &Engine{providers: cloud.NewRegistry(s.p), records: s.mem, log: slog.New(slog.DiscardHandler), install: "i"}
	s.c = &state.Cluster{Name: "c", Hash: "h", NameOnCloud: "c-u", Status: api.ClusterInit, NumNodes: 2, Offer: zone("a")}
	if err := s.mem.Create(t.Context(), s.c); err != nil {
		t.Fatal(err)
	}
	return s
}

func zone(z string) cloud.Offer {
	return cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "east", Zone: z}, InstanceType: "p4", HourlyPrice: 1}
}

func (s *stage) provision(ctx context.Context, o Options, zones ...string) (cloud.Offer, error) {
	var tier []cloud.Offer
	for _, z := range zones {
		tier = append(tier, zone(z))
	}
	offer, nodes, err := s.Provision(ctx, Request{Cluster: s.c, Nodes: 2, Tiers: [][]cloud.Offer{tier}, Out: &s.out, Options: o})
	if err == nil && len(nodes) != 2 {
		err = fmt.Errorf("%d nodes", len(nodes))
	}
	return offer, err
}

// open is how many attempts have not ended.
func (s *stage) open(t *testing.T) int {
	open, err := s.mem.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

func TestACallThatHangsIsCutAndGivenBack(t *testing.T) {
	for name, listens := range map[string]bool{"it listens": true, "it does not even listen": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer close(release)
				var s *stage
				s = newStage(t, func(ctx context.Context, spec cloud.LaunchSpec) error {
					if spec.Offer.Zone == "b" {
						return nil
					}
					s.p.up(spec, 1)
					if listens {
						<-ctx.Done()
						return ctx.Err()
					}
					<-release
					return errors.New("too late")
				})
				start := time.Now()
				o, err := s.provision(t.Context(), Options{}, "a", "b")
				if err != nil || o.Zone != "b" {
					t.Fatalf("got %v, %v", o.Place, err)
				}
				if took, limit := time.Since(start), paces[stepLaunch].unknown; took < limit || took > limit+time.Minute {
					t.Errorf("took %v, want hardly more than the deadline of %v", took, limit)
				}
				// The second attempt has another name: machines of the first
				// that come up late are strays.
				want := "launch a as c-u; terminate c-u; launch b as c-u-2"
				if got := strings.Join(s.p.calls, "; "); got != want {
					t.Errorf("calls: %s\nwant:  %s", got, want)
				}
				row, _ := s.mem.Cluster(t.Context(), "c")
				if row.NameOnCloud != "c-u-2" || row.Offer.Zone != "b" || s.open(t) != 0 {
					t.Errorf("the record says %s in %v, %d attempts are open", row.NameOnCloud, row.Offer.Place, s.open(t))
				}
				attempts, _ := s.mem.OfCluster(t.Context(), "h")
				if attempts[0].Outcome != Timeout || len(attempts[0].Steps) == 0 {
					t.Errorf("the first attempt is recorded as %+v", attempts[0].AttemptEnd)
				}
				if !strings.Contains(s.out.String(), "still getting 2 machines in aws/east/a") {
					t.Errorf("nothing is said of the wait:\n%s", s.out.String())
				}
			})
		})
	}
}

// patient is a provider whose launches may take as long as it says.
type patient struct {
	*scripted
	limit time.Duration
}

func (p patient) LaunchLimit(cloud.LaunchSpec) time.Duration { return p.limit }

// A provider that waits in a queue, or for an image, is not cut off because
// others were quick; what it waits for is told.
func TestAPatientProviderIsNotCut(t *testing.T) {
	for _, tt := range []struct {
		limit time.Duration
		says  string
	}{
		{25 * time.Hour, "given up after 25h"},
		{cloud.Forever, "never given up"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var s *stage
			s = newStage(t, func(ctx context.Context, spec cloud.LaunchSpec) error {
				cloud.ReportWait(ctx, "its turn\nin the queue")
				time.Sleep(20 * time.Hour)
				s.p.up(spec, 2)
				return ctx.Err()
			})
			s.providers = cloud.NewRegistry(patient{s.p, tt.limit})
			if o, err := s.provision(t.Context(), Options{}, "a", "b"); err != nil || o.Zone != "a" {
				t.Errorf("got %v, %v", o.Place, err)
			}
			for _, want := range []string{
				"Getting 2 machines in aws/east/a: waiting for its turn in the queue\n",
				"still getting 2 machines in aws/east/a, waiting for its turn in the queue: ", tt.says,
			} {
				if !strings.Contains(s.out.String(), want) {
					t.Errorf("%q is not said in %.600s", want, s.out.String())
				}
			}
		})
	}
}

// A cloud that had all its time is not given the same time twice more; one that
// could not be asked is asked again.
func TestAProviderThatHasWaitedLongEnoughIsNotAskedAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"overdue", &cloud.UnreachableError{Err: &cloud.OverdueError{Err: errors.New("waited 10m0s for the instances to run")}},
			"launch a as c-u; terminate c-u; launch b as c-u-2"},
		{"no answer", &cloud.UnreachableError{Err: errors.New("connection reset")},
			"launch a as c-u; launch a as c-u; launch a as c-u; terminate c-u; launch b as c-u-2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, func(_ context.Context, spec cloud.LaunchSpec) error {
				if spec.Offer.Zone == "b" {
					return nil
				}
				time.Sleep(10 * time.Minute)
				return tt.err
			})
			if o, err := s.provision(t.Context(), Options{}, "a", "b"); err != nil || o.Zone != "b" {
				t.Errorf("%s: got %v, %v", tt.name, o.Place, err)
			}
			if got := strings.Join(s.p.calls, "; "); got != tt.want {
				t.Errorf("%s: calls %s", tt.name, got)
			}
		})
	}
}

// What a provider wants people to know is told once, among what is done.
func TestANoteOfAProviderIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.p.launch = func(ctx context.Context, spec cloud.LaunchSpec) error {
			cloud.Note(ctx, "All ports are open to the world.")
			s.p.up(spec, spec.Nodes)
			return nil
		}
		if _, err := s.provision(t.Context(), Options{}, "a"); err != nil || strings.Count(s.out.String(), "⚠ All ports are open to the world.\n") != 1 {
			t.Errorf("%v; said:\n%s", err, s.out.String())
		}
	})
}

// An attempt that a server which died may have begun is known to the provider as that.
func TestAnAttemptThatIsTakenUpAgainIsResumed(t *testing.T) {
	for _, tt := range []struct{ open, keep bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			open := tt.open
			var resumed []bool
			s := newStage(t, nil)
			s.p.launch = func(_ context.Context, spec cloud.LaunchSpec) error {
				resumed = append(resumed, spec.Resumed)
				s.p.up(spec, spec.Nodes)
				return nil
			}
			if open {
				if err := s.mem.Begin(t.Context(), state.Attempt{Token: "t", ClusterName: "c", ClusterHash: "h", NameOnCloud: "c-u", Offer: zone("a"), Nodes: 2, StartedAt: time.Now()}); err != nil {
					t.Fatal(err)
				}
			}
			_, _, err := s.Provision(t.Context(), Request{Cluster: s.c, Nodes: 2, Tiers: Exactly(zone("a")), Out: &s.out, Keep: tt.keep})
			if err != nil || len(resumed) != 1 || resumed[0] != open {
				t.Errorf("%+v: resumed: %v, %v", tt, resumed, err)
			}
		})
	}
}

func TestALostAnswerIsLookedUp(t *testing.T) {
	for _, tt := range []struct {
		name    string
		came    int // machines that came up although the answer was lost
		again   error
		want    string
		outcome string
	}{
		{"a whole gang is kept", 2, nil, "launch a as c-u", OK},
		{"a half one is completed", 1, nil, "launch a as c-u; launch a as c-u", OK},
		{"a half one that cannot be is given back", 1, &cloud.CapacityError{Err: errors.New("full")}, "launch a as c-u; launch a as c-u; terminate c-u", Capacity},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *stage
				calls := 0
				s = newStage(t, func(_ context.Context, spec cloud.LaunchSpec) error {
					if calls++; calls > 1 {
						return tt.again
					}
					s.p.up(spec, tt.came)
					return &cloud.UnreachableError{Err: errors.New("connection reset")}
				})
				_, err := s.provision(t.Context(), Options{}, "a")
				if got := strings.Join(s.p.calls, "; "); got != tt.want {
					t.Errorf("calls: %s\nwant:  %s", got, tt.want)
				}
				attempts, _ := s.mem.OfCluster(t.Context(), "h")
				if (err == nil) != (tt.outcome == OK) || attempts[0].Outcome != tt.outcome {
					t.Errorf("recorded as %q, error %v", attempts[0].Outcome, err)
				}
			})
		})
	}
}

func TestTheQuickestOfSeveralWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(ctx context.Context, spec cloud.LaunchSpec) error {
			wait := map[string]time.Duration{"a": time.Hour, "b": 10 * time.Minute, "c": 3 * time.Minute}[spec.Offer.Zone]
			if !sleep(ctx, wait) {
				return ctx.Err()
			}
			return nil
		})
		start := time.Now()
		o, err := s.provision(t.Context(), Options{Hedge: 3}, "a", "b", "c")
		if err != nil || o.Zone != "c" {
			t.Fatalf("got %v, %v", o.Place, err)
		}
		usual := paces[stepLaunch].usual
		if took, want := time.Since(start), 2*usual+3*time.Minute; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
		if len(s.p.running) != 1 || s.open(t) != 0 {
			t.Errorf("%d clusters run, %d attempts are open", len(s.p.running), s.open(t))
		}
		row, _ := s.mem.Cluster(t.Context(), "c")
		if row.Offer.Zone != "c" || row.NameOnCloud != "c-u-3" {
			t.Errorf("the record says %s in %v", row.NameOnCloud, row.Offer.Place)
		}
	})
}

// A hedge of an attempt that a server which died began goes elsewhere.
func TestAHedgeIsNotWhereAnAttemptIsTakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(ctx context.Context, spec cloud.LaunchSpec) error {
			if spec.Offer.Zone == "a" && !sleep(ctx, time.Hour) {
				return ctx.Err()
			}
			return nil
		})
		begun := state.Attempt{Token: "t", ClusterName: "c", ClusterHash: "h", NameOnCloud: "c-u", Offer: zone("a"), Nodes: 2, StartedAt: time.Now()}
		if err := s.mem.Begin(t.Context(), begun); err != nil {
			t.Fatal(err)
		}
		o, err := s.provision(t.Context(), Options{Hedge: 2}, "a", "b")
		if got, want := strings.Join(s.p.calls, "; "), "launch a as c-u; launch b as c-u-2; terminate c-u"; err != nil || o.Zone != "b" || got != want {
			t.Errorf("got %v, %v, calls: %s", o.Place, err, got)
		}
	})
}

func TestADearOfferIsNoHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(ctx context.Context, spec cloud.LaunchSpec) error {
			if !sleep(ctx, 10*time.Minute) {
				return ctx.Err()
			}
			return nil
		})
		dear := zone("b")
		dear.HourlyPrice = 5
		_, _, err := s.Provision(t.Context(), Request{Cluster: s.c, Nodes: 2, Tiers: [][]cloud.Offer{{zone("a"), dear}}, Options: Options{Hedge: 2}})
		if got := strings.Join(s.p.calls, "; "); err != nil || got != "launch a as c-u" {
			t.Errorf("calls: %s, error %v", got, err)
		}
	})
}

func TestWhatCannotBeGivenBackIsSettledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		s = newStage(t, func(_ context.Context, spec cloud.LaunchSpec) error {
			s.p.up(spec, 1)
			return &cloud.CapacityError{Place: spec.Offer.Place, Err: errors.New("full")}
		})
		s.p.terminate = func() error { return &cloud.UnreachableError{Err: errors.New("no route")} }
		_, err := s.provision(t.Context(), Options{}, "a", "b")
		if !is[*LeftoverError](err) || s.open(t) != 1 {
			t.Fatalf("error %v, %d attempts open", err, s.open(t))
		}
		if err := s.Settle(t.Context()); err == nil || len(s.p.running) != 1 {
			t.Fatalf("settled without proof: %v", err)
		}
		s.p.terminate = nil
		if err := s.Settle(t.Context()); err != nil || len(s.p.running) != 0 || s.open(t) != 0 {
			t.Errorf("not settled: %v, %d clusters run, %d attempts open", err, len(s.p.running), s.open(t))
		}
	})
}

// TestWhatALaunchHadIsFoundAgain: the server dies after the attempt came out well
// and before the cluster was up. The launch that goes on takes the same machines,
// and makes none beside them.
func TestWhatALaunchHadIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("full")
		s := newStage(t, func(_ context.Context, spec cloud.LaunchSpec) error {
			if spec.Offer.Zone == "a" {
				return &cloud.CapacityError{Place: spec.Offer.Place, Err: full}
			}
			return nil
		})
		for range 3 {
			offer, err := s.provision(t.Context(), Options{}, "a", "b")
			if err != nil || offer.Zone != "b" {
				t.Fatal(offer, err)
			}
			if len(s.p.running) != 1 {
				t.Fatalf("gangs run under %d names: %q", len(s.p.running), s.p.calls)
			}
			c, err := s.mem.Cluster(t.Context(), "c")
			if err != nil || len(s.p.running[s.ClusterID(c)]) != 2 {
				t.Fatalf("the record does not name the machines: %+v, %v", c, err)
			}
		}
	})
}

func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(_ context.Context, spec cloud.LaunchSpec) error {
			return &cloud.CapacityError{Place: spec.Offer.Place, Err: errors.New("full")}
		})
		if _, err := s.provision(t.Context(), Options{}, "a"); err == nil {
			t.Fatal("it succeeded")
		}
		for stray, want := range map[*Stray]bool{
			{Cloud: "aws", Cluster: "c-u", Hash: "h"}:   true,
			{Cloud: "aws", Cluster: "c-u", Hash: "h2"}:  false,
			{Cloud: "aws", Cluster: "other", Hash: "h"}: false,
			{Cloud: "gcp", Cluster: "c-u", Hash: "h"}:   false,
		} {
			if got := s.GivenUp(t.Context(), *stray); got != want {
				t.Errorf("%+v: %t, want %t", stray, got, want)
			}
		}
	})
}

func TestSettlingLeavesLaunchesUnderWayAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		a := state.Attempt{Token: "t", ClusterHash: "h", ClusterName: "c", NameOnCloud: "c-u-2", Offer: zone("b"), Nodes: 2, StartedAt: time.Now()}
		if err := s.mem.Begin(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		lease, _, err := s.mem.Acquire(t.Context(), clusterLease("c"), "a server", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context()); err != nil || s.open(t) != 1 {
			t.Fatalf("settled under somebody's hands: %v", err)
		}
		if err := s.mem.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context()); err != nil || s.open(t) != 0 {
			t.Errorf("not settled afterwards: %v", err)
		}
	})
}

func TestAFailedStartStopsOnlyWhatItStarted(t *testing.T) {
	for name, ran := range map[string]int{"nothing ran": 0, "a node ran": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *stage
				s = newStage(t, func(_ context.Context, spec cloud.LaunchSpec) error {
					s.p.up(spec, 1)
					return &cloud.CapacityError{Place: spec.Offer.Place, Err: errors.New("full")}
				})
				stops := 0
				s.Engine.providers = cloud.NewRegistry(stopping{s.p, &stops})
				s.c.EverUp = true
				if ran > 0 {
					s.p.up(cloud.LaunchSpec{ID: s.ClusterID(s.c), Offer: zone("a")}, ran)
				}
				_, _, err := s.Provision(t.Context(), Request{Cluster: s.c, Nodes: 2, Tiers: Exactly(zone("a")), Keep: true})
				if !is[*UnplacedError](err) || stops != 1-ran || len(s.p.running) != 1 {
					t.Errorf("error %v, stopped %d times, %d clusters exist", err, stops, len(s.p.running))
				}
			})
		})
	}
}

type stopping struct {
	*scripted
	stops *int
}

func (s stopping) Stop(context.Context, cloud.ClusterID) error { *s.stops++; return nil }

func TestStraysHaveAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.p.up(cloud.LaunchSpec{ID: s.ClusterID(s.c), Offer: zone("a")}, 1) // owned
		late := s.ClusterID(s.c)
		late.Name = "c-u-9"
		s.p.up(cloud.LaunchSpec{ID: late, Offer: zone("b")}, 2) // the same cluster's, under a name that its record does not say
		end := SweepOptions{End: func(Stray) bool { return true }}
		sweep := func() SweepReport {
			r, err := s.Sweep(t.Context(), end)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := sweep(); len(r.Strays) != 0 {
			t.Fatalf("ended at once: %+v", r)
		}
		time.Sleep(DefaultGrace)
		held, _, _ := s.mem.Acquire(t.Context(), sweepLease, "another server", time.Minute)
		if r := sweep(); !r.Elsewhere || len(r.Strays) != 1 || r.Strays[0].Ended {
			t.Fatalf("two servers sweep at once: %+v", r)
		}
		s.mem.Release(t.Context(), held)
		if r := sweep(); len(r.Strays) != 1 || !r.Strays[0].Ended || len(r.Strays[0].Nodes) != 2 || len(s.p.running) != 1 {
			t.Fatalf("swept: %+v; %d clusters run", r, len(s.p.running))
		}
		s.p.listFails = true
		if r := sweep(); r.Unlisted["aws"] == "" || len(r.Strays) != 0 {
			t.Errorf("a cloud that cannot be asked: %+v", r)
		}
	})
}

func TestNamesFitAndDiffer(t *testing.T) {
	n := newNames("a-very-long-name-of-a-cluster")
	seen := map[string]bool{}
	for range 12 {
		name := n.take("aws", 20)
		if len(name) > 20 || seen[name] || strings.HasSuffix(name, "-") {
			t.Errorf("%q: %d bytes, seen before: %t", name, len(name), seen[name])
		}
		seen[name] = true
	}
	n.free("aws", fit(n.base, 3, 20))
	if got := n.take("aws", 20); got != fit(n.base, 3, 20) {
		t.Errorf("a free name is not used again: %s", got)
	}
}

// A search that goes on in a cloud with less room cuts what another one had room for.
func TestNamesThatAreCutDiffer(t *testing.T) {
	seen := map[string]string{}
	for i := range 3000 {
		name := task.NameOnCloud(fmt.Sprintf("%s%d", strings.Repeat("n", 60), i), "abcd1234", 240)
		n := newNames(name)
		for range 2 {
			got := n.take("kubernetes", 42)
			if other := seen[got]; other != "" || len(got) > 42 {
				t.Fatalf("%s and %s are both %s", name, other, got)
			}
			seen[got] = name
		}
	}
}

func TestGoneIsWhatTheCloudNoLongerLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		s = newStage(t, func(_ context.Context, spec cloud.LaunchSpec) error {
			if spec.Offer.Zone == "b" {
				return nil
			}
			s.p.up(spec, 1)
			return &cloud.CapacityError{Place: spec.Offer.Place, Err: errors.New("full")}
		})
		// The first call is said to be through, and a machine appears all the
		// same.
		s.Engine.providers = cloud.NewRegistry(&deaf{scripted: s.p})
		if _, err := s.provision(t.Context(), Options{}, "a", "b"); err != nil {
			t.Fatal(err)
		}
		if want, got := "launch a as c-u; terminate c-u; launch b as c-u-2", strings.Join(s.p.calls, "; "); got != want || len(s.p.running) != 1 {
			t.Errorf("calls: %s\nwant:  %s; %d clusters run", got, want, len(s.p.running))
		}
	})
}

// deaf is a cloud that does nothing the first time it is asked to terminate, and
// says that it has.
type deaf struct {
	*scripted
	heard bool
}

func (d *deaf) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if !d.heard {
		d.heard = true
		return nil
	}
	return d.scripted.Terminate(ctx, id)
}
