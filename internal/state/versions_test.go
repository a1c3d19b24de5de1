package state

import (
	"context"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// The version grows with every change of what a list shows, also if another
// process makes it, and with nothing else.
func TestVersionGrowsWithEveryChangeOfClusters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	here := must(Open(t.Context(), path))(t)
	defer here.Close()
	there := must(Open(t.Context(), path))(t)
	defer there.Close()
	last := must(here.Clusters().Version(t.Context()))(t)
	now := func(what string, grows bool) {
		t.Helper()
		n := must(here.Clusters().Version(t.Context()))(t)
		if grows != (n > last) || n < last {
			t.Errorf("%s: the version went from %d to %d", what, last, n)
		}
		same(t, "version that the other one sees", must(there.Clusters().Version(t.Context()))(t), n)
		last = n
	}
	ctx := t.Context()
	for name, s := range map[string]*Store{"here": here, "there": there} {
		c := fullCluster("c-" + name)
		ok(t, s.Clusters().Create(ctx, c))
		now(name+": create", true)
		c.LastUse = "sky exec"
		ok(t, s.Clusters().Save(ctx, c))
		now(name+": save", true)
		must(s.Clusters().Update(ctx, c.Name, c.Hash, func(c *Cluster) error { c.Epoch++; return nil }))(t)
		now(name+": update", true)
		ok(t, s.Clusters().AddEvent(ctx, ClusterEvent{ClusterHash: c.Hash, ClusterName: c.Name, Type: "STATUS_CHANGE", Reason: "r", At: day}))
		now(name+": event", true)
		must(s.Clusters().Get(ctx, c.Name))(t)
		ok(t, s.Settings().Set(ctx, "k", []byte(name)))
		must(s.Users().Touch(ctx, User{ID: "u-" + name}))(t)
		ok(t, s.Requests().Create(ctx, &Request{ID: name, Name: "sky.x", Status: "RUNNING", OwnerID: "s", Attempt: 1}))
		now(name+": what is not about clusters", false)
		is(t, s.Clusters().Create(ctx, fullCluster(c.Name)), ErrConflict)
		now(name+": a conflict", false)
		ok(t, s.Clusters().Delete(ctx, c.Name, c.Hash))
		now(name+": delete", true)
	}
}

func TestPostgresDoesNotCountChanges(t *testing.T) {
	s := openTestPostgres(t)
	ok(t, s.Clusters().Create(t.Context(), fullCluster("c")))
	if n := must(s.Clusters().Version(t.Context()))(t); n != 0 {
		t.Errorf("the version is %d", n)
	}
}

// Queries are found prepared again, or not, with the same result, however many
// there are.
func TestVaryingQueries(t *testing.T) {
	s := openTest(t)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3*mostVarying).Draw(t, "names")
		names := make([]string, n)
		for i := range names {
			names[i] = "nosuch"
		}
		list, err := s.Clusters().List(context.Background(), ClusterFilter{Names: names})
		if err != nil || len(list) != 0 {
			t.Fatal(list, err)
		}
		if kept := len(s.db.read(context.Background()).cache.other.kept); kept > mostVarying {
			t.Fatalf("%d queries are kept", kept)
		}
	})
}

func BenchmarkListOfFew(b *testing.B) {
	s := openTest(b)
	for _, name := range []string{"a", "b", "c"} {
		if err := s.Clusters().Create(b.Context(), fullCluster(name)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Clusters().List(b.Context(), ClusterFilter{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("version", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Clusters().Version(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
