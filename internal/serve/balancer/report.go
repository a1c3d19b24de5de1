package balancer

import (
	"maps"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// Report is what was counted since the balancer started. have is from the receipt
// of the last report; nil: there was none.
func (b *Balancer) Report(have map[string]int64) balancerapi.Report {
	now := time.Now()
	b.mu.Lock()
	out := balancerapi.Report{Balancer: b.id, Epoch: b.epoch, Time: float64(now.UnixMicro()) / 1e6, Table: b.table.Version, Services: []balancerapi.ServiceReport{}}
	all := slices.SortedFunc(maps.Values(b.services), func(x, y *service) int {
		if x.name < y.name {
			return -1
		}
		return 1
	})
	for _, s := range all {
		r := balancerapi.ServiceReport{Name: s.name}
		if s.ep.listener != nil {
			r.Address = s.ep.listener.Addr().String()
		}
		if s.ep.err != nil {
			r.Error = s.ep.err.Error()
		}
		out.Services = append(out.Services, r)
	}
	b.mu.Unlock()
	for i, s := range all {
		s.report(&out.Services[i], have[s.name], now)
	}
	return out
}

func (s *service) report(out *balancerapi.ServiceReport, have int64, now time.Time) {
	for i := range s.counts.refused {
		if n := s.counts.refused[i].Load(); n > 0 {
			if out.Refused == nil {
				out.Refused = map[string]int64{}
			}
			out.Refused[reasonNames[i]] = n
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Arrivals, out.Recent = s.arrived.total, s.arrived.since(have, now.Unix())
	if e := s.waiting.Front(); e != nil {
		out.Waiting, out.WaitingSince = s.waiting.Len(), float64(e.Value.(*waiter).since.UnixMicro())/1e6
	}
	out.InFlight = s.inFlight
	for _, v := range slices.Sorted(maps.Keys(s.versions)) {
		out.Versions = append(out.Versions, balancerapi.VersionReport{Version: v, Counts: s.versions[v].value()})
	}
	for _, id := range slices.Sorted(maps.Keys(s.replicas)) {
		r := s.replicas[id]
		out.Replicas = append(out.Replicas, balancerapi.ReplicaReport{ID: id, Version: r.row.Version, InFlight: r.inFlight, Ejected: r.health.out(now), Counts: r.counts.value()})
	}
}
