package gcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// subnet is where machines are put.
type subnet struct {
	Name    string `json:"name"`
	URL     string `json:"selfLink"`
	Network string `json:"network"` // URL of the VPC
	Purpose string `json:"purpose"`
}

// ownNetwork is the VPC that is made where none lets the machines in. It and its rules
// are the project's: they stay when clusters go.
const ownNetwork = "skypilot-vpc"

// internalRange are the addresses of the subnets of such a VPC, and of the default one.
//
// https://cloud.google.com/vpc/docs/subnets#ip-ranges
const internalRange = "10.128.0.0/9"

const anywhere = "0.0.0.0/0"

type allowed struct {
	Protocol string   `json:"IPProtocol"`
	Ports    []string `json:"ports,omitempty"`
}

// firewall is a rule of a VPC.
type firewall struct {
	Name        string    `json:"name,omitempty"`
	Description string    `json:"description,omitempty"`
	Network     string    `json:"network,omitempty"`
	Direction   string    `json:"direction,omitempty"`
	Priority    int       `json:"priority,omitempty"`
	Sources     []string  `json:"sourceRanges,omitempty"`
	TargetTags  []string  `json:"targetTags,omitempty"`
	Accounts    []string  `json:"targetServiceAccounts,omitempty"`
	Disabled    bool      `json:"disabled,omitempty"`
	Allowed     []allowed `json:"allowed,omitempty"`
}

// lastRule is the priority of our rules: any of the user's comes before them.
const lastRule = 65534

// rule is one of ours for a VPC of ours.
func rule(project, network, name, from string, what ...allowed) firewall {
	return firewall{Name: network + "-" + name, Description: "Made by sky", Network: "projects/" + project + "/global/networks/" + network, Direction: "INGRESS", Priority: lastRule,
		Sources: []string{from}, Allowed: what}
}

// internalRule lets the machines of a VPC reach each other.
func internalRule(project, network string) firewall {
	return rule(project, network, "allow-custom", internalRange, allowed{"tcp", []string{"0-65535"}}, allowed{"udp", []string{"0-65535"}}, allowed{"icmp", nil})
}

// ownRules are those of [ownNetwork], which let the world reach their ssh, too.
func ownRules(project string) []firewall {
	return []firewall{
		internalRule(project, ownNetwork),
		rule(project, ownNetwork, "allow-ssh", anywhere, allowed{"tcp", []string{"22"}}),
		rule(project, ownNetwork, "allow-icmp", anywhere, allowed{"icmp", nil}),
	}
}

// vpc is the project and the name of the VPC that the settings name.
func (s Settings) vpc(project string) (of, name string) {
	if of, name, ok := strings.Cut(s.VPC, "/"); ok {
		return of, name
	}
	return project, s.VPC
}

// network finds the subnet that machines are put into: of the VPC or of the names that
// the settings have, else of the first VPC whose rules let the machines in, else of a
// VPC of our own, which is made.
func (d driver) network(ctx context.Context, a *account, spec cloud.LaunchSpec, s Settings) (subnet, error) {
	in := spec.Offer.Region
	project, vpc := s.vpc(a.project)
	all, err := a.subnets(ctx, project, in)
	if err != nil {
		return subnet{}, err
	}
	if vpc != "" || len(s.Subnets) > 0 {
		return chosen(all, spec.Offer.Place, s, project, vpc)
	}
	asked := map[string]bool{}
	for _, sub := range all {
		if asked[sub.Network] || between(path.Base(sub.Network)) {
			continue
		}
		asked[sub.Network] = true
		ok, err := a.letsIn(ctx, path.Base(sub.Network), names.Cluster(spec.ID))
		if err != nil {
			return subnet{}, err
		}
		if ok {
			return sub, nil
		}
	}
	return d.ownSubnet(ctx, a, in)
}

// subnets are those of a region that machines can be in.
func (a *account) subnets(ctx context.Context, project, region string) (all []subnet, err error) {
	err = pages(ctx, a.compute, a.in(project, "/regions/%s/subnetworks", region), url.Values{"maxResults": {"500"}}, func(page struct {
		Items []subnet `json:"items"`
		Next  string   `json:"nextPageToken"`
	}) string {
		all = append(all, page.Items...)
		return page.Next
	})
	return slices.DeleteFunc(all, func(s subnet) bool { return !slices.Contains([]string{"", "PRIVATE", "PRIVATE_RFC_1918"}, s.Purpose) }), err
}

// chosen is the subnet that the settings name.
func chosen(all []subnet, at cloud.Place, s Settings, project, vpc string) (subnet, error) {
	fit := slices.DeleteFunc(slices.Clone(all), func(sub subnet) bool {
		return vpc != "" && path.Base(sub.Network) != vpc || len(s.Subnets) > 0 && !slices.Contains(s.Subnets, sub.Name)
	})
	if len(fit) > 0 {
		return fit[0], nil
	}
	return subnet{}, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: at.Region}, Err: fmt.Errorf("the project %s has no subnet in %s that is%s%s (gcp.vpc_name and gcp.subnet_names in the configuration)",
		project, at.Region, orNothing(" in the VPC ", vpc), orNothing(" one of ", strings.Join(s.Subnets, ", ")))}
}

func orNothing(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// letsIn reports whether the rules of a VPC let its machines reach each other and the
// world reach their ssh. tag is what machines carry.
func (a *account) letsIn(ctx context.Context, vpc, tag string) (bool, error) {
	effective, err := rest.Do[struct {
		Rules []firewall `json:"firewalls"`
	}](ctx, a.compute, "GET", a.on("/global/networks/%s/getEffectiveFirewalls", vpc), nil)
	if missing(err) {
		return false, nil
	}
	return lets(effective.Rules, tag, internalRange, "tcp", 0, 65535) && lets(effective.Rules, tag, internalRange, "udp", 0, 65535) &&
		lets(effective.Rules, tag, anywhere, "tcp", 22, 22), err
}

// lets reports whether one of the rules lets a range of addresses reach ports of the
// machines with a tag.
func lets(rules []firewall, tag, from, protocol string, first, last int) bool {
	return slices.ContainsFunc(rules, func(r firewall) bool {
		if r.Direction != "INGRESS" && r.Direction != "" || r.Disabled || len(r.Accounts) > 0 || len(r.TargetTags) > 0 && !slices.Equal(r.TargetTags, []string{tag}) {
			return false
		}
		return slices.ContainsFunc(r.Sources, func(source string) bool { return within(from, source) }) &&
			slices.ContainsFunc(r.Allowed, func(w allowed) bool {
				return w.Protocol == "all" || w.Protocol == protocol && (len(w.Ports) == 0 || slices.ContainsFunc(w.Ports, func(ports string) bool {
					a, b, _ := strings.Cut(ports, "-")
					if b == "" {
						b = a
					}
					return number(a) <= first && last <= number(b)
				}))
			})
	})
}

// number reads a port; one that is none is beyond all others.
func number(s string) int {
	var n int
	if _, err := fmt.Sscan(s, &n); err != nil {
		return 1 << 20
	}
	return n
}

// within reports whether a range of addresses is part of another.
func within(inner, outer string) bool {
	in, err1 := netip.ParsePrefix(inner)
	out, err2 := netip.ParsePrefix(outer)
	return err1 == nil && err2 == nil && out.Bits() <= in.Bits() && out.Contains(in.Addr())
}

// ensure makes something of the project's, if it is not there. path is below the project's.
func (a *account) ensure(ctx context.Context, path string, body any) error {
	return cloud.Settled(ctx, func(ctx context.Context) error {
		if err := a.finish(ctx, a.project, "POST", a.on("")+path, body); err != nil && !exists(err) {
			return err
		}
		return nil
	})
}

// ensureRule makes a rule of a VPC, which another launch may be making.
func (d driver) ensureRule(ctx context.Context, a *account, r firewall) error {
	return d.persist(ctx, func() (bool, error) {
		err := a.ensure(ctx, "/global/firewalls", r)
		return !said(err, "resourceNotReady", "RESOURCE_NOT_READY") && !missing(err), err
	})
}

// ownSubnet makes our own VPC, or what it lacks, and gives its subnet in the region.
func (d driver) ownSubnet(ctx context.Context, a *account, in string) (subnet, error) {
	cloud.ReportWait(ctx, "Google Cloud to make the network "+ownNetwork)
	err := a.ensure(ctx, "/global/networks", map[string]any{
		"name": ownNetwork, "description": "Made by sky", "autoCreateSubnetworks": true, "mtu": 1460, "routingConfig": map[string]any{"routingMode": "GLOBAL"},
	})
	if err != nil {
		return subnet{}, err
	}
	for _, r := range ownRules(a.project) {
		if err := d.ensureRule(ctx, a, r); err != nil {
			return subnet{}, err
		}
	}
	var found subnet
	err = d.persist(ctx, func() (bool, error) {
		all, err := a.subnets(ctx, a.project, in)
		i := slices.IndexFunc(all, func(s subnet) bool { return path.Base(s.Network) == ownNetwork })
		if i >= 0 {
			found = all[i]
		}
		return err != nil || i >= 0, err
	})
	if err == nil && found.URL == "" {
		err = &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: in}, Err: fmt.Errorf("the VPC %s has no subnet in %s; make one, or name another VPC (gcp.vpc_name in the configuration)", ownNetwork, in)}
	}
	return found, err
}

// mostTries is how often something is looked at again that comes to be meanwhile.
const mostTries = 30

// persist calls try until it says that this was the last time, or its error counts.
func (d driver) persist(ctx context.Context, try func() (last bool, err error)) error {
	tries := 0
	_, err := rest.Await(ctx, d.o.Poll, func(context.Context) (struct{}, bool, error) {
		last, err := try()
		if tries++; !last && tries < mostTries {
			return struct{}{}, false, nil
		}
		return struct{}{}, true, err
	})
	return err
}

func portsName(id cloud.ClusterID) string     { return "sky-ports-" + names.Cluster(id) }
func placementName(id cloud.ClusterID) string { return "sky-place-" + names.Cluster(id) }

// compact reports whether machines are to be near each other.
func compact(spec cloud.LaunchSpec, s Settings) bool {
	return (s.Placement == "compact" || s.fabric(spec) != fabric{}) && tpuName(spec.Offer) == "" && !s.flex(spec.Offer)
}

// Connect makes what the machines need: the networks, the service account, the rule for
// the ports, the policy for their placement.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	if err := d.sameProject(spec); err != nil {
		return err
	}
	a, err := d.api(ctx)
	if err != nil {
		return err
	}
	s := d.settings(spec)
	sub, err := d.network(ctx, a, spec, s)
	if err != nil {
		return err
	}
	if _, err := d.ensureCards(ctx, a, spec, s); err != nil {
		return err
	}
	if err := d.ensureIdentity(ctx, a, s); err != nil {
		return err
	}
	if len(spec.Ports) > 0 {
		if err := d.openPorts(ctx, a, spec.ID, sub.Network, spec.Ports); err != nil {
			return err
		}
	}
	if !compact(spec, s) {
		return nil
	}
	return d.making(ctx, spec.ID, func(ctx context.Context) error {
		return a.finish(ctx, a.project, "POST", a.on("/regions/%s/resourcePolicies", spec.Offer.Region), map[string]any{
			"name": placementName(spec.ID), "description": "Made by sky", "groupPlacementPolicy": map[string]any{"collocation": "COLLOCATED"},
		})
	})
}

// making makes something of a cluster's, or nothing if it is there. One that may have come
// to be without an answer is looked for when the cluster goes.
func (d driver) making(ctx context.Context, id cloud.ClusterID, call func(context.Context) error) error {
	err := cloud.Settled(ctx, call)
	switch {
	case exists(err):
		return nil
	case err != nil && !refused(err):
		d.Recent().Lost(id)
	}
	return err
}

// openPorts lets the world reach ports of the cluster's machines, besides those that are
// open.
func (d driver) openPorts(ctx context.Context, a *account, id cloud.ClusterID, network string, ports []string) error {
	if of := projectOf(network); of != "" && of != a.project {
		return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("the VPC %s belongs to the project %s, whose firewall sky leaves alone; let the world reach the ports %s of machines with the network tag %s there, and take the ports out of the task",
			path.Base(network), of, strings.Join(ports, ", "), names.Cluster(id))}
	}
	name := portsName(id)
	for range mostChanges {
		have, err := rest.Do[firewall](ctx, a.compute, "GET", a.on("/global/firewalls/%s", name), nil)
		if err != nil && !missing(err) {
			return err
		}
		merged, err2 := withPorts(have.Allowed, ports)
		if err2 != nil {
			return err2
		}
		switch {
		case missing(err):
			created := false
			err := d.making(ctx, id, func(ctx context.Context) error {
				err := a.finish(ctx, a.project, "POST", a.on("/global/firewalls"), firewall{
					Name: name, Description: "Made by sky", Network: network, Direction: "INGRESS", Priority: lastRule, Sources: []string{anywhere},
					TargetTags: []string{names.Cluster(id)}, Allowed: merged,
				})
				created = !exists(err)
				return err
			})
			if err != nil || created {
				return err
			}
		case len(merged) == len(have.Allowed) && slices.EqualFunc(merged, have.Allowed, func(a, b allowed) bool { return slices.Equal(a.Ports, b.Ports) }):
			return nil
		default:
			return a.finish(ctx, a.project, "PATCH", a.on("/global/firewalls/%s", name), firewall{Allowed: merged})
		}
	}
	return &rest.NoAnswerError{Cloud: "Google Cloud", Err: errors.New("the firewall rule " + name + " exists and cannot be read")}
}

// mostChanges is how often a change is begun anew that somebody else made meanwhile.
const mostChanges = 5

// projectOf is the project of something by its URL.
func projectOf(link string) string {
	_, rest, ok := strings.Cut("/"+link, "/projects/")
	if !ok {
		return ""
	}
	of, _, _ := strings.Cut(rest, "/")
	return of
}

// withPorts is what a rule allows, with ports that it lacks.
func withPorts(have []allowed, ports []string) ([]allowed, error) {
	tcp := allowed{Protocol: "tcp"}
	for _, w := range have {
		if w.Protocol == "tcp" {
			tcp.Ports = append(tcp.Ports, w.Ports...)
		}
	}
	for _, p := range ports {
		from, to, err := cloud.PortRange(p)
		if err != nil {
			return nil, err
		}
		text := fmt.Sprint(from)
		if to != from {
			text = fmt.Sprintf("%d-%d", from, to)
		}
		if !slices.Contains(tcp.Ports, text) {
			tcp.Ports = append(tcp.Ports, text)
		}
	}
	return []allowed{tcp}, nil
}

// OpenPorts lets the world reach ports of a cluster that runs.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	return p.Change(ctx, id, func() error {
		machines, err := p.Machines(ctx, id)
		if err != nil {
			return err
		}
		for _, m := range machines {
			if detail := m.Detail.(about); detail.network != "" && id.Name != "" {
				a, err := p.api(ctx)
				if err != nil {
					return err
				}
				return driver{p, refusals}.openPorts(ctx, a, id, detail.network, ports)
			}
		}
		return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no cluster %s", id.Name)}
	})
}

// Disconnect removes the group of machines with its template, the rule for the cluster's ports and the policy for its placement,
// whichever there are, in all projects where the cluster was.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	a, err := d.api(ctx)
	if err != nil {
		return nil, err
	}
	for _, project := range append(d.spread.Of(id), a.project) {
		more, err := d.disconnect(ctx, d.of(a, project), id)
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	if len(left) == 0 {
		d.known.forget(id)
	}
	return left, nil
}

// disconnect is Disconnect in one project.
func (d driver) disconnect(ctx context.Context, a *account, id cloud.ClusterID) (left []string, err error) {
	if err := a.clearTPUs(ctx, d, id); err != nil {
		return nil, err
	}
	if left, err := a.endGroups(ctx, id); err != nil || len(left) > 0 {
		return left, err
	}
	links := []string{a.on("/global/firewalls/%s", portsName(id))}
	query := url.Values{"filter": {fmt.Sprintf("name=%q", placementName(id))}, "returnPartialSuccess": {"true"}}
	err = pages(ctx, a.compute, a.on("/aggregated/resourcePolicies"), query, func(page struct {
		Items map[string]struct {
			Policies []struct {
				Name   string `json:"name"`
				Region string `json:"region"`
			} `json:"resourcePolicies"`
		} `json:"items"`
		Next string `json:"nextPageToken"`
	}) string {
		for _, scope := range page.Items {
			for _, p := range scope.Policies {
				if p.Name == placementName(id) {
					links = append(links, a.on("/regions/%s/resourcePolicies/%s", path.Base(p.Region), p.Name))
				}
			}
		}
		return page.Next
	})
	if err != nil && !missing(err) {
		return nil, err
	}
	return vm.Remove(d, links, func(link string) string { return path.Base(path.Dir(link)) + "/" + path.Base(link) }, func(link string) error {
		return a.finish(ctx, a.project, "DELETE", link, nil)
	})
}
