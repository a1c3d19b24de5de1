package yaml11

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Date is a YAML timestamp, kept in UTC if it names no zone.
type Date struct {
	time.Time
	DateOnly bool // no time of day
	Zoned    bool // it names a zone
}

var (
	yamlInt   = lazyregexp.New(`^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	yamlFloat = lazyregexp.New(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	yamlDate  = lazyregexp.New(`^([0-9]{4})-([0-9][0-9]?)-([0-9][0-9]?)(?:(?:[Tt]|[ \t]+)([0-9][0-9]?):([0-9]{2}):([0-9]{2})(?:\.([0-9]*))?(?:[ \t]*(Z|([-+])([0-9][0-9]?)(?::([0-9]{2}))?))?)?$`)
	yamlDay   = lazyregexp.New(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
)

// Resolve gives an unquoted scalar its YAML 1.1 meaning.
func Resolve(s string) any {
	if s == "" {
		return nil
	}
	switch s {
	case "~", "null", "Null", "NULL":
		return nil
	case "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true
	case "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false
	}
	if c := s[0]; c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') {
		return s
	}
	switch {
	case yamlInt.MatchString(s):
		return parseInt(s)
	case yamlFloat.MatchString(s):
		return parseFloat(s)
	case yamlDay.MatchString(s) || yamlDate.MatchString(s) && strings.ContainsAny(s, "Tt \t"):
		if d, ok := parseDate(s); ok {
			return d
		}
	}
	return s
}

func parseInt(text string) any {
	s := strings.ReplaceAll(text, "_", "")
	sign, digits := 1, s
	if s[0] == '-' || s[0] == '+' {
		if s[0] == '-' {
			sign = -1
		}
		digits = s[1:]
	}
	n, ok := new(big.Int), true
	switch {
	case strings.Contains(digits, ":"):
		for part := range strings.SplitSeq(digits, ":") {
			d, _ := new(big.Int).SetString(part, 10)
			n.Mul(n, big.NewInt(60)).Add(n, d)
		}
	case strings.HasPrefix(digits, "0b"):
		_, ok = n.SetString(digits[2:], 2)
	case strings.HasPrefix(digits, "0x"):
		_, ok = n.SetString(digits[2:], 16)
	case len(digits) > 1 && digits[0] == '0':
		n.SetString(digits[1:], 8)
	default:
		n.SetString(digits, 10)
	}
	if !ok {
		return text // 0b_
	}
	if sign < 0 {
		n.Neg(n)
	}
	if n.IsInt64() && int64(int(n.Int64())) == n.Int64() {
		return int(n.Int64())
	}
	return n
}

func parseFloat(s string) float64 {
	s = strings.ToLower(strings.ReplaceAll(s, "_", ""))
	sign, digits := 1.0, s
	if s[0] == '-' || s[0] == '+' {
		if s[0] == '-' {
			sign = -1
		}
		digits = s[1:]
	}
	switch {
	case digits == ".inf":
		return sign * math.Inf(1)
	case digits == ".nan":
		return math.NaN()
	case strings.Contains(digits, ":"):
		total := 0.0
		for part := range strings.SplitSeq(digits, ":") {
			f, _ := strconv.ParseFloat(part, 64)
			total = total*60 + f
		}
		return sign * total
	}
	f, _ := strconv.ParseFloat(digits, 64) // an overflow gives infinity, as wanted
	return sign * f
}

func parseDate(s string) (Date, bool) {
	m := yamlDate.FindStringSubmatch(s)
	if m == nil {
		return Date{}, false
	}
	num := func(i int) int { n, _ := strconv.Atoi(m[i]); return n }
	loc := time.UTC
	if m[9] != "" {
		off := num(10)*3600 + num(11)*60
		if m[9] == "-" {
			off = -off
		}
		loc = time.FixedZone("", off)
	}
	nano, _ := strconv.Atoi((m[7] + "000000")[:6])
	t := time.Date(num(1), time.Month(num(2)), num(3), num(4), num(5), num(6), nano*1000, loc)
	if t.Year() != num(1) || int(t.Month()) != num(2) || t.Day() != num(3) || num(4) > 23 || num(5) > 59 || num(6) > 59 {
		return Date{}, false
	}
	return Date{Time: t, DateOnly: m[4] == "", Zoned: m[8] != ""}, true
}

// resolveTagged gives a scalar with an explicit tag its meaning.
func resolveTagged(tag, s string) (any, bool) {
	tag = strings.TrimPrefix(tag, "tag:yaml.org,2002:")
	tag = strings.TrimPrefix(tag, "!!")
	switch v := Resolve(s); tag {
	case "str", "!":
		return s, true
	case "null":
		return nil, true
	case "int":
		switch v.(type) {
		case int, *big.Int:
			return v, true
		}
	case "float":
		switch v := v.(type) {
		case int:
			return float64(v), true
		case float64:
			return v, true
		}
	case "bool":
		if b, ok := v.(bool); ok {
			return b, true
		}
	case "timestamp":
		if d, ok := v.(Date); ok {
			return d, true
		}
	}
	return nil, false
}
