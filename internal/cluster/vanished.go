package cluster

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// What the reason begins with why a cluster's record was removed.
const (
	terminatedBy = "terminated by " // and a user's name
	autodowned   = "autodowned"
	preempted    = "preempted by the cloud"
	outside      = "ended outside of sky"
)

// ended says how a cluster came to its end that is found gone, for reason.
func ended(c *state.Cluster, reason string) string {
	how := outside
	switch {
	case c.Status == api.ClusterAutostopping && c.AutostopDown:
		how = autodowned
	case c.AutostopDown && c.AutostopMinutes >= 0:
		how = fmt.Sprintf("%s, which was set for %d idle minutes, or %s", autodowned, c.AutostopMinutes, outside)
	case c.Offer.Spot:
		how = preempted + ", or " + outside
	}
	return how + ": " + reason
}

// foundGone reports whether the reason of an end is one of [ended].
func foundGone(reason string) bool {
	return strings.HasPrefix(reason, autodowned) || strings.HasPrefix(reason, preempted) || strings.HasPrefix(reason, outside)
}

// lately is how long a refresh speaks of clusters that were found gone between refreshes.
const lately = time.Hour

// sayWhatChanged says what a refresh has found: each cluster that is gone, also if that was
// found lately and not now, and each that is in trouble now.
func (m *Manager) sayWhatChanged(ctx context.Context, call Call, filter state.ClusterFilter, before, after []*state.Cluster) {
	said := map[string]bool{}
	end := func(name, hash string, any bool) {
		if e, ok := m.endOf(ctx, name, hash); ok && !said[hash] && (any || foundGone(e.Reason)) {
			said[hash] = true
			fmt.Fprintf(call.Out, "Cluster %s was %s, as seen at %s.\n", name, e.Reason, e.At.Local().Format("2006-01-02 15:04:05"))
		}
	}
	for _, c := range before {
		i := slices.IndexFunc(after, func(x *state.Cluster) bool { return x.Hash == c.Hash })
		switch {
		case i >= 0 && after[i].Status == api.ClusterInit && c.Status != api.ClusterInit:
			fmt.Fprintf(call.Out, "⚠ Cluster %s is %s now: %s.\n", c.Name, api.ClusterInit, after[i].LastEvent)
		case i < 0:
			end(c.Name, c.Hash, true)
		}
	}
	all, err := m.Store.Clusters().History(ctx, now().Add(-lately))
	if err != nil {
		m.Log.WarnContext(ctx, "clusters that are gone not looked up", "err", err)
	}
	for _, h := range all {
		named := len(filter.Names) == 0 || slices.ContainsFunc(filter.Names, func(p string) bool { ok, err := path.Match(p, h.Name); return err == nil && ok })
		mine := (filter.UserHash == "" || filter.UserHash == h.UserHash) && call.Scope.Sees(h.Workspace)
		if h.LastStatus == state.Terminated && named && mine {
			end(h.Name, h.Hash, false)
		}
	}
}

// endOf is the event of the end of a cluster, or with hash "" of the last one of that name.
func (m *Manager) endOf(ctx context.Context, name, hash string) (e state.ClusterEvent, ok bool) {
	events, err := m.Store.Clusters().Events(ctx, name, hash, []string{"TERMINAL"}, 1)
	if err != nil || len(events) == 0 {
		return e, false
	}
	return events[0], true
}

// withAutostop adds to the reason why a cluster is in trouble what that means for its autostop.
func withAutostop(c *state.Cluster, to api.ClusterStatus, reason string) string {
	if to != api.ClusterInit || c.Status == api.ClusterInit || c.AutostopMinutes < 0 {
		return reason
	}
	what := "autostop"
	if c.AutostopDown {
		what = "autodown"
	}
	return fmt.Sprintf("%s; its %s of %d idle minutes may not come, as the head's agent and all machines take part in it: repair it with sky start %s, or give it back with sky down %s", reason, what, c.AutostopMinutes, c.Name, c.Name)
}

// Vanished tells of the last cluster of a name, if it was found gone: where it was, and
// why and when it was found gone.
func (m *Manager) Vanished(ctx context.Context, call Call, name string) (h *state.ClusterHistory, why string, at time.Time, ok bool) {
	e, ok := m.endOf(ctx, name, "")
	if !ok || !foundGone(e.Reason) {
		return nil, "", at, false
	}
	all, err := m.Store.Clusters().History(ctx, e.At.Add(-time.Hour))
	if err != nil {
		return nil, "", at, false
	}
	i := slices.IndexFunc(all, func(h *state.ClusterHistory) bool { return h.Hash == e.ClusterHash })
	if i < 0 || !call.Scope.Sees(all[i].Workspace) || !call.Scope.Owns(all[i].UserHash) {
		return nil, "", at, false
	}
	return all[i], e.Reason, e.At, true
}

// Again is the options of a launch that asks for an offer's machines and place.
func Again(o cloud.Offer, nodes int) string {
	s := fmt.Sprintf("--infra %s --instance-type %s", o.Place, o.InstanceType)
	if nodes > 1 {
		s += fmt.Sprintf(" --num-nodes %d", nodes)
	}
	if o.Spot {
		s += " --use-spot"
	}
	return s
}
