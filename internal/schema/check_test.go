package schema

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// A description of everything that Spec can say.
func everything() *Spec {
	s := Section("",
		New("text", Text("").Matching(Regexp(`^[a-z]+$`, "small letters"))),
		New("short", &Spec{Kinds: TextKind, MaxLen: 3}),
		New("word", Choice("", "red", "green")),
		New("one", Choice("", "all")),
		New("caseless", Choice("", "low", "high").Caseless()),
		New("size", &Spec{Kinds: TextKind | IntKind, Grammar: func(s string) error {
			if strings.HasSuffix(s, "7") {
				return fmt.Errorf("should not end with 7, as %s does", s)
			}
			return nil
		}}),
		New("few", Whole("").AtLeast(1).AtMost(3)),
		New("many", Whole("").AtLeast(1)),
		New("below", Number("").AtMost(1)),
		New("big", Whole("")),
		New("set", &Spec{Kinds: ListKind, Items: Text(""), MinItems: 1, MaxItems: 2, Unique: true}),
		New("flag", YesNo("", false)),
		New("token", Text("").Hidden().Matching(Regexp("^t", "a token"))),
		New("either", Text("").With(Section("", New("x", Whole(""))).Needs("x"))),
		New("map", &Spec{Kinds: MapKind, Others: Text(""), OthersNamed: Regexp("^[a-z]+$", "small letters"), MinKeys: 1, MaxKeys: 1}),
		New("free", Anything("")),
		New("old", Text("").Instead("write text")),
		New("idle", Text("").NoEffect("nobody reads it")),
		New("newer", Section("", New("known", Text(""))).ForNewer()),
		New("_own", &Spec{Kinds: AnyKind, Items: Free, Others: Free, Internal: true}),
	).Without(`write "text"`, "txt")
	s.Title = "a thing"
	return s
}

func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"text: abc":                 "",
		"text: ABC":                 `1:7 text should be small letters, not "ABC"`,
		"text:":                     "1:6 text should be text, not empty (Give it a value or remove the key.)",
		"text: [a]":                 "1:7 text should be text, not a list",
		"short: abcd":               "1:8 short should have 1 to 3 characters, not 4",
		"short: ''":                 "1:8 short should have 1 to 3 characters, not 0",
		"short: 12":                 `1:8 short should be text, not the number 12 (Quote it to make it text: "12".)`,
		"word: rde":                 `1:7 word should be red or green, not "rde"; did you mean "red"?`,
		"word: 5":                   "1:7 word should be red or green, not the number 5",
		"one: al":                   `1:6 one should be all, not "al"`,
		"caseless: HIGH":            "",
		"size: 17":                  "1:7 size should not end with 7, as 17 does",
		"size: x7":                  "1:7 size should not end with 7, as x7 does",
		"few: 4":                    "1:6 few should be from 1 to 3, not 4",
		"many: 0":                   "1:7 many should be at least 1, not 0",
		"below: .nan":               "1:8 below should be at most 1, not .nan",
		"few: '2'":                  `1:6 few should be a whole number, not the text "2" (Write it without quotes.)`,
		"big: 99999999999999999999": `1:6 big is too large a number: "99999999999999999999"`,
		"set: []":                   "1:6 set should have at least 1 item",
		"set: [a, a, b]":            `1:6 set has 3 items; at most 2 are allowed; 1:10 set lists "a" twice`,
		"set: [a, 1]":               `1:10 set[1] should be text, not the number 1 (Quote it to make it text: "1".)`,
		"flag: y":                   `1:7 flag should be true or false, not the text "y" (Only whole words are booleans: write true or false.)`,
		"token: secret":             "1:8 token should be a token, not what was given",
		"token: 12345":              "1:8 token should be text, not what was given",
		"either: {}":                `1:9 either needs "x"`,
		"either: word":              "",
		"map: {A: b}":               `1:7 "A" is not a valid key in map: it should be small letters`,
		"map: {a: b, c: d}":         "1:6 map should have exactly 1 entry, not 2",
		"map: {a: 1}":               `1:10 map.a should be text, not the number 1 (Quote it to make it text: "1".)`,
		"free: {a: [{b: 1}]}":       "",
		"_own: {a: 1}":              "",
		"txt: a":                    `1:1 "txt" is not a field of a thing: write "text"`,
		"txet: a":                   `1:1 unknown field "txet" in a thing; did you mean "text"?`,
		"either: {zz: 1, x: 1}":     `1:10 unknown field "zz" in either (Fields of either: x.)`,
		"old: a":                    "WARN 1:6 old is deprecated: write text",
		"idle: a":                   "INFO 1:7 idle changes nothing: nobody reads it",
		"newer: {b: 1}":             `1:9 unknown field "b" in newer (Fields of newer: known.)`,
		"[a]":                       "1:1 a thing should be a map, not a list",
	} {
		if got := problems(t, text, Options{}); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	if got, want := problems(t, "newer: {knwon: 1}", Options{Newer: true}), `WARN 1:9 unknown field "knwon" in newer; did you mean "known"?; the server decides whether it means anything`; got != want {
		t.Errorf("for a newer server: %s", got)
	}
	more := Options{Suggest: func(path []string) string { return "; look under " + Dotted(path) }}
	if got, want := problems(t, "map: {a: b}\nzz: 1", more), `2:1 unknown field "zz" in a thing; look under zz`; got != want {
		t.Errorf("with a suggestion: %s", got)
	}
}

func TestValidate(t *testing.T) {
	s := Section("", New("name", Written("")), New("old", Text("").Instead("write name")), New("key", Written("").Hidden())).Opened()
	for text, want := range map[string]string{
		"name: 007\nkey:\nother: [1]\nold: a": "",
		"name: [a]\nkey: {a: 1}":              "f:1:7: name should be text, not a list\nf:2:6: key should be text, not a map",
	} {
		n, err := (&yaml11.Source{Name: "f", Text: text}).ReadOne()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := s.Validate(n); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
		if name := n.TextAt("name"); want == "" && name != "007" {
			t.Errorf("the name is %q", name)
		}
	}
	n, _ := (&yaml11.Source{Text: "a: {b: 1}"}).ReadOne()
	if err := Section("").Validate(n); err == nil || err.Error() != `1:1: unknown field "a" in the document` {
		t.Error(err)
	}
	if err := everything().Validate(n); err == nil || !strings.HasPrefix(err.Error(), `1:1: unknown field "a" in a thing. Fields of a thing: below, `) {
		t.Error(err)
	}
}

func problems(t *testing.T, text string, o Options) string {
	t.Helper()
	docs, err := (&yaml11.Source{Text: text}).Read()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range everything().Problems(docs[0], o) {
		line := fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Text)
		if p.Level != slog.LevelError {
			line = p.Level.String() + " " + line
		}
		if p.Hint != "" {
			line += " (" + p.Hint + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}
