// Package volumes looks after disks that outlive clusters: making them, telling
// what they are and who uses them, and deleting them.
//
// What is wanted of a volume is on record before its cloud is asked for it, and
// stays there until the cloud has done it: what a crash cut off is taken up by
// the request that is resumed, or by [Manager.Settle]. A volume is changed under
// its lock only, except for what its cloud says of it (which compare-and-set
// protects). Which clusters hold a volume follows from their records, whether or
// not their nodes exist.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Bounds of one call to a cloud.
const (
	makeTimeout   = 10 * time.Minute
	deleteTimeout = 10 * time.Minute
	lookTimeout   = 30 * time.Second
)

// Deps are what a Manager works with.
type Deps struct {
	Store        *state.Store
	Providers    *cloud.Registry
	Installation string // the id that everything created is tagged with
	ServerID     string
	Log          *slog.Logger
	// Config is the server's configuration just then, for what no request asks for.
	Config func() *config.Config
}

// Manager looks after all volumes of an installation.
type Manager struct {
	Deps
	locks    *cluster.Locks
	patience time.Duration // of launches with volumes that are not ready
}

// New returns a manager. Nothing runs yet.
func New(d Deps) *Manager {
	return &Manager{Deps: d, locks: cluster.NewLocks(d.Store, d.ServerID, "volume"), patience: usualPatience}
}

// Volumer is the provider of that name, if it has volumes; else an [*api.Error]
// says what is wrong.
func (m *Manager) volumer(name string) (cloud.Volumer, error) {
	p, ok := m.Providers.Get(name)
	if !ok {
		return nil, &api.Error{Type: api.ErrNotSupported,
			Message: fmt.Sprintf("This version of sky has no volumes on %s: it does not know that cloud. Kinds that it can make: %s.", task.CloudDisplay(name), m.kinds())}
	}
	v, ok := cloud.As[cloud.Volumer](p)
	if !ok {
		return nil, &api.Error{Type: api.ErrNotSupported,
			Message: fmt.Sprintf("This version of sky has no volumes on %s. Kinds that it can make: %s.", p.DisplayName(), m.kinds())}
	}
	return v, nil
}

// kinds names the kinds of volumes that there are providers for.
func (m *Manager) kinds() string {
	var out []string
	for _, kind := range task.VolumeTypes {
		name, _ := task.VolumeCloud(kind)
		p, ok := m.Providers.Get(name)
		if !ok {
			continue
		}
		if _, ok := cloud.As[cloud.Volumer](p); ok {
			out = append(out, kind)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// onCloud is a volume on record as its cloud is asked about it.
func (m *Manager) onCloud(v *state.Volume, c *config.Config) cloud.Volume {
	return m.asked(v.Is, v.Workspace, c)
}

// asked is a volume of a workspace with what its cloud needs to find it.
func (m *Manager) asked(v cloud.Volume, workspace string, c *config.Config) cloud.Volume {
	v.Installation = m.Installation
	v.Settings = c.For(config.Scope{Cloud: v.Place.Cloud, Workspace: workspace, Region: v.Place.Region}).Section()
	return v
}

// bare is a cloud's volume as it is kept on record.
func bare(v cloud.Volume) cloud.Volume {
	v.Installation, v.Settings, v.Cluster = "", nil, cloud.ClusterID{}
	return v
}

// configOf is the configuration of a call.
func (m *Manager) configOf(call cluster.Call) *config.Config {
	if call.Config != nil {
		return call.Config
	}
	return m.Config()
}

// get is a volume that the caller may see; else an [*api.Error] with names that
// are close.
func (m *Manager) get(ctx context.Context, scope *state.Scope, name string) (*state.Volume, error) {
	v, err := m.Store.Volumes().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) || err == nil && !scope.Sees(v.Workspace) {
		return nil, m.notFound(ctx, scope, name)
	}
	return v, err
}

func (m *Manager) notFound(ctx context.Context, scope *state.Scope, name string) error {
	e := &api.Error{Type: api.ErrVolumeNotFound, Message: fmt.Sprintf("Volume %q does not exist.", name), Err: state.ErrNotFound,
		Hint: "List volumes with: sky volumes ls; make one with: sky volumes apply"}
	all, err := m.Store.Volumes().List(ctx, state.VolumeFilter{Scope: scope})
	if err != nil {
		return e // what is wrong with the name can be said without
	}
	var names []string
	for _, v := range all {
		names = append(names, v.Name)
	}
	if near := similar.Names(name, names); len(near) > 0 {
		e.Message += " Did you mean " + strings.Join(near, " or ") + "?"
	}
	return e
}

// Names are those of volumes that a caller sees, with a prefix.
func (m *Manager) Names(ctx context.Context, scope *state.Scope, prefix string) ([]string, error) {
	all, err := m.Store.Volumes().List(ctx, state.VolumeFilter{Scope: scope})
	var out []string
	for _, v := range all {
		if strings.HasPrefix(v.Name, prefix) {
			out = append(out, v.Name)
		}
	}
	return out, err
}

func invalid(format string, args ...any) *api.Error {
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf(format, args...)}
}
