package fluffycloud_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// leaving is an API whose caller leaves during the first call that changes
// something; such calls take a second each.
type leaving struct {
	fluffyapi.API
	leave *atomic.Pointer[context.CancelFunc]
}

func (l leaving) slow(ctx context.Context) error {
	if leave := l.leave.Load(); leave != nil {
		(*leave)()
		select {
		case <-ctx.Done():
			return fluffyapi.NoAnswer(ctx.Err())
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (l leaving) Stop(ctx context.Context, id string) (fluffyapi.Instance, error) {
	if err := l.slow(ctx); err != nil {
		return fluffyapi.Instance{}, err
	}
	return l.API.Stop(ctx, id)
}

func (l leaving) Terminate(ctx context.Context, id string) (fluffyapi.Instance, error) {
	if err := l.slow(ctx); err != nil {
		return fluffyapi.Instance{}, err
	}
	return l.API.Terminate(ctx, id)
}

func (l leaving) Create(ctx context.Context, c fluffyapi.Create) (fluffyapi.Instance, error) {
	if err := l.slow(ctx); err != nil {
		return fluffyapi.Instance{}, err
	}
	return l.API.Create(ctx, c)
}

// TestACallerWhoLeavesLeavesNothingHalfDone: what a cancelled caller began comes
// to its end for all machines of the cluster.
func TestACallerWhoLeavesLeavesNothingHalfDone(t *testing.T) {
	for _, what := range []string{"stop", "terminate", "launch"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var leave atomic.Pointer[context.CancelFunc]
				h, c := memoryWith(t, func(a fluffyapi.API) fluffyapi.API { return leaving{a, &leave} })
				spec := h.Spec
				spec.ID, spec.Nodes, spec.Token = cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, 16, "token"
				if err := h.Provider.Prepare(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
				if what != "launch" {
					if _, err := h.Provider.Launch(t.Context(), spec); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				leave.Store(&cancel)
				var err error
				switch what {
				case "stop":
					stopper, _ := cloud.As[cloud.Stopper](h.Provider)
					err = stopper.Stop(ctx, spec.ID)
				case "terminate":
					err = h.Provider.Terminate(ctx, spec.ID)
				case "launch":
					_, err = h.Provider.Launch(ctx, spec)
				}
				if err == nil {
					t.Error("it is said to be done, and nobody waited")
				}
				before := len(c.Machines())
				time.Sleep(time.Hour)
				running := 0
				for _, m := range c.Machines() {
					if m.State == fluffyapi.Running {
						running++
					}
				}
				if what != "launch" && running > 0 {
					t.Errorf("%d of 16 machines still run", running)
				}
				if after := len(c.Machines()); after != before {
					t.Errorf("%d machines came to be after the call had returned", after-before)
				}
			})
		})
	}
}
