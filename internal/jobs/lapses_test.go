package jobs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/state"
)

// failingEnvironment is an environment of which a call fails.
type failingEnvironment struct {
	environment
	*failure
}

func (f failingEnvironment) Taken(ctx context.Context, name string, job int) (bool, error) {
	return passing(f.failure, "Taken", func() (bool, error) { return f.environment.Taken(ctx, name, job) })
}

func (f failingEnvironment) Launch(ctx context.Context, l launch) (placed, error) {
	return passing(f.failure, "Launch", func() (placed, error) { return f.environment.Launch(ctx, l) })
}

func (f failingEnvironment) Confirm(ctx context.Context, a *state.ManagedAttempt) (s clusterState, reason string, err error) {
	err = f.do("Confirm", func() (err error) { s, reason, err = f.environment.Confirm(ctx, a); return err })
	return s, reason, err
}

func (f failingEnvironment) End(ctx context.Context, a *state.ManagedAttempt, grace time.Duration) error {
	return f.do("End", func() error { return f.environment.End(ctx, a, grace) })
}

func (f failingEnvironment) Down(ctx context.Context, a *state.ManagedAttempt, call cluster.Call) error {
	return f.do("Down", func() error { return f.environment.Down(ctx, a, call) })
}

// A call of a controller fails, each of them once: the job comes to the same end, no
// cluster is left, and the job's own log says what failed.
func TestAJobComesToItsEndWhicheverCallFails(t *testing.T) {
	for _, tt := range []struct {
		name      string
		plan      plan
		resources string
		patience  time.Duration
		then      func(s *scene) // what happens
		want      api.ManagedStatus
	}{
		{name: "it succeeds", want: api.ManagedSucceeded},
		{name: "it is preempted", want: api.ManagedSucceeded, then: func(s *scene) {
			s.until(api.ManagedRunning)
			s.does(func(g *gang) { g.lose(0) })
		}},
		{name: "a node is replaced", plan: plan{nodes: 3}, resources: ", job_recovery: {recovery: node}", want: api.ManagedSucceeded, then: func(s *scene) {
			s.until(api.ManagedRunning)
			s.does(func(g *gang) { g.lose(2) })
		}},
		{name: "it fails once too often", plan: plan{results: []int{7}}, resources: ", job_recovery: {max_restarts_on_errors: 1}", want: api.ManagedFailed},
		{name: "its network is cut for a while", want: api.ManagedSucceeded, then: func(s *scene) {
			s.until(api.ManagedRunning)
			s.does((*gang).partition)
			time.Sleep(time.Minute)
			s.does((*gang).heal)
		}},
		{name: "its machine hangs", patience: 3 * time.Minute, want: api.ManagedSucceeded, then: func(s *scene) {
			s.until(api.ManagedRunning)
			s.does((*gang).hang)
		}},
		{name: "there is no room at first", want: api.ManagedSucceeded, then: func(s *scene) {
			if err := s.cloud.Inject(model.Fault{ID: "full", Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NoCapacity, Message: "no room"}); err != nil {
				s.t.Fatal(err)
			}
			time.Sleep(time.Minute)
			s.cloud.Remove("full")
		}},
		{name: "it is cancelled", want: api.ManagedCancelled, then: func(s *scene) { s.cancel(0) }},
		{name: "it is cancelled gracefully", plan: plan{leaves: time.Minute}, want: api.ManagedCancelled, then: func(s *scene) { s.cancel(5 * time.Minute) }},
	} {
		calls := []string{"Get", "Save", "Attempt", "Attempts", "Taken", "Launch", "Confirm", "End", "Down"}
		stride := 1
		if testing.Short() { // under the race detector, to which they are much alike
			stride = 5
		}
		t.Run(tt.name, func(t *testing.T) {
			for _, call := range calls {
				for n, through := 0, false; !through; n += stride {
					synctest.Test(t, func(t *testing.T) {
						p := tt.plan
						s := newScene(t, &p, tt.resources)
						s.patience, p.work, p.left = tt.patience, 90*time.Second, 90*time.Second
						one := &failure{left: n, of: func(c string) bool { return c == call }}
						s.through = func(d database) database { return failing{d, one} }
						s.serve(func(w environment) environment { return failingEnvironment{w, one} })
						if tt.then != nil {
							tt.then(s)
						}
						s.until(tt.want)
						time.Sleep(2 * time.Minute)
						text, err := os.ReadFile(filepath.Join(s.m.dir, controlLogName(s.job)))
						if err != nil {
							t.Error(err)
						}
						// The first Save claims the job, and a Get may only look whether one that
						// launches is to be cancelled.
						untold := call == "Save" && n == 0 || call == "Get"
						if through = one.failed() == nil; !through && !untold && !strings.Contains(string(text), one.failed().Error()) {
							t.Errorf("%s %d: the failure is not told:\n%s", call, n, text)
						}
						if j, err := s.db.Get(t.Context(), s.job); err != nil || j.Schedule != api.ScheduleDone || j.EndedAt.IsZero() {
							t.Errorf("%s %d: the job is %s, ended %v, %v", call, n, j.Schedule, j.EndedAt, err)
						}
						s.close(s.count.clusters)
					})
					if n > 200 || t.Failed() {
						t.Fatalf("%s %d: it does not end well", call, n)
					}
				}
			}
		})
	}
}

// cancel waits until the job runs and cancels it.
func (s *scene) cancel(grace time.Duration) {
	s.until(api.ManagedRunning)
	time.Sleep(30 * time.Second)
	if _, err := s.db.AskCancel(s.t.Context(), []int{s.job}, grace); err != nil {
		s.t.Fatal(err)
	}
}

// What fails again and again is tried with pauses, and told each time.
func TestWhatFailsIsTriedAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		const times = 20
		many := &failure{more: times - 1, of: func(call string) bool { return call == "Taken" }}
		s.serve(func(w environment) environment { return failingEnvironment{w, many} })
		began := time.Now()
		s.until(api.ManagedStarting)
		if took := time.Since(began); took < times*failAgain || took > times*failAgain+2*lease.LookEvery {
			t.Errorf("it began after %v", took)
		}
		text, err := os.ReadFile(filepath.Join(s.m.dir, controlLogName(s.job)))
		if n := strings.Count(string(text), many.failed().Error()); n != times || err != nil {
			t.Errorf("told %d times, %v:\n%s", n, err, text)
		}
		s.until(api.ManagedSucceeded)
		s.close(1)
	})
}
