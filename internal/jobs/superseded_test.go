package jobs

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
)

func TestALaunchEndsTheJobsOfEarlierAttemptsOnly(t *testing.T) {
	a := &state.ManagedAttempt{JobID: 7, Task: 1, Number: 10}
	for i, tt := range []struct {
		key    string
		status api.JobStatus
		ended  bool
	}{
		{"managed-7-1-9", api.JobRunning, true},
		{"managed-7-1-1", api.JobPending, true},
		{"managed-7-1-9", api.JobSucceeded, false},
		{"managed-7-1-10", api.JobRunning, false}, // its own, of a launch that a crash cut off
		{"managed-7-1-11", api.JobRunning, false},
		{"managed-7-0-9", api.JobRunning, false},
		{"managed-17-1-9", api.JobRunning, false},
		{"managed-7-1-", api.JobRunning, false},
		{"managed-7-1-9x", api.JobRunning, false},
		{"1d5a0ac5-17f0-4a5a-9c3f-3c7b5d2f9a11", api.JobRunning, false}, // somebody's exec
	} {
		got := superseded([]agentapi.Job{{ID: i + 1, Key: tt.key, Status: tt.status}}, a)
		if slices.Contains(got, i+1) != tt.ended {
			t.Errorf("%s, %s: ended %v, want %v", tt.key, tt.status, got, tt.ended)
		}
	}
}

// A server dies at each of its calls while it brings a lost job back, on a new
// cluster and on what is left of the old one: the next server finds what the dead
// one did, and nobody cancels the job.
func TestAServerThatDiesAnywhereInARecoveryCancelsNothing(t *testing.T) {
	for _, tt := range []struct {
		name      string
		nodes     int
		resources string
		lost      int // rank of the machine that is taken
		clusters  int
	}{
		{"a new cluster", 1, "", 0, 2},
		{"one node of three is replaced", 3, ", job_recovery: {recovery: node}", 2, 1},
	} {
		for calls, through := 0, false; !through; calls++ {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, &plan{nodes: tt.nodes}, tt.resources)
				s.serve(nil)
				s.life.acts.Store(true)
				s.until(api.ManagedRunning)
				s.does(func(g *gang) { g.lose(tt.lost) })
				for s.is().Attempt < 2 {
					time.Sleep(10 * time.Millisecond)
				}
				s.life.light(calls)
				for !s.life.isDead() && s.is().Status != api.ManagedRunning {
					time.Sleep(time.Second / 4)
				}
				if through = !s.life.isDead(); through {
					s.life.light(-1)
				} else {
					s.end()
					s.serve(nil)
				}
				got := s.until(api.ManagedSucceeded)
				if got.Recoveries != 1 {
					t.Errorf("%s, death after %d calls: %d recoveries", tt.name, calls, got.Recoveries)
				}
				s.close(tt.clusters)
			})
			if calls > 500 {
				t.Fatalf("%s: the recovery does not end", tt.name)
			}
		}
	}
}

// A job that ended CANCELLED on its cluster although nobody cancelled it here is
// no cancelled job: it runs again, and its history says why.
func TestAJobThatIsCancelledOnItsClusterByNobodyRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(nil)
		s.until(api.ManagedRunning)
		s.does(func(g *gang) { g.ends(g.run, api.JobCancelled, nil) })
		if got := s.until(api.ManagedRecovering); !strings.Contains(got.Details, "nobody cancelled it") {
			t.Errorf("it says %q", got.Details)
		}
		s.until(api.ManagedSucceeded)
		s.close(2)
		if events := s.db.history(s.job); strings.Contains(events, "CANCELLED") {
			t.Error(events)
		}
	})
}
