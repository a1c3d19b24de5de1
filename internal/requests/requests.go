// Package requests accepts API calls, keeps them on disk, runs them, streams
// their output, cancels them and resumes them after a crash.
//
// A request's row in the database is itself the durable job. There is no job
// queue beside it: fair turns between users, cancellation, the states that
// clients see and the lease of the server that runs it all live on that one
// row, and a second table of jobs would have to be kept equal to it. A server
// takes a request by compare-and-set, renews its lease with a heartbeat, and
// writes the result only while the lease is still its own (owner and attempt
// are the fence). When a server dies another one, or its next life, takes the
// request over and calls the function again with a higher [Call.Attempt].
//
// A function whose context ends must ask context.Cause why:
//
//   - [ErrCancelled]: the user no longer wants it; clean up and return.
//   - [ErrShutdown], [ErrLeaseLost]: another attempt will follow, perhaps
//     elsewhere; leave everything as it is and return.
package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/internal/upload"
)

// Causes for which the context of a request's function ends.
var (
	ErrCancelled = errors.New("the request was cancelled")
	// Both are [state.ErrHandover]: the packages below know only that.
	ErrShutdown  = fmt.Errorf("the API server is shutting down: %w", state.ErrHandover)
	ErrLeaseLost = fmt.Errorf("another API server took the request over: %w", state.ErrHandover)
)

// Func does what a request asks for. The value is marshalled to JSON as the
// request's result, unless it is [Encoded]. It may be called again after a crash at any point.
type Func func(ctx context.Context, c *Call) (any, error)

// Encoded is a result that is JSON already, as [json.Marshal] writes it. It is
// used as it is and must not be changed any more.
type Encoded []byte

// LogFunc answers a request whose response body is a log: it writes the stream
// itself. Called again with the same State it must write the same bytes.
type LogFunc func(ctx context.Context, c *Call, w io.Writer) (any, error)

// Options configure an [Engine].
type Options struct {
	LogDir         string           // folder of the requests' logs
	Logs           logstore.Logs    // where the logs are that several servers share; nil: files in LogDir
	ServerID       string           // stays the same when this server restarts, and no other one has it; "" is "local"
	LongWorkers    int              // how many long requests run at once; 0: 64 + 4 for each CPU
	HeartbeatEvery time.Duration    // 0: 1 s
	LeaseTTL       time.Duration    // after how long without a heartbeat a server counts as dead; 0: 7 s
	LogLimits      diskspace.Limits // of the logs
	Retention      time.Duration    // how long finished requests are kept; 0: 24 h, negative: for ever
	QueuedPerUser  int              // how many long requests of one user may wait for a slot; 0: 500, negative: any number
	// Files makes sure that the files which the tasks of a user's request may bring to
	// nodes are on this server, before the request's function is called; nil: no
	// request has any.
	Files  func(ctx context.Context, user string, files *state.RequestFiles) (upload.Files, error)
	Logger *slog.Logger  // nil: slog.Default()
	Tracer *trace.Tracer // nil: runs are not traced
	// Admit refuses requests, by name, before they are recorded; nil: none.
	Admit func(name string) error
	// Ended is told about every request whose end this server has written; nil: nobody
	// is. It must be quick.
	Ended func(*state.Request)
}

// Engine runs requests. Its methods may be called concurrently.
type Engine struct {
	store *state.Store
	logs  logstore.Logs
	o     Options
	log   *slog.Logger

	books *diskspace.Ledger // of the logs

	handlers map[string]handler // fixed once Start was called

	mu      sync.Mutex
	queue   queue
	runs    map[string]*run // what this server runs or is about to
	longs   int             // slots in use
	feeds   map[string]*feed
	recent  recent        // what ended here a moment ago
	closed  bool          // no new requests
	closing chan struct{} // closed when streams must end

	running sync.WaitGroup // functions
	loops   sync.WaitGroup
	halt    context.CancelFunc // ends the loops
	shut    sync.Once
}

// handler is what a name stands for: f or, for log routes, l.
type handler struct {
	schedule api.ScheduleType
	f        Func
	l        LogFunc
	reads    bool // f changes nothing
}

// New returns an engine that does nothing yet: register functions, then Start.
func New(store *state.Store, o Options) *Engine {
	o.ServerID = cmp.Or(o.ServerID, "local")
	o.LongWorkers = cmp.Or(o.LongWorkers, 64+4*runtime.NumCPU())
	o.HeartbeatEvery = cmp.Or(o.HeartbeatEvery, time.Second)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, 7*time.Second)
	o.QueuedPerUser = cmp.Or(o.QueuedPerUser, 500)
	o.Retention = cmp.Or(o.Retention, 24*time.Hour)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	e := &Engine{
		store:    store,
		logs:     cmp.Or[logstore.Logs](o.Logs, logstore.Folder(o.LogDir)),
		o:        o,
		log:      o.Logger,
		handlers: map[string]handler{},
		runs:     map[string]*run{},
		feeds:    map[string]*feed{},
		closing:  make(chan struct{}),
		halt:     func() {},
	}
	e.books = &diskspace.Ledger{Dir: o.LogDir, Count: e.countLogs}
	if o.Logs != nil { // shared with other servers
		e.books.Dir, e.books.Again = "", logstore.CountAgain
	}
	return e
}

// Handle makes f the function of requests with that name, such as
// "sky.launch". All are registered before Start.
func (e *Engine) Handle(name string, schedule api.ScheduleType, f Func) {
	e.handlers[name] = handler{schedule: schedule, f: f}
}

// HandleRead is Handle for short requests that only say what is: f changes
// nothing that matters if it happens twice, and keeps no state. One that is quick
// is recorded once, with its result, rather than when it begins and when it ends.
func (e *Engine) HandleRead(name string, f Func) {
	e.handlers[name] = handler{schedule: api.ScheduleShort, f: f, reads: true}
}

// HandleLog makes f the function of log requests with that name, which
// [Engine.RunLog] runs.
func (e *Engine) HandleLog(name string, f LogFunc) {
	e.handlers[name] = handler{schedule: api.ScheduleShort, l: f}
}
