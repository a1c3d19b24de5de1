package lambda

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// open is the region whose machines have no firewall of Lambda's, and no private
// addresses.
const open = "us-south-1"

// ruleset is what may reach the machines that were launched with it.
type ruleset struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Region named  `json:"region"`
	Rules  []rule `json:"rules"`
}

type rule struct {
	Protocol    string `json:"protocol"`
	Ports       []int  `json:"port_range,omitempty"`
	Source      string `json:"source_network"`
	Description string `json:"description"`
}

// rulesets are the cluster's own in a region (everywhere for ""), by the name that only
// it has.
func rulesets(ctx context.Context, c *rest.Client, id cloud.ClusterID, region string) ([]ruleset, error) {
	all, err := call[[]ruleset](ctx, c, "GET", "/firewall-rulesets", nil)
	name := rulesetName(id)
	return slices.DeleteFunc(all, func(r ruleset) bool { return r.Name != name || region != "" && r.Region.Name != region }), err
}

func rulesetName(id cloud.ClusterID) string {
	return id.Name[:min(len(id.Name), 40)] + "-" + vm.Digest(id)
}

// Connect makes the cluster's ruleset. Machines keep those that they were launched with,
// so that there is one even if no ports are asked for yet.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	if spec.Offer.Region == open {
		cloud.Note(ctx, "Lambda has no firewall in "+open+": all ports of the machines are open to the world.")
		return nil
	}
	have, err := rulesets(ctx, c, spec.ID, spec.Offer.Region)
	if err != nil {
		return err
	}
	if len(have) > 0 {
		return allowIn(ctx, c, have[0], spec.Ports)
	}
	rules, err := withPorts(nil, append([]string{"22"}, spec.Ports...))
	if err != nil {
		return err
	}
	return cloud.Settled(ctx, func(ctx context.Context) error {
		_, err := call[ruleset](ctx, c, "POST", "/firewall-rulesets", map[string]any{"name": rulesetName(spec.ID), "region": spec.Offer.Region, "rules": rules})
		return err
	})
}

// OpenPorts adds ports to the cluster's ruleset.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	return p.Change(ctx, id, func() error {
		c, _, err := p.API()
		if err != nil {
			return err
		}
		have, err := rulesets(ctx, c, id, "")
		if err == nil && len(have) == 0 {
			machines, err := p.Machines(ctx, id)
			if err != nil || slices.ContainsFunc(machines, func(m vm.Machine) bool { return m.Region == open }) {
				return err // where there is no firewall all are open
			}
			return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("no machine of %s has a firewall of its own, and Lambda's machines keep those that they were launched with; launch it anew", id.Name)}
		}
		for _, r := range have {
			err = errors.Join(err, allowIn(ctx, c, r, ports))
		}
		return err
	})
}

// allowIn adds what a ruleset lacks.
func allowIn(ctx context.Context, c *rest.Client, r ruleset, ports []string) error {
	rules, err := withPorts(r.Rules, ports)
	if err != nil || len(rules) == len(r.Rules) {
		return err
	}
	_, err = call[ruleset](ctx, c, "PATCH", "/firewall-rulesets/"+url.PathEscape(r.ID), map[string]any{"rules": rules})
	return err
}

// withPorts are rules that let the world reach ports as well.
func withPorts(rules []rule, ports []string) ([]rule, error) {
	var open []vm.PortRange
	for _, r := range rules {
		if r.Protocol == "tcp" && r.Source == "0.0.0.0/0" && len(r.Ports) == 2 {
			open = append(open, vm.PortRange{First: r.Ports[0], Last: r.Ports[1]})
		}
	}
	lacks, err := vm.Lacking(Name, ports, open)
	for _, p := range lacks {
		rules = append(slices.Clip(rules), rule{Protocol: "tcp", Ports: []int{p.First, p.Last}, Source: "0.0.0.0/0", Description: "opened by sky"})
	}
	return rules, err
}

// Disconnect removes the cluster's rulesets.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	have, err := rulesets(ctx, c, id, "")
	if err != nil {
		return nil, err
	}
	return vm.Drop(ctx, &d.Account, d, have, func(r ruleset) (what, path, region string) {
		return "the firewall ruleset " + r.Name, "/firewall-rulesets/" + url.PathEscape(r.ID), ""
	})
}
