package state

import (
	"context"
	"errors"
	"slices"
	"time"
)

// AddEvent adds a line to a cluster's history. The same event again, at the
// same time, is one line.
func (t *Clusters) AddEvent(ctx context.Context, e ClusterEvent) error {
	if e.At.IsZero() {
		e.At = t.s.Now()
	}
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("INSERT INTO cluster_events ("+eventColumns.list()+") VALUES ("+eventColumns.marks()+") ON CONFLICT DO NOTHING", eventFields(&e)...)
		return err
	})
}

var eventColumns = columns{"cluster_hash", "cluster_name", "type", "reason", "starting", "ending", "at"}

func eventFields(e *ClusterEvent) []any {
	return []any{text(&e.ClusterHash), text(&e.ClusterName), text(&e.Type), text(&e.Reason), text(&e.Starting), text(&e.Ending), instant(&e.At)}
}

// Events is the latest events of a cluster, the oldest first: of one
// incarnation, or with hash "" of all that had the name. No types means all of
// them, limit 0 no limit.
func (t *Clusters) Events(ctx context.Context, name, hash string, types []string, limit int) ([]ClusterEvent, error) {
	var w where
	if hash != "" {
		w.equal("cluster_hash", hash)
	} else {
		w.add("cluster_name = ?", name)
	}
	in(&w, "type", types)
	q, args := page("SELECT "+eventColumns.list()+" FROM cluster_events "+w.String()+" ORDER BY at DESC, reason DESC", w.args, limit, 0)
	list, err := all(t.s.read(ctx).once(), eventFields, q, args...)
	slices.Reverse(list)
	return values(list), t.s.explain(err)
}

// DeleteEvents forgets events of these types from before a time and reports how
// many there were.
func (t *Clusters) DeleteEvents(ctx context.Context, types []string, before time.Time) (int64, error) {
	var w where
	in(&w, "type", types)
	w.add("at < ?", nanos(before))
	var n int64
	err := t.s.writeAgain(ctx, func(s *session) (err error) {
		n, err = s.once().exec("DELETE FROM cluster_events "+w.String(), w.args...)
		return err
	})
	return n, err
}

var historyColumns = columns{"hash", "name", "num_nodes", "offer", "requested", "user_hash", "user_name", "workspace", "last_use", "launched_at"}

func historyFields(h *ClusterHistory) []any {
	return []any{text(&h.Hash), text(&h.Name), number(&h.NumNodes), nested(&h.Offer), text(&h.Requested),
		text(&h.UserHash), text(&h.UserName), text(&h.Workspace), text(&h.LastUse), instant(&h.LaunchedAt)}
}

// OpenUsage says that a cluster's machines run from now on. It is nothing new
// if they already did. [ErrNotFound] if there is no such cluster.
func (t *Clusters) OpenUsage(ctx context.Context, hash string, at time.Time) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		if err := s.one([]any{new(int64)}, "SELECT 1 FROM clusters WHERE hash = ?", hash); err != nil {
			return err
		}
		if err := recordHistory(s, hash); err != nil {
			return err
		}
		_, err := s.exec("INSERT INTO cluster_usage (hash, started_at, ended_at) VALUES (?, ?, 0) ON CONFLICT DO NOTHING", hash, nanos(at))
		return err
	})
}

// CloseUsage says that a cluster's machines no longer run. It is nothing new
// if they did not.
func (t *Clusters) CloseUsage(ctx context.Context, hash string, at time.Time) error {
	return t.s.writeAgain(ctx, func(s *session) error { return closeUsage(s, hash, at) })
}

func closeUsage(s *session, hash string, at time.Time) error {
	err := s.one([]any{new(int64)}, "SELECT 1 FROM cluster_history WHERE hash = ?", hash)
	if errors.Is(err, ErrNotFound) {
		return nil // its machines never ran
	}
	if err != nil {
		return err
	}
	if err := recordHistory(s, hash); err != nil {
		return err
	}
	_, err = s.exec("UPDATE cluster_usage SET ended_at = CASE WHEN started_at > ? THEN started_at ELSE ? END WHERE hash = ? AND ended_at = 0",
		nanos(at), nanos(at), hash)
	return err
}

var upsertHistory = "INSERT INTO cluster_history (" + historyColumns.list() + ") SELECT " + historyColumns.list() +
	" FROM clusters WHERE hash = ? ON CONFLICT (hash) DO UPDATE SET num_nodes = excluded.num_nodes, offer = excluded.offer," +
	" requested = excluded.requested, workspace = excluded.workspace, last_use = excluded.last_use, launched_at = excluded.launched_at"

// recordHistory copies what the history keeps from the cluster's row, if there
// still is one.
func recordHistory(s *session, hash string) error {
	_, err := s.exec(upsertHistory, hash)
	return err
}

// Terminated is the LastStatus of a cluster that is gone.
const Terminated = "TERMINATED"

// History is every cluster whose machines ran at or after since, and those
// that exist, the newest launched first. A zero since is the beginning.
func (t *Clusters) History(ctx context.Context, since time.Time) ([]*ClusterHistory, error) {
	type row struct {
		ClusterHistory
		UsageInterval
	}
	fields := func(r *row) []any {
		return append(historyFields(&r.ClusterHistory), text(&r.LastStatus), instant(&r.Start), instant(&r.End))
	}
	rows, err := all(t.s.read(ctx), fields, "SELECT "+historyColumns.of("h")+`, COALESCE(c.status, 'TERMINATED'), u.started_at, u.ended_at
		FROM cluster_history h
		JOIN cluster_usage u ON u.hash = h.hash
		LEFT JOIN clusters c ON c.hash = h.hash
		WHERE c.hash IS NOT NULL OR EXISTS (SELECT 1 FROM cluster_usage r WHERE r.hash = h.hash AND (r.ended_at = 0 OR r.ended_at >= ?))
		ORDER BY h.launched_at DESC, h.hash, u.started_at`, nanos(since))
	if err != nil {
		return nil, t.s.explain(err)
	}
	var out []*ClusterHistory
	for _, r := range rows {
		if n := len(out); n == 0 || out[n-1].Hash != r.Hash {
			out = append(out, &r.ClusterHistory)
		}
		last := out[len(out)-1]
		last.Intervals = append(last.Intervals, r.UsageInterval)
	}
	return out, nil
}

// WorkspaceOf is the workspace of a cluster, also of one that is gone, or
// [ErrNotFound].
func (t *Clusters) WorkspaceOf(ctx context.Context, hash string) (string, error) {
	var w string
	err := t.s.read(ctx).one([]any{text(&w)}, `SELECT workspace FROM clusters WHERE hash = ?
		UNION ALL SELECT workspace FROM cluster_history WHERE hash = ? LIMIT 1`, hash, hash)
	return w, t.s.explain(err)
}
