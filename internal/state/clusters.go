package state

import (
	"context"
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/fsm"
)

// Clusters is the store of cluster records.
type Clusters struct{ s *Store }

// ClusterFilter selects clusters; zero fields select all.
type ClusterFilter struct {
	Names         []string // exact, or shell patterns
	UserHash      string
	Workspace     string
	Scope         *Scope // in workspaces that it sees
	Unheld        bool   // none that something other than its user holds
	Statuses      []api.ClusterStatus
	Limit, Offset int // Limit 0: no limit
}

// TransitionError means that a cluster cannot go from one status to another.
type TransitionError struct {
	Cluster  string
	From, To api.ClusterStatus
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("cluster %s cannot go from %s to %s", e.Cluster, e.From, e.To)
}

var clusterColumns = columns{
	"name", "hash", "name_on_cloud", "status", "epoch", "version",
	"user_hash", "user_name", "workspace", "owner",
	"launched_at", "status_updated_at", "ever_up",
	"offer", "num_nodes", "requested", "ports", "labels", "disk_gb", "nodes", "certs", "agent_build", "setup_done",
	"autostop_minutes", "autostop_down", "autostop_wait_for",
	"last_use", "creation_yaml", "creation_cmd", "config_hash", "holder_kind", "holder_id", "metadata",
}

// clusterNotes is the two typed parts of a record that share a column.
type clusterNotes struct {
	*cloud.MachineSpec
	*ClusterNotes
}

func (s *Store) clusterFields(c *Cluster) []any {
	return []any{
		text(&c.Name), text(&c.Hash), text(&c.NameOnCloud), text(&c.Status), number(&c.Epoch), number(&c.Version),
		text(&c.UserHash), text(&c.UserName), text(&c.Workspace), nested(&c.Owner),
		instant(&c.LaunchedAt), instant(&c.StatusUpdatedAt), truth(&c.EverUp),
		nested(&c.Offer), number(&c.NumNodes), text(&c.Requested), nested(&c.Ports), nested(&c.Labels), number(&c.Machine.DiskGB), nested(&c.Nodes), s.in("clusters", &c.Hash, "certs").later(&c.Certs), text(&c.AgentBuild), truth(&c.SetupDone),
		number(&c.AutostopMinutes), truth(&c.AutostopDown), text(&c.AutostopWaitFor),
		text(&c.LastUse), text(&c.CreationYAML), text(&c.CreationCmd), text(&c.ConfigHash), text(&c.Holder.Kind), text(&c.Holder.ID), nested(&clusterNotes{&c.Machine, &c.Notes}),
	}
}

// A cluster is read with the reason of its latest status change.
var selectClusters = "SELECT " + clusterColumns.of("c") + `, COALESCE((
	SELECT e.reason FROM cluster_events e WHERE e.cluster_hash = c.hash AND e.type = 'STATUS_CHANGE'
	ORDER BY e.at DESC LIMIT 1), '') FROM clusters c `

func (s *Store) clusterRow(c *Cluster) []any { return append(s.clusterFields(c), text(&c.LastEvent)) }

var insertCluster = "INSERT INTO clusters (" + clusterColumns.list() + ") VALUES (" + clusterColumns.marks() + ") ON CONFLICT DO NOTHING"

// Create writes a new cluster with Version 1; [ErrConflict] if the name or
// the hash is taken.
func (t *Clusters) Create(ctx context.Context, c *Cluster) error { return t.CreateWith(ctx, c, nil) }

// CreateWith is Create of a cluster that holds volumes, from its first moment to
// its last. A [*VolumeNotThereError] if one is not there.
func (t *Clusters) CreateWith(ctx context.Context, c *Cluster, mounts []NewVolumeMount) error {
	row := *c
	row.Version = 1
	err := t.s.createOnce(ctx, func(s *session) error {
		if err := changed(s.exec(insertCluster, t.s.clusterFields(&row)...)); err != nil {
			return err
		}
		return hold(s, &row, mounts)
	})
	if err == nil {
		c.Version = 1
	}
	return err
}

// changed is [ErrConflict] if a statement changed nothing.
func changed(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrConflict
	}
	return err
}

// Get is the cluster of that name, or [ErrNotFound].
func (t *Clusters) Get(ctx context.Context, name string) (*Cluster, error) {
	c := new(Cluster)
	if err := t.s.read(ctx).one(t.s.clusterRow(c), selectClusters+"WHERE c.name = ?", name); err != nil {
		return nil, t.s.explain(err)
	}
	return c, nil
}

// List is the clusters that the filter selects, the newest launched first.
func (t *Clusters) List(ctx context.Context, f ClusterFilter) ([]*Cluster, error) {
	var w where
	w.anyOf(t.s.db.d, "c.name", f.Names)
	w.equal("c.user_hash", f.UserHash)
	w.equal("c.workspace", f.Workspace)
	within(&w, "c.workspace", f.Scope)
	if f.Unheld {
		w.add("c.holder_kind = ''")
	}
	in(&w, "c.status", f.Statuses)
	q := selectClusters + w.String() + " ORDER BY c.launched_at DESC, c.name"
	q, args := page(q, w.args, f.Limit, f.Offset)
	list, err := all(t.s.read(ctx).varying(), t.s.clusterRow, q, args...)
	return list, t.s.explain(err)
}

var updateCluster = "UPDATE clusters SET " + clusterColumns.set() + " WHERE name = ? AND hash = ? AND version = ?"

// Save writes the cluster if its Version is still what is stored, and
// increments it in place; else [ErrConflict]. A status that the cluster cannot
// have next is a [*TransitionError].
func (t *Clusters) Save(ctx context.Context, c *Cluster) error {
	row := *c
	row.Version++
	from := append(fsm.Clusters().Into(c.Status), c.Status)
	err := t.s.write(ctx, func(s *session) error {
		args := append(t.s.clusterFields(&row), c.Name, c.Hash, c.Version)
		n, err := s.exec(updateCluster+" AND status IN ("+marks(len(from))+")", append(args, anys(from)...)...)
		if err != nil || n > 0 {
			return err
		}
		var is api.ClusterStatus
		err = s.one([]any{text(&is)}, "SELECT status FROM clusters WHERE name = ? AND hash = ? AND version = ?", c.Name, c.Hash, c.Version)
		if err == nil {
			return &TransitionError{c.Name, is, c.Status}
		}
		if errors.Is(err, ErrNotFound) {
			return ErrConflict
		}
		return err
	})
	if err == nil {
		c.Version = row.Version
	}
	return err
}

// Update reads the cluster, lets f change it and saves it, again and again
// until nobody interfered. An error of f ends it and is returned.
// [ErrNotFound] if that incarnation of the name is gone.
func (t *Clusters) Update(ctx context.Context, name, hash string, f func(*Cluster) error) (*Cluster, error) {
	return update(func() (*Cluster, error) {
		c := new(Cluster)
		err := t.s.read(ctx).one(t.s.clusterRow(c), selectClusters+"WHERE c.name = ? AND c.hash = ?", name, hash)
		return c, t.s.explain(err)
	}, f, func(c *Cluster) error { return t.Save(ctx, c) })
}

// Delete removes the cluster and closes its open usage interval; what it was
// stays in the history. It holds no volume any more, and those that were its own
// go. [ErrNotFound] if that incarnation is gone.
func (t *Clusters) Delete(ctx context.Context, name, hash string) error {
	now := t.s.Now()
	return t.s.writeAgain(ctx, func(s *session) error {
		if err := s.one([]any{new(int64)}, "SELECT 1 FROM clusters WHERE name = ? AND hash = ?", name, hash); err != nil {
			return err
		}
		if err := closeUsage(s, hash, now); err != nil {
			return err
		}
		if err := letGo(s, hash); err != nil {
			return err
		}
		_, err := s.exec("DELETE FROM clusters WHERE name = ? AND hash = ?", name, hash)
		return err
	})
}
