package state

import (
	"context"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
)

// Requests is the store of requests: each row is a durable job with a lease.
// A server that runs one owns it by (OwnerID, Attempt); every change it makes
// carries both and is refused once another server took over.
type Requests struct{ s *Store }

var requestColumns = columns{
	"id", "name", "status", "schedule", "user_id", "user_name", "cluster_name",
	"body", "return_value", "error", "status_msg",
	"created_at", "started_at", "finished_at", "client_api", "cancel_asked", "attempt", "state",
	"owner_id", "heartbeat", "workspace", "scope", "files",
}

func (s *Store) requestFields(r *Request) []any {
	cell := func(column string) cell { return s.in("requests", &r.ID, column) }
	return []any{
		text(&r.ID), text(&r.Name), text(&r.Status), text(&r.Schedule), text(&r.UserID), text(&r.UserName), text(&r.ClusterName),
		cell("body").bytes(&r.Body), cell("return_value").packed(&r.ReturnValue), cell("error").bytes(&r.Error), text(&r.StatusMsg),
		instant(&r.CreatedAt), instant(&r.StartedAt), instant(&r.FinishedAt), number(&r.ClientAPI), truth(&r.CancelAsked), number(&r.Attempt), cell("state").bytes(&r.State),
		text(&r.OwnerID), instant(&r.Heartbeat), text(&r.Workspace), scoped(&r.Scope), optional(&r.Files),
	}
}

var (
	selectRequests = "SELECT " + requestColumns.list() + " FROM requests "
	insertRequest  = "INSERT INTO requests (" + requestColumns.list() + ") VALUES (" + requestColumns.marks() + ") ON CONFLICT DO NOTHING"
)

// active is the condition of the index of requests that have not ended: with
// it a query does not read the many that have.
const active = "status IN ('PENDING', 'RUNNING')"

// Create writes a new request; [ErrConflict] if the id is taken.
func (t *Requests) Create(ctx context.Context, r *Request) error {
	if r.Status.Terminal() {
		ended := *r
		ended.Body, ended.Error = retained(r.Body), hidden(r.Error, r.Body)
		r = &ended
	}
	return t.s.createOnce(ctx, func(s *session) error { return changed(s.exec(insertRequest, t.s.requestFields(r)...)) })
}

// Get is the request of that id, or [ErrNotFound].
func (t *Requests) Get(ctx context.Context, id string) (*Request, error) {
	r := new(Request)
	if err := t.s.read(ctx).one(t.s.requestFields(r), selectRequests+"WHERE id = ?", id); err != nil {
		return nil, t.s.explain(err)
	}
	return r, nil
}

// IDs is at most limit ids that begin with prefix, in order.
func (t *Requests) IDs(ctx context.Context, prefix string, limit int) ([]string, error) {
	cond, args := t.s.db.d.prefixed("id", prefix)
	ids, err := all(t.s.read(ctx), func(id *string) []any { return []any{text(id)} },
		"SELECT id FROM requests WHERE "+cond+" ORDER BY id LIMIT ?", append(args, limit)...)
	return values(ids), t.s.explain(err)
}

// Users is whose each recorded request is, by its id.
func (t *Requests) Users(ctx context.Context) (map[string]string, error) {
	type request struct{ id, user string }
	list, err := all(t.s.read(ctx), func(r *request) []any { return []any{text(&r.id), text(&r.user)} }, "SELECT id, user_id FROM requests")
	users := make(map[string]string, len(list))
	for _, r := range list {
		users[r.id] = r.user
	}
	return users, t.s.explain(err)
}

// List is the requests that the filter selects, the newest first.
func (t *Requests) List(ctx context.Context, f RequestFilter) ([]*Request, error) {
	var w where
	var ids where
	for _, p := range f.IDPrefixes {
		cond, args := t.s.db.d.prefixed("id", p)
		ids.add("("+cond+")", args...)
	}
	w.either(ids)
	in(&w, "status", f.Statuses)
	if len(f.Statuses) > 0 && !slices.ContainsFunc(f.Statuses, api.RequestStatus.Terminal) {
		w.add(active)
	}
	w.equal("user_id", f.UserID)
	w.equal("cluster_name", f.ClusterName)
	in(&w, "name", f.Names)
	if f.Scope != nil {
		var seen where
		seen.add("user_id = ?", f.Scope.User)
		within(&seen, "workspace", f.Scope)
		w.either(seen)
	}
	q, args := page(selectRequests+w.String()+" ORDER BY created_at DESC, id DESC", w.args, f.Limit, 0)
	list, err := all(t.s.read(ctx).varying(), t.s.requestFields, q, args...)
	return list, t.s.explain(err)
}

// Waiting is how many requests of a user wait for a server to start them.
func (t *Requests) Waiting(ctx context.Context, user string) (int, error) {
	var n int64
	err := t.s.read(ctx).one([]any{&n}, "SELECT COUNT(*) FROM requests WHERE status = 'PENDING' AND user_id = ?", user)
	return int(n), t.s.explain(err)
}

// Dead selects requests that no live server works on.
type Dead struct {
	Created   time.Time // those that wait and were created until then; zero: none
	Heartbeat time.Time // those that run and whose owner's last heartbeat is older
	Owner     string    // those that run under this owner's name: an earlier life of it
	Limit     int       // 0: no limit
}

// Lost is the dead requests, without their bodies and results: first what was
// begun, the oldest first, then users take turns, each with the oldest first.
func (t *Requests) Lost(ctx context.Context, d Dead) ([]*Request, error) {
	q, args := page("SELECT "+lostColumns.list()+" FROM requests WHERE "+active+` AND (
			status = 'PENDING' AND created_at <= ? OR
			status = 'RUNNING' AND (heartbeat < ? OR owner_id = ?))
		ORDER BY CASE WHEN status = 'RUNNING' THEN 0 ELSE
			ROW_NUMBER() OVER (PARTITION BY user_id, status ORDER BY created_at, id) END, created_at, id`, []any{nanos(d.Created), nanos(d.Heartbeat), d.Owner}, d.Limit, 0)
	list, err := all(t.s.read(ctx), lostFields, q, args...)
	return list, t.s.explain(err)
}

// lostColumns is what it takes to line a request up and claim it.
var lostColumns = columns{"id", "name", "status", "schedule", "user_id", "created_at", "attempt", "owner_id", "heartbeat"}

func lostFields(r *Request) []any {
	return []any{text(&r.ID), text(&r.Name), text(&r.Status), text(&r.Schedule), text(&r.UserID), instant(&r.CreatedAt),
		number(&r.Attempt), text(&r.OwnerID), instant(&r.Heartbeat)}
}

// Claim makes owner the one who runs the request, if its status, owner,
// attempt and heartbeat are still those of r (the heartbeat may be newer if the
// owner's name is the same: an earlier life's), and returns the row as it is
// now: RUNNING, with one attempt more. Else [ErrConflict].
func (t *Requests) Claim(ctx context.Context, r *Request, owner string) (*Request, error) {
	event := fsm.RequestClaimed
	if r.Status == api.RequestRunning {
		event = fsm.RequestResumed
	}
	next, ok := fsm.Requests().Next(r.Status, event)
	if !ok {
		return nil, ErrConflict
	}
	now := nanos(t.s.Now())
	claimed := new(Request)
	err := t.s.write(ctx, func(s *session) error {
		err := s.one(t.s.requestFields(claimed), `UPDATE requests SET status = ?, owner_id = ?, heartbeat = ?, attempt = attempt + 1,
			started_at = CASE WHEN started_at = 0 THEN ? ELSE started_at END
			WHERE id = ? AND status = ? AND owner_id = ? AND attempt = ? AND (owner_id = ? OR heartbeat = ?)
			RETURNING `+requestColumns.list(),
			string(next), owner, now, now, r.ID, string(r.Status), r.OwnerID, r.Attempt, owner, nanos(r.Heartbeat))
		if err == ErrNotFound {
			return ErrConflict
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// Held is one request that a server still owns.
type Held struct {
	ID          string
	Attempt     int
	CancelAsked bool
}

// Beat renews the lease on everything that owner runs and says what that is.
func (t *Requests) Beat(ctx context.Context, owner string) ([]Held, error) {
	now := nanos(t.s.Now())
	var held []*Held
	err := t.s.writeAgain(ctx, func(s *session) (err error) {
		held, err = all(s, func(h *Held) []any { return []any{text(&h.ID), number(&h.Attempt), truth(&h.CancelAsked)} },
			"UPDATE requests SET heartbeat = ? WHERE "+active+" AND status = 'RUNNING' AND owner_id = ? RETURNING id, attempt, cancel_asked", now, owner)
		return err
	})
	return values(held), err
}

// Release ends the lease on everything that owner runs, so that another server
// resumes it at once.
func (t *Requests) Release(ctx context.Context, owner string) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("UPDATE requests SET heartbeat = 0 WHERE "+active+" AND status = 'RUNNING' AND owner_id = ?", owner)
		return err
	})
}

// Finish writes how a request ended: Status (a terminal one), ReturnValue and
// Error of r. Of its body only what cannot be secret stays. [ErrConflict] if it is no longer run by r's OwnerID and Attempt.
func (t *Requests) Finish(ctx context.Context, r *Request) error {
	if !r.Status.Terminal() {
		return &RequestTransitionError{r.ID, r.Status}
	}
	if r.FinishedAt.IsZero() {
		r.FinishedAt = t.s.Now()
	}
	body := retained(r.Body)
	failure := hidden(r.Error, r.Body)
	return t.s.write(ctx, func(s *session) error {
		return changed(s.exec(`UPDATE requests SET status = ?, body = ?, return_value = ?, error = ?, finished_at = ?, status_msg = ''
			WHERE id = ? AND status = 'RUNNING' AND owner_id = ? AND attempt = ?`,
			string(r.Status), t.s.in("requests", &r.ID, "body").bytes(&body), t.s.in("requests", &r.ID, "return_value").packed(&r.ReturnValue), t.s.in("requests", &r.ID, "error").bytes(&failure), instant(&r.FinishedAt), r.ID, r.OwnerID, r.Attempt))
	})
}

// RequestTransitionError means that a request cannot end with this status.
type RequestTransitionError struct {
	ID string
	To api.RequestStatus
}

func (e *RequestTransitionError) Error() string {
	return "request " + e.ID + " cannot end as " + string(e.To)
}

// SetStatusMsg writes what a running request waits for; [ErrConflict] if the
// lease was lost.
func (t *Requests) SetStatusMsg(ctx context.Context, r *Request, msg string) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		return changed(s.exec("UPDATE requests SET status_msg = ? WHERE id = ? AND status = 'RUNNING' AND owner_id = ? AND attempt = ?", msg, r.ID, r.OwnerID, r.Attempt))
	})
}

// SetState writes what a request's function keeps for its next attempt or
// replay; [ErrConflict] if the lease was lost.
func (t *Requests) SetState(ctx context.Context, r *Request, state []byte) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		return changed(s.exec("UPDATE requests SET state = ? WHERE id = ? AND status = 'RUNNING' AND owner_id = ? AND attempt = ?", t.s.in("requests", &r.ID, "state").bytes(&state), r.ID, r.OwnerID, r.Attempt))
	})
}

// Cancel ends a request that waits, and asks the owner of one that runs to end
// it. One that waited loses its body. It returns the request as it is now; [ErrConflict] if it has ended
// before, [ErrNotFound] if there is none.
func (t *Requests) Cancel(ctx context.Context, id string) (*Request, error) {
	now := nanos(t.s.Now())
	r := new(Request)
	err := t.s.write(ctx, func(s *session) error {
		err := s.one(t.s.requestFields(r), `UPDATE requests SET
			finished_at = CASE WHEN status = 'PENDING' THEN ? ELSE finished_at END,
			status_msg = CASE WHEN status = 'PENDING' THEN '' ELSE status_msg END,
			body = CASE WHEN status = 'PENDING' THEN NULL ELSE body END,
			status = CASE WHEN status = 'PENDING' THEN 'CANCELLED' ELSE status END,
			cancel_asked = TRUE
			WHERE id = ? AND status IN ('PENDING', 'RUNNING') RETURNING `+requestColumns.list(), now, id)
		if err != ErrNotFound {
			return err
		}
		if err := s.one([]any{new(int64)}, "SELECT 1 FROM requests WHERE id = ?", id); err != nil {
			return err
		}
		return ErrConflict
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Expired is at most limit ids of requests that ended before a time.
func (t *Requests) Expired(ctx context.Context, before time.Time, limit int) ([]string, error) {
	ids, err := all(t.s.read(ctx), func(id *string) []any { return []any{text(id)} },
		"SELECT id FROM requests WHERE finished_at > 0 AND finished_at < ? ORDER BY finished_at LIMIT ?", nanos(before), limit)
	return values(ids), t.s.explain(err)
}

// Delivered is at most limit ids of requests with these names that succeeded
// before a time.
func (t *Requests) Delivered(ctx context.Context, names []string, before time.Time, limit int) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	args := append([]any{nanos(before)}, anys(names)...)
	ids, err := all(t.s.read(ctx), func(id *string) []any { return []any{text(id)} },
		"SELECT id FROM requests WHERE finished_at > 0 AND finished_at < ? AND status = 'SUCCEEDED' AND name IN ("+marks(len(names))+") ORDER BY finished_at LIMIT ?",
		append(args, limit)...)
	return values(ids), t.s.explain(err)
}

// Delete forgets requests that have ended.
func (t *Requests) Delete(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.once().exec("DELETE FROM requests WHERE finished_at > 0 AND id IN ("+marks(len(ids))+")", anys(ids)...)
		return err
	})
}
