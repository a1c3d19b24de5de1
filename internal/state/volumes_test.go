package state

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

func fullVolume(name string) *Volume {
	return &Volume{
		Name: name, Hash: name + "-hash", Stage: VolumeThere, UserHash: "u1", UserName: "ann", Workspace: "team",
		Asked:   cloud.Volume{Name: name, Type: cloud.VolumeClaim, SizeGB: 10, Labels: map[string]string{"a": "b"}},
		Is:      cloud.Volume{Name: name, NameOnCloud: name + "-oc", Type: cloud.VolumeClaim, Place: cloud.Place{Cloud: "kubernetes", Region: "ctx"}, SizeGB: 10, AccessMode: cloud.ReadWriteMany},
		Seen:    VolumeSeen{At: day, Exists: true, Ready: true, Pods: []string{"p"}, Clusters: []string{"h"}, Unknown: "no answer"},
		Problem: "slow", LaunchedAt: day, LastAttachedAt: day.Add(time.Hour), LastUse: "sky launch", CreationYAML: "name: " + name,
	}
}

func TestVolumeRoundTrip(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, vs := t.Context(), s.Volumes()
		v := fullVolume("data")
		ok(t, vs.Create(ctx, v))
		is(t, vs.Create(ctx, fullVolume("data")), ErrConflict)
		same(t, "kept", must(vs.Get(ctx, "data"))(t), v)
		_, err := vs.Get(ctx, "other")
		is(t, err, ErrNotFound)
		stale := *v
		v.Stage, v.Problem = VolumeMaking, ""
		ok(t, vs.Save(ctx, v))
		is(t, vs.Save(ctx, &stale), ErrConflict)
		same(t, "saved", must(vs.Get(ctx, "data"))(t), v)
		_, err = vs.Update(ctx, "data", "another incarnation", func(*Volume) error { return nil })
		is(t, err, ErrNotFound)
		ok(t, vs.Create(ctx, fullVolume("a")))
		for what, f := range map[string]VolumeFilter{
			"by name": {Names: []string{"dat*"}}, "by stage": {Stages: []VolumeStage{VolumeMaking}},
			"seen": {Scope: &Scope{Workspaces: []string{"team"}}, Names: []string{"data"}}, "by all": {Workspace: "team", UserHash: "u1", Names: []string{"data", "x"}},
		} {
			if list := must(vs.List(ctx, f))(t); len(list) != 1 || list[0].Name != "data" {
				t.Errorf("%s: %v", what, list)
			}
		}
		if list := must(vs.List(ctx, VolumeFilter{Scope: &Scope{Workspaces: []string{"other"}}}))(t); len(list) > 0 {
			t.Error("a volume is seen from elsewhere")
		}
		ok(t, vs.Delete(ctx, "data", "another incarnation"))
		must(vs.Get(ctx, "data"))(t)
		ok(t, vs.Delete(ctx, "data", v.Hash))
		ok(t, vs.Delete(ctx, "data", v.Hash))
		if list := must(vs.List(ctx, VolumeFilter{}))(t); len(list) != 1 {
			t.Errorf("left: %v", list)
		}
	})
}

func TestClustersHoldVolumes(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, vs := t.Context(), s.Volumes()
		data := fullVolume("data")
		ok(t, vs.Create(ctx, data))
		own := fullVolume("own")
		own.ClusterHash = "" // is filled in
		c := fullCluster("c1")
		mounts := []NewVolumeMount{{Path: "/data", Name: "data", SubPath: "a/b"}, {Path: "/own", Own: own}}
		ok(t, s.Clusters().CreateWith(ctx, c, mounts))
		is(t, s.Clusters().CreateWith(ctx, fullCluster("c1"), mounts), ErrConflict)
		held := must(vs.Mounts(ctx, c.Hash))(t)
		if len(held) != 2 || held[0].Path != "/data" || held[0].SubPath != "a/b" || held[0].Volume.Name != "data" || held[1].Volume.ClusterHash != c.Hash {
			t.Fatalf("%+v", held)
		}
		same(t, "holders", must(vs.Holders(ctx, "data"))(t), []VolumeHolder{{"data", "c1", c.Hash}})
		_, err := vs.BeginDelete(ctx, "data", data.Hash)
		if e, _ := errors.AsType[*VolumeHeldError](err); e == nil || e.Clusters[0] != "c1" {
			t.Fatalf("deleting what is held: %v", err)
		}
		before := must(vs.Get(ctx, "data"))(t)
		ok(t, vs.Attached(ctx, c.Hash, "sky start"))
		after := must(vs.Get(ctx, "data"))(t)
		if after.LastUse != "sky start" || !after.LastAttachedAt.After(before.LastAttachedAt) || after.Version == before.Version {
			t.Errorf("attached: %+v", after)
		}
		// What is not there, or goes with another cluster, is not held, and nothing
		// of the cluster stays.
		for _, name := range []string{"nosuch", "own"} {
			err := s.Clusters().CreateWith(ctx, fullCluster("c2"), []NewVolumeMount{{Path: "/data", Name: "data"}, {Path: "/x", Name: name}})
			if e, _ := errors.AsType[*VolumeNotThereError](err); e == nil || e.Volume != name {
				t.Fatalf("holding %s: %v", name, err)
			}
			if _, err := s.Clusters().Get(ctx, "c2"); !errors.Is(err, ErrNotFound) {
				t.Fatalf("a cluster was made: %v", err)
			}
		}
		ok(t, s.Clusters().Delete(ctx, "c1", c.Hash))
		if held := must(vs.Mounts(ctx, c.Hash))(t); len(held) > 0 {
			t.Errorf("still held: %+v", held)
		}
		if _, err := vs.Get(ctx, "own"); !errors.Is(err, ErrNotFound) {
			t.Error("a cluster's own volume outlives it")
		}
		must(vs.BeginDelete(ctx, "data", data.Hash))(t)
		err = s.Clusters().CreateWith(ctx, fullCluster("c3"), []NewVolumeMount{{Path: "/data", Name: "data"}})
		if e, _ := errors.AsType[*VolumeNotThereError](err); e == nil {
			t.Fatalf("holding what is being deleted: %v", err)
		}
	})
}

// One of several launches and a delete at once: never is a volume held that is
// being deleted.
func TestHoldingAndDeletingExcludeEachOther(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		for round := range 10 {
			ctx, vs := t.Context(), s.Volumes()
			v := fullVolume("data")
			ok(t, vs.Create(ctx, v))
			var wg sync.WaitGroup
			got := make([]*Cluster, 3)
			for i := range got {
				wg.Go(func() {
					c := fullCluster(string(rune('a'+i)) + string(rune('a'+round)))
					err := s.Clusters().CreateWith(ctx, c, []NewVolumeMount{{Path: "/d", Name: "data"}})
					if _, gone := errors.AsType[*VolumeNotThereError](err); err != nil && !gone {
						t.Error(err)
					}
					if err == nil {
						got[i] = c
					}
				})
			}
			var err error
			wg.Go(func() { _, err = vs.BeginDelete(ctx, "data", v.Hash) })
			wg.Wait()
			_, refused := errors.AsType[*VolumeHeldError](err)
			if err != nil && !refused {
				t.Fatal(err)
			}
			held := false
			for _, c := range got {
				if c != nil {
					held = true
					ok(t, s.Clusters().Delete(ctx, c.Name, c.Hash))
				}
			}
			if held == (err == nil) {
				t.Fatalf("held: %v, deleting: %v", held, err)
			}
			ok(t, vs.Delete(ctx, "data", v.Hash))
		}
	})
}
