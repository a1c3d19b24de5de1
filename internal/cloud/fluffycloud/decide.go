package fluffycloud

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// step is what a launch does next.
type step struct {
	start  []string // ids to switch on
	create []int    // ranks that no instance has
	done   bool     // every rank runs
}

// next decides how to get from the cluster's instances to what spec asks for.
// Stopped ones are resumed before any is created, and what is on its way to
// stop or end is waited for. mine are the instances that this launch has
// touched: one of them that is gone was not to be had.
func next(spec cloud.LaunchSpec, instances []fluffyapi.Instance, mine map[string]bool) (step, error) {
	byRank := map[int]fluffyapi.Instance{}
	leaving := map[int]bool{}
	alive := 0
	for _, i := range instances {
		rank, err := strconv.Atoi(i.Tags[cloud.TagRank])
		if err != nil {
			return step{}, fmt.Errorf("instance %s carries the cluster's tags, but its rank is %q; terminate it in FluffyCloud", i.ID, i.Tags[cloud.TagRank])
		}
		switch i.State {
		case fluffyapi.Terminating, fluffyapi.Terminated:
			if mine[i.ID] {
				return step{}, &cloud.CapacityError{Place: spec.Offer.Place, Err: fmt.Errorf("%s was lost while it started (%s)", i.ID, reason(i))}
			}
			if i.State == fluffyapi.Terminating {
				leaving[rank] = true
			}
			continue
		}
		alive++
		if i.Zone != spec.Offer.Zone {
			return step{}, &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("the cluster has machines in %s already; a cluster is in one zone", i.Zone)}
		}
		byRank[rank] = i
	}
	if alive > spec.Nodes || alive != len(byRank) {
		return step{}, fmt.Errorf("%d machines carry this cluster's tags, but %d were asked for; they may be leaking. To remove them all, run: sky down %s",
			alive, spec.Nodes, spec.ID.Name)
	}
	var s step
	running, settled := 0, true
	for rank := range spec.Nodes {
		i, ok := byRank[rank]
		switch {
		case !ok && leaving[rank]: // its name is taken until it is gone
			settled = false
		case !ok:
			s.create = append(s.create, rank)
		case i.State == fluffyapi.Stopped:
			s.start = append(s.start, i.ID)
		case i.State == fluffyapi.Stopping:
			settled = false
		case i.State == fluffyapi.Running:
			running++
		case i.State == fluffyapi.Pending:
		default:
			return step{}, unknownState(i)
		}
	}
	if len(byRank) > 0 && len(s.create) > 0 && highest(byRank) >= spec.Nodes {
		return step{}, fmt.Errorf("machines of this cluster have ranks up to %d, but %d were asked for; to remove them all, run: sky down %s",
			highest(byRank), spec.Nodes, spec.ID.Name)
	}
	if len(s.start) > 0 || !settled {
		s.create = nil // resume first: a full zone must not cost what exists
	}
	s.done = running == spec.Nodes
	return s, nil
}

func highest(byRank map[int]fluffyapi.Instance) int {
	top := -1
	for rank := range byRank {
		top = max(top, rank)
	}
	return top
}

func reason(i fluffyapi.Instance) string {
	if i.Reason == "" {
		return "somebody terminated it"
	}
	return i.Reason
}

// unknownState is a broken answer: it proves nothing about the machine.
func unknownState(i fluffyapi.Instance) error {
	return &cloud.UnreachableError{Err: fmt.Errorf("%s is said to be %q, which is no state that this version of sky knows", i.ID, i.State)}
}

// node says in sky's words what an instance is; false for those that have
// ended because somebody asked for it.
func node(i fluffyapi.Instance) (cloud.Node, bool, error) {
	rank, err := strconv.Atoi(i.Tags[cloud.TagRank])
	if err != nil {
		return cloud.Node{}, false, fmt.Errorf("instance %s has the rank %q: %w", i.ID, i.Tags[cloud.TagRank], errors.Unwrap(err))
	}
	n := cloud.Node{
		ID: i.ID, Cluster: i.Tags[cloud.TagCluster], Hash: i.Tags[cloud.TagHash], Rank: rank,
		Place:      cloud.Place{Cloud: Name, Region: i.Region, Zone: i.Zone},
		InternalIP: i.PrivateIP, ExternalIP: i.PublicIP, Created: i.Created, Reason: i.Reason,
		About: cloud.AboutTags(i.Tags, i.Type, i.Spot),
		Reach: cloud.Reach{Method: "ssh", Host: i.PublicIP, Port: i.SSHPort, User: i.SSHUser, HostKey: i.HostKey, Machine: cloud.MachinePowerOff},
	}
	switch i.State {
	case fluffyapi.Pending:
		n.State = cloud.NodePending
	case fluffyapi.Running:
		n.State = cloud.NodeRunning
	case fluffyapi.Stopping:
		n.State = cloud.NodeStopping
	case fluffyapi.Stopped:
		n.State = cloud.NodeStopped
	case fluffyapi.Terminating, fluffyapi.Terminated:
		n.State = cloud.NodeGone
		return n, i.Reason != "", nil
	default:
		return n, false, unknownState(i)
	}
	return n, true, nil
}
