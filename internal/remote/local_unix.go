//go:build unix

package remote

import (
	"context"
	"net"
	"path/filepath"
	"strconv"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/nodeagent"
	"github.com/skypilot-go/sky/internal/state"
)

// localTransport starts agents as processes of this machine.
type localTransport Connector

func (t *localTransport) start(ctx context.Context, c *state.Cluster, n cloud.Node, _ *spread, _ *Containers) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.StartTimeout)
	defer cancel()
	bin, err := (*Connector)(t).install()
	if err != nil {
		return "", err
	}
	files, err := issue(c, n.ID)
	if err != nil {
		return "", err
	}
	a, err := nodeagent.Start(ctx, bin, t.o.BuildID, nodeagent.Spec{
		Home: n.Reach.Home, Node: filepath.Dir(n.Reach.Home), Machine: nodeagent.MachineLocal,
		Listen: net.JoinHostPort(n.InternalIP, strconv.Itoa(agentapi.Port)), Files: files.Files(),
	})
	return a.Address, err
}
