package config

import (
	"math"
	"strconv"
	"strings"
)

// resolve reads a plain (unquoted) scalar by the rules of YAML 1.1, which
// existing files are written for: yes and on are booleans, 010 is eight, 22:30
// is 1350, 1e3 is a text. Dates stay texts.
func resolve(s string) (Kind, any) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return Null, nil
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON":
		return Bool, true
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF":
		return Bool, false
	case ".nan", ".NaN", ".NAN":
		return Float, math.NaN()
	}
	if c := s[0]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' {
		return Text, s
	}
	body, sign := s, 1
	switch s[0] {
	case '-':
		body, sign = s[1:], -1
	case '+':
		body = s[1:]
	}
	switch body {
	case ".inf", ".Inf", ".INF":
		return Float, math.Inf(sign)
	}
	if i, ok := wholeNumber(body); ok {
		switch {
		case i <= math.MaxInt:
			return Int, sign * int(i)
		case sign < 0 && i == -math.MinInt:
			return Int, math.MinInt
		}
		return Float, float64(sign) * float64(i)
	}
	if f, ok := floatNumber(body, body != s); ok {
		return Float, float64(sign) * f
	}
	return Text, s
}

// wholeNumber reads 0b…, 0…, 0x…, decimal and base-60 integers without sign.
func wholeNumber(s string) (uint64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	if strings.Contains(s, ":") {
		if s[0] == '0' {
			return 0, false
		}
		f, ok := sexagesimal(s)
		return uint64(f), ok
	}
	digits := strings.ReplaceAll(s, "_", "")
	base := 10
	switch {
	case digits == "0":
		return 0, true
	case strings.HasPrefix(digits, "0b"):
		digits, base = digits[2:], 2
	case strings.HasPrefix(digits, "0x"):
		digits, base = digits[2:], 16
	case digits[0] == '0':
		digits, base = digits[1:], 8
	}
	i, err := strconv.ParseUint(digits, base, 64)
	return i, err == nil
}

// floatNumber reads a float, which needs a dot, and an exponent, which needs a
// sign. A float that starts with its dot takes no sign of its own.
func floatNumber(s string, signed bool) (float64, bool) {
	dot := strings.IndexByte(s, '.')
	if dot < 0 {
		return 0, false
	}
	whole, fraction := s[:dot], s[dot+1:]
	if strings.Contains(whole, ":") {
		f, ok := sexagesimal(whole)
		if !ok || !onlyDigits(fraction) {
			return 0, false
		}
		part, _ := strconv.ParseFloat("0."+strings.ReplaceAll(fraction, "_", "")+"0", 64)
		return f + part, true
	}
	if e := strings.IndexAny(fraction, "eE"); e >= 0 {
		exponent := fraction[e+1:]
		if len(exponent) < 2 || exponent[0] != '-' && exponent[0] != '+' || !onlyDigits(exponent[1:]) || strings.Contains(exponent, "_") {
			return 0, false
		}
		fraction = fraction[:e]
	}
	if !onlyDigits(whole) || !onlyDigits(fraction) {
		return 0, false
	}
	if whole == "" && (signed || fraction == "" || fraction[0] == '_') || whole != "" && whole[0] == '_' {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0)
}

// sexagesimal reads digit groups in base 60: 22:30 is 1350.
func sexagesimal(s string) (float64, bool) {
	groups := strings.Split(s, ":")
	total := 0.0
	for i, g := range groups {
		if i == 0 {
			g = strings.ReplaceAll(g, "_", "")
		} else if len(g) > 2 || len(g) == 2 && g[0] > '5' {
			return 0, false
		}
		n, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return 0, false
		}
		total = total*60 + float64(n)
	}
	return total, total < 1<<53
}

// onlyDigits also accepts the empty text and underscores between digits.
func onlyDigits(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && s[i] != '_' {
			return false
		}
	}
	return true
}
