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

// away is a database that a server reaches only while it is not away.
type away struct {
	database
	managedJobs
	is *atomic.Bool
}

var errAway = errors.New("the database does not answer")

func (a away) ManagedJobs() managedJobs { return a }
func (a away) Leases() lease.Store      { return awayLeases{a.database.Leases(), a.is} }

func (a away) Orphans(ctx context.Context, owner string) ([]int, error) {
	if a.is.Load() {
		return nil, errAway
	}
	return a.managedJobs.Orphans(ctx, owner)
}

func (a away) Get(ctx context.Context, id int) (*state.ManagedJob, error) {
	if a.is.Load() {
		return nil, errAway
	}
	return a.managedJobs.Get(ctx, id)
}

func (a away) Save(ctx context.Context, c state.ManagedChange) error {
	if a.is.Load() {
		return errAway
	}
	return a.managedJobs.Save(ctx, c)
}

type awayLeases struct {
	lease.Store
	is *atomic.Bool
}

func (a awayLeases) Beat(ctx context.Context, prefix, owner string, ttl time.Duration) (map[string]int64, error) {
	if a.is.Load() {
		return nil, errAway
	}
	return a.Store.Beat(ctx, prefix, owner, ttl)
}

func (m *Manager) works() int {
	return m.held.Len()
}

// A server that cannot renew its leases on jobs stops working on them: another one may
// begin. A moment without the database is not enough.
func TestAServerThatCannotRenewItsLeasesStopsWorkingOnJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		var is atomic.Bool
		s.through = func(d database) database { return away{d, d.ManagedJobs(), &is} }
		s.serve(nil)
		s.until(api.ManagedRunning)
		is.Store(true)
		time.Sleep(lease.BeatEvery + time.Second)
		if s.m.works() != 1 {
			t.Error("it stopped although it has its leases")
		}
		time.Sleep(lease.TTL + time.Second)
		if n := s.m.works(); n != 0 {
			t.Errorf("it works on %d jobs that another server may have", n)
		}
		is.Store(false)
		time.Sleep(4 * lease.BeatEvery) // a lease that nobody used is given up first
		if s.m.works() != 1 {
			t.Error("nobody works on the job")
		}
		s.until(api.ManagedSucceeded)
		s.close(1)
	})
}

// The clock of a node may be wrong: no attempt ends before it ran.
func TestAJobOnANodeWhoseClockIsSlowEndsNotBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.tell = nil
		s.serve(nil)
		s.until(api.ManagedRunning)
		time.Sleep(time.Minute)
		s.does(func(g *gang) {
			j := &g.run.job
			j.Status, j.ExitCodes, j.EndedAt = api.JobSucceeded, []int{0}, float64(time.Now().Add(-time.Hour).Unix())
			close(g.run.over)
			s.ring(g.id.Hash)
		})
		got := s.until(api.ManagedSucceeded)
		if got.RanFor < 0 || got.EndedAt.Before(got.StartedAt) {
			t.Errorf("from %v to %v, ran for %v", got.StartedAt, got.EndedAt, got.RanFor)
		}
		a, err := s.db.Attempt(t.Context(), s.job, 0, 1)
		if err != nil || a.EndedAt.Before(a.RanAt) {
			t.Errorf("the attempt ran from %v to %v: %v", a.RanAt, a.EndedAt, err)
		}
		s.close(1)
	})
}
