package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/state"
)

// environment is all that a controller does outside of the database.
type environment interface {
	// Taken reports whether the name is a cluster of somebody else.
	Taken(ctx context.Context, name string, job int) (bool, error)
	// Launch brings the attempt's cluster up and submits its job. Again, after
	// a crash at any point, it goes on where it was.
	Launch(ctx context.Context, l launch) (placed, error)
	// Recorded is what is known of the cluster without asking anybody.
	Recorded(ctx context.Context, a *state.ManagedAttempt) observation
	// Heard waits until all that the agent of the attempt's cluster told servers so far
	// is stored, and says when it was heard last; zero: unknown.
	Heard(ctx context.Context, a *state.ManagedAttempt) time.Time
	// HeardLast is Heard without waiting or asking anybody.
	HeardLast(a *state.ManagedAttempt) time.Time
	// Observe finds out what it can without asking the provider.
	Observe(ctx context.Context, a *state.ManagedAttempt) observation
	// Confirm asks the provider about the machines.
	Confirm(ctx context.Context, a *state.ManagedAttempt) (clusterState, string, error)
	// End asks for the attempt's job to be ended and does not wait: its processes
	// have grace between TERM and KILL, and its log ends with them. Again it does
	// nothing more.
	End(ctx context.Context, a *state.ManagedAttempt, grace time.Duration) error
	// Down gives the cluster back; one that is gone is no error.
	Down(ctx context.Context, a *state.ManagedAttempt, call cluster.Call) error
	// Log follows the job's log from a byte on, to its end.
	Log(ctx context.Context, a *state.ManagedAttempt, offset int64) (io.ReadCloser, error)
	// Callback runs a script on the head of the attempt's cluster, beside its jobs,
	// and waits for its end. The same key again is the same run. [errNoNode] if the
	// cluster is gone; an [*agentapi.Error] is the agent's refusal, and final.
	Callback(ctx context.Context, a *state.ManagedAttempt, key string, r agentapi.CallbackRequest) (*agentapi.CallbackResult, error)
	// Changed receives when there may be something new to see.
	Changed(a *state.ManagedAttempt) (<-chan struct{}, func())
}

// launch is what it takes to launch an attempt.
type launch struct {
	call    cluster.Call
	task    string // the task alone, in the form that travels
	attempt *state.ManagedAttempt
	held    execution.Held
}

// placed is where an attempt's job was submitted.
type placed struct {
	Hash      string
	Job       int
	Offer     cloud.Offer
	Nodes     int
	NodeNames []string
	Resources string
	Full      string
	At        time.Time // when its agent took the job, by the agent's clock; zero: unknown
}

// leakGuard is after how many idle minutes the cluster of a job gives itself
// back if no server comes to look any more. Until then a server that was away
// still finds out how the job ended.
const leakGuard = 60

// onClusters is the environment of real clusters.
type onClusters struct {
	store    *state.Store
	executor *execution.Executor
	clusters *cluster.Manager
}

func (e *onClusters) Taken(ctx context.Context, name string, job int) (bool, error) {
	c, err := e.store.Clusters().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		return false, nil
	}
	return err == nil && c.Holder != state.JobHolder(job), err
}

func (e *onClusters) Launch(ctx context.Context, l launch) (placed, error) {
	if p := execution.ParseProgress(l.attempt.Progress); p.Submitting != "" {
		if c, err := e.mine(ctx, l.attempt.ClusterName, p.Submitting); err != nil {
			return placed{}, err
		} else if c == nil {
			return placed{}, &lostError{"the cluster was gone before its job was seen"}
		} else if p.JobID == 0 && c.Status == api.ClusterInit {
			// It was whole when the job was sent. To wait for room where it was may
			// take for ever. As long as its machines run, the job may run there,
			// whether their agents answer or not.
			s, reason, err := e.confirm(ctx, c.Name, c.Hash)
			if err == nil && (s == clusterGone || s == clusterBroken && !e.clusters.MayRun(ctx, c)) {
				return placed{}, &lostError{reason}
			}
		}
	}
	if l.attempt.Number > 1 {
		l.held.Replaces = func(jobs []agentapi.Job) []int { return superseded(jobs, l.attempt) }
		// Now, so that files are not copied under a running program; if its head does
		// not answer, again before the job is submitted.
		if c, err := e.store.Clusters().Get(ctx, l.attempt.ClusterName); err == nil && c.EverUp && c.Holder == l.held.Holder {
			if err := e.clusters.AgentCancel(ctx, c, l.held.Replaces); err != nil {
				fmt.Fprintf(l.call.Out, "The head of cluster %s does not answer: %v\n", c.Name, err)
			}
		}
	}
	idle := leakGuard
	res, err := e.executor.LaunchHeld(ctx, l.call, api.LaunchBody{
		Task: l.task, ClusterName: l.attempt.ClusterName, IdleMinutesAutostop: &idle, Down: true,
	}, l.held)
	if err != nil {
		return placed{}, err
	}
	c, err := e.store.Clusters().Get(ctx, l.attempt.ClusterName)
	if errors.Is(err, state.ErrNotFound) {
		return placed{}, &lostError{"the cluster was gone as soon as it had its job"}
	}
	if err != nil {
		return placed{}, err
	}
	if res == nil || res.JobID == nil {
		return placed{}, errors.New("the cluster was given no job")
	}
	p := placed{Hash: c.Hash, Job: *res.JobID, Offer: c.Offer, Nodes: c.NumNodes, At: unix(res.SubmittedAt)}
	p.Resources, p.Full = cluster.Resources(c)
	for _, n := range c.Nodes {
		p.NodeNames = append(p.NodeNames, n.ID)
	}
	return p, nil
}

// mine is that incarnation of a cluster, or nil if it is gone.
func (e *onClusters) mine(ctx context.Context, name, hash string) (*state.Cluster, error) {
	c, err := e.store.Clusters().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) || err == nil && c.Hash != hash {
		return nil, nil
	}
	return c, err
}

func (e *onClusters) Recorded(ctx context.Context, a *state.ManagedAttempt) observation {
	o, _ := e.recorded(ctx, a)
	return o
}

// recorded is Recorded with the cluster's record; nil: it is gone, or unknown.
func (e *onClusters) recorded(ctx context.Context, a *state.ManagedAttempt) (observation, *state.Cluster) {
	o := observation{observed: true}
	c, err := e.mine(ctx, a.ClusterName, a.ClusterHash)
	switch {
	case err != nil:
	case c == nil:
		o.cluster, o.confirmed, o.reason = clusterGone, true, e.why(ctx, a.ClusterName, a.ClusterHash)
	default:
		o.recorded(c, time.Now())
	}
	return o, c
}

func (e *onClusters) Heard(ctx context.Context, a *state.ManagedAttempt) time.Time {
	hash := a.ClusterHash
	if hash == "" {
		hash = execution.ParseProgress(a.Progress).Submitting
	}
	return e.clusters.Heard(ctx, hash)
}

func (e *onClusters) HeardLast(a *state.ManagedAttempt) time.Time {
	return e.clusters.HeardLast(a.ClusterHash)
}

func (e *onClusters) Observe(ctx context.Context, a *state.ManagedAttempt) observation {
	o, c := e.recorded(ctx, a)
	if c == nil || o.cluster == clusterGone {
		return o
	}
	if o.cluster == clusterBroken {
		if a.Machines() == 1 {
			return o
		}
		var cancel context.CancelFunc // only whether the head is there
		ctx, cancel = context.WithTimeout(ctx, headTimeout)
		defer cancel()
	}
	job, err := e.clusters.AgentJob(ctx, c, a.ClusterJob)
	var refused *agentapi.Error
	switch {
	case err == nil:
		o.answered(job)
	case errors.As(err, &refused) && refused.Code == agentapi.CodeNotFound:
		o.noJob = true
	default:
		o.silent = err.Error()
	}
	return o
}

func (e *onClusters) Confirm(ctx context.Context, a *state.ManagedAttempt) (clusterState, string, error) {
	return e.confirm(ctx, a.ClusterName, a.ClusterHash)
}

func (e *onClusters) confirm(ctx context.Context, name, hash string) (clusterState, string, error) {
	c, err := e.clusters.Confirm(ctx, name)
	if err != nil {
		return clusterUnknown, "", err
	}
	if c == nil || c.Hash != hash {
		return clusterGone, e.why(ctx, name, hash), nil
	}
	s, reason := stateOf(c)
	return s, reason, nil
}

// answered takes over what the head says of a job. If it has not heard of a node
// for a while, nobody knows whether the job still works.
func (o *observation) answered(job *agentapi.Job) {
	o.job = job
	if !job.Status.Terminal() {
		o.silent = job.Silent
	}
}

// headTimeout is how long the head of a cluster that lost nodes has for an
// answer.
const headTimeout = 2 * time.Second

// freshRecord is for how long a record that says that machines are missing, as
// the provider told, is as good as asking the provider again.
const freshRecord = 30 * time.Second

// recorded takes over what the cluster's record says.
func (o *observation) recorded(c *state.Cluster, now time.Time) {
	if cluster.GivingBack(c) {
		o.cluster, o.confirmed, o.reason = clusterGone, true, "the cluster is being given back"
		return
	}
	o.cluster, o.reason = stateOf(c)
	o.confirmed = o.cluster == clusterBroken && now.Sub(c.StatusUpdatedAt) < freshRecord
}

// stateOf is what a record that was just brought up to date says.
func stateOf(c *state.Cluster) (clusterState, string) {
	switch c.Status {
	case api.ClusterUp, api.ClusterAutostopping:
		return clusterUp, ""
	}
	return clusterBroken, c.LastEvent
}

// why is what the history says of a cluster's end.
func (e *onClusters) why(ctx context.Context, name, hash string) string {
	events, err := e.store.Clusters().Events(ctx, name, hash, []string{"TERMINAL"}, 1)
	if err == nil && len(events) == 1 {
		return events[0].Reason
	}
	return "the cluster is gone"
}

func (e *onClusters) End(ctx context.Context, a *state.ManagedAttempt, grace time.Duration) error {
	c, err := e.mine(ctx, a.ClusterName, a.ClusterHash)
	if err != nil || c == nil {
		return err
	}
	return e.clusters.AgentEnd(ctx, c, a.ClusterJob, grace)
}

func (e *onClusters) Down(ctx context.Context, a *state.ManagedAttempt, call cluster.Call) error {
	return e.clusters.DownHeld(ctx, call, a.ClusterName, state.JobHolder(a.JobID))
}

func (e *onClusters) Log(ctx context.Context, a *state.ManagedAttempt, offset int64) (io.ReadCloser, error) {
	c, err := e.mine(ctx, a.ClusterName, a.ClusterHash)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, fmt.Errorf("cluster %s is gone", a.ClusterName)
	}
	rc, start, err := e.clusters.AgentLog(ctx, c, a.ClusterJob, offset)
	if err != nil {
		return nil, err
	}
	if start != offset {
		rc.Close()
		return nil, fmt.Errorf("the log of cluster %s begins at byte %d, not %d", a.ClusterName, start, offset)
	}
	return rc, nil
}

func (e *onClusters) Callback(ctx context.Context, a *state.ManagedAttempt, key string, r agentapi.CallbackRequest) (*agentapi.CallbackResult, error) {
	c, err := e.mine(ctx, a.ClusterName, a.ClusterHash)
	if err != nil {
		return nil, err
	}
	if c == nil || cluster.GivingBack(c) {
		return nil, errNoNode
	}
	return e.clusters.AgentCallback(ctx, c, key, r)
}

func (e *onClusters) Changed(a *state.ManagedAttempt) (<-chan struct{}, func()) {
	return e.clusters.Changed(a.ClusterHash)
}

// deadline bounds calls that have none of their own.
const deadline = 2 * time.Minute
