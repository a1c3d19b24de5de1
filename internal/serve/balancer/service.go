package balancer

import (
	"container/list"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/policy"
	"github.com/skypilot-go/sky/internal/serve/balancer/prefix"
)

// A service is one endpoint: its settings, its replicas and the requests that wait
// for one.
type service struct {
	b    *Balancer
	name string
	log  *slog.Logger
	conf atomic.Pointer[settings]
	ep   endpoint // guarded by Balancer.mu

	counts struct {
		refused  [len(reasonNames)]atomic.Int64
		retries  atomic.Int64
		ejected  atomic.Int64
		upgraded atomic.Int64 // WebSockets and others that are open now
	}

	mu       sync.Mutex
	replicas map[int]*replica
	ready    []*replica // of replicas, those that may get requests
	known    bool       // a table has been applied
	waiting  *list.List // of *waiter, the first first
	held     int64      // bytes of those that wait
	arrived  arrivals
	versions map[int]*counters
	turns    policy.Rotation
	tree     *prefix.Tree
	seq      uint64
	closed   bool
	open     map[io.Closer]struct{} // connections that are not the server's any more
	inFlight int
	idle     chan struct{} // closed when inFlight is 0 after the service was closed

	candidates []policy.Candidate // for pick, as are the following
	eligible   []*replica
	ids        []int
	matched    []int
}

// settings are a row of the table with its defaults.
type settings struct {
	balancerapi.Service
	policy     string
	bound      policy.Bound
	slowStart  time.Duration
	drain      time.Duration
	retryAfter time.Duration
	attempts   int
	eject      ejectRules
	queue      struct {
		requests int
		bytes    int64
		timeout  time.Duration
	}
	requestTimeout, idleTimeout, keepAlive time.Duration
}

func or[T ~int | ~int64 | ~float64 | ~string](v, unset T) T {
	if v == *new(T) {
		return unset
	}
	return v
}

func newSettings(s balancerapi.Service) *settings {
	c := &settings{Service: s, policy: or(s.Policy.Name, balancerapi.LeastLoad)}
	c.bound = policy.Bound{Factor: or(s.Policy.LoadFactor, 1.25), Slack: max(0, or(s.Policy.LoadSlack, 2))}
	c.slowStart = s.SlowStart.Or(10 * time.Second)
	c.drain = s.Drain.Or(120 * time.Second)
	c.retryAfter = s.RetryAfter.Or(5 * time.Second)
	c.attempts = max(1, or(s.Limits.Attempts, 3))
	c.eject = ejectRules{max(0, or(s.Eject.Failures, 5)), s.Eject.Base.Or(time.Second), s.Eject.Max.Or(time.Minute), or(s.Eject.Share, 0.5)}
	c.queue.requests, c.queue.bytes, c.queue.timeout = or(s.Queue.Requests, 1000), or(s.Queue.Bytes, 64<<20), s.Queue.Timeout.Or(10*time.Minute)
	c.requestTimeout, c.idleTimeout = s.Limits.RequestTimeout.Or(0), s.Limits.IdleTimeout.Or(0)
	c.keepAlive = s.Limits.KeepAlive.Or(4 * time.Second)
	return c
}

func newService(b *Balancer, name string) *service {
	return &service{b: b, name: name, log: b.opt.Logger.With("service", name), replicas: map[int]*replica{}, waiting: list.New(),
		versions: map[int]*counters{}, turns: policy.Rotation{}, open: map[io.Closer]struct{}{}, idle: make(chan struct{})}
}

// apply makes a row of the table what the service does from now on.
func (s *service) apply(row balancerapi.Service, now time.Time) {
	c := newSettings(row)
	s.mu.Lock()
	s.conf.Store(c)
	if c.policy != balancerapi.PrefixAware {
		s.tree = nil
	} else if s.tree == nil {
		s.tree = prefix.NewTree(or(c.Policy.PrefixBlocks, 20000))
	}
	var gone []*replica
	listed := map[int]bool{}
	s.ready = nil
	for _, r := range c.Replicas {
		listed[r.ID] = true
		have := s.replicas[r.ID]
		if have != nil && (have.Address != r.Address || have.Network != r.Network || have.Protocol != r.Protocol) {
			gone = append(gone, have) // it is another one under the same id
			have = nil
		}
		if have == nil {
			have = newReplica(r, c.keepAlive, s.b.dialOf(s.name, r))
			s.replicas[r.ID] = have
		}
		was := have.row.State == balancerapi.Ready && !have.readySince.IsZero()
		if have.version == nil || have.row.Version != r.Version {
			if s.versions[r.Version] == nil {
				s.versions[r.Version] = &counters{}
			}
			have.version = s.versions[r.Version]
		}
		have.row, have.capacity = r, policy.Capacity(c.Policy.TargetQPS, r.GPU)
		if r.State != balancerapi.Ready {
			continue
		}
		if !was {
			have.readySince = now
			have.health = health{}
			if !s.known { // it has been ready before this process began
				have.readySince = now.Add(-c.slowStart)
			}
		}
		s.ready = append(s.ready, have)
	}
	s.known = true
	for id, r := range s.replicas {
		if !listed[id] {
			delete(s.replicas, id)
			gone = append(gone, r)
		}
	}
	for _, r := range gone {
		delete(s.turns, r.ID)
		if s.tree != nil {
			s.tree.Remove(r.ID)
		}
	}
	rand.Shuffle(len(s.ready), func(i, j int) { s.ready[i], s.ready[j] = s.ready[j], s.ready[i] })
	for v := range s.versions { // counters of versions that are long gone
		if !slices.ContainsFunc(c.Replicas, func(r balancerapi.Replica) bool { return r.Version == v }) && v < s.newest()-20 {
			delete(s.versions, v)
		}
	}
	s.dispatch(now)
	s.mu.Unlock()
	for _, r := range gone {
		r.remove(c.drain)
	}
}

func (s *service) newest() int {
	n := 0
	for v := range s.versions {
		n = max(n, v)
	}
	return n
}

// An ask is a request that needs a replica.
type ask struct {
	key    uint64 // of its session
	keyed  bool
	blocks []uint64   // of its prompt
	tried  []*replica // which have failed it
}

// A grant is a replica that has a place for a request.
type grant struct {
	r       *replica
	number  int       // its version
	version *counters // of that version
	trial   bool
}

// pick chooses a replica for a request, or none. The lock is held.
func (s *service) pick(a *ask, now time.Time) *replica {
	c := s.conf.Load()
	s.seq++
	limit := c.Limits.ReplicaRequests
	s.eligible = s.eligible[:0]
	well := 0
	for _, r := range s.ready {
		if limit > 0 && r.inFlight >= limit || slices.Contains(a.tried, r) {
			continue
		}
		s.eligible = append(s.eligible, r)
		if !r.health.out(now) { // those in front
			n := len(s.eligible) - 1
			s.eligible[well], s.eligible[n] = s.eligible[n], s.eligible[well]
			well++
		}
	}
	if well > 0 { // if all are ejected, they are better than nothing
		s.eligible = s.eligible[:well]
	}
	s.ofVersion(c, a)
	s.candidates = s.candidates[:0]
	aware := c.policy == balancerapi.InstanceAwareLeastLoad
	for _, r := range s.eligible {
		s.candidates = append(s.candidates, r.candidate(now, c.slowStart, aware))
	}
	i := -1
	chance := rand.Uint64()
	switch {
	case len(s.candidates) == 0:
	case c.policy == balancerapi.RoundRobin:
		i = policy.RoundRobin(s.candidates, s.turns)
	case c.policy == balancerapi.SessionAffinity && a.keyed:
		i = policy.Affine(s.candidates, a.key, c.bound)
	case c.policy == balancerapi.PrefixAware && len(a.blocks) > 0:
		s.ids, s.matched = s.ids[:0], s.matched[:0]
		for _, c := range s.candidates {
			s.ids, s.matched = append(s.ids, c.ID), append(s.matched, 0)
		}
		s.tree.Match(a.blocks, s.ids, s.matched)
		i = policy.Prefix(s.candidates, s.matched, c.bound, chance)
	default:
		i = policy.LeastLoad(s.candidates, chance)
	}
	if i < 0 {
		return nil
	}
	return s.eligible[i]
}

// ofVersion leaves those replicas eligible that have the version which the request
// goes to.
func (s *service) ofVersion(c *settings, a *ask) {
	if len(c.Versions) == 0 {
		return
	}
	weights := make([]float64, len(c.Versions))
	for i, v := range c.Versions {
		if slices.ContainsFunc(s.eligible, func(r *replica) bool { return r.row.Version == v.Version }) {
			weights[i] = v.Weight
		}
	}
	u := policy.Spread(s.seq)
	if a.keyed { // a session stays with a version
		u = float64(a.key>>11) / (1 << 53)
	}
	chosen := policy.Share(weights, u)
	s.eligible = slices.DeleteFunc(s.eligible, func(r *replica) bool {
		return chosen < 0 || r.row.Version != c.Versions[chosen].Version
	})
}

// take gives a request a place on a replica. The lock is held.
func (s *service) take(r *replica, a *ask, now time.Time) grant {
	r.inFlight++
	r.counts.requests.Add(1)
	r.version.requests.Add(1)
	if s.tree != nil && len(a.blocks) > 0 {
		s.tree.Add(a.blocks, r.ID)
	}
	return grant{r, r.row.Version, r.version, r.health.sent(now)}
}

// release gives the place back.
func (s *service) release(g grant, o outcome) {
	now := time.Now()
	c := s.conf.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	g.r.inFlight--
	if o == failed || o == unreachable || g.trial || g.r.health.failures > 0 {
		out := 0
		for _, r := range s.ready {
			if !r.health.until.IsZero() {
				out++
			}
		}
		before := g.r.health.until
		if g.r.health.ended(o, g.trial, now, c.eject, len(s.ready), out) {
			g.r.readySince = now
			s.log.Info("replica recovered", "replica", g.r.ID)
		} else if g.r.health.until.After(before) {
			s.counts.ejected.Add(1)
			s.log.Warn("replica ejected", "replica", g.r.ID, "for", g.r.health.until.Sub(now).Round(time.Millisecond))
		}
	}
	s.dispatch(now)
}

// A waiter is a request that waits for a replica.
type waiter struct {
	ask   *ask
	bytes int64
	since time.Time
	got   chan grant // has room for one
}

// Why a request gets no replica.
var (
	errNoneReady = errors.New("no replica is ready")
	errBusy      = errors.New("all replicas are busy")
	errQueueFull = errors.New("too many requests wait for a replica")
	errWaited    = errors.New("no replica became free in time")
	errTried     = errors.New("no other replica is ready")
	errStopping  = errors.New("the load balancer is stopping")
)

// acquire chooses a replica and takes a place there, waiting for one if it may.
// bytes is the memory that the request holds meanwhile.
func (s *service) acquire(ctx context.Context, a *ask, bytes int64) (grant, error) {
	now := time.Now()
	s.mu.Lock()
	c := s.conf.Load()
	if s.waiting.Len() == 0 || len(a.tried) > 0 { // a request that has waited already is not sent to the end
		if r := s.pick(a, now); r != nil {
			g := s.take(r, a, now)
			s.mu.Unlock()
			return g, nil
		}
	}
	if err := s.refusal(c, a, bytes); err != nil {
		s.mu.Unlock()
		return grant{}, err
	}
	w := &waiter{a, bytes, now, make(chan grant, 1)}
	s.held += bytes
	e := s.waiting.PushBack(w)
	first := s.waiting.Len() == 1
	s.mu.Unlock()
	if first {
		s.b.waitingChanged()
	}
	t := time.NewTimer(c.queue.timeout)
	defer t.Stop()
	var err error
	select {
	case g, ok := <-w.got:
		if !ok {
			return grant{}, errStopping
		}
		return g, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-t.C:
		err = errWaited
	}
	s.mu.Lock()
	select {
	case g, ok := <-w.got: // at the same moment
		s.mu.Unlock()
		if !ok {
			return grant{}, errStopping
		}
		if ctx.Err() == nil {
			return g, nil
		}
		s.release(g, unknown)
		return grant{}, err
	default:
	}
	s.waiting.Remove(e)
	s.held -= bytes
	s.dispatch(time.Now()) // the next one may fit where this one did not
	s.mu.Unlock()
	return grant{}, err
}

// refusal says why a request cannot wait for a replica; nil: it may. The lock is held.
func (s *service) refusal(c *settings, a *ask, bytes int64) error {
	none := !s.servable(c)
	switch {
	case s.closed:
		return errStopping
	case len(a.tried) > 0 && !none:
		return errTried
	case none && !c.Queue.Wait:
		return errNoneReady
	case !none && c.Limits.ReplicaRequests == 0:
		return errBusy
	case s.waiting.Len() >= c.queue.requests || s.held+bytes > c.queue.bytes:
		return errQueueFull
	}
	return nil
}

// servable reports whether a ready replica may get requests at all. The lock is held.
func (s *service) servable(c *settings) bool {
	return slices.ContainsFunc(s.ready, func(r *replica) bool {
		return len(c.Versions) == 0 || slices.ContainsFunc(c.Versions, func(v balancerapi.Version) bool { return v.Version == r.row.Version && v.Weight > 0 })
	})
}

// dispatch gives replicas to those who wait, in their order. The lock is held.
func (s *service) dispatch(now time.Time) {
	for s.waiting.Len() > 0 {
		e := s.waiting.Front()
		w := e.Value.(*waiter)
		r := s.pick(w.ask, now)
		if r == nil {
			return
		}
		s.waiting.Remove(e)
		s.held -= w.bytes
		w.got <- s.take(r, w.ask, now)
	}
}

// enter counts a request that came in; it reports false once the service is closed.
func (s *service) enter(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived.add(now.Unix())
	if s.closed {
		return false
	}
	s.inFlight++
	return true
}

// leave is the end of what enter began.
func (s *service) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if s.closed && s.inFlight == 0 {
		close(s.idle)
	}
}

// close refuses requests from now on, also those that wait. idle is closed once
// the others have ended.
func (s *service) close() (idle <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		for s.waiting.Len() > 0 {
			close(s.waiting.Remove(s.waiting.Front()).(*waiter).got)
		}
		s.held = 0
		if s.inFlight == 0 {
			close(s.idle)
		}
	}
	return s.idle
}

// track remembers a connection that ends with the service; false: it has ended.
func (s *service) track(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return false
	}
	s.open[c] = struct{}{}
	return true
}

func (s *service) untrack(c io.Closer) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
}
