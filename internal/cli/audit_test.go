package cli

import (
	"testing"
	"time"
)

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "24h": now.AddDate(0, 0, -1), "7d": now.AddDate(0, 0, -7), "0d": now,
		"2026-01-31": time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), "2026-01-31 10:30": time.Date(2026, 1, 31, 10, 30, 0, 0, time.UTC),
		"2026-01-31T10:30:00Z": time.Date(2026, 1, 31, 10, 30, 0, 0, time.UTC),
	} {
		if got, err := parseSince(s, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"yesterday", "-1d", "-1h", "7 d", "2026-13-01"} {
		if got, err := parseSince(s, now); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}
