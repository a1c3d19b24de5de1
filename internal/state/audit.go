package state

import (
	"context"
	"time"
)

// AuditEntry says who asked for a change. It is written before the change is
// begun and never altered; how it ended is a row of its own.
type AuditEntry struct {
	ID       string // of the request
	At       time.Time
	UserID   string
	UserName string
	Role     string // "" without a login
	Login    string // how the caller was known: "", basic, token, proxy, oauth2
	Address  string // of the caller, as the connection tells
	Action   string // name of the request, or the path
	Method   string
	Path     string
	Cluster  string
	Command  string // the command line, if the client told
	Queued   bool   // a stored request: its end is found in its row

	Result  string // "" while it goes on; accepted requests: their final status
	Detail  string // why it was refused or failed
	EndedAt time.Time
}

// AuditFilter selects entries; zero fields select all.
type AuditFilter struct {
	Since, Until time.Time
	User         string // id or name
	Cluster      string // may be a shell pattern
	Action       string
	Limit        int // 0: no limit
	Offset       int
}

// Audit is the log of changes that were asked for. Rows are only added, until
// [Audit.Prune] takes away what is too old to keep.
type Audit struct{ s *Store }

var auditColumns = columns{"id", "at", "user_id", "user_name", "role", "login", "address", "action", "method", "path", "cluster", "command", "queued"}

func auditFields(e *AuditEntry) []any {
	return []any{text(&e.ID), instant(&e.At), text(&e.UserID), text(&e.UserName), text(&e.Role), text(&e.Login), text(&e.Address),
		text(&e.Action), text(&e.Method), text(&e.Path), text(&e.Cluster), text(&e.Command), truth(&e.Queued)}
}

func auditRow(e *AuditEntry) []any {
	return append(auditFields(e), text(&e.Result), text(&e.Detail), instant(&e.EndedAt))
}

// Add appends an entry; [ErrConflict] if the id has one.
func (t *Audit) Add(ctx context.Context, e AuditEntry) error {
	if e.At.IsZero() {
		e.At = t.s.Now()
	}
	return t.s.createOnce(ctx, func(s *session) error {
		return changed(s.exec("INSERT INTO audit ("+auditColumns.list()+") VALUES ("+auditColumns.marks()+") ON CONFLICT DO NOTHING", auditFields(&e)...))
	})
}

// Get is the entry of that id, without how it ended; [ErrNotFound] if there is
// none.
func (t *Audit) Get(ctx context.Context, id string) (AuditEntry, error) {
	var e AuditEntry
	err := t.s.read(ctx).one(auditFields(&e), "SELECT "+auditColumns.list()+" FROM audit WHERE id = ?", id)
	return e, t.s.explain(err)
}

// End appends how an entry ended; the first end that is told counts.
func (t *Audit) End(ctx context.Context, id, result, detail string) error {
	at := t.s.Now()
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("INSERT INTO audit_results (id, at, result, detail) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", id, nanos(at), result, detail)
		return err
	})
}

// Settle appends the ends of requests that have ended since: they are read from
// the requests' own rows, so that nothing is lost in a crash. An entry whose
// request was never stored is one that a crash came before.
func (t *Audit) Settle(ctx context.Context) error {
	at := t.s.Now()
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec(`INSERT INTO audit_results (id, at, result, detail)
			SELECT a.id, r.finished_at, r.status, '' FROM audit a JOIN requests r ON r.id = a.id
			WHERE a.queued AND r.finished_at > 0 AND NOT EXISTS (SELECT 1 FROM audit_results e WHERE e.id = a.id)
			ON CONFLICT DO NOTHING`)
		if err != nil {
			return err
		}
		_, err = s.exec(`INSERT INTO audit_results (id, at, result, detail)
			SELECT a.id, a.at, 'unknown', 'the server stopped before the call was recorded' FROM audit a
			WHERE a.queued AND a.at < ? AND NOT EXISTS (SELECT 1 FROM audit_results e WHERE e.id = a.id) AND NOT EXISTS (SELECT 1 FROM requests r WHERE r.id = a.id)
			ON CONFLICT DO NOTHING`, nanos(at.Add(-auditGrace)))
		return err
	})
}

// auditGrace is how long a call may take between its entry and its row.
const auditGrace = time.Hour

// List is the entries that a filter selects, the newest first.
func (t *Audit) List(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	var w where
	if !f.Since.IsZero() {
		w.add("a.at >= ?", nanos(f.Since))
	}
	if !f.Until.IsZero() {
		w.add("a.at < ?", nanos(f.Until))
	}
	if f.User != "" {
		w.add("(a.user_id = ? OR a.user_name = ?)", f.User, f.User)
	}
	if f.Cluster != "" {
		w.anyOf(t.s.db.d, "a.cluster", []string{f.Cluster})
	}
	w.equal("a.action", f.Action)
	query, args := page("SELECT "+auditColumns.of("a")+", COALESCE(e.result, ''), COALESCE(e.detail, ''), COALESCE(e.at, 0)"+
		" FROM audit a LEFT JOIN audit_results e ON e.id = a.id "+w.String()+" ORDER BY a.at DESC, a.id DESC", w.args, f.Limit, f.Offset)
	list, err := all(t.s.read(ctx).once(), auditRow, query, args...)
	return values(list), t.s.explain(err)
}

// Prune forgets what is older than a time and reports how many entries that were.
func (t *Audit) Prune(ctx context.Context, before time.Time) (n int64, err error) {
	err = t.s.write(ctx, func(s *session) error {
		if _, err := s.exec("DELETE FROM audit_results WHERE id IN (SELECT id FROM audit WHERE at < ?)", nanos(before)); err != nil {
			return err
		}
		n, err = s.exec("DELETE FROM audit WHERE at < ?", nanos(before))
		return err
	})
	return n, err
}
