// Package controller looks after managed jobs, or services, from elsewhere: for people
// whose machine sleeps it runs an API server like this one on a small rented cluster,
// and hands it the work.
//
// The cluster is launched like any other, so a crash leaves of it what a crash
// leaves of any launch. What the server there needs (this very program, the
// configuration, credentials) is copied below one folder of the head node; a job
// of the cluster keeps the server running until there is nothing left to do, and
// then the cluster is idle and stops itself. This server forwards what users ask
// about them, through the connection that it has to the node's agent
// anyway: the far server listens on its loopback only. A call travels under the
// id that it has here, so one that is sent again after a crash or a broken
// connection is taken once.
package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// Deps are what a Controller works with.
type Deps struct {
	Kind      *Kind
	Store     *state.Store
	Providers *cloud.Registry
	Executor  *execution.Executor
	Clusters  *cluster.Manager
	Remote    *remote.Connector
	Config    func() *config.Config // the server's, as it is now
	Self      state.User            // to whom the cluster belongs
	Dir       string                // for files on their way
	Far       bool                  // this server is the far one: it hands nothing on
	Log       *slog.Logger
}

// Controller is the cluster that looks after one kind of work, whether or not it
// exists. Its methods may be called concurrently.
type Controller struct {
	Deps
	turn chan struct{} // held by whoever brings it up

	// handing is held for reading while work is handed over, and for writing while
	// the cluster ends: a job is not handed to what is about to go.
	handing sync.RWMutex

	mu       sync.Mutex
	equipped map[string]string // by incarnation of the cluster: what was brought there
	ways     map[string]*way   // by incarnation and agent
}

// New returns the controller; nothing is looked at yet.
func New(d Deps) *Controller {
	return &Controller{Deps: d, turn: make(chan struct{}, 1), equipped: map[string]string{}, ways: map[string]*way{}}
}

// Reserved says what a cluster name is reserved for: "managed jobs", "services",
// or "" for none.
func Reserved(name string) string {
	switch {
	case strings.HasPrefix(name, Jobs.prefix), strings.HasPrefix(name, "sky-spot-controller-"):
		return "managed jobs"
	case strings.HasPrefix(name, Services.prefix):
		return "services"
	}
	return ""
}

// Name is the name of the cluster.
func (c *Controller) Name() string { return c.Kind.prefix + c.Self.ID }

// EnvFar is the variable of the environment that tells a server that it is the far
// one: whatever a configuration says, it looks after its work itself. Otherwise
// each controller could rent the next.
const EnvFar = "IS_SKYPILOT_JOB_CONTROLLER"

// Wanted reports whether a request with that configuration of the client is about
// jobs on the controller.
func (c *Controller) Wanted(sent map[string]any, from config.Sender) bool {
	return !c.Far && c.Config().ControllerOn(c.Kind.section, sent, from) == config.OnCluster
}

// look returns the cluster's record; nil: there is none.
func (c *Controller) look(ctx context.Context) (*state.Cluster, error) {
	cl, err := c.Store.Clusters().Get(ctx, c.Name())
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	return cl, err
}

// notUp is the error of asking a controller that does not run.
func (c *Controller) notUp(cl *state.Cluster, why string) error {
	return &api.Error{
		Type:       api.ErrClusterNotUp,
		Message:    fmt.Sprintf("The %s %s is %s%s. %s", c.Kind.name, cl.Name, cl.Status, why, cmp.Or(c.Kind.wakes, "New work starts it")),
		Attributes: map[string]any{"cluster_status": string(cl.Status)},
	}
}

// A way leads to the server on one head node.
type way struct{ transport *http.Transport }

// client talks to the far server as the caller of a request.
func (c *Controller) client(cl *state.Cluster, call cluster.Call) (*sky.Client, error) {
	node, err := c.Remote.Head(cl)
	if err != nil {
		return nil, err
	}
	key := cl.Hash + " " + cl.Nodes[0].Reach.Agent
	c.mu.Lock()
	w := c.ways[key]
	if w == nil {
		for k, old := range c.ways { // of clusters and agents before this one
			old.transport.CloseIdleConnections()
			delete(c.ways, k)
		}
		w = &way{&http.Transport{
			MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return node.ServerLasting(ctx, c.Kind.homeDir()) // it outlives the call that it is made for
			},
		}}
		c.ways[key] = w
	}
	c.mu.Unlock()
	return sky.New(sky.Options{
		Patience: farPatience,
		Endpoint: "http://127.0.0.1", // its own; the way there is the transport's
		User:     api.User{ID: call.User.ID, Name: call.User.Name}, Environ: []string{"HOME=" + c.Dir},
		HTTPClient: &http.Client{Transport: held{w.transport, call.Scope, "an answer of the " + c.Kind.name}},
	})
}

// held tells the far server what the caller may touch here.
type held struct {
	next  http.RoundTripper
	scope *state.Scope
	what  string // is answered, for people
}

func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.scope != nil {
		text, err := json.Marshal(h.scope)
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Header.Set(api.HeaderScope, string(text))
	}
	resp, err := h.next.RoundTrip(r)
	if err == nil && !slices.Contains(streamed, r.URL.Path) {
		resp.Body = bounded.ReadCloser(resp.Body, farAnswer, h.what)
	}
	return resp, err
}

// farAnswer bounds the answers of the far server, which runs on a node. What is
// streamed is not held.
const farAnswer = 128 << 20

var streamed = []string{"/api/stream", "/jobs/logs", "/serve/logs", "/download"}

// farPatience is how long a call to the far server is repeated before the cluster
// is looked at: it may have ended.
const farPatience = 10 * time.Second

// pingTimeout bounds asking the far server how it is.
const pingTimeout = 10 * time.Second

// ping asks the far server how it is.
func (c *Controller) ping(ctx context.Context, cl *state.Cluster) (*api.Health, error) {
	client, err := c.client(cl, cluster.Call{User: c.Self})
	if err != nil {
		return nil, err
	}
	return client.Ping(ctx, pingTimeout)
}

// serverJob is the job of the cluster that keeps the server running, the latest
// one; nil: there was none yet.
func (c *Controller) serverJob(ctx context.Context, cl *state.Cluster) (*agentapi.Job, error) {
	head, err := c.Remote.Head(cl)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	jobs, err := head.Jobs(ctx) // newest first
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if j.Name == c.Kind.job {
			return &j, nil
		}
	}
	return nil, nil
}

// rested reports that the server ended because there was nothing to do.
func rested(j *agentapi.Job) bool { return j != nil && j.Status == api.JobSucceeded }
