package requests

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/state"

	"github.com/skypilot-go/sky/internal/logstore"
)

// fullShelf has no room while full.
type fullShelf struct {
	logstore.Logs
	full bool
}

func (s *fullShelf) Append(name string) (logstore.Appender, error) {
	a, err := s.Logs.Append(name)
	return &fullAppender{a, s}, err
}

type fullAppender struct {
	logstore.Appender
	s *fullShelf
}

func (a *fullAppender) Write(p []byte) (int, error) {
	if a.s.full {
		return 0, &errPath{syscall.ENOSPC}
	}
	return a.Appender.Write(p)
}

type errPath struct{ err error }

func (e *errPath) Error() string { return "write x: " + e.err.Error() }
func (e *errPath) Unwrap() error { return e.err }

func TestALogThatFindsTheDiskFullDoesNotFailItsRequest(t *testing.T) {
	s := &fullShelf{Logs: logstore.Folder(t.TempDir())}
	l := keptLog(s, "a.log", nil, nil)
	for _, line := range []string{"one\n", "two\n", "three\n", "four\n"} {
		s.full = line == "two\n" || line == "three\n"
		if _, err := l.Write([]byte(line)); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	l.close()
	r, err := s.Open("a.log")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, 1000)
	n, _ := r.ReadAt(b, 0)
	if got := string(b[:n]); got != "one\n(the disk was full: 2 lines of this log are missing)\nfour\n" {
		t.Errorf("%q", got)
	}
}

// A log takes what its request's user may have, and says what it lacks. Others write on.
func TestLogsOfRequestsAreBounded(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("a", func(o *Options) {
		o.LogLimits = diskspace.Limits{User: 2000, All: 3500, KeepFree: 1}
		o.Retention = -1
	})
	e.Handle("print", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
		for i := range 100 {
			c.Log.Printf("%08d", i)
		}
		return nil, nil
	})
	env.start(e)
	printed := func(user string) string {
		t.Helper()
		row, err := e.Submit(t.Context(), Submission{Name: "print", User: state.User{ID: user}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := e.Wait(ctx, row.ID); err != nil || got.Status != api.RequestSucceeded {
			t.Fatal(got, err)
		}
		return readLog(t, e.logPath(row.ID))
	}
	whole := func(log string) bool { return strings.Count(log, "\n") == 100 }
	for i, c := range []struct {
		user string
		want int    // lines; the rest is missing
		why  string // is said
	}{
		{"ann", 100, ""}, {"ann", 100, ""},
		{"ann", 22, "(logs of one user's requests have at most 1 KB: 78 lines of this log are missing)\n"}, // 2000 - 2*900
		{"bob", 100, ""},
		{"cyn", 66, "(logs of requests have at most 3 KB: 34 lines of this log are missing)\n"}, // 3500 - 2900
	} {
		log := printed(c.user)
		if c.why == "" && !whole(log) || strings.Count(log, "\n0") != c.want-1 || !strings.HasSuffix(log, c.why) {
			t.Errorf("%d, %s: %d lines, and it ends %q", i, c.user, strings.Count(log, "\n"), log[max(0, len(log)-100):])
		}
	}
	var all int64
	for _, n := range e.countLogs() {
		all += n
	}
	if by := e.countLogs(); by["bob"] != 900 || by["ann"] < 1900 || all < 3400 {
		t.Errorf("counted %v", by)
	}
}

func TestALogHasAGreatestLength(t *testing.T) {
	logs := logstore.Folder(t.TempDir())
	l := keptLog(logs, "a.log", nil, nil)
	l.Printf("one")
	l.size = MaxLog - 4
	for _, line := range []string{"two", "three", "four"} {
		l.Printf("%s", line)
	}
	l.close()
	r, err := logs.Open("a.log")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, 1000)
	n, _ := r.ReadAt(b, 0)
	if got := string(b[:n]); got != fmt.Sprintf("one\ntwo\n(a log has at most %s: 2 lines of this log are missing)\n", diskspace.Bytes(MaxLog)) {
		t.Errorf("%q", got)
	}
}
