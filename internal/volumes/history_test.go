package volumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Whatever happens in whatever order, with servers that go down and clouds that
// lose answers at any call: nothing is in the cloud that no record knows, nothing
// that a cluster holds goes, and once all is settled the records are the truth.
func TestHistories(t *testing.T) {
	s, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rapid.Check(t, func(t *rapid.T) {
		env := newTestEnvIn(t, s)
		clusters := map[string]*state.Cluster{}
		names := rapid.SampledFrom([]string{"v1", "v2"})
		who := rapid.SampledFrom([]string{"c1", "c2"})
		// live runs f in a life of the server, which may end at one of the calls to
		// the cloud, or get no or a wrong answer there.
		live := func(t *rapid.T, f func(ctx context.Context) error) {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			at := rapid.IntRange(0, 3).Draw(t, "trouble at call")
			after := rapid.Bool().Draw(t, "after the effect")
			what := rapid.SampledFrom([]string{"none", "none", "handover", "cancel", "unreachable", "quota", "invalid"}).Draw(t, "trouble")
			n := 0
			env.cloud.fail(func(_ context.Context, call string, v cloud.Volume, done bool) error {
				if done != after {
					return nil
				}
				if n++; n-1 != at {
					return nil
				}
				switch what {
				case "handover":
					cancel(state.ErrHandover)
					return ctx.Err()
				case "cancel":
					cancel(errors.New("the user cancelled it"))
					return ctx.Err()
				case "unreachable":
					return &cloud.UnreachableError{Err: errors.New("no answer")}
				}
				if done { // refusals come before
					return nil
				}
				switch what {
				case "quota":
					return &cloud.QuotaError{Place: v.Place, Err: errors.New("enough")}
				case "invalid":
					return &cloud.InvalidError{Place: v.Place, Err: errors.New("no")}
				}
				return nil
			})
			defer env.cloud.fail(nil)
			_ = f(ctx) // what counts is what is there afterwards
		}
		check := func(t *rapid.T) {
			onRecord := map[string]*state.Volume{}
			rows, err := s.Volumes().List(context.Background(), state.VolumeFilter{})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range rows {
				onRecord[v.Is.NameOnCloud] = v
				if v.ClusterHash == "" {
					continue
				}
				for _, c := range clusters {
					if c.Hash == v.ClusterHash {
						onRecord[own(v, c.Offer.Place, env.idOf(c), nil).NameOnCloud] = v
					}
				}
			}
			have := env.cloud.names()
			for _, name := range have {
				if onRecord[name] == nil {
					t.Fatalf("%s is in the cloud and on no record", name)
				}
			}
			for _, c := range clusters {
				held, err := s.Volumes().Mounts(context.Background(), c.Hash)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range held {
					name := m.Volume.Is.NameOnCloud
					if m.Volume.ClusterHash != "" {
						name = own(m.Volume, c.Offer.Place, env.idOf(c), nil).NameOnCloud
					}
					if !slices.Contains(have, name) || m.Volume.Stage != state.VolumeThere {
						t.Fatalf("%s holds %s (%s, %s), which is not there: %v", c.Name, m.Volume.Name, name, m.Volume.Stage, have)
					}
				}
			}
		}
		steps := map[string]func(*rapid.T){
			"": check,
			"apply": func(t *rapid.T) {
				b := pvc(names.Draw(t, "name"), fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "size")))
				live(t, func(ctx context.Context) error { return env.apply(ctx, b) })
			},
			"delete": func(t *rapid.T) {
				name := names.Draw(t, "name")
				live(t, func(ctx context.Context) error { return env.remove(ctx, name) })
			},
			"settle": func(t *rapid.T) { live(t, env.Settle) },
			"refresh": func(t *rapid.T) {
				live(t, env.Refresh)
			},
			"launch": func(t *rapid.T) {
				name := who.Draw(t, "cluster")
				if clusters[name] != nil {
					t.Skip("it is there")
				}
				mounts := map[string]task.VolumeMount{"/a": {Name: names.Draw(t, "name")}}
				if rapid.Bool().Draw(t, "with its own") {
					mounts["/b"] = task.VolumeMount{Size: "3"}
				}
				live(t, func(ctx context.Context) error {
					c, err := env.launch(ctx, name, mounts)
					if c != nil {
						clusters[name] = c
					}
					return err
				})
			},
			"down": func(t *rapid.T) {
				name := who.Draw(t, "cluster")
				if clusters[name] == nil {
					t.Skip("there is none")
				}
				if err := env.down(context.Background(), clusters[name]); err != nil {
					t.Fatal(err)
				}
				delete(clusters, name)
			},
		}
		t.Repeat(steps)
		for _, c := range clusters {
			if err := env.down(context.Background(), c); err != nil {
				t.Fatal(err)
			}
		}
		clear(clusters)
		if err := env.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
		check(t)
		for _, v := range env.list(t, true) {
			if *v.Status != api.VolumeReady || v.Ephemeral {
				t.Fatalf("settled and not ready: %+v", v)
			}
			if err := env.remove(context.Background(), v.Name); err != nil {
				t.Fatal(err)
			}
		}
		if left := env.cloud.names(); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
		if rows, _ := s.Volumes().List(context.Background(), state.VolumeFilter{}); len(rows) > 0 {
			t.Fatalf("left on record: %v", rows)
		}
	})
}
