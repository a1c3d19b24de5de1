package cluster

import (
	"context"
	"io"

	"github.com/skypilot-go/sky/api/agentapi"
)

// Shell opens a shell stream on a node of a cluster that is up.
func (m *Manager) Shell(ctx context.Context, name string, q agentapi.ShellQuery) (io.ReadWriteCloser, error) {
	c, err := m.Up(ctx, name, "Opening a shell")
	if err != nil {
		return nil, err
	}
	node := q.Node
	client, err := m.client(c, node)
	if err != nil {
		return nil, err
	}
	q.Node = node
	rwc, err := client.Shell(ctx, q)
	if err != nil {
		return nil, unreachable(c, "Opening a shell", err)
	}
	return rwc, nil
}
