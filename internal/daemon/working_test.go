package daemon

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// slowCloud answers after a while.
type slowCloud struct {
	cloud.Provider
	takes time.Duration
	err   error
	asked atomic.Int64
}

func (*slowCloud) Name() string { return "slow" }

func (c *slowCloud) Check(ctx context.Context) (cloud.Identity, error) {
	c.asked.Add(1)
	time.Sleep(c.takes)
	return nil, c.err
}

func TestWhichCloudsWorkIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w working
		p := &slowCloud{takes: 5 * time.Second}
		ask := func(want bool, within time.Duration, asked int64) {
			t.Helper()
			began := time.Now()
			if got, _ := w.ask(t.Context(), p, nil); got != want || p.asked.Load() != asked || time.Since(began) != within {
				t.Errorf("%v after %v and %d looks; want %v after %v and %d", got, time.Since(began), p.asked.Load(), want, within, asked)
			}
		}
		ask(true, 5*time.Second, 1) // nothing was known
		ask(true, 0, 1)
		p.err = errors.New("no longer")
		time.Sleep(20 * time.Second)
		ask(true, workingSoon, 2) // not known yet, and somebody looks
		ask(true, workingSoon, 2) // they still do
		time.Sleep(5 * time.Second)
		ask(false, 0, 2)
		p.err, p.takes = nil, 50*time.Millisecond
		time.Sleep(20 * time.Second)
		ask(true, 50*time.Millisecond, 3)
		w.forget()
		ask(true, 50*time.Millisecond, 4)

		w.forget()
		p.takes = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if works, _ := w.ask(ctx, p, nil); works || time.Since(began) != time.Second {
			t.Errorf("who has gone is told after %v", time.Since(began))
		}
		time.Sleep(time.Hour)
	})
}

// contexts is a cloud of which each region has its own credentials.
type contexts struct {
	cloud.Provider
	at map[string]error
}

func (contexts) Name() string { return "kubernetes" }

func (c contexts) CheckPlaces(ctx context.Context, _ string, _ func(string) map[string]any) (out []cloud.CheckedPlace, _ error) {
	for _, name := range slices.Sorted(maps.Keys(c.at)) {
		if errors.Is(c.at[name], context.DeadlineExceeded) {
			<-ctx.Done()
		}
		out = append(out, cloud.CheckedPlace{Region: name, Err: c.at[name]})
	}
	return out, nil
}

func TestWhichContextsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			at    map[string]error
			want  []string
			after time.Duration
		}{
			{map[string]error{"a": nil, "b": errors.New("no"), "c": nil}, []string{"a", "c"}, 0},
			{map[string]error{"a": nil, "b": context.DeadlineExceeded}, []string{"a"}, workingPlaces},
			{map[string]error{"b": errors.New("no")}, nil, 0},
		} {
			var w working
			began := time.Now()
			if works, places := w.ask(t.Context(), contexts{at: tt.at}, nil); works != (tt.want != nil) || !slices.Equal(places, tt.want) || time.Since(began) != tt.after {
				t.Errorf("%v: %t %v after %v", tt.at, works, places, time.Since(began))
			}
		}
	})
}
