package format

import (
	"fmt"
	"strconv"
	"strings"
)

// Count is "1 cluster" or "2 clusters".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Truncate shortens text of more than n characters to the first n and "...". If
// the whole words before the one that crosses the limit already reach it with
// their spaces, they are kept whole.
func Truncate(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	words := strings.Split(text, " ")
	total, crossing := 0, 0
	for i, w := range words {
		crossing = i
		if total += len([]rune(w)); total >= n {
			break
		}
	}
	if prefix := strings.Join(words[:crossing], " "); len([]rune(prefix)) >= n {
		return prefix + "..."
	}
	return string(runes[:n]) + "..."
}

// How long the columns INFRA and NAME get.
const (
	infraWidth = 25
	nameWidth  = 63
)

// Infra cuts the middle out of a long place.
func Infra(text string) string { return withoutMiddle(text, infraWidth) }

// Name cuts the middle out of a long name.
func Name(text string) string { return withoutMiddle(text, nameWidth) }

func withoutMiddle(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	half := (width - 3) / 2
	return string(runes[:half]) + "..." + string(runes[len(runes)-half:])
}

// OrDash is s, or "-" for nothing.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Autostop is a cell of the AUTOSTOP column; minutes < 0 means none.
func Autostop(minutes int, down bool) string {
	var parts []string
	switch {
	case minutes >= 60 && minutes%60 == 0:
		parts = append(parts, fmt.Sprintf("%dh", minutes/60))
	case minutes >= 0:
		parts = append(parts, fmt.Sprintf("%dm", minutes))
	}
	if down {
		parts = append(parts, "(down)")
	}
	return OrDash(strings.Join(parts, " "))
}

// Price is "$ 3.673"; nil or 0 is unknown, "-".
func Price(p *float64, decimals int) string {
	if p == nil || *p == 0 {
		return "-"
	}
	return fmt.Sprintf("$ %.*f", decimals, *p)
}

// Number prints 8 as "8" and 7.5 as "7.5".
func Number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Float prints 8 as "8.0".
func Float(f float64) string {
	s := Number(f)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Quote joins names as 'a', 'b'.
func Quote(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = "'" + n + "'"
	}
	return strings.Join(quoted, ", ")
}

// Bytes is a size for people: "12.3 MB".
func Bytes(n int64) string {
	size, unit := float64(n), "B"
	for _, u := range [...]string{"KB", "MB", "GB", "TB"} {
		if size < 1000 {
			break
		}
		size, unit = size/1000, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
