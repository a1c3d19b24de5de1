package sky

import (
	"context"
	"encoding/json"

	"github.com/skypilot-go/sky/api"
)

// IntList is a number or a list of them on the wire.
type IntList []int

// UnmarshalJSON accepts null, 1 and [1, 2].
func (l *IntList) UnmarshalJSON(b []byte) error {
	var one *int
	if json.Unmarshal(b, &one) == nil {
		*l = nil
		if one != nil {
			*l = IntList{*one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]int)(l))
}

// ServeUp starts a service; the result is its name and endpoint.
func (c *Client) ServeUp(ctx context.Context, b api.ServeUpBody) (*Request[[]string], error) {
	b.Envelope = c.withBlob(b.FileMountsBlobID)
	return post[[]string](ctx, c, "/serve/up", b)
}

// ServeUpdate replaces a service's task, replica by replica.
func (c *Client) ServeUpdate(ctx context.Context, b api.ServeUpdateBody) (*Request[any], error) {
	b.Envelope = c.withBlob(b.FileMountsBlobID)
	return post[any](ctx, c, "/serve/update", b)
}

// ServeDown ends services.
func (c *Client) ServeDown(ctx context.Context, b api.ServeDownBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/serve/down", b)
}

// TerminateReplica ends one replica of a service; another one takes its place.
func (c *Client) TerminateReplica(ctx context.Context, b api.ServeTerminateReplicaBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/serve/terminate-replica", b)
}

// Service is a service, or a pool of workers.
type Service struct {
	Name                string    `json:"name"`
	Status              string    `json:"status"`
	Version             *int      `json:"version"`
	ActiveVersions      []int     `json:"active_versions"`
	Uptime              *float64  `json:"uptime"` // Unix seconds of when it came up
	Endpoint            *string   `json:"endpoint"`
	Policy              *string   `json:"policy"`
	LoadBalancingPolicy *string   `json:"load_balancing_policy"`
	RequestedResources  string    `json:"requested_resources_str"`
	TargetReplicas      *int      `json:"target_num_replicas,omitempty"`
	Pool                bool      `json:"pool"`
	TLS                 bool      `json:"tls_encrypted,omitempty"`
	Replicas            []Replica `json:"replica_info"`
}

// Replica is one copy of a service, or a worker of a pool.
type Replica struct {
	ID               int      `json:"replica_id"`
	Name             string   `json:"name"`
	Status           string   `json:"status"`
	Version          int      `json:"version"`
	Endpoint         *string  `json:"endpoint"`
	IsSpot           bool     `json:"is_spot"`
	LaunchedAt       *float64 `json:"launched_at"`
	Infra            string   `json:"infra"`
	ResourcesStr     string   `json:"resources_str"`
	ResourcesStrFull string   `json:"resources_str_full"`
	UsedBy           UsedBy   `json:"used_by"`
}

// UsedBy are the ids of the jobs on a worker.
type UsedBy = IntList

// ServeStatus lists services.
func (c *Client) ServeStatus(ctx context.Context, names []string) (*Request[[]Service], error) {
	return post[[]Service](ctx, c, "/serve/status", api.ServeStatusBody{Envelope: c.envelope(), ServiceNames: names})
}

// ServeLogs is one log of a service.
func (c *Client) ServeLogs(b api.ServeLogsBody) (*LogStream, error) {
	b.Envelope = c.envelope()
	return c.logStream("/serve/logs", nil, b, deref(b.Tail))
}

// SyncServeLogs gathers a service's logs for [Client.Download].
func (c *Client) SyncServeLogs(ctx context.Context, b api.ServeSyncLogsBody) (*Request[string], error) {
	b.Envelope = c.envelope()
	return post[string](ctx, c, "/serve/sync-down-logs", b)
}
