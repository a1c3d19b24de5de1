package fluffycloud

import (
	"context"
	"slices"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// WhenOff says what becomes of the cluster's machines that switch themselves
// off.
func (p *Provider) WhenOff(ctx context.Context, id cloud.ClusterID, ends bool) error {
	if id.Name == "" {
		return nil
	}
	machines, err := p.Machines(ctx, id)
	if err != nil {
		return err
	}
	machines = slices.DeleteFunc(machines, func(m vm.Machine) bool { return m.Detail.(fluffyapi.Instance).EndsWhenOff == ends })
	d := driver{p, refusals}
	err = d.each(ctx, machines, func(ctx context.Context, api fluffyapi.API, id string) (fluffyapi.Instance, error) {
		return api.SetWhenOff(ctx, id, fluffyapi.WhenOff{Ends: ends})
	})
	if k := d.Kind(err); err != nil && (k == vm.Missing || k == vm.Changed) {
		return nil // it has ended already
	}
	return p.Refused(ctx, cloud.Place{Cloud: Name}, err)
}

// SpotNotices lists the running machines that will be taken back.
func (p *Provider) SpotNotices(ctx context.Context, id cloud.ClusterID) ([]cloud.SpotNotice, error) {
	machines, err := p.Machines(ctx, id)
	if err != nil {
		return nil, err
	}
	var out []cloud.SpotNotice
	for _, m := range machines {
		if at := m.Detail.(fluffyapi.Instance).TakenBack; at != nil && m.State == vm.Running {
			out = append(out, cloud.SpotNotice{NodeID: m.ID, Rank: m.Rank(), At: *at})
		}
	}
	return out, nil
}
