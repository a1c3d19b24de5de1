package provision

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// market is zones that have room or not. Each is a Markov chain with two states
// in continuous time: room lasts for Up on average, its lack for Down, so that a
// zone has room for Up/(Up+Down) of the time. Cheap zones are scarce, as they
// are in life: everybody wants them.
type market struct {
	offers []cloud.Offer
	up     []time.Duration // mean time with room
	down   []time.Duration // mean time without
	state  []bool
	next   []time.Time
	rng    *rand.Rand
}

// newMarket has 12 zones in 4 regions of 2 clouds. Prices go up by 1% a zone.
// The cheapest six have room for 15% of the time, in spells of 1.5 h on average; of the
// others every second one has room for 85%, in spells of 34 h, the rest for 20%,
// in spells of 2 h.
func newMarket(seed uint64, now time.Time) *market {
	m := &market{rng: rand.New(rand.NewPCG(seed, 7))}
	for i := range 12 {
		m.offers = append(m.offers, cloud.Offer{
			Place:        cloud.Place{Cloud: []string{"aws", "gcp"}[i%2], Region: fmt.Sprintf("r%d", i%4), Zone: fmt.Sprintf("z%d", i)},
			InstanceType: "p4", HourlyPrice: 10 * (1 + 0.01*float64(i)),
		})
		up, down := 90*time.Minute, 510*time.Minute
		switch {
		case i >= 6 && i%2 == 0:
			up, down = 34*time.Hour, 6*time.Hour
		case i >= 6:
			up, down = 2*time.Hour, 8*time.Hour
		}
		m.up, m.down = append(m.up, up), append(m.down, down)
		m.state = append(m.state, m.rng.Float64() < up.Hours()/(up+down).Hours())
		m.next = append(m.next, now.Add(m.spell(i)))
	}
	return m
}

func (m *market) spell(i int) time.Duration {
	mean := m.down[i]
	if m.state[i] {
		mean = m.up[i]
	}
	return time.Duration(m.rng.ExpFloat64() * float64(mean))
}

func (m *market) hasRoom(o *cloud.Offer, now time.Time) bool {
	for i := range m.offers {
		if m.offers[i].Place != o.Place {
			continue
		}
		for m.next[i].Before(now) {
			m.state[i] = !m.state[i]
			m.next[i] = m.next[i].Add(m.spell(i))
		}
		return m.state[i]
	}
	return false
}

// replay launches a cluster every 20 minutes for two weeks and returns how many
// attempts a launch took on average, and what an hour cost.
func replay(seed uint64, learn bool) (attempts, price float64) {
	now := noon
	m := newMarket(seed, now)
	var seen []Seen
	launches, had := 0, 0
	for range 14 * 24 * 3 {
		now = now.Add(20 * time.Minute)
		launches++
		tiers := [][]cloud.Offer{m.offers}
		if learn {
			tiers = Ranking{}.Rank(tiers, NewChances(seen[max(0, len(seen)-200):], now, 0), nil, nil)
		}
		plan := NewPlanner(tiers, nil, nil)
		for o, ok := plan.Next(); ok; o, ok = plan.Next() {
			attempts++
			room := m.hasRoom(&o, now)
			seen = append(seen, Seen{o, now, room})
			if room {
				had++
				price += o.HourlyPrice
				break
			}
			plan.Refused(o, &cloud.CapacityError{Place: o.Place, Err: errors.New("full")})
			now = now.Add(30 * time.Second)
		}
	}
	return attempts / float64(launches), price / float64(had)
}

// TestLearningSavesAttempts is the promise: with availability learned from our
// own attempts a launch takes hardly more than one, in the order of prices three.
func TestLearningSavesAttempts(t *testing.T) {
	const markets = 10
	var learned, fixed, dear, cheap float64
	for seed := range uint64(markets) {
		a, p := replay(seed, true)
		learned, dear = learned+a/markets, dear+p/markets
		a, p = replay(seed, false)
		fixed, cheap = fixed+a/markets, cheap+p/markets
	}
	t.Logf("attempts until success over %d markets of two weeks: %.2f by availability ($%.2f/h), %.2f by price ($%.2f/h)", markets, learned, dear, fixed, cheap)
	if learned > 1.3 {
		t.Errorf("%.2f attempts by availability, want at most 1.3", learned)
	}
	if fixed < 3 {
		t.Errorf("%.2f attempts by price, want at least 3: the market is too easy to tell", fixed)
	}
}

func BenchmarkRank(b *testing.B) {
	var offers []cloud.Offer
	var seen []Seen
	for i := range 5000 {
		o := cloud.Offer{Place: cloud.Place{Cloud: fmt.Sprint("c", i%10), Region: fmt.Sprint("r", i%100), Zone: fmt.Sprint("z", i)}, InstanceType: fmt.Sprint("t", i%7), HourlyPrice: float64(i)}
		offers = append(offers, o)
		if i%3 == 0 {
			seen = append(seen, Seen{o, noon, i%2 == 0})
		}
	}
	for b.Loop() {
		Ranking{}.Rank([][]cloud.Offer{offers}, NewChances(seen, noon, 0), nil, nil)
	}
}
