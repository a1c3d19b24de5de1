package kubernetes

import (
	"context"
	"errors"
	"io"
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

// A call that cannot wait as long as it is asked to ends with the refusal.
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
			res, err := (&retryAfterTransport{answers(tt.status), &b, &clock{}}).RoundTrip(r)
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

// hanging answers after a while, or when nobody listens any more.
type hanging struct{ headers, body time.Duration }

func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := pause(r.Context(), h.headers); err != nil {
		return nil, r.Context().Err()
	}
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	return &http.Response{StatusCode: 200, Header: http.Header{"Date": []string{date}}, Body: io.NopCloser(readerFunc(func([]byte) (int, error) {
		if err := pause(r.Context(), h.body); err != nil {
			return 0, r.Context().Err()
		}
		return 0, io.EOF
	}))}, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// An API server that took a call and says nothing holds nobody up for ever, while
// watches and commands go on.
func TestCallsThatHang(t *testing.T) {
	for _, tt := range []struct {
		name, url string
		hanging
		ends bool
	}{
		{"an answer", "https://here/api/v1/pods", hanging{time.Second, time.Second}, false},
		{"no answer", "https://here/api/v1/pods", hanging{time.Hour, 0}, true},
		{"half an answer", "https://here/api/v1/pods", hanging{0, time.Hour}, true},
		{"a watch", "https://here/api/v1/pods?watch=true", hanging{0, time.Hour}, false},
		{"a watch that does not begin", "https://here/api/v1/pods?watch=true", hanging{time.Hour, 0}, true},
		{"a command", "https://here/api/v1/namespaces/a/pods/b/exec", hanging{time.Hour, 0}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := http.NewRequestWithContext(t.Context(), "GET", tt.url, nil)
				begun := time.Now()
				var c clock
				res, err := (&retryAfterTransport{tt.hanging, &busy{}, &c}).RoundTrip(r)
				if err == nil {
					if ours := c.ours(begun.Add(time.Hour)); ours.Sub(begun).Abs() > 2*time.Second && tt.headers < time.Hour {
						t.Errorf("a clock that is an hour ahead: %v after %v", ours, begun)
					}
					_, err = io.ReadAll(res.Body)
					res.Body.Close()
				}
				if took := time.Since(begun); (err == errSilence) != tt.ends || err != nil && err != errSilence || tt.ends && took != silence {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}
