package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// Observation is what could be found out about a cluster just now.
type Observation struct {
	Nodes    []cloud.Node
	NodesErr error          // the provider could not tell
	Agent    *agentapi.Info // nil: the head agent did not answer
	AgentErr error
	Silent   int   // agents of running machines that did not answer, the head's too
	Answered []int // ranks whose agents answer although the provider does not show their machines as running
}

// Verdict is what an observation means for the record.
type Verdict struct {
	Status       api.ClusterStatus
	Gone         bool   // no machine is left, or none that anybody wants: they are given back, and the record goes too
	Reason       string // for the event, when something changes
	RestartAgent bool   // machines run, but not all of their agents answer
	Unknown      bool   // nothing could be found out: leave the record alone
}

// appearing is how long after its launch a cluster without machines may still
// be in the making: clouds list new machines late.
const appearing = 60 * time.Second

// stoppingSilence is for how long the agent of a cluster that is stopping itself may
// be silent before it is started again: it ends before its machine. What it says is
// noted once a minute.
const stoppingSilence = 2 * refreshPeriod

// Decide turns what was seen into what to believe. It is pure.
func Decide(c *state.Cluster, o Observation, now time.Time) Verdict {
	if o.NodesErr != nil {
		return Verdict{Unknown: true, Status: c.Status, Reason: fmt.Sprintf("the provider could not tell: %v", o.NodesErr)}
	}
	var running, stopped, other int
	reason := ""
	for _, n := range o.Nodes {
		if n.Reason != "" {
			reason = n.Reason
		}
		switch n.State {
		case cloud.NodeRunning:
			running++
		case cloud.NodeStopped, cloud.NodeStopping:
			stopped++
		case cloud.NodeGone:
		default:
			other++
		}
	}
	alive, want := running+stopped+other, c.Machines()
	if rank, ok := contradicted(o); ok {
		return Verdict{Unknown: true, Status: c.Status,
			Reason: fmt.Sprintf("the provider does not show node %d as running, but its agent answers", rank)}
	}
	switch {
	case alive == 0 && c.Status == api.ClusterInit && now.Sub(c.LaunchedAt) < appearing:
		return Verdict{Status: c.Status}
	case alive == 0:
		return Verdict{Gone: true, Reason: because("all machines are gone", reason)}
	case endedItself(c, o):
		return Verdict{Gone: true, Reason: because(fmt.Sprintf("it has ended itself, and %d machines were left", alive), reason)}
	case alive > want:
		return Verdict{Unknown: true, Status: c.Status,
			Reason: fmt.Sprintf("%d machines carry this cluster's tags, but it has only %d: some may be leaking", alive, want)}
	case running == want:
		return decideRunning(c, o, now)
	case stopped == alive && alive == want:
		return Verdict{Status: api.ClusterStopped, Reason: because("all machines are off", reason)}
	}
	return Verdict{Status: api.ClusterInit,
		Reason: because(fmt.Sprintf("of %d machines %d run, %d are off and %d are missing", want, running, stopped, want-alive), reason)}
}

// endedItself reports whether an autodown came to its end: the head, which ends
// itself last, after all jobs and hooks, does not run any more. What is left then
// nobody would end.
func endedItself(c *state.Cluster, o Observation) bool {
	return c.Status == api.ClusterAutostopping && c.AutostopDown && !shown(o.Nodes, 0)
}

// missing is the ranks of a running cluster whose machines the provider calls
// gone or off, or does not list.
func missing(c *state.Cluster, o *Observation) []int {
	if o.NodesErr != nil || c.Status != api.ClusterUp {
		return nil
	}
	var ranks []int
	for rank, known := range c.Nodes {
		if known.Reach.Agent != "" && !shown(o.Nodes, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// shown reports whether the provider lists a machine of that rank which is not
// gone or off.
func shown(nodes []cloud.Node, rank int) bool {
	return slices.ContainsFunc(nodes, func(n cloud.Node) bool {
		return n.Rank == rank && n.State != cloud.NodeGone && n.State != cloud.NodeStopped
	})
}

// contradicted finds a node that the provider calls gone or off, or does not
// list, although its agent answers. Lists may be late or wrong; an agent with
// the cluster's certificates is there.
func contradicted(o Observation) (rank int, ok bool) {
	for _, rank := range o.Answered {
		if !shown(o.Nodes, rank) {
			return rank, true
		}
	}
	return 0, false
}

// decideRunning is the verdict when every machine runs.
func decideRunning(c *state.Cluster, o Observation, now time.Time) Verdict {
	switch {
	case remote.Agentless(c):
		return Verdict{Status: api.ClusterUp, Reason: "all machines run"}
	case o.Agent == nil && c.Status == api.ClusterInit:
		return Verdict{Status: api.ClusterInit, RestartAgent: c.EverUp, Reason: fmt.Sprintf("the machines run, the agent does not answer: %v", o.AgentErr)}
	case o.Agent == nil && c.Status == api.ClusterAutostopping && now.Sub(heardAt(c)) < stoppingSilence:
		return Verdict{Status: c.Status, Reason: "it is stopping itself, and its agent has ended"}
	case o.Agent == nil:
		// Silence is no proof: the jobs may be fine.
		return Verdict{Status: c.Status, RestartAgent: true, Reason: fmt.Sprintf("the agent does not answer: %v", o.AgentErr)}
	case o.Agent.State == agentapi.AgentAutostopping:
		return Verdict{Status: api.ClusterAutostopping, Reason: "idle long enough: it is stopping itself"}
	}
	return Verdict{Status: api.ClusterUp, RestartAgent: o.Silent > 0, Reason: "all machines run and the agent answers"}
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}
