package yaml11

import (
	"strings"
	"testing"
)

func TestFromJSON(t *testing.T) {
	n, err := FromJSON([]byte(`{"b": 1, "a": [true, null, 1.5, "yes", {"c": {}}], "d": [], "big": 123456789012345678901234567890}`))
	if err != nil {
		t.Fatal(err)
	}
	var w Writer
	w.Block(n)
	want := "b: 1\na:\n  - true\n  - null\n  - 1.5\n  - 'yes'\n  - c: {}\nd: []\nbig: 123456789012345678901234567890\n"
	if w.String() != want {
		t.Errorf("got\n%swant\n%s", w.String(), want)
	}
	for _, text := range []string{"", "{", `{"a"`, "[1", "]", `{1: 2}`} {
		if _, err := FromJSON([]byte(text)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	deep := strings.Repeat("[", 20_000)
	if _, err := FromJSON([]byte(deep)); err == nil {
		t.Error("deep text is accepted")
	}
}
