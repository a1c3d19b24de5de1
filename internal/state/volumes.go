package state

import (
	"context"
)

// Volumes is the store of volumes.
type Volumes struct{ named[Volume] }

// Volumes is the store of volumes.
func (s *Store) Volumes() *Volumes { return &Volumes{named[Volume]{s, volumeTable}} }

// VolumeFilter selects volumes; zero fields select all.
type VolumeFilter struct {
	Names     []string
	Workspace string
	UserHash  string
	Scope     *Scope // in workspaces that it sees
	Stages    []VolumeStage
	Limit     int // 0: no limit
}

var volumeTable = newTable("volumes", "hash", columns{"name", "hash", "version", "stage", "user_hash", "user_name", "workspace",
	"asked", "spec", "seen", "problem", "cluster_hash", "launched_at", "last_attached_at", "last_use", "creation_yaml"},
	volumeFields, func(v *Volume) (name, incarnation string, version *int64) { return v.Name, v.Hash, &v.Version })

func volumeFields(v *Volume) []any {
	return []any{text(&v.Name), text(&v.Hash), number(&v.Version), text(&v.Stage), text(&v.UserHash), text(&v.UserName), text(&v.Workspace),
		nested(&v.Asked), nested(&v.Is), nested(&v.Seen), text(&v.Problem), text(&v.ClusterHash),
		instant(&v.LaunchedAt), instant(&v.LastAttachedAt), text(&v.LastUse), text(&v.CreationYAML)}
}

// List is the volumes that the filter selects, by name.
func (t *Volumes) List(ctx context.Context, f VolumeFilter) ([]*Volume, error) {
	var w where
	w.anyOf(t.s.db.d, "name", f.Names)
	w.equal("workspace", f.Workspace)
	w.equal("user_hash", f.UserHash)
	within(&w, "workspace", f.Scope)
	in(&w, "stage", f.Stages)
	q, args := page(t.find+w.String()+" ORDER BY name", w.args, f.Limit, 0)
	list, err := all(t.s.read(ctx).varying(), t.fields, q, args...)
	return list, t.s.explain(err)
}

// BeginDelete notes that an incarnation of a volume is about to go, from when on
// nothing can mount it. A [*VolumeHeldError] if clusters hold it, [ErrNotFound] if
// it is gone.
func (t *Volumes) BeginDelete(ctx context.Context, name, hash string) (*Volume, error) {
	// Whoever mounts a volume changes its version, so what is read between the
	// row's reading and its saving holds.
	return t.Update(ctx, name, hash, func(v *Volume) error {
		by, err := t.Holders(ctx, name)
		if err != nil {
			return err
		}
		if len(by) > 0 {
			e := &VolumeHeldError{Volume: name}
			for _, h := range by {
				e.Clusters = append(e.Clusters, h.Cluster)
			}
			return e
		}
		v.Stage, v.Problem = VolumeDeleting, ""
		return nil
	})
}

// Holders are the clusters that hold volumes, in order of their names; without
// names, of all volumes.
func (t *Volumes) Holders(ctx context.Context, names ...string) ([]VolumeHolder, error) {
	var w where
	in(&w, "m.volume", names)
	list, err := all(t.s.read(ctx).varying(), func(h *VolumeHolder) []any { return []any{text(&h.Volume), text(&h.Cluster), text(&h.Hash)} },
		"SELECT DISTINCT m.volume, c.name, c.hash FROM volume_mounts m JOIN clusters c ON c.hash = m.cluster_hash "+w.String()+" ORDER BY c.name, m.volume", w.args...)
	return values(list), t.s.explain(err)
}

// Mounts are the volumes that a cluster holds, in order of their paths.
func (t *Volumes) Mounts(ctx context.Context, clusterHash string) ([]VolumeMount, error) {
	fields := func(m *VolumeMount) []any {
		m.Volume = new(Volume)
		return append([]any{text(&m.Path), text(&m.SubPath)}, t.fields(m.Volume)...)
	}
	list, err := all(t.s.read(ctx), fields, "SELECT m.path, m.sub_path, "+t.columns.of("v")+
		" FROM volume_mounts m JOIN volumes v ON v.name = m.volume WHERE m.cluster_hash = ? ORDER BY m.path", clusterHash)
	return values(list), t.s.explain(err)
}

// Attached notes that what a cluster holds is being mounted again.
func (t *Volumes) Attached(ctx context.Context, clusterHash, lastUse string) error {
	now := t.s.Now()
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("UPDATE volumes SET last_attached_at = ?, last_use = ?, version = version + 1 WHERE name IN (SELECT volume FROM volume_mounts WHERE cluster_hash = ?)",
			nanos(now), lastUse, clusterHash)
		return err
	})
}

// hold makes a cluster that is being written hold volumes.
func hold(s *session, c *Cluster, mounts []NewVolumeMount) error {
	for _, m := range mounts {
		name := m.Name
		if m.Own != nil {
			row := *m.Own
			name, row.Version, row.ClusterHash = row.Name, 1, c.Hash
			if n, err := s.exec(volumeTable.insert, volumeFields(&row)...); err != nil {
				return err
			} else if n == 0 {
				return &VolumeNotThereError{name}
			}
		} else if n, err := s.exec("UPDATE volumes SET last_attached_at = ?, last_use = ?, version = version + 1 WHERE name = ? AND stage = ? AND cluster_hash = ''",
			nanos(c.LaunchedAt), c.LastUse, name, string(VolumeThere)); err != nil {
			return err
		} else if n == 0 {
			return &VolumeNotThereError{name}
		}
		if _, err := s.exec("INSERT INTO volume_mounts (cluster_hash, path, volume, sub_path) VALUES (?, ?, ?, ?)", c.Hash, m.Path, name, m.SubPath); err != nil {
			return err
		}
	}
	return nil
}

// letGo makes a cluster that is being removed hold no volume; those that go with
// it are forgotten.
func letGo(s *session, clusterHash string) error {
	if _, err := s.exec("DELETE FROM volume_mounts WHERE cluster_hash = ?", clusterHash); err != nil {
		return err
	}
	_, err := s.exec("DELETE FROM volumes WHERE cluster_hash = ?", clusterHash)
	return err
}
