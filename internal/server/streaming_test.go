package server

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
)

func (env *testEnv) file(path, content string) string {
	env.t.Helper()
	full := filepath.Join(env.home, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		env.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		env.t.Fatal(err)
	}
	return full
}

func TestLogFiles(t *testing.T) {
	env := newTestEnv(t)
	env.file("sky_logs/run/log.txt", "one\ntwo\nthree\n")
	env.file(".sky/api_server/server.log", "started\n")
	env.file(".sky/config.yaml", "secret\n")
	env.file("outside.txt", "secret\n")
	if err := os.Symlink(filepath.Join(env.home, "outside.txt"), filepath.Join(env.home, "sky_logs", "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want int
		body string
	}{
		{"~/sky_logs/run/log.txt", 200, "one\ntwo\nthree\n"},
		{env.home + "/sky_logs/run/log.txt", 200, "one\ntwo\nthree\n"},
		{"~/sky_logs/run/log.txt&tail=2", 200, "two\nthree\n"},
		{"~/.sky/api_server/server.log", 200, "started\n"},
		{"~/sky_logs/none", 404, ""},
		{"~/sky_logs", 400, ""},
		{"~/sky_logs/run", 400, ""},
		{"~/.sky/config.yaml", 400, ""},
		{"~/sky_logs/../outside.txt", 400, ""},
		{"~/sky_logs/../../etc/passwd", 400, ""},
		{"~/sky_logs/link", 400, ""},
		{"/etc/passwd", 400, ""},
		{"sky_logs/run/log.txt", 400, ""},
		{"~/sky_logs/a%00b", 400, ""},
	} {
		r := env.call(get, "/api/stream?follow=False&log_path="+c.path, "")
		if r.status != c.want || c.want == 200 && r.body != c.body || strings.Contains(r.body, "secret") {
			t.Errorf("%s: %d %q, want %d %q", c.path, r.status, r.body, c.want, c.body)
		}
	}
}

func TestFollowedLogFileGrows(t *testing.T) {
	env := newTestEnv(t)
	path := env.file("sky_logs/log", "one\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := env.send(ctx, get, "/api/stream?log_path=~/sky_logs/log&format=console", "")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i, want := range []string{"one", "two", "again"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("line %d is %q, want %q", i, lines.Text(), want)
		}
		switch want {
		case "one":
			f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			fmt.Fprintln(f, "two, and more than what comes later"[:3])
			f.Close()
		case "two": // rotated in place
			if err := os.WriteFile(path, []byte("again\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestTailOffset(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.StringMatching(`[a-z]{0,40}`)).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		if rapid.Bool().Draw(t, "ended") && text != "" {
			text += "\n"
		}
		if rapid.Bool().Draw(t, "long") {
			text = strings.Repeat("x\n", 40<<10) + text
		}
		n := rapid.IntRange(1, 60).Draw(t, "n")
		if err := errors.Join(f.Truncate(0), func() error { _, err := f.WriteAt([]byte(text), 0); return err }()); err != nil {
			t.Fatal(err)
		}
		at, err := tailOffset(f, n)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.SplitAfter(text, "\n")
		if all[len(all)-1] == "" {
			all = all[:len(all)-1]
		}
		want := strings.Join(all[max(0, len(all)-n):], "")
		if got := text[at:]; got != want {
			t.Fatalf("last %d lines: %q, want %q", n, got, want)
		}
	})
}

func TestCompressedLog(t *testing.T) {
	env := newTestEnv(t)
	id := env.ask("/status", `{"cluster_names":["nosuch"]}`)
	r := env.call(get, "/api/stream?compress=gz&format=plain&request_id="+id, "", "Accept-Encoding", "identity")
	if r.header.Get("Content-Type") != "application/gzip" {
		t.Errorf("Content-Type %q", r.header.Get("Content-Type"))
	}
	z, err := gzip.NewReader(strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(z); err != nil || string(b) != "Cluster(s) not found: nosuch.\n" {
		t.Errorf("%q %v", b, err)
	}
	empty := env.ask("/status", `{}`)
	if r := env.call(get, "/api/stream?compress=gz&format=plain&request_id="+empty, ""); r.body != "" {
		t.Errorf("an empty log is %q", r.body)
	}
}

func TestStreamTail(t *testing.T) {
	env := newTestEnv(t)
	id := env.ask("/status", `{"cluster_names":["nosuch","nosuch","nosuch"]}`)
	env.payload(id)
	for tail, want := range map[string]int{"": 3, "&tail=2": 2, "&tail=0": 3, "&tail=9": 3} {
		if r := env.call(get, "/api/stream?format=console&request_id="+id+tail, ""); strings.Count(r.body, "\n") != want {
			t.Errorf("tail %q: %q", tail, r.body)
		}
	}
}

func TestProvisionLogs(t *testing.T) {
	var asked ProvisionLogs
	env := newTestEnv(t, func(d *Deps) {
		d.ProvisionLogs = func(_ context.Context, q ProvisionLogs, out io.Writer) error {
			asked = q
			out.(interface{ Flush() }).Flush() // of nothing, as the engine may
			switch q.Cluster {
			case "nosuch":
				return &api.Error{Type: api.ErrClusterDoesNotExist, Message: "no such cluster"}
			case "bad":
				return &api.Error{Type: api.ErrValue, Message: "no such worker"}
			case "silent":
				return nil
			}
			fmt.Fprintln(out, "starting")
			if q.Cluster == "broken" {
				return errors.New("the log went away")
			}
			return nil
		}
	})
	for _, c := range []struct {
		cluster, body string
		status        int
	}{
		{"c", "starting\n", 200}, {"silent", "", 200}, {"broken", "starting\n", 200},
		{"nosuch", `{"detail":"no such cluster"}`, 404}, {"bad", `{"detail":"no such worker"}`, 400},
	} {
		r := env.call(post, "/provision_logs?follow=False&tail=5", `{"cluster_name":"`+c.cluster+`","worker":2}`)
		if r.status != c.status || r.body != c.body {
			t.Errorf("%s: %d %q", c.cluster, r.status, r.body)
		}
	}
	if asked.Tail != 5 || asked.Follow || *asked.Worker != 2 {
		t.Errorf("asked for %+v", asked)
	}
}
