package jobs

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/task"
)

func TestDecideTurn(t *testing.T) {
	day := func(n int, clock string) time.Time {
		at, err := time.Parse("2006-01-02 15:04", fmt.Sprintf("2026-03-%02d %s", n, clock))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, c := range []struct {
		name    string
		missed  task.Missed
		overlap task.Overlap
		due     time.Time
		now     time.Time
		busy    bool
		run     time.Time
		leftOut int
		next    time.Time
	}{
		{"not yet", "once", "skip", day(2, "03:00"), day(1, "12:00"), false, time.Time{}, 0, day(2, "03:00")},
		{"in time", "once", "skip", day(2, "03:00"), day(2, "03:00"), false, day(2, "03:00"), 0, day(3, "03:00")},
		{"the one before goes on", "once", "skip", day(2, "03:00"), day(2, "03:00"), true, time.Time{}, 1, day(3, "03:00")},
		{"both may run", "once", "allow", day(2, "03:00"), day(2, "03:00"), true, day(2, "03:00"), 0, day(3, "03:00")},
		{"one for all that were missed", "once", "skip", day(2, "03:00"), day(5, "01:00"), false, day(4, "03:00"), 2, day(5, "03:00")},
		{"none for those that were missed", "skip", "skip", day(2, "03:00"), day(5, "01:00"), false, time.Time{}, 3, day(5, "03:00")},
		{"late by a moment is not missed", "skip", "skip", day(2, "03:00"), day(2, "03:01"), false, day(2, "03:00"), 0, day(3, "03:00")},
		{"missed before, in time now", "skip", "skip", day(2, "03:00"), day(5, "03:00"), false, day(5, "03:00"), 3, day(6, "03:00")},
		{"each that was missed", "all", "allow", day(2, "03:00"), day(5, "01:00"), false, day(2, "03:00"), 0, day(3, "03:00")},
	} {
		got, err := decideTurn(task.Schedule{Cron: "0 3 * * *", Missed: c.missed, Overlap: c.overlap}, c.due, c.now, c.busy)
		if err != nil || !got.run.Equal(c.run) || got.leftOut != c.leftOut || !got.next.Equal(c.next) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// TestTurnsAccountForEveryTime: whatever happens, each time of a schedule has a
// run or is left out, once, and runs come in order.
func TestTurnsAccountForEveryTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := task.Schedule{
			Cron:     rapid.SampledFrom([]string{"*/5 * * * *", "@hourly", "@every 7m", "30 2 * * *"}).Draw(t, "cron"),
			Timezone: rapid.SampledFrom([]string{"", "Europe/Berlin", "America/New_York"}).Draw(t, "zone"),
			Missed:   rapid.SampledFrom([]task.Missed{task.MissedOnce, task.MissedSkip, task.MissedAll}).Draw(t, "missed"),
			Overlap:  rapid.SampledFrom([]task.Overlap{task.OverlapSkip, task.OverlapAllow}).Draw(t, "overlap"),
		}
		start := time.Date(2026, 3, 28, 20, 0, 0, 0, time.UTC) // the night before summer time
		next, err := s.Next(start)
		if err != nil {
			t.Fatal(err)
		}
		now, decided := start, 0
		var last time.Time
		for range 20 {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "minutes")) * time.Minute)
			for range mostMissed + 2 {
				turn, err := decideTurn(s, next, now, rapid.Bool().Draw(t, "busy"))
				if err != nil {
					t.Fatal(err)
				}
				next = turn.next
				decided += turn.leftOut
				if !turn.run.IsZero() {
					if decided++; turn.run.After(now) || !turn.run.After(last) {
						t.Fatalf("run of %v at %v after %v", turn.run, now, last)
					}
					last = turn.run
				}
			}
			if !next.After(now) {
				t.Fatalf("at %v the next is %v", now, next)
			}
		}
		times := 0
		for at, _ := s.Next(start); !at.After(now); at, _ = s.Next(at) {
			times++
		}
		if times != decided {
			t.Fatalf("%d times, %d decided", times, decided)
		}
	})
}
