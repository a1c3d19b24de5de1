package state

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skypilot-go/sky/internal/envelope"
	"github.com/skypilot-go/sky/internal/state/statetest"
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
	s.Unlock(envelope.NewRing(envelope.NewKey()))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openTestPostgres opens an empty schema of the test database.
func openTestPostgres(t *testing.T) *Store {
	t.Helper()
	s, err := OpenPostgres(t.Context(), statetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Unlock(envelope.NewRing(envelope.NewKey()))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
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
