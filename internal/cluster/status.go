package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Status lists clusters as clients see them.
func (m *Manager) Status(ctx context.Context, call Call, body api.StatusBody) ([]api.StatusRecord, error) {
	filter := state.ClusterFilter{Names: body.ClusterNames, Scope: call.Scope, Unheld: len(body.ClusterNames) == 0} // by name, everything is shown
	if err := paged(&filter, body.Limit, body.Page); err != nil {
		return nil, err
	}
	if body.AllUsers != nil && !*body.AllUsers {
		filter.UserHash = call.User.ID
	}
	clusters, err := m.Store.Clusters().List(ctx, filter)
	if err != nil {
		return nil, err
	}
	var failed map[string]error
	before := clusters
	switch body.Refresh {
	case api.RefreshForce:
		clusters, failed = refreshAll(ctx, clusters, func(*state.Cluster) bool { return true }, m.refreshNow)
	case api.RefreshAuto:
		at := now()
		clusters, failed = m.RefreshAll(ctx, clusters, func(c *state.Cluster) bool { return stale(c, at) })
	}
	if body.Refresh == api.RefreshForce {
		m.sayWhatChanged(ctx, call, filter, before, clusters)
	}
	for name, err := range failed {
		fmt.Fprintf(call.Out, "Cluster %s is shown as last seen: %v\n", name, err)
	}
	records := make([]api.StatusRecord, 0, len(clusters))
	for _, c := range clusters {
		r := m.Record(c)
		if !withHandle(body) {
			r.Handle = nil
		}
		if withKeys(body) && call.Scope.Owns(c.UserHash) {
			var user string
			if r.Credentials, user, err = m.Remote.Credentials(c); err != nil {
				m.Log.WarnContext(ctx, "no ssh credentials in a status", "cluster", c.Name, "err", err)
			}
			if r.Handle != nil && user != "" {
				r.Handle.SSHUser = &user
			}
		}
		records = append(records, r)
	}
	return records, nil
}

// withKeys reports whether a caller wants the keys of clusters. Clients on this
// machine have the entries that the server writes for their ssh.
func withKeys(b api.StatusBody) bool {
	return b.UsingRemoteAPIServer && (b.IncludeCredentials == nil || *b.IncludeCredentials)
}

func withHandle(b api.StatusBody) bool { return b.IncludeHandle == nil || *b.IncludeHandle }

// paged limits a filter to the part of the list that a caller asks for; nil is
// not given.
func paged(f *state.ClusterFilter, limit, page *int) error {
	wrong := func(what string) error { return &api.Error{Type: api.ErrValue, Message: what} }
	switch {
	case limit != nil && *limit < 1:
		return wrong(fmt.Sprintf("The limit must be at least 1, not %d.", *limit))
	case page != nil && *page < 1:
		return wrong(fmt.Sprintf("Pages count from 1: there is no page %d.", *page))
	case page != nil && limit == nil:
		return wrong("A page needs a limit, which says how many clusters are on one.")
	case limit == nil:
		return nil
	}
	f.Limit = *limit
	if page != nil {
		if *page-1 > math.MaxInt / *limit {
			return wrong(fmt.Sprintf("There is no page %d of %d clusters each.", *page, *limit))
		}
		f.Offset = (*page - 1) * *limit
	}
	return nil
}

// Record is a cluster as clients see it.
func (m *Manager) Record(c *state.Cluster) api.StatusRecord {
	r := api.StatusRecord{
		Name: c.Name, LaunchedAt: c.LaunchedAt.Unix(), Status: c.Status,
		Autostop: c.AutostopMinutes, ToDown: c.AutostopDown,
		ClusterHash: c.Hash, ClusterEverUp: c.EverUp,
		UserHash: c.UserHash, UserName: c.UserName, Workspace: orElse(c.Workspace, "default"),
		Nodes: c.NumNodes, LastUse: c.LastUse, StatusUpdatedAt: c.StatusUpdatedAt.Unix(),
		Labels: c.Labels, Owner: c.Owner, ConfigHash: c.ConfigHash,
		LastCreationYAML: c.CreationYAML, LastCreationCmd: c.CreationCmd,
		IsManaged: c.Held(), LastEvent: c.LastEvent,
		ResourcesStr: resourcesString(c, false), ResourcesStrFull: resourcesString(c, true),
		Region: c.Offer.Region, Zone: c.Offer.Zone,
		Cloud: c.Offer.Cloud, CPUs: number(c.Offer.CPUs), Memory: number(c.Offer.MemoryGiB),
		ClusterNameOnCloud: c.NameOnCloud,
		Handle:             m.Handle(c),
		Unsaved:            unsaved(c),
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	if p, ok := m.Providers.Get(c.Offer.Cloud); ok {
		r.Cloud = p.DisplayName()
	}
	r.Infra = r.Cloud
	if place := orElse(c.Offer.Zone, task.PoolOf(c.Offer.Cloud, c.Offer.Region)); place != "" {
		r.Infra += " (" + place + ")"
	}
	for name, count := range c.Offer.Accelerators {
		r.Accelerators = name + ":" + number(count)
	}
	ids := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		ids[i] = n.ID
	}
	r.NodeNames = strings.Join(ids, ",")
	return r
}

// Handle describes a cluster's nodes to clients.
func (m *Manager) Handle(c *state.Cluster) *api.Handle {
	h := &api.Handle{
		ClusterName: c.Name, ClusterNameOnCloud: c.NameOnCloud,
		LaunchedNodes: c.NumNodes, LaunchedResources: launchedResources(c.Offer),
	}
	if p, ok := m.Providers.Get(c.Offer.Cloud); ok {
		_, h.CannotStop = cloud.Lacking(p, c.Offer, cloud.FeatureStop)
	}
	for _, n := range c.Nodes {
		if n.Reach.Method == "ssh" && n.Reach.RunAs == "" {
			h.StableSSHPorts = append(h.StableSSHPorts, cmp.Or(n.Reach.Port, 22))
		}
		h.StableIPs = append(h.StableIPs, [2]string{n.InternalIP, orElse(n.ExternalIP, n.InternalIP)})
	}
	return h
}

// launchedResources are what was rented, in the words of a task's resources.
func launchedResources(o cloud.Offer) *api.LaunchedResources {
	r := &api.LaunchedResources{CPUs: number(o.CPUs), Memory: number(o.MemoryGiB), Accelerators: o.Accelerators, UseSpot: o.Spot}
	if !facts.Of(o.Cloud).Ours { // clients know it; else the instance type means nothing
		r.Infra, r.InstanceType = task.Infra{Cloud: o.Cloud, Region: o.Region, Zone: o.Zone}.String(), o.InstanceType
	}
	return r
}

// resourcesString is the RESOURCES column: 1x(cpus=8, mem=32, m6i.2xlarge, ...).
func resourcesString(c *state.Cluster, full bool) string {
	var parts []string
	for name, count := range c.Offer.Accelerators {
		parts = append(parts, "gpus="+name+":"+number(count))
	}
	if len(parts) == 0 || full {
		parts = append(parts, "cpus="+number(c.Offer.CPUs), "mem="+number(c.Offer.MemoryGiB))
	}
	if c.Offer.InstanceType != "" {
		parts = append(parts, c.Offer.InstanceType)
	}
	switch {
	case !full:
		parts = append(parts, "...")
	default:
		if c.Machine.DiskGB > 0 {
			parts = append(parts, "disk="+strconv.Itoa(c.Machine.DiskGB))
		}
		if len(c.Ports) > 0 {
			parts = append(parts, "ports="+strings.Join(c.Ports, ","))
		}
	}
	spot := ""
	if c.Offer.Spot {
		spot = "[spot]"
	}
	return fmt.Sprintf("%dx%s(%s)", c.NumNodes, spot, strings.Join(parts, ", "))
}

// number prints without a needless fraction.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
