package state

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// backends are the databases that every store is tested on: SQLite, and
// PostgreSQL if SKY_TEST_POSTGRES holds the URL of a database that may be
// filled with schemas.
func backends(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, openTest(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, openTestPostgres(t)) })
}

func openTest(t testing.TB) *Store {
	t.Helper()
	s, err := Open(context.Background(), filepath.Join(t.TempDir(), "sky", "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var schemas atomic.Int64

// openTestPostgres opens an empty schema of the test database.
func openTestPostgres(t *testing.T) *Store {
	t.Helper()
	s, err := OpenPostgres(t.Context(), postgresSchema(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// postgresSchema makes a schema that is dropped with the test, and returns the
// URL that opens it.
func postgresSchema(t *testing.T) string {
	t.Helper()
	address := os.Getenv("SKY_TEST_POSTGRES")
	if address == "" {
		t.Skip("SKY_TEST_POSTGRES does not hold the URL of a PostgreSQL database")
	}
	name := fmt.Sprintf("sky_test_%d_%d", os.Getpid(), schemas.Add(1))
	admin, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec("CREATE SCHEMA " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec("DROP SCHEMA " + name + " CASCADE"); err != nil {
			t.Error(err)
		}
		admin.Close()
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// same fails the test if two values differ; nil and empty lists are alike.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if err != want {
		t.Fatalf("error is %v, want %v", err, want)
	}
}
