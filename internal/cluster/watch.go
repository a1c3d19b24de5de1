package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// watcher keeps a connection to every agent of every running cluster, on which
// the agent pushes what changes; one that breaks reports that the agent died.
type watcher struct {
	m       *Manager
	poke    chan struct{}
	changes notify.Keyed[string] // by cluster hash

	mu      sync.Mutex
	running map[string]context.CancelFunc // by cluster hash
	heard   map[string][]time.Time        // of those: when each agent was heard last, by rank
	words   map[string]*agentContact      // by cluster hash, and for a while after the cluster is gone
}

func newWatcher(m *Manager) *watcher {
	return &watcher{m: m, poke: make(chan struct{}, 1), running: map[string]context.CancelFunc{}, heard: map[string][]time.Time{}, words: map[string]*agentContact{}}
}

// wake makes the watcher look at the records again.
func (w *watcher) wake() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Woken tells the manager that records changed behind its back.
func (m *Manager) Woken() { m.watcher.wake() }

// Watch follows the agents of all running clusters and refreshes every record
// now and then, until ctx ends.
func (m *Manager) Watch(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	t, spot := time.NewTicker(refreshPeriod), time.NewTicker(noticePeriod)
	defer t.Stop()
	defer spot.Stop()
	for {
		m.watcher.reconcile(ctx, &wg)
		select {
		case <-ctx.Done():
			return
		case <-m.watcher.poke:
		case <-t.C:
			wg.Go(func() { m.refreshEvery(ctx) })
		case <-spot.C:
			wg.Go(func() { m.OncePer(ctx, noticePeriod, "spot notices", m.passNotices) })
		}
	}
}

// refreshEvery is the background look at every cluster that can change by
// itself: of several servers one looks after all, and each after those on its
// own machine.
func (m *Manager) refreshEvery(ctx context.Context) {
	m.OncePer(ctx, refreshPeriod, "refresh", func(ctx context.Context) {
		m.refreshThose(ctx, func(c *state.Cluster) bool { return !m.onServer(c) })
	})
	m.refreshThose(ctx, m.onServer)
}

func (m *Manager) refreshThose(ctx context.Context, which func(*state.Cluster) bool) {
	all, err := m.Store.Clusters().List(ctx, state.ClusterFilter{})
	if err != nil {
		m.Log.WarnContext(ctx, "clusters not listed", "err", err)
		return
	}
	all = slices.DeleteFunc(all, func(c *state.Cluster) bool {
		return c.Status == api.ClusterStopped && !GivingBack(c) || !which(c) || m.Here(c) != nil
	})
	fine := m.fine(ctx, all)
	_, failed := m.RefreshAll(ctx, all, func(c *state.Cluster) bool { return !fine[c.Hash] })
	for name, err := range failed {
		m.Log.WarnContext(ctx, "cluster not refreshed", "cluster", name, "err", err)
	}
}

// follows reports whether somebody is connected to a cluster's agents, or tries to be.
func (w *watcher) follows(hash string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[hash] != nil
}

// hear notes that an agent spoke.
func (w *watcher) hear(hash string, rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.heard[hash]; rank < len(at) {
		at[rank] = now()
	}
}

// hears reports whether every agent of a cluster was heard since a time.
func (w *watcher) hears(c *state.Cluster, since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.heard[c.Hash]
	return len(at) >= c.Machines() && len(at) > 0 && !slices.ContainsFunc(at, func(t time.Time) bool { return t.Before(since) })
}

// reconcile makes one follower run per cluster that has a live agent.
func (w *watcher) reconcile(ctx context.Context, wg *sync.WaitGroup) {
	live, err := w.m.Store.Clusters().List(ctx, state.ClusterFilter{
		Statuses: []api.ClusterStatus{api.ClusterUp, api.ClusterAutostopping},
	})
	if err != nil {
		if ctx.Err() == nil {
			w.m.Log.WarnContext(ctx, "clusters not listed", "err", err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := map[string]bool{}
	for _, c := range live {
		if w.m.Here(c) != nil || remote.Agentless(c) {
			continue
		}
		wanted[c.Hash] = true
		if w.running[c.Hash] != nil {
			continue
		}
		fctx, cancel := context.WithCancel(ctx)
		w.wordsLocked(c.Hash).since(heardAt(c))
		w.running[c.Hash], w.heard[c.Hash] = cancel, make([]time.Time, max(c.Machines(), 1))
		wg.Go(func() {
			var agents sync.WaitGroup
			for rank := range max(c.Machines(), 1) {
				agents.Go(func() { w.follow(fctx, c.Name, c.Hash, rank) })
			}
			agents.Wait()
			w.mu.Lock()
			delete(w.running, c.Hash)
			delete(w.heard, c.Hash)
			w.mu.Unlock()
			cancel()
		})
	}
	for hash, cancel := range w.running {
		if !wanted[hash] {
			cancel()
		}
	}
	w.forgetLocked(now().Add(-wordsKept))
}

// Pauses before an agent whose connection broke is connected to again.
const (
	followFirst = 100 * time.Millisecond
	followMost  = 10 * time.Second
)

// What an agent says of its machine and its state is noted so often at once, and so
// often in a second from then on: each note is a row of the database. An agent
// repeats what it says every few seconds, so nothing is lost. noteMost is how much of
// it is noted.
const (
	noteBurst = 100
	noteRate  = 1.0 / 5
	noteMost  = 1000
)

// follow stays connected to one agent until the cluster no longer runs. A
// broken connection makes it look what happened.
func (w *watcher) follow(ctx context.Context, name, hash string, rank int) {
	wait := followFirst
	notes := bounded.NewPace(noteBurst, noteRate)
	defer w.changes.Notify(hash) // perhaps another server found out what became of it
	for ctx.Err() == nil {
		c, err := w.m.Store.Clusters().Get(ctx, name)
		if err != nil || c.Hash != hash || c.Status != api.ClusterUp && c.Status != api.ClusterAutostopping {
			return
		}
		if client, err := w.m.Remote.Node(c, rank); err == nil {
			err = client.Events(ctx, func(e agentapi.Event) error {
				wait = followFirst
				w.hear(hash, rank)
				if e.Info != nil && e.Info.Notice != nil && notes.Allow() {
					w.m.announced(ctx, name, hash, rank, *e.Info.Notice)
				}
				if e.Info != nil {
					w.m.mounts(ctx, name, hash, rank, e.Info.Mounts, notes)
				}
				if e.Info != nil && e.Info.Stuck != "" && notes.Allow() {
					w.m.tell(ctx, name, hash, fmt.Sprintf("%s was to switch itself off, is still on and may cost money (the agent tries again): %s; end it with: sky down %s",
						remote.NodeName(rank), e.Info.Stuck, name))
				}
				if rank != 0 {
					return nil // the head speaks for the cluster
				}
				if err := w.report(ctx, client, hash, e); err != nil {
					w.m.Log.WarnContext(ctx, "the end of a job is not stored; its agent tells it again", "cluster", name, "err", err)
				}
				if e.Kind != agentapi.EventBeat {
					w.changes.Notify(hash)
				}
				if err := w.m.heard(ctx, name, hash, e, notes); err != nil || e.Info == nil || !e.Info.Ended {
					return err
				}
				return errEnded
			})
			if errors.Is(err, state.ErrNotFound) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		// The connection broke: the agent died, stopped itself, or is out of
		// reach. Only the provider knows.
		if wait == followFirst {
			w.changes.Notify(hash)
		}
		if _, err := w.m.Refresh(ctx, name); err != nil && !errors.Is(err, state.ErrNotFound) && ctx.Err() == nil {
			w.m.Log.WarnContext(ctx, "cluster not refreshed", "cluster", name, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, followMost)
	}
}

// errEnded is that a cluster's machines wait to be stopped, which the look does that follows.
var errEnded = errors.New("the agents have ended all")

// heard brings the record up to date with what an agent says of itself.
func (m *Manager) heard(ctx context.Context, name, hash string, e agentapi.Event, notes *bounded.Pace) error {
	if e.Info == nil {
		return nil
	}
	status := api.ClusterUp
	if e.Info.State == agentapi.AgentAutostopping {
		status = api.ClusterAutostopping
	}
	c, err := m.Store.Clusters().Get(ctx, name)
	if err != nil || c.Hash != hash {
		return state.ErrNotFound
	}
	if c.Status == status && now().Sub(c.StatusUpdatedAt) < refreshPeriod {
		return nil // nothing new worth a write
	}
	if c.Status != status && !notes.Allow() {
		return nil // the next beat says it again
	}
	var from api.ClusterStatus // as it was when it was changed: other servers listen, too
	c, err = m.Store.Clusters().Update(ctx, name, hash, func(c *state.Cluster) error {
		from = c.Status
		// Only between these two: everything else is decided under the lock.
		if c.Status == api.ClusterUp || c.Status == api.ClusterAutostopping {
			c.Status, c.StatusUpdatedAt = status, now()
			noteHeard(c, now())
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.Status != from && c.Status == api.ClusterAutostopping {
		m.event(ctx, c, "STATUS_CHANGE", from, "idle long enough: it is stopping itself")
	}
	return nil
}

// announced notes, once, that a cloud will take a node back. The proof is of
// use later: when the machine is gone, everybody knows why.
func (m *Manager) announced(ctx context.Context, name, hash string, rank int, n agentapi.Notice) {
	at := time.UnixMilli(int64(n.At * 1000)).UTC().Format(time.RFC3339)
	text := fmt.Sprintf("the cloud takes %s back (%s) at %s", remote.NodeName(rank), n.Action, at)
	if !n.Final() {
		text = fmt.Sprintf("the cloud says since %s that it may take %s back", at, remote.NodeName(rank))
	}
	m.tell(ctx, name, hash, text)
}

// tell notes, once, what an agent says of its machine.
func (m *Manager) tell(ctx context.Context, name, hash, text string) {
	if len(text) > noteMost {
		text = strings.ToValidUTF8(text[:noteMost], "") + "…"
	}
	c, err := m.Store.Clusters().Get(ctx, name)
	if err != nil || c.Hash != hash || c.LastEvent == text {
		return
	}
	fresh := false
	c, err = m.Store.Clusters().Update(ctx, name, hash, func(c *state.Cluster) error {
		fresh = c.LastEvent != text
		c.LastEvent = text
		return nil
	})
	if err == nil && fresh {
		m.event(ctx, c, "STATUS_CHANGE", c.Status, text)
	}
}
