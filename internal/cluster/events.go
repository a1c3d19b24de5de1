package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// Events lists what happened to a cluster, oldest first: texts, or with
// timestamps records.
func (m *Manager) Events(ctx context.Context, call Call, body api.ClusterEventsBody) (any, error) {
	var name, hash string
	switch {
	case body.ClusterHash != nil && *body.ClusterHash != "":
		hash = *body.ClusterHash
	case body.ClusterName != nil && *body.ClusterName != "":
		name = *body.ClusterName
	default:
		return nil, &api.Error{Type: api.ErrValue, Message: "Events belong to a cluster: give its name or hash."}
	}
	var types []string
	if body.EventType != "" {
		types = strings.Split(body.EventType, ",")
	}
	limit := 0
	if body.Limit != nil {
		limit = *body.Limit
	}
	events, err := m.Store.Clusters().Events(ctx, name, hash, types, limit)
	if err != nil {
		return nil, err
	}
	if events, err = m.seen(ctx, call.Scope, events); err != nil {
		return nil, err
	}
	records, texts := []api.ClusterEvent{}, []string{}
	for _, e := range events {
		records = append(records, api.ClusterEvent{Reason: e.Reason, At: e.At.Unix()})
		texts = append(texts, e.Reason)
	}
	if body.IncludeTimestamps {
		return records, nil
	}
	return texts, nil
}

// seen are the events of clusters, also of those that are gone, which a caller
// may see.
func (m *Manager) seen(ctx context.Context, scope *state.Scope, events []state.ClusterEvent) ([]state.ClusterEvent, error) {
	if scope == nil {
		return events, nil
	}
	known := map[string]bool{}
	var out []state.ClusterEvent
	for _, e := range events {
		sees, asked := known[e.ClusterHash]
		if !asked {
			workspace, err := m.Store.Clusters().WorkspaceOf(ctx, e.ClusterHash)
			if err != nil && !errors.Is(err, state.ErrNotFound) {
				return nil, err
			}
			sees = err == nil && scope.Sees(workspace)
			known[e.ClusterHash] = sees
		}
		if sees {
			out = append(out, e)
		}
	}
	return out, nil
}

// Endpoints says where a cluster's ports can be reached.
func (m *Manager) Endpoints(ctx context.Context, body api.EndpointsBody) (map[string]string, error) {
	c, err := m.Up(ctx, body.Cluster, "Asking for endpoints")
	if err != nil {
		return nil, err
	}
	ports := expandPorts(c.Ports)
	if body.Port != nil {
		want := body.Port.String()
		if len(ports) > 0 && !contains(ports, want) {
			return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Port %s of cluster %q is not open; open are: %s.", want, c.Name, strings.Join(c.Ports, ", "))}
		}
		ports = []string{want}
	}
	if p, ok := m.Providers.Get(c.Offer.Cloud); ok {
		if e, ok := cloud.As[cloud.Endpointer](p); ok {
			return m.endpointsAt(ctx, e, c, ports)
		}
	}
	out := map[string]string{}
	for _, p := range ports {
		if len(c.Nodes) > 0 {
			out[p] = orElse(c.Nodes[0].ExternalIP, c.Nodes[0].InternalIP) + ":" + p
		}
	}
	return out, nil
}

// endpointsAt asks the provider, which alone knows the way in.
func (m *Manager) endpointsAt(ctx context.Context, e cloud.Endpointer, c *state.Cluster, ports []string) (map[string]string, error) {
	var numbers []int
	for _, p := range ports {
		if n, err := strconv.Atoi(p); err == nil {
			numbers = append(numbers, n)
		}
	}
	at, why, err := e.Endpoints(ctx, m.Provision.ClusterID(c), numbers)
	if err != nil {
		return nil, err
	}
	if len(at) == 0 && why != "" {
		return nil, &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("The ports of cluster %q cannot be reached yet: %s.", c.Name, why)}
	}
	out := map[string]string{}
	for n, where := range at {
		out[strconv.Itoa(n)] = where
	}
	return out, nil
}

// maxPorts bounds how many ports of ranges are listed one by one.
const maxPorts = 1000

func expandPorts(ranges []string) []string {
	var out []string
	for _, r := range ranges {
		var from, to int
		if n, _ := fmt.Sscanf(r, "%d-%d", &from, &to); n == 1 {
			to = from
		}
		for p := from; p <= to && len(out) < maxPorts; p++ {
			out = append(out, fmt.Sprint(p))
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
