package server

import (
	"context"
	"net/http"
	"os"
	"strconv"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// health tells clients whether they can talk to this server, and which it is. Who may
// not call it hears no more than that.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	o := s.Gate.Options()
	h := api.Health{
		Status: "healthy", APIVersion: strconv.Itoa(api.Version), Version: api.ProductVersion, Commit: api.Commit(),
		BasicAuthEnabled: o.Basic, ServiceAccountTokenEnabled: o.ServiceAccounts, ExternalProxyAuthEnabled: o.Proxy.Enabled && o.Proxy.Explicit,
	}
	user := loggedIn(r)
	switch {
	case user != nil:
		u := wireUser(*user)
		h.User = &u
	case s.Gate.Stranger(r) == nil:
	case o.Demanded() && r.Header.Get(api.HeaderAPIVersion) == "":
		writeJSON(w, http.StatusOK, map[string]string{"status": "healthy"}) // a probe
		return
	default:
		if o.Demanded() {
			h.Status = "needs_auth"
		}
		writeJSON(w, http.StatusOK, h)
		return
	}
	h.UploadFiles = !s.ownsMachine(r)
	h.BuildID, h.InstanceID, h.PID, h.StartedAt = s.BuildID, s.InstanceID, os.Getpid(), s.started.Unix()
	h.NotYet = s.NotYet
	if s.BuildCode != nil {
		h.BuildCode = s.BuildCode()
	}
	if s.Degraded != nil {
		h.Degraded = s.Degraded()
	}
	if proof := s.Gate.Prove(r); proof != "" {
		w.Header().Set(api.HeaderProof, proof)
	}
	writeJSON(w, http.StatusOK, h)
}

// requestID reads the id, or its beginning, that a route is about. It reports
// whether the call goes on.
func requestID(w http.ResponseWriter, r *http.Request) (string, bool) {
	id := r.URL.Query().Get("request_id")
	if id == "" {
		failProblems(w, []problem{{Type: "missing", Loc: []any{"query", "request_id"}, Message: "request_id is required"}})
	}
	return id, id != ""
}

// get answers when the request has ended, however long that takes. A failure is
// a 500: the record is the whole body for one of the clients' SDKs and its
// detail for the other.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	prefix, ok := requestID(w, r)
	if !ok {
		return
	}
	req, err := s.Engine.Resolve(r.Context(), prefix)
	if err != nil {
		s.unresolved(w, r, prefix, err)
		return
	}
	if u := loggedIn(r); u != nil && u.Role == "viewer" && req.UserID != u.ID {
		// What somebody else asked for may hold keys, which viewers never get.
		fail(w, http.StatusForbidden, "Viewers read the results of their own requests only.")
		return
	}
	if !s.mayRead(w, r, req) {
		return
	}
	if !req.Status.Terminal() {
		ctx, cancel := s.running(r)
		defer cancel()
		if req, err = s.Engine.Wait(ctx, req.ID); err != nil {
			// Nobody is there any more, or the server is closing: the request goes
			// on, and a client that sees its connection cut asks again.
			if ctx.Err() != nil {
				panic(http.ErrAbortHandler)
			}
			s.failed(w, r, err)
			return
		}
	}
	p, err := fullPayload(req, clientAPI(r))
	if err != nil {
		s.failed(w, r, err)
		return
	}
	if p.Error == "null" {
		writeJSON(w, http.StatusOK, p)
		return
	}
	writeJSON(w, http.StatusInternalServerError, struct {
		api.RequestPayload
		Detail api.RequestPayload `json:"detail"`
	}{p, p})
}

// unresolved answers that an id, or its beginning, is not that of one request.
func (s *Server) unresolved(w http.ResponseWriter, r *http.Request, prefix string, err error) {
	switch status := resolveStatus(err); {
	case status == statusUnknown && prefix == "":
		fail(w, status, "No request was made yet.")
	case status == statusUnknown:
		fail(w, status, "There is no request "+quoted(prefix)+". It may have expired; sky api status -a lists those that are kept.")
	case status == statusAmbiguous:
		fail(w, status, err.Error())
	default:
		s.failed(w, r, err)
	}
}

// status lists requests, the newest first.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	all, problems := queryBool(q, "all_status", false)
	limit, _, p := queryInt(q, "limit")
	if problems = append(problems, p...); problems != nil {
		failProblems(w, problems)
		return
	}
	filter := state.RequestFilter{IDPrefixes: q["request_ids"], ClusterName: q.Get("cluster_name"), Limit: limit, Scope: s.scope(r)}
	if !all && len(filter.IDPrefixes) == 0 {
		filter.Statuses = []api.RequestStatus{api.RequestPending, api.RequestRunning}
	}
	list, err := s.Engine.List(r.Context(), filter)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	fields := q["fields"]
	wantBody := len(fields) == 0
	for _, f := range fields {
		wantBody = wantBody || f == "request_body"
	}
	out := make([]api.RequestPayload, len(list))
	for i, req := range list {
		out[i] = payload(req)
		if wantBody {
			out[i].RequestBody = shownBody(req.Body)
		}
	}
	writeJSON(w, http.StatusOK, out)
}

// mayRead refuses requests of others in workspaces that the caller may not use.
// It reports whether the call goes on.
func (s *Server) mayRead(w http.ResponseWriter, r *http.Request, req *state.Request) bool {
	scope := s.scope(r)
	if scope.Owns(req.UserID) || scope.Sees(req.Workspace) {
		return true
	}
	fail(w, http.StatusForbidden, "Request "+quoted(req.ID)+" is another user's, in a workspace that you may not use.")
	return false
}

// latestOr is the request that a prefix names, without one the latest that the
// caller may see.
func (s *Server) latestOr(ctx context.Context, scope *state.Scope, prefix string) (*state.Request, error) {
	if prefix != "" {
		return s.Engine.Resolve(ctx, prefix)
	}
	list, err := s.Engine.List(ctx, state.RequestFilter{Limit: 1, Scope: scope})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, state.ErrNotFound
	}
	return list[0], nil
}

// plugins lists what extends the dashboard: nothing.
func (s *Server) plugins(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, api.Plugins{Plugins: []api.Plugin{}})
}
