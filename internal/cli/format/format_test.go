package format

import (
	"strings"
	"testing"
	"time"
)

func at(s string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestAgo(t *testing.T) {
	now := at("2026-06-15 12:00:00")
	tests := []struct {
		start time.Time
		want  string
	}{
		{now, "< 1 sec"},
		{now.Add(time.Hour), "< 1 sec"},
		{now.Add(-500 * time.Millisecond), "< 1 sec"},
		{now.Add(-1 * time.Second), "a few secs ago"},
		{now.Add(-10 * time.Second), "a few secs ago"},
		{now.Add(-11 * time.Second), "11 secs ago"},
		{now.Add(-60 * time.Second), "1 min ago"},
		{now.Add(-119 * time.Second), "1 min ago"},
		{now.Add(-2 * time.Hour), "2 hrs ago"},
		{now.Add(-23 * time.Hour), "23 hrs ago"},
		{now.Add(-24 * time.Hour), "1 day ago"},
		{now.Add(-45 * time.Hour), "1 day ago"},
		{now.Add(-46 * time.Hour), "2 days ago"},
		{now.AddDate(0, 0, -3), "3 days ago"},
		{now.AddDate(0, 0, -7), "1 week ago"},
		{now.AddDate(0, 0, -10), "1 week ago"},
		{now.AddDate(0, 0, -11), "2 weeks ago"},
		{at("2026-05-15 12:00:00"), "1 month ago"},
		{at("2026-04-18 12:00:00"), "2 months ago"}, // one month and 28 days
		{at("2026-04-15 12:00:00"), "2 months ago"},
		{at("2025-06-29 12:00:00"), "1 year ago"}, // 11 months and 17 days
		{at("2025-07-15 12:00:00"), "11 months ago"},
		{at("2025-06-15 12:00:00"), "1 year ago"},
		{at("2024-12-15 12:00:00"), "1 year ago"},
		{at("2024-11-15 12:00:00"), "2 years ago"},
	}
	for _, tt := range tests {
		if got := Ago(float64(tt.start.UnixMilli())/1000, now); got != tt.want {
			t.Errorf("Ago(%v) = %q, want %q", now.Sub(tt.start), got, tt.want)
		}
	}
	for _, start := range []float64{0, -1} {
		if got := Ago(start, now); got != "-" {
			t.Errorf("Ago(%v) = %q, want -", start, got)
		}
	}
}

func TestElapsed(t *testing.T) {
	const start = 1_700_000_000
	tests := []struct {
		start, end float64
		want       string
	}{
		{0, 0, "-"},
		{-1, 5, "-"},
		{start, start, "< 1s"},
		{start, start + 0.9, "< 1s"},
		{start, start + 3, "3s"},
		{start, start + 62, "1m 2s"},
		{start, start + 3600, "1h"},
		{start, start + 9*86400 + 3723, "1w 2d 1h 2m 3s"},
		{float64(at("2026-01-31 00:00:00").Unix()), float64(at("2026-02-28 00:00:01").Unix()), "1mo 1s"},
		{float64(at("2024-01-01 00:00:00").Unix()), float64(at("2026-03-02 00:00:00").Unix()), "2 years 2mo 1d"},
	}
	for _, tt := range tests {
		if got := Elapsed(tt.start, tt.end); got != tt.want {
			t.Errorf("Elapsed(%v, %v) = %q, want %q", tt.start, tt.end, got, tt.want)
		}
	}
}

func TestAge(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		age  time.Duration
		want string
	}{
		{-1 * time.Second, "0s"},
		{90 * time.Second, "90s"},
		{120 * time.Second, "2m"},
		{9*time.Minute + 5*time.Second, "9m5s"},
		{150 * time.Minute, "150m"},
		{7*time.Hour + 5*time.Minute, "7h5m"},
		{7 * time.Hour, "7h"},
		{30 * time.Hour, "30h"},
		{5*day + 3*time.Hour, "5d3h"},
		{400 * day, "400d"},
		{(3*365 + 20) * day, "3y20d"},
		{9 * 365 * day, "9y"},
	}
	for _, tt := range tests {
		if got := Age(tt.age); got != tt.want {
			t.Errorf("Age(%v) = %q, want %q", tt.age, got, tt.want)
		}
	}
}

func TestTruncate(t *testing.T) {
	tests := []struct {
		text string
		n    int
		want string
	}{
		{"short", 10, "short"},
		{"exactly 10", 10, "exactly 10"},
		{"one-very-long-word", 5, "one-v..."},
		{"sky launch -c train task.yaml", 25, "sky launch -c train task...."},
		{"a b c d e f", 5, "a b c d..."},
		{"ab cd ef gh", 6, "ab cd ..."},
		{"ab cd ef gh", 5, "ab cd..."},
		{"skypilot-volume-status-refresh-daemon", 36, "skypilot-volume-status-refresh-daemo..."},
		{"ääääää", 3, "äää..."},
	}
	for _, tt := range tests {
		if got := Truncate(tt.text, tt.n); got != tt.want {
			t.Errorf("Truncate(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

func TestCells(t *testing.T) {
	price := 3.6731
	tests := []struct{ got, want string }{
		{Infra("AWS (us-east-1)"), "AWS (us-east-1)"},
		{Infra("Kubernetes/a-very-long-context-name"), "Kubernetes/...ontext-name"},
		{Name(strings.Repeat("n", 63)), strings.Repeat("n", 63)},
		{Name(strings.Repeat("n", 150) + strings.Repeat("m", 150)), strings.Repeat("n", 30) + "..." + strings.Repeat("m", 30)},
		{Autostop(-1, false), "-"},
		{Autostop(10, false), "10m"},
		{Autostop(120, false), "2h"},
		{Autostop(90, false), "90m"},
		{Autostop(0, false), "0m"},
		{Autostop(10, true), "10m (down)"},
		{Autostop(-1, true), "(down)"},
		{Price(&price, 3), "$ 3.673"},
		{Price(nil, 3), "-"},
		{Number(7.5), "7.5"},
		{Number(8), "8"},
		{Float(8), "8.0"},
		{Count(1, "cluster"), "1 cluster"},
		{Count(2, "cluster"), "2 clusters"},
		{Quote([]string{"a", "b"}), "'a', 'b'"},
		{Seconds(0), "-"},
		{Seconds(61), "1m 1s"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
