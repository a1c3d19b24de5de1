package policy

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func candidates(t *rapid.T, least int) []Candidate {
	c := make([]Candidate, rapid.IntRange(least, 40).Draw(t, "n"))
	for i := range c {
		c[i] = Candidate{ID: i * 7, Load: float64(rapid.IntRange(0, 50).Draw(t, "load")), Speed: float64(rapid.IntRange(1, 40).Draw(t, "speed")) / 10}
	}
	return c
}

func TestLeastLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := candidates(t, 0)
		i := LeastLoad(c, rapid.Uint64().Draw(t, "chance"))
		if len(c) == 0 {
			if i != -1 {
				t.Fatalf("%d of none", i)
			}
			return
		}
		worse := 0
		for k := range c {
			if c[k].cost() >= c[i].cost() {
				worse++
			}
		}
		if len(c) <= Few && worse < len(c) || worse < 2 && len(c) > 1 {
			t.Fatalf("chose %+v of %+v", c[i], c)
		}
	})
}

// Every replica is looked at, whatever the chance.
func TestLeastLoadOfAnyChance(t *testing.T) {
	c := make([]Candidate, 10)
	for i := range c {
		c[i] = Candidate{ID: i, Load: 1, Speed: 1}
	}
	for least := range c {
		c[least].Load = 0
		for _, chance := range []uint64{0, 7, math.MaxUint64 - 3, math.MaxUint64} {
			if i := LeastLoad(c, chance); i != least {
				t.Errorf("chance %d: chose %d, not %d", chance, i, least)
			}
		}
		c[least].Load = 1
	}
}

// Two choices keep the loads close together: within a few requests.
func TestTwoChoicesSpread(t *testing.T) {
	c := make([]Candidate, 100)
	for i := range c {
		c[i] = Candidate{ID: i, Speed: 1}
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		c[LeastLoad(c, rnd.Uint64())].Load++
	}
	for _, x := range c {
		if math.Abs(x.Load-100) > 6 {
			t.Errorf("a load of %v, mean 100", x.Load)
		}
	}
}

func TestRoundRobin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := candidates(t, 1)
		r, got, total := Rotation{}, make([]int, len(c)), 0.0
		for i := range c {
			total += c[i].Speed
		}
		for n := 1; n <= 200; n++ {
			got[RoundRobin(c, r)]++
			for i := range c { // at every moment, everybody is within a turn of their share, or close to it
				if d := math.Abs(float64(got[i]) - float64(n)*c[i].Speed/total); d > float64(len(c)) {
					t.Fatalf("after %d, %d has %d turns, its share is %v", n, i, got[i], float64(n)*c[i].Speed/total)
				}
			}
		}
	})
	c, r := []Candidate{{ID: 1, Speed: 1}, {ID: 2, Speed: 1}, {ID: 3, Speed: 1}}, Rotation{}
	for n := range 9 {
		if got := RoundRobin(c, r); got != n%3 {
			t.Errorf("turn %d: %d", n, got)
		}
	}
}

func TestCapacity(t *testing.T) {
	targets := map[string]float64{"A100": 2, "A100:8": 10, "H100:1": 5}
	for gpu, want := range map[string]float64{"A100:8": 10, "A100:4": 2, "A100": 2, "H100:1": 5, "H100": 1, "T4:1": 1, "": 1} {
		if got := Capacity(targets, gpu); got != want {
			t.Errorf("%q: %v, want %v", gpu, got, want)
		}
	}
}

func TestAffine(t *testing.T) {
	b := Bound{1.25, 2}
	rapid.Check(t, func(t *rapid.T) {
		c := candidates(t, 1)
		key := rapid.Uint64().Draw(t, "key")
		i := Affine(c, key, b)
		if limit := b.limit(c); c[i].cost() > limit {
			for k := range c {
				if c[k].cost() <= limit {
					t.Fatalf("%+v is above %v, %+v is not", c[i], limit, c[k])
				}
			}
		}
		// Idle, a session stays where it is when another replica goes or comes.
		for k := range c {
			c[k].Load = 0
		}
		b := Bound{1, 1e9}
		at := Affine(c, key, b)
		if len(c) > 1 {
			k := rapid.IntRange(0, len(c)-1).Draw(t, "gone")
			rest := append(append([]Candidate(nil), c[:k]...), c[k+1:]...)
			if k != at && rest[Affine(rest, key, b)].ID != c[at].ID {
				t.Fatal("a session moved though its replica stayed")
			}
		}
	})
	// Keys are spread by speed.
	c := []Candidate{{ID: 1, Speed: 1}, {ID: 2, Speed: 3}}
	n := 0
	for key := range uint64(10_000) {
		n += Affine(c, Hash(string(rune(key))), Bound{1, 1e9})
	}
	if n < 7200 || n > 7800 {
		t.Errorf("a replica of three quarters got %d of 10000", n)
	}
}

func TestPrefix(t *testing.T) {
	b := Bound{1.25, 2}
	rapid.Check(t, func(t *rapid.T) {
		c := candidates(t, 1)
		matched := make([]int, len(c))
		for i := range matched {
			matched[i] = rapid.IntRange(0, 5).Draw(t, "matched")
		}
		i := Prefix(c, matched, b, rapid.Uint64().Draw(t, "chance"))
		limit := b.limit(c)
		for k := range c {
			if c[k].cost() <= limit && matched[k] > matched[i] {
				t.Fatalf("%d has seen %d blocks and is not overloaded; chose one with %d", k, matched[k], matched[i])
			}
		}
		if matched[i] > 0 && c[i].cost() > limit && len(c) <= Few {
			for k := range c {
				if c[k].cost() < c[i].cost() {
					t.Fatal("an overloaded one was chosen for its prefix")
				}
			}
		}
	})
}

func TestShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SliceOfN(rapid.Float64Range(0, 10), 0, 5).Draw(t, "weights")
		i := Share(w, rapid.Float64Range(0, 0.9999999).Draw(t, "u"))
		any := false
		for _, x := range w {
			any = any || x > 0
		}
		if any != (i >= 0) || i >= 0 && w[i] == 0 {
			t.Fatalf("%d of %v", i, w)
		}
	})
	for _, n := range []int{10, 100, 1000} {
		k := 0
		for i := range n {
			k += Share([]float64{90, 10}, Spread(uint64(i)))
		}
		if math.Abs(float64(k)-float64(n)/10) > 2 {
			t.Errorf("of %d, %d went to the tenth", n, k)
		}
	}
}

func TestReportedLoad(t *testing.T) {
	if got := Load(3, nil); got != 3 {
		t.Error(got)
	}
	if got := Load(3, &Reported{Requests: 10, Sent: 4}); got != 9 {
		t.Errorf("six requests of others and three of ours: %v", got)
	}
	if got := Load(3, &Reported{Requests: 2, Sent: 4}); got != 3 {
		t.Errorf("an old number: %v", got)
	}
	if a, b := Load(3, &Reported{Cache: 0.5}), Load(3, &Reported{Cache: 1}); a != 3 || math.Abs(b-7) > 1e-6 {
		t.Errorf("cache: %v, %v", a, b)
	}
}
