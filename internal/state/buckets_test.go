package state

import (
	"context"
	"testing"

	"github.com/skypilot-go/sky/api"
)

func fullBucket(name string) *Bucket {
	return &Bucket{
		Name: name, Hash: name + "-hash", Stage: BucketMaking, Status: "INIT", UserHash: "u1", UserName: "ann", Workspace: "team",
		Store: "S3", Account: "acct", Region: "eu-north-1", Endpoint: "http://127.0.0.1:1", SubPath: "a/b", Managed: true, Persistent: false,
		Config:  BucketConfig{Sources: []string{"./x"}, Mode: "COPY", Type: "t", Config: map[string]any{"mount": map[string]any{"read_only": true}}},
		Problem: "slow", LaunchedAt: day, LastUse: "sky launch",
	}
}

func TestBucketRoundTrip(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, bs := t.Context(), s.Buckets()
		b := fullBucket("data")
		ok(t, bs.Create(ctx, b))
		is(t, bs.Create(ctx, fullBucket("data")), ErrConflict)
		same(t, "kept", must(bs.Get(ctx, "data"))(t), b)
		_, err := bs.Get(ctx, "other")
		is(t, err, ErrNotFound)
		stale := *b
		b.Stage, b.Problem, b.Persistent = BucketThere, "", true
		ok(t, bs.Save(ctx, b))
		is(t, bs.Save(ctx, &stale), ErrConflict)
		same(t, "saved", must(bs.Get(ctx, "data"))(t), b)
		_, err = bs.Update(ctx, "data", "another incarnation", func(*Bucket) error { return nil })
		is(t, err, ErrNotFound)
		ok(t, bs.Create(ctx, fullBucket("a")))
		for what, f := range map[string]BucketFilter{
			"by name": {Names: []string{"dat*"}}, "by stage": {Stages: []BucketStage{BucketThere}},
			"seen": {Scope: &Scope{Workspaces: []string{"team"}}, Names: []string{"data"}},
		} {
			if list := must(bs.List(ctx, f))(t); len(list) != 1 || list[0].Name != "data" {
				t.Errorf("%s: %v", what, list)
			}
		}
		if list := must(bs.List(ctx, BucketFilter{Scope: &Scope{Workspaces: []string{"other"}}}))(t); len(list) > 0 {
			t.Error("a bucket is seen from elsewhere")
		}
		ok(t, bs.Delete(ctx, "data", "another incarnation"))
		must(bs.Get(ctx, "data"))(t)
		ok(t, bs.Delete(ctx, "data", b.Hash))
		ok(t, bs.Delete(ctx, "data", b.Hash))
		if list := must(bs.List(ctx, BucketFilter{}))(t); len(list) != 1 {
			t.Errorf("left: %v", list)
		}
	})
}

// A bucket is needed as long as one of those who need it is there.
func TestWhoNeedsBuckets(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, bs := t.Context(), s.Buckets()
		b := fullBucket("data")
		needed := func(want bool, when string) {
			t.Helper()
			if got := must(bs.Needed(ctx, b.Hash))(t); got != want {
				t.Errorf("%s: needed is %v", when, got)
			}
		}
		r := &Request{ID: "r1", Name: "sky.launch", Status: api.RequestPending, UserID: "u", CreatedAt: day}
		ok(t, s.Requests().Create(ctx, r))
		ok(t, bs.Create(ctx, b, Holder{HeldByRequest, "r1"}, Holder{HeldByRequest, "never was"}))
		needed(true, "while a request goes on")
		_, err := s.Requests().Cancel(ctx, "r1")
		ok(t, err)
		needed(false, "after the request")
		c := fullCluster("c")
		ok(t, s.Clusters().Create(ctx, c))
		ok(t, bs.Hold(ctx, b.Hash, Holder{HeldByCluster, c.Hash}))
		ok(t, bs.Hold(ctx, b.Hash, Holder{HeldByCluster, c.Hash}))
		needed(true, "while there is a cluster")
		ok(t, s.Clusters().Delete(ctx, "c", c.Hash))
		needed(false, "after the cluster")
		service, err := newServiceOf(ctx, s)
		ok(t, err)
		ok(t, bs.Hold(ctx, b.Hash, service.Holder()))
		needed(true, "while there is a service")
		ok(t, s.Services().Remove(ctx, service))
		needed(false, "after the service")
		ok(t, bs.Hold(ctx, b.Hash, JobHolder(7)))
		needed(false, "by a job that never was")
		v, first := fullService("chat")
		ok(t, bs.Hold(ctx, b.Hash, v.Holder()))
		needed(false, "before the service")
		v = must(s.Services().Create(ctx, v, first))(t)
		needed(true, "while there is a service")
		ok(t, s.Services().Remove(ctx, v))
		needed(false, "after the service")
	})
}

func newServiceOf(ctx context.Context, s *Store) (*Service, error) {
	v, first := fullService("svc")
	return s.Services().Create(ctx, v, first)
}
