package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Delete begins to end machines, with their disks, interfaces and addresses.
func (d driver) Delete(ctx context.Context, id cloud.ClusterID, list []vm.Machine) error {
	a, err := d.account(ctx)
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, list, func(ctx context.Context, m vm.Machine) error {
		_, err := a.change(ctx, "DELETE", a.machinePath(d.Provider, id, m), apiCompute, nil, "forceDeletion", "true")
		return err
	})
}

// machinePath is that of a machine, which may be in no list yet.
func (a *account) machinePath(p *Provider, id cloud.ClusterID, m vm.Machine) string {
	of, _ := m.Detail.(detail)
	if of.group == "" {
		of.group = settings(p.o.Settings()).groupFor(id, m.Region)
	}
	return in(a.in(of.subscription).groupPath(of.group), machines, m.ID)
}

// Start switches machines on, and waits until Azure has found room for all.
func (d driver) Start(ctx context.Context, spec cloud.LaunchSpec, list []vm.Machine) error {
	return d.power(ctx, spec.ID, list, "start", true)
}

// Stop gives the places of machines back, and keeps their disks.
func (d driver) Stop(ctx context.Context, id cloud.ClusterID, list []vm.Machine) error {
	return d.power(ctx, id, list, "deallocate", false)
}

func (d driver) power(ctx context.Context, id cloud.ClusterID, list []vm.Machine, verb string, wait bool) error {
	a, err := d.account(ctx)
	if err != nil {
		return err
	}
	operations := make([]*operation, len(list))
	index := map[string]int{}
	for i, m := range list {
		index[m.ID] = i
	}
	err = vm.Each(ctx, d, list, func(ctx context.Context, m vm.Machine) (err error) {
		operations[index[m.ID]], err = a.change(ctx, "POST", a.machinePath(d.Provider, id, m)+"/"+verb, apiCompute, nil)
		return err
	})
	if err != nil || !wait {
		return err
	}
	return errors.Join(a.waitAll(ctx, operations)...)
}

// answersWithin is how long Azure may take to say that there is no room. What takes longer
// is looked for in lists.
const answersWithin = 3 * time.Minute

// waitAll waits for operations about machines, and returns an error for each. Only what
// Azure says of one that failed is an error: of the others lists tell.
func (a *account) waitAll(ctx context.Context, operations []*operation) []error {
	errs := make([]error, len(operations))
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var g sync.WaitGroup
	for i, op := range operations {
		g.Go(func() {
			var refused *rest.Error
			if err := a.wait(ctx, op, apiCompute); errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
				errs[i] = err
			}
		})
	}
	g.Wait()
	return errs
}

// Stop gives back the places of the cluster's machines, also of those that were switched
// off from inside.
func (p *Provider) Stop(ctx context.Context, id cloud.ClusterID) error {
	if id.Name == "" {
		return nil
	}
	if err := p.releaseBilled(ctx, id); err != nil {
		return err
	}
	return p.StopProvider.Stop(ctx, id)
}

func (p *Provider) releaseBilled(ctx context.Context, id cloud.ClusterID) error {
	list, err := p.Machines(ctx, id)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(m vm.Machine) bool { of, _ := m.Detail.(detail); return !of.billed })
	if len(list) == 0 {
		return nil
	}
	return p.Change(ctx, id, func() error {
		d := driver{p, refusals}
		if err := d.Stop(ctx, id, list); err != nil && d.Kind(err) != vm.Missing {
			return fmt.Errorf("giving back machines that were switched off from inside: %w", err)
		}
		return nil
	})
}

// WhenOff says what becomes of the cluster's machines that switch themselves off: a tag
// that the machine reads by itself then (see off.sh).
func (p *Provider) WhenOff(ctx context.Context, id cloud.ClusterID, ends bool) error {
	if id.Name == "" {
		return nil
	}
	return p.Change(ctx, id, func() error {
		d := driver{p, refusals}
		a, err := p.account(ctx)
		if err != nil {
			return err
		}
		list, err := d.List(ctx, id, vm.ListScope{})
		if err != nil {
			return err
		}
		want := strconv.FormatBool(ends)
		list = slices.DeleteFunc(list, func(m vm.Machine) bool {
			return m.State == vm.Ending || m.State == vm.Ended || m.Tags[tagEnds] == want || !ends && m.Tags[tagEnds] == ""
		})
		return vm.Each(ctx, d, list, func(ctx context.Context, m vm.Machine) error {
			tags := maps.Clone(m.Tags)
			tags[tagEnds] = want
			op, err := a.change(ctx, "PATCH", a.machinePath(p, id, m), apiCompute, map[string]any{"tags": tags})
			if err == nil {
				err = a.wait(ctx, op, apiCompute)
			}
			if err != nil && d.Kind(err) == vm.Missing {
				return nil // it has ended already
			}
			return err
		})
	})
}
