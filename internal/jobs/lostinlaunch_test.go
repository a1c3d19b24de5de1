package jobs

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/api"
)

// vanishing is an environment in which the cluster of the first attempt is gone before its
// launch answers. before is what its job does until then.
type vanishing struct {
	environment
	s      *scene
	before func(g *gang)
}

func (v vanishing) Launch(ctx context.Context, l launch) (placed, error) {
	p, err := v.environment.Launch(ctx, l)
	if err != nil || l.attempt.Number > 1 {
		return p, err
	}
	v.s.does(v.before)
	v.s.mu.Lock()
	c := v.s.records[l.attempt.ClusterName]
	v.s.mu.Unlock()
	if err := v.s.down(ctx, c); err != nil {
		return placed{}, err
	}
	return placed{}, &lostError{"the cluster was gone before its job was seen"}
}

// What the agent reported of a job counts, also if its cluster is gone before a server
// noted that it had the job. Of a job without a report nobody knows how far it came.
func TestAClusterThatIsGoneBeforeItsLaunchAnswers(t *testing.T) {
	ends := func(status api.JobStatus, code int) func(*gang) {
		return func(g *gang) { g.ends(g.run, status, []int{code}) }
	}
	for _, tt := range []struct {
		name       string
		before     func(*gang)
		want       api.ManagedStatus
		recoveries int // of a job that is known to have run
		clusters   int
	}{
		{"it succeeded", ends(api.JobSucceeded, 0), api.ManagedSucceeded, 0, 1},
		{"it failed by itself", ends(api.JobFailed, 3), api.ManagedFailed, 0, 1},
		{"it was killed, maybe with its machine", ends(api.JobFailed, 137), api.ManagedSucceeded, 1, 2},
		{"it reported nothing", func(*gang) {}, api.ManagedSucceeded, 0, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, &plan{}, "")
			s.serve(func(e environment) environment { return vanishing{e, s, tt.before} })
			got := s.until(tt.want)
			if got.Recoveries != tt.recoveries || got.StartedAt.IsZero() {
				t.Errorf("%s: %d recoveries, started at %v, want %d", tt.name, got.Recoveries, got.StartedAt, tt.recoveries)
			}
			s.close(tt.clusters)
		})
	}
}
