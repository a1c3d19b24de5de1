package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state/statetest"
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

func TestWhatADatabaseThatDoesNotAnswerLeavesUndone(t *testing.T) {
	network := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err        error
		unanswered bool
	}{
		{nil, false}, {ErrConflict, false}, {ErrNotFound, false}, {context.Canceled, false},
		{network, true}, {fmt.Errorf("reading: %w", context.DeadlineExceeded), true}, {errSlow, true}, {io.ErrUnexpectedEOF, true},
		{errors.Join(errUnsure, network), false}, {errors.Join(errUnsure, context.DeadlineExceeded), false},
	} {
		if got := Unanswered(c.err); got != c.unanswered {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// A question is asked again while a server goes down, comes up or is cut off, and
// for nothing else.
func TestWhichFailuresPass(t *testing.T) {
	for code, want := range map[string]bool{"57P01": true, "57P03": true, "08006": true, "08003": true, "57014": false, "53300": false, "23505": false} {
		if got := away(fmt.Errorf("asking: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s passes: %v", code, got)
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
	address := statetest.Postgres(t)
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
	address := statetest.Postgres(t)
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

// A database that is restarted breaks every connection. Whoever asks then
// waits for it, and a change is made once.
func TestBrokenConnectionsAreNotSeen(t *testing.T) {
	address := statetest.Postgres(t)
	s := must(OpenPostgres(t.Context(), address+"&application_name=sky_broken"))(t)
	defer s.Close()
	admin, err := sql.Open("pgx", address)
	ok(t, err)
	defer admin.Close()
	stop := make(chan struct{})
	var breaker, wg sync.WaitGroup
	var broken atomic.Int64
	breaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			var n int64
			if err := admin.QueryRow("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'sky_broken'").Scan(&n); err != nil {
				t.Error(err)
				return
			}
			broken.Add(n)
		}
	})
	// However fast the machine is, they go on until connections were broken.
	const writers, least = 4, 60
	var created atomic.Int64
	for w := range writers {
		wg.Go(func() {
			for i := 0; i < least || broken.Load() < 10; i++ {
				created.Add(1)
				id := fmt.Sprint(w, "-", i)
				if err := s.Requests().Create(t.Context(), &Request{ID: id, Name: "sky.x", Status: api.RequestPending, CreatedAt: day}); err != nil {
					t.Errorf("%s: %v", id, err)
				}
				if err := s.Streams().Append(t.Context(), "log", Piece{int64(1_000_000*w + i), []byte("x")}); err != nil && !errors.Is(err, errUnsure) {
					t.Errorf("%s: %v", id, err)
				}
				if _, err := s.Requests().Get(t.Context(), id); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	breaker.Wait()
	if list := must(s.Requests().List(t.Context(), RequestFilter{}))(t); len(list) != int(created.Load()) {
		t.Errorf("%d of %d requests are there", len(list), created.Load())
	}
	t.Logf("%d connections broken", broken.Load())
}
