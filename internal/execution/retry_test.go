package execution

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/task"
)

// silent takes progress in.
type silent struct{}

func (silent) Write(b []byte) (int, error) { return len(b), nil }
func (silent) Spin(string)                 {}
func (silent) StopSpin()                   {}

// A capacity block is had as soon as it begins, and given up at the deadline of
// the configuration.
func TestWaitingForABlockThatHasNotBegun(t *testing.T) {
	for _, tt := range []struct {
		name   string
		begins time.Duration
		hours  float64
		had    bool
	}{
		{"it begins in time", 5*time.Hour + 17*time.Minute, 0, true},
		{"it begins before the deadline", 90 * time.Minute, 2, true},
		{"the deadline comes first", 5 * time.Hour, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, err := config.FromMap(config.Server, config.Origin{}, map[string]any{"provision": map[string]any{"retry_hours": tt.hours}})
				if err != nil {
					t.Fatal(err)
				}
				x := New(Deps{Provision: provision.New("i", cloud.NewRegistry(), nil, slog.New(slog.DiscardHandler))})
				began := time.Now()
				starts := began.Add(tt.begins)
				var last time.Time
				rounds := 0
				_, err = untilUp(t.Context(), x, cluster.Call{Out: silent{}, Config: cfg}, &task.Task{}, true, func(context.Context) (int, error) {
					last, rounds = time.Now(), rounds+1
					if !time.Now().Before(starts) {
						return 1, nil
					}
					full := &cloud.CapacityError{Expected: starts, Err: errors.New("the capacity reservation cr-a is scheduled")}
					return 0, &provision.UnplacedError{Cluster: "c", Nodes: 1, Attempts: []*provision.AttemptError{{Outcome: provision.Capacity, Err: full}}}
				})
				if (err == nil) != tt.had {
					t.Fatalf("after %v: %v", time.Since(began), err)
				}
				if tt.had && last.Sub(starts) > time.Second {
					t.Errorf("tried %v after it had begun", last.Sub(starts))
				}
				if !tt.had && time.Since(began) != 2*time.Hour {
					t.Errorf("given up after %v", time.Since(began))
				}
				if most := int(tt.begins/(retryMost/2)) + 10; rounds > most {
					t.Errorf("%d rounds", rounds)
				}
			})
		})
	}
}
