package state

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

func fullService(name string) (*Service, *ServiceVersion) {
	v := &Service{
		Name: name, Hash: name + "-hash", RequestID: "r-" + name, Kind: KindService, UserHash: "u1", UserName: "ann", Workspace: "team",
		CreatedAt: day, Port: 30001, Status: api.ServiceControllerInit, State: []byte(`{"next_id":1}`), Shown: ServiceShown{Target: 2, Why: []string{"slow"}},
	}
	return v, &ServiceVersion{RequestID: "r-" + name, Mode: "rolling", Entrypoint: "sky serve up", CreatedAt: day, Files: []string{"f1"}, Task: []byte("run: x"), Config: []byte("{}")}
}

func TestServiceRoundTrip(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, vs := t.Context(), s.Services()
		v, first := fullService("chat")
		made := must(vs.Create(ctx, v, first))(t)
		same(t, "made", must(vs.Get(ctx, "chat"))(t), made)
		again := must(vs.Create(ctx, v, first))(t)
		same(t, "the same request", again, made)

		other, otherFirst := fullService("chat")
		other.Hash, other.RequestID, other.Port = "other", "r2", 30002
		have, err := vs.Create(ctx, other, otherFirst)
		is(t, err, ErrConflict)
		same(t, "who has the name", have, made)
		rival, rivalFirst := fullService("rival")
		_, err = vs.Create(ctx, rival, rivalFirst)
		is(t, err, ErrConflict) // its port is taken
		rival.Port = 30002
		must(vs.Create(ctx, rival, rivalFirst))(t)

		n := must(vs.AddVersion(ctx, v.Hash, &ServiceVersion{RequestID: "r3", Task: []byte("run: y"), CreatedAt: day}))(t)
		if again := must(vs.AddVersion(ctx, v.Hash, &ServiceVersion{RequestID: "r3", Task: []byte("run: y"), CreatedAt: day}))(t); n != 2 || again != 2 {
			t.Errorf("version %d, again %d", n, again)
		}
		if got := must(vs.Task(ctx, v.Hash, 2))(t); string(got.Task) != "run: y" || got.Number != 2 {
			t.Errorf("version 2 is %+v", got)
		}
		listed := must(vs.Versions(ctx, []string{v.Hash}))(t)[v.Hash]
		if len(listed) != 2 || listed[0].Task != nil || listed[0].Entrypoint != "sky serve up" || len(listed[0].Files) != 1 {
			t.Errorf("listed are %+v", listed)
		}
		if list := must(vs.List(ctx, ServiceFilter{Names: []string{"chat"}, Kind: KindService, Scope: &Scope{Workspaces: []string{"team"}}}))(t); len(list) != 1 {
			t.Errorf("found are %v", list)
		}
		if list := must(vs.List(ctx, ServiceFilter{Kind: KindPool}))(t); len(list) != 0 {
			t.Errorf("pools are %v", list)
		}
		same(t, "ports", must(vs.Ports(ctx))(t), []int{30001, 30002})
		same(t, "files", must(vs.FilesInUse(ctx))(t), map[string]bool{"f1": true})
	})
}

func TestOnlyTheHolderOfAServiceSavesIt(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, vs := t.Context(), s.Services()
		v, first := fullService("chat")
		must(vs.Create(ctx, v, first))(t)
		same(t, "orphans", must(vs.Orphans(ctx, ""))(t), []string{v.Hash})
		take := func(owner string) *ServiceAdopted {
			t.Helper()
			l, got, err := s.Leases().Acquire(ctx, ServiceLease+v.Hash, owner, time.Minute)
			if err != nil || !got {
				t.Fatal(got, err)
			}
			adopted := must(vs.AdoptAll(ctx, map[string]Lease{v.Hash: l}))(t)
			if len(adopted) != 1 {
				t.Fatalf("%s adopted %d", owner, len(adopted))
			}
			ok(t, s.Leases().Release(ctx, l))
			return &adopted[0]
		}
		a := take("one")
		r := &ServiceReplica{Hash: v.Hash, ID: 1, State: []byte(`{"id":1}`), ClusterName: "chat-1"}
		ok(t, vs.Save(ctx, ServiceChange{Service: a.Service, Replicas: []*ServiceReplica{r}}))
		r.ClusterHash, r.Endpoint, r.Probes = "h", "127.0.0.1:1", []byte("{}")
		ok(t, vs.SaveReplica(ctx, a.Service.Epoch, r))
		same(t, "replica", must(vs.Load(ctx, v.Hash))(t).Replicas, []*ServiceReplica{r})

		// What a user asked for survives what the controller writes, and makes it look again.
		ok(t, vs.AskReplica(ctx, v.Hash, 1, AskedEnd))
		is(t, vs.AskReplica(ctx, v.Hash, 9, AskedEnd), ErrNotFound)
		is(t, vs.Save(ctx, ServiceChange{Service: a.Service, Replicas: []*ServiceReplica{r}}), ErrConflict)
		a.Service = must(vs.Get(ctx, "chat"))(t)
		ok(t, vs.Save(ctx, ServiceChange{Service: a.Service, Replicas: []*ServiceReplica{r}}))
		if got := must(vs.Load(ctx, v.Hash))(t).Replicas[0].Asked; got != AskedEnd {
			t.Errorf("the user asked %q", got)
		}

		ok(t, vs.AskUpdate(ctx, v.Hash, AskedPromote))
		is(t, vs.AskUpdate(ctx, "none", AskedPromote), ErrNotFound)
		a.Service = must(vs.Get(ctx, "chat"))(t)
		if a.Service.Asked != AskedPromote {
			t.Errorf("asked is %q", a.Service.Asked)
		}
		ok(t, vs.Save(ctx, ServiceChange{Service: a.Service}))
		if got := must(vs.Get(ctx, "chat"))(t).Asked; got != AskedNoChange {
			t.Errorf("what was answered is asked again: %q", got)
		}

		b := take("two")
		is(t, vs.Save(ctx, ServiceChange{Service: a.Service}), ErrConflict)
		is(t, vs.SaveReplica(ctx, a.Service.Epoch, r), ErrConflict)
		ok(t, vs.AskDown(ctx, []string{v.Hash}, false))
		ok(t, vs.AskDown(ctx, []string{v.Hash}, true))
		ok(t, vs.AskDown(ctx, []string{v.Hash}, false))
		now := must(vs.Get(ctx, "chat"))(t)
		if !now.DownAsked || !now.Purge || now.Status != api.ServiceShuttingDown {
			t.Errorf("it is %+v", now)
		}
		_, err := vs.AddVersion(ctx, v.Hash, &ServiceVersion{RequestID: "late"})
		is(t, err, ErrConflict)
		is(t, vs.Remove(ctx, b.Service), ErrConflict)
		ok(t, vs.Save(ctx, ServiceChange{Service: now, Removed: []int{1}, Dropped: []int{1}}))
		if left := must(vs.Load(ctx, v.Hash))(t); len(left.Replicas)+len(left.Versions) != 0 {
			t.Errorf("left are %+v", left)
		}
		ok(t, vs.Remove(ctx, now))
		_, err = vs.Get(ctx, "chat")
		is(t, err, ErrNotFound)
	})
}

func TestHoldersAreNamedAsUsersNameThem(t *testing.T) {
	v, _ := fullService("chat")
	pool := *v
	pool.Kind = KindPool
	if got := v.Holder(); got.Name() != "chat" || got == pool.Holder() || got.Kind != HeldByService {
		t.Errorf("holder %+v", got)
	}
	if got := JobHolder(7).Name(); got != "7" {
		t.Errorf("job %s", got)
	}
}

func TestMarkTellsThatAServiceChanged(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, vs := t.Context(), s.Services()
		seen := map[string]string{must(vs.Mark(ctx))(t): "nothing"}
		changed := func(what string) {
			t.Helper()
			mark := must(vs.Mark(ctx))(t)
			if before := seen[mark]; before != "" {
				t.Errorf("the mark after %s is that after %s", what, before)
			}
			if seen[mark] = what; must(vs.Mark(ctx))(t) != mark {
				t.Errorf("the mark after %s changes by itself", what)
			}
		}
		v, first := fullService("chat")
		v = must(vs.Create(ctx, v, first))(t)
		changed("it was made")
		is(t, vs.Save(ctx, ServiceChange{Service: v}), nil)
		changed("it was saved")
		is(t, vs.Remove(ctx, v), nil)
		other, first := fullService("other")
		other.CreatedAt = day.Add(time.Second)
		must(vs.Create(ctx, other, first))(t)
		changed("another one took its place")
	})
}

func TestReportsOfBalancersReachTheOtherServers(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, vs := t.Context(), s.Services()
		report := func(balancer, server, text string, after time.Duration) *BalancerReport {
			return &BalancerReport{Balancer: balancer, Server: server, At: day.Add(after), Report: []byte(text)}
		}
		is(t, vs.SaveReports(ctx, nil), nil)
		is(t, vs.SaveReports(ctx, []*BalancerReport{report("b1", "s1", "1", 0), report("b2", "s2", "2", 0)}), nil)
		newer := report("b1", "s1", "3", time.Second)
		is(t, vs.SaveReports(ctx, []*BalancerReport{newer}), nil)
		same(t, "for s2", must(vs.Reports(ctx, "s2", day.Add(-time.Second)))(t), []*BalancerReport{newer})
		if got := must(vs.Reports(ctx, "s2", day.Add(time.Second)))(t); len(got) != 0 {
			t.Errorf("nothing is newer, but %+v", got)
		}
		is(t, vs.ForgetReports(ctx, day.Add(time.Second)), nil)
		same(t, "what is left", must(vs.Reports(ctx, "s3", time.Time{}))(t), []*BalancerReport{newer})
	})
}
