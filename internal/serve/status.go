package serve

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// show is what people see of a decision.
func (c *controller) show(d replicas.Decision, mem memory, rows map[int]row) state.ServiceShown {
	out := state.ServiceShown{Target: d.Target, Final: d.Final, Why: d.Why}
	for _, id := range mem.Routing.Ready {
		if v := rows[id].Version; !slices.Contains(out.Active, v) {
			out.Active = append(out.Active, v)
		}
	}
	slices.Sort(out.Active)
	if v := c.latest(); v != nil {
		out.Policy, out.Spread, out.TLS = v.spec.Scale.String(), v.spec.Balance.Policy, v.spec.Balance.KeyFile != ""
		out.Wants = v.task.Requested()
	}
	return out
}

// Status lists services; no names: all that the caller sees.
func (m *Manager) Status(ctx context.Context, call cluster.Call, names []string) ([]api.Service, error) {
	list, err := m.Store.Services().List(ctx, state.ServiceFilter{Kind: state.KindService, Scope: call.Scope})
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		list = slices.DeleteFunc(list, func(v *state.Service) bool {
			return !slices.ContainsFunc(names, func(n string) bool { ok, _ := path.Match(n, v.Name); return ok || n == v.Name })
		})
	}
	var hashes []string
	for _, v := range list {
		hashes = append(hashes, v.Hash)
	}
	rows, err := m.Store.Services().Replicas(ctx, hashes)
	if err != nil {
		return nil, err
	}
	versions, err := m.Store.Services().Versions(ctx, hashes)
	if err != nil {
		return nil, err
	}
	out := []api.Service{}
	for _, v := range list {
		s := m.record(v, versions[v.Hash])
		for _, stored := range rows[v.Hash] {
			r, err := readRow(stored)
			if err != nil {
				return nil, err
			}
			s.Replicas = append(s.Replicas, m.replicaRecord(ctx, v, r))
		}
		if latest, err := m.Store.Services().Task(ctx, v.Hash, v.Latest); err == nil {
			if dag, err := task.ParseSent("task", latest.Task); err == nil {
				if shown, err := dag.DisplayYAML(); err == nil {
					s.YAML = string(shown)
				}
			}
		}
		out = append(out, s)
	}
	return out, nil
}

func (m *Manager) record(v *state.Service, versions []*state.ServiceVersion) api.Service {
	endpoint := m.Endpoint(v.Port, v.Shown.TLS)
	s := api.Service{
		Name: v.Name, Status: string(v.Status), Version: &v.Latest, ActiveVersions: v.Shown.Active, Endpoint: &endpoint,
		RequestedResources: v.Shown.Wants, TargetReplicas: &v.Shown.Target, TLS: v.Shown.TLS, Replicas: []api.Replica{}, Hash: v.Hash,
		Port: &v.Port, UserHash: v.UserHash, UserName: v.UserName, Workspace: v.Workspace, Why: v.Shown.Why,
		Policy: text(v.Shown.Policy), LoadBalancingPolicy: text(v.Shown.Spread),
	}
	if s.ActiveVersions == nil {
		s.ActiveVersions = []int{}
	}
	if s.Why == nil {
		s.Why = []string{}
	}
	if !v.ReadyAt.IsZero() {
		at := float64(v.ReadyAt.Unix())
		s.Uptime = &at
	}
	if n := len(versions); n > 0 {
		s.Entrypoint = versions[n-1].Entrypoint
	}
	now := time.Now()
	sum := m.tally.Summary(v.Name, now)
	if sum.Balancers > 0 {
		qps := float64(m.tally.Arrivals(v.Name, now.Add(-window))) / window.Seconds()
		s.RequestsPerSecond = &qps
		if times := m.tally.FirstByte(v.Name, now.Add(-window)); times.Count() > 0 {
			p50, p95 := times.Quantile(0.5), times.Quantile(0.95)
			s.P50Seconds, s.P95Seconds = &p50, &p95
		}
	}
	return s
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (m *Manager) replicaRecord(ctx context.Context, v *state.Service, r row) api.Replica {
	out := api.Replica{
		ID: r.ID, Name: v.Name, Status: string(r.Status), Version: r.Version, IsSpot: r.Spot, InfoVersion: 1, UsedBy: api.IntList{},
		Cloud: r.Place.Cloud, Region: r.Place.Region, Infra: task.Infra{Cloud: r.Place.Cloud, Region: r.Place.Region, Zone: r.Place.Zone}.String(), Reason: r.Reason,
	}
	if r.Uncleaned != "" {
		out.Reason = strings.TrimPrefix(out.Reason+"; ", "; ") + "its machines could not be given back, which is tried again: " + r.Uncleaned
	}
	if r.at.Endpoint != "" {
		at := "http://" + r.at.Endpoint
		out.Endpoint = &at
	}
	if !r.ProvisionedAt.IsZero() {
		at := float64(r.ProvisionedAt.Unix())
		out.LaunchedAt = &at
	}
	if r.at.ClusterName != "" {
		if c, err := m.Store.Clusters().Get(ctx, r.at.ClusterName); err == nil && c.Holder == v.Holder() {
			out.ResourcesStr, out.ResourcesStrFull = cluster.Resources(c)
		}
	}
	return out
}
