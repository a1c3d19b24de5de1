package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Variables of the far server's environment: the address on which its balancers listen,
// and the one under which clients reach them.
const (
	EnvListen = "SKYPILOT_SERVE_CONTROLLER_LISTEN"
	EnvHost   = "SKYPILOT_SERVE_CONTROLLER_HOST"
)

// script keeps a server running until it ends because there is nothing to do.
// The server is of the build that a file names; one that cannot even start gives
// way to the one before.
func (k *Kind) script() string {
	return `umask 077
cd ~/` + k.dir + ` || exit 1
while :; do
  build=$(cat build)
  set --
  [ -s idle ] && set -- --until-idle "$(cat idle)"
  [ -s listen ] && export ` + EnvListen + `="$(cat listen)" ` + EnvHost + `="$(cat host)"
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
}

// program is sky for people on the head node: it talks to the server there.
const program = `#!/bin/sh
dir=$(cd "$(dirname "$0")" && pwd)
port=$(sed -n 's/.*"endpoint": "http:..127.0.0.1:\([0-9]*\)".*/\1/p' "$dir/home/.sky/api_server/instance.json" 2>/dev/null)
` + EnvFar + `=1 HOME=$dir/home SKY_API_PORT=${port:-46580} exec "$dir/bin/$(cat "$dir/build")/sky" "$@"
`

// A kit is what the far server needs besides the program itself: small files by
// their path below the folder.
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
		"home/.sky/config.yaml": cfg.ForController(),
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
			k.warn = append(k.warn, fmt.Sprintf("The %s cannot use %s: %v.", c.Kind.name, p.DisplayName(), err))
			continue
		}
		for name, text := range files {
			k.files[path.Join("home", name)] = text
		}
	}
	return k, nil
}

// address adds to the kit where balancers listen on the head node, and where clients
// reach them.
func (c *Controller) address(ctx context.Context, cl *state.Cluster, k kit) error {
	if len(c.Kind.ports) == 0 {
		return nil
	}
	first, _, err := cloud.PortRange(c.Kind.ports[0])
	if err != nil {
		return err
	}
	n := cl.Nodes[0]
	host, port := cmp.Or(n.ExternalIP, n.InternalIP), api.Number(first)
	at, err := c.Clusters.Endpoints(ctx, api.EndpointsBody{Cluster: cl.Name, Port: &port})
	if err != nil {
		return err
	}
	if h, p, err := net.SplitHostPort(at[port.String()]); err == nil && h != "" {
		if p != port.String() {
			return &api.Error{Type: api.ErrNotSupported,
				Message: fmt.Sprintf("Services of the %s %s would listen on port %d and following, which %s maps to others.", c.Kind.name, cl.Name, first, cl.Offer.Cloud),
				Hint:    fmt.Sprintf("Let the controller be elsewhere: set %s.controller.resources.infra, then: sky down %s", c.Kind.section, cl.Name)}
		}
		host = h
	}
	k.files["listen"], k.files["host"] = []byte(n.InternalIP), []byte(host)
	return nil
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
	if err := c.bring(ctx, cl, file, path.Join(c.Kind.dir, "bin", build, "sky")); err != nil {
		return "", err
	}
	_, err = c.Remote.Sync(ctx, cl, filesync.Options{Src: filesync.Within(c.Dir, filepath.Base(tmp), tmp), Dst: "~/" + c.Kind.dir, Contents: true}, nil)
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
	return c.bring(ctx, cl, f.Name(), path.Join(c.Kind.dir, name))
}

func (c *Controller) bring(ctx context.Context, cl *state.Cluster, file, to string) error {
	_, err := c.Remote.Sync(ctx, cl, filesync.Options{Src: filesync.Within(filepath.Dir(file), filepath.Base(file), file), Dst: "~/" + to}, nil)
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
func (k *Kind) plan(cfg *config.Config, exists bool) (text string, r *rest, err error) {
	resources, _ := cfg.Value(k.section, "controller", "resources").(map[string]any)
	asked := maps.Clone(resources)
	if asked == nil {
		asked = map[string]any{}
	}
	asked["autostop"] = cfg.Value(k.section, "controller", "autostop")
	if asked["autostop"] == nil {
		delete(asked, "autostop")
	}
	write := func(resources map[string]any) (string, error) {
		b, err := json.Marshal(map[string]any{"name": k.job, "resources": resources})
		return string(b), err
	}
	whole, err := write(asked)
	if err != nil {
		return "", nil, err
	}
	dag, err := task.Parse(k.section+".controller", []byte(whole))
	if err != nil {
		return "", nil, fmt.Errorf("the configuration's %s.controller: %w", k.section, err)
	}
	r = &rest{never: true}
	if a := dag.Tasks[0].Resources[0].Autostop; a != nil && a.Enabled {
		r = &rest{minutes: a.IdleMinutes, down: a.Down, waitFor: a.WaitFor}
	}
	delete(asked, "autostop")
	if len(k.ports) > 0 {
		asked["ports"] = k.ports
	}
	if exists {
		asked = map[string]any{}
	}
	text, err = write(asked)
	return text, r, err
}
