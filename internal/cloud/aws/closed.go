package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// atOnce is how many calls are in flight at the same time.
const atOnce = 20

// find lists what exists of a cluster, wherever it is.
func (p *Provider) find(ctx context.Context, id cloud.ClusterID) ([]vm.Machine, error) {
	return p.regions.Find(ctx, id, vm.ListScope{})
}

// knows refuses a region that the account does not have or may not use. id is a
// cluster to look for where it is not known yet which regions those are.
func (p *Provider) knows(ctx context.Context, region string, id cloud.ClusterID) error {
	all, err := p.allRegions(ctx)
	if err != nil {
		return err
	}
	at := cloud.Place{Cloud: Name, Region: region}
	if !slices.Contains(all, region) {
		return &cloud.InvalidError{Place: at, Err: fmt.Errorf("the account has no region %q, or has not switched it on (in the console under Account, AWS Regions); it has %s", region, strings.Join(all, ", "))}
	}
	if entered, why := p.regions.Asked(region); !entered && why == nil {
		if _, err := p.regions.Find(ctx, id, vm.ListScope{Exhaustive: true}); err != nil {
			return err
		}
	}
	if _, why := p.regions.Asked(region); why != nil {
		return &cloud.PermissionError{Place: at, Err: fmt.Errorf("these credentials are good elsewhere and not in this region: it is not switched on, or the account's organization denies it: %w", why)}
	}
	return nil
}
