package state

import (
	"errors"
	"net"
	"net/url"
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

func TestPostgresAddresses(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"postgres://u:p@h/d", "postgresql://u:p@h/d"},
		{"postgresql://u@h:5432/d?sslmode=disable", "postgresql://u@h:5432/d?sslmode=disable"},
		{"postgresql+psycopg2://u:p@h/d", "postgresql://u:p@h/d"},
		{"POSTGRESQL://h/d", "postgresql://h/d"},
		{"host=h dbname=d", "host=h dbname=d"},
	} {
		if got, err := postgresAddress(c.given); err != nil || got != c.want {
			t.Errorf("%s: %q %v", c.given, got, err)
		}
	}
	for given, says := range map[string]string{
		"mysql://u:hunter2@h/d":    "mysql://, but",
		"sqlite:///home/x/state":   "only PostgreSQL is supported",
		"just-a-host":              "has no scheme",
		"postgresql://h:99999999/": "not a PostgreSQL URL",
	} {
		_, err := OpenPostgres(t.Context(), given)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", given, err)
		}
	}
}

// What is wrong with a database is said so that its administrator can mend it.
func TestPostgresRefusals(t *testing.T) {
	address := postgresSchema(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	ok(t, err)
	defer silent.Close()
	change := func(f func(u *url.URL)) string {
		u, err := url.Parse(address)
		ok(t, err)
		f(u)
		return u.String()
	}
	for name, c := range map[string]struct{ address, says string }{
		"nobody listens": {"postgresql://u:hunter2@127.0.0.1:1/sky", "no connection to the database at postgresql://127.0.0.1:1/sky: check that it runs"},
		"nobody answers": {"postgresql://u:hunter2@" + silent.Addr().String() + "/sky?sslmode=disable&connect_timeout=1", "127.0.0.1"},
		"no such user":   {change(func(u *url.URL) { u.User = url.UserPassword("nobody-here", "hunter2") }), "refused the user or password"},
		"no such base":   {change(func(u *url.URL) { u.Path = "/none-such" }), "create it first"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := OpenPostgres(t.Context(), c.address)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
	t.Run("newer schema", func(t *testing.T) {
		s := must(OpenPostgres(t.Context(), address))(t)
		ok(t, s.write(t.Context(), func(q *session) error {
			_, err := q.exec("INSERT INTO schema_version (version_id, is_applied) VALUES (99, TRUE)")
			return err
		}))
		ok(t, s.Close())
		_, err := OpenPostgres(t.Context(), address)
		if e, is := errors.AsType[*NewerSchemaError](err); !is || e.Found != 99 {
			t.Errorf("%v", err)
		}
	})
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
