//go:build unix

package execution_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

const copied = "name: copied\nresources: {infra: fluffycloud, cpus: 2+}\nrun: echo\n"

func cloned(from string) func(*api.LaunchBody) {
	return func(l *api.LaunchBody) { l.CloneDiskFrom = &from }
}

// source launches a cluster, puts a file onto its disk and stops it.
func source(t *testing.T, b *testbed.Bed, name string) {
	t.Helper()
	s := b.Boot(failpoint.Endless)
	if _, err := s.Launch(testbed.NewRequest(), name, copied); err != nil {
		t.Fatal(err)
	}
	if err := b.Cloud.Write(b.Cluster(name).Nodes[0].ID, "data", "of "+name); err != nil {
		t.Fatal(err)
	}
	if err := s.Clusters.Stop(s.Context(), s.Call(testbed.NewRequest()), api.StopBody{ClusterName: name}); err != nil {
		t.Fatal(err)
	}
}

// wantCopy wants a cluster that is up on a copy of a disk, and no image any more.
func wantCopy(t *testing.T, b *testbed.Bed, name, data string) {
	t.Helper()
	c := b.Cluster(name)
	if c == nil || c.Status != api.ClusterUp || c.Machine.Clone != nil {
		t.Fatalf("record: %+v", c)
	}
	if got, err := b.Cloud.Read(c.Nodes[0].ID, "data"); err != nil || got != data {
		t.Errorf("on the disk: %q, %v", got, err)
	}
	if images := b.Cloud.Images(); len(images) > 0 {
		t.Errorf("images: %+v", images)
	}
}

// However a launch with a copied disk is cut off, the cluster is made from a copy once, and
// no image is left.
func TestACopyOfADiskSurvivesACrashAtEveryStep(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, r := testbed.New(t), testbed.NewRequest()
		source(t, b, "old")
		var got *api.LaunchResult
		died, err := b.Resume(n, func(s *testbed.Server) (err error) {
			got, err = s.Launch(r, "new", copied, cloned("old"))
			return err
		})
		if err != nil || got.JobID == nil || *got.JobID != 1 {
			t.Fatalf("%v, %+v\n%s", err, got, r.Out)
		}
		wantCopy(t, b, "new", "of old")
		if m := b.Machines(); !slices.Equal(m, []string{"new running", "old stopped"}) && !slices.Equal(m, []string{"old stopped", "new running"}) {
			t.Errorf("machines: %v", m)
		}
		if jobs := b.Head("new").Jobs(); len(jobs) != 1 {
			t.Errorf("jobs: %+v", jobs)
		}
		return died
	})
}

// What a launch left that was cut off and that nobody resumes is removed: the cluster is
// given back, and a sweep removes an image that no record knows.
func TestTheImageOfALaunchThatNobodyResumesIsRemoved(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, r := testbed.New(t), testbed.NewRequest()
		source(t, b, "old")
		s := b.Boot(n)
		_, err := s.Launch(r, "new", copied, cloned("old"))
		died := s.Dead()
		if !died && err != nil {
			t.Fatal(err)
		}
		s = b.Boot(failpoint.Endless)
		if c := b.Cluster("new"); c != nil {
			if err := s.Clusters.ReleaseOrphan(s.Context(), "new", c.Hash, func(context.Context) (bool, error) { return false, nil }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if _, err := s.Provision.Sweep(s.Context(), provision.SweepOptions{End: func(provision.Stray) bool { return true }}); err != nil {
			t.Fatal(err)
		}
		if images := b.Cloud.Images(); len(images) > 0 {
			t.Errorf("images: %+v", images)
		}
		if c := b.Cluster("new"); c != nil && (c.Status != api.ClusterUp || c.Machine.Clone != nil) {
			t.Errorf("record: %+v", c)
		}
		return died
	})
}

// A launch that is cancelled at any step leaves no image, unless its cluster was up by then:
// that one's image is the next sweep's.
func TestACancelledCopyLeavesNoImageWhereverItIsCancelled(t *testing.T) {
	cancelled := errors.New("cancelled")
	testbed.EveryHalfStep(t, func(t *testing.T, n int) (hit bool) {
		b, r := testbed.New(t), testbed.NewRequest()
		source(t, b, "old")
		s := b.Boot(failpoint.Endless)
		ctx, cancel := context.WithCancelCause(s.Context())
		defer cancel(nil)
		s.At(n, func() { hit = true; cancel(cancelled) })
		from := "old"
		_, err := s.Executor.Launch(ctx, s.Call(r), api.LaunchBody{Task: copied, ClusterName: "new", CloneDiskFrom: &from})
		if !hit {
			return false
		}
		if c := b.Cluster("new"); c != nil && c.EverUp {
			if _, err := s.Provision.Sweep(s.Context(), provision.SweepOptions{End: func(provision.Stray) bool { return false }}); err != nil {
				t.Fatal(err)
			}
			wantCopy(t, b, "new", "of old")
			return true
		}
		if !errors.Is(err, cancelled) && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		b.WantMachines("old stopped")
		if images := b.Cloud.Images(); len(images) > 0 || b.Cluster("new") != nil {
			t.Errorf("images: %+v, record: %+v", images, b.Cluster("new"))
		}
		return true
	})
}

// A sweep leaves the image of a launch under way alone, and those of other installations.
func TestASweepSparesImagesThatAreNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		source(t, b, "old")
		s := b.Boot(failpoint.Endless)
		b.Inject(model.Fault{Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NoCapacity, Times: 1})
		swept := 0
		b.Reaching = func(string) { // the machines are there, the agents not yet
			swept++
			r, err := s.Provision.Sweep(s.Context(), provision.SweepOptions{End: func(provision.Stray) bool { return true }, Grace: -1})
			if err != nil || len(r.Images) > 0 || len(b.Cloud.Images()) != 1 {
				t.Errorf("swept: %+v, %v; images: %+v", r, err, b.Cloud.Images())
			}
		}
		if _, err := s.Launch(testbed.NewRequest(), "new", copied, cloned("old")); err != nil {
			t.Fatal(err)
		}
		if swept == 0 {
			t.Error("nothing was swept")
		}
		b.Reaching = nil
		wantCopy(t, b, "new", "of old")
	})
}

// An image that cannot be removed when the cluster is up is removed by the next sweep.
func TestAnImageThatStaysIsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := testbed.New(t), testbed.NewRequest()
		source(t, b, "old")
		s := b.Boot(failpoint.Endless)
		b.Inject(model.Fault{Kind: model.Fail, Op: "images.delete", Code: fluffyapi.Forbidden})
		if _, err := s.Launch(r, "new", copied, cloned("old")); err != nil {
			t.Fatal(err)
		}
		if c := b.Cluster("new"); c.Status != api.ClusterUp || c.Machine.Clone == nil || len(b.Cloud.Images()) != 1 || !strings.Contains(r.Out.String(), "could not be removed yet") {
			t.Fatalf("%+v\n%s", c, r.Out)
		}
		b.Cloud.Remove("")
		if _, err := s.Provision.Sweep(s.Context(), provision.SweepOptions{End: func(provision.Stray) bool { return false }}); err != nil {
			t.Fatal(err)
		}
		wantCopy(t, b, "new", "of old")
	})
}

// A launch that fails leaves neither machines nor an image.
func TestAFailedCopyLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		source(t, b, "old")
		s := b.Boot(failpoint.Endless)
		b.Inject(model.Fault{Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NoCapacity})
		if _, err := s.Launch(testbed.NewRequest(), "new", copied, cloned("old")); !isType(err, api.ErrResourcesUnavailable) {
			t.Fatal(err)
		}
		b.Cloud.Remove("")
		b.WantMachines("old stopped")
		if images := b.Cloud.Images(); len(images) > 0 || b.Cluster("new") != nil {
			t.Errorf("images: %+v", images)
		}
		if err := s.Start(testbed.NewRequest(), "old"); err != nil { // the source is as it was
			t.Error(err)
		}
	})
}

// What cannot be copied is refused in one sentence before anything is planned or made.
func TestWhatCannotBeCopiedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		source(t, b, "old")
		s := b.Boot(failpoint.Endless)
		if _, err := s.Launch(testbed.NewRequest(), "up", copied); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "two", "num_nodes: 2\n"+copied); err != nil {
			t.Fatal(err)
		}
		if err := s.Clusters.Stop(s.Context(), s.Call(testbed.NewRequest()), api.StopBody{ClusterName: "two"}); err != nil {
			t.Fatal(err)
		}
		held := func(change func(*state.Cluster)) {
			c := b.Cluster("old")
			if _, err := b.Store.Clusters().Update(t.Context(), c.Name, c.Hash, func(c *state.Cluster) error { change(c); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		before := b.Machines()
		for _, tt := range []struct {
			name, task, from, cluster, kind, says string
			change, undo                          func(*state.Cluster)
		}{
			{"unknown", copied, "nobody", "new", api.ErrClusterDoesNotExist, "does not exist", nil, nil},
			{"itself", copied, "old", "old", api.ErrNotSupported, "only a new cluster", nil, nil},
			{"it runs", copied, "up", "new", api.ErrNotSupported, "sky stop up", nil, nil},
			{"several machines", copied, "two", "new", api.ErrNotSupported, "has 2 machines", nil, nil},
			{"the name is taken", copied, "old", "up", api.ErrNotSupported, "only a new cluster", nil, nil},
			{"another cloud", "resources: {infra: aws}\nrun: x\n", "old", "new", api.ErrNotSupported, "cannot be used on aws; take: --infra fluffycloud", nil, nil},
			{"another region", "resources: {infra: fluffycloud/south}\nrun: x\n", "old", "new", api.ErrNotSupported, "Take: --infra fluffycloud/north", nil, nil},
			{"an image", "resources: {infra: fluffycloud, image_id: docker:x}\nrun: x\n", "old", "new", api.ErrNotSupported, "take image_id out", nil, nil},
			{"a small disk", "resources: {infra: fluffycloud, disk_size: 10}\nrun: x\n", "old", "new", api.ErrNotSupported, "take --disk-size 256", nil, nil},
			{"another user's", copied, "old", "new", api.ErrPermissionDenied, "only its own user", func(c *state.Cluster) { c.UserHash = "bob" }, func(c *state.Cluster) { c.UserHash = testbed.Ann.ID }},
			{"another workspace", copied, "old", "new", api.ErrNotSupported, "--workspace team", func(c *state.Cluster) { c.Workspace = "team" }, func(c *state.Cluster) { c.Workspace = state.DefaultWorkspace }},
			{"in a container", copied, "old", "new", api.ErrNotSupported, "run in a container", func(c *state.Cluster) { c.Notes.Container = "x" }, func(c *state.Cluster) { c.Notes.Container = "" }},
			{"a job's", copied, "old", "new", api.ErrNotSupported, "alone decides", func(c *state.Cluster) { c.Holder = state.JobHolder(1) }, func(c *state.Cluster) { c.Holder = state.Holder{} }},
			{"a cloud of another version", copied, "old", "new", api.ErrNotSupported, "does not know", func(c *state.Cluster) { c.Offer.Cloud = "lambda" }, func(c *state.Cluster) { c.Offer.Cloud = "fluffycloud" }},
		} {
			if tt.change != nil {
				held(tt.change)
			}
			r := testbed.NewRequest()
			_, err := s.Launch(r, tt.cluster, tt.task, cloned(tt.from))
			if !isType(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v", tt.name, err)
			}
			name := tt.cluster
			_, oerr := s.Executor.Optimize(s.Context(), s.Call(r), api.DagBody{Dag: tt.task, CloneDiskFrom: &tt.from, RequestOptions: &api.RequestOptions{ClusterName: &name}})
			if !isType(oerr, tt.kind) || !strings.Contains(oerr.Error(), tt.says) {
				t.Errorf("%s, planned: %v", tt.name, oerr)
			}
			if strings.Contains(r.Out.String(), "Considered resources") {
				t.Errorf("%s was planned:\n%s", tt.name, r.Out)
			}
			if tt.undo != nil {
				held(tt.undo)
			}
		}
		if now := b.Machines(); !slices.Equal(now, before) || len(b.Cloud.Images()) > 0 {
			t.Errorf("machines: %v, images: %v", now, b.Cloud.Images())
		}
	})
}
