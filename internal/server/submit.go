package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
)

// maxBody bounds a JSON body: task files are kilobytes, and a service's code
// never travels in one.
const maxBody = 32 << 20

// readBody reads the whole body within limits of size and time. It reports
// whether the request goes on.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if !roomForBody(w, r) {
		return nil, false
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		bodyRead(w)
		return b, true
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		fail(w, http.StatusRequestEntityTooLarge, "The request's body is larger than 32 MiB.")
	} else {
		fail(w, http.StatusBadRequest, "The request's body could not be read.")
	}
	return nil, false
}

// readTyped reads a route's body and checks it against its type.
func (rt Route) readTyped(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if rt.Body == nil {
		raw, problems := rt.Query.body(r.URL.Query())
		if problems != nil {
			failProblems(w, problems)
			return nil, false
		}
		return raw, true
	}
	raw, ok := readBody(w, r)
	if !ok {
		return nil, false
	}
	raw = rt.Body.whole(raw)
	if problems := rt.check(r, raw); problems != nil {
		failProblems(w, problems)
		return nil, false
	}
	return raw, true
}

// check returns what is wrong with the body of a call, or nil.
func (rt Route) check(r *http.Request, raw []byte) []problem {
	if !isJSON(r) {
		return []problem{{Type: "content_type", Loc: []any{"header", "Content-Type"}, Message: "the body must be sent as application/json"}}
	}
	return rt.Body.check(raw)
}

// submission is the request that a call asks for. It reports whether the call
// goes on.
func (rt Route) submission(s *Server, w http.ResponseWriter, r *http.Request) (requests.Submission, bool) {
	raw, ok := rt.readTyped(w, r)
	if !ok {
		return requests.Submission{}, false
	}
	head := headOf(raw)
	user, err := s.caller(r, head)
	if err != nil {
		s.notRecorded(w, r, err)
		return requests.Submission{}, false
	}
	about := head.about()
	scope := s.scope(r)
	workspace := ""
	cluster, err := s.mayAsk(r, rt, scope, about)
	if err == nil {
		err = s.ownPaths(r, head)
	}
	if err == nil {
		workspace, err = s.workspaceOf(r, rt, user, head, cluster)
	}
	if err == nil {
		raw, err = s.limitToCaller(r, rt, raw)
	}
	if err == nil {
		raw, err = rt.withPath(raw, r)
	}
	var files state.RequestFiles
	if err == nil {
		files, err = s.filesOf(r.Context(), r, head, user.ID)
	}
	if err == nil {
		raw, err = stampIdentity(raw, user, versionsOf(r), workspace, trace.Parent(r.Context()))
	}
	if err == nil {
		err = s.note(r, user, about)
	}
	if err != nil {
		s.notRecorded(w, r, err)
		return requests.Submission{}, false
	}
	return requests.Submission{
		ID: w.Header().Get(api.HeaderRequestID), Name: requestName(rt.Name), User: user,
		ClusterName: about.Cluster, Workspace: workspace, Scope: scope, Files: files, Body: raw, ClientAPI: clientAPI(r),
	}, true
}

// withPath adds what the path names to the body: the pool of own machines is
// their infra.
func (rt Route) withPath(raw []byte, r *http.Request) ([]byte, error) {
	pool := r.PathValue("pool")
	if pool == "" {
		return raw, nil
	}
	return json.Marshal(map[string]any{"infra": pool})
}

// async accepts a request and answers with its id.
func (rt Route) async(s *Server, w http.ResponseWriter, r *http.Request) {
	sub, ok := rt.submission(s, w, r)
	if !ok {
		return
	}
	req, err := s.Engine.Submit(r.Context(), sub)
	if err != nil {
		s.notRecorded(w, r, err)
		return
	}
	stored(r)
	w.Header().Set(api.HeaderRequestID, req.ID)
	if r.PathValue("pool") != "" || rt.Path == "/ssh_node_pools/deploy" || rt.Path == "/ssh_node_pools/down" {
		writeJSON(w, http.StatusOK, map[string]string{"status": "accepted", "request_id": req.ID, "message": "The request was accepted."})
		return
	}
	writeJSON(w, http.StatusOK, nil)
}

// logs accepts a request and answers with its log while it runs; the result is
// fetched by the id in the header. It ends with the connection.
func (rt Route) logs(s *Server, w http.ResponseWriter, r *http.Request) {
	sub, ok := rt.submission(s, w, r)
	if !ok {
		return
	}
	out := newStream(w)
	defer out.Close()
	// When the server closes the engine ends the log with a line that makes the
	// client ask again.
	err := s.Engine.RunLog(r.Context(), sub, out, func(id string) {
		w.Header().Set(api.HeaderRequestID, id)
		out.begin(textPlain)
	})
	if err != nil {
		s.notRecorded(w, r, err)
	}
}

// statusGone stands in logs for an answer that nobody waited for, as in those of
// nginx.
const statusGone = 499

// gone reports whether a caller has closed the connection.
func gone(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }

// failed answers an error that came before anything was recorded or written.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, err error) {
	if d, denied := errors.AsType[*auth.Denial](err); denied {
		deny(w, r, d)
		return
	}
	if gone(r) { // and the error follows from that
		s.log.InfoContext(r.Context(), "caller went away", "path", r.URL.Path, "error", err)
		fail(w, statusGone, "The caller went away.")
		return
	}
	s.log.WarnContext(r.Context(), "request refused", "path", r.URL.Path, "error", err)
	fail(w, statusOf(err), err.Error())
}

// notRecorded is failed for a call that would have become a request. If the database
// did not answer, the client is asked to repeat it.
func (s *Server) notRecorded(w http.ResponseWriter, r *http.Request, err error) {
	if gone(r) || !state.Unanswered(err) {
		s.failed(w, r, err)
		return
	}
	s.log.WarnContext(r.Context(), "the database does not answer", "path", r.URL.Path, "error", err)
	fail(w, http.StatusServiceUnavailable, "The server's database does not answer; nothing was recorded.")
}
