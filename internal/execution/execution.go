// Package execution turns a task into a running job: plan, get machines, copy
// files, set autostop, submit. Every stage is safe to repeat, so a request
// that a crash cut off goes through them again and finds done what is done.
package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/buckets"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/credentials"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/volumes"
	"github.com/skypilot-go/sky/task"
)

// Deps are what an Executor works with.
type Deps struct {
	Store     *state.Store
	Providers *cloud.Registry
	Provision *provision.Engine
	Remote    *remote.Connector
	Clusters  *cluster.Manager
	Volumes   *volumes.Manager
	Buckets   *buckets.Manager
	// Credentials takes the server's to nodes; nil: nodes get none.
	Credentials *credentials.Manager
	Log         *slog.Logger
	Catalogs    *catalog.Store
	BuildID     string // of the agents that are installed
}

// Executor launches and executes tasks.
type Executor struct{ Deps }

// New returns an executor.
func New(d Deps) *Executor { return &Executor{d} }

// Progress is what a launch or exec remembers across a crash of the server.
type Progress struct {
	// Submitting is the incarnation of the cluster to which the job was about
	// to be sent; from then on the job may have run.
	Submitting string `json:"submitting,omitempty"`
	JobID      int    `json:"job_id,omitempty"`
	// SubmittedAt is when the agent took it, by the agent's clock.
	SubmittedAt float64 `json:"submitted_at,omitempty"`
}

// oneTask parses what the client sent and insists on a single task.
func oneTask(text, verb string) (*task.Task, error) {
	dag, err := parse(text)
	if err != nil {
		return nil, err
	}
	if len(dag.Tasks) != 1 {
		return nil, &api.Error{
			Type:    api.ErrValue,
			Message: fmt.Sprintf("sky %s runs a single task, but this file describes %d.", verb, len(dag.Tasks)),
			Hint:    "Pipelines and job groups run with: sky jobs launch",
		}
	}
	return dag.Tasks[0], nil
}

// parse reads the wire form of a Dag and checks what needs no files: those are
// the client's.
func parse(text string) (*task.Dag, error) {
	dag, err := task.ParseSent("task", []byte(text))
	if err == nil {
		err = dag.Check(task.CheckOptions{NoFiles: true})
	}
	if err != nil {
		return nil, TaskError(err)
	}
	if len(dag.Tasks) == 0 {
		return nil, &api.Error{Type: api.ErrValue, Message: "The request holds no task."}
	}
	return dag, nil
}

// TaskError gives a mistake in a task the class that clients know.
func TaskError(err error) error {
	e := &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	for _, t := range task.AllErrors(err) {
		if t.Class != "" {
			e.Type = t.Class
		}
	}
	return e
}

// Validate checks what can be checked without starting anything.
func (x *Executor) Validate(ctx context.Context, body api.DagBody) error {
	dag, err := parse(body.Dag)
	if err != nil {
		return err
	}
	if body.RequestOptions != nil && body.RequestOptions.ClusterName != nil {
		if err := validName(*body.RequestOptions.ClusterName); err != nil {
			return err
		}
	}
	for _, t := range dag.Tasks {
		if err := x.runnable(t); err != nil {
			return err
		}
	}
	return nil
}

// unavailable is the error of having found no machine.
func unavailable(err error, history []string) *api.Error {
	if history == nil {
		history = []string{}
	}
	return &api.Error{
		Type:       api.ErrResourcesUnavailable,
		Message:    err.Error(),
		Attributes: map[string]any{"no_failover": false, "failover_history": history},
		Err:        err,
	}
}

func validName(name string) error {
	if err := task.ValidClusterName(name); err != nil {
		return &api.Error{Type: api.ErrInvalidClusterName, Message: err.Error(), Err: err}
	}
	return nil
}

// ParseProgress reads what a call kept; absent or damaged, it is the beginning.
func ParseProgress(b []byte) Progress {
	var p Progress
	if len(b) > 0 {
		_ = json.Unmarshal(b, &p)
	}
	return p
}

func load(call cluster.Call) Progress {
	if call.Load == nil {
		return Progress{}
	}
	return ParseProgress(call.Load())
}

func save(ctx context.Context, call cluster.Call, p Progress) error {
	if call.Save == nil {
		return nil
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return call.Save(ctx, b)
}

// ValidateDag is Validate for the text of tasks alone.
func (x *Executor) ValidateDag(ctx context.Context, dag string) error {
	return x.Validate(ctx, api.DagBody{Dag: dag})
}
