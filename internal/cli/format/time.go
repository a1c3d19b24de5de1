// Package format turns values into the texts of tables: times, durations,
// shortened names, prices. All functions are pure.
package format

import (
	"fmt"
	"strings"
	"time"
)

// span is a calendar difference.
type span struct{ years, months, weeks, days, hours, minutes, seconds int }

// between counts whole calendar units from a to b, both in UTC; a is not after b.
func between(a, b time.Time) span {
	a, b = a.UTC(), b.UTC()
	months := (b.Year()-a.Year())*12 + int(b.Month()-a.Month())
	if addMonths(a, months).After(b) {
		months--
	}
	rest := b.Sub(addMonths(a, months))
	day := 24 * time.Hour
	days := int(rest / day)
	rest %= day
	return span{
		years: months / 12, months: months % 12, weeks: days / 7, days: days % 7,
		hours: int(rest / time.Hour), minutes: int(rest % time.Hour / time.Minute), seconds: int(rest % time.Minute / time.Second),
	}
}

// addMonths keeps to the end of a shorter month: January 31 and one month is
// February 28 or 29.
func addMonths(t time.Time, n int) time.Time {
	y, m, d := t.Date()
	last := time.Date(y, m+time.Month(n)+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return time.Date(y, m+time.Month(n), min(d, last), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// Ago says how long ago start (Unix seconds) was, roughly: "2 hrs ago". An
// unknown start, 0 or negative, is "-".
func Ago(start float64, now time.Time) string {
	if start <= 0 {
		return "-"
	}
	from := unix(start)
	if now.Sub(from) < time.Second {
		return "< 1 sec"
	}
	s := between(from, now)
	days := s.weeks*7 + s.days
	switch {
	case s.years > 0:
		return ago(s.years+more(s.months > 6), "year")
	case s.months == 11 && days > 15:
		return ago(1, "year")
	case s.months > 0:
		return ago(s.months+more(days >= 27), "month")
	case s.weeks > 0:
		return ago(s.weeks+more(s.days > 3), "week")
	case s.days > 0:
		return ago(s.days+more(s.hours >= 22), "day")
	case s.hours > 0:
		return ago(s.hours, "hr")
	case s.minutes > 0:
		return ago(s.minutes, "min")
	case s.seconds > 10:
		return ago(s.seconds, "sec")
	}
	return "a few secs ago"
}

func more(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func ago(n int, unit string) string { return Count(n, unit) + " ago" }

// Elapsed is the exact time from start to end (Unix seconds), "1h 2m 3s". An
// unknown or negative start, or both 0, is "-".
func Elapsed(start, end float64) string {
	if start < 0 || start == 0 && end == 0 {
		return "-"
	}
	if end-start < 1 {
		return "< 1s"
	}
	s := between(unix(start), unix(end))
	var parts []string
	if s.years > 0 {
		parts = append(parts, Count(s.years, "year"))
	}
	for _, u := range [...]struct {
		n    int
		unit string
	}{{s.months, "mo"}, {s.weeks, "w"}, {s.days, "d"}, {s.hours, "h"}, {s.minutes, "m"}, {s.seconds, "s"}} {
		if u.n > 0 {
			parts = append(parts, fmt.Sprintf("%d%s", u.n, u.unit))
		}
	}
	return strings.Join(parts, " ")
}

// Seconds is a length of time in seconds in the form of Elapsed.
func Seconds(n float64) string {
	if n <= 0 {
		return "-"
	}
	return Elapsed(1, 1+n)
}

func unix(t float64) time.Time {
	sec := int64(t)
	return time.Unix(sec, int64((t-float64(sec))*1e9))
}

// Age is how old a volume is, in the style of kubectl: "5d3h". An invalid
// (negative) age is "0s".
func Age(d time.Duration) string {
	s := int(d / time.Second)
	day := func(n int) int { return n * 24 * 3600 }
	year := func(n int) int { return day(365) * n }
	two := func(a int, ua string, b int, ub string) string {
		if b == 0 {
			return fmt.Sprintf("%d%s", a, ua)
		}
		return fmt.Sprintf("%d%s%d%s", a, ua, b, ub)
	}
	switch {
	case s < 0:
		return "0s"
	case s < 120:
		return fmt.Sprintf("%ds", s)
	case s < 600:
		return two(s/60, "m", s%60, "s")
	case s < 3*3600:
		return fmt.Sprintf("%dm", s/60)
	case s < 8*3600:
		return two(s/3600, "h", s%3600/60, "m")
	case s < 48*3600:
		return fmt.Sprintf("%dh", s/3600)
	case s < day(8):
		return two(s/day(1), "d", s%day(1)/3600, "h")
	case s < year(2):
		return fmt.Sprintf("%dd", s/day(1))
	case s < year(8):
		return two(s/year(1), "y", s%year(1)/day(1), "d")
	}
	return fmt.Sprintf("%dy", s/year(1))
}
