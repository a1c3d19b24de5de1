package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Azure for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// machine is a virtual machine as the API has it.
type machine struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Location string            `json:"location"`
	Tags     map[string]string `json:"tags"`
	Identity struct {
		Type string `json:"type"`
	} `json:"identity"`
	Properties struct {
		State    string    `json:"provisioningState"`
		Created  time.Time `json:"timeCreated"`
		Priority string    `json:"priority"`
		Hardware struct {
			Size string `json:"vmSize"`
		} `json:"hardwareProfile"`
		Network struct {
			Interfaces []reference `json:"networkInterfaces"`
		} `json:"networkProfile"`
		View struct {
			Statuses []status `json:"statuses"`
		} `json:"instanceView"`
	} `json:"properties"`
}

type reference struct {
	ID string `json:"id"`
}

// status is one of a machine's, such as {"PowerState/running"}, or
// {"ProvisioningState/failed/AllocationFailed"} with a message.
type status struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type networkInterface struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		Configurations []struct {
			Properties struct {
				Private string    `json:"privateIPAddress"`
				Public  reference `json:"publicIPAddress"`
			} `json:"properties"`
		} `json:"ipConfigurations"`
	} `json:"properties"`
}

type publicAddress struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		Address string `json:"ipAddress"`
	} `json:"properties"`
}

// detail is what only this driver needs to know of a machine.
type detail struct {
	group    string
	billed   bool // it is off and costs money as if it were not
	identity bool // it has one, by which it can give itself back
}

// List finds the machines of a cluster in its resource groups. All of an installation, or
// of everybody, are looked for in every subscription that has some: a few lists for each.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.Where) ([]vm.Machine, error) {
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

// machine reads what Azure says of one.
func (d driver) machine(m machine) vm.Machine {
	var power string
	var failed status
	for _, s := range m.Properties.View.Statuses {
		if p, ok := strings.CutPrefix(s.Code, "PowerState/"); ok {
			power = p
		}
		if strings.HasPrefix(strings.ToLower(s.Code), "provisioningstate/failed") {
			failed = s
		}
	}
	out := vm.Machine{
		ID: m.Name, Region: strings.ToLower(strings.ReplaceAll(m.Location, " ", "")), Type: m.Properties.Hardware.Size, Spot: m.Properties.Priority == "Spot",
		Tags: m.Tags, Created: m.Properties.Created,
		Reach: cloud.Reach{Method: "ssh", Port: 22, User: user},
	}
	out.Reach.ProxyCommand = settings(d.o.Settings()).proxy(out.Region)
	of := detail{group: groupOf(m.ID), identity: m.Identity.Type != "" && m.Identity.Type != "None"}
	if of.identity {
		out.Reach.Machine = cloud.MachinePowerOff
	}
	out.State, out.Said = state(m.Properties.State, power)
	switch {
	case power == "stopped":
		of.billed = true
		out.Reason = "it was switched off from inside, and Azure goes on charging for it until it is stopped with: sky stop"
	case power == "deallocated" && m.Properties.State == "Failed" && failed.Message != "":
		out.Reason = failed.Message
	case out.State == vm.Pending && m.Properties.State == "Failed":
		out.Failure = failure(failed)
	}
	out.Detail = of
	return out
}

// failure is why a machine will never run.
func failure(s status) error {
	parts := strings.Split(s.Code, "/")
	e := &rest.Error{Status: http.StatusBadRequest, Message: s.Message}
	if len(parts) > 2 {
		e.Code = parts[2]
	}
	if e.Message == "" {
		e.Message = "it could not be made, and Azure does not say why"
	}
	return e
}

// powers are Azure's words for whether a machine is on. One that is stopped is off and
// still has its place, and its price.
//
// https://learn.microsoft.com/azure/virtual-machines/states-billing
var powers = map[string]vm.State{
	"starting": vm.Pending, "running": vm.Running, "stopping": vm.Stopping, "stopped": vm.Stopped, "deallocating": vm.Stopping, "deallocated": vm.Stopped,
}

// provisioning are the words for what becomes of it.
var provisioning = map[string]vm.State{
	"Creating": vm.Pending, "Updating": vm.Pending, "Failed": vm.Pending, "Canceled": vm.Pending, "Migrating": vm.Pending, "Succeeded": vm.Unknown, "Deleting": vm.Ending,
}

// state is what a machine does, and the word that says so. A word that nobody knows is
// believed no more than the other one.
func state(provisioned, power string) (vm.State, string) {
	of, known := provisioning[provisioned]
	switch {
	case !known || of == vm.Ending:
		return of, provisioned
	case power != "" && power != "unknown":
		return powers[power], power
	case of == vm.Unknown:
		return of, provisioned + ", without a power state"
	}
	return of, provisioned
}

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
	return in(a.groupPath(of.group), machines, m.ID)
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
