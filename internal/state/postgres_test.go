package state

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestGlobRegexp(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		match         bool
	}{
		{"a*", "abc", true}, {"a*", "ba", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"[ab]x", "bx", true}, {"[!ab]x", "bx", false}, {"[!ab]x", "cx", true}, {"[^ab]x", "ax", false},
		{"a.c", "abc", false}, {"a+", "aa", false}, {"[ab", "[ab", true}, {"(x|y)", "x", false}, {"*", "", true},
		{`a\d*`, "a1", false}, {`[\d]`, "d", true},
	} {
		if got := regexp.MustCompile(globRegexp(c.pattern)).MatchString(c.name); got != c.match {
			t.Errorf("%q on %q: %v", c.pattern, c.name, got)
		}
	}
}

func TestPasswordIsNotShown(t *testing.T) {
	for _, address := range []string{
		"postgres://u:hunter2@127.0.0.1:notaport/db",
		"postgres://u:hunter2@127.0.0.1:1/db?connect_timeout=1",
		"host=127.0.0.1 port=x password=hunter2",
	} {
		_, err := OpenPostgres(t.Context(), address)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

func TestPostgresServersStartTogether(t *testing.T) {
	address := postgresSchema(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := OpenPostgres(t.Context(), address)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if d := time.Since(s.Now()); d > time.Second || d < -time.Second {
				t.Errorf("the clock is %v off", d)
			}
			if !s.Shared() {
				t.Error("not shared")
			}
		})
	}
	wg.Wait()
}
