package fluffycloud

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// atOnce is how many calls of one cluster are in flight.
const atOnce = 8

// Prepare makes the cluster's firewall.
func (p *Provider) Prepare(ctx context.Context, spec cloud.LaunchSpec) error {
	if err := validName(spec.ID.Name); err != nil {
		return &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
	}
	leave, err := p.turns.take(ctx, key(spec.ID))
	if err != nil {
		return err
	}
	defer leave()
	return p.openPorts(ctx, spec.ID, spec.Offer.Place, spec.Ports)
}

// OpenPorts adds ports to the firewall of a cluster that was prepared.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	leave, err := p.turns.take(ctx, key(id))
	if err != nil {
		return err
	}
	defer leave()
	old, err := p.firewalls(ctx, id)
	if err != nil {
		return err
	}
	if len(old) == 0 {
		return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no cluster %s", id.Name)}
	}
	return p.openPorts(ctx, id, cloud.Place{Cloud: Name}, ports)
}

func (p *Provider) openPorts(ctx context.Context, id cloud.ClusterID, at cloud.Place, ports []string) error {
	api, err := p.api()
	if err != nil {
		return err
	}
	old, err := p.firewalls(ctx, id)
	if err != nil {
		return err
	}
	f := fluffyapi.Firewall{Name: firewallName(id), Tags: id.Tags()}
	for _, o := range old {
		f.Ports = append(f.Ports, o.Ports...)
	}
	f.Ports = append(f.Ports, ports...)
	slices.Sort(f.Ports)
	f.Ports = slices.Compact(f.Ports)
	if len(old) == 1 && slices.Equal(f.Ports, old[0].Ports) {
		return nil
	}
	if err := api.PutFirewall(ctx, f); err != nil {
		return translate(ctx, at, err)
	}
	return nil
}

func (p *Provider) firewalls(ctx context.Context, id cloud.ClusterID) ([]fluffyapi.Firewall, error) {
	api, err := p.api()
	if err != nil {
		return nil, err
	}
	list, err := fluffyapi.All(ctx, fluffyapi.Query{Tags: id.Tags()}, api.Firewalls)
	if err != nil {
		return nil, translate(ctx, cloud.Place{Cloud: Name}, err)
	}
	return list, nil
}

// Launch looks, decides and acts until every rank runs.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := validName(spec.ID.Name); err != nil {
		return nil, &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
	}
	if spec.Nodes < 1 || spec.Token == "" || spec.ID.Hash == "" || spec.ID.Installation == "" {
		return nil, errors.New("a launch needs nodes, a token and a whole cluster id")
	}
	leave, err := p.turns.take(ctx, key(spec.ID))
	if err != nil {
		return nil, err
	}
	defer leave()
	var nodes []cloud.Node
	mine := map[string]bool{}
	err = p.until(ctx, "the machines to run", func(ctx context.Context) (bool, error) {
		instances, err := p.instances(ctx, spec.ID)
		if err != nil {
			return false, err
		}
		s, err := next(spec, instances, mine)
		switch {
		case err != nil:
			return false, err
		case s.done:
			nodes, err = toNodes(instances)
			nodes = slices.DeleteFunc(nodes, func(n cloud.Node) bool { return n.State == cloud.NodeGone })
			return true, err
		}
		return false, p.act(ctx, spec, s, mine)
	})
	return nodes, err
}

// act starts and creates. After a refusal nothing more is begun, and what is
// in flight is waited for, so that no machine comes to be after Launch returns.
func (p *Provider) act(ctx context.Context, spec cloud.LaunchSpec, s step, mine map[string]bool) error {
	api, err := p.api()
	if err != nil {
		return err
	}
	touched := make(chan string, len(s.start)+len(s.create))
	var refused atomic.Bool
	var g errgroup.Group
	g.SetLimit(atOnce)
	begin := func(f func() (fluffyapi.Instance, error)) {
		g.Go(func() error {
			if refused.Load() {
				return nil
			}
			i, err := f()
			switch codeOf(err) {
			case fluffyapi.NameTaken, fluffyapi.WrongState, fluffyapi.NotFound:
				return nil // it changed since we looked; look again
			}
			if err != nil {
				refused.Store(true)
				return translate(ctx, spec.Offer.Place, err)
			}
			touched <- i.ID
			return nil
		})
	}
	for _, id := range s.start {
		begin(func() (fluffyapi.Instance, error) {
			return settled(ctx, func(ctx context.Context) (fluffyapi.Instance, error) {
				return api.Start(ctx, id, fluffyapi.Start{SSHKey: spec.AuthorizedKey})
			})
		})
	}
	for _, rank := range s.create {
		begin(func() (fluffyapi.Instance, error) {
			return settled(ctx, func(ctx context.Context) (fluffyapi.Instance, error) { return create(ctx, api, spec, rank) })
		})
	}
	err = g.Wait()
	close(touched)
	for id := range touched {
		mine[id] = true
	}
	return err
}

// settled is [cloud.Settled] for a call with an answer.
func settled(ctx context.Context, call func(context.Context) (fluffyapi.Instance, error)) (fluffyapi.Instance, error) {
	answer := make(chan fluffyapi.Instance, 1)
	if err := cloud.Settled(ctx, func(ctx context.Context) error {
		i, err := call(ctx)
		answer <- i
		return err
	}); err != nil {
		return fluffyapi.Instance{}, err
	}
	return <-answer, nil
}

// create asks for the instance of a rank. A token of this attempt may have made
// one that is gone by now; the next token follows from that one.
func create(ctx context.Context, api fluffyapi.API, spec cloud.LaunchSpec, rank int) (fluffyapi.Instance, error) {
	token := fmt.Sprintf("%s-%d", spec.Token, rank)
	for {
		i, err := api.Create(ctx, fluffyapi.Create{
			ClientToken: token,
			Name:        fmt.Sprintf("%s-%s-%d", spec.ID.Name, digest(spec.ID), rank),
			Zone:        spec.Offer.Zone, Type: spec.Offer.InstanceType, Spot: spec.Offer.Spot,
			Tags: tagsOf(spec, rank), SSHKey: spec.AuthorizedKey, Firewall: firewallName(spec.ID),
			DiskGB: spec.DiskGB, Image: spec.ImageID,
		})
		if err != nil || i.State != fluffyapi.Terminated && i.State != fluffyapi.Terminating {
			return i, err
		}
		token = fmt.Sprintf("%s-%d-%s", spec.Token, rank, i.ID)
	}
}

// tagsOf is what the instance of a rank carries.
func tagsOf(spec cloud.LaunchSpec, rank int) map[string]string {
	tags := spec.RecordTags()
	maps.Copy(tags, spec.NodeTags(rank))
	return tags
}

// until repeats f until it reports that all is done. Waits end with the context
// or after the provider's timeout.
func (p *Provider) until(ctx context.Context, what string, f func(context.Context) (done bool, err error)) error {
	limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	// Soon at first: some calls are through at once.
	for wait := p.o.Poll / 8; ; wait = min(2*wait, p.o.Poll) {
		cloud.Waits(ctx, what)
		done, err := f(limited)
		switch {
		case done || err != nil && limited.Err() == nil:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case limited.Err() != nil:
			return &cloud.UnreachableError{Err: &cloud.OverdueError{Err: fmt.Errorf("waited %v for %s", p.o.Timeout, what)}}
		}
		again := time.NewTimer(wait)
		select {
		case <-limited.Done():
		case <-again.C:
		}
		again.Stop()
	}
}

// digest tells apart what names alone do not: installations and incarnations.
func digest(id cloud.ClusterID) string {
	sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Name + "\x00" + id.Hash))
	return fmt.Sprintf("%x", sum[:6])
}

func firewallName(id cloud.ClusterID) string { return id.Name + "-" + digest(id) }

func key(id cloud.ClusterID) string { return id.Installation + "\x00" + id.Name }

func validName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("a cluster's name has 1 to %d bytes, %q has %d", maxName, name, len(name))
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-') {
			return fmt.Errorf("%q holds %q; the names of FluffyCloud have small letters, digits and dashes", name, r)
		}
	}
	return nil
}
