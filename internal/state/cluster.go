package state

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
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
	Machine    cloud.MachineSpec
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
	Holder       Holder
	Notes        ClusterNotes
	LastEvent    string // reason of the latest STATUS_CHANGE event; read from the events, not saved
}

// Machines is how many machines the cluster has when all of them are there, each with a rank:
// its nodes, or the hosts of those if they are TPU slices.
func (c *Cluster) Machines() int { return c.Offer.Machines(c.NumNodes) }

// Holder is what a cluster belongs to besides its user: it alone decides what runs
// there and when the cluster ends. The zero Holder is nobody.
type Holder struct {
	Kind HolderKind
	ID   string
}

// HolderKind is a kind of things that hold clusters.
type HolderKind string

const (
	HeldByJob     HolderKind = "job"     // a managed job; ID is its number
	HeldByService HolderKind = "service" // a service; ID is its name and hash
	HeldByPool    HolderKind = "pool"    // a pool of workers; ID is its name and hash
)

// JobHolder is a managed job as a holder of clusters.
func JobHolder(id int) Holder { return Holder{HeldByJob, strconv.Itoa(id)} }

// Name is what users call the holder.
func (h Holder) Name() string {
	name, _, _ := strings.Cut(h.ID, "/")
	return name
}

// Held reports whether the cluster belongs to something other than its user.
func (c *Cluster) Held() bool { return c.Holder != Holder{} }

// RunAs is the Unix account of its owner's that the cluster's nodes run as; "": they run
// as the account that sky has on them.
func (c *Cluster) RunAs() string {
	for _, n := range c.Nodes {
		if n.Reach.RunAs != "" {
			return n.Reach.RunAs
		}
	}
	return ""
}

// MayRun refuses to run something for a user who logged in, an administrator too, as the
// Unix account of somebody else.
func (c *Cluster) MayRun(user string) error {
	account := c.RunAs()
	if account == "" || user == c.UserHash {
		return nil
	}
	return &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("What runs on cluster %q runs as the Unix account %s of its owner, so only %s may run something there.", c.Name, account, c.UserName),
		Hint: "Launch a cluster of your own."}
}

// ClusterNotes is what servers write down about a cluster for their own later
// work. Clients are never shown it.
type ClusterNotes struct {
	LaunchedBy    string `json:"launched_by_request,omitempty"`   // the request that made the record
	BroughtUpBy   string `json:"brought_up_by_request,omitempty"` // the request that last got the machines: its log shows how
	ServerMachine string `json:"server_machine,omitempty"`        // where it was made, if several servers share the database
	Registry      string `json:"registry,omitempty"`              // that the task logged in to: later nodes have images of the same names
	// Container is the image in which everything runs on the nodes. Where nodes are
	// containers themselves it is "".
	Container string `json:"container_image,omitempty"`
	// SwitchingOff is why the server is switching the machines off, as they are idle; "": it is
	// not. It stays until they are off.
	SwitchingOff string `json:"switching_off,omitempty"`
	// GivingBack is why the machines are being given back; "": they are not. A record
	// that has it goes as soon as they are proven gone, by whoever observes it next,
	// and nothing is launched on it any more.
	GivingBack string `json:"giving_back,omitempty"`
	// AutostopBefore is the autostop, as JSON, that a cluster had when it was switched
	// on again: its agent begins without one. It stays until one is set, so that a
	// start that fails or that a crash cuts off loses nothing.
	AutostopBefore string `json:"autostop_before_start,omitempty"`
	// LastContact is when the head's agent was last in contact, in Unix milliseconds.
	LastContact float64 `json:"heard_at,omitempty"`
	Adopted     bool    `json:"adopted,omitempty"` // by sky sweep --adopt
	// Mounts are the buckets that are mounted on its nodes. It holds no credentials.
	Mounts []agentapi.MountSpec `json:"mounts,omitempty"`
	// Credentials is the hash of the server's credentials that its nodes have, "none" while
	// they get the first; "": they have none.
	Credentials string `json:"lent_credentials,omitempty"`
	// Unsaved are, by rank, files of mounts that their buckets do not have yet.
	Unsaved map[int]Unsaved `json:"unsaved,omitempty"`
}

// Unsaved says what of a node's mounts is not in the buckets yet.
type Unsaved struct {
	Files int      `json:"files"`
	Bytes int64    `json:"bytes"`
	Names []string `json:"names,omitempty"` // some of them
	Error string   `json:"error,omitempty"` // why they are not stored
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
