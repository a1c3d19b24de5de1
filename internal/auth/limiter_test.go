package auth

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWaitsDoubleAndAreForgiven(t *testing.T) {
	l := newLimiter[string](pace{free: 3, first: time.Second, most: 10 * time.Second, forgive: time.Minute, size: 10})
	now := time.Unix(1e9, 0)
	for i, want := range []time.Duration{0, 0, 1, 2, 4, 8, 10, 10, 10} {
		slowed := l.Failed("ada", now)
		if slowed != (i == 2) {
			t.Errorf("failure %d: slowed %v", i+1, slowed)
		}
		if got := l.Wait("ada", now); got != want*time.Second {
			t.Errorf("after %d failures: %v, want %ds", i+1, got, want)
		}
	}
	if got := l.Wait("ada", now.Add(4*time.Second)); got != 6*time.Second {
		t.Errorf("4 s later: %v", got)
	}
	if got := l.Wait("bob", now); got != 0 {
		t.Errorf("somebody else: %v", got)
	}
	if got := l.Count("ada", now); got != 7 {
		t.Errorf("%d failures are remembered", got)
	}
	now = now.Add(5 * time.Minute)
	if got := l.Count("ada", now); got != 2 {
		t.Errorf("after 5 minutes %d are left", got)
	}
	if l.Failed("ada", now); l.Wait("ada", now) != time.Second {
		t.Errorf("the next one: %v", l.Wait("ada", now))
	}
	l.Succeeded("ada")
	if l.Failed("ada", now); l.Wait("ada", now) != 0 {
		t.Error("a success forgets nothing")
	}
}

func TestTheLeastDangerousIsForgotten(t *testing.T) {
	l := newLimiter[int](pace{free: 3, first: time.Second, most: time.Minute, forgive: time.Hour, size: 5})
	now := time.Unix(1e9, 0)
	for range 4 {
		l.Failed(-1, now)
	}
	for i := range 1000 {
		now = now.Add(time.Millisecond)
		l.Failed(i, now)
		if len(l.failures) > 5 {
			t.Fatalf("%d keys are remembered", len(l.failures))
		}
	}
	if l.Wait(-1, now) == 0 {
		t.Error("the one who guesses most was forgotten")
	}
	if l.Count(999, now) != 1 || l.Count(996, now) != 1 || l.Count(990, now) != 0 {
		t.Error("not the newest of the others are left")
	}
}

// However tries come, a key makes no more of them than its pace allows.
func TestAPaceHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := strangerPace
		l := newLimiter[string](p)
		start := time.Unix(1e9, 0)
		now, made := start, 0
		for range rapid.IntRange(1, 200).Draw(t, "tries") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause")))
			w := l.Wait("k", now)
			if w > p.most {
				t.Fatalf("a wait of %v", w)
			}
			if w == 0 {
				l.Failed("k", now)
				made++
			} else if l.Wait("k", now.Add(w)) != 0 {
				t.Fatalf("after the wait of %v that was told comes another", w)
			}
		}
		took := now.Sub(start)
		// Free ones, those that are forgiven, and one for each doubling.
		if most := float64(p.free+p.doublings()+1) + took.Seconds()/p.forgive.Seconds() + took.Seconds()/p.most.Seconds(); float64(made) > most {
			t.Fatalf("%d tries in %v, want at most %.0f", made, took, most)
		}
	})
}

func source4(i int) source {
	return sourceOf(netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)}))
}

func TestSources(t *testing.T) {
	for a, want := range map[string]string{
		"203.0.113.9": "203.0.113.9/32", "::ffff:203.0.113.9": "203.0.113.9/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "127.0.0.1": "127.0.0.1/32",
	} {
		if got := sourceOf(netip.MustParseAddr(a)); got.String() != want {
			t.Errorf("%s: %v, want %s", a, got, want)
		}
	}
	if got := sourceOf(netip.Addr{}); got.IsValid() {
		t.Errorf("no address: %v", got)
	}
	if n, ok := networkOf(sourceOf(netip.MustParseAddr("2001:db8:1:2::1"))); !ok || n.String() != "2001:db8:1::/48" {
		t.Errorf("the network is %v", n)
	}
	if _, ok := networkOf(source4(1)); ok {
		t.Error("an IPv4 address has a network")
	}
}

// While very many guess an account's password, everybody has a turn of their own
// within less than half a minute, and keeps it whatever the others do.
func TestEverybodyHasATurnDuringAnAttack(t *testing.T) {
	th := newThrottle()
	now := time.Unix(1e9, 0)
	for i := range 1000 {
		k := accountFrom{"ada", source4(i)}
		if th.Wait(k, now) == 0 {
			th.Begin(k, now)
			th.Failed(k, now)
		}
		now = now.Add(100 * time.Millisecond)
	}
	put := 0
	for i := range 400 {
		owner := accountFrom{"ada", source4(1<<16 + i)}
		w := th.Wait(owner, now)
		if w > 0 {
			put++
		}
		if w >= mostTurns*turnTime {
			t.Fatalf("a stranger waits for %v", w)
		}
		// Whole seconds are told, and all others go on guessing.
		back := now.Add((w + time.Second - 1).Truncate(time.Second))
		for j := range 50 {
			k := accountFrom{"ada", source4(2<<16 + i*50 + j)}
			if th.Wait(k, back) == 0 {
				th.Begin(k, back)
				th.Failed(k, back)
			}
		}
		if again := th.Wait(owner, back); again != 0 {
			t.Fatalf("told to come back after %v, then after %v", w, again)
		}
		now = now.Add(137 * time.Millisecond)
	}
	if put < 300 { // 7 of 8
		t.Errorf("%d of 400 new addresses were put off", put)
	}
	if w := th.Wait(accountFrom{"bob", source4(5 << 16)}, now); w != 0 {
		t.Errorf("another account waits for %v", w)
	}
}

// What an attacker sends from everywhere does not fill the memory.
func TestAThrottleIsBounded(t *testing.T) {
	th := newThrottle()
	now := time.Unix(1e9, 0)
	for i := range 10000 {
		k := accountFrom{fmt.Sprint("user ", i), source4(i)}
		th.Begin(k, now)
		th.Failed(k, now)
		th.Succeeded(accountFrom{fmt.Sprint(i), source4(i)}, now)
		now = now.Add(time.Millisecond)
	}
	for name, n := range map[string]int{"pairs": len(th.strangers.failures), "accounts": len(th.accounts.failures), "addresses": len(th.addresses.failures), "logins": len(th.logins)} {
		if n > 8192 || n < 4096 {
			t.Errorf("%s: %d", name, n)
		}
	}
	if _, ok := th.logins[accountFrom{"9999", source4(9999)}]; !ok {
		t.Error("the last login is forgotten")
	}
}
