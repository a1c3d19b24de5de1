// What a controller does while somebody takes time for an answer, how often it
// asks, and what becomes of a lease whose taker got no further.

package jobs

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/state"
)

// slow is an environment whose provider takes its time for an answer.
type slow struct {
	environment
	took time.Duration
}

func (w slow) Confirm(ctx context.Context, a *state.ManagedAttempt) (clusterState, string, error) {
	sleep(ctx, w.took)
	return clusterUnknown, "", context.Cause(ctx)
}

// While a server waits for an answer of the provider, another one may find out
// what became of the machines.
func TestAProofCountsAtOnceWhileTheProviderIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(func(w environment) environment { return slow{w, time.Hour} })
		s.until(api.ManagedRunning)
		s.does(func(g *gang) {
			g.watched = true // nobody else looks
			g.lose(0)
		})
		time.Sleep(time.Minute) // the agent is silent, and the provider is being asked
		if got := s.is(); got.Status != api.ManagedRunning {
			t.Fatalf("%s unconfirmed", got.Status)
		}
		s.does(func(g *gang) {
			c := s.records[g.id.Name]
			c.Status, c.LastEvent, c.StatusUpdatedAt = api.ClusterInit, "another server saw that it is gone", time.Now()
			s.ring(c.Hash)
		})
		at := time.Now()
		if got := s.until(api.ManagedRecovering); time.Since(at) > 5*time.Second {
			t.Errorf("decided after %v: %s", time.Since(at), got.Details)
		}
		s.until(api.ManagedSucceeded)
		s.close(2)
	})
}

// What happens while the provider is asked about a job is looked at afterwards.
func TestAnEndWhileTheProviderIsAskedIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(func(w environment) environment { return slow{w, 20 * time.Second} })
		s.until(api.ManagedRunning)
		s.does((*gang).partition)
		time.Sleep(10 * time.Second)
		s.does((*gang).heal)
		s.does(func(g *gang) {
			s.plans[s.job].won = true
			g.ends(g.run, api.JobSucceeded, []int{0})
		})
		at := time.Now()
		s.until(api.ManagedSucceeded)
		if took := time.Since(at); took > 30*time.Second {
			t.Errorf("found out after %v", took)
		}
		s.close(1)
	})
}

// asking is an environment that counts how often an agent is asked to end its job.
type asking struct {
	environment
	ends *atomic.Int64
}

func (w asking) End(ctx context.Context, a *state.ManagedAttempt, grace time.Duration) error {
	w.ends.Add(1)
	return w.environment.End(ctx, a, grace)
}

func TestAnAgentIsAskedOnceToEndAJobGracefully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{leaves: 3 * time.Minute}, "")
		var ends atomic.Int64
		s.serve(func(w environment) environment { return asking{w, &ends} })
		s.until(api.ManagedRunning)
		if _, err := s.db.AskCancel(t.Context(), []int{s.job}, 5*time.Minute); err != nil {
			t.Fatal(err)
		}
		s.until(api.ManagedCancelled)
		if n := ends.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		s.close(1)
	})
}

// forgetful is a database that fails when a server has got the lease on a job and
// says so, and that does not hear of leases being given up either.
type forgetful struct {
	database
	managedJobs
	left *atomic.Int64
}

func (f forgetful) ManagedJobs() managedJobs { return f }
func (f forgetful) Leases() lease.Store      { return forgetfulLeases{f.database.Leases(), f.left} }

func (f forgetful) Adopt(ctx context.Context, id int, l state.Lease) (*state.ManagedJob, error) {
	if f.left.Load() > 0 {
		return nil, errors.New("the database is away")
	}
	return f.managedJobs.Adopt(ctx, id, l)
}

func (f forgetful) AdoptAll(ctx context.Context, leases map[int]state.Lease) ([]state.ManagedAdopted, error) {
	if f.left.Load() > 0 {
		return nil, errors.New("the database is away")
	}
	return f.managedJobs.AdoptAll(ctx, leases)
}

type forgetfulLeases struct {
	lease.Store
	left *atomic.Int64
}

func (f forgetfulLeases) Release(ctx context.Context, l state.Lease) error {
	if f.left.Add(-1) >= 0 {
		return errors.New("the database is away")
	}
	return f.Store.Release(ctx, l)
}

// A server that got the lease on a job, and then no further, must not hold it for
// ever: nobody would work on the job.
func TestALeaseWithoutAControllerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(nil)
		s.until(api.ManagedRunning)
		s.end()
		time.Sleep(lease.TTL)
		var left atomic.Int64
		left.Store(1)
		s.through = func(d database) database { return forgetful{d, d.ManagedJobs(), &left} }
		s.serve(nil)
		s.until(api.ManagedSucceeded)
		s.close(1)
	})
}
