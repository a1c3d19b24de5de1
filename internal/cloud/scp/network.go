package scp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

const (
	groups = "/security-group/v2/security-groups"
	walls  = "/firewall/v2/firewalls"
	world  = "0.0.0.0/0"
)

// groupName is that of a cluster's security group, which has letters and digits only, at most
// 20. What its rules say of themselves begins so.
func groupName(id cloud.ClusterID) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, id.Name)
	return "sky" + name[:min(len(name), 5)] + vm.Digest(id)
}

// network is one of the project's with a gateway to the internet and public subnets.
type network struct {
	vpc, group string // group is the cluster's; "": it has none there
	subnets    []string
}

// part is something of a network, or of the cluster in it, as the API has it.
type part struct {
	VPC       string `json:"vpcId"`
	VPCState  string `json:"vpcState"`
	Gateway   string `json:"internetGatewayState"`
	Subnet    string `json:"subnetId"`
	State     string `json:"subnetState"`
	Ready     string `json:"securityGroupState"`
	Group     string `json:"securityGroupId"`
	GroupName string `json:"securityGroupName"`
	Wall      string `json:"firewallId"`
}

// networks are those of a region that a cluster can be in, those with its security group
// first, and the region's zone.
func (d driver) networks(ctx context.Context, c *rest.Client, id cloud.ClusterID, region string) (in string, found []network, err error) {
	keys, err := d.Read()
	if err != nil {
		return "", nil, err
	}
	zones, err := d.zones(ctx, c, d.Stamp(keys))
	n := slices.IndexFunc(zones, func(z zone) bool { return z.Name == region })
	if at := (cloud.Place{Cloud: Name, Region: region}); err == nil && n < 0 {
		err = &cloud.InvalidError{Place: at, Err: fmt.Errorf("the project has no service zone %q", region)}
	}
	if err != nil {
		return "", nil, err
	}
	in = zones[n].ID
	var lists [4][]part
	for i, l := range [][2]string{{"/vpc/v2/vpcs", "&serviceZoneId=" + url.QueryEscape(in)}, {"/internet-gateway/v2/internet-gateways", ""}, {"/subnet/v2/subnets", "&subnetTypes=PUBLIC"}, {groups, "&securityGroupName=" + groupName(id)}} {
		if lists[i], err = list[part](ctx, c, l[0], l[1]); err != nil {
			return "", nil, err
		}
	}
	for _, v := range lists[0] {
		n := network{vpc: v.VPC}
		for _, s := range lists[2] {
			if s.VPC == v.VPC && s.State == "ACTIVE" {
				n.subnets = append(n.subnets, s.Subnet)
			}
		}
		for _, g := range lists[3] {
			if g.VPC == v.VPC && g.GroupName == groupName(id) {
				n.group = g.Group
			}
		}
		out := slices.ContainsFunc(lists[1], func(g part) bool { return g.VPC == v.VPC && g.Gateway == "ATTACHED" })
		if v.VPCState == "ACTIVE" && out && len(n.subnets) > 0 {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		err = &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: region}, Err: errors.New("the project has no VPC there with an internet gateway and a public subnet; make them at https://cloud.samsungsds.com (Networking)")}
	}
	slices.SortFunc(found, func(a, b network) int {
		return cmp.Or(strings.Compare(b.group, a.group), strings.Compare(a.vpc, b.vpc))
	})
	return in, found, err
}

// Connect makes the cluster's security group, in the first network that takes it.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	zone, nets, err := d.networks(ctx, c, spec.ID, spec.Offer.Region)
	if err != nil {
		return err
	}
	for i := 0; nets[0].group == "" && i < len(nets); i++ {
		err = cloud.Settled(ctx, func(ctx context.Context) error {
			_, err := d.do(ctx, c, "POST", "/security-group/v3/security-groups", map[string]any{"loggable": false, "securityGroupName": groupName(spec.ID), "serviceZoneId": zone, "vpcId": nets[i].vpc})
			return err
		})
		if m := d.Means(err); err == nil || m != vm.Invalid && m != vm.OverQuota {
			break
		}
	}
	if err == nil {
		_, nets, err = d.networks(ctx, c, spec.ID, spec.Offer.Region)
	}
	if err == nil && nets[0].group == "" {
		err = &rest.NoAnswerError{Cloud: displayName, Err: errors.New("a new security group is not listed")}
	}
	if err != nil {
		return err
	}
	_, err = rest.Await(ctx, d.Tuning.Poll, func(ctx context.Context) (part, bool, error) {
		g, err := rest.Do[part](ctx, c, "GET", groups+"/"+url.PathEscape(nets[0].group), nil)
		return g, g.Ready == "ACTIVE", err
	})
	return err
}

// rule is one of a security group or of a firewall.
type rule struct {
	ID        string   `json:"ruleId"`
	About     string   `json:"ruleDescription"`
	Direction string   `json:"ruleDirection"`
	State     string   `json:"ruleState"`
	From      []string `json:"sourceIpAddresses"`
	To        []string `json:"destinationIpAddresses"`
	port      string   // or ports; "": everything
	addresses []string // those of the other side for a security group, of servers for a firewall
}

// inward is what the rules about ports of a cluster begin with.
func inward(id cloud.ClusterID) string { return groupName(id) + " in " }

// passing are rules for what comes to the ports, and for all that goes out.
func passing(id cloud.ClusterID, ports, addresses []string) ([]rule, error) {
	open, err := vm.PortRanges(Name, ports)
	want := []rule{{About: groupName(id) + " out", Direction: "OUT", addresses: addresses}}
	for _, p := range open {
		want = append(want, rule{About: inward(id) + p.String(), Direction: "IN", port: p.String(), addresses: addresses})
	}
	return want, err
}

// allow makes the rules that are lacking at a security group or a firewall, one after the
// other, and waits until they hold.
func (d driver) allow(ctx context.Context, c *rest.Client, at string, want []rule) error {
	late := &cloud.UnreachableError{Err: &cloud.OverdueError{Err: fmt.Errorf("waited %v for the rules at %s to hold", d.Tuning.Timeout, at)}}
	ctx, cancel := context.WithTimeoutCause(ctx, d.Tuning.Timeout, late)
	defer cancel()
	for _, w := range want {
		asked := false
		if _, err := rest.Await(ctx, d.Tuning.Poll, func(ctx context.Context) (_ any, done bool, err error) {
			have, err := list[rule](ctx, c, at+"/rules", "")
			lacks, ready := w, true
			lacks.addresses = slices.Clone(w.addresses)
			for _, h := range have {
				if h.About == w.About {
					lacks.addresses = slices.DeleteFunc(lacks.addresses, func(a string) bool { return slices.Contains(h.From, a) || slices.Contains(h.To, a) })
					ready = ready && h.State == "ACTIVE"
				}
			}
			if err != nil || len(lacks.addresses) == 0 || asked {
				return nil, len(lacks.addresses) == 0 && ready, err
			}
			asked = true
			return nil, false, cloud.Settled(ctx, func(ctx context.Context) error {
				_, err := d.do(ctx, c, "POST", at+"/rules", lacks.body(strings.HasPrefix(at, walls)))
				return err
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r rule) body(wall bool) map[string]any {
	service := map[string]string{"serviceType": "ALL"}
	if r.port != "" {
		service = map[string]string{"serviceType": "TCP", "serviceValue": r.port}
	}
	other, own := "sourceIpAddresses", "destinationIpAddresses"
	if r.Direction == "OUT" {
		other, own = own, other
	}
	body := map[string]any{"ruleDirection": r.Direction, "services": []any{service}, "ruleDescription": r.About, other: r.addresses}
	if wall {
		body[other], body[own], body["ruleAction"], body["isRuleEnabled"], body["ruleLocationType"] = []string{world}, r.addresses, "ALLOW", true, "FIRST"
	}
	return body
}

// Launch lets the world reach the servers, once they have addresses.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	nodes, err := p.StopProvider.Launch(ctx, spec)
	if err == nil {
		err = p.OpenPorts(ctx, spec.ID, append([]string{"22"}, spec.Ports...))
	}
	return nodes, err
}

// OpenPorts adds ports to the security group of the cluster, and lets firewalls pass what that
// does.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	d := driver{p, p.Refusals}
	c, _, err := p.API()
	if err != nil {
		return p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	var machines []vm.Machine
	return vm.OpenIn(ctx, p.Provider, id, func() (own []part, err error) {
		if machines, err = p.Machines(ctx, id); err == nil && len(machines) > 0 {
			own, err = list[part](ctx, c, groups, "&securityGroupName="+groupName(id))
		}
		return own, err
	}, func(own part) error { return d.pass(ctx, c, id, own, ports, machines) })
}

// pass lets the security group of a cluster pass everything between its servers, everything to
// the outside, and what comes to ports; and the firewalls of its network, what the group does.
func (d driver) pass(ctx context.Context, c *rest.Client, id cloud.ClusterID, own part, ports []string, machines []vm.Machine) error {
	var addresses []string
	for _, m := range machines {
		if s := m.Detail.(server); s.VPC == own.VPC && s.IP != "" {
			addresses = append(addresses, s.IP)
		}
	}
	at := groups + "/" + url.PathEscape(own.Group)
	want, err := passing(id, ports, []string{world})
	if err == nil {
		err = d.allow(ctx, c, at, append(want, rule{About: groupName(id) + " within", Direction: "IN", addresses: addresses}))
	}
	if err != nil {
		return err
	}
	have, err := list[rule](ctx, c, at+"/rules", "")
	if err != nil {
		return err
	}
	ports = nil
	for _, r := range have {
		if port, ok := strings.CutPrefix(r.About, inward(id)); ok {
			ports = append(ports, port)
		}
	}
	if want, err = passing(id, ports, addresses); err != nil {
		return err
	}
	all, err := list[part](ctx, c, walls, "&vpcId="+url.QueryEscape(own.VPC))
	for i := 0; err == nil && i < len(all); i++ {
		err = d.allow(ctx, c, walls+"/"+url.PathEscape(all[i].Wall), want)
	}
	return err
}

// shut removes the cluster's rules of all firewalls, and returns of which. One that is being
// changed is not waited for: servers that are to be deleted go on costing money.
func (d driver) shut(ctx context.Context, id cloud.ClusterID) (left []string, err error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := list[part](ctx, c, walls, "")
	for i := 0; err == nil && i < len(all); i++ {
		at := walls + "/" + url.PathEscape(all[i].Wall) + "/rules"
		have, err2 := list[rule](ctx, c, at, "")
		var ids []string
		for _, r := range have {
			if strings.HasPrefix(r.About, groupName(id)+" ") {
				ids = append(ids, r.ID)
			}
		}
		if err = err2; len(ids) == 0 || err != nil {
			continue
		}
		left = append(left, "the rules of the firewall "+all[i].Wall)
		if _, err = rest.Do[any](ctx, c, "DELETE", at, map[string]any{"ruleDeletionType": "PARTIAL", "ruleIds": ids}); d.Kind(err) == vm.Missing || d.Kind(err) == vm.Busy {
			err = nil // the next look tells
		}
	}
	return left, err
}

// Disconnect removes the cluster's rules of firewalls, and its security groups.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	if left, err = d.shut(ctx, id); err != nil {
		return nil, err
	}
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := list[part](ctx, c, groups, "&securityGroupName="+groupName(id))
	if err != nil {
		return nil, err
	}
	some, err := vm.Drop(ctx, &d.Account, d, all, func(g part) (what, path, region string) {
		return "the security group " + g.GroupName, groups + "/" + url.PathEscape(g.Group), ""
	})
	return append(left, some...), err
}
