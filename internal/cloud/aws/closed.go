package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

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

// inRegions asks regions the same, several at once, and returns all answers. Regions that
// deny it while others do not are passed over.
func inRegions[T any](regions []string, ask func(region string) ([]T, error)) ([]T, []error) {
	found, errs := make([][]T, len(regions)), make([]error, len(regions))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for n, region := range regions {
		g.Go(func() error {
			found[n], errs[n] = ask(region)
			return nil
		})
	}
	g.Wait()
	denied := func(err error) bool { _, ok := errors.AsType[*cloud.PermissionError](err); return ok }
	answered := slices.Contains(errs, nil)
	return slices.Concat(found...), slices.DeleteFunc(errs, func(err error) bool { return err == nil || answered && denied(err) })
}
