package balancer

import (
	"testing"
	"time"
)

func TestEjection(t *testing.T) {
	rules := ejectRules{3, time.Second, 8 * time.Second, 0.5}
	now := time.Unix(1000, 0)
	var h health
	end := func(o outcome) bool { return h.ended(o, h.sent(now), now, rules, 4, 0) }
	for range 2 {
		end(failed)
	}
	end(succeeded)
	for range 2 {
		end(failed)
	}
	if h.out(now) {
		t.Fatal("ejected after failures that were not in a row")
	}
	end(failed)
	for i, wait := range []time.Duration{1, 2, 4, 8, 8} {
		wait *= time.Second
		if !h.out(now.Add(wait-1)) || h.out(now.Add(wait)) {
			t.Fatalf("ejection %d: until %v, want %v", i, h.until.Sub(now), wait)
		}
		now = now.Add(wait)
		trial := h.sent(now)
		if !trial || !h.out(now) || h.sent(now) {
			t.Fatal("not exactly one request goes on trial")
		}
		if h.ended(failed, false, now, rules, 4, 1); h.until.After(now) {
			t.Fatal("an older request decided")
		}
		if i < 4 {
			h.ended(failed, trial, now, rules, 4, 1)
		} else if !h.ended(succeeded, trial, now, rules, 4, 1) || h.out(now) {
			t.Fatal("not well after a trial that succeeded")
		}
	}
	// One that fails again soon is away for long; one that was well for long is not.
	end(unreachable)
	if got := h.until.Sub(now); got != 8*time.Second {
		t.Errorf("again after a moment: for %v", got)
	}
	now = now.Add(8 * time.Second)
	h.ended(succeeded, h.sent(now), now, rules, 4, 1)
	now = now.Add(time.Minute)
	end(unreachable)
	if got := h.until.Sub(now); got != time.Second {
		t.Errorf("after a long time: for %v", got)
	}
}

func TestEjectionLeavesOthers(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		ready, out int
		ejected    bool
	}{{1, 0, false}, {2, 0, true}, {2, 1, false}, {3, 1, false}, {4, 1, true}, {4, 2, false}} {
		var h health
		h.ended(unreachable, false, now, ejectRules{5, time.Second, time.Minute, 0.5}, tt.ready, tt.out)
		if h.out(now) != tt.ejected {
			t.Errorf("%d of %d are out already: ejected %v", tt.out, tt.ready, h.out(now))
		}
	}
}
