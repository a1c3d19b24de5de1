package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
)

// GivingBack reports whether somebody began to give a cluster's machines back and
// has no proof yet that they are gone.
func GivingBack(c *state.Cluster) bool { return c.Notes.GivingBack != "" }

// Keep takes back the intent to give a cluster up, or to switch it off; the caller saves it.
func Keep(c *state.Cluster) { c.Notes.GivingBack, c.Notes.SwitchingOff = "", "" }

// forget gives a cluster's machines back, together with what the provider made
// besides machines, and removes the record once the provider lists none of
// them. Until then the record stays and says so: every later look at it, the
// background ones too, goes on from here. out, which may be nil, hears what is
// waited for; when they are not gone in time, the record says so, and out.
func (m *Manager) forget(ctx context.Context, out io.Writer, c *state.Cluster, reason string) error {
	if p, err := m.provider(c); err == nil {
		if err := m.SameAccount(ctx, c, p); err != nil {
			return err
		}
	}
	m.watcher.wordsOf(c.Hash).since(heardAt(c)) // the record goes
	if !GivingBack(c) {
		marked, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
			c.Notes.GivingBack = reason
			return nil
		})
		if err != nil {
			return err
		}
		c = marked
		m.watcher.changes.Notify(c.Hash) // whoever ran jobs there need not wait for the end
	}
	late := func(text string) {
		if out != nil {
			fmt.Fprintf(out, "⚠ %s\n", text)
		}
		m.event(context.WithoutCancel(ctx), c, "STATUS_CHANGE", c.Status, text)
	}
	gctx, end := provision.ReportProgress(ctx, out, "terminating cluster "+c.Name)
	err := m.Provision.GiveBack(gctx, c, late)
	end()
	if err != nil {
		m.remains(context.WithoutCancel(ctx), c, err)
		return err
	}
	m.event(ctx, c, "TERMINAL", c.Status, reason)
	if err := m.Store.Clusters().Delete(ctx, c.Name, c.Hash); err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	m.Remote.Gone(c.Hash)
	m.watcher.wake()
	m.watcher.changes.Notify(c.Hash)
	return nil
}

// remains notes that machines of a cluster may still be there. Nobody can say
// which: the cluster is in no state that can be worked with.
func (m *Manager) remains(ctx context.Context, c *state.Cluster, cause error) {
	from := c.Status
	c, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Status, c.StatusUpdatedAt = api.ClusterInit, now()
		return nil
	})
	if err != nil {
		if !errors.Is(err, state.ErrNotFound) {
			m.Log.WarnContext(ctx, "cluster not marked", "err", err)
		}
		return
	}
	reason := fmt.Sprintf("its machines could not be given back yet: %v", cause)
	if reason != c.LastEvent {
		m.event(ctx, c, "STATUS_CHANGE", from, reason)
	}
	m.watcher.wake()
}

// ReleaseOrphan gives back one incarnation of a cluster that never was up, unless
// somebody works on it or wanted reports that somebody is about to.
func (m *Manager) ReleaseOrphan(ctx context.Context, name, hash string, wanted func(context.Context) (bool, error)) error {
	ctx, unlock, ok, err := m.TryLock(ctx, name)
	if err != nil || !ok {
		return err
	}
	defer unlock()
	c, err := m.Store.Clusters().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) || err == nil && (c.Hash != hash || c.EverUp || c.Status != api.ClusterInit) {
		return nil
	}
	if err != nil {
		return err
	}
	if is, err := wanted(ctx); err != nil || is {
		return err
	}
	return m.Release(ctx, nil, c, "its launch ended without it")
}
