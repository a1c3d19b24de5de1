package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
)

// adopted is the record of a stray, as far as its tags and its cloud tell.
func adopted(s provision.Stray, by state.User, now time.Time) (*state.Cluster, error) {
	nodes := slices.DeleteFunc(slices.Clone(s.Nodes), func(n cloud.Node) bool { return n.State == cloud.NodeGone })
	if len(nodes) == 0 {
		return nil, errors.New("none of its machines is left")
	}
	slices.SortStableFunc(nodes, func(a, b cloud.Node) int { return a.Rank - b.Rank })
	for i, n := range nodes {
		if n.Account != "" {
			return nil, fmt.Errorf("its machines are in the account %s, and the server works in another one: have it use that one, or end them with: sky sweep --terminate", n.Account)
		}
		if n.Rank != i {
			return nil, fmt.Errorf("its machines are not whole: there is none of rank %d. End them with: sky sweep --terminate", i)
		}
	}
	about := cloud.About{}
	if nodes[0].About != nil {
		about = *nodes[0].About
	}
	hosts := max(about.Hosts, 1)
	c := &state.Cluster{
		Name: cmp.Or(about.Cluster, s.Cluster), Hash: s.Hash, NameOnCloud: s.Cluster, Status: api.ClusterInit, Epoch: state.LateEpoch(now),
		UserHash: cmp.Or(about.UserID, by.ID), UserName: cmp.Or(about.UserName, by.Name), Workspace: about.Workspace,
		LaunchedAt: s.Since, StatusUpdatedAt: now, EverUp: true,
		Offer:    cloud.Offer{Place: nodes[0].Place, InstanceType: about.InstanceType, Spot: about.Spot, Hosts: about.Hosts},
		NumNodes: max(about.Nodes, (len(nodes)+hosts-1)/hosts), Nodes: nodes, AutostopMinutes: -1,
		LastUse: "sky sweep --adopt", CreationCmd: "sky sweep --adopt", Notes: state.ClusterNotes{Adopted: true},
	}
	if c.Workspace == "" {
		c.Workspace = "default"
	}
	if !slices.ContainsFunc(nodes, func(n cloud.Node) bool { return n.State != cloud.NodeStopped }) {
		c.Status = api.ClusterStopped
	}
	certs, err := pki.NewAuthority(c.Name)
	c.Certs = state.Seal(certs)
	return c, err
}

// adopt takes a stray back into the records and returns its cluster's name. Its
// agents are given new certificates where they can be reached.
func (d *daemon) adopt(ctx context.Context, call cluster.Call, s provision.Stray) (string, error) {
	c, err := adopted(s, call.User, time.Now())
	if err != nil {
		return "", err
	}
	d.clusters.Mark(c)
	// The offer is what the cloud still sells under that name: its price and size.
	if p, ok := d.providers.Get(s.Cloud); ok {
		if offers, err := p.Offers(ctx); err == nil {
			for _, o := range offers {
				if o.InstanceType == c.Offer.InstanceType && o.Place == c.Offer.Place && o.Spot == c.Offer.Spot {
					c.Offer = o
				}
			}
		}
	}
	clusters := d.store.Clusters()
	err = clusters.Create(ctx, c)
	if errors.Is(err, state.ErrConflict) && c.Name != s.Cluster {
		c.Name = s.Cluster // the name is another cluster's by now
		err = clusters.Create(ctx, c)
	}
	if errors.Is(err, state.ErrConflict) {
		return "", fmt.Errorf("there is a cluster %s already: give that back first, and try again", c.Name)
	}
	if err != nil {
		return "", err
	}
	event := state.ClusterEvent{ClusterHash: c.Hash, ClusterName: c.Name, Type: "STATUS_CHANGE", Ending: c.Status, At: time.Now(),
		Reason: "taken back by its tags: its record was lost"}
	if err := clusters.AddEvent(ctx, event); err != nil {
		d.log.WarnContext(ctx, "event not stored", "cluster", c.Name, "err", err)
	}
	call.Out.Spin("Reaching cluster " + c.Name)
	if _, err := d.clusters.Refresh(ctx, c.Name); err != nil {
		fmt.Fprintf(call.Out, "Cluster %s is on record again, but cannot be reached (%v): sky down gives it back, and sky start %s tries again.\n", c.Name, err, c.Name)
	}
	return c.Name, nil
}
