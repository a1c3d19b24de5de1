package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
)

// The files in testdata/wire are conversations: what a client sends and what it
// gets back, byte for byte as far as clients look. After a line "# ..." that says
// what it is about,
//
//	> POST /launch          the request; headers and a body may follow
//	> Header: value
//	> {"cluster_name":"c"}
//	< 200                   the status; headers (a prefix of "*" is "not there")
//	< Header: value
//	< null                  the body
//
// $ID is the request id of the answer before. In JSON answers "*" stands for
// any value and a key "..." for any further keys. Any other answer is
// compared as text.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no conversations", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			env := newTestEnv(t)
			id := ""
			for _, e := range parseWire(string(text)) {
				id = e.play(t, env, id)
			}
		})
	}
}

type exchange struct {
	title    string
	request  []string
	answer   []string
	answered bool
}

func parseWire(text string) (list []exchange) {
	var e exchange
	flush := func() {
		if e.answered {
			list = append(list, e)
			e = exchange{title: e.title}
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "# "):
			flush()
			e.title = line[2:]
		case strings.HasPrefix(line, ">"):
			flush()
			e.request = append(e.request, strings.TrimPrefix(line[1:], " "))
		case strings.HasPrefix(line, "<"):
			e.answered = true
			e.answer = append(e.answer, strings.TrimPrefix(line[1:], " "))
		}
	}
	flush()
	return list
}

// isHeader tells "Name: value" from a body.
func isHeader(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ": ")
	return name, value, ok && !strings.ContainsAny(name, " {\"<")
}

func (e exchange) play(t *testing.T, env *testEnv, id string) string {
	t.Helper()
	fill := strings.NewReplacer("$ID", id, "$SHORT", id[:min(len(id), 12)])
	method, path, _ := strings.Cut(fill.Replace(e.request[0]), " ")
	var headers, body []string
	for _, l := range e.request[1:] {
		if name, value, ok := isHeader(l); ok && len(body) == 0 {
			headers = append(headers, name, value)
		} else {
			body = append(body, fill.Replace(l))
		}
	}
	r := env.call(method, path, strings.Join(body, "\n"), headers...)
	var want []string
	if got := fmt.Sprint(r.status); got != e.answer[0] {
		t.Errorf("%s: %s %s: status %s, want %s\n%s", e.title, method, path, got, e.answer[0], r.body)
	}
	for _, l := range e.answer[1:] {
		name, value, ok := isHeader(l)
		switch {
		case !ok || len(want) > 0:
			want = append(want, fill.Replace(l))
		case strings.HasPrefix(name, "*"):
			if got := r.header.Get(name[1:]); got != "" {
				t.Errorf("%s: header %s is %q, want none", e.title, name[1:], got)
			}
		default:
			if got := r.header.Get(name); got != fill.Replace(value) && value != "*" || got == "" {
				t.Errorf("%s: header %s is %q, want %q", e.title, name, got, value)
			}
		}
	}
	wanted := strings.Join(want, "\n")
	if !json.Valid([]byte(wanted)) {
		if got := strings.TrimSuffix(r.body, "\n"); wanted != "*" && got != wanted {
			t.Errorf("%s: %s %s answered\n%q\nwant\n%q", e.title, method, path, got, wanted)
		}
		return r.header.Get(api.HeaderRequestID)
	}
	var got, expected any
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		t.Errorf("%s: not JSON: %s", e.title, r.body)
	} else {
		_ = json.Unmarshal([]byte(wanted), &expected)
		if at := differ("", got, expected); at != "" {
			t.Errorf("%s: %s %s: %s\n got %s\nwant %s", e.title, method, path, at, r.body, wanted)
		}
	}
	return r.header.Get(api.HeaderRequestID)
}

// differ names the first place where got is not what is wanted, "" if none.
func differ(at string, got, want any) string {
	switch want := want.(type) {
	case string:
		if want == "*" {
			return ""
		}
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return at + " is no object"
		}
		_, open := want["..."]
		for k, v := range want {
			if k == "..." {
				continue
			}
			if _, ok := g[k]; !ok {
				return at + "." + k + " is missing"
			}
			if d := differ(at+"."+k, g[k], v); d != "" {
				return d
			}
		}
		for k := range g {
			if _, ok := want[k]; !ok && !open {
				return at + "." + k + " is too much"
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return at + " has another length"
		}
		for i := range want {
			if d := differ(fmt.Sprintf("%s[%d]", at, i), g[i], want[i]); d != "" {
				return d
			}
		}
		return ""
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		return fmt.Sprintf("%s is %s, want %s", at, a, b)
	}
	return ""
}
