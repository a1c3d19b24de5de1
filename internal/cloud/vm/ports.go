package vm

import (
	"context"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Change makes a change to what belongs to a cluster, while no other call of this
// process does. Its error is one of package cloud.
func (p *Provider) Change(ctx context.Context, id cloud.ClusterID, change func() error) error {
	done, err := p.turns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return p.refusal(ctx, p.at(""), change())
}
