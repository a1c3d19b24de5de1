package azure

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

type securityGroup struct {
	ID         string            `json:"id,omitempty"`
	Name       string            `json:"name,omitempty"`
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		Rules []rule `json:"securityRules"`
	} `json:"properties"`
}

type rule struct {
	Name       string   `json:"name"`
	Properties ruleText `json:"properties"`
}

type ruleText struct {
	Protocol    string   `json:"protocol"`
	Source      string   `json:"sourceAddressPrefix,omitempty"`
	SourcePort  string   `json:"sourcePortRange,omitempty"`
	Destination string   `json:"destinationAddressPrefix,omitempty"`
	Port        string   `json:"destinationPortRange,omitempty"`
	Ports       []string `json:"destinationPortRanges,omitempty"`
	Access      string   `json:"access"`
	Priority    int      `json:"priority"`
	Direction   string   `json:"direction"`
}

const firstPriority = 1000

// allow is a rule that lets the world reach ports.
func allow(name string, priority int, ports ...string) rule {
	return rule{name, ruleText{Protocol: "Tcp", Source: "*", SourcePort: "*", Destination: "*", Ports: ports, Access: "Allow", Priority: priority, Direction: "Inbound"}}
}

// next is a rule for those of the ports that no rule lets in yet; false: all are open.
func (g securityGroup) next(cluster string, ports []string) (rule, bool) {
	priority := firstPriority
	open := map[string]bool{}
	for _, r := range g.Properties.Rules {
		if r.Properties.Direction != "Inbound" {
			continue
		}
		priority = max(priority, r.Properties.Priority)
		if r.Properties.Access == "Allow" {
			for _, p := range append(r.Properties.Ports, r.Properties.Port) {
				open[p] = true
			}
		}
	}
	missing := slices.DeleteFunc(slices.Clone(ports), func(p string) bool { return open[p] })
	slices.Sort(missing)
	missing = slices.Compact(missing)
	priority++
	return allow(fmt.Sprintf("sky-ports-%s-%d", cluster, priority), priority, missing...), len(missing) > 0
}

// ensureSecurity makes the cluster's security group, or adds to it the ports that it
// lacks: what was opened since is kept.
func (d driver) ensureSecurity(ctx context.Context, a *account, spec cloud.LaunchSpec, group string) error {
	name := shared(spec.ID, group, "nsg")
	path := in(a.groupPath(group), securityGroups, name)
	have, err := get[securityGroup](ctx, a, path, apiNetwork)
	if err != nil && d.Kind(err) != vm.Missing {
		return err
	}
	if err == nil {
		return d.addRule(ctx, a, path, have, spec.ID.Name, spec.Ports)
	}
	g := securityGroup{Location: spec.Offer.Region, Tags: d.settings(spec).tags(spec, -1)}
	g.Properties.Rules = []rule{allow("sky-ssh", firstPriority, "22")}
	if r, ok := g.next(spec.ID.Name, spec.Ports); ok {
		g.Properties.Rules = append(g.Properties.Rules, r)
	}
	return a.put(ctx, path, apiNetwork, g)
}

func (d driver) addRule(ctx context.Context, a *account, path string, g securityGroup, cluster string, ports []string) error {
	r, ok := g.next(cluster, ports)
	if !ok {
		return nil
	}
	return a.put(ctx, path+"/securityRules/"+r.Name, apiNetwork, map[string]any{"properties": r.Properties})
}

// put makes something and waits until it is there.
func (a *account) put(ctx context.Context, path, version string, body any) error {
	op, err := a.change(ctx, "PUT", path, version, body)
	if err != nil {
		return err
	}
	return a.wait(ctx, op, version)
}

// OpenPorts lets the world reach ports of a cluster, besides those that are open.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	for _, r := range ports {
		if _, _, err := cloud.PortRange(r); err != nil {
			return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
		}
	}
	return p.Change(ctx, id, func() error {
		d := driver{p, refusals}
		a, err := p.account(ctx)
		if err != nil {
			return err
		}
		all, err := d.groups(ctx, a, id, vm.ListScope{Exhaustive: true})
		if err != nil {
			return err
		}
		found := false
		for _, g := range all {
			path := in(a.groupPath(g.Name), securityGroups, shared(id, g.Name, "nsg"))
			have, err := get[securityGroup](ctx, a, path, apiNetwork)
			if err != nil && d.Kind(err) == vm.Missing {
				continue
			}
			if err == nil {
				err = d.addRule(ctx, a, path, have, id.Name, ports)
			}
			if err != nil {
				return err
			}
			found = true
		}
		if !found {
			return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no cluster %s", id.Name)}
		}
		return nil
	})
}

type network struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Location   string `json:"location"`
	Properties struct {
		Subnets []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"subnets"`
	} `json:"properties"`
}

// subnet is where the machines of a cluster are: in the network that the user names, else
// in the cluster's own, which is made if it is to be.
func (d driver) subnet(ctx context.Context, a *account, spec cloud.LaunchSpec, group string, make bool) (id string, err error) {
	s := d.settings(spec)
	if name := s.text("vpc_name"); name != "" {
		return d.usersSubnet(ctx, a, spec.Offer.Place, group, name)
	}
	name := shared(spec.ID, group, "vnet")
	path := in(a.groupPath(group), networks, name)
	sub := shared(spec.ID, group, "subnet")
	if !make {
		return path + "/subnets/" + sub, nil
	}
	if _, err := get[network](ctx, a, path, apiNetwork); err == nil || d.Kind(err) != vm.Missing {
		return path + "/subnets/" + sub, err
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	block := fmt.Sprintf("10.%d.0.0/16", 1+h.Sum32()%254)
	return path + "/subnets/" + sub, a.put(ctx, path, apiNetwork, map[string]any{
		"location": spec.Offer.Region, "tags": s.tags(spec, -1),
		"properties": map[string]any{
			"addressSpace": map[string]any{"addressPrefixes": []string{block}},
			"subnets":      []any{map[string]any{"name": sub, "properties": map[string]any{"addressPrefix": block}}},
		},
	})
}

// usersSubnet is the first subnet of a network of that name: in the machines' group, else
// of the only such network in the region.
func (d driver) usersSubnet(ctx context.Context, a *account, at cloud.Place, group, name string) (string, error) {
	all, err := list[network](ctx, a, in("/subscriptions/"+a.subscription, networks), apiNetwork)
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(n network) bool {
		return !strings.EqualFold(n.Name, name) || !strings.EqualFold(strings.ReplaceAll(n.Location, " ", ""), at.Region)
	})
	if i := slices.IndexFunc(all, func(n network) bool { return strings.EqualFold(groupOf(n.ID), group) }); i >= 0 {
		all = all[i : i+1]
	}
	var why string
	switch {
	case len(all) == 0:
		why = fmt.Sprintf("there is no virtual network %q in %s (azure.vpc_name)", name, at.Region)
	case len(all) > 1:
		why = fmt.Sprintf("%d virtual networks in %s are called %q (azure.vpc_name); name the resource group of one in azure.resource_group_vm", len(all), at.Region, name)
	case len(all[0].Properties.Subnets) == 0:
		why = fmt.Sprintf("the virtual network %q (azure.vpc_name) has no subnet", name)
	default:
		return all[0].Properties.Subnets[0].ID, nil
	}
	return "", &cloud.InvalidError{Place: cloud.Place{Cloud: at.Cloud, Region: at.Region}, Err: errors.New(why)}
}

// attach makes the interface of a machine, with an address that the world reaches unless
// the machine is to be internal. It returns the interface's path.
func (d driver) attach(ctx context.Context, a *account, l *launch, rank int) (string, error) {
	name, scope := machineName(l.spec.ID, rank), a.groupPath(l.group)
	tags := l.settings.tags(l.spec, rank)
	kind := "-nic-private"
	ip := map[string]any{"subnet": reference{l.subnet}, "privateIPAllocationMethod": "Dynamic"}
	if !l.settings.internal() {
		kind = "-nic-public"
		address := in(scope, addresses, name+"-ip")
		if err := a.put(ctx, address, apiNetwork, map[string]any{
			"location": l.spec.Offer.Region, "tags": tags, "sku": map[string]string{"name": "Standard"},
			"properties": map[string]any{"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
		}); err != nil {
			return "", err
		}
		ip["publicIPAddress"] = map[string]any{"id": address, "properties": map[string]string{"deleteOption": "Delete"}}
	}
	path := in(scope, interfaces, name+kind)
	return path, a.put(ctx, path, apiNetwork, map[string]any{
		"location": l.spec.Offer.Region, "tags": tags,
		"properties": map[string]any{
			"ipConfigurations":     []any{map[string]any{"name": "ipconfig", "properties": ip}},
			"networkSecurityGroup": reference{in(scope, securityGroups, shared(l.spec.ID, l.group, "nsg"))},
		},
	})
}
