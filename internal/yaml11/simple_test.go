package yaml11

import (
	"math"
	"testing"

	"go.yaml.in/yaml/v4"
)

func TestSimpleScalars(t *testing.T) {
	for _, test := range []struct {
		text string
		want any
	}{
		{"", nil}, {"~", nil}, {"null", nil}, {"Null", nil}, {"NULL", nil}, {"nULL", "nULL"},
		{"yes", true}, {"Yes", true}, {"YES", true}, {"on", true}, {"On", true}, {"true", true}, {"TRUE", true},
		{"no", false}, {"off", false}, {"OFF", false}, {"False", false},
		{"y", "y"}, {"n", "n"}, {"yEs", "yEs"}, {"oN", "oN"},
		{"0", 0}, {"-0", 0}, {"12", 12}, {"+12", 12}, {"-12", -12}, {"1_000", 1000}, {"0_0", 0},
		{"010", 8}, {"-010", -8}, {"0o10", "0o10"}, {"08", "08"}, {"0x10", 16}, {"-0xff", -255}, {"0x", "0x"}, {"0b11", 3}, {"0b2", "0b2"}, {"0b_", "0b_"},
		{"22:30", 1350}, {"22:80", "22:80"}, {"1:2:3", 3723}, {"01:30", "01:30"}, {"-1:30", -90}, {"1:300", "1:300"}, {"1:", "1:"}, {"1:30.5", 90.5}, {"a:b", "a:b"},
		{"1.5", 1.5}, {"1.", 1.0}, {".5", .5}, {"-.5", "-.5"}, {"+1.5", 1.5}, {"-1.5", -1.5}, {"1.50", 1.5}, {"1_0.5", 10.5}, {"1.5_5", 1.55},
		{"1e3", "1e3"}, {"1e+3", "1e+3"}, {"1.0e+3", 1000.0}, {"1.0e3", "1.0e3"}, {"1.0e+", "1.0e+"}, {"1.5E-1", .15}, {".", "."}, {"._5", "._5"}, {"-", "-"}, {"+", "+"},
		{".inf", math.Inf(1)}, {"-.Inf", math.Inf(-1)}, {"+.INF", math.Inf(1)}, {"inf", "inf"}, {"-.nan", "-.nan"},
		{"9223372036854775807", math.MaxInt}, {"-9223372036854775808", math.MinInt}, {"9223372036854775808", 9223372036854775808.0}, {"99999999999999999999", 99999999999999999999.0},
		{"2020-01-01", "2020-01-01"}, {"1.2.3.4", "1.2.3.4"}, {"4+", "4+"}, {"1_", 1}, {"_1", "_1"}, {"abc", "abc"},
	} {
		if got := simple(t, test.text); got != test.want {
			t.Errorf("%q is %#v, want %#v", test.text, got, test.want)
		}
	}
	if v, ok := Resolve(".nan").(float64); !ok || !math.IsNaN(v) {
		t.Error(".nan is", v, ok)
	}
}

func simple(t *testing.T, text string) any {
	n := &Node{}
	c := converter{source: &Source{Simple: true}}
	if c.scalar(&yaml.Node{Kind: yaml.ScalarNode, Value: text}, n); len(c.errs) > 0 {
		t.Fatal(c.errs)
	}
	return n.Value
}
