package wrap

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

var boom = errors.New("boom")

// fake answers each call with the next of its errors, then with success.
type fake struct {
	cloud.Provider
	errs  []error
	calls int
	takes time.Duration
}

func (f *fake) Nodes(ctx context.Context, _ cloud.ClusterID) ([]cloud.Node, error) {
	f.calls++
	if err := sleep(ctx, f.takes); err != nil {
		return nil, err
	}
	if len(f.errs) == 0 {
		return []cloud.Node{{ID: "n"}}, nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, err
}

func (f *fake) OpenPorts(context.Context, cloud.ClusterID, []string) error { return nil }

type fakeStopper struct{ fake }

func (f *fakeStopper) Stop(context.Context, cloud.ClusterID) error { f.calls++; return nil }

func list(ctx context.Context, p cloud.Provider) error {
	_, err := p.Nodes(ctx, cloud.ClusterID{})
	return err
}

func TestRetry(t *testing.T) {
	slow, silent := &cloud.ThrottledError{Err: boom}, &cloud.UnreachableError{Err: boom}
	for _, tt := range []struct {
		name  string
		errs  []error
		calls int
		want  error
	}{
		{"success is not repeated", nil, 1, nil},
		{"throttling passes", []error{slow, slow}, 3, nil},
		{"silence passes", []error{silent}, 2, nil},
		{"not for ever", []error{slow, slow, silent, slow, slow}, 4, slow},
		{"capacity is an answer", []error{&cloud.CapacityError{Err: boom}}, 1, boom},
		{"a bug is an answer", []error{boom}, 1, boom},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{errs: tt.errs}
				err := list(t.Context(), With(f, Retry(RetryOptions{})))
				if f.calls != tt.calls || !errors.Is(err, tt.want) {
					t.Errorf("%d calls, %v; want %d, %v", f.calls, err, tt.calls, tt.want)
				}
			})
		})
	}
}

func TestRetryEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{errs: []error{&cloud.ThrottledError{Err: boom}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := list(ctx, With(f, Retry(RetryOptions{First: time.Hour, Most: time.Hour}))); !errors.Is(err, boom) || time.Since(start) != time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestRateSpreadsCallsAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := With(&fake{}, Rate(2, 3))
		start := time.Now()
		for n, want := range []time.Duration{0, 0, 0, 500 * time.Millisecond, time.Second} {
			if err := list(t.Context(), p); err != nil || time.Since(start) != want {
				t.Errorf("call %d after %v (%v), want %v", n, time.Since(start), err, want)
			}
		}
		time.Sleep(time.Hour) // saves up a burst and no more
		start = time.Now()
		for range 4 {
			if err := list(t.Context(), p); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("four calls took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := list(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestDeadlinesAreSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := With(&fake{takes: time.Hour}, Deadlines(DefaultDeadlines()))
		start := time.Now()
		var silent *cloud.UnreachableError
		if err := list(t.Context(), p); !errors.As(err, &silent) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := list(ctx, p); errors.As(err, &silent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's own deadline became %v", err)
		}
	})
}

func TestMetricsSeeWhatLayersBehindThemDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outer, inner []error
		record := func(to *[]error) Layer {
			return Metrics(func(m Method, _ time.Duration, err error) {
				if m != Nodes {
					t.Errorf("method %s", m)
				}
				*to = append(*to, err)
			})
		}
		f := &fake{errs: []error{&cloud.ThrottledError{Err: boom}}}
		if err := list(t.Context(), With(f, record(&outer), Retry(RetryOptions{}), record(&inner))); err != nil {
			t.Fatal(err)
		}
		if len(outer) != 1 || outer[0] != nil || len(inner) != 2 || !errors.Is(inner[0], boom) {
			t.Errorf("outside %v, inside %v", outer, inner)
		}
	})
}

func TestWrappersHideNoPowersAndInventNone(t *testing.T) {
	calls := 0
	counting := Metrics(func(Method, time.Duration, error) { calls++ })
	plain := With(With(&fake{}, counting), counting)
	if _, ok := cloud.As[cloud.Stopper](plain); ok {
		t.Error("a provider that cannot stop can, once it is wrapped")
	}
	if _, ok := cloud.As[cloud.PortOpener](plain); !ok {
		t.Error("a power is hidden")
	}
	s, ok := cloud.As[cloud.Stopper](With(With(&fakeStopper{}, counting), counting))
	if !ok {
		t.Fatal("a Stopper is hidden")
	}
	if err := s.Stop(t.Context(), cloud.ClusterID{}); err != nil || calls != 2 {
		t.Errorf("%d layers saw the call: %v", calls, err)
	}
}

func TestRetryOnlyWhatItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{errs: []error{&cloud.ThrottledError{Err: boom}}}
		if err := list(t.Context(), With(f, Retry(RetryOptions{Only: []Method{Check}}))); !errors.Is(err, boom) || f.calls != 1 {
			t.Errorf("%v after %d calls", err, f.calls)
		}
	})
}

// paced is a provider that knows how often it may be called.
type paced struct{ fakeStopper }

func (*paced) Name() string         { return "paced" }
func (*paced) Pace() (float64, int) { return 1, 1 }

func TestAllDressesEveryProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &paced{}
		p.errs = []error{&cloud.ThrottledError{Err: boom}, &cloud.CapacityError{Err: boom}}
		var told []error
		r := All(cloud.NewRegistry(p), func(name string, m Method, _ time.Duration, err error) {
			if name != "paced" || m != Nodes && m != Stop {
				t.Errorf("told of %s %s", name, m)
			}
			told = append(told, err)
		})
		dressed, ok := r.Get("paced")
		if !ok {
			t.Fatal("it is gone")
		}
		start := time.Now()
		if err := list(t.Context(), dressed); !errors.As(err, new(*cloud.CapacityError)) {
			t.Errorf("%v: the error lost its type", err)
		}
		if s, ok := cloud.As[cloud.Stopper](dressed); !ok || s.Stop(t.Context(), cloud.ClusterID{}) != nil {
			t.Error("it can no longer stop")
		}
		if took := time.Since(start); took < 2*time.Second {
			t.Errorf("three calls in %v, at one a second", took)
		}
		if len(told) != 2 {
			t.Errorf("told of %v", told)
		}
	})
}

// switched is a Stopper whose machines switch themselves off.
type switched struct{ fakeStopper }

func (*switched) Name() string { return "switched" }

func (s *switched) WhenOff(context.Context, cloud.ClusterID, bool) error {
	_, err := s.Nodes(context.Background(), cloud.ClusterID{})
	return err
}

func TestAThrottledOffSwitchIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &switched{}
		p.errs = []error{&cloud.ThrottledError{Err: boom}, &cloud.UnreachableError{Err: boom}}
		r := All(cloud.NewRegistry(p), nil)
		dressed, _ := r.Get("switched")
		off, ok := cloud.As[cloud.OffSwitch](With(dressed))
		if !ok {
			t.Fatal("the switch is hidden")
		}
		if err := off.WhenOff(t.Context(), cloud.ClusterID{}, true); err != nil || p.calls != 3 {
			t.Errorf("%v after %d calls", err, p.calls)
		}
		if _, ok := cloud.As[cloud.Stopper](dressed); !ok {
			t.Error("it can no longer stop")
		}
	})
	if _, ok := cloud.As[cloud.OffSwitch](With(&fakeStopper{})); ok {
		t.Error("a provider without a switch has one, once it is wrapped")
	}
}
