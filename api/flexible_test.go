package api

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestStringsTakesOneOrMany(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
		ok   bool
	}{
		{`"a"`, []string{"a"}, true},
		{`["a","b"]`, []string{"a", "b"}, true},
		{`null`, nil, true},
		{`[]`, []string{}, true},
		{`3`, nil, false},
		{`[3]`, nil, false},
	} {
		var s Strings
		err := json.Unmarshal([]byte(c.in), &s)
		if (err == nil) != c.ok || c.ok && !slices.Equal(s, c.want) {
			t.Errorf("%s: got %v, %v; want %v", c.in, s, err, c.want)
		}
	}
}

func TestIntOrString(t *testing.T) {
	for _, c := range []struct {
		in, text string
		number   bool
		ok       bool
	}{
		{`8080`, "8080", true, true},
		{`"8080-8090"`, "8080-8090", false, true},
		{`"8080"`, "8080", false, true},
		{`[]`, "", false, false},
		{`true`, "", false, false},
	} {
		var v IntOrString
		err := json.Unmarshal([]byte(c.in), &v)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if err != nil {
			continue
		}
		if _, isInt := v.Int(); v.String() != c.text || isInt != c.number {
			t.Errorf("%s: got %q, number %v", c.in, v, isInt)
		}
		if out, _ := json.Marshal(v); string(out) != c.in {
			t.Errorf("%s came back as %s", c.in, out)
		}
	}
	if n, ok := Number(7).Int(); !ok || n != 7 || Text("x").String() != "x" {
		t.Error("Number and Text")
	}
}
