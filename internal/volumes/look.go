package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// look asks the clouds about volumes, each once for all that are in one place, and
// notes what they say. Volumes that are being made or deleted are passed over: what
// is seen of them may be over before it is noted. Not being able to ask is noted,
// too.
func (m *Manager) look(ctx context.Context, c *config.Config, list []*state.Volume) error {
	owners, err := m.owners(ctx, list)
	if err != nil {
		return err
	}
	type question struct {
		rows []*state.Volume
		ask  []cloud.Volume
	}
	at := map[cloud.Place]*question{}
	for _, v := range list {
		if v.Stage != state.VolumeThere {
			continue
		}
		vol := v.Is
		if v.ClusterHash != "" {
			owner := owners[v.ClusterHash]
			if owner == nil || len(owner.Nodes) == 0 {
				continue // its nodes are being got, or it goes
			}
			vol = own(v, owner.Offer.Place, m.idOf(owner), nil)
		}
		vol = m.asked(vol, v.Workspace, c)
		place := cloud.Place{Cloud: vol.Place.Cloud, Region: vol.Place.Region}
		q := at[place]
		if q == nil {
			q = &question{}
			at[place] = q
		}
		q.rows, q.ask = append(q.rows, v), append(q.ask, vol)
	}
	var g sync.WaitGroup
	errs := make(chan error, len(at))
	for place, q := range at {
		g.Go(func() {
			lctx, cancel := context.WithTimeout(ctx, lookTimeout)
			defer cancel()
			p, err := m.volumer(place.Cloud)
			var states []cloud.VolumeState
			if err == nil {
				states, err = p.LookAtVolumes(lctx, q.ask)
			}
			if err == nil && len(states) != len(q.ask) {
				err = fmt.Errorf("%s told of %d volumes instead of %d", place.Cloud, len(states), len(q.ask))
			}
			if ctx.Err() != nil {
				errs <- context.Cause(ctx)
				return
			}
			for i, v := range q.rows {
				s := cloud.VolumeState{Unknown: err}
				if err == nil {
					s = states[i]
				}
				if err := m.saw(ctx, v, s); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	g.Wait()
	close(errs)
	return <-errs
}

// saw notes what a cloud said about a volume. v becomes what is on record.
func (m *Manager) saw(ctx context.Context, v *state.Volume, s cloud.VolumeState) error {
	seen := v.Seen
	if s.Unknown != nil {
		seen.Unknown = words(s.Unknown)
	} else {
		seen = state.VolumeSeen{At: m.Store.Now(), Exists: s.Exists, Ready: s.Exists && s.Ready, Reason: s.Reason, Pods: s.Pods}
		for _, n := range s.Nodes {
			if n.Hash != "" && !slices.Contains(seen.Clusters, n.Hash) {
				seen.Clusters = append(seen.Clusters, n.Hash)
			}
		}
		slices.Sort(seen.Clusters)
	}
	fresh, err := m.Store.Volumes().Update(ctx, v.Name, v.Hash, func(v *state.Volume) error {
		if v.Stage == state.VolumeThere {
			v.Seen = seen
			if s.Unknown == nil && s.Exists && s.SizeGB > 0 && v.ClusterHash == "" {
				v.Is.SizeGB = s.SizeGB
			}
		}
		return nil
	})
	if errors.Is(err, state.ErrNotFound) {
		return nil // deleted meanwhile
	}
	if err == nil {
		*v = *fresh
	}
	return err
}

// owners are the clusters with which some of the volumes go, by their hashes.
func (m *Manager) owners(ctx context.Context, list []*state.Volume) (map[string]*state.Cluster, error) {
	var names []string
	for _, v := range list {
		if v.ClusterHash != "" {
			names = append(names, v.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	by, err := m.Store.Volumes().Holders(ctx, names...)
	if err != nil {
		return nil, err
	}
	out := map[string]*state.Cluster{}
	for _, h := range by {
		c, err := m.Store.Clusters().Get(ctx, h.Cluster)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[c.Hash] = c
	}
	return out, nil
}

// idOf is how clouds know a cluster.
func (m *Manager) idOf(c *state.Cluster) cloud.ClusterID {
	return cloud.ClusterID{Installation: m.Installation, Name: c.NameOnCloud, Hash: c.Hash}
}

// own is a volume that goes with its cluster, where an attempt makes the cluster.
func own(v *state.Volume, at cloud.Place, id cloud.ClusterID, settings map[string]any) cloud.Volume {
	out := v.Is
	out.Installation, out.Cluster, out.Settings = id.Installation, id, settings
	out.Place = at
	out.NameOnCloud = id.Name + "-" + v.Hash[:8]
	return out
}
