package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/remote/sshserve"
	"github.com/skypilot-go/sky/internal/state"
)

// HasSSHD reports whether a node has an sshd of its own, in which its account logs in. For
// the others the server speaks ssh itself, see [Connector.SSHD].
func (r *Connector) HasSSHD(n cloud.Node) bool {
	return n.Reach.Method == "ssh" && n.Reach.RunAs == "" && r.o.SSH != nil
}

// SSHD connects to the sshd of a node, for an ssh that somebody else runs. A node
// without one is served by its agent, as long as somebody holds the connection.
func (r *Connector) SSHD(ctx context.Context, c *state.Cluster, n cloud.Node) (net.Conn, error) {
	if !r.HasSSHD(n) {
		if n.Reach.Agent == "" {
			return nil, errors.New("no agent was started yet on the node")
		}
		agent, err := r.client(c, n)
		if err != nil {
			return nil, err
		}
		near, far := net.Pipe()
		go func() {
			if err := sshserve.Serve(ctx, far, agent); err != nil && !errors.Is(err, io.EOF) {
				r.o.Logger.DebugContext(ctx, "ssh ended", "cluster", c.Name, "err", err)
			}
		}()
		return near, nil
	}
	t, err := r.target(c, n)
	if err != nil {
		return nil, err
	}
	return r.o.SSH.Reach(ctx, t)
}

// anyUser is the account that ssh names where the server speaks ssh itself; any would do.
const anyUser = "sky"

// Credentials are what an ssh of the cluster's owner logs in to its nodes with, and the
// account there; no credentials if its nodes have no sshd.
// Keys that the machines' owner keeps are not sent: with those the user logs in as
// always, and there are no credentials then, as clients expect a key in them.
func (r *Connector) Credentials(c *state.Cluster) (credentials *api.Credentials, user string, err error) {
	if len(c.Nodes) == 0 || Agentless(c) {
		return nil, "", nil
	}
	if !r.HasSSHD(c.Nodes[0]) {
		return nil, anyUser, nil
	}
	n := c.Nodes[0]
	t, err := r.target(c, n)
	if err != nil || n.Reach.IdentityFile != "" || n.Reach.OwnKeys {
		return nil, t.User, err
	}
	path, _, err := sshconn.UserKey(r.o.SkyDir, c.UserHash)
	if err != nil {
		return nil, "", err
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	return &api.Credentials{User: t.User, ControlName: c.NameOnCloud, PrivateKey: path, KeyContent: string(key)}, t.User, nil
}
