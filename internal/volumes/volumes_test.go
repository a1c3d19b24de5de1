package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// refused fails the test unless err is an [*api.Error] of the type that says all of
// the words.
func refused(t *testing.T, err error, kind string, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		t.Fatalf("not refused properly: %v", err)
	}
	if e.Type != kind {
		t.Errorf("%s is of the type %s, not %s", e.Message, e.Type, kind)
	}
	for _, w := range words {
		if !strings.Contains(e.Message+"\n"+e.Hint, w) {
			t.Errorf("%q is not in: %s\n%s", w, e.Message, e.Hint)
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestApplyListDelete(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	b := pvc("data", "10Gi")
	b.Labels = map[string]string{"team": "vision"}
	b.Config = map[string]any{"access_mode": "ReadWriteMany", "namespace": nil}
	b.CreationYAML = new("name: data")
	ok(t, env.apply(ctx, b))
	ok(t, env.apply(ctx, b)) // again
	if n := env.cloud.calls["make"]; n != 1 {
		t.Errorf("made %d times", n)
	}
	v := env.list(t, false)["data"]
	if !strings.HasPrefix(v.NameOnCloud, "data-0a0b0c0d-") {
		t.Errorf("there called %s", v.NameOnCloud)
	}
	v.NameOnCloud, v.LaunchedAt = "x", 0
	got, err := json.Marshal(v)
	ok(t, err)
	want := `{"name":"data","type":"k8s-pvc","launched_at":0,"cloud":"kubernetes","region":"ctx","zone":null,"size":"10",` +
		`"config":{"access_mode":"ReadWriteMany","labels":{"team":"vision"}},"name_on_cloud":"x","user_hash":"0a0b0c0d","user_name":"ann","workspace":"default",` +
		`"last_attached_at":null,"last_use":"sky volumes apply","status":"READY","usedby_pods":[],"usedby_clusters":[],"is_ephemeral":false,` +
		`"usedby_fetch_failed":false,"error_message":null,"creation_yaml":"name: data"}`
	if string(got) != want {
		t.Errorf("listed as\n%s, not\n%s", got, want)
	}
	ok(t, env.remove(ctx, "data"))
	refused(t, env.remove(ctx, "data"), api.ErrVolumeNotFound, `"data" does not exist`, "sky volumes ls")
	if left := env.cloud.names(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if list, err := env.List(ctx, env.call, api.VolumesListBody{}); err != nil || list == nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestWhatIsDifferentIsSaid(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	ok(t, env.apply(ctx, pvc("data", "10")))
	change := func(f func(*api.VolumeApplyBody)) error {
		b := pvc("data", "10")
		f(&b)
		return env.apply(ctx, b)
	}
	for name, c := range map[string]struct {
		change func(*api.VolumeApplyBody)
		words  []string
	}{
		"size": {func(b *api.VolumeApplyBody) { b.Size = new(api.Number(20)) }, []string{"its size is 10 GB, not 20 GB", "sky volumes delete data"}},
		"type": {func(b *api.VolumeApplyBody) {
			b.VolumeType, b.Size = task.VolumeHostPath, nil
			b.Config = map[string]any{"host_path": "/x"}
		}, []string{"its type is k8s-pvc, not k8s-hostpath"}},
		"context": {func(b *api.VolumeApplyBody) { b.Region = new("other") }, []string{"its context or region is ctx, not other"}},
		"mode":    {func(b *api.VolumeApplyBody) { b.Config = map[string]any{"access_mode": "ReadWriteMany"} }, []string{"its access mode is ReadWriteOnce, not ReadWriteMany"}},
		"class":   {func(b *api.VolumeApplyBody) { b.Config = map[string]any{"storage_class_name": "fast"} }, []string{"its storage class is not set, not fast"}},
		"labels":  {func(b *api.VolumeApplyBody) { b.Labels = map[string]string{"a": "b"} }, []string{"its labels is map[], not map[a:b]"}},
		"use":     {func(b *api.VolumeApplyBody) { b.UseExisting = new(true) }, []string{"its use_existing is false, not true"}},
	} {
		t.Run(name, func(t *testing.T) { refused(t, change(c.change), api.ErrValue, c.words...) })
	}
	// What the cloud has chosen may be said.
	ok(t, change(func(b *api.VolumeApplyBody) {
		b.Region = new("ctx")
		b.Config = map[string]any{"access_mode": "ReadWriteOnce"}
	}))
}

func TestWhatCanNeverWorkIsRefused(t *testing.T) {
	env := newTestEnv(t)
	for name, c := range map[string]struct {
		body  api.VolumeApplyBody
		kind  string
		words string
	}{
		"no size":  {pvc("data", ""), api.ErrValue, "needs a size"},
		"bad name": {pvc("Bad_Name", "1"), api.ErrValue, "cannot name a volume"},
		"no cloud of ours": {api.VolumeApplyBody{Name: "net", VolumeType: task.VolumeRunPod, Cloud: "runpod", Region: new("US"), Zone: new("US-1"), Size: new(api.Text("10"))},
			api.ErrNotSupported, "no volumes on RunPod. Kinds that it can make: k8s-pvc, k8s-hostpath"},
		"other cloud":   {api.VolumeApplyBody{Name: "data", VolumeType: task.VolumeClaim, Cloud: "aws", Size: new(api.Text("10"))}, api.ErrValue, "invalid cloud aws for volume type k8s-pvc"},
		"unknown type":  {api.VolumeApplyBody{Name: "data", VolumeType: "floppy", Cloud: "kubernetes"}, api.ErrValue, `"floppy" is no type of volume`},
		"provider says": {api.VolumeApplyBody{Name: "data", VolumeType: task.VolumeClaim, Cloud: "kubernetes", Size: new(api.Text("1")), Config: map[string]any{"storage_class_name": "none"}}, api.ErrValue, "no such storage class"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, env.apply(t.Context(), c.body), c.kind, c.words)
			b := c.body
			infra := infraOf(b)
			refused(t, env.Validate(api.VolumeValidateBody{Name: &b.Name, VolumeType: &b.VolumeType, Infra: &infra, Size: b.Size, Config: b.Config}), c.kind, c.words)
		})
	}
	if list := env.list(t, false); len(list) > 0 {
		t.Errorf("on record: %v", list)
	}
}

func TestExistingVolumesAreNeverDeleted(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	b := pvc("theirs", "")
	b.UseExisting = new(true)
	refused(t, env.apply(ctx, b), api.ErrValue, "there is no claim theirs")
	if list := env.list(t, false); len(list) > 0 {
		t.Errorf("on record: %v", list)
	}
	env.cloud.foreign["theirs"] = true
	ok(t, env.apply(ctx, b))
	v := env.list(t, true)["theirs"]
	if v.NameOnCloud != "theirs" || *v.Size != "7" {
		t.Errorf("%+v", v)
	}
	env.cloud.pods["theirs"] = []string{"somebody"}
	ok(t, env.remove(ctx, "theirs"))
	if !strings.Contains(env.said.String(), "forgotten; what it was taken from stays") {
		t.Errorf("said:\n%s", env.said)
	}
}

// One name by several at once: one volume is made, and those who ask for it as it
// is succeed.
func TestAppliesAtOnce(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		wg.Go(func() { errs[i] = env.apply(ctx, pvc("data", map[bool]string{true: "10", false: "20"}[i%2 == 0])) })
	}
	wg.Wait()
	bad := 0
	for _, err := range errs {
		if err != nil {
			refused(t, err, api.ErrValue, "exists and is different: its size")
			bad++
		}
	}
	if bad != 3 || env.cloud.calls["make"] != 1 || len(env.cloud.names()) != 1 {
		t.Errorf("%d failed, made %d times: %v", bad, env.cloud.calls["make"], env.cloud.names())
	}
}

func TestDeletingWhatIsUsed(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	ok(t, env.apply(ctx, pvc("data", "10")))
	c, err := env.launch(ctx, "train", map[string]task.VolumeMount{"/data": {Name: "data"}, "/tmp/x": {Size: "5"}})
	ok(t, err)
	refused(t, env.remove(ctx, "data"), api.ErrValue, `"data" is in use by the cluster train`, "sky down train")
	refused(t, env.Delete(ctx, env.call, api.VolumesDeleteBody{Names: []string{"data"}, Purge: true}), api.ErrValue, "in use by the cluster train")
	list := env.list(t, false)
	if len(list) != 2 || *list["data"].Status != api.VolumeInUse || !slices.Equal(list["data"].UsedByClusters, []string{"train"}) || list["data"].LastAttachedAt == nil {
		t.Fatalf("%+v", list)
	}
	for name, v := range list {
		if !v.Ephemeral {
			continue
		}
		if !strings.HasPrefix(v.NameOnCloud, "train-oc-") || *v.Region != "ctx" || *v.Size != "5" || *v.Status != api.VolumeInUse {
			t.Errorf("%+v", v)
		}
		refused(t, env.remove(ctx, name), api.ErrValue, "goes with its cluster", "sky down train")
		refused(t, env.apply(ctx, pvc(name, "5")), api.ErrValue, "goes with its cluster")
	}
	ok(t, env.down(ctx, c))
	if list := env.list(t, true); len(list) != 1 || *list["data"].Status != api.VolumeReady {
		t.Fatalf("%+v", list)
	}
	// What is not a cluster of ours keeps it from going, too, and it can be used on.
	on := env.list(t, false)["data"].NameOnCloud
	env.cloud.pods[on] = []string{"pod notebook"}
	refused(t, env.remove(ctx, "data"), api.ErrValue, "mounted by pod notebook and stays")
	if v := env.list(t, true)["data"]; *v.Status != api.VolumeInUse || !slices.Equal(v.UsedByPods, []string{"pod notebook"}) {
		t.Errorf("%+v", v)
	}
	delete(env.cloud.pods, on)
	ok(t, env.remove(ctx, "data"))
}

func TestACloudThatCannotBeAsked(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	ok(t, env.apply(ctx, pvc("data", "10")))
	ok(t, env.apply(ctx, pvc("more", "10")))
	env.cloud.fail(func(context.Context, string, cloud.Volume, bool) error {
		return &cloud.UnreachableError{Err: errors.New("connection refused")}
	})
	v := env.list(t, true)["data"]
	if !v.FetchFailed || *v.Status != api.VolumeReady || !strings.Contains(*v.ErrorMessage, "connection refused") || !strings.Contains(*v.ErrorMessage, "as seen") {
		t.Errorf("%+v %s", v, *v.ErrorMessage)
	}
	if n := env.cloud.calls["look"]; n != 1 {
		t.Errorf("asked %d times about two volumes in one place", n)
	}
	err := env.remove(ctx, "data", "more")
	refused(t, err, api.ErrRuntime, `"data" could not be deleted yet`, "connection refused", "sky volumes delete --purge data", "--purge more")
	v = env.list(t, false)["data"]
	if *v.Status != api.VolumeNotReady || !strings.Contains(*v.ErrorMessage, "being deleted: ") {
		t.Errorf("%+v", v)
	}
	if _, err := env.launch(ctx, "c", map[string]task.VolumeMount{"/d": {Name: "data"}}); err == nil {
		t.Error("launched with a volume that is being deleted")
	} else {
		refused(t, err, api.ErrVolumeNotReady, "it is being deleted")
	}
	ok(t, env.Delete(ctx, env.call, api.VolumesDeleteBody{Names: []string{"more"}, Purge: true}))
	if !strings.Contains(env.said.String(), "What may be left and cost money: k8s-pvc in kubernetes/ctx, 10 GB, there called more-") {
		t.Errorf("said:\n%s", env.said)
	}
	env.cloud.fail(nil)
	ok(t, env.Settle(ctx))
	if list := env.list(t, true); len(list) > 0 || len(env.cloud.names()) != 1 {
		t.Errorf("%v, %v", list, env.cloud.names())
	}
}

// A volume that was being made or deleted when its server died ends as it was
// meant to, whatever had been done by then.
func TestSettlingWhatACrashLeft(t *testing.T) {
	for name, c := range map[string]struct {
		stage state.VolumeStage
		there bool
	}{
		"before it was made": {state.VolumeMaking, false}, "after it was made": {state.VolumeMaking, true},
		"before it was deleted": {state.VolumeDeleting, true}, "after it was deleted": {state.VolumeDeleting, false},
	} {
		for _, by := range []string{"settle", "apply", "delete"} {
			t.Run(name+"/"+by, func(t *testing.T) {
				env, ctx := newTestEnv(t), t.Context()
				ok(t, env.apply(ctx, pvc("data", "10")))
				v, err := env.Store.Volumes().Get(ctx, "data")
				ok(t, err)
				v.Stage = c.stage
				ok(t, env.Store.Volumes().Save(ctx, v))
				if !c.there {
					clear(env.cloud.have)
				}
				there := c.stage == state.VolumeMaking
				switch by {
				case "settle":
					ok(t, env.Settle(ctx))
				case "apply":
					there = true
					ok(t, env.apply(ctx, pvc("data", "10")))
				case "delete":
					there = false
					ok(t, env.remove(ctx, "data"))
				}
				list := env.list(t, true)
				if have := env.cloud.names(); len(have) != len(list) || (len(list) == 1) != there {
					t.Fatalf("%v in the cloud, %v on record", have, slices.Collect(maps.Keys(list)))
				}
				if there && *list["data"].Status != api.VolumeReady {
					t.Errorf("%+v", list)
				}
			})
		}
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	ok(t, env.apply(ctx, pvc("data", "10")))
	mate, stranger := env.as("mate", "default"), env.as("stranger", "other")
	if len(mate.list(t, false)) != 1 || len(stranger.list(t, false)) != 0 {
		t.Error("a volume is seen by whom it should not be, or not by whom it should")
	}
	refused(t, mate.remove(ctx, "data"), api.ErrPermissionDenied, "belongs to ann")
	refused(t, stranger.remove(ctx, "data"), api.ErrVolumeNotFound, "does not exist")
	refused(t, stranger.apply(ctx, pvc("data", "10")), api.ErrValue, "taken by a volume in a workspace that you may not use")
	ok(t, mate.apply(ctx, pvc("data", "10")))
	_, err := stranger.launch(ctx, "c", map[string]task.VolumeMount{"/d": {Name: "data"}})
	refused(t, err, api.ErrVolumeNotFound, "does not exist")
	_, err = mate.launch(ctx, "c", map[string]task.VolumeMount{"/d": {Name: "data"}})
	ok(t, err)
	if names, err := stranger.Names(ctx, stranger.call.Scope, ""); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
	if names, err := mate.Names(ctx, mate.call.Scope, "da"); err != nil || !slices.Equal(names, []string{"data"}) {
		t.Errorf("%v, %v", names, err)
	}
}

func TestDeleteGoesOnAfterOneThatFails(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	ok(t, env.apply(ctx, pvc("a", "1")))
	ok(t, env.apply(ctx, pvc("b", "1")))
	refused(t, env.remove(ctx, "a", "nosuch", "b"), api.ErrVolumeNotFound, "nosuch")
	if list := env.list(t, false); len(list) > 0 {
		t.Errorf("left: %v", list)
	}
}
