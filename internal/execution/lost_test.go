//go:build unix

package execution_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/testbed"
)

// soon is much less than the time that a machine has to boot.
const soon = 3 * time.Minute

func TestALaunchTakesOtherMachinesWhenOneIsTakenAwayBeforeItsAgentRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := testbed.New(t), testbed.NewRequest()
		var taken atomic.Bool
		b.Reaching = func(id string) {
			if !taken.Swap(true) {
				if err := b.Cloud.Kill(id, "taken back"); err != nil {
					t.Error(err)
				}
			}
		}
		began := time.Now()
		if _, err := b.Boot(failpoint.Endless).Launch(r, "dev", train(t, 2)); err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
		if took := time.Since(began); took > soon {
			t.Errorf("the launch took %v", took)
		}
		if out := r.Out.String(); !strings.Contains(out, "lost machines while it was set up") || !strings.Contains(out, "taken back") {
			t.Errorf("the user is not told:\n%s", out)
		}
		b.WantMachines("dev running", "dev running")
	})
}

func TestALaunchThatLosesItsMachinesEachTimeGivesUpAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := testbed.New(t), testbed.NewRequest()
		b.Reaching = func(id string) { _ = b.Cloud.Kill(id, "taken back") }
		began := time.Now()
		_, err := b.Boot(failpoint.Endless).Launch(r, "dev", train(t, 1))
		var said *api.Error
		var unplaced *provision.UnplacedError
		if !errors.As(err, &said) || said.Type != api.ErrResourcesUnavailable || !errors.As(err, &unplaced) || !unplaced.Retryable() {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took > soon {
			t.Errorf("the launch took %v", took)
		}
		b.WantNothingLeft("dev")
	})
}

func TestALaunchOntoAClusterWhoseMachineWasTakenAwayDoesNotWaitForItToBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		if err := b.Cloud.Kill(b.Cluster("dev").Nodes[0].ID, "taken back"); err != nil {
			t.Fatal(err)
		}
		began, r := time.Now(), testbed.NewRequest()
		if _, err := s.Launch(r, "dev", train(t, 1)); err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
		if took := time.Since(began); took > soon {
			t.Errorf("the launch took %v", took)
		}
		if m := b.Machines(); !slices.Equal(m, []string{"dev running"}) {
			t.Errorf("machines: %v", m)
		}
	})
}

func TestAnAgentThatIsSlowToStartIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := testbed.New(t), testbed.NewRequest()
		b.Reaching = func(string) { time.Sleep(12 * time.Minute) }
		if _, err := b.Boot(failpoint.Endless).Launch(r, "dev", train(t, 1)); err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
	})
}
