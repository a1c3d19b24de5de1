package provision

import (
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
		want      string // in the error; "": none
	}{
		{name: "gone at once"},
		{name: "gone soon", stays: 10 * time.Second},
		{name: "never gone", stays: time.Hour, want: "2 machines of 2 still listed in aws/east/a"},
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
				s.p.terminate = func() error { return tt.terminate }
				s.p.after = func() {
					if time.Now().Before(gone) {
						s.p.running[id] = stays
					}
				}
				s.p.listFails = tt.listFails
				rung := s.room.Heard()
				start := time.Now()
				err := s.GiveBack(t.Context(), s.c)
				switch {
				case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("%v, want %q", err, tt.want)
				case time.Since(start) > 2*proofTime:
					t.Errorf("it took %v to say so", time.Since(start))
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
