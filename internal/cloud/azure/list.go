package azure

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// List finds the machines of a cluster in its resource groups. All of an installation, or
// of everybody, are looked for in every subscription that has some: a few lists for each.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	a, err := d.account(ctx)
	if err != nil {
		return nil, err
	}
	if id.Name == "" {
		return d.everywhere(ctx, a, id)
	}
	groups, err := d.groups(ctx, a, id, where)
	if err != nil {
		return nil, err
	}
	var all []vm.Machine
	for _, g := range groups {
		found, err := d.machinesIn(ctx, a, a.groupPath(g.Name), id)
		if err != nil && d.Kind(err) != vm.Missing { // the group is gone, or not there yet
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (d driver) everywhere(ctx context.Context, a *account, id cloud.ClusterID) ([]vm.Machine, error) {
	subscriptions, err := list[subscription](ctx, a, "/subscriptions", apiSubscriptions)
	if err != nil {
		return nil, err
	}
	var all []vm.Machine
	for _, s := range subscriptions {
		own := strings.EqualFold(s.ID, a.subscription)
		if !own && s.open() != nil {
			continue
		}
		there := &account{a.Client, a.login, s.ID}
		if !own { // machines in a group of the user's are looked for where sky works only
			groups, err := list[resource](ctx, there, "/subscriptions/"+s.ID+"/resourcegroups", apiResources, filter(id)...)
			if err != nil {
				return nil, err
			}
			if len(groups) == 0 {
				continue
			}
		}
		found, err := d.machinesIn(ctx, there, "/subscriptions/"+s.ID, id)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// machinesIn lists those of a cluster in a group or a subscription.
func (d driver) machinesIn(ctx context.Context, a *account, scope string, id cloud.ClusterID) ([]vm.Machine, error) {
	found, err := list[machine](ctx, a, in(scope, machines), apiCompute)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(m machine) bool { return !id.Has(m.Tags) || m.Tags[cloud.TagInstallation] == "" })
	if len(found) == 0 {
		return nil, nil
	}
	var nics []networkInterface
	var ips []publicAddress
	views := make([]*machine, len(found))
	var g errgroup.Group
	g.SetLimit(atOnce)
	g.Go(func() (err error) {
		nics, err = list[networkInterface](ctx, a, in(scope, interfaces), apiNetwork)
		return err
	})
	g.Go(func() (err error) {
		ips, err = list[publicAddress](ctx, a, in(scope, addresses), apiNetwork)
		return err
	})
	if strings.Contains(scope, "/resourceGroups/") {
		for i, m := range found {
			g.Go(func() error {
				seen, err := get[machine](ctx, a, in(scope, machines, m.Name), apiCompute, "$expand", "instanceView")
				if err == nil {
					views[i] = &seen
				} else if d.Kind(err) == vm.Missing { // it has ended meanwhile
					err = nil
				}
				return err
			})
		}
	} else {
		g.Go(func() error { // the states of all, in one list
			states, err := list[machine](ctx, a, in(scope, machines), apiCompute, "statusOnly", "true")
			for i, m := range found {
				for _, s := range states {
					if strings.EqualFold(s.ID, m.ID) {
						seen := m
						seen.Properties.View = s.Properties.View
						views[i] = &seen
					}
				}
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	byID := map[string]networkInterface{}
	for _, n := range nics {
		byID[strings.ToLower(n.ID)] = n
	}
	public := map[string]string{}
	for _, ip := range ips {
		public[strings.ToLower(ip.ID)] = ip.Properties.Address
	}
	var all []vm.Machine
	for _, m := range views {
		if m == nil {
			continue
		}
		of := d.machine(*m)
		for _, n := range m.Properties.Network.Interfaces {
			for _, c := range byID[strings.ToLower(n.ID)].Properties.Configurations {
				of.PrivateIP, of.PublicIP = c.Properties.Private, public[strings.ToLower(c.Properties.Public.ID)]
			}
		}
		of.Reach.Host = of.PublicIP
		if settings(d.o.Settings()).internal() || of.PublicIP == "" {
			of.Reach.Host = of.PrivateIP
		}
		all = append(all, of)
	}
	return all, nil
}

// atOnce is how many calls are in flight for one list.
const atOnce = 16
