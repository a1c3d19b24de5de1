package serve

import (
	"context"
	"slices"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/spec"
	"github.com/skypilot-go/sky/internal/state"
)

// publish hands balancers the table of all services, as they are stored.
func (m *Manager) publish(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	services, sites, err := m.tableRows(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.Log.WarnContext(ctx, "balancers do not get what has changed; to be tried again", "err", err)
		}
		m.seen = map[string]int64{} // the next look does
		return err
	}
	for _, s := range services {
		if held := m.ports[s.Port]; held != nil {
			held.Close()
			delete(m.ports, s.Port)
		}
	}
	m.sites = sites
	m.table.Version++
	m.table.Services = services
	m.source.Publish(m.table)
	if m.apply != nil {
		m.apply(m.table)
	}
	return nil
}

func (m *Manager) tableRows(ctx context.Context) ([]balancerapi.Service, map[target]site, error) {
	list, err := m.Store.Services().List(ctx, state.ServiceFilter{Kind: state.KindService})
	if err != nil {
		return nil, nil, err
	}
	var hashes []string
	for _, v := range list {
		hashes = append(hashes, v.Hash)
	}
	rows, err := m.Store.Services().Replicas(ctx, hashes)
	if err != nil {
		return nil, nil, err
	}
	out, sites := []balancerapi.Service{}, map[target]site{}
	specs := map[string]servedSpec{}
	for _, v := range list {
		mem, err := readMemory(v.State)
		if err != nil {
			m.Log.WarnContext(ctx, "a service is served without replicas", "service", v.Name, "err", err)
		}
		s, err := m.served(ctx, v, mem)
		if err != nil {
			return nil, nil, err
		}
		if specs[v.Hash] = s; s.spec != nil {
			out = append(out, m.tableRow(v, s, mem, rows[v.Hash]))
		}
		for _, r := range rows[v.Hash] {
			sites[target{v.Name, r.ID}] = site{r.ClusterName, r.ClusterHash, r.Endpoint}
		}
	}
	m.specs = specs
	return out, sites, nil
}

// servedSpec is how a service is served, by the version of that number; nil: that
// version cannot be read.
type servedSpec struct {
	number int
	spec   *spec.Spec
	tls    *balancerapi.TLS
}

// served is how a service is served: by its latest version that was not rolled back.
// A version does not change, so it is read once.
func (m *Manager) served(ctx context.Context, v *state.Service, mem memory) (servedSpec, error) {
	s := servedSpec{number: v.Latest}
	for s.number > 1 && mem.Update.Failed[s.number] != "" {
		s.number--
	}
	if have, ok := m.specs[v.Hash]; ok && have.number == s.number {
		return have, nil
	}
	stored, err := m.Store.Services().Task(ctx, v.Hash, s.number)
	if err != nil {
		return s, err
	}
	read, err := readVersion(stored)
	if err != nil {
		m.Log.WarnContext(ctx, "a service is not served", "service", v.Name, "err", err)
		return s, nil
	}
	if s.tls, err = m.certificate(ctx, read); err != nil {
		return s, err
	}
	s.spec = read.spec
	return s, nil
}

func (m *Manager) tableRow(v *state.Service, served servedSpec, mem memory, rows []*state.ServiceReplica) balancerapi.Service {
	s, b := served.spec, served.spec.Balance
	out := balancerapi.Service{
		Name: v.Name, Host: m.Host, Port: v.Port,
		Policy: balancerapi.Policy{Name: b.Policy, TargetQPS: s.Scale.QPSByAccelerator, Header: b.AffinityHeader, Cookie: b.AffinityCookie, LoadFactor: b.PrefixLoadFactor, Metrics: b.Metrics},
		Limits: balancerapi.Limits{HeaderBytes: b.MaxHeaderBytes, BodyBytes: int64(b.MaxBodyBytes), ReplicaRequests: b.ReplicaRequests, Attempts: b.Attempts,
			RequestTimeout: seconds(b.RequestTimeout), IdleTimeout: seconds(b.StreamTimeout), ClientKeepAlive: orNone(seconds(b.IdleTimeout)), KeepAlive: orNone(seconds(b.KeepAlive))},
		Queue: balancerapi.Queue{Wait: s.Scale.Min == 0 && b.QueueRequests > 0 && b.QueueWait > 0,
			Requests: orNone(b.QueueRequests), Bytes: int64(max(b.QueueBytes, 1)), Timeout: orNone(seconds(b.QueueWait))},
		Eject:          balancerapi.Eject{Failures: orNone(b.EjectFailures), Base: seconds(b.EjectFirst), Max: seconds(b.EjectMost), Share: b.EjectShare},
		TrustForwarded: b.TrustForwarded, SlowStart: orNone(seconds(b.SlowStart)), RetryAfter: seconds(b.RetryAfter),
		Drain: orNone(seconds(s.Drain)), TLS: served.tls,
	}
	for number, weight := range mem.Routing.Weights {
		out.Versions = append(out.Versions, balancerapi.Version{Version: number, Weight: weight})
	}
	slices.SortFunc(out.Versions, func(a, b balancerapi.Version) int { return a.Version - b.Version })
	for _, stored := range rows {
		r, err := readRow(stored)
		if err != nil || r.at.Endpoint == "" {
			continue
		}
		to := balancerapi.Replica{ID: r.ID, Address: r.at.Endpoint, Network: r.watched().Network, Version: r.Version, GPU: r.Accelerator}
		if b.H2C {
			to.Protocol = balancerapi.H2C
		}
		switch {
		case slices.Contains(mem.Routing.Ready, r.ID):
			to.State = balancerapi.Ready
		case (r.Status == api.ReplicaShuttingDown || r.Status == api.ReplicaPreempted) && !r.Ending, r.Ready():
			to.State = balancerapi.Draining
		default:
			continue
		}
		out.Replicas = append(out.Replicas, to)
	}
	return out
}

func seconds(d interface{ Seconds() float64 }) balancerapi.Seconds {
	return balancerapi.Seconds(d.Seconds())
}

// orNone is a value for fields of which 0 is a default: none is negative there.
func orNone[T ~int | ~float64](s T) T {
	if s == 0 {
		return -1
	}
	return s
}
