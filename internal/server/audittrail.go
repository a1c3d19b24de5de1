package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
)

// Every call that changes something leaves a trail: an entry in the audit log,
// written before anything is begun, and how it ended. A call whose entry cannot
// be written is refused. Stored requests end in their own row, from where
// [state.Audit.Settle] takes it over.

// Changes reports whether calls of the route change something and leave a
// trail.
func (r Route) Changes() bool {
	return r.Name == "api_cancel" || r.Kind == Socket || r.Method != get && (r.Role >= User || r.Path == authorizePath)
}

// auditTrail is the entry of one call.
type auditTrail struct {
	entry   state.AuditEntry
	written bool
	stored  bool // the request's row reports how it ends
}

type trailKey struct{}

func trailOf(r *http.Request) *auditTrail {
	t, _ := r.Context().Value(trailKey{}).(*auditTrail)
	return t
}

// trail begins the trail of a call. The function it returns ends it, also after
// a panic.
func (s *Server) trail(w http.ResponseWriter, r *http.Request, rt Route) (*http.Request, func()) {
	if !rt.Changes() {
		return r, func() {}
	}
	t := &auditTrail{entry: state.AuditEntry{
		ID: w.Header().Get(api.HeaderRequestID), Action: rt.Path, Method: r.Method, Path: r.URL.Path,
		Address: s.Gate.Address(r), UserID: s.Self.ID, UserName: s.Self.Name,
	}}
	if rt.Name != "" {
		t.entry.Action = requestName(rt.Name)
		t.entry.Queued = true
	}
	if c := callerOf(r); c != nil {
		t.entry.UserID, t.entry.UserName, t.entry.Role, t.entry.Login = c.ID, c.Name, c.Role, c.By
	}
	status := func() int {
		if a, ok := w.(*answer); ok && a.status != 0 {
			return a.status
		}
		return http.StatusInternalServerError // it panicked
	}
	return r.WithContext(context.WithValue(r.Context(), trailKey{}, t)), func() { s.endTrail(r, t, status()) }
}

// note writes the entry of a call, before it has any effect.
func (s *Server) note(r *http.Request, u state.User, a about) error {
	t := trailOf(r)
	if t == nil || t.written {
		return nil
	}
	t.entry.UserID, t.entry.UserName, t.entry.Cluster, t.entry.Command = u.ID, u.Name, a.Cluster, a.Command
	err := s.Store.Audit().Add(r.Context(), t.entry)
	if errors.Is(err, state.ErrConflict) {
		err = requests.IDTaken(t.entry.ID)
		if t.entry.Queued {
			err = s.noted(r.Context(), t.entry)
		}
	}
	if err != nil {
		return err
	}
	t.written = true
	return nil
}

// repeatWithin is how long a call may be repeated under its id.
const repeatWithin = time.Hour

// noted makes sure that the entry there is tells of the same call, sent twice: an
// id does not hide one action behind another's.
func (s *Server) noted(ctx context.Context, e state.AuditEntry) error {
	was, err := s.Store.Audit().Get(ctx, e.ID)
	if err != nil {
		return err
	}
	if was.UserID != e.UserID || was.Action != e.Action || was.Path != e.Path || was.Cluster != e.Cluster || s.Store.Now().Sub(was.At) > repeatWithin {
		return requests.IDTaken(e.ID)
	}
	return nil
}

// noteDirect is note for a call that is answered at once. It reports whether the
// call goes on.
func (s *Server) noteDirect(w http.ResponseWriter, r *http.Request, raw []byte) bool {
	t := trailOf(r)
	if t == nil {
		return true
	}
	u := state.User{ID: t.entry.UserID, Name: t.entry.UserName}
	h := headOf(raw)
	if loggedIn(r) == nil && userID.MatchString(h.EnvVars[api.EnvUserID]) {
		u = state.User{ID: h.EnvVars[api.EnvUserID], Name: h.EnvVars[api.EnvUser]}
	}
	a := h.about()
	if a.Cluster == "" {
		a.Cluster = r.URL.Query().Get("cluster_name")
	}
	if err := s.note(r, u, a); err != nil {
		s.failed(w, r, err)
		return false
	}
	return true
}

// stored notes that the call is a request now, whose row tells the rest.
func stored(r *http.Request) {
	if t := trailOf(r); t != nil {
		t.stored = true
	}
}

// auditTime bounds how long the end of a trail may take after its client is gone.
const auditTime = 10 * time.Second

func (s *Server) endTrail(r *http.Request, t *auditTrail, status int) {
	if t.stored {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), auditTime)
	defer cancel()
	audit := s.Store.Audit()
	var err error
	if !t.written {
		err = audit.Add(ctx, t.entry)
	}
	if err == nil {
		err = audit.End(ctx, t.entry.ID, resultOf(status), detailOf(status))
	}
	if err != nil {
		s.log.ErrorContext(ctx, "end of a call not noted in the audit log", "status", status, "error", err)
	}
}

func resultOf(status int) string {
	switch {
	case status < 400:
		return "SUCCEEDED"
	case status == http.StatusForbidden:
		return "DENIED"
	}
	return "FAILED"
}

func detailOf(status int) string {
	switch {
	case status < 400:
		return ""
	case status == statusGone:
		return "The caller went away"
	}
	return http.StatusText(status)
}
