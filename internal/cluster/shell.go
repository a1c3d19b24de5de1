package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
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
	if err := hasNode(c, node); err != nil {
		return nil, err
	}
	conn, err := m.Remote.SSHD(ctx, c, c.Nodes[node])
	if err != nil {
		return nil, unreachable(c, "Connecting with ssh", err)
	}
	return conn, nil
}

// Forward connects to a port of a host as a node of a cluster that is up sees it.
// The connection ends with ctx.
func (m *Manager) Forward(ctx context.Context, name string, node int, host string, port int) (net.Conn, error) {
	const doing = "Forwarding a port"
	c, err := m.Up(ctx, name, doing)
	if err != nil {
		return nil, err
	}
	if err := hasNode(c, node); err != nil {
		return nil, err
	}
	client, err := m.client(c, node)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(host, strconv.Itoa(port))
	conn, err := client.Dial(ctx, address)
	if refused, ok := errors.AsType[*agentapi.Error](err); ok {
		return nil, &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Node %d of cluster %q cannot connect to %s: %s", node, name, address, refused.Message), Err: err}
	}
	if err != nil {
		return nil, unreachable(c, doing, err)
	}
	return conn, nil
}

func hasNode(c *state.Cluster, node int) error {
	if node >= 0 && node < len(c.Nodes) {
		return nil
	}
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Cluster %q has %d nodes now, counted from 0: there is no node %d.", c.Name, len(c.Nodes), node)}
}
