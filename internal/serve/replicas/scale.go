package replicas

import (
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/serve/spec"
)

// Scale is what an autoscaler remembers between two decisions. It is stored with
// the service.
type Scale struct {
	Target  int       `json:"target"`
	Version int       `json:"version"`     // whose limits it was made with
	At      time.Time `json:"at,omitzero"` // of the latest reading

	Above time.Time `json:"above,omitzero"` // since when all readings were above the target
	Below time.Time `json:"below,omitzero"` // since when all were below
	Most  int       `json:"most,omitempty"` // the highest of these

	Knee   float64   `json:"knee,omitempty"` // requests a second for each replica at which the latency was missed
	KneeAt time.Time `json:"knee_at,omitzero"`

	Peaks []Peak `json:"peaks,omitempty"` // of the hours of the last week
}

// Peak is the most replicas that the load asked for in an hour.
type Peak struct {
	Hour int64 `json:"hour"` // since 1970
	Most int   `json:"most"`
}

// A controller that was away for longer than this begins to measure anew.
const longestGap = 2 * time.Minute

// after is the memory after a reading. The target rises when all readings of the
// up delay were above it, and falls, to the highest of them, when all of the down
// delay were below. Limits and floors hold at once, and from 0 it rises at once.
func (m Scale) after(s *spec.Scale, version, want int, known bool, floor int, now time.Time) Scale {
	low := min(max(s.Min, floor), max(s.Max, s.Min))
	high := max(s.Max, s.Min)
	clip := func(n int) int { return min(max(n, low), high) }
	switch {
	case m.At.IsZero():
		m.Target, m.Version, m.At = clip(want), version, now
		return m
	case m.Version != version:
		// What runs is not taken away by a new version's first reading.
		m.Target, m.Version = clip(max(want, m.Target)), version
		m.Above, m.Below, m.Most, m.Knee = time.Time{}, time.Time{}, 0, 0
	case now.Sub(m.At) > longestGap:
		m.Above, m.Below, m.Most = time.Time{}, time.Time{}, 0
	}
	if m.Target != clip(m.Target) {
		m.Target = clip(m.Target)
		m.Above, m.Below, m.Most = time.Time{}, time.Time{}, 0
	}
	m.At = now
	if !known {
		return m
	}
	want = clip(want)
	switch {
	case want > m.Target:
		m.Below, m.Most = time.Time{}, 0
		m.Above = or(m.Above, now)
		if m.Target == 0 || now.Sub(m.Above) >= s.UpDelay {
			m.Target, m.Above = want, time.Time{}
		}
	case want < m.Target:
		m.Above = time.Time{}
		m.Below, m.Most = or(m.Below, now), max(m.Most, want)
		if now.Sub(m.Below) >= s.DownDelay {
			m.Target, m.Below, m.Most = m.Most, time.Time{}, 0
		}
	default:
		m.Above, m.Below, m.Most = time.Time{}, time.Time{}, 0
	}
	return m
}

// Predictive floors look at this many days, and begin this much before their hour.
const (
	daysBack = 7
	ahead    = 15 * time.Minute
)

// remember notes a reading for predictive floors.
func (m Scale) remember(want int, now time.Time) Scale {
	hour := now.Unix() / 3600
	peaks := slices.Clone(m.Peaks)
	if n := len(peaks); n > 0 && peaks[n-1].Hour == hour {
		peaks[n-1].Most = max(peaks[n-1].Most, want)
	} else {
		peaks = append(peaks, Peak{hour, want})
	}
	first := 0
	for first < len(peaks) && peaks[first].Hour < hour-24*daysBack {
		first++
	}
	m.Peaks = peaks[first:]
	return m
}

// predicted is the median of what this hour, or the one that is about to begin,
// needed on the days before.
func (m *Scale) predicted(now time.Time) int {
	floor := 0
	for _, at := range []time.Time{now, now.Add(ahead)} {
		hour := at.Unix() / 3600
		var same []int
		for _, p := range m.Peaks {
			if p.Hour < hour && (hour-p.Hour)%24 == 0 {
				same = append(same, p.Most)
			}
		}
		if len(same) > 0 {
			slices.Sort(same)
			floor = max(floor, same[len(same)/2])
		}
	}
	return floor
}

// floor is the fewest replicas now, whatever the load.
func (m *Scale) floor(s *spec.Scale, now time.Time) int {
	n := 0
	for _, f := range s.Schedules {
		if f.Min > n && f.Holds(now) {
			n = f.Min
		}
	}
	if s.Predictive {
		n = max(n, m.predicted(now))
	}
	return n
}
