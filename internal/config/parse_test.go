package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/yaml11"
)

func TestParseForms(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"a: 'yes'\nb: \"1\"\nc: yes", `{"a": "yes", "b": "1", c: true}`},
		{"a: |\n  x\n  y\nb: >-\n  x\n  y\n", `{a: "x\ny\n", b: "x y"}`},
		{"a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2\n", "{a: {b: 1}, c: {b: 1}, d: {b: 1, e: 2}}"},
		{"a: &x {b: 1, c: 1}\nd: {<<: *x, b: 2}\n", "{a: {b: 1, c: 1}, d: {b: 2, c: 1}}"},
		{"a: &x {b: 1}\nc: &y {b: 2, d: 2}\ne:\n  <<: [*x, *y]\n", "{a: {b: 1}, c: {b: 2, d: 2}, e: {b: 1, d: 2}}"},
		{"a: !!str 5\nc: !!int 5\nd: !!str yes", `{a: "5", c: 5, d: "yes"}`},
		{"1: a\nyes: b\n~: c\n", `{"1": a, "yes": b, "null": c}`},
		{"'quoted key': 1\n\"x.y\": 2\n", `{quoted key: 1, x.y: 2}`},
		{"a:\n- 1\n- - 2\n  - 3\n", "{a: [1, [2, 3]]}"},
		{"a: plain text\n  over lines\n", "{a: plain text over lines}"},
		{"a: 1\r\nb: 2\r\n", "{a: 1, b: 2}"},
		{"\ufeffa: 1", "{a: 1}"},
		{"---\na: 1\n...\n", "{a: 1}"},
		{"%YAML 1.1\n---\na: 1\n", "{a: 1}"},
		{"? a\n: 1\n", "{a: 1}"},
		{"a: \"\\u00e9\\n\"", `{a: "é\n"}`},
	} {
		n, err := parse([]byte(test.text), newSource("", "f"))
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if want := read(t, test.want); !yaml11.Equal(n, want) {
			t.Errorf("%q reads as %s, want %s", test.text, yaml11.FlowText(n), yaml11.FlowText(want))
		}
	}
}

func TestPositions(t *testing.T) {
	n := read(t, "\ufeff# comment\na:\n  b: [1, {c: 'x'}]\n  'é é': \"y\"\n  d:\n    e: z\n")
	for path, want := range map[string]string{
		"a": "3:3", "a.b": "3:6", "a.é é": "4:10", "a.d": "6:5", "a.d.e": "6:8",
	} {
		at := n.Find(strings.Split(path, ".")...).Place
		if got := fmt.Sprintf("%d:%d", at.Line, at.Column); got != want {
			t.Errorf("%s is at %s, want %s", path, got, want)
		}
	}
	if at := n.Find("a", "b").Items[1].Lookup("c").Place; at.Line != 3 || at.Column != 14 {
		t.Error("inside of a list:", at)
	}
}

func TestDecodeYAML(t *testing.T) {
	v, err := DecodeYAML([]byte("a: [1, yes, 1.5, x]"), "task")
	if err != nil || string(EncodeYAML(v)) != "a:\n  - 1\n  - true\n  - 1.5\n  - x\n" {
		t.Errorf("%v %v", v, err)
	}
	_, err = DecodeYAML([]byte("a: ["), "task.yaml")
	wantErr(t, err, "task.yaml:1:4: not valid YAML")
	if v, err := DecodeYAML(nil, ""); v != nil || err != nil {
		t.Error("empty text", v, err)
	}
}
