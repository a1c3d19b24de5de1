//go:build unix

// Package agenttest is a node with an agent for tests in virtual time: it speaks
// the agent's protocol over a pipe in memory and keeps its promises (a job is
// queued once per key, calls of an older epoch are refused, an outcome is written
// once, jobs outlive the agent), and its jobs are scripts of a few words instead of
// processes:
//
//	sleep 10m   takes that long
//	echo TEXT   prints that into the job's log
//	exit 3      ends with that code
//
// Other lines do nothing. A job runs on the head alone.
package agenttest

import (
	"archive/tar"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/pki"
)

// Options say what a node is.
type Options struct {
	ID   string
	Home string // a folder: where files are copied to
	// Gate, if set, is asked about each call that changes something; see
	// failpoint.Process.Do. A refused call is cut off.
	Gate func(name string, call func() error) error
	// Off switches the machine off: "stop" or "terminate"; nil: it cannot do that itself.
	Off func(how string)
}

// Node is a machine with a disk. It is made switched on, without an agent.
type Node struct {
	o Options

	mu       sync.Mutex
	serving  *listener // nil: no agent runs
	build    string
	spec     *agentapi.ClusterSpec
	jobs     []*job // by id
	autostop *agentapi.Autostop
	state    agentapi.AgentState
	ended    bool // idle, and the machine is left to the server
	idle     *time.Timer
	since    time.Time
	hearers  map[chan agentapi.Event]bool
	started  map[string]int // runs by key
	shutdown []agentapi.ShutdownRequest
	notice   *agentapi.Notice
	hooks    map[string]string // what hooks printed, by event
	plays    map[string]string // scripts by name of job, in place of their own
	far      http.Handler      // the API server on this machine, while a job of that name runs
	farJob   string
	commands func(command string) (said string, code int)
	dials    func(ctx context.Context, address string) (net.Conn, error)
	takes    *agentapi.Error // why it takes no jobs; nil: it does
	deaf     bool            // calls are accepted and never answered

	syncs sync.WaitGroup // copies of files that are under way
}

type job struct {
	agentapi.Job
	spec   agentapi.JobSpec
	end    chan struct{} // closed to cancel it
	over   chan struct{} // closed when it has ended
	out    []byte        // what it printed
	stored bool          // a server has stored how it ended
}

// New returns a machine that was just switched on.
func New(o Options) *Node {
	return &Node{o: o, state: agentapi.AgentRunning, hearers: map[chan agentapi.Event]bool{}, started: map[string]int{}}
}

// Start makes an agent run; one of the same build that runs is left alone.
func (n *Node) Start(build string, files *pki.NodeFiles) error {
	dir := filepath.Join(n.o.Home, ".sky", "agent")
	if err := files.Write(dir); err != nil {
		return err
	}
	serve, _, err := pki.NodeConfigs(dir)
	if err != nil {
		return err
	}
	serve.NextProtos = []string{"http/1.1"}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.serving != nil && n.build == build {
		return nil
	}
	n.stopAgent()
	l := newListener()
	n.serving, n.build, n.state, n.ended = l, build, agentapi.AgentRunning, false
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{Handler: n.routes(), BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	l.end = func() { cancel(); srv.Close() }
	go srv.Serve(tls.NewListener(l, serve))
	n.rearm()
	return nil
}

// Crash ends the agent; what it started goes on.
func (n *Node) Crash() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopAgent()
}

func (n *Node) stopAgent() {
	if n.serving != nil {
		n.serving.end()
		n.serving = nil
	}
	for c := range n.hearers {
		delete(n.hearers, c)
		close(c)
	}
}

// PowerOff ends the agent and all jobs, as when the machine goes.
func (n *Node) PowerOff() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopAgent()
	if n.idle != nil {
		n.idle.Stop()
	}
	for _, j := range n.jobs {
		if !j.Status.Terminal() {
			n.move(j, api.JobFailedDriver, "the machine was switched off")
			close(j.end)
		}
	}
}

// Wait waits until nothing writes to the node's home any more. Its agent has been ended.
func (n *Node) Wait() { n.syncs.Wait() }

// Deafen makes the agent take calls and answer none, until it is called again
// with false.
func (n *Node) Deafen(deaf bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf = deaf
}

// Notice is what the cloud says about taking the machine back.
func (n *Node) Notice(notice agentapi.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notice = &notice
	info := n.info()
	n.tell(agentapi.Event{Kind: agentapi.EventState, Info: &info})
}

// Dial connects to the agent.
func (n *Node) Dial(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	l := n.serving
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	return l.dial(ctx)
}

// Jobs are the node's jobs, the oldest first.
func (n *Node) Jobs() []agentapi.Job {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]agentapi.Job, len(n.jobs))
	for i, j := range n.jobs {
		out[i] = j.Job
	}
	return out
}

// JobSpecs are what the node's jobs are, the oldest first.
func (n *Node) JobSpecs() []agentapi.JobSpec {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]agentapi.JobSpec, len(n.jobs))
	for i, j := range n.jobs {
		out[i] = j.spec
	}
	return out
}

// Home is the folder that files are copied to.
func (n *Node) Home() string { return n.o.Home }

// RefuseJobs makes the agent take no more jobs; nil: it does again.
func (n *Node) RefuseJobs(err *agentapi.Error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.takes = err
}

// Serve makes h the API server on this machine: it answers while a job of that name
// runs, and the job's script is played as the given one.
func (n *Node) Serve(job, script string, h http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.far, n.farJob, n.plays = h, job, map[string]string{job: script}
}

// Dials makes f connect callers with addresses that this machine reaches; without it
// there are none.
func (n *Node) Dials(f func(ctx context.Context, address string) (net.Conn, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials = f
}

// Commands makes f answer commands that are run on this machine beside its jobs;
// without it the agent knows of none.
func (n *Node) Commands(f func(command string) (said string, code int)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.commands = f
}

// HookSaid makes the log of an event's hooks; without, none has run.
func (n *Node) HookSaid(event, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hooks == nil {
		n.hooks = map[string]string{}
	}
	n.hooks[event] = text
}

// Runs counts how often the job of a key was begun.
func (n *Node) Runs(key string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.started[key]
}

// Shutdowns are the requests to end that the agent took, the oldest first.
func (n *Node) Shutdowns() []agentapi.ShutdownRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.shutdown)
}

// Autostop is what was set; nil: nothing.
func (n *Node) Autostop() *agentapi.Autostop {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.autostop
}

// Spec is what the agent knows of its cluster; nil: nothing.
func (n *Node) Spec() *agentapi.ClusterSpec {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.spec
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func (n *Node) info() agentapi.Info {
	i := agentapi.Info{Version: "test", BuildID: n.build, Platform: "linux/amd64", NodeID: n.o.ID, Home: n.o.Home, State: n.state,
		Autostop: n.autostop, Ended: n.ended, Notice: n.notice, IdleSince: seconds(n.since), Jobs: map[string]int{}}
	if n.spec != nil {
		i.Epoch = n.spec.Epoch
	}
	for _, j := range n.jobs {
		i.Jobs[string(j.Status)]++
	}
	return i
}

func (n *Node) tell(e agentapi.Event) {
	e.At = seconds(time.Now())
	for c := range n.hearers {
		select {
		case c <- e:
		default:
			delete(n.hearers, c)
			close(c)
		}
	}
}

// move writes a job's status; an end is written once.
func (n *Node) move(j *job, to api.JobStatus, reason string) {
	if j.Status.Terminal() {
		return
	}
	j.Status, j.Reason = to, reason
	if to.Terminal() {
		j.EndedAt = seconds(time.Now())
		close(j.over)
		n.rearm()
	}
	told := j.Job
	n.tell(agentapi.Event{Kind: agentapi.EventJobChanged, Job: &told})
}

// rearm starts the time that the cluster may be idle anew.
func (n *Node) rearm() {
	n.since = time.Now()
	if n.idle != nil {
		n.idle.Stop()
	}
	if n.autostop == nil || n.autostop.IdleMinutes < 0 || n.spec == nil || n.spec.Self != 0 {
		return
	}
	if slices.ContainsFunc(n.jobs, func(j *job) bool { return !j.Status.Terminal() }) {
		return
	}
	how := "stop"
	if n.autostop.Down {
		how = "terminate"
	}
	n.idle = time.AfterFunc(time.Duration(n.autostop.IdleMinutes)*time.Minute, func() {
		if n.o.Off != nil {
			n.o.Off(how)
			return
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.state, n.ended = agentapi.AgentAutostopping, true
		info := n.info()
		n.tell(agentapi.Event{Kind: agentapi.EventState, Info: &info})
	})
}

func (n *Node) submit(r agentapi.SubmitRequest) (*agentapi.SubmitResponse, error) {
	if i := slices.IndexFunc(n.jobs, func(j *job) bool { return j.Key == r.Key }); i >= 0 {
		return &agentapi.SubmitResponse{JobID: n.jobs[i].ID, SubmittedAt: n.jobs[i].SubmittedAt, Duplicate: true}, nil
	}
	switch {
	case n.takes != nil:
		return nil, n.takes
	case n.spec == nil:
		return nil, &agentapi.Error{Code: agentapi.CodeInvalid, Message: "the agent does not belong to a cluster yet"}
	case r.Epoch < n.spec.Epoch:
		return nil, &agentapi.Error{Code: agentapi.CodeStaleEpoch, Message: "the call is of an earlier epoch"}
	}
	id := len(n.jobs) + 1
	j := &job{spec: r.Spec, end: make(chan struct{}), over: make(chan struct{})}
	j.Job = agentapi.Job{ID: id, Key: r.Key, Name: r.Spec.Name, User: r.Spec.User, UserHash: r.Spec.UserHash, Status: api.JobPending,
		SubmittedAt: seconds(time.Now()), NumNodes: r.Spec.NumNodes, LogDir: fmt.Sprintf("~/sky_logs/%d-%s", id, r.Spec.Name), TaskID: r.Spec.TaskID, Report: r.Report}
	n.jobs = append(n.jobs, j)
	n.started[r.Key]++
	if n.idle != nil {
		n.idle.Stop()
	}
	go n.run(j)
	return &agentapi.SubmitResponse{JobID: id, SubmittedAt: j.SubmittedAt}, nil
}

// run plays a job's scripts.
func (n *Node) run(j *job) {
	n.mu.Lock()
	j.StartedAt = seconds(time.Now())
	script := j.spec.Run
	if s, ok := n.plays[j.Name]; ok && script != "" {
		script = s
	}
	n.mu.Unlock()
	for _, part := range []struct {
		script  string
		status  api.JobStatus
		failure api.JobStatus
	}{{j.spec.Setup, api.JobSettingUp, api.JobFailedSetup}, {script, api.JobRunning, api.JobFailed}} {
		if part.script == "" {
			continue
		}
		n.mu.Lock()
		n.move(j, part.status, "")
		n.mu.Unlock()
		code, cancelled := play(part.script, j.end, func(line string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			j.out = append(j.out, line+"\n"...)
		})
		if cancelled {
			return // whoever ended it has said why
		}
		if code != 0 {
			n.mu.Lock()
			j.ExitCodes = []int{code}
			n.move(j, part.failure, fmt.Sprintf("exit code %d", code))
			n.mu.Unlock()
			return
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	j.ExitCodes = []int{0}
	n.move(j, api.JobSucceeded, "")
}

func play(script string, end <-chan struct{}, say func(string)) (code int, cancelled bool) {
	for line := range strings.Lines(script) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "sleep":
			d, err := time.ParseDuration(rest)
			if err != nil {
				return 1, false
			}
			select {
			case <-end:
				return 0, true
			case <-time.After(d):
			}
		case "echo":
			say(rest)
		case "exit":
			code, err := strconv.Atoi(rest)
			if err != nil {
				return 1, false
			}
			return code, false
		}
	}
	return 0, false
}

func (n *Node) cancel(r agentapi.CancelRequest) *agentapi.CancelResponse {
	out := &agentapi.CancelResponse{Cancelled: []int{}}
	for _, j := range slices.Backward(n.jobs) {
		if j.Status.Terminal() || len(r.IDs) > 0 && !slices.Contains(r.IDs, j.ID) ||
			len(r.IDs) == 0 && r.UserHash != "" && j.UserHash != r.UserHash {
			continue
		}
		n.move(j, api.JobCancelled, "")
		close(j.end)
		out.Cancelled = append(out.Cancelled, j.ID)
		if len(r.IDs) == 0 && !r.All {
			break
		}
	}
	return out
}

// route answers one kind of call; the node is locked meanwhile.
func route[In, Out any](n *Node, name string, f func(In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n.wait(r.Context())
		var in In
		if r.Method != http.MethodGet {
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil && !errors.Is(err, io.EOF) {
				refuse(w, &agentapi.Error{Code: agentapi.CodeInvalid, Message: err.Error()})
				return
			}
		}
		var out Out
		var refused error
		call := func() error {
			n.mu.Lock()
			defer n.mu.Unlock()
			out, refused = f(in)
			return nil
		}
		if n.o.Gate != nil && r.Method != http.MethodGet {
			if n.o.Gate(name, call) != nil {
				panic(http.ErrAbortHandler)
			}
		} else {
			_ = call()
		}
		if refused != nil {
			refuse(w, refused)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	}
}

// wait holds a call up while the agent is deaf.
func (n *Node) wait(ctx context.Context) {
	n.mu.Lock()
	deaf := n.deaf
	n.mu.Unlock()
	if deaf {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
}

func refuse(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*agentapi.Error](err)
	if !ok {
		e = &agentapi.Error{Code: agentapi.CodeInternal, Message: err.Error()}
	}
	status := map[agentapi.ErrorCode]int{agentapi.CodeNotFound: 404, agentapi.CodeInvalid: 400, agentapi.CodeStaleEpoch: 409, agentapi.CodeStopping: 503}[e.Code]
	if status == 0 {
		status = 500
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(e)
}

func (n *Node) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(agentapi.PathInfo, route(n, "info", func(struct{}) (agentapi.Info, error) { return n.info(), nil }))
	mux.HandleFunc(agentapi.PathCluster, route(n, "agent.configure", func(spec agentapi.ClusterSpec) (agentapi.Info, error) {
		if n.spec != nil && spec.Epoch < n.spec.Epoch {
			return agentapi.Info{}, &agentapi.Error{Code: agentapi.CodeStaleEpoch, Message: "the call is of an earlier epoch"}
		}
		if n.spec != nil && spec.Epoch > n.spec.Epoch && n.ended { // it is wanted again
			n.state, n.ended = agentapi.AgentRunning, false
		}
		n.spec = &spec
		n.rearm()
		return n.info(), nil
	}))
	mux.HandleFunc(agentapi.PathSubmit, route(n, "agent.submit", n.submit))
	mux.HandleFunc(agentapi.PathJobs, route(n, "jobs", func(struct{}) ([]agentapi.Job, error) {
		out := []agentapi.Job{}
		for _, j := range slices.Backward(n.jobs) {
			out = append(out, j.Job)
		}
		return out, nil
	}))
	mux.HandleFunc(agentapi.PathJob, func(w http.ResponseWriter, r *http.Request) {
		route(n, "job", func(struct{}) (agentapi.Job, error) {
			id := len(n.jobs)
			if v := r.PathValue("id"); v != "latest" {
				id, _ = strconv.Atoi(v)
			}
			if id < 1 || id > len(n.jobs) {
				return agentapi.Job{}, &agentapi.Error{Code: agentapi.CodeNotFound, Message: "there is no such job"}
			}
			return n.jobs[id-1].Job, nil
		})(w, r)
	})
	mux.HandleFunc(agentapi.PathCancel, route(n, "agent.cancel", func(r agentapi.CancelRequest) (*agentapi.CancelResponse, error) { return n.cancel(r), nil }))
	mux.HandleFunc(agentapi.PathReported, route(n, "agent.reported", func(r agentapi.ReportedRequest) (struct{}, error) {
		for _, j := range n.jobs {
			j.stored = j.stored || slices.Contains(r.IDs, j.ID)
		}
		return struct{}{}, nil
	}))
	mux.HandleFunc(agentapi.PathLog, n.log)
	mux.HandleFunc(agentapi.PathLogFiles, n.logFiles)
	mux.HandleFunc(agentapi.PathHookLogs, func(w http.ResponseWriter, r *http.Request) {
		n.wait(r.Context())
		n.mu.Lock()
		said, ran := n.hooks[r.PathValue("event")]
		n.mu.Unlock()
		if !ran {
			refuse(w, &agentapi.Error{Code: agentapi.CodeNotFound, Message: "no hook has run"})
			return
		}
		_, _ = io.WriteString(w, said)
	})
	mux.HandleFunc(agentapi.PathAutostop, route(n, "agent.autostop", func(a agentapi.Autostop) (agentapi.Info, error) {
		if a.Hooks == nil && n.autostop != nil {
			a.Hooks = n.autostop.Hooks
		}
		n.autostop = &a
		n.rearm()
		return n.info(), nil
	}))
	mux.HandleFunc(agentapi.PathNotice, route(n, "agent.notice", func(notice agentapi.Notice) (agentapi.Info, error) {
		n.notice = &notice
		info := n.info()
		n.tell(agentapi.Event{Kind: agentapi.EventState, Info: &info})
		return info, nil
	}))
	mux.HandleFunc(agentapi.PathShutdown, route(n, "agent.shutdown", func(r agentapi.ShutdownRequest) (agentapi.Info, error) {
		n.shutdown = append(n.shutdown, r)
		n.state = agentapi.AgentShuttingDown
		n.cancel(agentapi.CancelRequest{All: true})
		time.AfterFunc(10*time.Millisecond, n.Crash)
		return n.info(), nil
	}))
	mux.HandleFunc(agentapi.PathEvents, n.events)
	mux.HandleFunc(agentapi.PathSync, n.sync)
	mux.HandleFunc(agentapi.PathServer, n.server)
	mux.HandleFunc(agentapi.PathDial, n.dialled)
	mux.HandleFunc(agentapi.PathShell, n.shell)
	return mux
}

// unreported are the jobs whose end is to be told until a server has stored it.
func (n *Node) unreported() (out []agentapi.Job) {
	for _, j := range n.jobs {
		if j.Report && j.Status.Terminal() && !j.stored {
			out = append(out, j.Job)
		}
	}
	return out
}

// logFiles answers with the log folder of a job: run.log alone.
func (n *Node) logFiles(w http.ResponseWriter, r *http.Request) {
	n.wait(r.Context())
	n.mu.Lock()
	defer n.mu.Unlock()
	id, _ := strconv.Atoi(r.PathValue("id"))
	if id < 1 || id > len(n.jobs) {
		refuse(w, &agentapi.Error{Code: agentapi.CodeNotFound, Message: "there is no such job"})
		return
	}
	j := n.jobs[id-1]
	tw := tar.NewWriter(w)
	name := filepath.Base(j.LogDir)
	_ = tw.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o700})
	_ = tw.WriteHeader(&tar.Header{Name: name + "/run.log", Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(j.out))})
	_, _ = tw.Write(j.out)
	_ = tw.Close()
}

// log answers with what a job printed; one that follows gets the rest when the job
// has ended.
func (n *Node) log(w http.ResponseWriter, r *http.Request) {
	n.wait(r.Context())
	n.mu.Lock()
	id, _ := strconv.Atoi(r.PathValue("id"))
	if id < 1 || id > len(n.jobs) {
		n.mu.Unlock()
		refuse(w, &agentapi.Error{Code: agentapi.CodeNotFound, Message: "there is no such job"})
		return
	}
	j := n.jobs[id-1]
	at, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	at = min(at, len(j.out))
	first := slices.Clone(j.out[at:])
	n.mu.Unlock()
	w.Header().Set(agentapi.HeaderLogOffset, strconv.Itoa(at))
	_, _ = w.Write(first)
	if r.URL.Query().Get("follow") == "" || http.NewResponseController(w).Flush() != nil {
		return
	}
	select {
	case <-j.over:
		n.mu.Lock()
		rest := slices.Clone(j.out[at+len(first):])
		n.mu.Unlock()
		_, _ = w.Write(rest)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler) // the other side must not take it for the end
	}
}

// beat is how often an agent says that it is there.
const beat = 10 * time.Second

func (n *Node) events(w http.ResponseWriter, r *http.Request) {
	n.wait(r.Context())
	events := make(chan agentapi.Event, 64)
	n.mu.Lock()
	info := n.info()
	hello := agentapi.Event{Kind: agentapi.EventHello, At: seconds(time.Now()), Info: &info}
	for _, j := range n.jobs {
		if !j.Status.Terminal() {
			hello.Jobs = append(hello.Jobs, j.Job)
		}
	}
	hello.Jobs = append(hello.Jobs, n.unreported()...)
	n.hearers[events] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.hearers, events)
		n.mu.Unlock()
	}()
	out := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for e := hello; ; {
		if enc.Encode(e) != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			n.mu.Lock()
			info, ends := n.info(), n.unreported()
			n.mu.Unlock()
			e = agentapi.Event{Kind: agentapi.EventBeat, At: seconds(time.Now()), Info: &info, Jobs: ends}
		case next, ok := <-events:
			if !ok {
				panic(http.ErrAbortHandler)
			}
			e = next
		}
	}
}

// server joins a caller with the API server on this machine.
func (n *Node) dialled(w http.ResponseWriter, r *http.Request) {
	n.wait(r.Context())
	n.mu.Lock()
	dial := n.dials
	n.mu.Unlock()
	if dial == nil {
		refuse(w, &agentapi.Error{Code: agentapi.CodeNotFound, Message: "connection refused"})
		return
	}
	far, err := dial(r.Context(), r.URL.Query().Get("address"))
	if err != nil {
		refuse(w, &agentapi.Error{Code: agentapi.CodeNotFound, Message: err.Error()})
		return
	}
	defer far.Close()
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", agentapi.DialProtocol); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(far, rw)
		far.Close()
	}()
	_, _ = io.Copy(conn, far)
}

func (n *Node) server(w http.ResponseWriter, r *http.Request) {
	n.wait(r.Context())
	n.mu.Lock()
	h := n.far
	i := slices.IndexFunc(n.jobs, func(j *job) bool { return j.Name == n.farJob && !j.Status.Terminal() })
	if h == nil || i < 0 {
		n.mu.Unlock()
		refuse(w, &agentapi.Error{Code: agentapi.CodeNotFound, Message: "no API server runs on this node"})
		return
	}
	over := n.jobs[i].over
	n.mu.Unlock()
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", agentapi.ServerProtocol); err != nil {
		conn.Close()
		return
	}
	l := newListener()
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	srv.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			l.Close()
		}
	}
	go func() {
		select {
		case l.conns <- &hijacked{conn, rw.Reader}:
		case <-l.done:
		}
	}()
	go func() {
		select {
		case <-over:
		case <-r.Context().Done():
		case <-l.done:
		}
		srv.Close()
		conn.Close()
	}()
	_ = srv.Serve(l)
}

// shell answers one command.
func (n *Node) shell(w http.ResponseWriter, r *http.Request) {
	n.wait(r.Context())
	n.mu.Lock()
	f := n.commands
	n.mu.Unlock()
	if f == nil {
		refuse(w, &agentapi.Error{Code: agentapi.CodeNotFound, Message: "no commands are run on this node"})
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", agentapi.ShellProtocol); err != nil {
		return
	}
	said, code := f(r.URL.Query().Get("command"))
	_ = agentapi.WriteFrame(conn, agentapi.FrameStdout, []byte(said))
	_ = agentapi.WriteFrame(conn, agentapi.FrameExit, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

func (n *Node) sync(w http.ResponseWriter, r *http.Request) {
	n.wait(r.Context())
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	n.syncs.Add(1)
	defer n.syncs.Done()
	defer context.AfterFunc(r.Context(), func() { conn.Close() })()
	_ = conn.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", agentapi.SyncProtocol); err != nil {
		return
	}
	serve := func() error {
		_ = filesync.Serve(r.Context(), &hijacked{conn, rw.Reader}, n.o.Home)
		return nil
	}
	if n.o.Gate != nil {
		_ = n.o.Gate("agent.sync", serve)
		return
	}
	_ = serve()
}

// hijacked reads what came early first.
type hijacked struct {
	net.Conn
	early io.Reader
}

func (h *hijacked) Read(p []byte) (int, error) { return h.early.Read(p) }

// listener takes connections in memory.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	end   func()
}

func newListener() *listener { return &listener{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *listener) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := newPipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "pipe" }

func (l *listener) Addr() net.Addr { return address{} }
