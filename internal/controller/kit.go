package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Where things are on the head node, below its home folder. The far server has a
// home folder of its own: a machine of one's own keeps its files.
const (
	kitDir  = ".sky/jobs_controller"
	homeDir = kitDir + "/home"
)

// jobName is the name of the cluster's job that runs the server.
const jobName = "sky-jobs-controller"

// script keeps a server running until it ends because there is nothing to do.
// The server is of the build that a file names; one that cannot even start gives
// way to the one before.
const script = `umask 077
cd ~/` + kitDir + ` || exit 1
while :; do
  build=$(cat build)
  set --
  [ -s idle ] && set -- --until-idle "$(cat idle)"
  began=$(date +%s)
  ` + EnvFar + `=1 HOME=$PWD/home SKY_API_PORT=46580 "bin/$build/sky" api start --foreground --any-port "$@"
  code=$?
  [ $code = 10 ] && exit 0
  if [ $code != 0 ] && [ -s good ] && [ "$(cat good)" != "$build" ] && [ $(($(date +%s) - began)) -lt 30 ]; then
    echo "build $build does not start here; going on with the one before"
    cp good build
  fi
  sleep 1
done
`

// program is sky for people on the head node: it talks to the server there.
const program = `#!/bin/sh
dir=$(cd "$(dirname "$0")" && pwd)
port=$(sed -n 's/.*"endpoint": "http:..127.0.0.1:\([0-9]*\)".*/\1/p' "$dir/home/.sky/api_server/instance.json" 2>/dev/null)
` + EnvFar + `=1 HOME=$dir/home SKY_API_PORT=${port:-46580} exec "$dir/bin/$(cat "$dir/build")/sky" "$@"
`

// A kit is what the far server needs besides the program itself: small files by
// their path below kitDir.
type kit struct {
	files map[string][]byte
	warn  []string // what users should know
}

// stamp differs between kits of different content.
func (k kit) stamp() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(k.files)) {
		fmt.Fprintf(h, "%q %d\n", name, len(k.files[name]))
		h.Write(k.files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// pack puts together what the far server needs now: the configuration, and the
// credentials of the clouds that may be used.
func (c *Controller) pack(ctx context.Context, cfg *config.Config, rest *rest) (kit, error) {
	k := kit{files: map[string][]byte{
		"sky":                   []byte(program),
		"idle":                  rest.idle(),
		"home/.sky/config.yaml": cfg.ForJobsController(),
	}}
	for _, p := range c.Providers.All() {
		if ok, _ := cfg.CloudUse(cfg.ActiveWorkspace(), p.Name()); !ok {
			continue
		}
		carrier, ok := cloud.As[cloud.CredentialCarrier](p)
		if !ok {
			continue
		}
		files, err := carrier.CarryCredentials(ctx)
		if _, none := errors.AsType[*cloud.AuthError](err); none {
			continue
		}
		if ctx.Err() != nil {
			return kit{}, context.Cause(ctx)
		}
		if err != nil {
			k.warn = append(k.warn, fmt.Sprintf("The jobs controller cannot use %s: %v.", p.DisplayName(), err))
			continue
		}
		for name, text := range files {
			k.files[path.Join("home", name)] = text
		}
	}
	return k, nil
}

// write puts the kit into a folder; nobody else can read it there.
func (k kit) write(dir string) error {
	for name, text := range k.files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if name == "sky" {
			mode = 0o700
		}
		if err := os.WriteFile(file, text, mode); err != nil {
			return err
		}
	}
	return nil
}

// equip brings the program and a kit onto the head node. build is the id of the
// program that was brought; the server there is not told of it yet.
func (c *Controller) equip(ctx context.Context, cl *state.Cluster, k kit) (build string, err error) {
	head, err := c.Remote.Head(cl)
	if err != nil {
		return "", err
	}
	info, err := head.Info(ctx)
	if err != nil {
		return "", err
	}
	file, build, err := c.Remote.Program(info.Platform)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(c.Dir, "kit-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := k.write(tmp); err != nil {
		return "", err
	}
	if err := c.bring(ctx, cl, file, path.Join(kitDir, "bin", build, "sky")); err != nil {
		return "", err
	}
	_, err = c.Remote.Sync(ctx, cl, filesync.Options{Src: filesync.Within(c.Dir, filepath.Base(tmp), tmp), Dst: "~/" + kitDir, Contents: true})
	return build, err
}

// note writes a small file on the head node, whole or not at all.
func (c *Controller) note(ctx context.Context, cl *state.Cluster, name, text string) error {
	f, err := os.CreateTemp(c.Dir, "note-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.WriteString(f, text+"\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return c.bring(ctx, cl, f.Name(), path.Join(kitDir, name))
}

func (c *Controller) bring(ctx context.Context, cl *state.Cluster, file, to string) error {
	_, err := c.Remote.Sync(ctx, cl, filesync.Options{Src: filesync.Within(filepath.Dir(file), filepath.Base(file), file), Dst: "~/" + to})
	return err
}

// rest says when the idle controller stops.
type rest struct {
	never   bool
	minutes int
	down    bool
	waitFor string
}

// idle is after how many idle minutes the server ends. The cluster counts one
// more from then on.
func (r *rest) idle() []byte {
	if r.never {
		return nil
	}
	return []byte(strconv.Itoa(max(r.minutes-1, 1)))
}

// plan reads what the configuration says about the cluster: its task, which runs
// nothing, and when it stops. A cluster that exists is as it is.
func plan(cfg *config.Config, exists bool) (text string, r *rest, err error) {
	resources, _ := cfg.Value("jobs", "controller", "resources").(map[string]any)
	asked := maps.Clone(resources)
	if asked == nil {
		asked = map[string]any{}
	}
	asked["autostop"] = cfg.Value("jobs", "controller", "autostop")
	if asked["autostop"] == nil {
		delete(asked, "autostop")
	}
	write := func(resources map[string]any) (string, error) {
		b, err := json.Marshal(map[string]any{"name": jobName, "resources": resources})
		return string(b), err
	}
	whole, err := write(asked)
	if err != nil {
		return "", nil, err
	}
	dag, err := task.Parse("jobs.controller", []byte(whole))
	if err != nil {
		return "", nil, fmt.Errorf("the configuration's jobs.controller: %w", err)
	}
	r = &rest{never: true}
	if a := dag.Tasks[0].Resources[0].Autostop; a != nil && a.Enabled {
		r = &rest{minutes: a.IdleMinutes, down: a.Down, waitFor: a.WaitFor}
	}
	delete(asked, "autostop")
	if exists {
		asked = map[string]any{}
	}
	text, err = write(asked)
	return text, r, err
}
