package state

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
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

// Clusters stay those of their managed jobs on the way to the older schema, which
// wrote that elsewhere, and back.
func TestHoldersSurviveTheWayBack(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		j := must(s.ManagedJobs().Submit(ctx, newManaged("r1", 1)))(t)
		for _, name := range []string{"bare", "noted"} {
			a := &ManagedAttempt{JobID: j.ID, Number: 1, ClusterName: name, StartedAt: day}
			if name == "noted" {
				a.Number = 2
			}
			ok(t, s.ManagedJobs().Save(ctx, ManagedChange{Job: j, Attempt: a}))
			c := fullCluster(name)
			c.Holder = JobHolder(j.ID)
			if name == "bare" {
				c.Machine, c.Notes = cloud.MachineSpec{}, ClusterNotes{}
			}
			ok(t, s.Clusters().Create(ctx, c))
		}
		own := fullCluster("own")
		own.Holder = Holder{}
		ok(t, s.Clusters().Create(ctx, own))
		ok(t, s.Downgrade(ctx, 13))
		for name, want := range map[string]string{"bare": "1", "noted": "1", "own": ""} {
			var metadata map[string]any
			var managed bool
			ok(t, s.read(ctx).one([]any{nested(&metadata), truth(&managed)}, "SELECT metadata, is_managed FROM clusters WHERE name = ?", name))
			if job, _ := metadata["managed_job"].(string); job != want || managed != (want != "") {
				t.Errorf("%s: job %q, managed %v in %v", name, job, managed, metadata)
			}
		}
		ok(t, migrate(ctx, s.db))
		for name, want := range map[string]Holder{"bare": JobHolder(1), "noted": JobHolder(1), "own": {}} {
			if c := must(s.Clusters().Get(ctx, name))(t); c.Holder != want || (name == "noted") != (c.Machine.DiskTier == "low") && name != "own" {
				t.Errorf("%s: %+v", name, c)
			}
		}
	})
}
