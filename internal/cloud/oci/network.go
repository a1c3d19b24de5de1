package oci

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// thing is a part of a network as the API has it, or an image.
type thing struct {
	ID        string            `json:"id"`
	Name      string            `json:"displayName"`
	State     string            `json:"lifecycleState"`
	VCN       string            `json:"vcnId"`
	Tags      map[string]string `json:"freeformTags"`
	Routes    string            `json:"defaultRouteTableId"`
	Security  string            `json:"defaultSecurityListId"`
	NoPublic  bool              `json:"prohibitPublicIpOnVnic"`
	OfNetwork string            `json:"cidrBlock"`

	region string
}

// What all clusters share in a compartment of a region.
const (
	vcnName, vcnBlock       = "skypilot_vcn", "192.168.0.0/16"
	gatewayName             = "skypilot_vcn_internet_gateway"
	subnetName, subnetBlock = "skypilot_subnet", "192.168.0.0/18"
	anywhere                = "0.0.0.0/0"
)

// things are those of a kind in a compartment, with a name; "": all.
func things(ctx context.Context, c *rest.Client, kind, compartment, name string, more ...string) ([]thing, error) {
	q := url.Values{"compartmentId": {compartment}}
	if name != "" {
		q.Set("displayName", name)
	}
	if len(more) > 0 {
		q.Set("vcnId", more[0])
	}
	all, err := pages[thing](ctx, c, "/"+kind, q)
	all = slices.DeleteFunc(all, func(t thing) bool { return t.State == "TERMINATING" || t.State == "TERMINATED" })
	slices.SortFunc(all, func(a, b thing) int { return cmp.Compare(a.ID, b.ID) })
	return all, err
}

// ensure is the thing with a name, which is made of body if it is missing; nil: it has to be
// there.
func ensure(ctx context.Context, c *rest.Client, kind, compartment, name string, body map[string]any, vcn ...string) (made thing, err error) {
	have, err := things(ctx, c, kind, compartment, name, vcn...)
	if err != nil || len(have) > 0 {
		return append(have, thing{})[0], err
	}
	if body == nil {
		return made, &rest.Error{Status: http.StatusNotFound, Message: name + " is not there"}
	}
	body["compartmentId"], body["displayName"] = compartment, name
	if len(vcn) > 0 {
		body["vcnId"] = vcn[0]
	}
	err = cloud.Settled(ctx, func(ctx context.Context) error {
		made, err = rest.Do[thing](ctx, c, "POST", "/"+kind, body)
		return err
	})
	return made, err
}

// subnet is where the instances of a launch are: what the settings say, or sky's own, which
// is made if make says so.
func (p *Provider) subnet(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec, compartment string, make bool) (thing, error) {
	if id := vm.Setting(spec.Settings, "vcn_subnet"); id != "" {
		return rest.Do[thing](ctx, c, "GET", "/subnets/"+url.PathEscape(id), nil)
	}
	vcn := vm.Setting(spec.Settings, "vcn_ocid")
	switch {
	case vcn != "":
		all, err := things(ctx, c, "subnets", compartment, "", vcn)
		i := slices.IndexFunc(all, func(t thing) bool { return !t.NoPublic && t.VCN == vcn })
		if err == nil && i < 0 {
			err = &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("oci.region_configs: the network %s has no public subnet in the compartment %s", vcn, compartment)}
		}
		if err != nil {
			return thing{}, err
		}
		return all[i], nil
	case make:
		return p.own(ctx, c, compartment)
	}
	return ensure(ctx, c, "subnets", compartment, subnetName, nil)
}

// own is sky's subnet, with a network around it.
func (p *Provider) own(ctx context.Context, c *rest.Client, compartment string) (thing, error) {
	p.network.Lock()
	defer p.network.Unlock()
	vcn, err := ensure(ctx, c, "vcns", compartment, vcnName, map[string]any{"cidrBlock": vcnBlock, "dnsLabel": "skypilotvcn"})
	if err != nil {
		return thing{}, err
	}
	subnets, err := things(ctx, c, "subnets", compartment, subnetName, vcn.ID)
	if err != nil || len(subnets) > 0 { // it is made last
		return append(subnets, thing{})[0], err
	}
	gateway, err := ensure(ctx, c, "internetGateways", compartment, gatewayName, map[string]any{"isEnabled": true}, vcn.ID)
	if err != nil {
		return thing{}, err
	}
	in := func(protocol, from string) map[string]any {
		return map[string]any{"protocol": protocol, "source": from, "sourceType": "CIDR_BLOCK"}
	}
	ssh, icmp := in(tcp, anywhere), in("1", anywhere)
	ssh["tcpOptions"] = tcpOptions{span{22, 22}}
	icmp["icmpOptions"] = map[string]any{"type": 3, "code": 4} // so that packets get through that are too large
	_, err = rest.Do[any](ctx, c, "PUT", "/routeTables/"+url.PathEscape(vcn.Routes), map[string]any{
		"routeRules": []any{map[string]any{"destination": anywhere, "destinationType": "CIDR_BLOCK", "networkEntityId": gateway.ID}},
	})
	if err == nil {
		_, err = rest.Do[any](ctx, c, "PUT", "/securityLists/"+url.PathEscape(vcn.Security), map[string]any{
			"ingressSecurityRules": []any{ssh, icmp, in("all", subnetBlock)},
			"egressSecurityRules":  []any{map[string]any{"protocol": "all", "destination": anywhere, "destinationType": "CIDR_BLOCK"}},
		})
	}
	if err != nil {
		return thing{}, err
	}
	return ensure(ctx, c, "subnets", compartment, subnetName, map[string]any{"cidrBlock": subnetBlock, "dnsLabel": "skypilotsubnet"}, vcn.ID)
}

func groupName(id cloud.ClusterID) string { return "nsg_" + id.Name + "-" + vm.Digest(id) }

// Connect makes the network, if it is missing, and the cluster's security group.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	c, _, err := d.in(ctx, spec.Offer.Region)
	if err != nil {
		return err
	}
	compartment, err := d.compartment(ctx, spec)
	if err != nil {
		return err
	}
	subnet, err := d.subnet(ctx, c, spec, compartment, true)
	if err != nil {
		return err
	}
	group, err := ensure(ctx, c, "networkSecurityGroups", compartment, groupName(spec.ID), map[string]any{"freeformTags": spec.ID.Tags()}, subnet.VCN)
	if err != nil {
		return err
	}
	return allow(ctx, c, group, append([]string{"22"}, spec.Ports...))
}

// prepared is what a launch needs, of which Connect has made what was missing.
func (d driver) prepared(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec) (r ready, err error) {
	if r.compartment, err = d.compartment(ctx, spec); err != nil {
		return r, err
	}
	if r.domain, err = d.domain(ctx, spec.Offer.Place); err != nil {
		return r, err
	}
	subnet, err := d.subnet(ctx, c, spec, r.compartment, false)
	if err != nil {
		return r, err
	}
	r.subnet = subnet.ID
	group, err := ensure(ctx, c, "networkSecurityGroups", r.compartment, groupName(spec.ID), nil)
	if err != nil {
		return r, err
	}
	r.group = group.ID
	r.image, r.user, err = image(ctx, c, spec, r.compartment)
	return r, err
}

// image is what instances start from, and who logs in to it: the user's own, which is
// written as OCID or OCID:oraclelinux, and otherwise Oracle's newest of Ubuntu 22.04. GPUs
// need a driver, which is in Oracle's own Linux for them.
func image(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec, compartment string) (id, user string, err error) {
	shape, _, _ := parseType(spec.Offer.InstanceType)
	gpu := strings.Contains(shape, "GPU")
	id = cmp.Or(spec.ImageID, vm.Setting(spec.Settings, map[bool]string{true: "image_tag_gpu", false: "image_tag_general"}[gpu]))
	if strings.HasPrefix(id, "ocid1.image.") {
		id, os, _ := strings.Cut(id, ":")
		if strings.Contains(strings.ToLower(os), "oracle") {
			return id, "opc", nil
		}
		return id, "ubuntu", nil
	} else if spec.ImageID != "" {
		return "", "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("%q is no image of OCI's: write its OCID, as ocid1.image.oc1…, and :oraclelinux after that if it is one", spec.ImageID)}
	}
	newest := func(os, version string, fits func(name string) bool) (string, error) {
		all, err := pages[thing](ctx, c, "/images", url.Values{
			"compartmentId": {compartment}, "operatingSystem": {os}, "operatingSystemVersion": {version}, "shape": {shape}, "lifecycleState": {"AVAILABLE"}, "sortBy": {"TIMECREATED"}, "sortOrder": {"DESC"},
		})
		i := slices.IndexFunc(all, func(t thing) bool { return fits(t.Name) })
		if err != nil || i < 0 {
			return "", err
		}
		return all[i].ID, nil
	}
	if gpu {
		if id, err = newest("Oracle Linux", "8", func(name string) bool { return strings.Contains(name, "-GPU-") }); err != nil || id != "" {
			return id, "opc", err
		}
	}
	if id, err = newest("Canonical Ubuntu", "22.04", func(name string) bool { return !strings.Contains(name, "Minimal") }); err == nil && id == "" {
		err = &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("Oracle has no image of Ubuntu 22.04 for %s; name one of yours with image_id", shape)}
	}
	return id, "ubuntu", err
}

const tcp = "6" // by its number

// span is a range of ports.
type span struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

type tcpOptions struct {
	Ports span `json:"destinationPortRange"`
}

// rule is one of a security group, as far as it matters.
type rule struct {
	Direction   string     `json:"direction"`
	Protocol    string     `json:"protocol"`
	Source      string     `json:"source"`
	SourceType  string     `json:"sourceType"`
	Description string     `json:"description"`
	TCP         tcpOptions `json:"tcpOptions"`
}

// allow adds what a group lacks.
func allow(ctx context.Context, c *rest.Client, group thing, ports []string) error {
	path := "/networkSecurityGroups/" + url.PathEscape(group.ID)
	have, err := pages[rule](ctx, c, path+"/securityRules", nil)
	if err != nil {
		return err
	}
	var open []vm.PortRange
	for _, r := range have {
		if r.Direction == "INGRESS" && r.Protocol == tcp && r.Source == anywhere {
			open = append(open, vm.PortRange{First: r.TCP.Ports.Min, Last: r.TCP.Ports.Max})
		}
	}
	lacks, err := vm.Lacking(Name, ports, open)
	for some := range slices.Chunk(lacks, 25) { // that many fit into a call
		var rules []rule
		for _, p := range some {
			rules = append(rules, rule{Direction: "INGRESS", Protocol: tcp, Source: anywhere, SourceType: "CIDR_BLOCK", Description: "SkyServe-Service-Port", TCP: tcpOptions{span{p.First, p.Last}}})
		}
		if _, err := rest.Do[any](ctx, c, "POST", path+"/actions/addSecurityRules", map[string]any{"securityRules": rules}); err != nil {
			return err
		}
	}
	return err
}

// groups are the cluster's security groups, wherever they are.
func (p *Provider) groups(ctx context.Context, id cloud.ClusterID) ([]thing, error) {
	places, err := p.compartments(ctx)
	if err != nil {
		return nil, err
	}
	return vm.Gather(ctx, &p.regions, &p.Account, func(ctx context.Context, c *rest.Client, region string) (all []thing, err error) {
		for i := 0; err == nil && i < len(places); i++ {
			var some []thing
			some, err = things(ctx, c, "networkSecurityGroups", places[i].ID, groupName(id))
			for _, t := range some {
				t.region = region
				all = append(all, t)
			}
		}
		return all, err
	})
}

// OpenPorts adds ports to the cluster's security group.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	return vm.OpenIn(ctx, p.Provider, id, func() ([]thing, error) { return p.groups(ctx, id) }, func(g thing) error {
		c, _, err := p.In(g.region)
		if err == nil {
			err = allow(ctx, c, g, ports)
		}
		return err
	})
}

// Disconnect removes the cluster's security groups. The network stays.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	groups, err := d.groups(ctx, id)
	if err != nil {
		return nil, err
	}
	return vm.Drop(ctx, &d.Account, d, groups, func(g thing) (what, path, region string) {
		return "the security group " + g.Name, "/networkSecurityGroups/" + url.PathEscape(g.ID), g.region
	})
}
