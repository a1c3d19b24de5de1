package balancer

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/policy"
	"github.com/skypilot-go/sky/internal/serve/balancer/upstream"
)

// A replica is one that is in the table, or was and still has requests. Its fields
// are guarded by its service's lock, except where they say otherwise.
type replica struct {
	ID                int // does not change, as the following four
	Address, Protocol string
	Network           string
	dial              dialFunc
	row               balancerapi.Replica
	capacity          float64 // by its accelerator
	readySince        time.Time
	inFlight          int
	health            health
	reported          *policy.Reported
	mute              bool      // it was asked for metrics, and showed none
	counts            counters  // atomic
	version           *counters // atomic; of all replicas of the version

	pool     *upstream.Pool
	h2       *http.Transport // made when it is first used
	h2Once   sync.Once
	mu       sync.Mutex // guards open
	open     map[io.Closer]struct{}
	cut      bool
	cutTimer *time.Timer
}

// dialTimeout bounds how long connecting takes.
const dialTimeout = 5 * time.Second

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func newReplica(r balancerapi.Replica, keep time.Duration, dial dialFunc) *replica {
	return &replica{ID: r.ID, Address: r.Address, Protocol: r.Protocol, Network: r.Network, dial: dial, pool: upstream.NewPool(r.Address, keep, dial), open: map[io.Closer]struct{}{}}
}

// track remembers what must be closed to end a request. It reports false if the
// replica's requests have been ended already.
func (r *replica) track(c io.Closer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return false
	}
	r.open[c] = struct{}{}
	return true
}

func (r *replica) untrack(c io.Closer) {
	r.mu.Lock()
	delete(r.open, c)
	r.mu.Unlock()
}

// remove ends the replica's unused connections, and its requests after a while.
func (r *replica) remove(drain time.Duration) {
	r.pool.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cutTimer == nil && !r.cut {
		r.cutTimer = time.AfterFunc(drain, r.end)
	}
}

// end ends all requests of the replica.
func (r *replica) end() {
	r.mu.Lock()
	r.cut = true
	if r.cutTimer != nil {
		r.cutTimer.Stop()
	}
	open := make([]io.Closer, 0, len(r.open))
	for c := range r.open {
		open = append(open, c)
	}
	r.mu.Unlock()
	r.pool.Close()
	for _, c := range open {
		c.Close()
	}
	if t := r.transportIfAny(); t != nil {
		t.CloseIdleConnections()
	}
}

func (r *replica) transportIfAny() *http.Transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.h2
}

// transport speaks HTTP/2 without TLS with the replica.
func (r *replica) transport() *http.Transport {
	r.h2Once.Do(func() {
		t := &http.Transport{DialContext: r.dial, DisableCompression: true, Protocols: new(http.Protocols), IdleConnTimeout: 90 * time.Second}
		t.Protocols.SetUnencryptedHTTP2(true)
		r.mu.Lock()
		r.h2 = t
		r.mu.Unlock()
	})
	return r.h2
}

// candidate is what a policy knows of the replica.
func (r *replica) candidate(now time.Time, slowStart time.Duration, instanceAware bool) policy.Candidate {
	speed := r.row.Weight
	if speed == 0 {
		speed = 1
	}
	if instanceAware {
		speed *= r.capacity
	}
	if age := now.Sub(r.readySince); age < slowStart {
		speed *= max(0.1, float64(age)/float64(slowStart))
	}
	return policy.Candidate{ID: r.ID, Load: policy.Load(float64(r.inFlight), r.reported), Speed: speed}
}
