package buckets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/scoped"
	"github.com/skypilot-go/sky/internal/storage/stores"
	"github.com/skypilot-go/sky/task"
)

// Mount mounts the buckets that a task mounts on all nodes of a cluster at once. What is
// mounted already as the task wants it is kept. place makes a path of a node of a task's
// destination.
//
// What a cluster mounts is on its record before the nodes are asked for it, so that it is
// mounted again when the cluster is started, and credentials reach it as long as it runs.
func (m *Manager) Mount(ctx context.Context, call cluster.Call, cl *state.Cluster, t *task.Task, place func(dst string) string) error {
	uses, err := read(t)
	if err != nil {
		return err
	}
	uses = slices.DeleteFunc(uses, func(u mount) bool { return !u.mounted() })
	if len(uses) == 0 {
		return nil
	}
	if err := m.mayUse(call, uses[0]); err != nil { // exec asks for no check
		return err
	}
	c := m.configOf(call)
	var specs []agentapi.MountSpec
	var wanted []agentapi.NodeMount
	for _, u := range uses {
		b, from, err := m.source(ctx, call, c, t, u)
		if err != nil {
			return failed(api.ErrStorageGet, u.where(), err)
		}
		g, err := grantOf(ctx, b)
		if err != nil {
			return failed(api.ErrStorageGet, u.where()+": credentials for the nodes", err)
		}
		spec, err := specOf(u, c, b, g.Endpoint, from, place(u.dst))
		if err != nil {
			return err
		}
		if g, err = m.scoped.Grant(ctx, b, scoped.Use{ReadOnly: spec.ReadOnly}); err != nil {
			return failed(api.ErrStorageGet, u.where()+": credentials for the nodes", err)
		}
		specs = append(specs, spec)
		wanted = append(wanted, agentapi.NodeMount{Spec: spec, Credentials: credentialsOf(g)})
	}
	before, err := m.noteMounts(ctx, cl, specs)
	if err != nil {
		return err
	}
	call.Out.Spin("Mounting buckets")
	if err := m.push(ctx, cl, wanted); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, serr := m.setMounts(context.WithoutCancel(ctx), cl, func([]agentapi.MountSpec) []agentapi.MountSpec { return before }); serr != nil {
			err = errors.Join(err, serr)
		}
		return err
	}
	call.Out.StopSpin()
	on := ""
	if len(cl.Nodes) > 1 {
		on = fmt.Sprintf(" on %d nodes", len(cl.Nodes))
	}
	for i, u := range uses {
		how := ""
		if specs[i].ReadOnly {
			how = ", read-only"
		}
		fmt.Fprintf(call.Out, "✓ Mounted %s at %s%s (%s%s)\n", specs[i].URL, u.dst, on, specs[i].Mode, how)
	}
	return nil
}

// source is the bucket of a mount or a copy, and where in it that begins.
func (m *Manager) source(ctx context.Context, call cluster.Call, c *config.Config, t *task.Task, u mount) (storage.Bucket, storage.Location, error) {
	if u.name == "" {
		b, err := m.find(ctx, c, u.from)
		return b, u.from, err
	}
	rec, b, err := m.wanted(ctx, call, c, t, u)
	if err == nil && rec.Version == 0 {
		err = invalid(api.ErrStorageSpec, "file_mounts.%s: sky has no bucket %q yet, which sky launch makes", u.dst, u.name)
	}
	if err == nil {
		err = m.same(ctx, rec, b)
	}
	if err != nil {
		return nil, storage.Location{}, err
	}
	return b, b.Location().At(rec.SubPath), nil
}

// specOf is what nodes are asked to mount.
func specOf(u mount, c *config.Config, b storage.Bucket, endpoint string, from storage.Location, path string) (agentapi.MountSpec, error) {
	cfg, readOnly, err := howMounted(u.spec, c)
	if err != nil {
		return agentapi.MountSpec{}, invalid(api.ErrStorageSpec, "file_mounts.%s: %v", u.dst, err)
	}
	sub := from.Key
	if u.name == "" && sub == "" {
		sub = u.sub()
	}
	return agentapi.MountSpec{
		Path: path, URL: b.Location().At("").String(), SubPath: sub, Region: b.Location().Region, Endpoint: endpoint,
		Mode: agentapi.MountMode(u.spec.Mode), ReadOnly: readOnly || b.Caps().ReadOnly, Config: cfg,
	}, nil
}

// credentialsOf are the credentials of a grant, as those who mount take them.
func credentialsOf(g storage.Grant) agentapi.MountCredentials {
	return agentapi.MountCredentials{
		AccessKey: g.AccessKey, SecretKey: g.SecretKey, SessionToken: g.SessionToken, Token: g.Token, AccountKey: g.Key, SAS: g.SAS,
		Anonymous: g.AccessKey == "" && g.Token == "" && g.Key == "" && g.SAS == "", Account: g.Whose, Expires: g.Expires,
	}
}

// noteMounts adds to what a cluster mounts, and returns what it did before.
func (m *Manager) noteMounts(ctx context.Context, cl *state.Cluster, specs []agentapi.MountSpec) (before []agentapi.MountSpec, err error) {
	return m.setMounts(ctx, cl, func(have []agentapi.MountSpec) []agentapi.MountSpec {
		next := slices.DeleteFunc(slices.Clone(have), func(s agentapi.MountSpec) bool {
			return slices.ContainsFunc(specs, func(n agentapi.MountSpec) bool { return n.Path == s.Path })
		})
		return append(next, specs...)
	})
}

func (m *Manager) setMounts(ctx context.Context, cl *state.Cluster, f func(have []agentapi.MountSpec) []agentapi.MountSpec) (before []agentapi.MountSpec, err error) {
	_, err = m.Store.Clusters().Update(ctx, cl.Name, cl.Hash, func(c *state.Cluster) error {
		before = c.Notes.Mounts
		c.Notes.Mounts = f(before)
		return nil
	})
	return before, err
}

// push sends what is to be mounted to all nodes of a cluster.
func (m *Manager) push(ctx context.Context, cl *state.Cluster, wanted []agentapi.NodeMount) error {
	g, gctx := errgroup.WithContext(ctx)
	for rank := range cl.Nodes {
		g.Go(func() error { return m.pushTo(gctx, cl, rank, wanted) })
	}
	return g.Wait()
}

func (m *Manager) pushTo(ctx context.Context, cl *state.Cluster, rank int, wanted []agentapi.NodeMount) error {
	command, err := m.Remote.Mount(ctx, cl, rank)
	if err == nil {
		var client interface {
			Mounts(context.Context, agentapi.MountsRequest) (*agentapi.MountsAnswer, error)
		}
		if client, err = m.Remote.Node(cl, rank); err == nil {
			_, err = client.Mounts(ctx, agentapi.MountsRequest{Epoch: cl.Epoch, Command: command, Mounts: wanted})
		}
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	return notMounted(cl, rank, err)
}

// notMounted is why a node does not mount a bucket, for people.
func notMounted(cl *state.Cluster, rank int, err error) error {
	e := &api.Error{Type: api.ErrRuntime, Err: err, Message: fmt.Sprintf("A bucket could not be mounted on %s of cluster %q: %v", remote.NodeName(rank), cl.Name, err),
		Hint: "The same launch tries it again."}
	said, ok := errors.AsType[*agentapi.Error](err)
	if !ok {
		return e
	}
	switch said.Code {
	case agentapi.CodeNoFUSE:
		e.Type = api.ErrNotSupported
		e.Hint = "Mounting needs /dev/fuse and the right to mount on the node. Write mode: COPY in the task, and launch it again."
	case agentapi.CodeInUse:
		e.Hint = "What uses the mount has to end first: sky queue " + cl.Name + " lists jobs, sky cancel ends them."
	case agentapi.CodeBucket:
		e.Type = api.ErrStorageGet
	}
	return e
}

// Remount mounts again what a cluster mounts that was switched on.
func (m *Manager) Remount(ctx context.Context, cl *state.Cluster) error {
	wanted, missing := m.withCredentials(ctx, cl) // a bucket that is gone does not keep the others away
	if len(wanted) == 0 {
		return missing
	}
	return errors.Join(m.push(ctx, cl, wanted), missing)
}

// withCredentials is what a cluster mounts, with credentials that hold now. With an error, it
// is what there are some for.
func (m *Manager) withCredentials(ctx context.Context, cl *state.Cluster) ([]agentapi.NodeMount, error) {
	var out []agentapi.NodeMount
	var failed []error
	for _, s := range cl.Notes.Mounts {
		at, err := storage.Parse(s.URL)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if at.Region == "" {
			at.Region = s.Region
		}
		o := options(m.Config(), at.Store)
		if s.Endpoint != "" {
			o.Endpoint = s.Endpoint
		}
		b, err := stores.Open(ctx, at, o)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.URL, err))
			continue
		}
		g, err := m.scoped.Grant(ctx, b, scoped.Use{ReadOnly: s.ReadOnly})
		if err != nil {
			failed = append(failed, fmt.Errorf("credentials for %s: %w", s.URL, err))
			continue
		}
		out = append(out, agentapi.NodeMount{Spec: s, Credentials: credentialsOf(g)})
	}
	return out, errors.Join(failed...)
}

// mountsPeriod is how often credentials of mounts are looked at. Those that are handed out
// hold for longer.
const mountsPeriod = time.Minute

// handed remembers which credentials nodes of clusters have.
type handed struct {
	mu     sync.Mutex
	needs  map[string]bool                        // clusters, by hash, whose nodes ask for them
	pushed map[string][]agentapi.MountCredentials // by cluster hash
	kick   chan struct{}
}

// NeedMounts says that nodes of a cluster wait for credentials of their mounts.
func (m *Manager) NeedMounts(hash string) {
	m.handed.mu.Lock()
	m.handed.needs[hash] = true
	m.handed.mu.Unlock()
	select {
	case m.handed.kick <- struct{}{}:
	default:
	}
}

// KeepMounts hands credentials to nodes whose mounts need new ones, until ctx ends.
func (m *Manager) KeepMounts(ctx context.Context) {
	t := time.NewTicker(mountsPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.handed.kick:
		case <-t.C:
		}
		m.handOut(ctx)
	}
}

// handOut sends credentials where some are waited for, or have changed.
func (m *Manager) handOut(ctx context.Context) {
	all, err := m.Store.Clusters().List(ctx, state.ClusterFilter{Statuses: []api.ClusterStatus{api.ClusterUp, api.ClusterAutostopping}})
	if err != nil {
		m.Log.WarnContext(ctx, "credentials of mounts not looked at", "err", err)
		return
	}
	m.handed.mu.Lock()
	needs := m.handed.needs
	m.handed.needs = map[string]bool{}
	live := map[string]bool{}
	for _, c := range all {
		live[c.Hash] = true
	}
	maps.DeleteFunc(m.handed.pushed, func(hash string, _ []agentapi.MountCredentials) bool { return !live[hash] })
	m.handed.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(8)
	for _, cl := range all {
		if len(cl.Notes.Mounts) == 0 || len(cl.Nodes) == 0 || m.Machine != "" && cl.Notes.ServerMachine != "" && cl.Notes.ServerMachine != m.Machine {
			continue
		}
		g.Go(func() error {
			if err := m.handTo(ctx, cl, needs[cl.Hash]); err != nil && ctx.Err() == nil {
				m.Log.WarnContext(ctx, "credentials of mounts not handed over; this is tried again", "cluster", cl.Name, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait() // each has logged its error
}

func (m *Manager) handTo(ctx context.Context, cl *state.Cluster, needed bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	wanted, missing := m.withCredentials(ctx, cl) // a bucket that is gone keeps none from the others
	if len(wanted) == 0 {
		return missing
	}
	var creds []agentapi.MountCredentials
	lasting := true
	for _, w := range wanted {
		creds = append(creds, w.Credentials)
		lasting = lasting && w.Credentials.Expires.IsZero()
	}
	m.handed.mu.Lock()
	have := m.handed.pushed[cl.Hash]
	m.handed.mu.Unlock()
	if !needed && (lasting || slices.Equal(have, creds)) {
		return missing
	}
	if err := m.push(ctx, cl, wanted); err != nil {
		return errors.Join(err, missing)
	}
	m.handed.mu.Lock()
	m.handed.pushed[cl.Hash] = creds
	m.handed.mu.Unlock()
	return missing
}
