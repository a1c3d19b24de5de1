package docker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// container is one as the engine lists it.
type container struct {
	ID              string `json:"Id"`
	State           string
	Status          string // "Exited (77) 3 seconds ago"
	Created         int64
	Labels          map[string]string
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress string }
	}
}

func (p *Provider) list(ctx context.Context, id cloud.ClusterID) ([]container, error) {
	var out []container
	return out, p.engine.call(ctx, "GET", "/containers/json", filters(id), nil, &out)
}

// rank is -1 for a container that lost its label, which cannot happen.
func (c *container) rank() int {
	rank, err := strconv.Atoi(c.Labels[cloud.TagRank])
	if err != nil {
		return -1
	}
	return rank
}

// gone reports whether the container is only a witness: it gave itself back.
func (c *container) gone() bool {
	return c.State == "exited" && strings.HasPrefix(c.Status, fmt.Sprintf("Exited (%d)", exitGone)) || c.State == "dead" || c.State == "removing"
}

func (c *container) node() (cloud.Node, error) {
	n := cloud.Node{
		ID: fmt.Sprintf("%.12s", c.ID), Cluster: c.Labels[cloud.TagCluster], Hash: c.Labels[cloud.TagHash], Rank: c.rank(),
		Place: cloud.Place{Cloud: Name}, Created: time.Unix(c.Created, 0),
		Reach: cloud.Reach{Method: "docker", Host: c.ID, Machine: cloud.MachineContainer},
	}
	for _, net := range c.NetworkSettings.Networks {
		n.InternalIP, n.ExternalIP = net.IPAddress, net.IPAddress
	}
	switch {
	case c.gone():
		n.State, n.Reason = cloud.NodeGone, "it gave itself back"
		if c.State != "exited" {
			n.Reason = "the engine calls it " + c.State
		}
	case c.State == "running":
		n.State = cloud.NodeRunning
	case c.State == "created" || c.State == "restarting":
		n.State = cloud.NodePending
	case c.State == "exited":
		n.State, n.Reason = cloud.NodeStopped, c.Status
	case c.State == "paused":
		n.State, n.Reason = cloud.NodeStopped, "somebody paused it"
	default:
		return n, fmt.Errorf("the engine calls container %s %q, and we do not know what that means", n.ID, c.State)
	}
	return n, nil
}
