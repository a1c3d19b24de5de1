package vm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Nodes lists the machines with the cluster's tags. Those that the cloud ended by
// itself are listed as a proof, until another machine has their rank.
func (p *Provider) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	list, err := p.list(ctx, id, ListScope{})
	if err != nil {
		return nil, err
	}
	return p.nodes(list), nil
}

// Machines lists the machines of a cluster that exist or are proofs, as the driver
// has them.
func (p *Provider) Machines(ctx context.Context, id cloud.ClusterID) ([]Machine, error) {
	return p.list(ctx, id, ListScope{})
}

// list asks the driver. All that it returns has a known state and a tag of an
// installation.
func (p *Provider) list(ctx context.Context, id cloud.ClusterID, where ListScope) ([]Machine, error) {
	list, err := p.d.List(ctx, id, where)
	if err != nil {
		return nil, p.refusal(ctx, p.at(where.Region), err)
	}
	return checked(list)
}

// checked is what a driver listed, with ranks, without what is not ours.
func checked(list []Machine) ([]Machine, error) {
	// Without an installation the question also finds what is not ours at all.
	list = slices.DeleteFunc(list, func(m Machine) bool { return m.Tags[cloud.TagInstallation] == "" })
	for i := range list {
		m := &list[i]
		if m.State == Unknown { // a broken answer: it proves nothing about the machine
			return nil, &cloud.UnreachableError{Err: fmt.Errorf("%s is said to be %q, which is no state that this version of sky knows", m.ID, m.RawState)}
		}
		late := func(h Host) bool { return h.Reach.Method == "ssh" && h.Reach.Host == "" }
		if m.State == Running && slices.ContainsFunc(m.hosts(), late) { // its addresses come late
			m.State = Pending
		}
		m.rank = -1
		if r, err := strconv.Atoi(m.Tags[cloud.TagRank]); err == nil && r >= 0 {
			m.rank = r
		}
	}
	return list, nil
}

type incarnation struct{ cluster, hash string }

// nodes says in the words of package cloud what the machines are.
func (p *Provider) nodes(list []Machine) []cloud.Node {
	byCluster := map[incarnation][]Machine{}
	for _, m := range list {
		c := incarnation{m.Tags[cloud.TagCluster], m.Tags[cloud.TagHash]}
		byCluster[c] = append(byCluster[c], m)
	}
	nodes := make([]cloud.Node, 0, len(list))
	type place struct {
		incarnation
		rank int
	}
	taken := map[place]bool{}
	for c, machines := range byCluster {
		assignRanks(machines)
		for _, m := range machines {
			if !m.State.exists() && (!m.Reclaimed || m.rank < 0) {
				continue
			}
			about, hosts := cloud.AboutTags(m.Tags, m.Type, m.Spot), m.hosts()
			about.Hosts = len(m.Hosts)
			for i, h := range hosts {
				n := cloud.Node{
					ID: m.hostID(i), Cluster: c.cluster, Hash: c.hash, Rank: m.rank*len(hosts) + i, State: m.State.node(),
					Place:      cloud.Place{Cloud: p.o.Cloud, Region: m.Region, Zone: m.Zone},
					InternalIP: cmp.Or(h.PrivateIP, h.PublicIP), ExternalIP: h.PublicIP, Created: m.Created, Reason: m.Reason,
					About: about, Reach: h.Reach,
				}
				if m.Key != "" && n.Reach.HostAlias == "" { // what is another since its start has another host key
					n.Reach.HostAlias = cloud.HostAlias(c.hash, m.ID)
				}
				if n.State != cloud.NodeGone {
					taken[place{c, n.Rank}] = true
				}
				nodes = append(nodes, n)
			}
		}
	}
	// The latest proof is the one that counts.
	slices.SortStableFunc(nodes, func(a, b cloud.Node) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Rank, b.Rank), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return slices.DeleteFunc(nodes, func(n cloud.Node) bool {
		s := place{incarnation{n.Cluster, n.Hash}, n.Rank}
		superseded := n.State == cloud.NodeGone && taken[s]
		taken[s] = true
		return superseded
	})
}

// assignRanks gives ranks to the machines of one cluster that exist and have none:
// the lowest that are free, in the order of their age. It changes the list and
// returns the ranks that it gave, by machine.
func assignRanks(list []Machine) map[string]int {
	taken := map[int]bool{}
	var without []*Machine
	for i := range list {
		switch m := &list[i]; {
		case !m.State.exists():
		case m.rank >= 0:
			taken[m.rank] = true
		default:
			without = append(without, m)
		}
	}
	slices.SortFunc(without, func(a, b *Machine) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Order, b.Order), cmp.Compare(a.ID, b.ID))
	})
	given := map[string]int{}
	next := 0
	for _, m := range without {
		for taken[next] {
			next++
		}
		taken[next] = true
		m.rank = next
		given[m.ID] = next
	}
	return given
}

// Rank is the machine's place in its cluster by its tag; -1: it has none yet.
func (m Machine) Rank() int { return m.rank }

// key is what a machine is known by.
func (m Machine) key() string { return cmp.Or(m.Key, m.ID) }

// existing is how many of the machines are there, on or off.
func existing(list []Machine) int {
	n := 0
	for _, m := range list {
		if m.State.exists() {
			n++
		}
	}
	return n
}

// InZone reports whether the machine is in the zone; "" is any.
func (m Machine) InZone(zone string) bool {
	return zone == "" || strings.EqualFold(zone, m.Zone) || m.ZoneID != "" && strings.EqualFold(zone, m.ZoneID)
}
