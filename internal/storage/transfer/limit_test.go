package transfer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTuner(t *testing.T) {
	// A store is a rate for each number of requests.
	settle := func(rate func(limit int) float64, windows int) (int, []int) {
		u := &tuner{limit: firstLimit, most: 64}
		var seen []int
		for range windows {
			seen = append(seen, u.next(window{rate: rate(u.limit), full: true}))
		}
		return u.limit, seen
	}
	if got, seen := settle(func(n int) float64 { return float64(n) }, 40); got != 64 {
		t.Errorf("a store that answers more with more: %d, by %v", got, seen)
	}
	if got, seen := settle(func(int) float64 { return 100 }, 100); got < 8 || got > 24 {
		t.Errorf("a store that answers no more with more: %d, by %v", got, seen)
	}
	if got, seen := settle(func(n int) float64 { return float64(min(n, 30)) }, 60); got < 22 || got > 48 {
		t.Errorf("a store that answers up to 30: %d, by %v", got, seen)
	}
	u := &tuner{limit: 40, most: 64}
	for _, want := range []int{20, 10, 5, 2, 2} {
		if got := u.next(window{rate: 100, throttled: true, full: true}); got != want {
			t.Errorf("after a refusal %d, want %d", got, want)
		}
	}
	for i := range restFor {
		if got := u.next(window{rate: 100, full: true}); got != 2 {
			t.Errorf("window %d after a refusal: %d", i, got)
		}
	}
	if got := u.next(window{rate: 100, full: true}); got != 3 {
		t.Errorf("later %d, want 3", got)
	}
	// Without enough to do nothing is learnt.
	u = &tuner{limit: 16, most: 64}
	for range 10 {
		if got := u.next(window{rate: 1}); got != 16 {
			t.Errorf("idle: %d", got)
		}
	}
}

func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(3)
		for range 3 {
			if err := s.take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got := make(chan error)
		go func() { got <- s.take(t.Context()) }()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("a fourth slot of three")
		default:
		}
		s.give(1)
		if err := <-got; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		go func() { got <- s.take(ctx) }()
		synctest.Wait()
		cancel(why)
		if err := <-got; !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		// A store that asks for fewer gets fewer at once.
		s.throttled()
		s.give(0)
		if s.tuner.limit != leastLimit {
			t.Errorf("limit %d, want %d", s.tuner.limit, leastLimit)
		}
		// Windows last for some time and some requests.
		s = newSlots(64)
		for range 10 {
			s.waiting = true
			for range firstLimit {
				s.used++
				s.give(1 << 20)
			}
		}
		if s.tuner.limit != firstLimit {
			t.Errorf("limit %d within no time", s.tuner.limit)
		}
		time.Sleep(leastWindow)
		s.used++
		s.waiting = true
		s.give(1 << 20)
		if s.tuner.limit != firstLimit+firstLimit/4 {
			t.Errorf("limit %d after a window", s.tuner.limit)
		}
	})
}
