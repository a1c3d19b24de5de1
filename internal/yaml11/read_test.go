package yaml11

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestHostileTexts(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), c-1)
	}
	blocks := ""
	for i := range 1000 {
		blocks += strings.Repeat(" ", i) + "a:\n"
	}
	for name, text := range map[string]string{
		"aliases of aliases":   bomb,
		"deep flow":            strings.Repeat("[", 100_000),
		"deep and closed flow": strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		"deep maps":            strings.Repeat("{a: ", 100_000),
		"deep sequences":       strings.Repeat("- ", 100_000),
		"deep keys":            strings.Repeat("? ", 100_000),
		"deep blocks":          blocks,
		"itself":               "a: &a [*a]",
		"too large":            strings.Repeat("#", MaxBytes+1),
		"not text":             "\xfe\xff\x00a",
		"an unknown tag":       "a: !thing {b: 1}",
	} {
		_, err := (&Source{Name: "f", Text: text}).Read()
		var all Errors
		if !errors.As(err, &all) || len(all) == 0 || all[0].Source == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPlacesOfErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: 2\na: 3":         "f:3:1: \"a\" appears twice here, first on line 1; remove one of them",
		"é: [1":                    "f:1:4: the list that begins with [ on line 1 is not closed, or lacks a comma",
		"a:\n\tb: 1":               "f:2:1: a tab stands where only spaces may. Indent with spaces",
		"a: *x":                    "f:1:4: * refers to an anchor that this file does not have",
		"x: {<<: 1}":               "f:1:9: << merges maps; this is the number 1",
		"a: 1\n---\nb: 2\n":        "f:3:1: a second document begins here; there must be one",
		strings.Repeat("[", 1<<20): "f:1:10001: ",
	} {
		_, err := (&Source{Name: "f", Text: text}).ReadOne()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20s: got %.200v, want %s", text, err, want)
		}
	}
}

func TestSimpleSourcesHoldWhatJSONHas(t *testing.T) {
	n, err := (&Source{Text: "d: 2024-01-31\nb: 123456789012345678901234567890\n# c\nn:\n", Simple: true}).ReadOne()
	if err != nil {
		t.Fatal(err)
	}
	if d := n.Get("d"); d.Value != "2024-01-31" || d.Kind != Text {
		t.Error("a date:", d.Value)
	}
	if b := n.Get("b"); b.Value != 123456789012345678901234567890.0 || b.Kind != Float {
		t.Error("a large number:", b.Value)
	}
	if v := n.Lookup("n"); v.Line != 4 || v.Column != 1 || v.Comments != (Comments{}) {
		t.Error("an absent value:", v.Place, v.Comments)
	}
	if n, err := (&Source{Text: "# nothing\n---\n"}).ReadOne(); n != nil || err != nil {
		t.Error("a text without content:", n, err)
	}
}
