package cloud

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSettled(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name  string
		takes time.Duration
		want  error
		after time.Duration
	}{
		{"in time", time.Second, boom, time.Second},
		{"cancelled meanwhile and nearly through", 4 * time.Second, boom, 4 * time.Second},
		{"cancelled meanwhile and stuck", time.Hour, context.DeadlineExceeded, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				start := time.Now()
				err := Settled(ctx, func(ctx context.Context) error {
					select {
					case <-time.After(tt.takes):
						return boom
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				if !errors.Is(err, tt.want) || time.Since(start) != tt.after {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Settled(ctx, func(context.Context) error { t.Error("it was called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns KeyedLock
		id := ClusterID{Name: "a"}
		done, err := turns.Lock(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		other, err := turns.Lock(t.Context(), ClusterID{Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		other()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turns.Lock(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("two at once: %v", err)
		}
		done()
		again, err := turns.Lock(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		again()
		if len(turns.held) != 0 {
			t.Errorf("%d are remembered", len(turns.held))
		}
	})
}
