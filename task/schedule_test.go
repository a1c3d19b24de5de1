package task

import (
	"strings"
	"testing"
	"time"
)

func TestNextTimes(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Schedule
		from string
		want string // the times after that, in UTC
	}{
		{"daily", Schedule{Cron: "@daily"}, "2026-03-01T10:00:00Z", "2026-03-02T00:00:00Z 2026-03-03T00:00:00Z"},
		{"exactly then", Schedule{Cron: "0 0 * * *"}, "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"},
		{"in a zone", Schedule{Cron: "30 3 * * 1-5", Timezone: "Europe/Berlin"}, "2026-06-05T12:00:00Z", "2026-06-08T01:30:00Z"},
		// Berlin goes from 02:00 to 03:00 on 29 March 2026, and from 03:00 back to
		// 02:00 on 25 October.
		{"winter to summer", Schedule{Cron: "0 4 * * *", Timezone: "Europe/Berlin"}, "2026-03-28T00:00:00Z", "2026-03-28T03:00:00Z 2026-03-29T02:00:00Z"},
		{"a time that does not exist", Schedule{Cron: "30 2 * * *", Timezone: "Europe/Berlin"}, "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"},
		{"a time that comes twice", Schedule{Cron: "30 2 * * *", Timezone: "Europe/Berlin"}, "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"29 February", Schedule{Cron: "0 12 29 2 *"}, "2026-01-01T00:00:00Z", "2028-02-29T12:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range strings.Fields(c.want) {
			if at, err = c.s.Next(at); err != nil {
				t.Fatal(c.name, err)
			}
			if got := at.Format(time.RFC3339); got != want {
				t.Errorf("%s: %s, want %s", c.name, got, want)
			}
		}
	}
}
