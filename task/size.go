package task

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Numbers, sizes and durations as users write them. Sizes are powers of 1024;
// what is called GB in the language is 2^30 bytes.

var (
	decimal   = lazyregexp.New(`^(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)$`)
	withUnit  = lazyregexp.New(`^((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?i:([kmgtp])[bi])$`)
	wholeUnit = lazyregexp.New(`^([0-9]+)(?:([kmgtp]b|[KMGTP]B|[KMGTP]b|[kmgtp]i|[KMGTP]I|[KMGTP]i))?$`)
)

// gbPerUnit has the size of each unit in GB.
var gbPerUnit = map[byte]float64{'k': 1.0 / (1 << 20), 'm': 1.0 / (1 << 10), 'g': 1, 't': 1 << 10, 'p': 1 << 20}

func parseDecimal(s string) (float64, bool) {
	if !decimal.MatchString(s) {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// ParseCPUs brings "8", "8.0", "8+" into canonical form.
func ParseCPUs(s string) (string, error) {
	num, plus := strings.CutSuffix(strings.TrimSpace(s), "+")
	f, ok := parseDecimal(num)
	switch {
	case !ok && strings.HasPrefix(num, "-"):
		return "", fmt.Errorf("should be more than 0, not %q", s)
	case !ok:
		return "", fmt.Errorf("should be a number of vCPUs such as 8, or 8+ for at least 8; not %q", s)
	case f <= 0:
		return "", fmt.Errorf("should be more than 0, not %q", s)
	}
	return suffixed(yaml11.FormatNumber(f), plus, "+"), nil
}

// ParseMemory brings "16", "16+", "16GB", "4x" into canonical form: GB, or GB
// per vCPU with x.
func ParseMemory(s string) (string, error) {
	num, plus := strings.CutSuffix(strings.TrimSpace(s), "+")
	times := false
	if !plus {
		num, times = strings.CutSuffix(num, "x")
	}
	f, ok := parseDecimal(num)
	if m := withUnit.FindStringSubmatch(num); m != nil && !times {
		f, ok = parseDecimal(m[1])
		f *= gbPerUnit[strings.ToLower(m[2])[0]]
	}
	switch {
	case !ok && strings.HasPrefix(num, "-"):
		return "", fmt.Errorf("should be more than 0, not %q", s)
	case !ok:
		return "", fmt.Errorf("should be a number of GB such as 16, 16+ for at least 16, a size such as 16GB (KB, MB, GB, TB or PB), or 4x for 4 GB per vCPU; not %q", s)
	case f <= 0:
		return "", fmt.Errorf("should be more than 0, not %q", s)
	}
	return suffixed(suffixed(yaml11.FormatNumber(f), plus, "+"), times, "x"), nil
}

func suffixed(s string, is bool, suffix string) string {
	if is {
		return s + suffix
	}
	return s
}

// ParseDiskSize reads a whole number of GB: "256", "256GB", "2048MB".
func ParseDiskSize(s string) (int, error) {
	gb, err := parseWholeSize(s)
	if err != nil {
		return 0, err
	}
	switch {
	case gb != math.Trunc(gb):
		return 0, fmt.Errorf("should come to a whole number of GB; %s is %s GB", s, yaml11.FormatNumber(gb))
	case gb <= 0:
		return 0, fmt.Errorf("should be more than 0 GB, not %q", s)
	case gb > math.MaxInt32:
		return 0, fmt.Errorf("is larger than any disk: %q", s)
	}
	return int(gb), nil
}

// ParseVolumeSize is ParseDiskSize that rounds down to whole GB.
func ParseVolumeSize(s string) (int, error) {
	gb, err := parseWholeSize(s)
	if err != nil {
		return 0, err
	}
	if gb < 1 {
		return 0, fmt.Errorf("should be at least 1 GB, not %q", s)
	}
	if gb > math.MaxInt32 {
		return 0, fmt.Errorf("is larger than any disk: %q", s)
	}
	return int(gb), nil
}

func parseWholeSize(s string) (float64, error) {
	m := wholeUnit.FindStringSubmatch(s)
	if m == nil {
		if strings.HasPrefix(s, "-") {
			return 0, fmt.Errorf("should be more than 0 GB, not %q", s)
		}
		return 0, fmt.Errorf("should be a whole number of GB such as 256, or a size such as 256GB or 1TB (KB, MB, GB, TB or PB); not %q", s)
	}
	f, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("is larger than any disk: %q", s)
	}
	if m[2] != "" {
		f *= gbPerUnit[strings.ToLower(m[2])[0]]
	}
	return f, nil
}

var duration = lazyregexp.New(`^([0-9]+)([smhdwSMHDW])?$`)

var secondsPerUnit = map[string]int{"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

// ParseSeconds reads "90", "90s", "5m", "2h", "1d", "1w" as seconds.
func ParseSeconds(s string) (int, error) {
	return parseDuration(s, 1, "seconds", `such as 90, "90s", "5m", "2h", "1d" or "1w"`)
}

// ParseMinutes reads "10", "10m", "2h", "1d", "1w" as minutes.
func ParseMinutes(s string) (int, error) {
	return parseDuration(s, 60, "minutes", `such as 10, "10m", "2h", "1d" or "1w"`)
}

func parseDuration(s string, base int, unit, such string) (int, error) {
	m := duration.FindStringSubmatch(s)
	u := base
	if m != nil && m[2] != "" {
		u = secondsPerUnit[strings.ToLower(m[2])]
	}
	if m == nil || u < base {
		return 0, fmt.Errorf("should be a number of %s %s; not %q", unit, such, s)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil || n > math.MaxInt32/(u/base) {
		return 0, errors.New("is too long a time: " + strconv.Quote(s))
	}
	return n * (u / base), nil
}

var localDisk = lazyregexp.New(`^(?:(?i:(nvme|ssd)))?(:)?(?:([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(\+)?)?$`)

// ParseLocalDisk brings "nvme", "375+", "ssd:375" into the form mode:size[+].
func ParseLocalDisk(s string) (string, error) {
	bad := fmt.Errorf(`should be a kind and a size in GB such as "nvme:375", "ssd:100+", "nvme" or "375+"; not %q`, s)
	m := localDisk.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil || m[1] == "" && m[3] == "" || (m[2] != "") != (m[1] != "" && m[3] != "") {
		return "", bad
	}
	mode, size := strings.ToLower(m[1]), "100+"
	if m[3] != "" {
		f, ok := parseDecimal(m[3])
		if !ok || f <= 0 {
			return "", bad
		}
		size = yaml11.FormatNumber(f) + m[4]
	}
	if mode == "" {
		mode = "nvme"
	}
	return mode + ":" + size, nil
}
