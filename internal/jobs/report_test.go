package jobs

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// A program has ended, its agent said so, and its machine is gone a moment later,
// before anybody asked the agent: it does not run again.
func TestAProgramThatEndedDoesNotRunAgainBecauseItsMachineGoes(t *testing.T) {
	for after := time.Duration(0); after <= 5*time.Second; after += 500 * time.Millisecond {
		for _, down := range []bool{false, true} { // the server dies before it stores the report
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, &plan{}, "")
				s.serve(func(w environment) environment { return blind{w} }) // only what is pushed gets through
				s.until(api.ManagedRunning)
				time.Sleep(time.Minute)
				s.does(func(g *gang) {
					g.ends(g.run, api.JobSucceeded, []int{0})
					if !s.plans[s.job].won {
						t.Error("the end was told and is not stored")
					}
				})
				if down {
					s.end()
				}
				time.Sleep(after)
				s.does(func(g *gang) { g.lose(0) })
				if down {
					time.Sleep(time.Minute)
					s.serve(nil)
				}
				got := s.until(api.ManagedSucceeded)
				if got.Recoveries != 0 || got.RanFor.Round(time.Second) != time.Minute {
					t.Errorf("%v, down %v: %d recoveries, ran for %v", after, down, got.Recoveries, got.RanFor)
				}
				s.close(1)
			})
		}
	}
}

// blind is an environment whose agents do not answer questions.
type blind struct{ environment }

func (b blind) Observe(ctx context.Context, a *state.ManagedAttempt) observation {
	o := b.environment.Observe(ctx, a)
	if o.job != nil {
		o.job, o.silent = nil, "no answer"
	}
	return o
}

// The word on the end of a job comes while the loss of its machine is just being
// written down, or after that: before the next attempt begins it counts.
func TestAWordThatComesWithTheProofOfALossCounts(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, &plan{}, "")
			told := false
			s.tell = func() []*Manager { return nil } // by another way, below
			s.through = func(d database) database {
				return meanwhile{database: d, managedJobs: d.ManagedJobs(), save: func(c state.ManagedChange, save func() error) error {
					if told || c.Attempt == nil || outcome(c.Attempt.Outcome) != outLost {
						return save()
					}
					told = true
					if late {
						if err := save(); err != nil {
							return err
						}
					}
					job := s.gangOf(c.Attempt.ClusterHash).run.job
					if err := s.m.Ended(context.Background(), c.Attempt.ClusterHash, job); err != nil {
						return err
					}
					if late {
						return nil
					}
					return save()
				}}
			}
			s.serve(func(w environment) environment { return blind{w} })
			s.until(api.ManagedRunning)
			s.does(func(g *gang) {
				g.ends(g.run, api.JobSucceeded, []int{0})
				g.lose(0)
			})
			if got := s.until(api.ManagedSucceeded); got.Attempt != 1 || !told {
				t.Errorf("late %v: attempt %d", late, got.Attempt)
			}
			s.close(1)
		})
	}
}

// gangOf is the machines of an incarnation, also of one that is gone.
func (s *scene) gangOf(hash string) *gang {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machines[hash]
}

// meanwhile is a database where something happens while a change is written.
type meanwhile struct {
	database
	managedJobs
	save func(c state.ManagedChange, save func() error) error
}

func (m meanwhile) ManagedJobs() managedJobs { return m }

func (m meanwhile) Save(ctx context.Context, c state.ManagedChange) error {
	return m.save(c, func() error { return m.managedJobs.Save(ctx, c) })
}

// Of a job whose machine was lost without a word on its end nobody knows how far it
// came: its history says so, and its duration ends with the last word.
func TestAnUnknownOutcomeIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, &plan{}, "")
		s.serve(nil)
		s.until(api.ManagedRunning)
		time.Sleep(2 * time.Minute)
		s.end()
		s.does(func(g *gang) { g.lose(0) })
		time.Sleep(30 * time.Minute)
		s.serve(nil)
		got := s.until(api.ManagedRecovering)
		if got.RanFor.Round(time.Second) != 2*time.Minute {
			t.Errorf("it ran for %v", got.RanFor)
		}
		if events := s.db.history(s.job); !strings.Contains(events, "outcome of attempt 1 unknown: machine lost 180") || !strings.Contains(events, "s after the last word; running again") {
			t.Error(events)
		}
		s.until(api.ManagedSucceeded)
		s.close(2)
	})
}

func TestOnlyEndsOfManagedJobsAreStored(t *testing.T) {
	for key, want := range map[string]bool{
		"managed-1-0-1": true, "managed-12-3-45": true,
		"managed-1-0": false, "managed-1-0-1-2": false, "managed-01-0-1": false, "managed-1-0-1 ": false, "x": false, "": false,
	} {
		if _, _, _, ok := parseAttemptKey(key); ok != want {
			t.Errorf("%q: %v", key, ok)
		}
	}
}
