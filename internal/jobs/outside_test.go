package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/state"
)

// outside is what servers share besides the database: a cloud, the machines
// rented there with their agents, and the records of clusters. It knows what
// is true, so it notices when a server does something that it must not.
type outside struct {
	seed     uint64
	steady   bool          // nothing goes wrong by itself
	patience time.Duration // of servers with agents that are silent; 0: endless, and nothing hangs for ever
	cloud    *model.Cloud
	provider cloud.Provider
	offers   []cloud.Offer
	plans    map[int]*plan
	listen   func() []*notify.Keyed[string] // of the servers that live
	tell     func() []*Manager              // the servers that live, as agents tell them

	mu       sync.Mutex
	records  map[string]*row  // clusters by name
	machines map[string]*gang // by incarnation
	seq      int

	lastLost   map[attemptTask]loss // what took a task's machines last
	violations []string
	count      counts
}

type attemptTask struct{ job, task int }

// counts are what a simulation reports.
type counts struct {
	clusters, preempted, partitions, hung, lies, lostRuns, completed, repairs int
	redone                                                                    time.Duration
	slowest                                                                   time.Duration // from the provider's answer to the decision
}

// plan is what becomes of a job.
type plan struct {
	nodes    int
	spot     bool
	failover bool
	perNode  bool          // recovery: node
	work     time.Duration // of one run, less what checkpoints saved
	results  []int         // exit codes of the runs that were not cut off, in order; the last one counts for more
	setup    bool          // the first result is setup's
	cancel   time.Duration // after the beginning; 0: never
	grace    time.Duration // of the cancel
	leaves   time.Duration // what its processes take to end by themselves
	more     string        // of the task's text
	want     []api.ManagedStatus

	// What happened, guarded by outside.mu.
	runs int           // that were not cut off
	left time.Duration // of the work
	won  bool          // a run succeeded and its record could be read
}

// row is a cluster's row, as durable as the database.
type row struct {
	state.Cluster
	request string
	locked  chan struct{} // holds one token while somebody works on the cluster
}

// lock waits for whoever works on the cluster.
func (c *row) lock(ctx context.Context) (func(), error) {
	select {
	case c.locked <- struct{}{}:
		return func() { <-c.locked }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// epoch is when the time in a bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// ring tells the servers that live that something happened to a cluster.
func (o *outside) ring(hash string) {
	for _, b := range o.listen() {
		b.Notify(hash)
	}
}

// Clusters, as package cluster keeps them.

func id(c *row) cloud.ClusterID {
	return cloud.ClusterID{Installation: "sim", Name: c.Name, Hash: c.Hash}
}

// refresh brings a record up to date with what the provider and the agents say.
func (o *outside) refresh(ctx context.Context, c *row) (cluster.Verdict, error) {
	nodes, err := o.provider.Nodes(ctx, id(c))
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.records[c.Name]; now == nil || now.Hash != c.Hash {
		return cluster.Verdict{Gone: true, Reason: "the cluster is gone"}, nil
	}
	g := o.machines[c.Hash]
	seen := cluster.Observation{Nodes: nodes, NodesErr: err, AgentErr: errors.New("no answer")}
	for rank, dead := range g.dead {
		if dead || g.cut || g.stuck && rank > 0 {
			seen.Silent++
			continue
		}
		seen.Answered = append(seen.Answered, rank)
		if rank == 0 {
			seen.Agent = &agentapi.Info{State: agentapi.AgentRunning}
		}
	}
	v := cluster.Decide(&c.Cluster, seen, time.Now())
	switch {
	case v.Unknown:
		return v, errors.New(v.Reason)
	case v.Gone:
		if g.healthy() {
			o.violation("cluster %s of a healthy job is given back: %s (cut %v, lied %v, dead %v, machines %v, listed %+v)", c.Name, v.Reason, g.cut, g.lied, g.dead, g.ids, nodes)
		}
		o.mu.Unlock()
		err := persist(ctx, func() error { return o.provider.Terminate(ctx, id(c)) })
		o.mu.Lock()
		if err != nil {
			return v, err
		}
		o.forget(c)
	case v.Status != c.Status:
		c.Status, c.LastEvent, c.StatusUpdatedAt = v.Status, v.Reason, time.Now()
		if v.Status != api.ClusterUp && g.confirmed.IsZero() {
			g.confirmed = time.Now()
		}
		o.ring(c.Hash)
	}
	return v, nil
}

func (o *outside) forget(c *row) {
	if now := o.records[c.Name]; now != nil && now.Hash == c.Hash {
		delete(o.records, c.Name)
	}
	if g := o.machines[c.Hash]; g != nil {
		if g.confirmed.IsZero() {
			g.confirmed = time.Now()
		}
		g.end()
	}
	o.ring(c.Hash)
}

// down gives a cluster back.
func (o *outside) down(ctx context.Context, c *row) error {
	if err := persist(ctx, func() error { return o.provider.Terminate(ctx, id(c)) }); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget(c)
	return nil
}
