package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
)

// python asks the stand-in for a client what it makes of pickles.
func python(t *testing.T, questions ...map[string]string) []map[string]any {
	t.Helper()
	exe, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed, so nobody can read the pickles back")
	}
	var in strings.Builder
	for _, q := range questions {
		b, _ := json.Marshal(q)
		in.Write(append(b, '\n'))
	}
	cmd := exec.Command(exe, "testdata/client.py")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3: %v\n%s", err, err.(*exec.ExitError).Stderr)
	}
	var answers []map[string]any
	d := json.NewDecoder(strings.NewReader(string(out)))
	for range questions {
		var a map[string]any
		if err := d.Decode(&a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	return answers
}

// Every class in the table is built by a client without a TypeError, keeps its
// name and shows the message.
func TestClientsRebuildEveryClass(t *testing.T) {
	names := append(slices.Sorted(maps.Keys(plainClasses())), slices.Sorted(maps.Keys(classes()))...)
	var questions []map[string]string
	for _, n := range names {
		o, err := pickledException(api.ErrorRecord{Type: n, Message: "what happened"})
		if err != nil {
			t.Fatal(n, err)
		}
		questions = append(questions, map[string]string{"exception": o})
	}
	for i, a := range python(t, questions...) {
		c, special := classes()[names[i]]
		if a["class"] != names[i] {
			t.Errorf("%s came back as %v", names[i], a["class"])
		}
		if (!special || c.message) && a["text"] != "what happened" {
			t.Errorf("%s says %q", names[i], a["text"])
		}
		given, _ := a["given"].(map[string]any)
		for _, attr := range c.attributes {
			if _, ok := given[attr.name]; !ok {
				t.Errorf("%s was built without %s", names[i], attr.name)
			}
		}
	}
}

func TestExceptionDetails(t *testing.T) {
	var questions []map[string]string
	add := func(e api.ErrorRecord) {
		o, err := pickledException(e)
		if err != nil {
			t.Fatal(err)
		}
		questions = append(questions, map[string]string{"exception": o})
	}
	add(api.ErrorRecord{Type: api.ErrClusterNotUp, Message: "m", Attributes: map[string]any{"cluster_status": "STOPPED", "handle": "x"}})
	add(api.ErrorRecord{Type: api.ErrCommand, Message: "setup failed", Attributes: map[string]any{"returncode": 7, "command": "make"}})
	add(api.ErrorRecord{Type: "SomethingOfOurs", Message: "m", Hint: "do this"})
	add(api.ErrorRecord{Type: api.ErrValue, Message: "m", Attributes: map[string]any{"surplus": 1}})
	add(api.ErrorRecord{Type: "ServerTemporarilyUnavailableError", Message: "m"})
	a := python(t, questions...)
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"a status is a member of the enumeration", a[0]["given"].(map[string]any)["cluster_status"], "ClusterStatus.STOPPED"},
		{"no handle travels in a failure", a[0]["given"].(map[string]any)["handle"], nil},
		{"attributes are kept", a[1]["given"].(map[string]any)["returncode"], 7.0},
		{"the message stands where a class has its own place for it", a[1]["given"].(map[string]any)["error_msg"], "setup failed"},
		{"an unknown class is a CloudError", a[2]["class"], "CloudError"},
		{"and keeps its name", a[2]["given"].(map[string]any)["error_type"], "SomethingOfOurs"},
		{"the hint is part of the text", a[2]["text"], "m\ndo this"},
		{"what a class does not take is left out", a[3]["text"], "m"},
		{"classes that only clients raise are not sent", a[4]["class"], "CloudError"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestErrorRecord(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		name string
		err  error
		want api.ErrorRecord
	}{
		{"any error", cause, api.ErrorRecord{Type: "RuntimeError", Message: "cause"}},
		{"ours", &api.Error{Type: "ValueError", Message: "m", Hint: "h"}, api.ErrorRecord{Type: "ValueError", Message: "m", Hint: "h"}},
		{"wrapped", fmt.Errorf("x: %w", &api.Error{Type: "ValueError", Message: "m"}), api.ErrorRecord{Type: "ValueError", Message: "m"}},
		{"without a class", &api.Error{Message: "m"}, api.ErrorRecord{Type: "RuntimeError", Message: "m"}},
	} {
		if got := errorRecord(c.err); got.Type != c.want.Type || got.Message != c.want.Message || got.Hint != c.want.Hint {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// The failure of /validate is the dictionary itself, as JSON.
func TestExceptionAsJSON(t *testing.T) {
	got, err := json.Marshal(exceptionJSON(api.ErrorRecord{Type: "ResourcesUnavailableError", Message: "m"}))
	want := `{"args":["m"],"attributes":{"failover_history":[],"no_failover":false},"message":"m","stacktrace":null,"type":"ResourcesUnavailableError"}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
