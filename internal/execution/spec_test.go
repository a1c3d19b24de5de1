package execution

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

var (
	plainCluster = state.Cluster{Name: "dev", NumNodes: 4, Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "east"}, InstanceType: "p4", Accelerators: map[string]float64{"A100": 8}}}
	ann          = cluster.Call{User: state.User{ID: "a1b2", Name: "ann"}}
)

// What a job is told about its accelerators is of the request that its cluster satisfies.
func TestAJobSaysWhatItTakesOfEachNode(t *testing.T) {
	gpus := func(name string, n float64) task.Resources {
		return task.Resources{Accelerators: []task.Accelerator{{Name: name, Count: n}}}
	}
	for _, tt := range []struct {
		name      string
		nodes     int
		resources []task.Resources
		shown     string
		demand    map[string]float64
	}{
		{"nothing asked", 0, []task.Resources{{}}, "1x[CPU:1+]", nil},
		{"several nodes", 3, []task.Resources{{}}, "3x[CPU:1+]", nil},
		{"accelerators", 2, []task.Resources{gpus("A100", 4)}, "2x[A100:4]", map[string]float64{"A100": 4}},
		{"half of one", 1, []task.Resources{gpus("A100", 0.5)}, "1x[A100:0.5]", map[string]float64{"A100": 0.5}},
		{"the alternative that the cluster has", 1, []task.Resources{gpus("H100", 8), gpus("A100", 1)}, "1x[A100:1]", map[string]float64{"A100": 1}},
		{"the first of two that it has", 1, []task.Resources{gpus("A100", 2), gpus("A100", 1)}, "1x[A100:2]", map[string]float64{"A100": 2}},
		{"by memory", 1, []task.Resources{gpus("40GB+", 2)}, "1x[A100:2]", map[string]float64{"A100": 2}},
		{"by a part of the name", 1, []task.Resources{gpus("a10", 2), gpus("a100", 1)}, "1x[A100:1]", map[string]float64{"A100": 1}},
		{"none that it has", 1, []task.Resources{gpus("H100", 8), gpus("L4", 1)}, "1x[H100:8]", map[string]float64{"H100": 8}},
	} {
		c := plainCluster
		s := submission{call: ann, cluster: &c, task: &task.Task{NumNodes: tt.nodes, Resources: tt.resources, Run: "x"}}
		if got := s.spec(); got.Resources != tt.shown || !maps.Equal(got.Accelerators, tt.demand) || got.NumNodes != max(tt.nodes, 1) {
			t.Errorf("%s: %q, %v, %d nodes", tt.name, got.Resources, got.Accelerators, got.NumNodes)
		}
	}
}

// A job says where its task mounts buckets: it does not start without them.
func TestAJobSaysWhereItsTaskMountsBuckets(t *testing.T) {
	c := plainCluster
	tk := &task.Task{Run: "python", Resources: []task.Resources{{}}, StorageMounts: map[string]task.StorageMount{
		"~/m": {Mode: "MOUNT"}, "/data": {Mode: "MOUNT_CACHED"}, "~/copied": {Mode: "COPY"},
	}}
	s := submission{call: ann, cluster: &c, task: tk}
	if got := s.spec().Mounts; !slices.Equal(got, []string{"/data", "~/m"}) {
		t.Errorf("%q", got)
	}
}

func TestAJobKnowsWhoseItIsAndWhatItIsMadeOf(t *testing.T) {
	c := plainCluster
	tk := &task.Task{Name: "train", Setup: "pip", Run: "python", Resources: []task.Resources{{}}, Envs: map[string]string{"A": "1", "B": "1"},
		Metadata: map[string]any{"git_commit": "abc", "other": 1}}
	s := submission{call: ann, cluster: &c, task: tk, setup: true}
	got := s.spec()
	if got.Name != "train" || got.TaskName != "train" || got.User != "ann" || got.UserHash != "a1b2" || got.Setup != "pip" || got.Run != "python" || got.TaskID != "" ||
		!maps.Equal(got.Metadata, map[string]string{"git_commit": "abc"}) || got.Envs["A"] != "1" || len(got.Secrets) != 0 {
		t.Errorf("%+v", got)
	}
	s.setup, tk.Metadata = false, nil
	s.held = &Held{TaskID: "sky-7", Envs: map[string]string{"B": "2"}}
	if got := s.spec(); got.Setup != "" || got.TaskID != "sky-7" || got.Envs["A"] != "1" || got.Envs["B"] != "2" || len(got.Metadata) != 0 {
		t.Errorf("of a managed job: %+v", got)
	}
	if tk.Envs["B"] != "1" {
		t.Error("the task itself was changed")
	}
	tk.Envs = nil
	if got := s.spec(); got.Envs["B"] != "2" {
		t.Errorf("without variables of its own: %+v", got)
	}
}

// Nodes that share the server's file system take files only where nobody else's are.
func TestWhereAFileMayGo(t *testing.T) {
	for dst, want := range map[string]struct {
		lands string
		local bool // a local cluster takes it
	}{
		"~/data":       {"~/data", true},
		"~":            {"~", true},
		"/tmp/data":    {"/tmp/data", true},
		"data/x":       {"~/sky_workdir/data/x", true},
		"./data":       {"~/sky_workdir/data", true},
		"../data":      {"~/data", true},
		"/data":        {"/data", false},
		"/etc/x":       {"/etc/x", false},
		"/tmp":         {"/tmp", false},
		"/tmpx/y":      {"/tmpx/y", false},
		"~someone/all": {"~someone/all", false},
	} {
		for _, name := range []string{"local", "aws"} {
			c := plainCluster
			c.Offer.Cloud = name
			s := submission{call: ann, cluster: &c, task: &task.Task{FileMounts: map[string]string{dst: "/here"}}}
			if got := mounts(s.task); len(got) != 1 || got[0] != (mount{want.lands, "/here"}) {
				t.Errorf("%s: %+v", dst, got)
			}
			err := s.check()
			if takes := want.local || name == "aws"; (err == nil) != takes {
				t.Errorf("%s on %s: %v", dst, name, err)
			}
			if err != nil {
				if e := said(t, err); e.Type != api.ErrValue || !strings.Contains(e.Message, want.lands+" is outside the home folder") || !strings.Contains(e.Message, "use ~/"+dst[strings.LastIndex(dst, "/")+1:]) {
					t.Errorf("%s: %v", dst, err)
				}
			}
		}
	}
	s := submission{task: &task.Task{FileMounts: map[string]string{"b": "2", "/a": "1", "~/c": "3"}}}
	if got := mounts(s.task); !slices.Equal(got, []mount{{"/a", "1"}, {"~/sky_workdir/b", "2"}, {"~/c", "3"}}) {
		t.Errorf("their order: %+v", got)
	}
}

// Nodes that are no machines take no files and run nothing; a launch without either
// is fine.
func TestNodesThatAreNoMachinesTakeNothing(t *testing.T) {
	none := state.Cluster{Name: "dev", Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws"}}, Nodes: []cloud.Node{{ID: "i-1", Reach: cloud.Reach{Method: cloud.ReachNone}}}}
	real := none
	real.Nodes = []cloud.Node{{ID: "i-1", Reach: cloud.Reach{Method: "ssh"}}}
	for name, tk := range map[string]*task.Task{
		"":         {},
		"a run":    {Run: "x"},
		"a setup":  {Setup: "x"},
		"a folder": {Workdir: "."},
		"a file":   {FileMounts: map[string]string{"~/a": "/b"}},
	} {
		err := (&submission{cluster: &none, task: tk}).check()
		switch {
		case name == "" && err != nil:
			t.Errorf("nothing: %v", err)
		case name != "" && (err == nil || said(t, err).Type != api.ErrNotSupported || !strings.Contains(err.Error(), "without_agents is set for aws")):
			t.Errorf("%s: %v", name, err)
		}
		if err := (&submission{cluster: &real, task: tk}).check(); err != nil {
			t.Errorf("%s on machines: %v", name, err)
		}
	}
}

// Clouds that give notice are asked for the time that a task's hooks need then.
func TestHooksHaveTheTimeThatTheyNeedWhenNodesAreTakenBack(t *testing.T) {
	for _, tt := range []struct {
		name  string
		hooks []task.Hook
		want  time.Duration
	}{
		{"none", nil, 0},
		{"of a stop", []task.Hook{{Run: "x", Events: []string{"stop", "down"}, Timeout: 5}}, 0},
		{"of taking back", []task.Hook{{Run: "x", Events: []string{"stop", "preemption"}, Timeout: 5}}, 5 * time.Second},
		{"of everything", []task.Hook{{Run: "x", Timeout: 5}}, 5 * time.Second},
		{"without a limit", []task.Hook{{Run: "x"}}, agentapi.HookTimeout},
		{"one after the other", []task.Hook{{Run: "x", Timeout: 5}, {Run: "y", Events: []string{"stop"}, Timeout: 60}, {Run: "z", Timeout: 7}}, 12 * time.Second},
	} {
		if got := endGrace(&task.Task{Hooks: tt.hooks}); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The last command stays on record until another one is known.
func TestACallWithoutACommandKeepsTheLastOne(t *testing.T) {
	if got := command(cluster.Call{}, "before"); got != "before" {
		t.Error(got)
	}
	if got := command(cluster.Call{Command: "now"}, "before"); got != "now" {
		t.Error(got)
	}
}

func TestEverySourceThatCannotBeFetchedIsNamed(t *testing.T) {
	for want, tk := range map[string]*task.Task{
		"a git repository as workdir": {Git: &task.GitWorkdir{URL: "https://example.com/x"}},
		"secrets kept by the server":  {ManagedSecrets: []task.ManagedSecret{{}}},
	} {
		if err := new(Executor).runnable(tk); err == nil || said(t, err).Type != api.ErrNotSupported || !strings.HasSuffix(err.Error(), want+".") {
			t.Errorf("%q: %v", want, err)
		}
	}
	if err := new(Executor).runnable(&task.Task{FileMounts: map[string]string{"/x": "./y:z"}, Workdir: "."}); err != nil {
		t.Errorf("a path: %v", err)
	}
	disk := task.Resources{Volumes: []map[string]any{{"path": "/x", "name": "d"}}}
	if err := new(Executor).runnable(&task.Task{Resources: []task.Resources{disk, disk}}); err != nil {
		t.Errorf("the same disks: %v", err)
	}
	if err := new(Executor).runnable(&task.Task{Resources: []task.Resources{disk, {}}}); err == nil || !strings.Contains(err.Error(), "same volumes") {
		t.Errorf("other disks: %v", err)
	}
}
