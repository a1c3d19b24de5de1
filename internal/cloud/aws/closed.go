package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Some regions let nobody in: those that the account has not switched on, and
// those that the account's organization denies. Nothing of ours can be there, so
// they are passed over. One that has let us in before is another matter: machines
// may be there, and that they cannot be seen any more is an error.

// answers takes in what the regions have said to the same question, one error
// each, and returns what says nothing about the region itself.
func (a *access) answers(regions []string, errs []error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shut == nil {
		a.shut = map[string]error{}
	}
	if a.entered == nil {
		a.entered = map[string]bool{}
	}
	anywhere := slices.Contains(errs, nil)
	var first error
	more := 0
	for i, region := range regions {
		err := errs[i]
		var auth *cloud.AuthError
		var forbidden *cloud.PermissionError
		switch {
		case err == nil:
			a.entered[region] = true
			delete(a.shut, region)
		case anywhere && !a.entered[region] && (errors.As(err, &auth) || errors.As(err, &forbidden)):
			a.shut[region] = err
		default:
			if first == nil {
				first = err
			} else {
				more++
			}
		}
	}
	if more > 0 {
		return fmt.Errorf("%w (and %d more regions say so or the like)", first, more)
	}
	return first
}

// openRegions are the account's regions but those that let nobody in.
func (p *Provider) openRegions(ctx context.Context) ([]string, error) {
	all, err := p.allRegions(ctx)
	if err != nil {
		return nil, err
	}
	p.access.mu.Lock()
	defer p.access.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(region string) bool { return p.access.shut[region] != nil }), nil
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
	if entered, why := p.access.asked(region); !entered && why == nil {
		if _, err := p.findEverywhere(ctx, id); err != nil {
			return err
		}
	}
	if _, why := p.access.asked(region); why != nil {
		return &cloud.PermissionError{Place: at, Err: fmt.Errorf("these credentials are good elsewhere and not in this region: it is not switched on, or the account's organization denies it: %w", why)}
	}
	return nil
}

// asked tells what a region has said last: that it lets us in, or why not.
func (a *access) asked(region string) (entered bool, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.entered[region], a.shut[region]
}
