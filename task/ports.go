package task

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type portRange struct{ from, to int }

// ParsePorts reads ports ("8080"), ranges ("9000-9010") and lists of them
// with commas; what overlaps or touches is merged, and the result sorted.
func ParsePorts(texts ...string) ([]string, error) {
	var ranges []portRange
	for _, t := range texts {
		for part := range strings.SplitSeq(t, ",") {
			r, err := parsePortRange(strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			ranges = append(ranges, r)
		}
	}
	slices.SortFunc(ranges, func(a, b portRange) int { return cmp.Or(a.from-b.from, a.to-b.to) })
	var merged []portRange
	for _, r := range ranges {
		if n := len(merged); n > 0 && r.from <= merged[n-1].to+1 {
			merged[n-1].to = max(merged[n-1].to, r.to)
			continue
		}
		merged = append(merged, r)
	}
	var out []string
	for _, r := range merged {
		if r.from == r.to {
			out = append(out, strconv.Itoa(r.from))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", r.from, r.to))
		}
	}
	return out, nil
}

func parsePortRange(s string) (portRange, error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.Atoi(from)
	b, errB := strconv.Atoi(to)
	switch {
	case errA != nil || errB != nil || from == "" || strings.ContainsAny(s, "+ "):
		return portRange{}, fmt.Errorf("should be a port such as 8080 or a range such as 9000-9010, not %q", s)
	case a < 1 || a > 65535 || b < 1 || b > 65535:
		return portRange{}, fmt.Errorf("should be between 1 and 65535, not %s", s)
	case a > b:
		return portRange{}, fmt.Errorf("should be a range from the lower to the higher port, not %s", s)
	}
	return portRange{a, b}, nil
}

func checkPorts(s string) error {
	_, err := ParsePorts(s)
	return err
}
