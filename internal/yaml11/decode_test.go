package yaml11

import (
	"reflect"
	"strings"
	"testing"
)

type host struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

type pool struct {
	User    string         `json:"user"`
	On      *bool          `json:"on"`
	Hosts   []host         `json:"hosts"`
	Extra   map[string]any `json:"extra"`
	Comment any            `json:"comment"`
}

func TestDecode(t *testing.T) {
	var got map[string]pool
	text := "lab:\n  user: 007\n  on: yes\n  hosts: [{name: a, port: 0x10}, {name: 1.50}]\n  extra: {a: [1, x]}\n  comment:\n  unknown: 1\nnone:\n"
	if err := (&Source{Text: text}).Unmarshal(&got); err != nil {
		t.Fatal(err)
	}
	on := true
	want := map[string]pool{
		"lab": {User: "007", On: &on, Hosts: []host{{"a", 16}, {"1.50", 0}}, Extra: map[string]any{"a": []any{1, "x"}}}, "none": {},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if err := (&Source{Text: "# nothing\n"}).Unmarshal(&got); err != nil || len(got) != 2 {
		t.Error("an empty text:", got, err)
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"lab: {user: [a]}":            "f:1:13: lab.user should be a text, not a list",
		"lab: {on: 1}":                "f:1:11: lab.on should be true or false, not the number 1",
		"lab:\n  hosts: [{port: x}]":  `f:2:18: lab.hosts[0].port should be a whole number, not the text "x"`,
		"lab: {hosts: [{port: 1.5}]}": "f:1:22: lab.hosts[0].port should be a whole number, not the number 1.5",
		"lab: 1":                      "f:1:6: lab should be a map, not the number 1",
		"lab: {hosts: a}":             `f:1:14: lab.hosts should be a list, not the text "a"`,
		"lab: {extra: a}":             `f:1:14: lab.extra should be a map, not the text "a"`,
		"lab: {usr: a}":               `f:1:7: unknown key "usr"; did you mean user?`,
		"lab: {zzzzzz: a}":            `f:1:7: unknown key "zzzzzz"; known here: user, on, hosts, extra, comment`,
	} {
		n, err := (&Source{Name: "f", Text: text}).ReadOne()
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]pool
		if err := n.DecodeStrictly(&got); err == nil || err.Error() != want {
			t.Errorf("%q: got %v\nwant %s", text, err, want)
		}
	}
}

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
