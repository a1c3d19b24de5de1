// Package cloud is the seam between sky and the machines it rents.
//
// A [Provider] only translates: requests into API calls, refusals into this
// package's errors. Choosing a place, retrying and cleaning up happen once, in
// package provision; reaching the machines is package remote's business.
package cloud

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/registry"
)

// Place is somewhere machines can be rented. Empty parts mean "any" in a
// request and "not applicable" in a fact.
type Place struct {
	Cloud  string `json:"cloud"` // a provider's Name
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

// String is the place as people write it, so that of own machines it names their pool.
func (p Place) String() string {
	s := p.Cloud
	if p.Region != "" {
		s += "/" + facts.InPlace(p.Cloud, p.Region)
	}
	if p.Zone != "" {
		s += "/" + p.Zone
	}
	return s
}

// Offer is something that can be rented: so many of which machine, where, for
// how much.
type Offer struct {
	Place
	InstanceType string             `json:"instance_type"`
	CPUs         float64            `json:"cpus"`
	MemoryGiB    float64            `json:"memory_gib"`
	Accelerators map[string]float64 `json:"accelerators,omitempty"`
	Spot         bool               `json:"use_spot"`
	HourlyPrice  float64            `json:"hourly_price"` // $ per node
	// Hosts is how many machines a node of the cluster's user is, as of a TPU slice: each is
	// a [Node] with a rank of its own, those of a slice one after the other; 0: one.
	Hosts int `json:"hosts,omitempty"`
	// MaxHourlyCost is what a node may cost an hour by the task that it is rented for, in
	// dollars, also while it exists, where the cloud takes a bid or a limit; 0: anything.
	MaxHourlyCost float64 `json:"max_hourly_cost,omitempty"`
	// PaidShare is which part of the cluster's nodes fits into reservations of the account, as a
	// plan counted them: those nodes cost nothing more. 1: all of them.
	PaidShare float64 `json:"-"`
}

// ClusterID names a cluster to a provider. Everything a provider creates
// carries these as tags.
type ClusterID struct {
	Installation string // which sky installation owns it
	Name         string // the name on the cloud, unique in the installation
	Hash         string // one incarnation of the name
}

// LaunchSpec asks for a cluster.
type LaunchSpec struct {
	ID    ClusterID
	Offer Offer
	Nodes int
	Token string // idempotency token of this attempt
	// Resumed says that a process which died may have made calls for this cluster whose
	// answers nobody has heard.
	Resumed bool
	MachineSpec
	ImageID string // what nodes start from, of Images at the offer's place; "": the cloud's own
	Labels  map[string]string
	Ports   []string
	// Listens are the ports that the cluster will listen on, also those that are not to be
	// opened (Ports): nodes that share a machine must not share them.
	Listens       []string
	AuthorizedKey string // public ssh key for the login user, if the provider has sshd
	// DisplayName and User are for people who look at the cloud by other means.
	DisplayName, User string
	// UserID and Workspace say to whom the cluster belongs, for when its record is lost.
	UserID, Workspace string
	// EndGrace is how long a node that is taken back may go on, for what has to be
	// saved first, where the cloud can be told; 0: no longer than usual.
	EndGrace time.Duration
	// Login is to the registry of the image, where nodes are containers; nil: it
	// needs none. One that is not complete was given before, and Prepare kept it.
	Login *registry.Login
	// Volumes are mounted into every node. One that goes with the cluster
	// (Volume.Cluster is ID) is made by Prepare and removed by Terminate, like all
	// that Prepare makes; the others exist. Only a [Volumer] is asked for any.
	Volumes []VolumeMount
	// Settings are the cloud's section of the configuration as it holds in the
	// offer's place, for this task; what nobody set is absent.
	Settings map[string]any
}

// NodeState is what a provider knows of a machine.
type NodeState string

const (
	NodePending  NodeState = "pending"  // being created or started
	NodeRunning  NodeState = "running"  // exists and is on; says nothing of what runs on it
	NodeStopping NodeState = "stopping" //
	NodeStopped  NodeState = "stopped"  // off, disk kept
	NodeGone     NodeState = "gone"     // terminated or preempted; listed only as proof
)

// Node is one machine of a cluster.
type Node struct {
	ID         string    `json:"id"`
	Cluster    string    `json:"cluster"`      // ClusterID.Name
	Hash       string    `json:"cluster_hash"` // ClusterID.Hash
	Rank       int       `json:"rank"`         // stable order, 0 is the head
	State      NodeState `json:"state"`
	Place      Place     `json:"place"`
	InternalIP string    `json:"internal_ip"`
	ExternalIP string    `json:"external_ip"`
	Reach      Reach     `json:"reach"`
	Created    time.Time `json:"created"`
	Reason     string    `json:"reason,omitempty"` // why it is gone or stopped, in the cloud's words
	About      *About    `json:"-"`                // nil: the cloud tells no more
	Account    string    `json:"-"`                // of an [AccountLister], if another than the one in use
}

// Reach is how package remote gets to a node.
type Reach struct {
	Method string `json:"method"`         // "local", "ssh", "docker", "kubernetes", ReachNone
	Home   string `json:"home,omitempty"` // the node's home folder; "": the home of the user it is reached as
	Host   string `json:"host,omitempty"`
	Port   int    `json:"port,omitempty"`
	User   string `json:"user,omitempty"`
	// RunAs is the account that everything on the node runs as, by sudo, where that is
	// not User; ways to connect and forwarded connections stay User's.
	RunAs string `json:"run_as,omitempty"`
	// HostKey is the host's public key as in authorized_keys, when the cloud
	// tells it: no other may be trusted then.
	HostKey string `json:"host_key,omitempty"`
	// HostAlias is the name under which a host key is kept that was learnt on
	// first contact; "": the key is this node's and forgotten with it.
	HostAlias string `json:"host_alias,omitempty"`
	// IdentityFile is a private key file of the user's; "": the key whose public
	// half is LaunchSpec.AuthorizedKey.
	IdentityFile string `json:"identity_file,omitempty"`
	// OwnKeys says that the user's own ways to log in may be tried too: a
	// running ssh-agent, the keys in ~/.ssh, a password on file.
	OwnKeys      bool   `json:"own_keys,omitempty"`
	ProxyJump    string `json:"proxy_jump,omitempty"`    // [user@]host[:port], several with commas
	ProxyCommand string `json:"proxy_command,omitempty"` // as in ssh_config
	// Machine says how the agent itself can switch the node off, one of the
	// Machine constants; "": it cannot.
	Machine string `json:"machine,omitempty"`
	// Shell is the node's shell where it is not /bin/sh; the programs beside it are
	// the node's tools.
	Shell string `json:"shell,omitempty"`
	Agent string `json:"agent,omitempty"` // host:port of the node's agent; package remote fills it in
}

// HostAlias is the name under which the host key of one machine of one cluster is kept:
// all of a cluster's begin with its hash and a dot.
func HostAlias(hash, node string) string { return hash + "." + node }

// ReachNone is the Method of nodes that are records of an emulator and no
// machines: no agent is started on them and nothing runs there.
const ReachNone = "none"

// What Reach.Machine may say.
const (
	MachineFolder    = "folder"    // a folder on somebody's own machine: see package folder
	MachineContainer = "container" // its first process takes signals: see package docker
	MachinePowerOff  = "poweroff"  // it powers off, and its cloud makes of that what [OffSwitch] was told
	MachineMarksEnd  = "marks-end" // it powers off, and leaves [EndMark] if it is to end
)

// EndMark is a file that the agent of a machine leaves which powers off to end, and not
// to stop: a script that the cloud runs when the machine goes down sees to the rest.
const EndMark = "/run/sky-machine-ends"

// Provider rents machines on one cloud. Its methods may be called concurrently,
// and asking for what already holds is success.
type Provider interface {
	// Name is what users write after "infra:", such as "aws".
	Name() string
	// DisplayName is how tables show it, such as "AWS".
	DisplayName() string
	// Features says what the cloud cannot do, without any I/O.
	Features() Features
	// Check tries the local credentials; a refusal is an [*AuthError].
	Check(ctx context.Context) (Identity, error)
	// Offers lists what can be rented, when the provider knows that better
	// than a price catalog does; nil means the catalog is right.
	Offers(ctx context.Context) ([]Offer, error)
	// Prepare makes what a cluster needs besides machines: network, firewall,
	// key, role. Idempotent.
	Prepare(ctx context.Context, spec LaunchSpec) error
	// Launch makes spec.ID have spec.Nodes running nodes (each of Offer.Hosts machines), all
	// in spec.Offer.Place: stopped ones are resumed first, the rest is created.
	// Safe to call again after a crash at any point. On an error some nodes
	// may exist; the caller terminates.
	Launch(ctx context.Context, spec LaunchSpec) ([]Node, error)
	// Nodes lists what exists now, in rank order; an unknown cluster has none.
	// A zero Name lists everything the installation ever created.
	Nodes(ctx context.Context, id ClusterID) ([]Node, error)
	// Terminate removes the nodes, waits until they stop billing, and removes
	// what Prepare made.
	Terminate(ctx context.Context, id ClusterID) error
}

// Stopper is a provider whose machines can be off and keep their disks.
type Stopper interface {
	Stop(ctx context.Context, id ClusterID) error
}

// Identity is whose account the credentials are, strictest name first.
type Identity []string

// Features lists what a cloud lacks: the reason, by feature. An absent entry
// means it can.
type Features struct {
	Lacks         map[Feature]string
	MaxNameLength int // of a cluster's name on this cloud; 0: unlimited
	// OnServer means that the nodes are on the machine that sky runs on, and no
	// other machine reaches them.
	OnServer bool
	// Containers means that the nodes are containers, of the image that a task
	// names (LaunchSpec.ImageID is docker:IMAGE then). Elsewhere what runs on a
	// machine is put into a container, and ImageID is the machine's.
	Containers bool
	// PortsMade means that opening ports makes something beside the nodes, such as a
	// cloud's load balancer, and that who is in the nodes' network reaches their ports
	// without.
	PortsMade bool
	// PriceStays means that a machine which was stopped starts at the price, or the bid, that
	// it was rented at, whatever others cost by then.
	PriceStays bool
}

// Feature is something a task may need of a cloud.
type Feature = facts.Feature

const (
	FeatureStop      = facts.Stop
	FeatureMultiNode = facts.MultiNode
	FeatureSpot      = facts.Spot
	FeatureImage     = facts.Image
	FeatureDocker    = facts.Docker
	FeatureDiskTier  = facts.DiskTier
	FeatureNetTier   = facts.NetTier
	FeaturePorts     = facts.Ports
	FeatureStorage   = facts.Storage
	FeatureAutostop  = facts.Autostop
	FeatureAutodown  = facts.Autodown
	FeatureLocalDisk = facts.LocalDisk
	FeatureCloneDisk = facts.CloneDisk
)

// As finds the optional interface T on a provider, looking through wrappers
// that have an Unwrap method.
func As[T any](p Provider) (T, bool) {
	for p != nil {
		if t, ok := p.(T); ok {
			return t, true
		}
		u, ok := p.(interface{ Unwrap() Provider })
		if !ok {
			break
		}
		p = u.Unwrap()
	}
	var zero T
	return zero, false
}

// Registry is the set of providers a program has, in the order "sky check"
// shows them.
type Registry struct{ providers []Provider }

// NewRegistry returns a registry of the given providers.
func NewRegistry(p ...Provider) *Registry { return &Registry{providers: p} }

// All returns the providers in order.
func (r *Registry) All() []Provider { return r.providers }

// Get returns the provider of that name.
func (r *Registry) Get(name string) (Provider, bool) {
	for _, p := range r.providers {
		if p.Name() == name {
			return p, true
		}
	}
	return nil, false
}
