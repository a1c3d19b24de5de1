// Package cluster looks after clusters that exist: what state they are in,
// their jobs and logs, stopping them, giving them back, and their autostop.
// Bringing them up is package execution's business.
//
// The record of a cluster is changed only under its lock, except for what its
// agents tell (which compare-and-set protects).
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/upload"
)

// Deps are what a Manager works with.
type Deps struct {
	Store     *state.Store
	Providers *cloud.Registry
	Provision *provision.Engine
	Remote    *remote.Connector
	Log       *slog.Logger
	ServerID  string
	// CancelRequests ends other requests in flight for a cluster (cooperatively)
	// and returns when they have ended. nil: nothing to cancel.
	CancelRequests func(ctx context.Context, cluster, except string) error
	// Machine names the machine of this server, if several servers share the
	// database; see [Manager.Here].
	Machine string
	// Logins reports that users log in; else all of them are the owner of the server.
	Logins bool
	// Ended stores how a job that asks for a report ended, see [agentapi.SubmitRequest]:
	// its agent tells it again until there was no error. nil: nobody asks.
	Ended func(ctx context.Context, hash string, j agentapi.Job) error
	// NeedMounts is called when a node of a cluster waits for credentials of its mounts.
	// nil: nobody has them.
	NeedMounts func(hash string)
	// OncePer runs f unless some server of the installation did within the period.
	// nil: always.
	OncePer func(ctx context.Context, period time.Duration, name string, f func(context.Context))
}

// Manager looks after all clusters of an installation.
type Manager struct {
	Deps
	locks    *Locks
	watcher  *watcher
	accounts accounts
	answers  answers
	tails    tails
	finding  coalescer[jobKey, foundJob]
}

// New returns a manager; Watch makes it follow the agents.
func New(d Deps) *Manager {
	if d.OncePer == nil {
		d.OncePer = func(ctx context.Context, _ time.Duration, _ string, f func(context.Context)) { f(ctx) }
	}
	m := &Manager{Deps: d, locks: NewLocks(d.Store, d.ServerID, "cluster")}
	m.watcher = newWatcher(m)
	return m
}

// Call is one request for a cluster: who asks, under which request id, and
// where to tell about progress.
type Call struct {
	RequestID string
	User      state.User
	Scope     *state.Scope // what the caller may touch; nil: everything
	Attempt   int          // > 1: resumed after a crash
	Command   string
	Out       Output
	// Files are those that the request's tasks may bring to nodes.
	Files upload.Files
	// Config is what holds for this request: the server's configuration with the
	// client's laid over it. Nil: defaults.
	Config *config.Config
	// Load and Save keep what the request must remember if the server dies.
	Load func() []byte
	Save func(ctx context.Context, b []byte) error
	// Rest runs f, which only waits, without keeping others from running
	// meanwhile; nil: there are none.
	Rest func(f func())
}

// MayRun refuses to run something of the caller's as the Unix account of another user. It
// is asked wherever commands or files are on their way to a cluster that exists.
func (m *Manager) MayRunAs(call Call, c *state.Cluster) error {
	if !m.Logins {
		return nil
	}
	return c.MayRun(call.User.ID)
}

// MayUse refuses a task whose config section asks for a workspace that the
// caller may not use.
func (c Call) MayUse(taskConfig map[string]any) error {
	name, asks := taskConfig["active_workspace"].(string)
	if !asks || c.Scope.Sees(name) {
		return nil
	}
	return &api.Error{Type: api.ErrPermissionDenied,
		Message: fmt.Sprintf("The task asks for the workspace %q (config.active_workspace), which you may not use.", name)}
}

// MayBegin refuses something new whose task's config section asks for a workspace
// that was removed.
func (c Call) MayBegin(taskConfig map[string]any) error {
	name, _ := taskConfig["active_workspace"].(string)
	if c.Config == nil || name == "" {
		return nil
	}
	if w, _ := c.Config.Workspace(name); w.Removed {
		err := &config.RemovedError{Workspace: name}
		return &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	return nil
}

// Output is where a request's progress goes.
type Output interface {
	io.Writer
	Spin(text string)
	StopSpin()
}

// Get returns a cluster's record; a name that is not taken is an *api.Error
// with names that are close.
func (m *Manager) Get(ctx context.Context, name string) (*state.Cluster, error) {
	c, err := m.Store.Clusters().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		return nil, m.notFound(ctx, name)
	}
	return c, err
}

func (m *Manager) notFound(ctx context.Context, name string) error {
	e := &api.Error{
		Type:    api.ErrClusterDoesNotExist,
		Message: fmt.Sprintf("Cluster %q does not exist.", name),
		Hint:    "List clusters with: sky status",
		Err:     state.ErrNotFound,
	}
	if near := m.Similar(ctx, name); len(near) > 0 {
		e.Message += " Did you mean " + strings.Join(near, " or ") + "?"
	}
	return e
}

// Similar lists clusters whose names were probably meant by name.
func (m *Manager) Similar(ctx context.Context, name string) []string {
	all, err := m.Store.Clusters().List(ctx, state.ClusterFilter{})
	if err != nil {
		return nil // what is wrong with the name can be said without
	}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
	}
	return similar.Names(name, names)
}

// Up returns a cluster that can take work; doing names what for. The state on
// record may be stale, so anything but UP is looked at before it is refused.
func (m *Manager) Up(ctx context.Context, name, doing string) (*state.Cluster, error) {
	c, err := m.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := m.Here(c); err != nil {
		return nil, err
	}
	if c.Status == api.ClusterUp || c.Status == api.ClusterAutostopping {
		return c, nil
	}
	if fresh, err := m.Refresh(ctx, name); err == nil && fresh != nil {
		c = fresh
	}
	if c.Status == api.ClusterUp || c.Status == api.ClusterAutostopping {
		return c, nil
	}
	return nil, NotUp(c, doing)
}

// NotUp is the error of doing something that needs an UP cluster.
func NotUp(c *state.Cluster, doing string) error {
	hint := "Bring it up with: sky start " + c.Name
	if GivingBack(c) {
		hint = "It is being given back; see how far that is with: sky down " + c.Name
	} else if c.Status == api.ClusterInit {
		hint = fmt.Sprintf("Wait for its launch to end (sky api status), or bring it up with: sky start %s", c.Name)
	}
	return &api.Error{
		Type:       api.ErrClusterNotUp,
		Message:    fmt.Sprintf("%s needs cluster %q to be UP, but it is %s.", doing, c.Name, c.Status),
		Attributes: map[string]any{"cluster_status": string(c.Status)},
		Hint:       hint,
	}
}

// ask puts a question to the head agent of a cluster that can take work. An
// agent that does not answer may have died: it is looked after and asked once
// more, so the question must be safe to repeat.
func (m *Manager) ask(ctx context.Context, name, doing string, question func(*state.Cluster, *agentclient.Client) error) error {
	c, err := m.Up(ctx, name, doing)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		client, err := m.Remote.Head(c)
		if err != nil {
			return err
		}
		err = question(c, client)
		if err == nil || ctx.Err() != nil || answered(err) {
			return err
		}
		if try == 2 {
			return unreachable(c, doing, err)
		}
		fresh, rerr := m.refreshNext(ctx, name)
		switch {
		case rerr == nil && fresh == nil, errors.Is(rerr, state.ErrNotFound):
			return m.notFound(ctx, name)
		case rerr == nil && fresh.Status != api.ClusterUp && fresh.Status != api.ClusterAutostopping:
			return NotUp(fresh, doing)
		case rerr == nil:
			c = fresh
		}
	}
}

// answered tells an agent's refusal, or an error of ours, from silence.
func answered(err error) bool {
	var refused *agentapi.Error
	var ours *api.Error
	return errors.As(err, &refused) || errors.As(err, &ours)
}

// unreachable explains a failed call to a cluster's agent.
func unreachable(c *state.Cluster, doing string, err error) error {
	return &api.Error{
		Type:    api.ErrRuntime,
		Message: fmt.Sprintf("%s failed: the agent of cluster %q does not answer: %v", doing, c.Name, err),
		Hint:    fmt.Sprintf("See what became of it with: sky status --refresh %s", c.Name),
		Err:     err,
	}
}

// match reports whether a name is selected by any of the globs; no globs select
// all.
func match(globs []string, name string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, name); err == nil && ok || g == name {
			return true
		}
	}
	return len(globs) == 0
}

// event notes something in the cluster's history; failing to is logged only.
func (m *Manager) event(ctx context.Context, c *state.Cluster, kind string, from api.ClusterStatus, reason string) {
	err := m.Store.Clusters().AddEvent(ctx, state.ClusterEvent{
		ClusterHash: c.Hash, ClusterName: c.Name, Type: kind, Reason: reason,
		Starting: from, Ending: c.Status, At: now(),
	})
	if err != nil {
		m.Log.WarnContext(ctx, "cluster event not stored", "cluster", c.Name, "err", err)
	}
}

// provider is the cloud a cluster lives on.
func (m *Manager) provider(c *state.Cluster) (cloud.Provider, error) {
	if err := m.Here(c); err != nil {
		return nil, err
	}
	p, ok := m.Providers.Get(c.Offer.Cloud)
	if !ok {
		return nil, fmt.Errorf("cluster %q is on %q, which this version of sky does not know", c.Name, c.Offer.Cloud)
	}
	return p, nil
}
