package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/state"
)

// scene is one job on a cloud that behaves, in virtual time.
type scene struct {
	up atomic.Bool // a server runs
	*outside
	t       *testing.T
	db      *memory
	job     int
	changes notify.Keyed[string]
	lives   int
	life    *life // of the server that was started last
	m       *Manager
	end     func()

	through func(database) database // how servers see the database; nil: as it is
}

// newScene submits a job that works for ten minutes.
func newScene(t *testing.T, p *plan, resources string) *scene {
	c, provider, offers, err := newCloud(1, 10)
	if err != nil {
		t.Fatal(err)
	}
	c.Remove("bad-day")
	s := &scene{t: t, db: newMemory(), outside: &outside{
		seed: 1, steady: true, cloud: c, provider: provider, offers: offers, plans: map[int]*plan{},
		records: map[string]*row{}, machines: map[string]*gang{}, lastLost: map[attemptTask]loss{},
	}}
	s.listen = func() []*notify.Keyed[string] {
		if !s.up.Load() {
			return nil
		}
		return []*notify.Keyed[string]{&s.changes}
	}
	s.tell = func() []*Manager {
		if !s.up.Load() {
			return nil
		}
		return []*Manager{s.m}
	}
	p.nodes, p.work, p.spot = max(p.nodes, 1), 10*time.Minute, true
	if p.results == nil {
		p.results = []int{0}
	}
	p.left = p.work
	j, err := s.db.Submit(t.Context(), &state.ManagedJob{
		Name: "j", UserHash: "u", SubmittedAt: time.Now(), Tasks: []*state.ManagedTask{{Name: "j"}},
		Dag: fmt.Appendf(nil, "name: j\nnum_nodes: %d\nresources: {use_spot: true%s}\nrun: work\n%s", p.nodes, resources, p.more),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.job, s.plans[j.ID] = j.ID, p
	return s
}

// serve starts a server; through may change what it sees of its environment.
func (s *scene) serve(through func(environment) environment) {
	s.lives++
	ctx, cancel := context.WithCancel(context.Background())
	l := newLife(cancel)
	s.life = l
	var w environment = &fakeEnvironment{outside: s.outside, life: l, changes: &s.changes}
	if through != nil {
		w = through(w)
	}
	var d database = crashingDatabase{d: s.db, l: l}
	if s.through != nil {
		d = s.through(d)
	}
	m := newManager(d, w, slog.New(slog.DiscardHandler), fmt.Sprint("server", s.lives), s.t.TempDir(), 4)
	m.patience = func() time.Duration { return s.patience }
	s.m = m
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	s.up.Store(true)
	s.end = func() { // it dies at once
		s.up.Store(false)
		l.light(0)
		_ = l.breath()
		<-done
		s.end = nil
	}
}

// is what the job's task is at the moment.
func (s *scene) is() *state.ManagedTask {
	s.t.Helper()
	j, err := s.db.Get(s.t.Context(), s.job)
	if err != nil {
		s.t.Fatal(err)
	}
	return j.Current()
}

// until waits until the job's task is in a state.
func (s *scene) until(want api.ManagedStatus) *state.ManagedTask {
	s.t.Helper()
	for end := time.Now().Add(6 * time.Hour); time.Now().Before(end); time.Sleep(time.Second / 4) {
		if t := s.is(); t.Status == want {
			return t
		}
	}
	s.t.Fatalf("the job is %s (%s), not %s", s.is().Status, s.is().Details, want)
	return nil
}

func (s *scene) close(clusters int) {
	s.t.Helper()
	time.Sleep(2 * time.Minute)
	if s.end != nil {
		s.end()
	}
	for _, v := range s.violations {
		s.t.Error(v)
	}
	if s.count.clusters != clusters {
		s.t.Errorf("%d clusters were launched, want %d", s.count.clusters, clusters)
	}
	if len(s.records) > 0 {
		s.t.Errorf("clusters are left: %v", s.records)
	}
}

// gangs are the incarnations of the job's cluster.
func (s *scene) gang() *gang {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.records {
		return s.machines[c.Hash]
	}
	s.t.Fatal("there is no cluster")
	return nil
}

func (s *scene) does(f func(g *gang)) {
	g := s.gang()
	s.mu.Lock()
	defer s.mu.Unlock()
	f(g)
}

// deaf is an environment whose status calls time out.
type deaf struct {
	environment
	calls *atomic.Int64
	until int64
}

func (d deaf) Observe(ctx context.Context, a *state.ManagedAttempt) observation {
	o := d.environment.Observe(ctx, a)
	if d.calls.Add(1) <= d.until && o.job != nil {
		time.Sleep(30 * time.Second)
		o.job, o.silent = nil, "no answer within 30s"
	}
	return o
}

// Twenty-five status calls in a row that time out once made the reference
// relaunch a job that was fine.
func TestTwentyFiveStatusTimeoutsOfAHealthyJobCauseNoRelaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.tell = nil // nothing else comes through either
		var calls atomic.Int64
		s.serve(func(w environment) environment { return deaf{w, &calls, 25} })
		s.until(api.ManagedRunning)
		shown := 0
		for calls.Load() < 25 {
			time.Sleep(time.Second)
			got := s.is()
			if got.Status != api.ManagedRunning {
				t.Fatalf("after %d time-outs the job is %s: %s", calls.Load(), got.Status, got.Details)
			}
			if strings.HasPrefix(got.Details, "UNREACHABLE since 2000-01-01 00:") {
				shown++
			}
		}
		if shown == 0 {
			t.Error("nobody was told that the job is out of reach")
		}
		if got := s.until(api.ManagedSucceeded); got.Recoveries != 0 || got.Details != "" {
			t.Errorf("%d recoveries, details %q", got.Recoveries, got.Details)
		}
		s.close(1)
	})
}

func TestAJobThatEndedWhileNobodyLookedIsFoundSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(nil)
		s.until(api.ManagedRunning)
		s.end()
		time.Sleep(30 * time.Minute)
		s.serve(nil)
		if got := s.until(api.ManagedSucceeded); got.Recoveries != 0 {
			t.Errorf("%d recoveries", got.Recoveries)
		}
		s.close(1)
	})
}

func TestAJobBehindACutNetworkIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(nil)
		s.until(api.ManagedRunning)
		s.does((*gang).partition)
		time.Sleep(30 * time.Minute) // the job ends meanwhile
		if got := s.is(); got.Status != api.ManagedRunning || !isSilent(got) {
			t.Errorf("%s, %q", got.Status, got.Details)
		}
		s.does((*gang).heal)
		healed := time.Now()
		s.until(api.ManagedSucceeded)
		if took := time.Since(healed); took > 5*time.Second {
			t.Errorf("found out %v after the network was back", took)
		}
		s.close(1)
	})
}

// A machine that hangs while its provider calls it running is given back when the
// installation's patience is over, and only then the job runs elsewhere. Without
// a limit it is waited for.
func TestAHungMachineIsEndedBeforeTheJobRunsElsewhere(t *testing.T) {
	for _, patience := range []time.Duration{0, 45 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, &plan{}, "")
			s.patience = patience
			s.serve(nil)
			s.until(api.ManagedRunning)
			s.does((*gang).hang)
			from := s.gang()
			time.Sleep(44 * time.Minute)
			if got := s.is(); got.Status != api.ManagedRunning || !isSilent(got) {
				t.Errorf("%v: %s, %q", patience, got.Status, got.Details)
			}
			if patience == 0 {
				time.Sleep(2 * 24 * time.Hour)
				if got := s.is(); got.Status != api.ManagedRunning || got.Recoveries != 0 {
					t.Errorf("%s, %q, %d recoveries", got.Status, got.Details, got.Recoveries)
				}
				if _, err := s.db.AskCancel(t.Context(), []int{s.job}, 0); err != nil {
					t.Fatal(err)
				}
				s.until(api.ManagedCancelled)
				s.close(1)
				return
			}
			s.until(api.ManagedRecovering)
			for s.is().Status == api.ManagedRecovering {
				time.Sleep(time.Second)
			}
			for _, m := range s.cloud.Machines() {
				if m.ID == from.ids[0] && m.State != fluffyapi.Terminated {
					t.Errorf("it runs again although the machine that hangs is %s", m.State)
				}
			}
			if got := s.until(api.ManagedSucceeded); got.Recoveries != 1 {
				t.Errorf("%d recoveries", got.Recoveries)
			}
			all, _ := s.db.Attempts(t.Context(), s.job)
			if len(all) != 2 || outcome(all[0].Outcome) != outHung || all[1].StartedAt.Before(all[0].ClosedAt) {
				t.Errorf("attempts %+v", all)
			}
			s.close(2)
		})
	}
}

// A worker that hangs under a head that answers is silence, too: the head's word
// that the job runs says nothing about it.
func TestAHungWorkerUnderAnAnsweringHeadIsNoHealthyJob(t *testing.T) {
	for _, patience := range []time.Duration{0, 45 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, &plan{nodes: 3}, "")
			s.patience = patience
			s.serve(nil)
			s.until(api.ManagedRunning)
			s.does((*gang).stick)
			time.Sleep(44 * time.Minute)
			if got := s.is(); got.Status != api.ManagedRunning || !isSilent(got) || !strings.Contains(got.Details, "worker1") {
				t.Errorf("%v: %s, %q", patience, got.Status, got.Details)
			}
			if patience == 0 {
				time.Sleep(24 * time.Hour)
				if got := s.is(); got.Status != api.ManagedRunning || got.Recoveries != 0 {
					t.Errorf("%s, %q, %d recoveries", got.Status, got.Details, got.Recoveries)
				}
				if _, err := s.db.AskCancel(t.Context(), []int{s.job}, 0); err != nil {
					t.Fatal(err)
				}
				s.until(api.ManagedCancelled)
				s.close(1)
				return
			}
			if got := s.until(api.ManagedSucceeded); got.Recoveries != 1 {
				t.Errorf("%d recoveries", got.Recoveries)
			}
			all, _ := s.db.Attempts(t.Context(), s.job)
			if len(all) != 2 || outcome(all[0].Outcome) != outHung || all[1].StartedAt.Before(all[0].ClosedAt) {
				t.Errorf("attempts %+v", all)
			}
			s.close(2)
		})
	}
}

// What counts is the silence that one server heard: one that has just come does
// not know what was before.
func TestPatienceBeginsAnewWithAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.patience = 45 * time.Minute
		s.serve(nil)
		s.until(api.ManagedRunning)
		s.does((*gang).partition)
		time.Sleep(30 * time.Minute)
		s.end()
		time.Sleep(20 * time.Minute)
		s.serve(nil)
		time.Sleep(30 * time.Minute)
		if got := s.is(); got.Status != api.ManagedRunning || !isSilent(got) {
			t.Errorf("%s, %q", got.Status, got.Details)
		}
		s.does((*gang).heal)
		s.until(api.ManagedSucceeded)
		s.close(1)
	})
}

// A job that is cancelled gracefully ends by itself, if it does so in time.
func TestAGracefulCancelLetsProcessesEnd(t *testing.T) {
	for _, tt := range []struct {
		name          string
		leaves, grace time.Duration
		then          func(s *scene)
		took          time.Duration
	}{
		{name: "it ends in time", leaves: 3 * time.Minute, grace: 5 * time.Minute, took: 3 * time.Minute},
		{name: "it takes too long", leaves: time.Hour, grace: 5 * time.Minute, took: 5 * time.Minute},
		{name: "the server dies meanwhile", leaves: 3 * time.Minute, grace: 5 * time.Minute, took: 3 * time.Minute, then: func(s *scene) {
			time.Sleep(time.Minute)
			s.end()
			time.Sleep(time.Minute)
			s.serve(nil)
		}},
		{name: "it is cancelled again, at once", leaves: time.Hour, grace: 5 * time.Minute, took: time.Minute, then: func(s *scene) {
			time.Sleep(time.Minute)
			s.does(func(g *gang) { g.run.by = time.Time{} }) // the judge is told
			if _, err := s.db.AskCancel(s.t.Context(), []int{s.job}, 0); err != nil {
				s.t.Fatal(err)
			}
		}},
		{name: "its machine is lost meanwhile", leaves: time.Hour, grace: 30 * time.Minute, took: time.Minute, then: func(s *scene) {
			time.Sleep(time.Minute)
			s.does(func(g *gang) { g.lose(0) })
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, &plan{leaves: tt.leaves}, "")
			s.serve(nil)
			s.until(api.ManagedRunning)
			if _, err := s.db.AskCancel(t.Context(), []int{s.job}, tt.grace); err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			if tt.then != nil {
				s.until(api.ManagedCancelling)
				tt.then(s)
			}
			s.until(api.ManagedCancelled)
			if took := time.Since(at); took < tt.took || took > tt.took+15*time.Second {
				t.Errorf("%s: it took %v, not %v", tt.name, took, tt.took)
			}
			j, err := s.db.Get(t.Context(), s.job)
			if err != nil {
				t.Fatal(err)
			}
			if ended := j.Tasks[0].EndedAt.Sub(at); ended < tt.took || ended > tt.took+15*time.Second {
				t.Errorf("%s: it ended after %v, not %v", tt.name, ended, tt.took)
			}
			if ran := j.Tasks[0].RanFor; ran < tt.took || ran > tt.took+30*time.Second {
				t.Errorf("%s: it ran for %v, and %v since it was cancelled", tt.name, ran, tt.took)
			}
			s.close(1)
		})
	}
}

// A job whose max_duration is over has ended when its processes have, and its log has
// what they said last.
func TestAJobThatRunsOutOfItsTimeEndsWithItsProcesses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		leaves time.Duration
		then   func(s *scene)
		took   time.Duration
	}{
		{name: "in time", leaves: 7 * time.Second, took: 7 * time.Second},
		{name: "too slowly", leaves: time.Hour, took: proc.Grace},
		{name: "while the server is away", leaves: 7 * time.Second, took: time.Minute, then: func(s *scene) {
			s.end()
			time.Sleep(time.Minute)
			s.serve(nil)
		}},
		{name: "cancelled meanwhile", leaves: 7 * time.Second, took: 7 * time.Second, then: func(s *scene) {
			if _, err := s.db.AskCancel(s.t.Context(), []int{s.job}, time.Hour); err != nil {
				s.t.Fatal(err)
			}
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, &plan{leaves: tt.leaves, more: "max_duration: 5m\n"}, "")
			s.serve(nil)
			over := s.until(api.ManagedRunning).StartedAt.Add(5 * time.Minute)
			time.Sleep(time.Until(over) + 2*time.Second)
			if is := s.is().Status; is.Terminal() {
				t.Errorf("%s: it is %s while its processes run", tt.name, is)
			}
			if tt.then != nil {
				tt.then(s)
			}
			task := s.until(api.ManagedFailed)
			if ran := task.EndedAt.Sub(task.StartedAt); task.RanFor != ran {
				t.Errorf("%s: it ran for %v, and %v are counted", tt.name, ran, task.RanFor)
			}
			if took := task.EndedAt.Sub(over); took < tt.took || took > tt.took+15*time.Second {
				t.Errorf("%s: it ended %v after its time was over, not %v", tt.name, took, tt.took)
			}
			s.close(1)
		})
	}
}

func TestALieOfTheProviderEndsNothing(t *testing.T) {
	for _, lie := range []string{"terminated", "stopped"} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, &plan{}, "")
			s.serve(nil)
			s.until(api.ManagedRunning)
			if err := s.cloud.Inject(model.Fault{ID: "lie", Kind: model.Lie, State: lie}); err != nil {
				t.Fatal(err)
			}
			s.does((*gang).broken) // makes servers ask
			time.Sleep(3 * time.Minute)
			s.cloud.Remove("lie")
			if got := s.until(api.ManagedSucceeded); got.Recoveries != 0 {
				t.Errorf("%s: %d recoveries", lie, got.Recoveries)
			}
			s.close(1)
		})
	}
}

func TestAPreemptedJobRecoversWithinSecondsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(nil)
		s.until(api.ManagedRunning)
		from := s.gang()
		s.does(func(g *gang) { g.lose(0) })
		at := time.Now()
		s.until(api.ManagedRecovering)
		if took := time.Since(at); took > 5*time.Second {
			t.Errorf("decided after %v", took)
		}
		if got := s.until(api.ManagedSucceeded); got.Recoveries != 1 {
			t.Errorf("%d recoveries", got.Recoveries)
		}
		all, _ := s.db.Attempts(t.Context(), s.job)
		if len(all) != 2 || all[0].Offer.Region == all[1].Offer.Region || all[0].Reason == "" {
			t.Errorf("attempts %+v of %s", all, from.id.Name)
		}
		s.close(2)
	})
}

// A loss is forgotten after a while: what was the first choice then is so again.
func TestARegionIsForgivenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plan{results: []int{33, 33, 0}}
		s := newScene(t, p, ", job_recovery: {recover_on_exit_codes: 33}")
		p.work, p.left = time.Hour, time.Hour
		s.serve(nil)
		s.until(api.ManagedRunning)
		s.does(func(g *gang) { g.lose(0) })
		s.until(api.ManagedSucceeded)
		all, _ := s.db.Attempts(t.Context(), s.job)
		var regions []string
		for _, a := range all {
			regions = append(regions, a.Offer.Region)
		}
		first := regions[0]
		if len(regions) != 4 || regions[1] == first || regions[2] == first || regions[3] != first {
			t.Errorf("it ran in %v: not away from where it lost its machines, and back in time", regions)
		}
		s.close(4)
	})
}

func TestAnotherServerTakesOverWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(nil)
		s.until(api.ManagedRunning)
		s.end()
		at := time.Now()
		s.serve(nil)
		s.does(func(g *gang) { g.lose(0) })
		s.until(api.ManagedRecovering)
		if took := time.Since(at); took > 10*time.Second {
			t.Errorf("taken over after %v", took)
		}
		s.until(api.ManagedSucceeded)
		s.close(2)
	})
}

func TestALostNodeIsReplacedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{nodes: 3}, ", job_recovery: {recovery: node}")
		s.serve(nil)
		s.until(api.ManagedRunning)
		var kept []string
		s.does(func(g *gang) { kept = []string{g.ids[0], g.ids[1]}; g.lose(2) })
		s.until(api.ManagedRecovering)
		if got := s.until(api.ManagedRunning); got.Attempt != 2 {
			t.Errorf("attempt %d", got.Attempt)
		}
		s.does(func(g *gang) {
			if !slices.Equal(g.ids[:2], kept) || g.ids[2] == "" || len(s.cloud.Machines()) != 4 {
				t.Errorf("machines %v, of which %v were kept", g.ids, kept)
			}
		})
		s.until(api.ManagedSucceeded)
		all, _ := s.db.Attempts(t.Context(), s.job)
		if len(all) != 2 || all[0].ClusterHash != all[1].ClusterHash || outcome(all[0].Outcome) != outNode || all[0].ClosedAt.IsZero() {
			t.Errorf("attempts %+v", all)
		}
		s.close(1)
	})
}

func TestALostHeadTakesTheClusterWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{nodes: 3}, ", job_recovery: {recovery: node}")
		s.serve(nil)
		s.until(api.ManagedRunning)
		s.does(func(g *gang) { g.lose(0) })
		s.until(api.ManagedSucceeded)
		s.close(2)
	})
}

// A job whose program fails at once, again and again, is not started as fast as
// machines can be had.
func TestAProgramThatKeepsFailingIsStartedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plan{results: []int{33}}
		s := newScene(t, p, ", job_recovery: {recover_on_exit_codes: 33}")
		p.work, p.left = time.Second, time.Second
		s.serve(nil)
		time.Sleep(time.Hour)
		all, _ := s.db.Attempts(t.Context(), s.job)
		if n := len(all); n < 8 || n > 40 {
			t.Errorf("%d attempts in an hour", n)
		}
		if _, err := s.db.AskCancel(t.Context(), []int{s.job}, 0); err != nil {
			t.Fatal(err)
		}
		s.until(api.ManagedCancelled)
		s.close(s.count.clusters)
	})
}
