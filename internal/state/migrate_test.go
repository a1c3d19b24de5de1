package state

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skypilot-go/sky/internal/state/statetest"
)

// Each version of the schema can be left in both directions, on both databases,
// and what is there before a step is there after a step and the way back.
func TestMigrationsGoBothWays(t *testing.T) {
	opens := map[string]func(t *testing.T) func() *Store{
		"sqlite": func(t *testing.T) func() *Store {
			path := filepath.Join(t.TempDir(), "state.db")
			return func() *Store { return must(Open(t.Context(), path))(t) }
		},
		"postgres": func(t *testing.T) func() *Store {
			address := statetest.Postgres(t)
			return func() *Store { return must(OpenPostgres(t.Context(), address))(t) }
		},
	}
	for name, prepare := range opens {
		t.Run(name, func(t *testing.T) {
			open := prepare(t)
			s := open()
			p, err := provider(s.db)
			ok(t, err)
			versions := []int64{0}
			for _, source := range p.ListSources() {
				versions = append(versions, source.Version)
			}
			ok(t, s.Close())
			for _, to := range slices.Backward(versions[:len(versions)-1]) {
				s := open() // at the newest
				if to > 0 {
					ok(t, s.Settings().Set(t.Context(), "k", []byte("v")))
					_, err := s.Clusters().List(t.Context(), ClusterFilter{})
					ok(t, err)
				}
				ok(t, s.Downgrade(context.Background(), to))
				found, _, err := must(provider(s.db))(t).GetVersions(t.Context())
				ok(t, err)
				same(t, "version", found, to)
				ok(t, s.Close())
			}
			s = open() // from nothing
			defer s.Close()
			_, err = s.Settings().Get(t.Context(), "k")
			is(t, err, ErrNotFound)
			ok(t, s.Clusters().Create(t.Context(), fullCluster("c1")))
			ok(t, s.Downgrade(t.Context(), 1))
			ok(t, migrate(t.Context(), s.db))
			if _, err := s.Clusters().Get(t.Context(), "c1"); err != nil {
				t.Errorf("the cluster did not survive the way back and forth: %v", err)
			}
		})
	}
}
