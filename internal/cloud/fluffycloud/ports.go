package fluffycloud

import (
	"context"
	"fmt"
	"slices"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// OpenPorts adds ports to the firewall of a cluster that was prepared.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	return p.Change(ctx, id, func() error {
		old, err := p.firewalls(ctx, id)
		if err == nil && len(old) == 0 {
			err = &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no cluster %s", id.Name)}
		}
		if err != nil {
			return err
		}
		return p.openPorts(ctx, id, ports)
	})
}

func (p *Provider) openPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
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
	return api.PutFirewall(ctx, f)
}

func (p *Provider) firewalls(ctx context.Context, id cloud.ClusterID) ([]fluffyapi.Firewall, error) {
	api, err := p.api()
	if err != nil {
		return nil, err
	}
	return fluffyapi.All(ctx, fluffyapi.Query{Tags: id.Tags()}, api.Firewalls)
}
