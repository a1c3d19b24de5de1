package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// auditPage is how many entries are read at once.
const auditPage = 1000

// audit lists what was changed, the newest first: a JSON list, or with
// format=jsonl one entry a line, for exports of any length.
func (s *Server) audit(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := state.AuditFilter{User: q.Get("user"), Cluster: q.Get("cluster"), Action: q.Get("action")}
	limit, _, problems := queryInt(q, "limit")
	for name, into := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		t, p := queryTime(q.Get(name), name)
		*into, problems = t, append(problems, p...)
	}
	lines := q.Get("format") == "jsonl"
	if !lines && q.Get("format") != "" && q.Get("format") != "json" {
		problems = append(problems, queryProblem("format", errors.New("must be json or jsonl")))
	}
	if problems != nil {
		failProblems(w, problems)
		return
	}
	if err := s.Store.Audit().Settle(r.Context()); err != nil {
		s.failed(w, r, err)
		return
	}
	if lines {
		s.auditLines(w, r, f, limit)
		return
	}
	if limit == 0 || limit > auditPage {
		limit = auditPage
	}
	f.Limit = limit
	list, err := s.Store.Audit().List(r.Context(), f)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	out := make([]api.AuditRecord, len(list))
	for i, e := range list {
		out[i] = auditRecord(e)
	}
	writeJSON(w, http.StatusOK, out)
}

// auditLines writes every entry. New ones do not shift the pages: the first one
// read is the newest that is told.
func (s *Server) auditLines(w http.ResponseWriter, r *http.Request, f state.AuditFilter, limit int) {
	if f.Until.IsZero() {
		f.Until = s.Store.Now()
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	for n := 0; limit == 0 || n < limit; {
		f.Offset, f.Limit = n, auditPage
		if limit > 0 {
			f.Limit = min(auditPage, limit-n)
		}
		list, err := s.Store.Audit().List(r.Context(), f)
		if err != nil {
			if n == 0 {
				s.failed(w, r, err)
				return
			}
			panic(http.ErrAbortHandler) // an export that is cut must not look whole
		}
		for _, e := range list {
			if out.Encode(auditRecord(e)) != nil {
				return
			}
		}
		if n += len(list); len(list) < f.Limit {
			return
		}
	}
}

func auditRecord(e state.AuditEntry) api.AuditRecord {
	rec := api.AuditRecord{
		ID: e.ID, At: unix(e.At), UserID: e.UserID, UserName: e.UserName, Role: e.Role, Login: e.Login, Address: e.Address,
		Action: e.Action, Method: e.Method, Path: e.Path, Cluster: e.Cluster, Command: e.Command, Result: e.Result, Detail: e.Detail,
	}
	if !e.EndedAt.IsZero() {
		at := unix(e.EndedAt)
		rec.EndedAt = &at
	}
	return rec
}

// queryTime reads Unix seconds or RFC 3339.
func queryTime(s, name string) (time.Time, []problem) {
	if s == "" {
		return time.Time{}, nil
	}
	if sec, err := strconv.ParseFloat(s, 64); err == nil && sec >= 0 && sec < 7e9 {
		return time.UnixMicro(int64(sec * 1e6)), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1970 || t.Year() > 2200 {
		return t, []problem{queryProblem(name, errors.New("must be seconds since 1970, or a time such as 2026-01-31T12:00:00Z"))}
	}
	return t, nil
}

// keepAudit takes over how requests ended, while their rows are there, and
// forgets what is too old to keep.
func (s *Server) keepAudit(ctx context.Context) error {
	err := s.Store.Audit().Settle(ctx)
	if s.AuditKept > 0 {
		_, pruned := s.Store.Audit().Prune(ctx, s.Store.Now().Add(-s.AuditKept))
		err = errors.Join(err, pruned)
	}
	return err
}
