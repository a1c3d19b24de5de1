package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// fakeCloud has volumes in memory. It does as it is told by trouble.
type fakeCloud struct {
	cloud.Provider // nothing else is asked of it
	name           string

	mu      sync.Mutex
	have    map[string]cloud.Volume // by name on cloud
	foreign map[string]bool         // there, and not ours
	pods    map[string][]string     // that mount a volume, by its name on cloud
	trouble func(ctx context.Context, call string, v cloud.Volume, done bool) error
	calls   map[string]int
}

func newCloud(name string) *fakeCloud {
	return &fakeCloud{name: name, have: map[string]cloud.Volume{}, foreign: map[string]bool{}, pods: map[string][]string{}, calls: map[string]int{}}
}

func (f *fakeCloud) Name() string             { return f.name }
func (f *fakeCloud) DisplayName() string      { return "Fake " + f.name }
func (f *fakeCloud) Features() cloud.Features { return cloud.Features{} }

func (f *fakeCloud) CheckVolume(v cloud.Volume) error {
	if v.Class == "none" {
		return &cloud.InvalidError{Place: v.Place, Err: errors.New("there is no such storage class")}
	}
	return nil
}

// step runs an effect between what may go wrong before and after it.
func (f *fakeCloud) step(ctx context.Context, call string, v cloud.Volume, effect func() error) error {
	f.mu.Lock()
	f.calls[call]++
	trouble := f.trouble
	f.mu.Unlock()
	if trouble != nil {
		if err := trouble(ctx, call, v, false); err != nil {
			return err
		}
	}
	f.mu.Lock()
	err := effect()
	f.mu.Unlock()
	if err == nil && trouble != nil {
		err = trouble(ctx, call, v, true)
	}
	return err
}

func (f *fakeCloud) MakeVolume(ctx context.Context, v cloud.Volume) (out cloud.Volume, err error) {
	err = f.step(ctx, "make", v, func() error {
		switch has, there := f.have[v.NameOnCloud]; {
		case f.foreign[v.NameOnCloud] && !v.Existing:
			return &cloud.InvalidError{Place: v.Place, Err: errors.New("a claim of that name is there and is not ours")}
		case v.Existing && !f.foreign[v.NameOnCloud]:
			return &cloud.InvalidError{Place: v.Place, Err: fmt.Errorf("there is no claim %s", v.NameOnCloud)}
		case there:
			out = has
			return nil
		}
		if v.Installation == "" {
			return errors.New("nobody's volume")
		}
		out = v
		if out.Place.Region == "" {
			out.Place.Region = "ctx"
		}
		if out.AccessMode == "" {
			out.AccessMode = cloud.ReadWriteOnce
		}
		if out.SizeGB == 0 {
			out.SizeGB = 7
		}
		f.have[v.NameOnCloud] = out
		return nil
	})
	return out, err
}

func (f *fakeCloud) DeleteVolume(ctx context.Context, v cloud.Volume) error {
	return f.step(ctx, "delete", v, func() error {
		if by := f.pods[v.NameOnCloud]; len(by) > 0 && !v.Existing {
			return &cloud.InUseError{What: v.NameOnCloud, By: by}
		}
		delete(f.have, v.NameOnCloud)
		return nil
	})
}

func (f *fakeCloud) LookAtVolumes(ctx context.Context, vs []cloud.Volume) (out []cloud.VolumeState, err error) {
	err = f.step(ctx, "look", cloud.Volume{}, func() error {
		for _, v := range vs {
			has, there := f.have[v.NameOnCloud]
			s := cloud.VolumeState{Exists: there, Ready: there, SizeGB: has.SizeGB, Pods: f.pods[v.NameOnCloud]}
			if v.Class == "lost" {
				s.Ready, s.Reason = false, "the disk is lost"
			}
			out = append(out, s)
		}
		return nil
	})
	return out, err
}

func (f *fakeCloud) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.have))
}

func (f *fakeCloud) fail(trouble func(ctx context.Context, call string, v cloud.Volume, done bool) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble = trouble
}

// plainCloud has no volumes.
type plainCloud struct{ cloud.Provider }

func (plainCloud) Name() string        { return "runpod" }
func (plainCloud) DisplayName() string { return "RunPod" }

type output struct{ io.Writer }

func (output) Spin(string) {}
func (output) StopSpin()   {}

// testEnv is a server with one cloud.
type testEnv struct {
	*Manager
	cloud *fakeCloud
	call  cluster.Call
	said  *lines
}

type lines struct {
	mu   sync.Mutex
	text string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(b)
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// fataler is a test or a property.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return newTestEnvIn(t, s)
}

func newTestEnvIn(t fataler, s *state.Store) *testEnv {
	t.Helper()
	c, err := config.FromMap(config.Server, config.Origin{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	env := &testEnv{cloud: newCloud("kubernetes"), said: &lines{}}
	env.Manager = New(Deps{
		Store: s, Providers: cloud.NewRegistry(env.cloud, plainCloud{}), Installation: "i1", ServerID: "local",
		Log: slog.New(slog.DiscardHandler), Config: func() *config.Config { return c },
	})
	env.patience = 0
	env.call = cluster.Call{RequestID: "r1", User: state.User{ID: "0a0b0c0d", Name: "ann"}, Command: "sky volumes apply", Out: output{env.said}, Config: c}
	return env
}

// as is the environment for another caller.
func (env *testEnv) as(user string, workspaces ...string) *testEnv {
	other := *env
	other.call.User = state.User{ID: user, Name: user}
	other.call.Scope = &state.Scope{User: user, Workspaces: workspaces}
	return &other
}

func pvc(name, size string) api.VolumeApplyBody {
	b := api.VolumeApplyBody{Name: name, VolumeType: task.VolumeClaim, Cloud: "kubernetes"}
	if size != "" {
		b.Size = new(api.Text(size))
	}
	return b
}

func (env *testEnv) apply(ctx context.Context, b api.VolumeApplyBody) error {
	return env.Apply(ctx, env.call, b)
}

func (env *testEnv) remove(ctx context.Context, names ...string) error {
	return env.Delete(ctx, env.call, api.VolumesDeleteBody{Names: names})
}

func (env *testEnv) list(t fataler, refresh bool) map[string]api.Volume {
	t.Helper()
	list, err := env.List(context.Background(), env.call, api.VolumesListBody{Refresh: refresh})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]api.Volume{}
	for _, v := range list {
		out[v.Name] = v
	}
	return out
}

// launch makes the record of a cluster with volumes, as package execution does,
// and what its provider makes with it.
func (env *testEnv) launch(ctx context.Context, name string, mounts map[string]task.VolumeMount) (*state.Cluster, error) {
	t := &task.Task{NumNodes: 1, Volumes: mounts, Resources: []task.Resources{{}}}
	use, err := env.Resolve(ctx, env.call, env.call.Config, t, name)
	if err != nil {
		return nil, err
	}
	if _, err := use.Bind(t); err != nil {
		return nil, err
	}
	c := &state.Cluster{
		Name: name, Hash: uuid.NewString(), NameOnCloud: name + "-oc", Status: api.ClusterInit, UserHash: env.call.User.ID, Workspace: "default",
		LaunchedAt: time.Now(), Offer: cloud.Offer{Place: cloud.Place{Cloud: "kubernetes", Region: "ctx"}}, NumNodes: 1,
	}
	if err := env.Store.Clusters().CreateWith(ctx, c, use.Hold(c)); err != nil {
		return nil, NotThere(err)
	}
	at, err := env.Mounted(ctx, c, func(cloud.Place) map[string]any { return map[string]any{"a": "b"} })
	if err != nil || at == nil {
		return c, err
	}
	env.cloud.mu.Lock()
	defer env.cloud.mu.Unlock()
	for _, m := range at(c.Offer.Place, env.idOf(c)) {
		if m.Volume.Cluster.Hash == c.Hash {
			env.cloud.have[m.Volume.NameOnCloud] = m.Volume
		} else if _, there := env.cloud.have[m.Volume.NameOnCloud]; !there {
			return c, fmt.Errorf("cluster %s mounts %s, which is not there", name, m.Volume.Name)
		}
	}
	return c, nil
}

// down gives a cluster back: its provider's part first.
func (env *testEnv) down(ctx context.Context, c *state.Cluster) error {
	env.cloud.mu.Lock()
	maps.DeleteFunc(env.cloud.have, func(_ string, v cloud.Volume) bool { return v.Cluster.Hash == c.Hash })
	env.cloud.mu.Unlock()
	return env.Store.Clusters().Delete(ctx, c.Name, c.Hash)
}
