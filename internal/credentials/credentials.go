// Package credentials takes the credentials of the server's clouds to nodes, where the
// configuration asks for that with remote_identity: LOCAL_CREDENTIALS. They are files where
// each cloud's own tools look for them, readable by the node's user alone, and are sent
// again when they change or are about to expire.
package credentials

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// Deps are what a Manager works with.
type Deps struct {
	Store     *state.Store
	Providers *cloud.Registry
	Remote    *remote.Connector
	Home      string // whose files are those of clouds that have stores only
	Log       *slog.Logger
	// Config is the server's configuration just then, for what no request asks for.
	Config func() *config.Config
	// Machine names the machine of this server, if several servers share the database.
	Machine string
}

// Manager takes credentials to nodes.
type Manager struct{ Deps }

// New returns a manager.
func New(d Deps) *Manager { return &Manager{d} }

// Asked reports whether a section of the configuration asks for credentials on the nodes of a
// cluster.
func Asked(section map[string]any, name string) bool {
	return strings.EqualFold(vm.ByCluster(section["remote_identity"], name), facts.LocalCredentials)
}

// May refuses a job of somebody else on a cluster whose nodes have the server's credentials.
func May(call cluster.Call, c *state.Cluster) error {
	if call.Scope == nil || c.Notes.Credentials == "" {
		return nil
	}
	return &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("The nodes of cluster %q have credentials of this server (remote_identity: LOCAL_CREDENTIALS), so only its administrators run jobs there.", c.Name),
		Hint: "Launch a cluster of your own: its nodes get none."}
}

// Lent are files with credentials.
type Lent struct {
	Clouds []string          // their names for people
	Files  map[string][]byte // by path below the home folder
	Until  time.Time         // when the first of them expire; zero: they do not
	Notes  []string          // what cannot be lent, and why
}

// Gather reads what can be lent of the clouds that a workspace may use.
func (m *Manager) Gather(ctx context.Context, cfg *config.Config, workspace string) (Lent, error) {
	out := Lent{Files: map[string][]byte{}}
	for _, p := range m.Providers.All() {
		if ok, _ := cfg.CloudUse(workspace, p.Name()); !ok {
			continue
		}
		files, until, err := lend(ctx, p)
		_, none := errors.AsType[*cloud.AuthError](err)
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case none || err == nil && len(files) == 0:
		case err != nil:
			out.Notes = append(out.Notes, fmt.Sprintf("The credentials of %s cannot be used on nodes: %v", p.DisplayName(), err))
		default:
			out.Clouds = append(out.Clouds, p.DisplayName())
			maps.Copy(out.Files, files)
			if !until.IsZero() && (out.Until.IsZero() || until.Before(out.Until)) {
				out.Until = until
			}
		}
	}
	for _, c := range facts.All() {
		if ok, _ := cfg.CloudUse(workspace, c.Name); !ok {
			continue
		}
		found := false
		for _, file := range c.StoreFiles {
			text, err := os.ReadFile(filepath.Join(m.Home, filepath.FromSlash(file)))
			if err == nil {
				out.Files[file], found = text, true
			}
		}
		if found {
			out.Clouds = append(out.Clouds, c.Display)
		}
	}
	return out, nil
}

func lend(ctx context.Context, p cloud.Provider) (files map[string][]byte, until time.Time, err error) {
	if l, ok := cloud.As[cloud.CredentialLender](p); ok {
		return l.LendCredentials(ctx)
	}
	if c, ok := cloud.As[cloud.CredentialCarrier](p); ok {
		files, err = c.CarryCredentials(ctx)
	}
	return files, until, err
}

// hash tells contents of files apart.
func (l Lent) hash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(l.Files)) {
		fmt.Fprintf(h, "%s %d\n", name, len(l.Files[name]))
		h.Write(l.Files[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// Announce says on a plan what the nodes of a cluster will get.
func (m *Manager) Announce(ctx context.Context, call cluster.Call, cfg *config.Config, section map[string]any, name, cloudName string) error {
	if !Asked(section, name) || facts.SharesFiles(cloudName) {
		return nil
	}
	if call.Scope != nil {
		fmt.Fprintln(call.Out, "Nodes get none of this server's credentials, which only tasks of its administrators have.")
		return nil
	}
	l, err := m.Gather(ctx, cfg, cfg.ActiveWorkspace())
	if err == nil {
		fmt.Fprintln(call.Out, l.words(cloudName))
	}
	return err
}

func (l Lent) words(where string) string {
	if len(l.Clouds) == 0 {
		return fmt.Sprintf("%s.remote_identity is LOCAL_CREDENTIALS, but there are no credentials that nodes could get.", where)
	}
	return fmt.Sprintf("Nodes get your credentials of %s (%s.remote_identity).", strings.Join(l.Clouds, ", "), where)
}

// Give takes the credentials to all nodes of a cluster whose agents run. section is the one
// of the cluster's cloud. Where none are asked for, or the caller may not use them, those
// that nodes have are removed.
func (m *Manager) Give(ctx context.Context, call cluster.Call, cfg *config.Config, section map[string]any, c *state.Cluster) error {
	if remote.Agentless(c) || facts.SharesFiles(c.Offer.Cloud) {
		return nil
	}
	if !Asked(section, c.Name) || call.Scope != nil { // never for tasks of others than administrators
		if c.Notes.Credentials == "" {
			return nil
		}
		return m.send(ctx, c, Lent{}, call.Out)
	}
	l, err := m.Gather(ctx, cfg, c.Workspace)
	if err != nil {
		return err
	}
	for _, note := range l.Notes {
		fmt.Fprintln(call.Out, "⚠ "+note)
	}
	call.Out.Spin("Taking credentials to cluster " + c.Name)
	err = m.send(ctx, c, l, call.Out)
	call.Out.StopSpin()
	if err == nil && len(l.Clouds) > 0 {
		fmt.Fprintf(call.Out, "✓ Nodes have your credentials of %s\n", strings.Join(l.Clouds, ", "))
	}
	return err
}

// none is the hash of no files.
const none = "none"

// send makes all nodes have these files, and no others of ours. The record says before
// that nodes may have some.
func (m *Manager) send(ctx context.Context, c *state.Cluster, l Lent, out io.Writer) error {
	note := func(hash string) error {
		_, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error { c.Notes.Credentials = hash; return nil })
		return err
	}
	if err := note(cmp.Or(c.Notes.Credentials, none)); err != nil {
		return err
	}
	var in strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l.Files)) {
		fmt.Fprintf(&in, "%s %s\n", name, base64.StdEncoding.EncodeToString(l.Files[name]))
	}
	if len(l.Notes) > 0 && c.Notes.Credentials != "" {
		in.WriteString("+\n") // what cannot be read just now is no reason to take away what nodes have
	} else {
		in.WriteString(".\n")
	}
	g, gctx := errgroup.WithContext(ctx)
	for rank := range c.Nodes {
		g.Go(func() error {
			kept, err := m.sendTo(gctx, c, rank, in.String())
			if err == nil && rank == 0 && len(kept) > 0 {
				fmt.Fprintf(out, "⚠ Nodes have %s of their own, which stays as it is.\n", strings.Join(kept, ", "))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &api.Error{Type: api.ErrRuntime, Err: err, Message: fmt.Sprintf("Credentials could not be taken to cluster %q: %v", c.Name, err),
			Hint: "The cluster stays up: the same launch tries it again. If you do not need it, give it back: sky down " + c.Name}
	}
	if len(l.Files) == 0 {
		return note("")
	}
	return note(l.hash())
}

// sendTimeout bounds what one node takes.
const sendTimeout = 2 * time.Minute

func (m *Manager) sendTo(ctx context.Context, c *state.Cluster, rank int, in string) (kept []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	client, err := m.Remote.Node(c, rank)
	if err != nil {
		return nil, err
	}
	done := false
	said, code, err := client.Talk(ctx, agentapi.ShellQuery{Command: script, Node: rank}, strings.NewReader(in), func(line []byte) error {
		word, ok := strings.CutPrefix(string(line), mark)
		if name, is := strings.CutPrefix(word, "kept "); ok && is {
			kept = append(kept, "~/"+name)
		}
		done = done || ok && word == "done"
		return nil
	})
	if err == nil && (code != 0 || !done) {
		err = fmt.Errorf("%s: the script ended with exit code %d: %s", remote.NodeName(rank), code, strings.TrimSpace(string(said)))
	}
	return kept, err
}

// mark begins the lines of the script, as login shells say something, too.
const mark = "sky-credentials: "

// script writes the files that its input lists, a path and its content in base64 a line, until
// a line with a dot, or with a plus if those that do not come are to stay. ~/.sky/credentials lists the files that came like this: others are
// left alone.
const script = `umask 077
set -f
list=$HOME/.sky/credentials
mkdir -p "$HOME/.sky" || exit 1
[ -e "$list" ] || : >"$list" || exit 1
had=" $(cat "$list" | tr '\n' ' ') "
now=
ended=
while read -r path data; do
  case $path in .|+) ended=$path; break ;; esac
  f=$HOME/$path
  case $had in
  *" $path "*) ;;
  *) if [ -e "$f" ] || [ -L "$f" ]; then echo "` + mark + `kept $path"; continue; fi
    echo "$path" >>"$list" || exit 1 ;;
  esac
  mkdir -p "${f%/*}" && printf %s "$data" | base64 -d >"$f.sky" && mv -f "$f.sky" "$f" || exit 1
  now="$now$path "
done
[ "$ended" ] || exit 1
for path in $had; do
  case " $now" in
  *" $path "*) ;;
  *) if [ "$ended" = + ]; then now="$now$path "; else rm -f "$HOME/$path" || exit 1; fi ;;
  esac
done
for path in $now; do echo "$path"; done >"$list.sky" && mv -f "$list.sky" "$list" || exit 1
echo "` + mark + `done"
`

// period is how often it is looked whether credentials have changed.
const period = time.Minute

// Keep sends credentials again that have changed, until ctx ends.
func (m *Manager) Keep(ctx context.Context) {
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := m.refresh(ctx); err != nil && ctx.Err() == nil {
			m.Log.WarnContext(ctx, "credentials on nodes not looked at", "err", err)
		}
	}
}

// refresh looks once at all clusters that have credentials.
func (m *Manager) refresh(ctx context.Context) error {
	all, err := m.Store.Clusters().List(ctx, state.ClusterFilter{Statuses: []api.ClusterStatus{api.ClusterUp}})
	if err != nil {
		return err
	}
	cfg := m.Config()
	have := map[string]Lent{} // by workspace
	for _, c := range all {
		if c.Notes.Credentials == "" || len(c.Nodes) == 0 || m.Machine != "" && c.Notes.ServerMachine != "" && c.Notes.ServerMachine != m.Machine {
			continue
		}
		l, ok := have[c.Workspace]
		if !ok {
			if l, err = m.Gather(ctx, cfg, c.Workspace); err != nil {
				return err
			}
			have[c.Workspace] = l
		}
		if len(l.Files) == 0 || l.hash() == c.Notes.Credentials {
			continue
		}
		if err := m.send(ctx, c, l, io.Discard); err != nil && ctx.Err() == nil {
			m.Log.WarnContext(ctx, "changed credentials not taken to nodes; this is tried again", "cluster", c.Name, "err", err)
		}
	}
	return nil
}
