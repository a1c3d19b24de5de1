package provision

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestGivenBackMeansNotListedAnyMore(t *testing.T) {
	refused := &cloud.PermissionError{Place: cloud.Place{Cloud: "aws"}, Err: errors.New("not you")}
	for _, tt := range []struct {
		name      string
		stays     time.Duration // how long machines are listed after they were ended
		terminate error
		listFails bool
		hangs     time.Duration // until the cloud answers
		want      string        // in the error; "": none
		late      string        // in what is told after a minute; "": nothing is
	}{
		{name: "gone at once"},
		{name: "gone soon", stays: 50 * time.Second},
		{name: "never gone", stays: time.Hour, want: "2 machines of 2 still listed in aws/east/a", late: "2 machines of 2 still listed"},
		{name: "no answer for long", hangs: 10 * time.Minute, late: "the cloud has not answered yet"},
		{name: "refused", terminate: refused, want: "not you"},
		{name: "nobody can tell", listFails: true, want: "could not be found out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, nil)
				s.c.EverUp = true
				id := s.ClusterID(s.c)
				s.p.up(cloud.LaunchSpec{ID: id, Offer: s.c.Offer}, 2)
				stays := s.p.running[id]
				gone := time.Now().Add(tt.stays)
				s.p.terminate = func() error { time.Sleep(tt.hangs); return tt.terminate }
				s.p.after = func() {
					if time.Now().Before(gone) {
						s.p.running[id] = stays
					}
				}
				s.p.listFails = tt.listFails
				rung := s.room.Next()
				start := time.Now()
				var told []string
				err := s.GiveBack(t.Context(), s.c, func(text string) {
					if waited := time.Since(start); waited != GoneWithin {
						t.Errorf("it was told after %v", waited)
					}
					told = append(told, text)
				})
				switch {
				case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("%v, want %q", err, tt.want)
				case time.Since(start) > 2*GoneWithin+tt.hangs:
					t.Errorf("it took %v to say so", time.Since(start))
				case tt.late == "" && len(told) > 0, tt.late != "" && (len(told) != 1 || !strings.Contains(told[0], tt.late)):
					t.Errorf("told: %q, want %q", told, tt.late)
				}
				select {
				case <-rung:
					if err != nil {
						t.Error("there is said to be room, and nothing was given back")
					}
				default:
					if err == nil {
						t.Error("nobody was told that there is room")
					}
				}
			})
		})
	}
}

// TestALaunchThatLeavesMachinesSaysSo: whatever ends a launch, its user hears of
// machines that are not gone after a minute, and they are given back all the same.
func TestALaunchThatLeavesMachinesSaysSo(t *testing.T) {
	for name, cancelled := range map[string]bool{"the launch fails": false, "the launch is cancelled": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newStage(t, nil)
				s.p.launch = func(ctx context.Context, spec cloud.LaunchSpec) error {
					s.p.up(spec, 1) // of two
					if cancelled {
						cancel()
						return ctx.Err()
					}
					return &cloud.CapacityError{Place: spec.Offer.Place, Err: errors.New("full")}
				}
				gone := time.Now().Add(5 * time.Minute)
				s.p.terminate = func() error {
					if time.Now().Before(gone) {
						return &cloud.UnreachableError{Err: errors.New("gateway timeout")}
					}
					return nil
				}
				if _, err := s.provision(ctx, Options{}, "a"); err == nil {
					t.Fatal("it was had")
				}
				if n := strings.Count(s.out.String(), "may still run and cost money"); n != 1 || !strings.Contains(s.out.String(), "gateway timeout") {
					t.Errorf("told %d times:\n%s", n, s.out.String())
				}
				if left, _ := s.p.Nodes(t.Context(), cloud.ClusterID{}); len(left) > 0 || s.open(t) > 0 {
					t.Errorf("left: %v; %d attempts are open", left, s.open(t))
				}
			})
		})
	}
}
