package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

type answers int

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a), Header: http.Header{"Retry-After": []string{"2"}}}, nil
}

// A call that cannot wait as long as it is told to ends with the refusal.
func TestCallsThatAreToldToComeBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			status int
			left   time.Duration // 0: no deadline
			waits  bool
		}{
			{http.StatusTooManyRequests, 0, true}, {http.StatusTooManyRequests, 3 * time.Second, true}, {http.StatusTooManyRequests, 2 * time.Second, false},
			{http.StatusServiceUnavailable, time.Second, true}, {http.StatusOK, time.Second, true},
		} {
			ctx := t.Context()
			if tt.left > 0 {
				limited, cancel := context.WithTimeout(ctx, tt.left)
				defer cancel()
				ctx = limited
			}
			r, _ := http.NewRequestWithContext(ctx, "GET", "https://here/", nil)
			var b busy
			res, err := (&mindful{answers(tt.status), &b}).RoundTrip(r)
			if b.lately(time.Second) != (tt.status == http.StatusTooManyRequests) {
				t.Errorf("%d: busy %t", tt.status, b.lately(time.Second))
			}
			if err != nil || (res.Header.Get("Retry-After") != "") != tt.waits {
				t.Errorf("%d with %v left: %v %v", tt.status, tt.left, res.Header, err)
			}
		}
	})
}

func TestABusyAPIServerIsAskedForAWhile(t *testing.T) {
	busy, other := &cloud.ThrottledError{Err: errors.New("busy")}, errors.New("other")
	for _, tt := range []struct {
		name  string
		busy  time.Duration
		limit time.Duration // of the context
		then  error
		want  error
		least time.Duration
		most  time.Duration
	}{
		{"it has time again", 5 * time.Second, time.Hour, nil, nil, 5 * time.Second, 6 * time.Second},
		{"another answer counts", 5 * time.Second, time.Hour, other, other, 5 * time.Second, 6 * time.Second},
		{"it never has time", time.Hour, time.Hour, nil, busy, busyPatience, busyPatience + 2*time.Second},
		{"nobody waits", time.Hour, 3 * time.Second, nil, busy, 2 * time.Second, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				start := time.Now()
				err := unlessBusy(ctx, func() error {
					if time.Since(start) < tt.busy {
						return busy
					}
					return tt.then
				})
				if took := time.Since(start); err != tt.want || took < tt.least || took > tt.most {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}
