// Package serve looks after services: replicas of a task behind one endpoint.
//
// Each service is the work of one server of the installation at a time, which holds
// its lease (package lease). Its controller observes, decides (package replicas),
// stores the decision in one transaction, and acts: it launches replicas, probes
// them, and gives them back. All that a decision needs is stored, so any server goes
// on where another one stopped. What balancers are to serve follows from the rows of
// all services, so every server feeds balancers with the same table.
package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/buckets"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/feed"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/taskfiles"
)

// Deps is what a [Manager] works with.
type Deps struct {
	Store    *state.Store
	Executor *execution.Executor
	Clusters *cluster.Manager
	Log      *slog.Logger
	ServerID string
	Files    *taskfiles.Files // copies of the files of services' tasks
	Buckets  *buckets.Manager // for those that travel through serve.bucket; nil: none do
	Kept     logstore.Logs    // where logs of services are kept
	// Host is the address on which balancers listen; "": every address.
	Host string
	// LastPort bounds the ports of services; 0: [lastPort].
	LastPort int
	// Endpoint is where clients reach a port of the balancers.
	Endpoint func(port int, tls bool) string
	// Dial connects probes to replicas; nil: as usual.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Networks are those that this server is in (see [balancerapi.Replica]).
	Networks []string
	// Admit lets the administrator's policy judge the launch of a replica, and finds
	// the configuration that holds for it: the server's with sent, the client's, laid
	// over. nil: no configuration.
	Admit func(ctx context.Context, user state.User, dag string, sent map[string]any, out io.Writer) (string, *config.Config, error)
}

// Manager looks after the services of an installation.
type Manager struct {
	Deps
	held   *lease.Set[string] // the services that this server works on, by hash
	source *feed.Source       // hands tables to balancers
	tally  feed.Tally         // what balancers have counted
	poke   chan struct{}      // makes Run look at once
	rows   notify.Keyed[string]
	logs   notify.Keyed[string]
	apply  func(balancerapi.Table) // to the balancer in this server; nil: none

	mu       sync.Mutex
	seen     map[string]int64 // versions of services' rows, by hash
	table    balancerapi.Table
	specs    map[string]servedSpec // as they were published, by hash
	sites    map[target]site       // of replicas, as they were published
	ports    map[int]net.Listener  // of new services, until balancers listen
	others   exchange
	launches chan struct{} // has room for the launches of all services at once
}

// launchesAtOnce is how many replicas a server brings up at the same time.
const launchesAtOnce = 64

// New returns a manager; Run makes it work.
func New(d Deps) *Manager {
	m := &Manager{Deps: d, seen: map[string]int64{}, ports: map[int]net.Listener{}, poke: make(chan struct{}, 1), launches: make(chan struct{}, launchesAtOnce)}
	m.table.Epoch = d.ServerID + "-" + time.Now().UTC().Format("20060102T150405.000000")
	m.source = feed.NewSource(m.Reported, m.publish)
	m.held = lease.New(lease.Kind[string]{
		What: "services", Prefix: state.ServiceLease,
		Orphans: func(ctx context.Context, owner string) ([]string, error) {
			return d.Store.Services().Orphans(ctx, owner)
		},
		Adopt: m.adopt,
	}, func() lease.Store { return d.Store.Leases() }, d.Store.Now, d.ServerID, d.Log)
	return m
}

// Source hands tables to balancers that run beside the server.
func (m *Manager) Source() *feed.Source { return m.source }

// Feed makes apply, of the balancer in this server, get every table, the present one
// included.
func (m *Manager) Feed(apply func(balancerapi.Table)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply = apply
	if m.table.Version > 0 {
		apply(m.table)
	}
}

// Run works on services until ctx ends. What it leaves goes on with another server
// or the next life of this one.
func (m *Manager) Run(ctx context.Context) {
	t := time.NewTicker(lease.LookEvery)
	defer t.Stop()
	m.held.Begin()
	var beats sync.WaitGroup
	beats.Go(func() { m.held.Keep(ctx) })
	for ctx.Err() == nil {
		m.held.Adopt(ctx)
		m.passOn(ctx)
		mark := m.mark(ctx)
		m.look(ctx)
		m.rest(ctx, t.C, mark)
	}
	beats.Wait()
	m.held.HandOver()
}

// othersEvery is how often a server looks whether another one has changed a service.
// Balancers that speak to this one learn of it as late.
const othersEvery = 100 * time.Millisecond

// mark is another one when another server has changed a service; "": unknown.
func (m *Manager) mark(ctx context.Context) string {
	if !m.Store.Shared() {
		return ""
	}
	mark, err := m.Store.Services().Mark(ctx)
	if err != nil {
		return ""
	}
	return mark
}

// rest waits until it is time to look, or services are no longer as marked.
func (m *Manager) rest(ctx context.Context, tick <-chan time.Time, mark string) {
	var others <-chan time.Time
	if m.Store.Shared() {
		t := time.NewTicker(othersEvery)
		defer t.Stop()
		others = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.poke:
			return
		case <-tick:
			return
		case <-others:
			if is := m.mark(ctx); is != "" && is != mark {
				return
			}
		}
	}
}

// wake makes Run look for what is new.
func (m *Manager) wake() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// look makes controllers see what users, perhaps through other servers, have asked
// for, and balancers what has changed.
func (m *Manager) look(ctx context.Context) {
	list, err := m.Store.Services().List(ctx, state.ServiceFilter{})
	if err != nil {
		if ctx.Err() == nil {
			m.Log.WarnContext(ctx, "services not listed", "err", err)
		}
		return
	}
	m.mu.Lock()
	now, changed := map[string]int64{}, len(list) != len(m.seen)
	var ring, names []string
	for _, v := range list {
		now[v.Hash] = v.Version
		names = append(names, v.Name)
		if m.seen[v.Hash] != v.Version {
			changed = true
			ring = append(ring, v.Name)
		}
	}
	m.seen = now
	first := m.table.Version == 0
	m.mu.Unlock()
	m.tally.Forget(names, time.Now())
	for _, name := range ring {
		m.rows.Notify(name)
	}
	if changed || first {
		m.publish(ctx)
	}
}

// knows notes that the controller here has a version of a service's row: it need not
// look at it again.
func (m *Manager) knows(hash string, version int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[hash] = version
}

// adopt starts the controllers of those of the services whose leases this server got.
func (m *Manager) adopt(ctx context.Context, leases map[string]state.Lease) error {
	found, err := m.Store.Services().AdoptAll(ctx, leases)
	if err != nil {
		return err
	}
	for _, a := range found {
		name := a.Service.Name
		m.held.Start(a.Service.Hash, leases[a.Service.Hash], func(h *lease.Hold) lease.Work {
			return newController(m, a.Service, h)
		}, func() { m.rows.Notify(name) })
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// gone reports that there is nothing more to do about an error than to look again.
func gone(err error) bool {
	return errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrNotFound)
}
