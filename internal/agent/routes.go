//go:build unix

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/pki"
)

// caller says who may use a route.
type caller int

const (
	server   caller = iota // the cluster's API server
	headOnly               // the server, and on a worker the agent of its head
	anyone                 // the server and all agents of the cluster
)

// route is one entry of the agent's table of calls.
type route struct {
	pattern string
	caller  caller
	head    bool // answers only on the head
	handle  func(http.ResponseWriter, *http.Request) error
}

func (a *Agent) table() []route {
	return []route{
		{agentapi.PathInfo, anyone, false, a.getInfo},
		{agentapi.PathCluster, server, false, answer(func(_ context.Context, in *agentapi.ClusterSpec) (*agentapi.Info, error) { return a.configure(in) })},
		{agentapi.PathSubmit, server, true, answer(func(_ context.Context, in *agentapi.SubmitRequest) (*agentapi.SubmitResponse, error) {
			return a.submit(in)
		})},
		{agentapi.PathJobs, server, true, a.getJobs},
		{agentapi.PathJob, server, true, a.getJob},
		{agentapi.PathCancel, server, true, answer(a.cancel)},
		{agentapi.PathReported, server, true, answer(a.reported)},
		{agentapi.PathLog, server, true, a.getLog},
		{agentapi.PathLogFiles, server, true, a.getLogFiles},
		{agentapi.PathEvents, server, false, a.getEvents},
		{agentapi.PathAutostop, server, true, answer(a.putAutostop)},
		{agentapi.PathNotice, server, false, answer(a.putNotice)},
		{agentapi.PathShutdown, headOnly, false, a.postShutdown},
		{agentapi.PathShell, headOnly, false, a.getShell},
		{agentapi.PathSync, headOnly, false, a.postSync},
		{agentapi.PathHookLogs, server, true, a.getHookLog},
		{agentapi.PathServer, server, false, a.getServer},
		{agentapi.PathDial, server, false, a.getDial},
		{agentapi.PathCallback, server, true, a.postCallback},
		{agentapi.PathMounts, server, false, answer(a.putMounts)},
		{pathFlush, headOnly, false, answer(func(ctx context.Context, in *flushRequest) (*flushStatus, error) {
			st, err := a.mounts.flush(ctx, in.Ranks, min(time.Duration(in.Seconds*float64(time.Second)), time.Minute))
			return &st, err
		})},
		{pathRankPrepare, headOnly, false, a.rankPrepare},
		{pathRankStart, headOnly, false, a.rankStart},
		{pathRankWait, headOnly, false, a.rankWait},
		{pathRankEnd, headOnly, false, a.rankEnd},
		{pathRankForget, headOnly, false, a.rankForget},
		{pathRankOutput, headOnly, false, a.rankOutput},
	}
}

func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range a.table() {
		mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) {
			if err := a.admitCall(r, req); err != nil {
				fail(w, err)
				return
			}
			if err := r.handle(w, req); err != nil {
				if errors.Is(err, errStreamBroken) {
					panic(http.ErrAbortHandler) // the other side must not take it for the end
				}
				a.log.Debug("call refused", "route", r.pattern, "err", err)
				fail(w, err)
			}
		})
	}
	return mux
}

func (a *Agent) admitCall(r route, req *http.Request) error {
	allowed := false
	switch pki.PeerRole(req.TLS) {
	case pki.RoleServer:
		allowed = true
	case pki.RoleNode:
		allowed = r.caller == anyone || r.caller == headOnly && a.isHeadOfThis(req.TLS.PeerCertificates[0].Subject.CommonName)
	}
	if !allowed {
		return &refusal{http.StatusForbidden, agentapi.Error{Code: agentapi.CodeInvalid, Message: "this certificate does not allow the call"}}
	}
	if r.head && !a.isHead() {
		return &agentapi.Error{Code: agentapi.CodeNotHead, Message: "this node is not the head of its cluster"}
	}
	return nil
}

// isHeadOfThis reports whether a node is the head and this one is its worker.
func (a *Agent) isHeadOfThis(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spec != nil && a.spec.Self != 0 && a.spec.Nodes[0].ID == id
}

// refusal is an error with a status of its own.
type refusal struct {
	status int
	body   agentapi.Error
}

func (r *refusal) Error() string { return r.body.Message }

// errStreamBroken marks an answer that cannot be completed.
var errStreamBroken = errors.New("stream broken")

func fail(w http.ResponseWriter, err error) {
	if r, ok := errors.AsType[*refusal](err); ok {
		writeJSON(w, r.status, &r.body)
		return
	}
	e, ok := errors.AsType[*agentapi.Error](err)
	switch {
	case ok:
	case noSpace(err):
		e = &agentapi.Error{Code: agentapi.CodeNoSpace, Message: "the disk of the node is full: free some space and try again"}
	default:
		e = &agentapi.Error{Code: agentapi.CodeInternal, Message: err.Error()}
	}
	status := map[agentapi.ErrorCode]int{
		agentapi.CodeNotFound:   http.StatusNotFound,
		agentapi.CodeInvalid:    http.StatusBadRequest,
		agentapi.CodeStaleEpoch: http.StatusConflict,
		agentapi.CodeNotHead:    http.StatusMisdirectedRequest,
		agentapi.CodeInUse:      http.StatusConflict,
		agentapi.CodeNoFUSE:     http.StatusBadRequest,
		agentapi.CodeBucket:     http.StatusBadRequest,
		agentapi.CodeStopping:   http.StatusServiceUnavailable,
		agentapi.CodeNoSpace:    http.StatusInsufficientStorage,
	}[e.Code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// maxBody bounds what a call may carry: scripts and environment of a job.
const maxBody = 64 << 20

func decode[T any](w http.ResponseWriter, r *http.Request) (*T, error) {
	in := new(T)
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	if err := dec.Decode(in); err != nil && err != io.EOF {
		return nil, invalid("the body of the call cannot be read: " + err.Error())
	}
	return in, nil
}

// answer makes a handler of a function from request to response.
func answer[In, Out any](f func(context.Context, *In) (*Out, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		in, err := decode[In](w, r)
		if err != nil {
			return err
		}
		out, err := f(r.Context(), in)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, out)
		return nil
	}
}

func (a *Agent) getInfo(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, a.info())
	return nil
}

func (a *Agent) getJobs(w http.ResponseWriter, _ *http.Request) error {
	jobs := []agentapi.Job{}
	if err := a.queue.each(func(rec *record) error {
		jobs = append(jobs, a.explained(rec))
		return nil
	}); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, jobs)
	return nil
}

// pathID reads the {id} of a job route; 0 is the latest.
func pathID(r *http.Request) (int, error) {
	s := r.PathValue("id")
	if s == "latest" {
		return 0, nil
	}
	id, err := strconv.Atoi(s)
	if err != nil || id <= 0 {
		return 0, invalid("a job id is a positive number or \"latest\", not " + strconv.Quote(s))
	}
	return id, nil
}

func (a *Agent) jobOfPath(r *http.Request) (*record, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	return a.jobOf(id)
}

func (a *Agent) getJob(w http.ResponseWriter, r *http.Request) error {
	rec, err := a.jobOfPath(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, a.explained(rec))
	return nil
}

// snapshot is the Hello of an event stream. Listening begins before it is
// taken, so nothing falls in between.
func (a *Agent) snapshot() agentapi.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := agentapi.Event{Kind: agentapi.EventHello, At: seconds(a.now()), Info: a.infoLocked(), Jobs: []agentapi.Job{}}
	for _, j := range a.jobs {
		if !j.rec.Job.Status.Terminal() {
			e.Jobs = append(e.Jobs, j.rec.Job)
		}
	}
	e.Jobs = append(e.Jobs, a.unreportedLocked()...)
	slices.SortFunc(e.Jobs, func(x, y agentapi.Job) int { return x.ID - y.ID })
	return e
}

func (a *Agent) rankPrepare(w http.ResponseWriter, r *http.Request) error {
	s, err := a.rankSpecOf(w, r)
	if err != nil {
		return err
	}
	if err := a.ranks.prepare(s); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) rankStart(w http.ResponseWriter, r *http.Request) error {
	s, err := a.rankSpecOf(w, r)
	if err != nil {
		return err
	}
	st, err := a.ranks.start(s)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, st)
	return nil
}

// rankSpecOf reads a head's order and refuses one that is out of date.
func (a *Agent) rankSpecOf(w http.ResponseWriter, r *http.Request) (*rankSpec, error) {
	s, err := decode[rankSpec](w, r)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.spec != nil && s.Epoch < a.spec.Epoch:
		return nil, stale(s.Epoch, a.spec.Epoch)
	case a.state != agentapi.AgentRunning:
		return nil, &agentapi.Error{Code: agentapi.CodeStopping, Message: "the node is going away"}
	}
	s.Key = r.PathValue("key")
	return s, nil
}

func (a *Agent) rankWait(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(a.o.waitPoll, waitPoll))
	defer cancel()
	st, err := a.ranks.await(ctx, r.PathValue("key"), r.URL.Query().Get("exit") == "1")
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	writeJSON(w, http.StatusOK, st)
	return nil
}
