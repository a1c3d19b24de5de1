package fluffycloud

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Nodes lists the instances with the cluster's tags. Those that the cloud ended
// by itself are listed as a proof, until another machine has their rank.
func (p *Provider) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	instances, err := p.instances(ctx, id)
	if err != nil {
		return nil, err
	}
	return toNodes(instances)
}

func (p *Provider) instances(ctx context.Context, id cloud.ClusterID) ([]fluffyapi.Instance, error) {
	api, err := p.api()
	if err != nil {
		return nil, err
	}
	all, err := fluffyapi.All(ctx, fluffyapi.Query{Tags: id.Tags()}, api.Instances)
	if err != nil {
		return nil, translate(ctx, cloud.Place{Cloud: Name}, err)
	}
	// Without an installation the query also finds what is not ours at all.
	return slices.DeleteFunc(all, func(i fluffyapi.Instance) bool { return i.Tags[cloud.TagInstallation] == "" }), nil
}

func toNodes(instances []fluffyapi.Instance) ([]cloud.Node, error) {
	type seat struct {
		cluster, hash string
		rank          int
	}
	nodes := make([]cloud.Node, 0, len(instances))
	taken := map[seat]bool{}
	for _, i := range instances {
		n, ok, err := node(i)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if n.State != cloud.NodeGone {
			taken[seat{n.Cluster, n.Hash, n.Rank}] = true
		}
		nodes = append(nodes, n)
	}
	// The latest proof is the one that counts.
	slices.SortStableFunc(nodes, func(a, b cloud.Node) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Rank, b.Rank), b.Created.Compare(a.Created))
	})
	return slices.DeleteFunc(nodes, func(n cloud.Node) bool {
		s := seat{n.Cluster, n.Hash, n.Rank}
		gone := n.State == cloud.NodeGone && taken[s]
		taken[s] = true
		return gone
	}), nil
}

// Stop switches the cluster's machines off and waits until they are.
func (p *Provider) Stop(ctx context.Context, id cloud.ClusterID) error {
	return p.end(ctx, id, "the machines to stop", func(api fluffyapi.API, i fluffyapi.Instance) (busy bool, call func(context.Context) error) {
		switch i.State {
		case fluffyapi.Pending, fluffyapi.Running:
			return true, func(ctx context.Context) error { _, err := api.Stop(ctx, i.ID); return err }
		case fluffyapi.Stopping:
			return true, nil
		}
		return false, nil
	})
}

// Terminate ends the cluster's machines, waits until they have ended, and
// removes its firewall.
func (p *Provider) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if err := p.endMachines(ctx, id); err != nil || id.Name == "" {
		return err
	}
	api, err := p.api()
	if err != nil {
		return err
	}
	return p.until(ctx, "the firewall to be free", func(ctx context.Context) (bool, error) {
		left, err := p.firewalls(ctx, id)
		if err != nil {
			return false, err
		}
		for _, f := range left {
			err := api.DeleteFirewall(ctx, f.Name)
			switch codeOf(err) {
			case fluffyapi.InUse: // perhaps by a machine that was not listed before
				return false, p.endMachines(ctx, id)
			case fluffyapi.NotFound:
				continue
			}
			if err != nil {
				return false, translate(ctx, cloud.Place{Cloud: Name}, err)
			}
		}
		return true, nil
	})
}

// endMachines ends the machines that are listed and waits until they have ended.
func (p *Provider) endMachines(ctx context.Context, id cloud.ClusterID) error {
	return p.end(ctx, id, "the machines to end", func(api fluffyapi.API, i fluffyapi.Instance) (busy bool, call func(context.Context) error) {
		switch i.State {
		case fluffyapi.Terminated:
			return false, nil
		case fluffyapi.Terminating:
			return true, nil
		}
		return true, func(ctx context.Context) error { _, err := api.Terminate(ctx, i.ID); return err }
	})
}

// WhenOff says what becomes of the cluster's machines that switch themselves
// off.
func (p *Provider) WhenOff(ctx context.Context, id cloud.ClusterID, ends bool) error {
	if id.Name == "" {
		return nil
	}
	api, err := p.api()
	if err != nil {
		return err
	}
	instances, err := p.instances(ctx, id)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, i := range instances {
		if i.EndsWhenOff == ends {
			continue
		}
		g.Go(func() error {
			_, err := api.SetWhenOff(ctx, i.ID, fluffyapi.WhenOff{Ends: ends})
			switch codeOf(err) {
			case fluffyapi.NotFound, fluffyapi.WrongState:
				return nil // it has ended already
			}
			if err != nil {
				return translate(ctx, cloud.Place{Cloud: Name, Region: i.Region, Zone: i.Zone}, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// end brings every machine of a cluster to rest: each says whether it still
// has to change and which call begins that. Calls are begun for all machines or
// for none: a caller who leaves in the middle must not keep half of them running.
func (p *Provider) end(ctx context.Context, id cloud.ClusterID, what string,
	decide func(fluffyapi.API, fluffyapi.Instance) (busy bool, call func(context.Context) error)) error {
	if id.Name == "" {
		return nil // no cluster has no name; the tags of none would fit all
	}
	api, err := p.api()
	if err != nil {
		return err
	}
	leave, err := p.turns.take(ctx, key(id))
	if err != nil {
		return err
	}
	defer leave()
	return p.until(ctx, what, func(ctx context.Context) (bool, error) {
		instances, err := p.instances(ctx, id)
		if err != nil {
			return false, err
		}
		rest := true
		var calls []func(context.Context) error
		for _, i := range instances {
			if _, _, err := node(i); err != nil {
				return false, err
			}
			busy, call := decide(api, i)
			if busy {
				rest = false
			}
			if call != nil {
				calls = append(calls, func(ctx context.Context) error { return begun(ctx, i, call(ctx)) })
			}
		}
		if len(calls) == 0 {
			return rest, nil
		}
		return rest, cloud.Settled(ctx, func(ctx context.Context) error {
			var g errgroup.Group
			g.SetLimit(atOnce)
			for _, call := range calls {
				g.Go(func() error { return call(ctx) })
			}
			return g.Wait()
		})
	})
}

// begun is what the answer to a call about an instance means. One that changed
// since we looked is looked at again.
func begun(ctx context.Context, i fluffyapi.Instance, err error) error {
	switch codeOf(err) {
	case fluffyapi.NotFound, fluffyapi.WrongState:
		return nil
	}
	if err != nil {
		return translate(ctx, cloud.Place{Cloud: Name, Region: i.Region, Zone: i.Zone}, err)
	}
	return nil
}

// SpotNotices lists the running machines that will be taken back.
func (p *Provider) SpotNotices(ctx context.Context, id cloud.ClusterID) ([]cloud.SpotNotice, error) {
	instances, err := p.instances(ctx, id)
	if err != nil {
		return nil, err
	}
	var out []cloud.SpotNotice
	for _, i := range instances {
		if i.TakenBack == nil || i.State != fluffyapi.Running {
			continue
		}
		n, _, err := node(i)
		if err != nil {
			return nil, err
		}
		out = append(out, cloud.SpotNotice{NodeID: i.ID, Rank: n.Rank, At: *i.TakenBack})
	}
	return out, nil
}
