package state

import (
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
)

// Service is the record of a service, or of a pool of workers.
type Service struct {
	Name      string
	Hash      string // one incarnation of the name
	RequestID string // that made it: the same request never makes two
	Version   int64  // of the row: it grows with every change
	Epoch     int64  // of the lease whose holder may save it

	Kind               ServiceKind
	UserHash, UserName string
	Workspace          string
	CreatedAt          time.Time
	ReadyAt            time.Time // when a replica was first ready; zero: not yet
	Port               int       // on which balancers listen; 0: none
	Latest             int       // number of the newest version
	DownAsked          bool      // it is to end
	Purge              bool      // … even where it cannot be proven that nothing is left
	Asked              ServiceAsked

	Status api.ServiceStatus
	State  []byte       // what decisions remember, JSON
	Shown  ServiceShown // for people
}

// ServiceAsked is what a user wants of the version that is about to take over.
type ServiceAsked string

const (
	AskedNoChange ServiceAsked = ""
	AskedPromote  ServiceAsked = "promote"
	AskedRollback ServiceAsked = "rollback"
)

// ServiceKind says what replicas are held for.
type ServiceKind string

const (
	KindService ServiceKind = "service" // replicas behind an endpoint
	KindPool    ServiceKind = "pool"    // workers for managed jobs
)

// ServiceShown is what was last decided, for those who look.
type ServiceShown struct {
	Target int      `json:"target,omitempty"` // replicas that the load asks for
	Final  int      `json:"final,omitempty"`  // with those beyond it
	Why    []string `json:"why,omitempty"`    // it is not where it should be
	Active []int    `json:"active,omitempty"` // versions that take requests
	Policy string   `json:"policy,omitempty"` // how it scales
	Wants  string   `json:"wants,omitempty"`  // resources of a replica
	Spread string   `json:"spread,omitempty"` // how requests are spread
	TLS    bool     `json:"tls,omitempty"`
}

// ServiceVersion is what a service was asked to be.
type ServiceVersion struct {
	Hash       string // of the service
	Number     int
	RequestID  string // that asked for it
	Mode       string // how it takes over: rolling, blue_green, canary
	Entrypoint string // command line
	CreatedAt  time.Time
	Files      []string // folders of files that its replicas need
	Task       []byte   // as it travels; not part of lists
	Config     []byte   // the client's configuration; not part of lists
}

// id is the key of a version's row.
func (v *ServiceVersion) id() string { return v.Hash + "/" + strconv.Itoa(v.Number) }

// ServiceReplica is the row of a replica.
type ServiceReplica struct {
	Hash        string // of the service
	ID          int    // never used again
	State       []byte // what decisions know of it, JSON
	Probes      []byte // what probes have said, JSON
	Progress    []byte // what a launch that was cut off must know, JSON
	ClusterName string
	ClusterHash string // "": not launched yet
	ClusterJob  int
	Endpoint    string       // host:port; "": not known yet
	Asked       ReplicaAsked // what a user wants of it
}

// ReplicaAsked is what a user wants of a replica.
type ReplicaAsked string

const (
	AskedNothing ReplicaAsked = ""
	AskedEnd     ReplicaAsked = "end"
	AskedPurge   ReplicaAsked = "purge" // forget it even if nobody knows whether it is gone
)

// ServiceAdopted is a service as it is stored, with its versions and replicas in
// order of their numbers.
type ServiceAdopted struct {
	Service  *Service
	Versions []*ServiceVersion
	Replicas []*ServiceReplica
}

// Holder is the service or pool as a holder of clusters.
func (s *Service) Holder() Holder {
	kind := HeldByService
	if s.Kind == KindPool {
		kind = HeldByPool
	}
	return Holder{kind, s.Name + "/" + s.Hash}
}

// BalancerReport is the last report of a load balancer, for the servers that did not
// get it.
type BalancerReport struct {
	Balancer string
	Server   string // that got it
	At       time.Time
	Report   []byte // JSON
}
