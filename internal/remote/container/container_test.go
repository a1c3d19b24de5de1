//go:build unix

package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/registry"
)

func TestAnImageThatChangesByItself(t *testing.T) {
	for image, want := range map[string]bool{
		"python": true, "python:3.13": false, "python:latest": true, "localhost:5000/train": true, "localhost:5000/train@sha256:abc": false,
		"registry.example.com/team/train:1": false,
	} {
		if got := moves(image); got != want {
			t.Errorf("%s: %t", image, got)
		}
	}
}

func TestALoginIsWhereDockerLooks(t *testing.T) {
	dir, err := loginFolder(&registry.Login{Username: "u", Password: "p", Server: "localhost:5000"})
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	text, _ := os.ReadFile(filepath.Join(dir, "config.json"))
	if want := `{"auths":{"localhost:5000":{"auth":"dTpw"}}}`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}

func TestAPullThatFailsSaysWhatToDo(t *testing.T) {
	login := &registry.Login{Username: "robot", Password: "hush", Server: "r.io"}
	for _, c := range []struct {
		said  string
		login *registry.Login
		want  string
	}{
		{"manifest for python:9 not found: manifest unknown: manifest unknown", nil, "look at its name and tag"},
		{"pull access denied for nope, repository does not exist or may require 'docker login'", nil, "or it is private and needs a login"},
		{"pull access denied for nope, repository does not exist or may require 'docker login'", login, "the login as robot does not reach it"},
		{"Get \"https://r.io/v2/\": unauthorized: authentication required", nil, "wants a login"},
		{"Get \"https://r.io/v2/\": unauthorized: incorrect username or password", login, "refuses the login as robot"},
		{"no matching manifest for linux/arm64/v8 in the manifest list entries", nil, "is not there for amd64"},
		{"write /var/lib/docker/tmp/x: no space left on device", nil, "disk_size"},
		{"toomanyrequests: You have reached your pull rate limit", nil, "allows no more pulls"},
		{"Get \"https://r.io/v2/\": dial tcp: lookup r.io: no such host", nil, "the machine does not get"},
		{"something new", nil, "something new"},
	} {
		err := pullError(&failed{what: "pull", said: c.said, code: 1}, "r.io/train:1", c.login, "amd64")
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s:\n%v\nwant %q", c.said, err, c.want)
		}
		if full := errors.As(err, new(*NoSpaceError)); full != strings.Contains(c.said, "no space") {
			t.Errorf("%s: NoSpaceError %t", c.said, full)
		}
	}
}

func TestProgressCountsLayers(t *testing.T) {
	var p progress
	var counts []int
	for _, line := range []string{
		"3.13-slim: Pulling from library/python", "aaaaaaaaaaaa: Pulling fs layer", "bbbbbbbbbbbb: Already exists", "aaaaaaaaaaaa: Download complete",
		"aaaaaaaaaaaa: Pull complete", "Digest: sha256:1234", "Status: Downloaded newer image for python:3.13-slim",
	} {
		if p.read(line) {
			counts = append(counts, len(p.done)*10+len(p.layers))
		}
	}
	if !slices.Equal(counts, []int{1, 12, 22}) {
		t.Errorf("%v", counts)
	}
}

func TestWhatAContainerIsGiven(t *testing.T) {
	for _, c := range []struct {
		name      string
		s         Spec
		h         hardware
		has, lack string
	}{
		{"no GPUs", Spec{}, hardware{}, "--network host", "--gpus"},
		{"GPUs", Spec{GPUs: true}, hardware{}, "--gpus=all", "/dev/"},
		{"the user says which", Spec{GPUs: true, Options: []string{"--gpus", "device=0"}}, hardware{}, "--gpus device=0", "--gpus=all"},
		{"a share with GPUs", Spec{GPUs: true}, hardware{share: &folder.Share{CPUs: 2.5, MemoryGiB: 4, GPUs: []int{1, 3}}}, `--cpus=2.5 --memory=4294967296 --gpus="device=1,3"`, "--gpus=all"},
		{"a share without", Spec{}, hardware{share: &folder.Share{CPUs: 2, MemoryGiB: 4}}, "--cpus=2 --memory=4294967296", "--gpus"},
		{"the user's memory", Spec{Options: []string{"-m", "1g"}}, hardware{share: &folder.Share{CPUs: 2, MemoryGiB: 4}}, "--cpus=2 -m 1g", "--memory"},
		{"Neuron", Spec{GPUs: true}, hardware{neuron: []string{"/dev/neuron0", "/dev/neuron1"}}, "--device=/dev/neuron0 --device=/dev/neuron1", "--gpus"},
		{"AMD", Spec{GPUs: true}, hardware{amd: true}, "--device=/dev/kfd --device=/dev/dri", "--gpus"},
		{"a fast network", Spec{}, hardware{infiniband: true}, "--cap-add=IPC_LOCK --device=/dev/infiniband --ulimit=memlock=-1:-1", "--gpus"},
		{"mounts", Spec{Mounts: true}, hardware{fuse: true}, "--device=/dev/fuse --cap-add=SYS_ADMIN --security-opt=apparmor=unconfined", "--gpus"},
		{"no mounts", Spec{}, hardware{fuse: true}, "--network host", "/dev/fuse"},
		{"mounts where nothing can be mounted", Spec{Mounts: true}, hardware{}, "--network host", "/dev/fuse"},
		{"shared memory", Spec{}, hardware{shm: 5}, "--shm-size=5", "--gpus"},
		{"the user's shared memory", Spec{Options: []string{"--shm-size=1g"}}, hardware{shm: 5}, "--shm-size=1g", "--shm-size=5"},
		{"the machine's shared memory", Spec{Options: []string{"--ipc=host"}}, hardware{shm: 5}, "--ipc=host", "--shm-size"},
	} {
		got, script, _ := strings.Cut(strings.Join(arguments(c.s, "img:1", "/p", c.h), " "), " img:1 ")
		if !strings.Contains(got, c.has) || strings.Contains(got, c.lack) {
			t.Errorf("%s: %s", c.name, got)
		}
		if !strings.Contains(got, "--volume /p:/opt/sky:ro") || script != "-c "+first {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestAMachineWithoutDocker(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".sky"), 0o700); err != nil {
		t.Fatal(err)
	}
	in, _ := json.Marshal(Spec{Name: "c", Image: "img", Home: home, Create: true})
	var out bytes.Buffer
	code := Contain(context.Background(), bytes.NewReader(in), &out, func(Spec) error { t.Error("a keeper was started"); return nil })
	var l Line
	if err := json.Unmarshal(out.Bytes(), &l); err != nil || code == 0 || !l.Done || !strings.Contains(l.Error, "there is no Docker on the machine") {
		t.Errorf("exit %d: %s", code, out.String())
	}
}

// Only what is the image's own fault is called so: the rest may be better the next time.
func TestWhoseFaultAFailedPullIs(t *testing.T) {
	for said, want := range map[string]bool{
		"manifest unknown": true, "denied: requested access": true, "no matching manifest for linux/arm64": true, "repository does not exist": true,
		"no space left on device": false, "toomanyrequests: slow down": false, "": false,
	} {
		var why error
		if said != "" {
			why = &failed{what: "pull", said: said, code: 1}
		}
		got := asImageError(pullError(why, "r.io/train:1", nil, "amd64"), why)
		if is := errors.As(got, new(*ImageError)); is != want || (got == nil) != (why == nil) {
			t.Errorf("%q: %v, %t", said, got, is)
		}
	}
}
