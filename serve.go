package sky

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

// IntList is a number or a list of them on the wire.
type IntList = api.IntList

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

// ServePromote lets the version of a service that runs as a canary take over.
func (c *Client) ServePromote(ctx context.Context, name string) (*Request[any], error) {
	return post[any](ctx, c, "/serve/promote", api.ServeTurnBody{Envelope: c.envelope(), ServiceName: name})
}

// ServeRollback gives up the version of a service that has not taken over.
func (c *Client) ServeRollback(ctx context.Context, name string) (*Request[any], error) {
	return post[any](ctx, c, "/serve/rollback", api.ServeTurnBody{Envelope: c.envelope(), ServiceName: name})
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

// Service is a service, or a pool, with its replicas.
type Service = api.Service

// Replica is one copy of a service, or a worker of a pool.
type Replica = api.Replica

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
