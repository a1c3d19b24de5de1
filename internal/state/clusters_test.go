package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
)

// day is a fixed time; both databases keep nanoseconds.
var day = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// fullCluster has a value in every field.
func fullCluster(name string) *Cluster {
	return &Cluster{
		Name: name, Hash: "hash-" + name, NameOnCloud: name + "-cloud", Status: api.ClusterInit, Epoch: 3,
		UserHash: "u1", UserName: "ann", Workspace: "default", Owner: []string{"arn:x", "acct"},
		LaunchedAt: day, StatusUpdatedAt: day.Add(time.Second), EverUp: true,
		Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "r", Zone: "z"}, InstanceType: "p4d", CPUs: 96, MemoryGiB: 1.5,
			Accelerators: map[string]float64{"A100": 8}, Spot: true, HourlyPrice: 32.77},
		NumNodes: 2, Requested: "2x(A100:8)", Ports: []string{"80", "90-99"}, Labels: map[string]string{"k": "v\x00<é>"},
		Machine: cloud.MachineSpec{DiskGB: 256, DiskTier: "low", NetworkTier: "best", LocalDisk: "nvme", EphemeralGB: 9, PriorityClass: "high", Images: []cloud.ImageChoice{{Cloud: "aws", By: map[string]string{"": "ami-1"}}}, Disks: []cloud.Disk{{Path: "/data", Name: "d", GB: 1, Tier: "low", ReadOnly: true, Goes: true}}},
		Nodes:   []cloud.Node{{ID: "i-1", Rank: 0, State: cloud.NodeRunning, Created: day}, {ID: "i-2", Rank: 1}},
		Certs:   Seal([]byte("PEM\x00\xff")), AgentBuild: "b1", SetupDone: true,
		AutostopMinutes: -1, AutostopDown: true, AutostopWaitFor: api.WaitForJobs,
		LastUse: "sky launch 'x'", CreationYAML: "run: x\n", CreationCmd: "sky launch", ConfigHash: "c", Holder: JobHolder(7),
		Notes: ClusterNotes{LaunchedBy: "r", BroughtUpBy: "r2", ServerMachine: "m", Registry: "g", Container: "img", GivingBack: "why", AutostopBefore: "{}", LastContact: 1.5e12, Adopted: true},
	}
}

func TestClusterRoundTrip(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		want := fullCluster("c1")
		ok(t, s.Clusters().Create(ctx, want))
		if want.Version != 1 {
			t.Errorf("version %d after Create", want.Version)
		}
		same(t, "full", must(s.Clusters().Get(ctx, "c1"))(t), want)
		bare := &Cluster{Name: "c2", Hash: "h2", Status: api.ClusterInit}
		ok(t, s.Clusters().Create(ctx, bare))
		same(t, "bare", must(s.Clusters().Get(ctx, "c2"))(t), bare)

		is(t, s.Clusters().Create(ctx, fullCluster("c1")), ErrConflict)
		other := fullCluster("c3")
		other.Hash = want.Hash
		is(t, s.Clusters().Create(ctx, other), ErrConflict)
		_, err := s.Clusters().Get(ctx, "c3")
		is(t, err, ErrNotFound)
	})
}

func TestClusterSave(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		c := fullCluster("c1")
		ok(t, s.Clusters().Create(ctx, c))
		mine, theirs := *c, *c
		mine.Status, mine.Epoch = api.ClusterUp, 4
		ok(t, s.Clusters().Save(ctx, &mine))
		if mine.Version != 2 {
			t.Errorf("version %d after Save", mine.Version)
		}
		is(t, s.Clusters().Save(ctx, &theirs), ErrConflict)
		if theirs.Version != 1 {
			t.Errorf("a refused Save changed the version to %d", theirs.Version)
		}
		same(t, "after a refused Save", must(s.Clusters().Get(ctx, "c1"))(t), &mine)

		gone := mine
		gone.Hash = "another"
		is(t, s.Clusters().Save(ctx, &gone), ErrConflict)
	})
}

func TestClusterTransitions(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for _, c := range []struct {
			from, to api.ClusterStatus
			ok       bool
		}{
			{api.ClusterInit, api.ClusterUp, true},
			{api.ClusterUp, api.ClusterAutostopping, true},
			{api.ClusterAutostopping, api.ClusterStopped, true},
			{api.ClusterStopped, api.ClusterInit, true},
			{api.ClusterStopped, api.ClusterStopped, true},
			{api.ClusterStopped, api.ClusterAutostopping, false},
			{api.ClusterUp, api.ClusterPending, false},
		} {
			name := fmt.Sprintf("%s-%s", c.from, c.to)
			row := fullCluster(name)
			row.Status = c.from
			ok(t, s.Clusters().Create(ctx, row))
			row.Status = c.to
			err := s.Clusters().Save(ctx, row)
			_, refused := errors.AsType[*TransitionError](err)
			if c.ok && err != nil || !c.ok && !refused {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestClusterUpdateRepeats(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		c := fullCluster("c1")
		c.NumNodes = 0
		ok(t, s.Clusters().Create(ctx, c))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 5 {
					if _, err := s.Clusters().Update(ctx, "c1", c.Hash, func(c *Cluster) error { c.NumNodes++; return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := must(s.Clusters().Get(ctx, "c1"))(t); got.NumNodes != 40 || got.Version != 41 {
			t.Errorf("nodes %d, version %d", got.NumNodes, got.Version)
		}
		boom := errors.New("no")
		_, err := s.Clusters().Update(ctx, "c1", c.Hash, func(c *Cluster) error { c.NumNodes = 0; return boom })
		is(t, err, boom)
		_, err = s.Clusters().Update(ctx, "c1", "other", func(*Cluster) error { t.Error("called"); return nil })
		is(t, err, ErrNotFound)
		if got := must(s.Clusters().Get(ctx, "c1"))(t); got.NumNodes != 40 {
			t.Errorf("a failed update changed it: %d", got.NumNodes)
		}
	})
}

func TestClusterList(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for i, name := range []string{"train-1", "train-2", "serve-1", "x", "Train-3", "a_b", "we%ird"} {
			c := fullCluster(name)
			c.LaunchedAt = day.Add(time.Duration(i) * time.Minute)
			c.UserHash = []string{"u1", "u2"}[i%2]
			c.Workspace = []string{"default", "w2"}[i%2]
			c.Status = []api.ClusterStatus{api.ClusterUp, api.ClusterStopped, api.ClusterInit}[i%3]
			c.Holder = Holder{}
			if name == "a_b" || name == "x" {
				c.Holder = JobHolder(1)
			}
			ok(t, s.Clusters().Create(ctx, c))
		}
		for _, c := range []struct {
			name string
			f    ClusterFilter
			want []string
		}{
			{"all, the newest first", ClusterFilter{}, []string{"we%ird", "a_b", "Train-3", "x", "serve-1", "train-2", "train-1"}},
			{"exact name", ClusterFilter{Names: []string{"x"}}, []string{"x"}},
			{"names", ClusterFilter{Names: []string{"x", "train-1", "nope"}}, []string{"x", "train-1"}},
			{"glob, case counts", ClusterFilter{Names: []string{"train-*"}}, []string{"train-2", "train-1"}},
			{"glob or name", ClusterFilter{Names: []string{"*-1", "x"}}, []string{"x", "serve-1", "train-1"}},
			{"one letter", ClusterFilter{Names: []string{"a?b"}}, []string{"a_b"}},
			{"set", ClusterFilter{Names: []string{"train-[13]"}}, []string{"train-1"}},
			{"set of others", ClusterFilter{Names: []string{"train-[!1]"}}, []string{"train-2"}},
			{"SQL's wildcards are letters", ClusterFilter{Names: []string{"we%*"}}, []string{"we%ird"}},
			{"no wildcard of a regular expression", ClusterFilter{Names: []string{"t.a*"}}, nil},
			{"user", ClusterFilter{UserHash: "u2"}, []string{"a_b", "x", "train-2"}},
			{"workspace and glob", ClusterFilter{Workspace: "w2", Names: []string{"*-*"}}, []string{"train-2"}},
			{"status", ClusterFilter{Statuses: []api.ClusterStatus{api.ClusterInit, api.ClusterStopped}}, []string{"a_b", "Train-3", "serve-1", "train-2"}},
			{"page", ClusterFilter{Limit: 2}, []string{"we%ird", "a_b"}},
			{"next page", ClusterFilter{Limit: 2, Offset: 2}, []string{"Train-3", "x"}},
			{"scope", ClusterFilter{Scope: &Scope{Workspaces: []string{"w2"}}}, []string{"a_b", "x", "train-2"}},
			{"scope without a workspace", ClusterFilter{Scope: &Scope{}}, nil},
			{"page of what is not managed", ClusterFilter{Unheld: true, Limit: 2, Offset: 1}, []string{"Train-3", "serve-1"}},
			{"rest", ClusterFilter{Offset: 5}, []string{"train-2", "train-1"}},
		} {
			var got []string
			for _, r := range must(s.Clusters().List(ctx, c.f))(t) {
				got = append(got, r.Name)
			}
			same(t, c.name, got, c.want)
		}
	})
}

func TestClusterEvents(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		ok(t, s.Clusters().Create(ctx, fullCluster("c1")))
		add := func(hash, typ, reason string, at time.Duration) {
			ok(t, s.Clusters().AddEvent(ctx, ClusterEvent{ClusterHash: hash, ClusterName: "c1", Type: typ, Reason: reason, Starting: api.ClusterInit, Ending: api.ClusterUp, At: day.Add(at)}))
		}
		add("hash-c1", "STATUS_CHANGE", "first", 0)
		add("hash-c1", "DEBUG", "second", time.Nanosecond)
		add("hash-c1", "STATUS_CHANGE", "third", time.Second)
		add("hash-c1", "STATUS_CHANGE", "third", time.Second) // the same again
		add("older", "TERMINAL", "zeroth", -time.Hour)
		reasons := func(hash string, types []string, limit int) (out []string) {
			for _, e := range must(s.Clusters().Events(ctx, "c1", hash, types, limit))(t) {
				out = append(out, e.Reason)
			}
			return out
		}
		same(t, "of one incarnation", reasons("hash-c1", nil, 0), []string{"first", "second", "third"})
		same(t, "of the name", reasons("", nil, 0), []string{"zeroth", "first", "second", "third"})
		same(t, "the latest, oldest first", reasons("", nil, 2), []string{"second", "third"})
		same(t, "by type", reasons("", []string{"DEBUG", "TERMINAL"}, 0), []string{"zeroth", "second"})
		if c := must(s.Clusters().Get(ctx, "c1"))(t); c.LastEvent != "third" {
			t.Errorf("last event %q", c.LastEvent)
		}
		n := must(s.Clusters().DeleteEvents(ctx, []string{"STATUS_CHANGE"}, day.Add(time.Second)))(t)
		same(t, "after clean-up", reasons("", nil, 0), []string{"zeroth", "second", "third"})
		if n != 1 {
			t.Errorf("deleted %d", n)
		}
	})
}

func TestClusterHistory(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		cs := s.Clusters()
		at := func(h int) time.Time { return day.Add(time.Duration(h) * time.Hour) }
		never, old, live := fullCluster("never"), fullCluster("old"), fullCluster("live")
		live.LaunchedAt = at(1)
		for _, c := range []*Cluster{never, old, live} {
			ok(t, cs.Create(ctx, c))
		}
		for _, c := range []*Cluster{old, live} {
			ok(t, cs.OpenUsage(ctx, c.Hash, at(0)))
			ok(t, cs.OpenUsage(ctx, c.Hash, at(1))) // already open
			ok(t, cs.CloseUsage(ctx, c.Hash, at(2)))
			ok(t, cs.CloseUsage(ctx, c.Hash, at(3))) // already closed
			ok(t, cs.OpenUsage(ctx, c.Hash, at(4)))
		}
		is(t, cs.OpenUsage(ctx, "no such", at(0)), ErrNotFound)
		ok(t, cs.CloseUsage(ctx, "no such", at(0)))
		ok(t, cs.CloseUsage(ctx, old.Hash, at(5)))
		old.NumNodes, old.LastUse = 7, "sky exec"
		ok(t, cs.Save(ctx, old))
		for _, c := range []*Cluster{never, old} {
			ok(t, cs.Delete(ctx, c.Name, c.Hash))
			is(t, cs.Delete(ctx, c.Name, c.Hash), ErrNotFound)
		}
		h := must(cs.History(ctx, time.Time{}))(t)
		var got []string
		for _, r := range h {
			got = append(got, fmt.Sprint(r.Name, " ", r.LastStatus, " ", r.NumNodes, " ", r.LastUse, " ", r.Offer.HourlyPrice))
		}
		same(t, "history", got, []string{"live INIT 2 sky launch 'x' 32.77", "old TERMINATED 7 sky exec 32.77"})
		same(t, "intervals of the live one", h[0].Intervals, []UsageInterval{{at(0), at(2)}, {at(4), time.Time{}}})
		same(t, "intervals of the old one", h[1].Intervals, []UsageInterval{{at(0), at(2)}, {at(4), at(5)}})

		if h := must(cs.History(ctx, at(6)))(t); len(h) != 1 || h[0].Name != "live" {
			t.Errorf("since then: %v", h)
		}
		// A new incarnation of the name is another cluster.
		again := fullCluster("old")
		again.Hash = "h2"
		ok(t, cs.Create(ctx, again))
		ok(t, cs.OpenUsage(ctx, "h2", at(9)))
		ok(t, cs.Delete(ctx, "old", "h2")) // closes what is open
		h = must(cs.History(ctx, time.Time{}))(t)
		i := slices.IndexFunc(h, func(r *ClusterHistory) bool { return r.Hash == "h2" })
		if len(h) != 3 || i < 0 || h[i].Intervals[0].End.Before(at(9)) {
			t.Errorf("history after deletion: %d, %+v", len(h), h[max(i, 0)])
		}
	})
}

func BenchmarkClusterFirstPage(b *testing.B) {
	s := openTest(b)
	ctx := context.Background()
	const n = 10_000
	err := s.write(ctx, func(q *session) error {
		for i := range n {
			c := fullCluster(fmt.Sprintf("c%05d", i))
			c.LaunchedAt = day.Add(time.Duration(i) * time.Second)
			if _, err := q.exec(insertCluster, s.clusterFields(c)...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		list, err := s.Clusters().List(ctx, ClusterFilter{Limit: 50})
		if err != nil || len(list) != 50 {
			b.Fatal(len(list), err)
		}
	}
}

func TestARecoveredDatabaseIsAheadOfAllAgents(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		late := LateEpoch(s.Now())
		for name, epoch := range map[string]int64{"c1": 0, "c2": 7, "c3": late + 1000} {
			c := fullCluster(name)
			c.Epoch = epoch
			ok(t, s.Clusters().Create(t.Context(), c))
		}
		ok(t, s.Recovered(t.Context()))
		for name, least := range map[string]int64{"c1": late, "c2": late, "c3": late + 1001} {
			c, err := s.Clusters().Get(t.Context(), name)
			if err != nil || c.Epoch < least || c.Version != 2 {
				t.Errorf("%s: epoch %d, version %d, %v; want at least epoch %d in version 2", name, c.Epoch, c.Version, err, least)
			}
		}
	})
}

// A database that was written by something else is not read as zeros.
func TestAColumnOfAnotherTypeIsAnError(t *testing.T) {
	s := openTest(t)
	ok(t, s.Clusters().Create(t.Context(), fullCluster("c1")))
	for column, value := range map[string]any{"num_nodes": "two", "launched_at": "today"} {
		ok(t, s.write(t.Context(), func(s *session) error {
			_, err := s.exec("UPDATE clusters SET "+column+" = ?", value)
			return err
		}))
		if c, err := s.Clusters().Get(t.Context(), "c1"); err == nil {
			t.Errorf("%s = %v is read as %+v", column, value, c)
		}
		ok(t, s.write(t.Context(), func(s *session) error {
			_, err := s.exec("DELETE FROM clusters")
			return err
		}))
		ok(t, s.Clusters().Create(t.Context(), fullCluster("c1")))
	}
}
