package volumes

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// put makes a volume's record as if it had been made.
func (env *testEnv) put(t *testing.T, name string, change func(*state.Volume)) {
	t.Helper()
	ok(t, env.apply(t.Context(), pvc(name, "10")))
	v, err := env.Store.Volumes().Get(t.Context(), name)
	ok(t, err)
	change(v)
	ok(t, env.Store.Volumes().Save(t.Context(), v))
}

func TestVolumesSayWhereATaskRuns(t *testing.T) {
	env := newTestEnv(t)
	env.put(t, "here", func(v *state.Volume) {})
	env.put(t, "there", func(v *state.Volume) { v.Is.Place.Region = "far" })
	env.put(t, "many", func(v *state.Volume) { v.Is.AccessMode = cloud.ReadWriteMany })
	env.put(t, "folder", func(v *state.Volume) { v.Is.Type, v.Is.AccessMode = cloud.VolumeHostPath, "" })
	env.put(t, "lost", func(v *state.Volume) { v.Is.Class = "lost" })
	env.put(t, "single", func(v *state.Volume) { v.Is.AccessMode = cloud.ReadWriteOncePod })
	env.put(t, "elsewhere", func(v *state.Volume) { v.Workspace = "team" })
	env.put(t, "vanished", func(v *state.Volume) { v.Is.NameOnCloud = "nowhere" })
	_, err := env.launch(t.Context(), "holder", map[string]task.VolumeMount{"/a": {Name: "single"}})
	ok(t, err)

	anywhere, own := []task.Resources{{}}, task.VolumeMount{Size: "5"}
	for name, c := range map[string]struct {
		nodes  int
		mounts map[string]task.VolumeMount
		ask    []task.Resources
		want   string // places, or the class of the error and words of it
	}{
		"forced":            {1, map[string]task.VolumeMount{"/d": {Name: "here"}}, anywhere, "kubernetes/ctx"},
		"all alternatives":  {1, map[string]task.VolumeMount{"/d": {Name: "here"}}, []task.Resources{{Cloud: "kubernetes"}, {}}, "kubernetes/ctx kubernetes/ctx"},
		"agreeing":          {1, map[string]task.VolumeMount{"/d": {Name: "here"}, "/e": {Name: "many"}, "/f": own}, anywhere, "kubernetes/ctx"},
		"one of regions":    {1, map[string]task.VolumeMount{"/d": {Name: "here"}}, []task.Resources{{Cloud: "kubernetes", Regions: []string{"x", "ctx"}}}, "kubernetes/ctx"},
		"own":               {1, map[string]task.VolumeMount{"/d": own}, anywhere, "kubernetes"},
		"own, elsewhere":    {1, map[string]task.VolumeMount{"/d": own}, []task.Resources{{Cloud: "aws"}, {Cloud: "kubernetes", Region: "x"}}, "kubernetes/x"},
		"own, nowhere":      {1, map[string]task.VolumeMount{"/d": own}, []task.Resources{{Cloud: "aws"}}, "VolumeTopologyConflictError which Kubernetes alone can do; the task asks for aws"},
		"apart":             {1, map[string]task.VolumeMount{"/d": {Name: "here"}, "/e": {Name: "there"}}, anywhere, "VolumeTopologyConflictError no machine can mount both"},
		"another cloud":     {1, map[string]task.VolumeMount{"/d": {Name: "here"}}, []task.Resources{{}, {Cloud: "aws", Region: "us"}}, "VolumeTopologyConflictError the task asks for aws/us"},
		"another context":   {1, map[string]task.VolumeMount{"/d": {Name: "here"}}, []task.Resources{{Cloud: "kubernetes", Region: "x"}}, "VolumeTopologyConflictError kubernetes/x"},
		"other regions":     {1, map[string]task.VolumeMount{"/d": {Name: "here"}}, []task.Resources{{Regions: []string{"x"}}}, "VolumeTopologyConflictError (x)"},
		"two nodes":         {2, map[string]task.VolumeMount{"/d": {Name: "here"}}, anywhere, "ValueError here with access mode ReadWriteOnce is not supported for multi-node tasks"},
		"two nodes, many":   {2, map[string]task.VolumeMount{"/d": {Name: "many"}}, anywhere, "kubernetes/ctx"},
		"two nodes, folder": {2, map[string]task.VolumeMount{"/d": {Name: "folder"}}, anywhere, "kubernetes/ctx"},
		"two nodes, own":    {2, map[string]task.VolumeMount{"/d": own}, anywhere, "ValueError The volume at /d with access mode ReadWriteOnce"},
		"own for many":      {2, map[string]task.VolumeMount{"/d": {Size: "1", Config: map[string]any{"access_mode": "ReadWriteMany"}}}, anywhere, "kubernetes"},
		"own, wrong":        {1, map[string]task.VolumeMount{"/d": {Size: "1", Config: map[string]any{"access_mode": "Often"}}}, anywhere, `ValueError volumes./d: config.access_mode: "Often" is no access mode`},
		"unknown":           {1, map[string]task.VolumeMount{"/d": {Name: "heer"}}, anywhere, "VolumeNotFoundError Did you mean here?"},
		"not ready":         {1, map[string]task.VolumeMount{"/d": {Name: "lost"}}, anywhere, "VolumeNotReadyError the disk is lost"},
		"vanished":          {1, map[string]task.VolumeMount{"/d": {Name: "vanished"}}, anywhere, "VolumeNotReadyError not there any more"},
		"in use":            {1, map[string]task.VolumeMount{"/d": {Name: "single"}}, anywhere, "VolumeNotReadyError in use by cluster holder"},
		"another workspace": {1, map[string]task.VolumeMount{"/d": {Name: "elsewhere"}}, anywhere, "ValueError is in the workspace team"},
	} {
		t.Run(name, func(t *testing.T) {
			tk := &task.Task{NumNodes: c.nodes, Volumes: c.mounts, Resources: c.ask}
			use, err := env.Resolve(t.Context(), env.call, env.call.Config, tk, "new")
			if err == nil {
				_, err = use.Bind(tk)
			}
			if kind, words, isError := strings.Cut(c.want, " "); isError && !strings.HasPrefix(kind, "kubernetes") {
				refused(t, err, kind, words)
				return
			}
			ok(t, err)
			var got []string
			for _, r := range tk.Resources {
				got = append(got, cloud.Place{Cloud: r.Cloud, Region: r.Region}.String())
				if len(r.Regions) > 0 {
					t.Errorf("several regions: %v", r.Regions)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("runs in %v", got)
			}
		})
	}
}

// A launch that a crash cut off finds its volume in use by itself.
func TestAResumedLaunchHoldsItsVolume(t *testing.T) {
	env := newTestEnv(t)
	env.put(t, "single", func(v *state.Volume) { v.Is.AccessMode = cloud.ReadWriteOncePod })
	mounts := map[string]task.VolumeMount{"/a": {Name: "single"}}
	_, err := env.launch(t.Context(), "c", mounts)
	ok(t, err)
	tk := &task.Task{NumNodes: 1, Volumes: mounts, Resources: []task.Resources{{}}}
	_, err = env.Resolve(t.Context(), env.call, env.call.Config, tk, "c")
	ok(t, err)
}

func TestWhatAClusterMounts(t *testing.T) {
	env, ctx := newTestEnv(t), t.Context()
	ok(t, env.apply(ctx, pvc("data", "10")))
	c, err := env.launch(ctx, "c", map[string]task.VolumeMount{"~/d": {Name: "data", SubPath: "a/b"}, "/own": {Size: "5", Labels: map[string]string{"x": "y"}}})
	ok(t, err)
	at, err := env.Mounted(ctx, c, func(p cloud.Place) map[string]any { return map[string]any{"at": p.Region} })
	ok(t, err)
	id := cloud.ClusterID{Installation: "i1", Name: "other-name", Hash: c.Hash}
	got := at(cloud.Place{Cloud: "kubernetes", Region: "r2"}, id)
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	own, data := got[0], got[1]
	if own.Path != "/own" || own.Volume.Cluster != id || own.Volume.Place.Region != "r2" || !strings.HasPrefix(own.Volume.NameOnCloud, "other-name-") ||
		own.Volume.SizeGB != 5 || own.Volume.Labels["x"] != "y" || own.Volume.Settings["at"] != "r2" || own.Volume.Installation != "i1" {
		t.Errorf("its own: %+v", own)
	}
	if data.Path != "~/d" || data.SubPath != "a/b" || data.Volume.Cluster != (cloud.ClusterID{}) || data.Volume.Place.Region != "ctx" || data.Volume.Installation != "i1" {
		t.Errorf("what exists: %+v", data)
	}
	for want, mounts := range map[string]map[string]task.VolumeMount{
		"":                             {"~/d": {Name: "data", SubPath: "a/b"}, "/own": {Size: "9"}},
		"~/d (data)":                   {"~/d": {Name: "data"}},
		"/new (a new volume), /o (oo)": {"/new": {Size: "1"}, "/o": {Name: "oo"}},
	} {
		if lacks, err := env.Lacks(ctx, c, &task.Task{Volumes: mounts}); err != nil || lacks != want {
			t.Errorf("%v: lacks %q, %v", mounts, lacks, err)
		}
	}
	if lacks, err := env.Lacks(ctx, &state.Cluster{Hash: "plain"}, &task.Task{Volumes: map[string]task.VolumeMount{"/d": {Name: "data"}}}); err != nil || lacks != "/d (data)" {
		t.Errorf("lacks %q, %v", lacks, err)
	}
}
