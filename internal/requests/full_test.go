package requests

import (
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/internal/shelf"
)

// fullShelf has no room while full.
type fullShelf struct {
	shelf.Logs
	full bool
}

func (s *fullShelf) Append(name string) (shelf.Appender, error) {
	a, err := s.Logs.Append(name)
	return &fullAppender{a, s}, err
}

type fullAppender struct {
	shelf.Appender
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
	s := &fullShelf{Logs: shelf.Folder(t.TempDir())}
	l := keptLog(s, "a.log", nil)
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
