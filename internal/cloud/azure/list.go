package azure

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// List finds the machines of a cluster in its resource groups, in the subscription and in
// those where some were listed. All of an installation, or of everybody, are looked for in the
// subscription with a few lists.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	a, err := d.account(ctx)
	if err != nil {
		return nil, err
	}
	if id.Name == "" {
		return d.machinesIn(ctx, a, "/subscriptions/"+a.subscription, id)
	}
	var all []vm.Machine
	for _, in := range d.accounts(a, id) {
		groups, err := d.groups(ctx, in, id, where)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			found, err := d.machinesIn(ctx, in, in.groupPath(g.Name), id)
			if err != nil && d.Kind(err) != vm.Missing { // the group is gone, or not there yet
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

// accounts are the subscription in use and those where machines of a cluster were listed.
func (d driver) accounts(a *account, id cloud.ClusterID) []*account {
	all := []*account{a}
	for _, subscription := range d.spread.Of(id) {
		all = append(all, a.in(subscription))
	}
	return all
}

// in is the account of another subscription that is reached with the same credentials; "": a.
func (a *account) in(subscription string) *account {
	if subscription == "" || strings.EqualFold(subscription, a.subscription) {
		return a
	}
	return &account{a.Client, a.login, subscription, true}
}

// ListAccounts lists the machines of an installation in all subscriptions that the credentials
// see and that are open: a list of what carries its tags for each, and a few more where there
// is something.
func (p *Provider) ListAccounts(ctx context.Context, installation string) ([]cloud.Node, []cloud.UnreadAccount, error) {
	a, err := p.account(ctx)
	if err != nil {
		return nil, nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	var unread []cloud.UnreadAccount
	all := []string{a.subscription}
	found, err := list[subscription](ctx, a, "/subscriptions", apiSubscriptions)
	if err != nil {
		unread = append(unread, cloud.UnreadAccount{Name: "subscriptions that are not in use", Found: true, Err: p.Refused(ctx, cloud.Place{Cloud: Name}, err)})
	}
	for _, s := range found {
		if s.open() == nil && !strings.EqualFold(s.ID, a.subscription) {
			all = append(all, s.ID)
		}
	}
	d, id := driver{p, refusals}, cloud.ClusterID{Installation: installation}
	nodes, failed := p.StopProvider.ListAccounts(ctx, &p.spread, all, func(ctx context.Context, subscription string) ([]vm.Machine, error) {
		in, scope := a.in(subscription), "/subscriptions/"+subscription
		if in.other {
			some, err := list[resource](ctx, in, scope+"/resources", apiResources, filter(id)...)
			if err != nil || len(some) == 0 {
				return nil, err
			}
		}
		return d.machinesIn(ctx, in, scope, id)
	})
	if err := failed[a.subscription]; err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		if err := failed[s]; err != nil {
			unread = append(unread, cloud.UnreadAccount{Name: s, Found: true, Err: err})
		}
	}
	return nodes, unread, nil
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
		if a.other {
			detail := of.Detail.(detail)
			detail.subscription = a.subscription
			of.Detail = detail
		}
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
