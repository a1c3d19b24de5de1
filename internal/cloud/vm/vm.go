// Package vm is the provider of clouds that rent machines which are reached with
// ssh. It looks, decides and acts: lists the machines of a cluster, decides what
// brings it to what was asked for, and does that, until it holds. Ranks, waits,
// lists that lack what was just made, lost answers and repeated launches are
// handled here, once. A cloud brings a [Driver], which makes its calls and reads
// its words.
//
// A cloud's provider embeds [Provider], or [StopProvider] if its machines can be
// switched off, and adds what only it has.
package vm

import (
	"context"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// State is what a machine is doing.
type State int

const (
	Unknown  State = iota // a word that the driver does not know: proves nothing
	Pending               // being made or switched on
	Running               // on
	Stopping              // being switched off; its disk stays
	Stopped               // off
	Ending                // being removed
	Ended                 // removed; listed only as a proof
)

// exists reports whether the machine is there, on or off.
func (s State) exists() bool { return s != Ending && s != Ended }

// node is the state in the words of package cloud.
func (s State) node() cloud.NodeState {
	switch s {
	case Pending:
		return cloud.NodePending
	case Running:
		return cloud.NodeRunning
	case Stopping:
		return cloud.NodeStopping
	case Stopped:
		return cloud.NodeStopped
	}
	return cloud.NodeGone
}

// Machine is what a cloud says of a machine that carries our tags.
type Machine struct {
	ID string
	// Key is what stays the same when the machine is switched off and on, where ID
	// does not; "": ID does.
	Key          string
	Region, Zone string
	ZoneID       string // another name of the zone that users may write; "": there is none
	State        State
	RawState     string // the state in the cloud's own word
	Reason       string // why it is in this state, in the cloud's words; "": no news
	Reclaimed    bool   // nobody asked for its end: the cloud took it back, or lost it
	// Failure is why it will never run, in the words of package cloud: what a cloud
	// finds out only after it said yes, as a quota or a broken image.
	Failure   error
	Type      string
	Spot      bool
	Tags      map[string]string // those of package cloud, and more
	PrivateIP string
	PublicIP  string
	Created   time.Time
	Order     int // among those that one call made
	Reach     cloud.Reach
	Ports     map[int]string // where its ports are reached, as host:port, if not at PublicIP
	// Hosts are the machines that it is made of, each with its own addresses, where one call
	// makes several that live and die together, as those of a TPU slice; none: it is one machine,
	// at PrivateIP and PublicIP. Every machine of a cluster has as many.
	Hosts  []Host
	Detail any // the driver's own

	rank int // by its tag, or given by us; -1: none
}

// Host is one machine of several that are made and ended as one.
type Host struct {
	PrivateIP, PublicIP string
	Reach               cloud.Reach
}

// hosts are the machines that m is.
func (m *Machine) hosts() []Host {
	if len(m.Hosts) > 0 {
		return m.Hosts
	}
	return []Host{{m.PrivateIP, m.PublicIP, m.Reach}}
}

// hostID is what a host of m is known by: the first has the name of m.
func (m *Machine) hostID(host int) string {
	if host == 0 {
		return m.key()
	}
	return m.key() + "-w" + strconv.Itoa(host)
}

// ListScope says where to look for a cluster's machines.
type ListScope struct {
	Region string // "": wherever they may be
	// Exhaustive asks for every machine there is: what a driver remembers of where the
	// cluster was is not enough, since what is not found goes on costing money.
	Exhaustive bool
}

// Driver makes the calls of one cloud. Its errors are the cloud's own; Refusal
// says them in the words of package cloud. Its methods may be called concurrently.
type Driver interface {
	// List lists the machines with the tags of id, ended ones too if the cloud
	// still knows them.
	List(ctx context.Context, id cloud.ClusterID, where ListScope) ([]Machine, error)
	// Create asks for machines of the ranks and returns the ids (or keys) of those that
	// it got, with an error too. Each call is safe to repeat, unless Options.NoTokens
	// says otherwise: the same token never makes two machines of a rank.
	Create(ctx context.Context, l *Launch, ranks []int) (ids []string, err error)
	// Delete begins to remove machines of one cluster.
	Delete(ctx context.Context, id cloud.ClusterID, machines []Machine) error
	// Connect makes what the machines of a cluster need besides themselves: network,
	// firewall, key.
	Connect(ctx context.Context, spec cloud.LaunchSpec) error
	// Disconnect removes what Connect made and returns what cannot go yet, because
	// machines or the cloud still use it. What was lately made may be unknown to the
	// cloud for a while: it counts as left, unless settled says that it was waited
	// for.
	Disconnect(ctx context.Context, id cloud.ClusterID, settled bool) (left []string, err error)
	// Refusal is the meaning of an error of a call about a place. It is not asked
	// about errors of package cloud, which a driver may return as well.
	Refusal(ctx context.Context, at cloud.Place, err error) error
	// Kind says what such an error says of the thing that the call was about.
	Kind(err error) Kind
}

// Switch is a driver whose machines can be off and keep their disks.
type Switch interface {
	Start(ctx context.Context, spec cloud.LaunchSpec, machines []Machine) error
	Stop(ctx context.Context, id cloud.ClusterID, machines []Machine) error
}

// Ranker is a driver whose machines get their ranks after they were made, as where
// one call makes several.
type Ranker interface {
	// WriteRank tags a machine. A machine that is unknown or gone is no error.
	WriteRank(ctx context.Context, spec cloud.LaunchSpec, m Machine, rank int) error
}

// Kind is what an error of a call says of the thing that it was about.
type Kind int

const (
	Refused Kind = iota // the cloud said no, and has done nothing
	Lost                // no answer, or a broken one: the call may have had its effect
	Changed             // the thing changed since it was looked at: look again
	Missing             // Changed, and the cloud does not know it: it is gone, or not known yet; of Create, what it needs
	Busy                // the thing is needed by another: later
)

// changed reports whether looking again tells more than the error.
func (k Kind) changed() bool { return k == Changed || k == Missing }

// Options are what the clouds differ in, besides their calls.
type Options struct {
	Cloud       string // its name, as in cloud.Place
	DisplayName string
	// Valid refuses names and requirements that the cloud can never have.
	Valid func(spec cloud.LaunchSpec) error
	// EndingHolds says that a machine that is ending still costs money or holds the
	// name of its rank: its end is waited for.
	EndingHolds bool
	// Settle is after what time lists are believed to have everything; 0: a minute.
	Settle time.Duration
	// Limits are how long a machine may be in a state, by the cloud's own word for it,
	// before it counts as one that is not to be had. States without one may last as long
	// as the launch.
	Limits map[string]time.Duration
	// NoTokens says that calls of Create are not safe to repeat: after one whose answer
	// was lost nothing is created until lists can be believed.
	NoTokens bool
	// Timeout is how long machines may take to run or to end; Poll is the time
	// between looks, FirstPoll before the second one.
	Timeout, Poll, FirstPoll time.Duration
	// Patience is how long machines of a type may take to run; nil: Timeout.
	Patience func(instanceType string) time.Duration
	// Queues is how long a launch may wait in a queue of the cloud, besides the usual time; nil:
	// there is none.
	Queues func(spec cloud.LaunchSpec) time.Duration
	// EachTakes is what the cloud's limit of calls costs for every machine of a launch.
	EachTakes time.Duration
	// PortsLater says why ports cannot be opened after a launch; for [PortProvider].
	PortsLater string
	// SlowToEnd is how many times Timeout what is stopped, or has to be free before
	// it can be removed, may take; 0: once.
	SlowToEnd time.Duration
}

// LimitEach are Limits that are the same for several states.
func LimitEach(limit time.Duration, states ...string) map[string]time.Duration {
	limits := map[string]time.Duration{}
	for _, s := range states {
		limits[s] = limit
	}
	return limits
}

// Provider is the part of a provider that is the same for every cloud of
// machines.
type Provider struct {
	d      Driver
	o      Options
	turns  cloud.KeyedLock
	recent Recent
}

// New returns the provider over a driver. It does no I/O.
func New(d Driver, o Options) *Provider {
	if o.FirstPoll == 0 {
		o.FirstPoll = o.Poll
	}
	if o.SlowToEnd == 0 {
		o.SlowToEnd = 1
	}
	if o.Patience == nil {
		o.Patience = func(string) time.Duration { return o.Timeout }
	}
	if o.Queues == nil {
		o.Queues = func(cloud.LaunchSpec) time.Duration { return 0 }
	}
	if o.Settle == 0 {
		o.Settle = time.Minute
	}
	return &Provider{d: d, o: o, recent: Recent{settle: o.Settle}}
}

// Recent is what was lately made for clusters.
func (p *Provider) Recent() *Recent { return &p.recent }

// Take waits until no other call of this process changes the cluster.
func (p *Provider) Take(ctx context.Context, id cloud.ClusterID) (done func(), err error) {
	return p.turns.Lock(ctx, id)
}

// LaunchLimit is how long a launch may take whose calls have to keep a pace, or that waits
// in a queue.
func (p *Provider) LaunchLimit(spec cloud.LaunchSpec) time.Duration {
	if p.o.EachTakes == 0 && p.o.Queues(spec) == 0 {
		return 0
	}
	return p.limit(spec)
}

func (p *Provider) limit(spec cloud.LaunchSpec) time.Duration {
	return p.o.Patience(spec.Offer.InstanceType) + time.Duration(spec.Nodes)*p.o.EachTakes + p.o.Queues(spec)
}

// Refused is the meaning of an error of the driver's API.
func (p *Provider) Refused(ctx context.Context, at cloud.Place, err error) error {
	return p.refusal(ctx, at, err)
}

// at is a place of this cloud.
func (p *Provider) at(region string) cloud.Place {
	return cloud.Place{Cloud: p.o.Cloud, Region: region}
}

// StopProvider is a Provider whose machines can be switched off. Its driver is a
// [Switch].
type StopProvider struct{ *Provider }

// NewStopping returns the provider over a driver that can switch machines off.
func NewStopping(d interface {
	Driver
	Switch
}, o Options) StopProvider {
	return StopProvider{New(d, o)}
}
