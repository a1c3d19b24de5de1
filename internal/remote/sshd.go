package remote

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// SSHD connects to the sshd of a node, for an ssh that somebody else runs. A
// node that is not reached by ssh is an [*api.Error].
func (r *Connector) SSHD(ctx context.Context, c *state.Cluster, n cloud.Node) (net.Conn, error) {
	if n.Reach.Method != "ssh" || r.o.SSH == nil {
		return nil, &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf("The nodes of cluster %q have no sshd.", c.Name),
			Hint: "A shell needs none: sky ssh " + c.Name}
	}
	t, err := r.target(c, n)
	if err != nil {
		return nil, err
	}
	return r.o.SSH.Reach(ctx, t)
}

// Credentials are what an ssh of the cluster's owner logs in to its nodes with, in the
// words of the protocol, and the account there; nil and "" if its nodes have no sshd.
// Keys that the machines' owner keeps are not sent: with those the user logs in as
// always, and there are no credentials then, as clients expect a key in them.
func (r *Connector) Credentials(c *state.Cluster) (credentials map[string]any, user string, err error) {
	if len(c.Nodes) == 0 || c.Nodes[0].Reach.Method != "ssh" || r.o.SSH == nil {
		return nil, "", nil
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
	return map[string]any{"ssh_user": t.User, "ssh_control_name": c.NameOnCloud,
		"ssh_private_key": path, "ssh_private_key_content": string(key)}, t.User, nil
}
