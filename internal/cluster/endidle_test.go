package cluster_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

// staying is a cluster of machines that cannot switch themselves off, with an autostop, whose
// job has ended 40 minutes before the autostop is due.
func staying(t *testing.T, nodes int, down bool) (*testbed.Bed, *testbed.Server) {
	t.Helper()
	b := testbed.New(t)
	b.StaysOn = true
	s := b.Boot(failpoint.Endless)
	r := testbed.NewRequest()
	if _, err := s.Launch(r, "dev", "num_nodes: "+string(rune('0'+nodes))+"\n"+longJob, func(l *api.LaunchBody) {
		l.IdleMinutesAutostop, l.Down = new(40), down
	}); err != nil {
		t.Fatal(err)
	}
	if want := map[bool]string{false: "stops cluster dev when it has been idle, and must run then: a puff cannot switch itself off.", true: "gives back cluster dev when it has been idle, and must run then: a puff cannot end itself."}[down]; !strings.Contains(r.Out.String(), "The API server "+want) {
		t.Errorf("%q is not in\n%s", want, r.Out)
	}
	return b, s
}

func wantIdleEnded(t *testing.T, b *testbed.Bed, nodes int, down bool) {
	t.Helper()
	if down {
		b.WantNothingLeft("dev")
		if c := b.Cluster("dev"); c != nil {
			t.Errorf("record: %+v", c)
		}
		return
	}
	want := []string{"dev stopped"}
	if nodes == 2 {
		want = []string{"dev stopped", "dev stopped"}
	}
	b.WantMachines(want...)
	wantStatus(t, b, api.ClusterStopped)
	if c := b.Cluster("dev"); c != nil && c.Notes.SwitchingOff != "" {
		t.Errorf("it is still being switched off: %s", c.Notes.SwitchingOff)
	}
}

// The server ends what cannot end itself: at once, or when it runs again.
func TestTheServerEndsIdleClusters(t *testing.T) {
	for _, down := range []bool{false, true} {
		for _, away := range []bool{false, true} {
			for _, nodes := range []int{1, 2} {
				synctest.Test(t, func(t *testing.T) {
					b, s := staying(t, nodes, down)
					if !away {
						s.Watch()
					} else {
						s.End()
					}
					time.Sleep(time.Hour + 39*time.Minute)
					if c := b.Cluster("dev"); c == nil || c.Status != api.ClusterUp {
						t.Errorf("too early: %v", c)
					}
					time.Sleep(2 * time.Minute)
					if away {
						time.Sleep(24 * time.Hour)
						b.Boot(failpoint.Endless).Watch()
						time.Sleep(3 * time.Minute)
					}
					wantIdleEnded(t, b, nodes, down)
				})
			}
		}
	}
}

// Wherever the server dies meanwhile, the next one ends it.
func TestTheEndOfAnIdleClusterSurvivesACrashAtEveryStep(t *testing.T) {
	for _, down := range []bool{false, true} {
		testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
			b, s := staying(t, 2, down)
			s.End()
			time.Sleep(2 * time.Hour)
			died, _ := b.Resume(n, func(s *testbed.Server) error {
				_, err := s.Clusters.Refresh(s.Context(), "dev")
				return err
			})
			b.Boot(failpoint.Endless).Watch()
			time.Sleep(5 * time.Minute)
			wantIdleEnded(t, b, 2, down)
			return died
		})
	}
}

// A cluster that is started again while the server switches it off is wanted.
func TestAStartEndsTheSwitchingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := staying(t, 1, false)
		s.Watch()
		time.Sleep(2 * time.Hour)
		wantIdleEnded(t, b, 1, false)
		if err := s.Start(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		wantStatus(t, b, api.ClusterUp)
		b.WantMachines("dev running")
		time.Sleep(11 * time.Minute) // its autostop holds again
		wantIdleEnded(t, b, 1, false)
	})
}
