package daemon

import (
	"context"
	"errors"
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
			if got, n := w.ask(t.Context(), p), p.asked.Load(); got != want || time.Since(began) != within || n != asked {
				t.Errorf("%v after %v and %d looks; want %v after %v and %d", got, time.Since(began), n, want, within, asked)
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
		if began := time.Now(); w.ask(ctx, p) || time.Since(began) != time.Second {
			t.Errorf("who has gone is told after %v", time.Since(began))
		}
		time.Sleep(time.Hour)
	})
}
