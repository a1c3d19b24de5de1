package state

import (
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
)

// LateEpoch is an epoch past all that agents have heard of, for a cluster whose
// record was lost for a while. Epochs begin at 0 and grow with each launch, so they
// stay behind the seconds since 1970.
func LateEpoch(now time.Time) int64 { return now.Unix() }

// Cluster is the record of one cluster. It is written before any machine is
// asked for, and holds all that is needed to find and end the machines.
type Cluster struct {
	Name        string
	Hash        string // one incarnation; machines carry it as a tag
	NameOnCloud string
	Status      api.ClusterStatus
	Epoch       int64 // fencing: grows with every (re)configuration of the agents
	Version     int64 // grows with every change; Save compares it

	UserHash, UserName string
	Workspace          string
	Owner              []string // cloud identity that launched it

	LaunchedAt      time.Time
	StatusUpdatedAt time.Time
	EverUp          bool

	Offer      cloud.Offer // copied when rented: history must not depend on today's catalog
	NumNodes   int
	Requested  string // display form of the requested resources
	Ports      []string
	Labels     map[string]string
	DiskGB     int
	Nodes      []cloud.Node // in stable order, head first
	Certs      Sealed       // PEM bundle of the cluster's authority and the server's key
	AgentBuild string       // build id of the installed agent
	SetupDone  bool

	AutostopMinutes int // -1: none
	AutostopDown    bool
	AutostopWaitFor api.WaitFor

	LastUse      string // command line
	CreationYAML string
	CreationCmd  string
	ConfigHash   string
	IsManaged    bool
	Metadata     map[string]any
	LastEvent    string // reason of the latest STATUS_CHANGE event; read from the events, not saved
}

// ClusterEvent is one line of a cluster's history.
type ClusterEvent struct {
	ClusterHash string
	ClusterName string
	Type        string // DEBUG, STATUS_CHANGE, TERMINAL, LAUNCH_PROGRESS
	Reason      string
	Starting    api.ClusterStatus
	Ending      api.ClusterStatus
	At          time.Time
}

// UsageInterval is a time during which a cluster's machines ran. End is zero
// while they still do.
type UsageInterval struct{ Start, End time.Time }

// ClusterHistory is what remains of a cluster.
type ClusterHistory struct {
	Hash, Name         string
	NumNodes           int
	Offer              cloud.Offer
	Requested          string
	Intervals          []UsageInterval
	UserHash, UserName string
	Workspace          string
	LastStatus         string // a ClusterStatus, or "TERMINATED"
	LastUse            string
	LaunchedAt         time.Time
}

// Attempt is one try to get an offer, kept from before the first call to the
// cloud until its machines are owned or proven gone. A row whose Outcome is ""
// after a crash is settled against the provider's Nodes.
type Attempt struct {
	Token       string
	ClusterHash string
	ClusterName string
	NameOnCloud string
	Offer       cloud.Offer
	Nodes       int
	StartedAt   time.Time
	EndedAt     time.Time
	AttemptEnd
}

// AttemptEnd is how an attempt came out, and what it taught.
type AttemptEnd struct {
	// Outcome is "" while it is under way, then "ok" or one of the words of
	// package provision.
	Outcome string
	// Message is why it failed, in the cloud's own words. An attempt that has a
	// message and no outcome is abandoned: what it left is being given back.
	Message string
	Steps   []Step
	// RuledOut is the part of the map that the refusal closed.
	RuledOut *cloud.Block
	// Credentials tells apart the credentials that were used, without holding
	// them; "": unknown.
	Credentials string
}

// Step is one call of an attempt and how long it took.
type Step struct {
	Name string        `json:"name"` // "prepare", "launch", "list", "terminate"
	Took time.Duration `json:"took"` // nanoseconds
	OK   bool          `json:"ok"`
}
