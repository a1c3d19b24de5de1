package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

func TestDecide(t *testing.T) {
	const (
		on   = cloud.NodeRunning
		off  = cloud.NodeStopped
		new  = cloud.NodePending
		gone = cloud.NodeGone
	)
	answering := &agentapi.Info{State: agentapi.AgentRunning}
	leaving := &agentapi.Info{State: agentapi.AgentAutostopping}
	boom := errors.New("boom")
	launched := time.Unix(1_000_000, 0)
	for _, tt := range []struct {
		name   string
		status api.ClusterStatus
		everUp bool
		nodes  []cloud.NodeState
		err    error
		agent  *agentapi.Info
		after  time.Duration
		want   Verdict // Reason is not compared
	}{
		{"all run, agent answers", api.ClusterInit, true, []cloud.NodeState{on, on}, nil, answering, time.Hour, Verdict{Status: api.ClusterUp}},
		{"the agent is stopping it", api.ClusterUp, true, []cloud.NodeState{on, on}, nil, leaving, time.Hour, Verdict{Status: api.ClusterAutostopping}},
		{"silence changes nothing", api.ClusterUp, true, []cloud.NodeState{on, on}, nil, nil, time.Hour, Verdict{Status: api.ClusterUp, RestartAgent: true}},
		{"silence before it was ever up", api.ClusterInit, false, []cloud.NodeState{on, on}, nil, nil, time.Hour, Verdict{Status: api.ClusterInit}},
		{"silence of one that failed to restart", api.ClusterInit, true, []cloud.NodeState{on, on}, nil, nil, time.Hour, Verdict{Status: api.ClusterInit, RestartAgent: true}},
		{"all off", api.ClusterUp, true, []cloud.NodeState{off, off}, nil, nil, time.Hour, Verdict{Status: api.ClusterStopped}},
		{"one off", api.ClusterUp, true, []cloud.NodeState{on, off}, nil, answering, time.Hour, Verdict{Status: api.ClusterInit}},
		{"one missing", api.ClusterUp, true, []cloud.NodeState{on}, nil, answering, time.Hour, Verdict{Status: api.ClusterInit}},
		{"one still coming", api.ClusterUp, true, []cloud.NodeState{on, new}, nil, answering, time.Hour, Verdict{Status: api.ClusterInit}},
		{"nothing left", api.ClusterUp, true, nil, nil, nil, time.Hour, Verdict{Gone: true}},
		{"proof that all are gone", api.ClusterUp, true, []cloud.NodeState{gone, gone}, nil, nil, time.Hour, Verdict{Gone: true}},
		{"nothing yet", api.ClusterInit, false, nil, nil, nil, 10 * time.Second, Verdict{Status: api.ClusterInit}},
		{"never came", api.ClusterInit, false, nil, nil, nil, 2 * time.Minute, Verdict{Gone: true}},
		{"too many", api.ClusterUp, true, []cloud.NodeState{on, on, on}, nil, answering, time.Hour, Verdict{Status: api.ClusterUp, Unknown: true}},
		{"the provider cannot tell", api.ClusterUp, true, nil, boom, nil, time.Hour, Verdict{Status: api.ClusterUp, Unknown: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Observation{NodesErr: tt.err, Agent: tt.agent}
			if tt.agent == nil {
				o.AgentErr = boom
			}
			for _, s := range tt.nodes {
				o.Nodes = append(o.Nodes, cloud.Node{State: s})
			}
			c := &state.Cluster{Status: tt.status, EverUp: tt.everUp, NumNodes: 2, LaunchedAt: launched}
			got := Decide(c, o, launched.Add(tt.after))
			got.Reason = ""
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A cluster of TPU slices is whole if all their machines are there.
func TestDecideCountsTheMachinesOfSlices(t *testing.T) {
	nodes := make([]cloud.Node, 8)
	for i := range nodes {
		nodes[i] = cloud.Node{Rank: i, State: cloud.NodeRunning}
	}
	c := &state.Cluster{Status: api.ClusterUp, EverUp: true, NumNodes: 2, Offer: cloud.Offer{Hosts: 4}}
	for n, want := range map[int]Verdict{8: {Status: api.ClusterUp}, 4: {Status: api.ClusterInit}, 7: {Status: api.ClusterInit}, 2: {Status: api.ClusterInit}, 0: {Gone: true}} {
		got := Decide(c, Observation{Nodes: nodes[:n], Agent: &agentapi.Info{State: agentapi.AgentRunning}}, time.Now())
		if got.Reason = ""; got != want {
			t.Errorf("%d machines of 8: %+v, want %+v", n, got, want)
		}
	}
}

func TestWhatAnAutodownLeavesIsGivenBack(t *testing.T) {
	node := func(rank int, s cloud.NodeState) cloud.Node { return cloud.Node{Rank: rank, State: s} }
	leaving := &agentapi.Info{State: agentapi.AgentAutostopping}
	for _, tt := range []struct {
		name   string
		status api.ClusterStatus
		down   bool
		nodes  []cloud.Node
		agent  *agentapi.Info
		want   bool
	}{
		{"a worker stayed", api.ClusterAutostopping, true, []cloud.Node{node(0, cloud.NodeGone), node(1, cloud.NodeRunning)}, nil, true},
		{"a worker stayed and the head is not listed", api.ClusterAutostopping, true, []cloud.Node{node(1, cloud.NodeRunning)}, nil, true},
		{"all are off instead of gone", api.ClusterAutostopping, true, []cloud.Node{node(0, cloud.NodeStopped), node(1, cloud.NodeStopped)}, nil, true},
		{"the head runs its hooks, and a worker was preempted", api.ClusterAutostopping, true, []cloud.Node{node(0, cloud.NodeRunning), node(1, cloud.NodeGone)}, leaving, false},
		{"the head is silent", api.ClusterAutostopping, true, []cloud.Node{node(0, cloud.NodeRunning)}, nil, false},
		{"it was to stop only", api.ClusterAutostopping, false, []cloud.Node{node(0, cloud.NodeStopped), node(1, cloud.NodeStopped)}, nil, false},
		{"the head was preempted before", api.ClusterUp, true, []cloud.Node{node(1, cloud.NodeRunning)}, nil, false},
	} {
		c := &state.Cluster{Status: tt.status, AutostopDown: tt.down, EverUp: true, NumNodes: 2}
		if v := Decide(c, Observation{Nodes: tt.nodes, Agent: tt.agent, AgentErr: errors.New("silent")}, time.Now()); v.Gone != tt.want {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}

// An agent that stops its cluster ends before its machine does: whoever looks then
// does not start it again, and waits for nothing.
func TestAnAgentThatStopsItsClusterIsNotStartedAgain(t *testing.T) {
	heard := time.Now()
	for silent, restart := range map[time.Duration]bool{0: false, stoppingSilence - 1: false, stoppingSilence: true} {
		c := &state.Cluster{Status: api.ClusterAutostopping, EverUp: true, NumNodes: 1}
		noteHeard(c, heard)
		o := Observation{Nodes: []cloud.Node{{State: cloud.NodeRunning}}, AgentErr: errors.New("refused")}
		if v := Decide(c, o, heardAt(c).Add(silent)); v.Status != api.ClusterAutostopping || v.RestartAgent != restart {
			t.Errorf("silent for %v: %+v", silent, v)
		}
	}
}

func TestASilentWorkerIsLookedAfter(t *testing.T) {
	c := &state.Cluster{Status: api.ClusterUp, EverUp: true, NumNodes: 1}
	o := Observation{Nodes: []cloud.Node{{State: cloud.NodeRunning}}, Agent: &agentapi.Info{State: agentapi.AgentRunning}, Silent: 1}
	if v := Decide(c, o, time.Now()); v.Status != api.ClusterUp || !v.RestartAgent {
		t.Errorf("%+v", v)
	}
}

func TestExpandPorts(t *testing.T) {
	got := expandPorts([]string{"80", "8000-8002"})
	want := []string{"80", "8000", "8001", "8002"}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestAnAgentThatAnswersIsThere: one wrong list of a provider ends nothing.
func TestAnAgentThatAnswersIsThere(t *testing.T) {
	node := func(rank int, s cloud.NodeState) cloud.Node { return cloud.Node{Rank: rank, State: s} }
	c := &state.Cluster{Status: api.ClusterUp, EverUp: true, NumNodes: 2, Nodes: []cloud.Node{{Reach: cloud.Reach{Agent: "a:1"}}, {Reach: cloud.Reach{Agent: "b:1"}}}}
	for _, tt := range []struct {
		name    string
		nodes   []cloud.Node
		missing []int
		unknown bool // if those that are missing answer
	}{
		{"nothing is listed", nil, []int{0, 1}, true},
		{"all are called gone", []cloud.Node{node(0, cloud.NodeGone), node(1, cloud.NodeGone)}, []int{0, 1}, true},
		{"one is off", []cloud.Node{node(0, cloud.NodeRunning), node(1, cloud.NodeStopped)}, []int{1}, true},
		{"one is not listed", []cloud.Node{node(1, cloud.NodeRunning)}, []int{0}, true},
		{"all run", []cloud.Node{node(0, cloud.NodeRunning), node(1, cloud.NodeRunning)}, nil, false},
		{"one is being stopped", []cloud.Node{node(0, cloud.NodeRunning), node(1, cloud.NodeStopping)}, nil, false},
	} {
		o := Observation{Nodes: tt.nodes, Agent: &agentapi.Info{State: agentapi.AgentRunning}}
		o.Answered = missing(c, &o)
		if !slices.Equal(o.Answered, tt.missing) {
			t.Errorf("%s: %v are missing, want %v", tt.name, o.Answered, tt.missing)
		}
		if got := Decide(c, o, time.Now()); got.Unknown != tt.unknown || got.Gone {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	if got := missing(c, &Observation{NodesErr: errors.New("boom")}); got != nil {
		t.Errorf("a provider that cannot tell: %v are missing", got)
	}
}

// TestRecordsNeedNoAgent: what an emulator calls running is up, although
// nothing answers there.
func TestRecordsNeedNoAgent(t *testing.T) {
	record := cloud.Node{State: cloud.NodeRunning, Reach: cloud.Reach{Method: cloud.ReachNone}}
	for _, status := range []api.ClusterStatus{api.ClusterInit, api.ClusterUp, api.ClusterStopped} {
		c := &state.Cluster{Status: status, NumNodes: 1, Nodes: []cloud.Node{record}}
		if v := Decide(c, Observation{Nodes: c.Nodes}, time.Now()); v.Status != api.ClusterUp || v.RestartAgent {
			t.Errorf("%s: %+v", status, v)
		}
	}
}
