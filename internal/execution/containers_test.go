package execution

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/registry"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// doing is an output that keeps what a person sees a request do.
type doing struct {
	bytes.Buffer
	now []string
}

func (d *doing) Spin(s string) { d.now = append(d.now, s) }
func (d *doing) StopSpin()     {}

func configured(t *testing.T, m map[string]any) *config.Config {
	t.Helper()
	c, err := config.FromMap(config.Server, config.Origin{}, m)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestALoginNeedsAUserAndARegistry(t *testing.T) {
	for _, tt := range []struct {
		name    string
		envs    map[string]string
		secrets map[string]string
		want    *registry.Login
	}{
		{"none", nil, nil, nil},
		{"all", map[string]string{dockerUsername: "ann", dockerPassword: "hush", dockerServer: "r"}, nil, &registry.Login{Username: "ann", Password: "hush", Server: "r"}},
		{"as secrets", map[string]string{dockerServer: "other"}, map[string]string{dockerUsername: "ann", dockerPassword: "hush", dockerServer: "r"}, &registry.Login{Username: "ann", Password: "hush", Server: "r"}},
		{"without a password", map[string]string{dockerUsername: "ann", dockerServer: "r"}, nil, &registry.Login{Username: "ann", Server: "r"}},
		{"no user", map[string]string{dockerPassword: "hush", dockerServer: "r"}, nil, nil},
		{"no registry", map[string]string{dockerUsername: "ann", dockerPassword: "hush"}, nil, nil},
	} {
		tk := &task.Task{Envs: tt.envs, Secrets: map[string]task.Secret{}}
		for k, v := range tt.secrets {
			tk.Secrets[k] = task.NewSecret(v)
		}
		got := login(tk)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
		// Nodes that are made later have the login already, if there was one.
		kept := &state.Cluster{Notes: state.ClusterNotes{Registry: "first"}}
		want := registry.Login{Server: "first"}
		if got != nil {
			want = *got
		}
		if l := loginOf(tk, kept); l == nil || *l != want {
			t.Errorf("%s, later: %+v", tt.name, l)
		}
		if l := loginOf(tk, &state.Cluster{}); (l == nil) != (tt.want == nil) {
			t.Errorf("%s, at first: %+v", tt.name, l)
		}
	}
}

func TestContainersAreMadeAsConfigured(t *testing.T) {
	c := &state.Cluster{Name: "dev", Notes: state.ClusterNotes{Container: "img"}}
	tk := &task.Task{Envs: map[string]string{dockerUsername: "ann", dockerServer: "r"}}
	var out doing
	got, err := containers(cluster.Call{Out: &out}, tk, configured(t, map[string]any{"docker": map[string]any{"run_options": []any{"--ipc=host", "-v '/a b:/c'"}}}), c)
	if err != nil || !slices.Equal(got.Options, []string{"--ipc=host", "-v", "/a b:/c"}) || got.Login == nil || got.Login.Server != "r" {
		t.Errorf("%+v, %v", got, err)
	}
	if got.Doing("pulling"); !slices.Equal(out.now, []string{"dev: pulling"}) {
		t.Errorf("a person sees %q", out.now)
	}
	_, err = containers(cluster.Call{}, tk, configured(t, map[string]any{"docker": map[string]any{"run_options": []any{"--fine", "--name 'open"}}}), c)
	if err == nil || said(t, err).Type != api.ErrValue || !strings.Contains(err.Error(), "docker.run_options: a quote is not closed: --name 'open") {
		t.Errorf("%v", err)
	}
	if got, err := containers(cluster.Call{}, tk, configured(t, nil), &state.Cluster{}); err != nil || got.Options != nil || got.Login != nil || got.Doing != nil {
		t.Errorf("without an image: %+v, %v", got, err)
	}
}

// box is a cloud whose nodes are containers, or machines.
type box struct {
	cloud.Provider
	name       string
	containers bool
}

func (b box) Name() string             { return b.name }
func (b box) Features() cloud.Features { return cloud.Features{Containers: b.containers} }

// Where nodes are containers they start from a task's container; elsewhere it is put
// onto the machine, which the record says.
func TestAContainerIsTheNodeOrRunsOnIt(t *testing.T) {
	x := New(Deps{Providers: cloud.NewRegistry(box{name: "kubernetes", containers: true}, box{name: "aws"})})
	at := func(name string) cloud.Offer { return cloud.Offer{Place: cloud.Place{Cloud: name, Region: "r"}} }
	for _, tt := range []struct {
		name, cloud string
		images      map[string]string
		from, runs  string
	}{
		{"a container as a node", "kubernetes", map[string]string{"docker": "img"}, "docker:img", ""},
		{"a container on a machine", "aws", map[string]string{"docker": "img"}, "", "img"},
		{"a container on a machine with an image", "aws", map[string]string{"docker": "img", "r": "ami-1"}, "ami-1", "img"},
		{"a machine", "aws", map[string]string{"r": "ami-1"}, "ami-1", ""},
		{"a cloud that is not there", "gcp", map[string]string{"docker": "img"}, "", "img"},
		{"nothing", "aws", nil, "", ""},
	} {
		c := &state.Cluster{Offer: at(tt.cloud), Machine: machineSpec([]task.Resources{{ImageID: tt.images}})}
		if got := c.Machine.ImageID(c.Offer.Place, tt.cloud == "kubernetes"); got != tt.from {
			t.Errorf("%s: it starts from %q, want %q", tt.name, got, tt.from)
		}
		if x.noteContainer(c); c.Notes.Container != tt.runs {
			t.Errorf("%s: %q runs on it, want %q", tt.name, c.Notes.Container, tt.runs)
		}
	}
}

func TestOfALongOutputTheEndIsShown(t *testing.T) {
	for said, want := range map[string]string{
		"":                            "",
		"one\n":                       "one",
		"one\ntwo\nthree\n":           "one; two; three",
		"\none\ntwo\nthree\nfour\n\n": "two; three; four",
	} {
		if got := lastLines([]byte(said)); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

// What a call kept for the next life of the server is found there; damaged or absent,
// it begins anew.
func TestWhatACallKeepsIsFoundByItsNextLife(t *testing.T) {
	var kept []byte
	call := cluster.Call{
		Load: func() []byte { return kept },
		Save: func(_ context.Context, b []byte) error { kept = b; return nil },
	}
	p := Progress{Submitting: "hash", JobID: 3, SubmittedAt: 1.5}
	if err := save(t.Context(), call, p); err != nil || load(call) != p {
		t.Errorf("%+v, %v", load(call), err)
	}
	for _, text := range []string{"", "{", "null", "[]"} {
		if got := ParseProgress([]byte(text)); got != (Progress{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if err := save(t.Context(), cluster.Call{}, p); err != nil || load(cluster.Call{}) != (Progress{}) {
		t.Errorf("a call that keeps nothing: %v", err)
	}
	call.Save = func(context.Context, []byte) error { return errors.New("no space") }
	if err := save(t.Context(), call, p); err == nil {
		t.Error("what was not kept was kept")
	}
}
