package config

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/yaml11"
)

var endpoint = []string{"api_server", "endpoint"}

func TestSetInText(t *testing.T) {
	for _, test := range []struct {
		name, before string
		keys         []string
		value        any
		after        string
	}{
		{"empty file", "", endpoint, "http://x", "api_server:\n  endpoint: http://x\n"},
		{"only a comment", "# mine\n", endpoint, "http://x", "# mine\napi_server:\n  endpoint: http://x\n"},
		{"no newline at the end", "aws:\n  use_ssm: true", endpoint, "http://x", "aws:\n  use_ssm: true\napi_server:\n  endpoint: http://x\n"},
		{"replace", "api_server:\n  endpoint: http://old\n", endpoint, "http://x", "api_server:\n  endpoint: http://x\n"},
		{"the same again", "api_server:\n  endpoint:   http://x # note\n", endpoint, "http://x", "api_server:\n  endpoint:   http://x # note\n"},
		{"keep comments", "# a\napi_server: # b\n  # c\n  endpoint: http://old  # d\n  # e\n# f\n", endpoint, "http://x",
			"# a\napi_server: # b\n  # c\n  endpoint: http://x  # d\n  # e\n# f\n"},
		{"quoted", "api_server:\n  endpoint: 'http://o''ld' # d\n", endpoint, "http://x", "api_server:\n  endpoint: http://x # d\n"},
		{"double quoted", "api_server:\n  endpoint: \"http://o\\\"#ld\" # d\n", endpoint, "http://x", "api_server:\n  endpoint: http://x # d\n"},
		{"several lines", "api_server:\n  endpoint: |\n    http://old\n\n  requests_retention_hours: 1\n", endpoint, "http://x", "api_server:\n  endpoint: http://x\n\n  requests_retention_hours: 1\n"},
		{"another key in the section", "api_server:\n    # why\n    requests_retention_hours: 1\naws: {}\n", endpoint, "http://x",
			"api_server:\n    endpoint: http://x\n    # why\n    requests_retention_hours: 1\naws: {}\n"},
		{"an empty section", "api_server:\naws: {}\n", endpoint, "http://x", "api_server:\n  endpoint: http://x\naws: {}\n"},
		{"a section of null", "api_server: ~ # x\naws: {}\n", endpoint, "http://x", "api_server: # x\n  endpoint: http://x\naws: {}\n"},
		{"flow style", "api_server: {requests_retention_hours: 1} # x\n", endpoint, "http://x", "api_server: {requests_retention_hours: 1, endpoint: http://x} # x\n"},
		{"windows lines", "aws: {}\r\napi_server:\r\n  endpoint: a\r\n", endpoint, "http://x", "aws: {}\r\napi_server:\r\n  endpoint: http://x\r\n"},
		{"byte order mark", "\ufeffaws: {}\n", endpoint, "http://x", "\ufeffaws: {}\napi_server:\n  endpoint: http://x\n"},
		{"a number", "provision:\n  ssh_timeout: 10 # s\n", []string{"provision", "ssh_timeout"}, 20, "provision:\n  ssh_timeout: 20 # s\n"},
		{"a list", "allowed_clouds:\n- aws\n- gcp\n# end\n", []string{"allowed_clouds"}, []string{"azure"}, "allowed_clouds: [azure]\n# end\n"},
		{"a whole section", "workspaces:\n  a: {}\n  b:\n    private: true # x\n", []string{"workspaces", "b"}, map[string]any{"private": false, "allowed_users": []string{"u"}},
			"workspaces:\n  a: {}\n  b:\n    allowed_users:\n      - u\n    private: false\n"},
		{"a new section below", "workspaces:\n  a: {}\n", []string{"workspaces", "b"}, map[string]any{"private": true}, "workspaces:\n  b:\n    private: true\n  a: {}\n"},
		{"top level", "# c\nactive_workspace: a # d\n", []string{"active_workspace"}, "b", "# c\nactive_workspace: b # d\n"},
		{"quoted keys", "'api_server':\n  \"endpoint\": a\n", endpoint, "http://x", "'api_server':\n  \"endpoint\": http://x\n"},
		{"other text is not ours", "aws:   {labels: {a:    b}}   # odd\n\n\n", endpoint, "http://x", "aws:   {labels: {a:    b}}   # odd\n\n\napi_server:\n  endpoint: http://x\n"},
	} {
		got, err := yaml11.Set([]byte(test.before), test.keys, fromPlain(test.value, yaml11.Place{}))
		if err != nil || string(got) != test.after {
			t.Errorf("%s: %v\n%q, want\n%q", test.name, err, got, test.after)
		}
	}
}

func TestUnsetInText(t *testing.T) {
	for _, test := range []struct {
		name, before string
		keys         []string
		after        string
	}{
		{"absent", "# a\naws: {}\n", endpoint, "# a\naws: {}\n"},
		{"empty", "", endpoint, ""},
		{"one of two", "api_server:\n  endpoint: a # b\n  requests_retention_hours: 1\n", endpoint, "api_server:\n  requests_retention_hours: 1\n"},
		{"the last of a section", "aws: {}\n# s\napi_server:\n  # e\n  endpoint: a\n# f\ngcp: {}\n", endpoint, "aws: {}\n# s\n# f\ngcp: {}\n"},
		{"the last of all", "# only\napi_server:\n  endpoint: a\n", endpoint, "# only\n"},
		{"flow style", "api_server: {endpoint: a, requests_retention_hours: 1} # c\n", endpoint, "api_server: {requests_retention_hours: 1} # c\n"},
		{"the last in flow style", "api_server: {endpoint: a} # c\naws: {}\n", endpoint, "aws: {}\n"},
		{"several lines", "api_server:\n  endpoint: |\n    a\n    # b\n  requests_retention_hours: 1\n", endpoint, "api_server:\n  requests_retention_hours: 1\n"},
		{"a section", "a:\n- x\nworkspaces:\n  b:\n    private: true\n  c: {}\n", []string{"workspaces", "b"}, "a:\n- x\nworkspaces:\n  c: {}\n"},
		{"a list level with its key", "allowed_clouds:\n- aws\n- gcp\naws: {}\n", []string{"allowed_clouds"}, "aws: {}\n"},
	} {
		got, err := yaml11.Unset([]byte(test.before), test.keys)
		if err != nil || string(got) != test.after {
			t.Errorf("%s: %v\n%q, want\n%q", test.name, err, got, test.after)
		}
	}
}

// They may be refused, but never damaged.
func TestEditsOfOddTexts(t *testing.T) {
	for name, text := range map[string]string{
		"broken":            "api_server: [",
		"a list":            "- a\n",
		"flow at the top":   "{api_server: {endpoint: a}}",
		"an alias":          "x: &x {endpoint: a}\napi_server: *x\n",
		"a merged section":  "plugins: &x {endpoint: a}\napi_server:\n  <<: *x\n",
		"a tag":             "api_server:\n  endpoint: !!str a\n",
		"an anchor in use":  "api_server:\n  endpoint: &e a\nplugins: *e\n",
		"an explicit key":   "? api_server\n: {endpoint: a}\n",
		"a second document": "a: 1\n---\nb: 1\n",
	} {
		if out, err := yaml11.Unset([]byte(text), endpoint); err == nil {
			if n, err := parse(out, newSource("", "")); err != nil || n.Find(endpoint...) != nil {
				t.Errorf("%s: unset gives %q", name, out)
			}
		}
		if out, err := yaml11.Set([]byte(text), endpoint, fromPlain("http://x", yaml11.Place{})); err == nil {
			if n, err := parse(out, newSource("", "")); err != nil || asText(n.Find(endpoint...)) != "http://x" {
				t.Errorf("%s: set gives %q", name, out)
			}
		}
	}
}

func TestEditFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ".sky", "config.yaml")
	if err := Unset(file, endpoint); err != nil {
		t.Fatal("nothing to remove:", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error("Unset made a file")
	}
	if err := Set(file, endpoint, "http://x"); err != nil {
		t.Fatal(err)
	}
	if err := Set(file, []string{"api_server", "service_account_token"}, "sky_t"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error("a file with a token is for its owner:", info.Mode())
	}
	wantErr(t, Set(file, endpoint, "ftp://x"), "should be a URL that begins with http://")
	wantErr(t, Set(file, []string{"api_server", "endpiont"}, "http://x"), "did you mean \"endpoint\"?")
	text, _ := os.ReadFile(file)
	if want := "api_server:\n  service_account_token: sky_t\n  endpoint: http://x\n"; string(text) != want {
		t.Errorf("%q", text)
	}
	if err := Unset(file, endpoint); err != nil {
		t.Fatal(err)
	}
	if err := Unset(file, []string{"api_server"}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(file); len(text) != 0 {
		t.Errorf("left over: %q", text)
	}
	if err := Write(file, map[string]any{"b": 1, "a": "yes"}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(file); string(text) != "a: 'yes'\nb: 1\n" {
		t.Errorf("%q", text)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Error("temporary files are left:", left)
	}
}

func TestEditThroughALink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	dir := t.TempDir()
	target, link := filepath.Join(dir, "dotfiles.yaml"), filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(target, []byte("# mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := Set(link, endpoint, "http://x"); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced by a file")
	}
	text, _ := os.ReadFile(target)
	if info, _ := os.Stat(target); !strings.HasPrefix(string(text), "# mine\napi_server:") || info.Mode().Perm() != 0o644 {
		t.Errorf("%v %q", info.Mode(), text)
	}
}

func TestEditBeginsAgainWhenTheFileChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	runs := 0
	err := editFile(file, func(text []byte) ([]byte, error) {
		if runs++; runs == 1 {
			if err := os.WriteFile(file, []byte("theirs\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return append(text, "ours\n"...), nil
	})
	if text, _ := os.ReadFile(file); err != nil || runs != 2 || string(text) != "theirs\nours\n" {
		t.Errorf("%v, %d runs: %q", err, runs, text)
	}
	err = editFile(file, func(text []byte) ([]byte, error) {
		os.WriteFile(file, append(text, "x"...), 0o600)
		return append(text, "y"...), nil
	})
	wantErr(t, err, "keeps changing")
}

// Whatever the text, an edit that succeeds does exactly what it should.
func TestEditsOfAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := yaml11.NewMap()
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d e"}), 0, 4, rapid.ID).Draw(t, "keys") {
			n.Entries = append(n.Entries, yaml11.Entry{Key: yaml11.KeyNode(key, yaml11.Place{}), Value: drawNode(t, 3)})
		}
		text := emit(n)
		if len(n.Entries) == 0 {
			text = nil
		}
		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d e", "name", "env"}), 1, 3).Draw(t, "path")
		v := drawNode(t, 2)
		tree, err := parse(text, newSource("", ""))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := yaml11.Set(text, keys, v); err == nil {
			got, err := parse(out, newSource("", ""))
			if err != nil || !yaml11.Equal(got.Find(keys...), v) {
				t.Fatalf("%q\nset %q gives\n%q", text, keys, out)
			}
		}
		if out, err := yaml11.Unset(text, keys); err == nil {
			got, err := parse(out, newSource("", ""))
			if err != nil || tree.Find(keys...) != nil && !yaml11.Equal(got, tree.Without(keys...)) {
				t.Fatalf("%q\nunset %q gives\n%q", text, keys, out)
			}
		}
	})
}

// A value with which nothing can be launched is refused where it is set, not only where
// the file is checked.
func TestSetRefusesWhatCheckRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for _, c := range []struct {
		keys  []string
		value any
		want  string
	}{
		{[]string{"jobs", "controller", "resources", "cpus"}, "x", "jobs.controller.resources.cpus: should be a number of vCPUs"},
		{[]string{"allowed_clouds"}, []any{}, "allowed_clouds: is empty"},
		{[]string{"active_workspace"}, "Bad Name", "cannot name a workspace"},
		{[]string{"serve", "controller", "resources", "memory"}, "8+", ""},
	} {
		err := Set(file, c.keys, c.value)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.keys, err, c.want)
		}
	}
}
