package ibm

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/ibmapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// What all clusters of a region share, and what a cluster has.
const vpcName = "sky-vpc"

func subnetName(zone string) string       { return "sky-subnet-" + zone }
func groupName(id cloud.ClusterID) string { return names.Cluster(id) + "-sg" }

// belongs is a part of a network as the API has it.
type belongs struct {
	ibmapi.Named
	VPC byID `json:"vpc"`

	region string
}

// ensure is the thing of a kind with a name, in a network if one is given, which is made if it
// is missing and waited for.
func (d driver) ensure(ctx context.Context, c *rest.Client, kind, name, vpc, group string, body map[string]any) (belongs, error) {
	find := func(ctx context.Context) (belongs, error) {
		all, err := ibmapi.List[belongs](ctx, c, kind, nil)
		n := slices.IndexFunc(all, func(b belongs) bool { return b.Name == name && (vpc == "" || b.VPC.ID == vpc) })
		if err != nil || n < 0 {
			return belongs{}, err
		}
		return all[n], nil
	}
	have, err := find(ctx)
	if err == nil && have.ID == "" && body != nil {
		body["name"], body["resource_group"] = name, byID{group}
		if vpc != "" {
			body["vpc"] = byID{vpc}
		}
		err = cloud.Settled(ctx, func(ctx context.Context) error {
			have, err = ibmapi.Do[belongs](ctx, c, "POST", "/"+kind, body)
			return err
		})
		if d.Kind(err) == vm.Changed { // another was faster
			have, err = find(ctx)
		}
	}
	if err == nil && have.ID == "" {
		err = &rest.Error{Status: 404, Code: "not_found", Message: "there is no " + name}
	}
	if err != nil || have.Status != "pending" {
		return have, err
	}
	return rest.Await(ctx, d.Tuning.Poll, func(ctx context.Context) (belongs, bool, error) {
		b, err := ibmapi.Do[belongs](ctx, c, "GET", "/"+kind+"/"+url.PathEscape(have.ID), nil)
		return b, b.Status != "pending", err
	})
}

// Connect makes the network of the region and the zone's part of it, if they are missing, and
// the cluster's security group.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	c, keys, err := d.in(ctx, spec.Offer.Region)
	if err != nil {
		return err
	}
	group := keys["resource_group_id"]
	zones := []string{spec.Offer.Zone}
	if zones[0] == "" {
		if zones, err = d.zones(ctx, spec.Offer.Region); err != nil {
			return err
		}
	}
	vpc, err := d.shared(ctx, c, group, zones)
	if err != nil {
		return err
	}
	own, err := d.ensure(ctx, c, "security_groups", groupName(spec.ID), vpc.ID, group, map[string]any{})
	if err == nil {
		err = allow(ctx, c, own.ID, append([]string{"22"}, spec.Ports...))
	}
	return err
}

func (d driver) shared(ctx context.Context, c *rest.Client, group string, zones []string) (vpc belongs, err error) {
	d.network.Lock()
	defer d.network.Unlock()
	vpc, err = d.ensure(ctx, c, "vpcs", vpcName, "", group, map[string]any{"address_prefix_management": "auto"})
	for i := 0; err == nil && i < len(zones); i++ {
		zone := zones[i]
		_, err = d.ensure(ctx, c, "subnets", subnetName(zone), vpc.ID, group, map[string]any{"zone": byName{zone}, "ip_version": "ipv4", "total_ipv4_address_count": 256})
	}
	return vpc, err
}

// prepared is what a launch needs, of which Connect has made what was missing.
func (d driver) prepared(ctx context.Context, c *rest.Client, group string, spec cloud.LaunchSpec) (r ready, err error) {
	r.group = group
	vpc, err := d.ensure(ctx, c, "vpcs", vpcName, "", group, nil)
	if err != nil {
		return r, err
	}
	subnet, err := d.ensure(ctx, c, "subnets", subnetName(spec.Offer.Zone), vpc.ID, group, nil)
	if err != nil {
		return r, err
	}
	own, err := d.ensure(ctx, c, "security_groups", groupName(spec.ID), vpc.ID, group, nil)
	if err != nil {
		return r, err
	}
	r.vpc, r.subnet, r.security = vpc.ID, subnet.ID, own.ID
	if r.image, err = image(ctx, c, spec); err != nil {
		return r, err
	}
	key, err := d.EnsureKey(ctx, spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) ([]vm.Key, error) { return ibmapi.List[vm.Key](ctx, c, "keys", nil) },
		Make: func(ctx context.Context, k vm.Key) error {
			kind := "rsa"
			if strings.HasPrefix(k.Public, "ssh-ed25519 ") {
				kind = "ed25519"
			}
			_, err := ibmapi.Do[any](ctx, c, "POST", "/keys", map[string]any{"name": k.Name, "public_key": k.Public, "type": kind, "resource_group": byID{group}})
			return err
		},
	})
	r.key = key.ID
	return r, err
}

// image is what machines start from: the user's, or IBM's newest of Ubuntu 22.04.
func image(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec) (string, error) {
	if spec.ImageID != "" {
		return spec.ImageID, nil
	}
	type found struct {
		ibmapi.Named
		OS struct {
			Architecture string `json:"architecture"`
		} `json:"operating_system"`
	}
	all, err := ibmapi.List[found](ctx, c, "images", url.Values{"visibility": {"public"}})
	all = slices.DeleteFunc(all, func(f found) bool {
		return f.Status != "available" || !strings.HasPrefix(f.Name, "ibm-ubuntu-22-04") || f.OS.Architecture != "amd64"
	})
	if err == nil && len(all) == 0 {
		err = &cloud.InvalidError{Place: spec.Offer.Place, Err: errors.New("IBM has no image of Ubuntu 22.04 there; name one of yours with image_id")}
	}
	if err != nil {
		return "", err
	}
	return slices.MaxFunc(all, func(a, b found) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name)) }).ID, nil
}

// rule is one of a security group.
type rule struct {
	Direction string `json:"direction"`
	Protocol  string `json:"protocol"`
	Min       int    `json:"port_min,omitempty"`
	Max       int    `json:"port_max,omitempty"`
	Version   string `json:"ip_version,omitempty"`
	Remote    struct {
		CIDR string `json:"cidr_block,omitempty"`
		ID   string `json:"id,omitempty"`
	} `json:"remote"`
}

// wanted are the rules that a group lacks: all between its machines, all to the outside, and
// from there to the ports.
func wanted(group string, have []rule, ports []string) (lacks []rule, err error) {
	out := rule{Direction: "outbound", Protocol: "all"}
	within := rule{Direction: "inbound", Protocol: "all"}
	out.Remote.CIDR, within.Remote.ID = "0.0.0.0/0", group
	all := []rule{out, within}
	open, err := vm.PortRanges(Name, ports)
	if err != nil {
		return nil, err
	}
	for _, p := range open {
		r := rule{Direction: "inbound", Protocol: "tcp", Min: p.First, Max: p.Last}
		r.Remote.CIDR = "0.0.0.0/0"
		all = append(all, r)
	}
	for _, r := range all {
		if !slices.ContainsFunc(append(have, lacks...), func(h rule) bool {
			return h.Direction == r.Direction && h.Protocol == r.Protocol && h.Min == r.Min && h.Max == r.Max && h.Remote.CIDR == r.Remote.CIDR && h.Remote.ID == r.Remote.ID
		}) {
			r.Version = "ipv4"
			lacks = append(lacks, r)
		}
	}
	return lacks, nil
}

// allow adds the rules that a group lacks.
func allow(ctx context.Context, c *rest.Client, group string, ports []string) error {
	path := "/security_groups/" + url.PathEscape(group) + "/rules"
	have, err := ibmapi.Do[struct{ Rules []rule }](ctx, c, "GET", path, nil)
	if err != nil {
		return err
	}
	lacks, err := wanted(group, have.Rules, ports)
	for i := 0; err == nil && i < len(lacks); i++ {
		_, err = ibmapi.Do[any](ctx, c, "POST", path, lacks[i])
	}
	return err
}

// everywhere are the things of a kind that are the cluster's, in all regions.
func (d driver) everywhere(ctx context.Context, kind string, ours func(name string) bool) ([]belongs, error) {
	return vm.Gather(ctx, &d.regions, &d.Account, func(ctx context.Context, c *rest.Client, region string) ([]belongs, error) {
		all, err := ibmapi.List[belongs](ctx, c, kind, nil)
		all = slices.DeleteFunc(all, func(b belongs) bool { return !ours(b.Name) })
		for i := range all {
			all[i].region = region
		}
		return all, err
	})
}

// groups are the cluster's security groups.
func (d driver) groups(ctx context.Context, id cloud.ClusterID) ([]belongs, error) {
	return d.everywhere(ctx, "security_groups", func(name string) bool { return name == groupName(id) })
}

// Disconnect removes the cluster's addresses and its security groups. The network stays.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	for _, kind := range []struct {
		what, path string
		ours       func(name string) bool
	}{
		{"the address", "floating_ips", func(name string) bool { _, ours := names.Tags(id, name); return ours }},
		{"the security group", "security_groups", func(name string) bool { return name == groupName(id) }},
	} {
		all, err := d.everywhere(ctx, kind.path, kind.ours)
		if err != nil {
			return nil, err
		}
		some, err := vm.Drop(ctx, &d.Account, d, all, func(b belongs) (what, path, region string) {
			return kind.what + " " + b.Name, "/" + kind.path + "/" + url.PathEscape(b.ID) + "?" + ibmapi.With(nil).Encode(), b.region
		})
		if err != nil {
			return nil, err
		}
		left = append(left, some...)
	}
	return left, nil
}
