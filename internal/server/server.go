// Package server is the HTTP face of sky: the REST protocol that SkyPilot
// clients speak, and the few routes of our own.
//
// The server decides nothing about clusters. It checks who asks and whether the
// question is well formed, hands it to the engine of package requests under the
// name that the route table gives it, and answers with the request's id. The
// verbs register themselves with the engine.
package server

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
)

// Deps is what the server stands on. Engine and Store are required; what is nil
// among the functions is answered as not supported.
type Deps struct {
	Engine *requests.Engine
	Store  *state.Store
	Logger *slog.Logger

	// Self is whom requests without an identity run as.
	Self state.User
	// Gate finds who sends a request, and decides who is let in without a login:
	// these are whom they say. nil: nobody is let in.
	Gate *auth.Gate
	// Rules are what is configured about who may do what, as it is now: they may
	// change while the server runs. nil: the route table alone.
	Rules func() Rules
	// Config is the configuration in force, for dumps; nil: none.
	Config func() *config.Config
	// Metrics is what /metrics tells of; nil: made by New.
	Metrics *Metrics
	// Tracer traces calls; nil: they are not traced.
	Tracer *trace.Tracer
	// AuditKept is how long entries of the audit log are kept; 0: for ever.
	AuditKept time.Duration
	// Uploads are the files of clients; nil: made by New.
	Uploads *Uploads
	// Downloads are gathered logs; nil: made by New.
	Downloads *Downloads
	// Hosts are names and addresses, besides those of this machine's loopback, under
	// which the server may be reached.
	Hosts []string

	InstanceID string
	// Degraded says why only some calls are accepted; "": all are. It may be nil.
	Degraded func() string
	BuildID  string
	// NotYet are the names of requests that nothing provides (api.Health.NotYet).
	NotYet []string
	// BuildCode is the code of this build (buildid.Code); it may be nil.
	BuildCode func() string
	// Home is the home folder that paths of the protocol are relative to; "": of
	// the user who runs the server.
	Home string

	// Validate checks a Dag; an error that is an [*api.Error] keeps its class. nil:
	// every Dag passes, and its request fails if it must.
	Validate func(ctx context.Context, dag api.DagBody, user state.User) error
	// ValidateVolume checks a volume.
	ValidateVolume func(ctx context.Context, volume api.VolumeValidateBody, user state.User) error
	// StorageNames and VolumeNames complete the names of buckets and volumes, of
	// those that a caller sees.
	StorageNames func(ctx context.Context, scope *state.Scope, prefix string) ([]string, error)
	VolumeNames  func(ctx context.Context, scope *state.Scope, prefix string) ([]string, error)
	// ProvisionLogs writes how a cluster's machines are started. It fails before
	// the first byte or not at all.
	ProvisionLogs func(ctx context.Context, q ProvisionLogs, w io.Writer) error
	// Backup writes a backup to the writer that begin returns; it fails before it
	// calls begin, or while it writes.
	Backup func(ctx context.Context, o BackupOptions, begin func() io.Writer) error
	// OwnMachines are the pools of machines of one's own.
	OwnMachines OwnMachines
	// Shell opens a stream of [agentapi] shell frames.
	Shell func(ctx context.Context, cluster string, q agentapi.ShellQuery) (io.ReadWriteCloser, error)
	// Balancers hands tables to load balancers that run beside the server, and takes
	// their reports; nil: there are none.
	Balancers http.Handler
	// Replica connects to a replica of a service, for those load balancers.
	Replica func(ctx context.Context, service string, replica int) (net.Conn, error)
	// SSHD connects to the sshd of a cluster's node.
	SSHD func(ctx context.Context, cluster string, node int) (net.Conn, error)
	// Forward connects to a port of a host as a cluster's node sees it.
	Forward func(ctx context.Context, cluster string, node int, host string, port int) (net.Conn, error)
}

// Rules are what an installation's configuration says about its users.
type Rules struct {
	// Policy changes the permissions of the route table.
	Policy auth.Policy
	// DefaultRole is that of users seen for the first time; "": admin.
	DefaultRole string
	// Workspaces are those there are; nil: only the default one.
	Workspaces []config.Workspace
	// Active is the workspace of calls that name none; "": of the user's choice.
	Active string
	// Links are the dashboard's external_links, as the configuration has them; nil: none.
	Links any
}

// role is that of users seen for the first time.
func (r Rules) role() string { return cmp.Or(r.DefaultRole, "admin") }

// all are the workspaces.
func (r Rules) all() []config.Workspace {
	if r.Workspaces == nil {
		return []config.Workspace{{Name: config.DefaultWorkspace}}
	}
	return r.Workspaces
}

// accessible are the names of the workspaces whose things a user may see, removed
// ones among them. Service accounts are known by their ids only: anybody may give
// one any name.
func (r Rules) accessible(u state.User) []string {
	name := u.Name
	if auth.IsAccount(u.ID) {
		name = ""
	}
	names := []string{}
	for _, w := range r.all() {
		if u.Role == "admin" || w.Allows(u.ID, name) {
			names = append(names, w.Name)
		}
	}
	return names
}

// removed reports whether a workspace is there only for what is in it still.
func (r Rules) removed(name string) bool {
	return slices.ContainsFunc(r.all(), func(w config.Workspace) bool { return w.Name == name && w.Removed })
}

// usable are the names of the workspaces that a user may choose.
func (r Rules) usable(u state.User) []string {
	return slices.DeleteFunc(r.accessible(u), r.removed)
}

// ProvisionLogs says what of a cluster's start is shown.
type ProvisionLogs struct {
	Cluster string
	Scope   *state.Scope // whose requests may be shown; nil: all
	Worker  *int         // nil: all
	Tail    int          // last lines; 0: all
	Follow  bool
}

// Server is an [http.Handler] for every route.
type Server struct {
	Deps
	log      *slog.Logger
	mux      *http.ServeMux
	started  time.Time
	draining atomic.Bool
	room     sizes
	bodyTime time.Duration // how long a client may take to send a body
	// closing ends what would never end by itself: long polls and streams. It is
	// the server's own life, not that of a call, so it may be kept.
	closing context.Context
	close   context.CancelFunc
}

// New is the server. The engine's functions are registered by others, after
// [Provide] has registered what answers in the absence of one.
func New(d Deps) *Server {
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	if d.Home == "" {
		d.Home, _ = os.UserHomeDir()
	}
	if d.Rules == nil {
		d.Rules = func() Rules { return Rules{} }
	}
	if d.Uploads == nil {
		d.Uploads = &Uploads{Home: d.Home, Store: d.Store}
	}
	if d.Downloads == nil {
		d.Downloads = NewDownloads(d.Home, d.Store)
	}
	if d.Metrics == nil {
		d.Metrics = NewMetrics()
	}
	s := &Server{Deps: d, log: d.Logger, started: time.Now(), mux: http.NewServeMux(), bodyTime: bodyTime}
	s.closing, s.close = context.WithCancel(context.Background())
	byPath := map[string][]Route{}
	for _, r := range Routes() {
		byPath[r.Path] = append(byPath[r.Path], r)
	}
	for path, rs := range byPath {
		s.mux.Handle(path, s.dispatch(rs))
	}
	if oauth2 := d.Gate.Forward(); oauth2 != nil {
		s.mux.Handle(auth.OAuth2Prefix, oauth2)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.unrouted(w, r, http.StatusNotFound, "There is no such route on this server.")
	})
	return s
}

// Drain makes the server refuse new work; what clients wait for is still
// answered.
func (s *Server) Drain() { s.draining.Store(true) }

// Close ends what would never end by itself: long polls and streams. Clients
// see their connections cut and ask again.
func (s *Server) Close() { s.close() }

// dispatch picks the route of a path by its method.
func (s *Server) dispatch(routes []Route) http.Handler {
	handlers := map[string]http.Handler{}
	var methods []string
	for _, r := range routes {
		handlers[r.Method] = s.route(r)
		methods = append(methods, r.Method)
		if r.Method == get && r.Kind == Page {
			handlers[http.MethodHead] = handlers[get]
		}
	}
	slices.Sort(methods)
	allow := strings.Join(methods, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := handlers[r.Method]; ok {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Allow", allow)
		s.unrouted(w, r, http.StatusMethodNotAllowed, "This route takes only "+allow+".")
	})
}

// ServeHTTP answers one request. Every answer carries an id, and no panic
// leaves it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, r := s.accept(w, r)
	defer s.finish(a, r)
	if r.Body != nil && r.Body != http.NoBody {
		// Also for bodies that no handler reads: the connection waits for their end.
		_ = http.NewResponseController(a).SetReadDeadline(time.Now().Add(s.bodyTime))
	}
	a.Header().Set("X-Content-Type-Options", "nosniff")
	if !s.knownHost(r) {
		fail(a, http.StatusForbidden, "This server does not answer under the name "+quoted(r.Host)+
			". Use a loopback address, or add the name to the server's hosts.")
		return
	}
	if p, ok := strings.CutPrefix(r.URL.Path, "/internal/dashboard/"); ok {
		r.URL.Path, r.URL.RawPath = "/"+p, ""
	}
	if clean := cleanPath(r.URL.Path); clean != r.URL.Path || r.Method == http.MethodConnect {
		fail(a, http.StatusNotFound, "There is no such route on this server.")
		return
	}
	s.mux.ServeHTTP(a, r)
}

// cleanPath is the path that the mux would redirect to, so that it never has to.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		return "/"
	}
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// unrouted answers what no route takes, after the same checks.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request, status int, what string) {
	if s.versions(w, r) {
		fail(w, status, what)
	}
}

// route puts the checks before a route's handler, in the order of the protocol:
// who is it, is the server going away, may they, do the versions fit.
func (s *Server) route(rt Route) http.Handler {
	handle := rt.handle
	switch rt.Kind {
	case Async:
		handle = rt.async
	case Log:
		handle = rt.logs
	case Direct:
		handle = rt.direct
	case Socket:
		handle = rt.socket
	}
	label := rt.Method + " " + rt.Path
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := w.(*answer); ok {
			a.route = label
			a.span.Rename(label)
		}
		if err := sameSite(r, rt.Kind == Page); err != nil {
			fail(w, http.StatusForbidden, err.Error())
			return
		}
		caller, ok := s.identify(w, r, rt)
		if !ok {
			return
		}
		if s.draining.Load() && !strings.HasPrefix(r.URL.Path, "/api/") {
			fail(w, http.StatusServiceUnavailable, "The server is shutting down. Try again in a moment.")
			return
		}
		r = withCaller(r, caller)
		r, ended := s.trail(w, r, rt)
		defer ended()
		if !s.permitted(caller, rt, r.URL.Path) {
			fail(w, http.StatusForbidden, "Forbidden")
			return
		}
		if !s.versions(w, r) {
			return
		}
		handle(s, w, r)
	})
}

func quoted(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return "“" + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s) + "”"
}
