package state

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Attempts is the store of tries to get an offer.
type Attempts struct{ s *Store }

var attemptColumns = columns{"token", "cluster_hash", "cluster_name", "name_on_cloud", "offer", "nodes", "started_at", "ended_at", "outcome", "message",
	"steps", "ruled_out", "credentials"}

func attemptFields(a *Attempt) []any {
	return []any{text(&a.Token), text(&a.ClusterHash), text(&a.ClusterName), text(&a.NameOnCloud), nested(&a.Offer), number(&a.Nodes),
		instant(&a.StartedAt), instant(&a.EndedAt), text(&a.Outcome), text(&a.Message),
		nested(&a.Steps), nested(&a.RuledOut), text(&a.Credentials)}
}

// Begin writes the intent to rent, before the first call to the cloud;
// [ErrConflict] if the token was used before.
func (t *Attempts) Begin(ctx context.Context, a Attempt) error {
	return t.s.createOnce(ctx, func(s *session) error { return t.insert(s, a) })
}

// BeginPlacing is Begin, and with it the cluster's record names the place of the
// attempt and its machines: from either of them they can be found. [ErrNotFound]
// if that incarnation of the cluster is gone; nothing is written then.
func (t *Attempts) BeginPlacing(ctx context.Context, a Attempt) error {
	return t.s.createOnce(ctx, func(s *session) error {
		// What fails must fail before anything has changed.
		err := s.one([]any{new(int64)}, "SELECT 1 FROM attempts WHERE token = ?", a.Token)
		if err == nil {
			return ErrConflict
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		n, err := s.exec("UPDATE clusters SET offer = ?, name_on_cloud = ?, version = version + 1 WHERE name = ? AND hash = ?",
			nested(&a.Offer), a.NameOnCloud, a.ClusterName, a.ClusterHash)
		if err == nil && n == 0 {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		return t.insert(s, a)
	})
}

func (t *Attempts) insert(s *session, a Attempt) error {
	if a.StartedAt.IsZero() {
		a.StartedAt = t.s.Now()
	}
	return changed(s.exec("INSERT INTO attempts ("+attemptColumns.list()+") VALUES ("+attemptColumns.marks()+") ON CONFLICT DO NOTHING", attemptFields(&a)...))
}

// Abandon says of an open attempt that it has failed, and that only what it left
// is still to be given back: nobody takes it up again. An attempt that has ended
// stays as it is.
func (t *Attempts) Abandon(ctx context.Context, token, why string) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("UPDATE attempts SET message = ? WHERE token = ? AND outcome = ''", why, token)
		return err
	})
}

// End settles an attempt. Saying the same outcome again is fine; another than
// the one written is [ErrConflict], an unknown token [ErrNotFound].
func (t *Attempts) End(ctx context.Context, token string, e AttemptEnd) error {
	now := t.s.Now()
	return t.s.writeAgain(ctx, func(s *session) error {
		n, err := s.exec("UPDATE attempts SET outcome = ?, message = ?, steps = ?, ruled_out = ?, credentials = ?, ended_at = ? WHERE token = ? AND outcome = ''",
			e.Outcome, e.Message, nested(&e.Steps), nested(&e.RuledOut), e.Credentials, nanos(now), token)
		if err != nil || n > 0 {
			return err
		}
		var was string
		if err := s.one([]any{&was}, "SELECT outcome FROM attempts WHERE token = ?", token); err != nil {
			return err
		}
		if was != e.Outcome {
			return ErrConflict
		}
		return nil
	})
}

// Since is the latest attempts that began at or after a time, at most limit of
// them, the oldest first.
func (t *Attempts) Since(ctx context.Context, at time.Time, limit int) ([]Attempt, error) {
	list, err := all(t.s.read(ctx), attemptFields, "SELECT "+attemptColumns.list()+" FROM attempts WHERE started_at >= ? ORDER BY started_at DESC, token DESC LIMIT ?", nanos(at), limit)
	slices.Reverse(list)
	return values(list), t.s.explain(err)
}

// Open is the attempts without an outcome, the oldest first.
func (t *Attempts) Open(ctx context.Context) ([]Attempt, error) {
	return t.list(ctx, "outcome = ''")
}

// OfCluster is every attempt for one incarnation of a cluster, the oldest first.
func (t *Attempts) OfCluster(ctx context.Context, hash string) ([]Attempt, error) {
	return t.list(ctx, "cluster_hash = ?", hash)
}

// Delete forgets settled attempts from before a time and reports how many there
// were.
func (t *Attempts) Delete(ctx context.Context, before time.Time) (int64, error) {
	var n int64
	err := t.s.writeAgain(ctx, func(s *session) (err error) {
		n, err = s.exec("DELETE FROM attempts WHERE outcome <> '' AND started_at < ?", nanos(before))
		return err
	})
	return n, err
}

func (t *Attempts) list(ctx context.Context, cond string, args ...any) ([]Attempt, error) {
	list, err := all(t.s.read(ctx), attemptFields, "SELECT "+attemptColumns.list()+" FROM attempts WHERE "+cond+" ORDER BY started_at, token", args...)
	return values(list), t.s.explain(err)
}
