package cluster

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

// Shell opens a shell stream on a node of a cluster that is up.
func (m *Manager) Shell(ctx context.Context, name string, q agentapi.ShellQuery) (io.ReadWriteCloser, error) {
	c, err := m.Up(ctx, name, "Opening a shell")
	if err != nil {
		return nil, err
	}
	client, err := m.client(c, q.Node)
	if err != nil {
		return nil, err
	}
	rwc, err := client.Shell(ctx, q)
	if err != nil {
		return nil, unreachable(c, "Opening a shell", err)
	}
	return rwc, nil
}

// SSHD connects to the sshd of a node of a cluster, whose number is node.
func (m *Manager) SSHD(ctx context.Context, name string, node int) (net.Conn, error) {
	c, err := m.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.Status != api.ClusterInit { // whose sshd may answer before anything else does
		if c, err = m.Up(ctx, name, "Connecting with ssh"); err != nil {
			return nil, err
		}
	}
	if node < 0 || node >= len(c.Nodes) {
		return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Cluster %q has %d nodes now, counted from 0: there is no node %d.", name, len(c.Nodes), node)}
	}
	conn, err := m.Remote.SSHD(ctx, c, c.Nodes[node])
	if err != nil {
		return nil, unreachable(c, "Connecting with ssh", err)
	}
	return conn, nil
}
