package ibmfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// find is the thing of that id in the region of the call; nil: there is none.
func (f *Fake) find(r *http.Request, kind, id string) dict {
	if o := f.Thing(kind, id); o != nil && o["region"] == region(r) {
		return o
	}
	return nil
}

// keep answers the calls about things of a kind in a region. check is the kind's own.
func (f *Fake) keep(kind string, s fakehttp.Schema, check func(r *http.Request, in dict) error, removable func(o dict) error) {
	path, one := "/v1/"+kind, strings.ReplaceAll(strings.TrimSuffix(kind, "s"), "_", "-")
	f.Keep(fakehttp.Kind{
		Name: kind, Path: path, Noun: one, Make: s, Removable: removable, Describe: f.describe, Made: func(o dict) any { return created(o) },
		Within: func(r *http.Request, o dict) bool { return o["region"] == region(r) },
		All: func(r *http.Request, all []dict) (any, error) {
			return page(r, kind, fakehttp.Fitting(r.URL.Query(), all, "vpc.id"))
		},
		Removed: func(o dict) {
			delete(f.tags, o["crn"].(string))
			_ = f.Drop("security_groups", id(o["default_security_group"])) // of a VPC
		},
		Complete: func(r *http.Request, in dict) error {
			if in["name"] == nil {
				in["name"] = "fake-" + f.NewID()[24:]
			}
			if f.Any(func(o dict) bool {
				return o["region"] == region(r) && o["name"] == in["name"] && id(o["vpc"]) == id(in["vpc"])
			}, kind) {
				return fluffyapi.Errorf(notUnique, "name: Provided Name (%v) is not unique", in["name"])
			}
			if in["vpc"] != nil {
				vpc := f.find(r, "vpcs", id(in["vpc"]))
				if vpc == nil {
					return fakehttp.Missing("VPC " + id(in["vpc"]))
				}
				in["vpc"] = dict{"id": vpc["id"], "name": vpc["name"], "crn": vpc["crn"]}
			}
			if z := in["zone"]; z != nil && !slices.Contains(regions[region(r)], id(z)) {
				return fluffyapi.Errorf(fluffyapi.Invalid, "zone: there is no %s", id(z))
			}
			in["region"], in["id"] = region(r), "r006-"+f.NewID()
			in["crn"] = crn(region(r), one, in["id"].(string))
			in["href"], in["created_at"], in["status"], in["resource_group"] = "https://"+fakehttp.Host(r)+path+"/"+in["id"].(string), time.Now().UTC().Format(time.RFC3339), "available", dict{"id": ResourceGroup}
			return check(r, in)
		},
	})
}

// describe is a thing in IBM's words. A floating IP whose instance is gone has no target.
func (f *Fake) describe(o dict) dict {
	out := maps.Clone(o)
	delete(out, "region")
	t, floating := o["target"].(dict)
	if !floating {
		return out
	}
	delete(out, "target")
	if m, ok := f.Machine(owner(t["id"])); ok && m.State != fluffyapi.Terminated {
		out["target"], out["address"] = t, m.PublicIP
	}
	return out
}

// owner is the instance that a network card is of.
func owner(card any) string { return strings.TrimPrefix(fmt.Sprint(card), "0717-nic-") }

// unless refuses to remove a thing that an instance was made with, or another thing fits.
func (f *Fake) unless(fits func(other, o dict) bool, kinds ...string) func(o dict) error {
	return func(o dict) error {
		if f.Any(func(other dict) bool { return fits(other, o) }, kinds...) {
			return fluffyapi.Errorf(fluffyapi.InUse, "%v is in use", o["id"])
		}
		return f.Unused(o)
	}
}

// network keeps what is around instances ("VPCs", "Subnets", "Public gateways", "Security
// groups", "Floating IPs", "Keys").
func (f *Fake) network() {
	f.keep("vpcs", fakehttp.Schema{"name": name, "address_prefix_management": `"(?:auto|manual)"`, "resource_group": ref}, func(r *http.Request, in dict) error {
		group := dict{"id": "r006-" + f.NewID(), "name": "default-of-" + in["name"].(string), "region": region(r), "vpc": dict{"id": in["id"], "name": in["name"]}, "rules": []any{}, "default": true}
		group["crn"] = crn(region(r), "security-group", group["id"].(string))
		in["default_security_group"] = dict{"id": f.Put("security_groups", group)["id"], "name": group["name"]}
		return nil
	}, f.unless(func(other, vpc dict) bool { return id(other["vpc"]) == vpc["id"] && other["default"] == nil }, "subnets", "public_gateways", "security_groups"))
	f.Route("GET", "/v1/vpcs/{id}/address_prefixes", "vpcs.get", nil, func(r *http.Request, _ dict) (any, error) {
		if f.find(r, "vpcs", r.PathValue("id")) == nil {
			return nil, fluffyapi.Errorf(fluffyapi.NotFound, "VPC not found")
		}
		all := []dict{}
		for n, z := range regions[region(r)] {
			all = append(all, dict{"id": fmt.Sprint("r006-prefix-", n), "cidr": prefix(n).String(), "zone": dict{"name": z}, "is_default": true})
		}
		return page(r, "address_prefixes", all)
	})
	f.keep("subnets", fakehttp.Schema{"name": name, "!vpc": ref, "zone": named, "ipv4_cidr_block": fakehttp.Filled, "total_ipv4_address_count": `\d+`, "public_gateway": ref, "resource_group": ref}, f.newSubnet, f.Unused)
	f.Route("PUT", "/v1/subnets/{id}/public_gateway", "subnets.put", fakehttp.Schema{"!id": fakehttp.Filled}, func(r *http.Request, in dict) (any, error) {
		o, g := f.find(r, "subnets", r.PathValue("id")), f.find(r, "public_gateways", in["id"].(string))
		if o == nil || g == nil {
			return nil, fluffyapi.Errorf(fluffyapi.NotFound, "subnet or gateway not found")
		}
		o["public_gateway"] = dict{"id": g["id"]}
		return created(g), nil
	})
	f.Route("DELETE", "/v1/subnets/{id}/public_gateway", "subnets.put", nil, func(r *http.Request, _ dict) (any, error) {
		if o := f.find(r, "subnets", r.PathValue("id")); o != nil {
			delete(o, "public_gateway")
			return nil, nil
		}
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "subnet not found")
	})
	f.keep("public_gateways", fakehttp.Schema{"name": name, "!vpc": ref, "!zone": named, "floating_ip": fakehttp.Object, "resource_group": ref}, func(r *http.Request, in dict) error {
		if f.Any(func(o dict) bool {
			return o["region"] == region(r) && id(o["vpc"]) == id(in["vpc"]) && id(o["zone"]) == id(in["zone"])
		}, "public_gateways") {
			return fluffyapi.Errorf(notUnique, "zone: the VPC has a public gateway there")
		}
		return nil
	}, f.unless(func(subnet, gateway dict) bool { return id(subnet["public_gateway"]) == gateway["id"] }, "subnets"))
	f.keep("security_groups", fakehttp.Schema{"name": name, "!vpc": ref, "rules": `\[.*\]`, "resource_group": ref}, func(_ *http.Request, in dict) error {
		in["rules"] = append([]any{}, fakehttp.Items(in["rules"])...)
		for _, rule := range fakehttp.Items(in["rules"]) {
			rule.(dict)["id"] = "r006-" + f.NewID()
		}
		return nil
	}, f.unless(func(other, group dict) bool { return other["id"] == group["id"] && group["default"] != nil }, "security_groups"))
	rules := "/v1/security_groups/{group}/rules"
	group := func(r *http.Request) (dict, error) {
		if o := f.find(r, "security_groups", r.PathValue("group")); o != nil {
			return o, nil
		}
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Security group not found")
	}
	f.Route("GET", rules, "rules.list", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := group(r)
		return dict{"rules": append([]any{}, fakehttp.Items(o["rules"])...)}, err
	})
	f.Route("POST", rules, "rules.put", fakehttp.Schema{"!direction": `"(?:inbound|outbound)"`, "!protocol": `"(?:all|any|icmp|icmp_tcp_udp|tcp|udp)"`, "port_min": `\d+`, "port_max": `\d+`, "remote": fakehttp.Object, "ip_version": `"ipv4"`}, func(r *http.Request, in dict) (any, error) {
		o, err := group(r)
		low, _ := in["port_min"].(float64)
		high, _ := in["port_max"].(float64)
		if (in["port_min"] != nil || in["port_max"] != nil) && (low < 1 || low > high || high > 65535) {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "port_min: %v to %v", low, high)
		} else if err != nil {
			return nil, err
		}
		in["id"] = "r006-" + f.NewID()
		o["rules"] = append(fakehttp.Items(o["rules"]), in)
		return created(in), nil
	})
	f.Route("DELETE", rules+"/{id}", "rules.delete", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := group(r)
		if err != nil {
			return nil, err
		}
		left := slices.DeleteFunc(slices.Clone(fakehttp.Items(o["rules"])), func(v any) bool { return v.(dict)["id"] == r.PathValue("id") })
		if len(left) == len(fakehttp.Items(o["rules"])) {
			return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Rule not found")
		}
		o["rules"] = left
		return nil, nil
	})
	f.keep("keys", fakehttp.Schema{"name": name, "!public_key": `"ssh-(?:rsa|ed25519) [^ ]+.*"`, "type": `"(?:rsa|ed25519)"`, "resource_group": ref}, func(r *http.Request, in dict) error {
		in["fingerprint"] = "SHA256:" + strings.Fields(in["public_key"].(string))[1]
		if f.Any(func(o dict) bool { return o["region"] == region(r) && o["fingerprint"] == in["fingerprint"] }, "keys") {
			return fluffyapi.Errorf(notUnique, "public_key: Key with the same fingerprint already exists")
		}
		return nil
	}, nil)
	f.keep("floating_ips", fakehttp.Schema{"name": name, "zone": named, "target": ref, "resource_group": ref}, func(r *http.Request, in dict) error {
		in["address"] = fmt.Sprintf("169.48.0.%d", len(f.Things("floating_ips"))+1)
		if t, ok := in["target"].(dict); ok {
			if _, err := f.Find(r, owner(t["id"])); err != nil {
				return fluffyapi.Errorf(fluffyapi.NotFound, "Target %v not found", t["id"])
			}
			if f.Any(func(o dict) bool { return id(o["target"]) == t["id"] }, "floating_ips") {
				return fluffyapi.Errorf(fluffyapi.Invalid, "target: it has a floating IP")
			}
		} else if in["zone"] == nil {
			return fluffyapi.Errorf(missing, "zone: zone or target is needed")
		}
		return nil
	}, nil)
}

// prefix is the address prefix of a region's zone of that number.
func prefix(n int) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf("10.240.%d.0/18", n*64)) }

func (f *Fake) newSubnet(r *http.Request, in dict) error {
	block, _ := in["ipv4_cidr_block"].(string)
	count, _ := in["total_ipv4_address_count"].(float64)
	switch {
	case in["zone"] == nil:
		return fluffyapi.Errorf(missing, "zone: it is needed")
	case (block == "") == (count == 0):
		return fluffyapi.Errorf(fluffyapi.Invalid, "ipv4_cidr_block: this or total_ipv4_address_count is needed")
	case block == "":
		in["ipv4_cidr_block"] = prefix(slices.Index(regions[region(r)], id(in["zone"]))).String()
		return nil
	}
	p, err := netip.ParsePrefix(block)
	if err != nil || p.Bits() < 18 || p.Bits() > 29 || !prefix(slices.Index(regions[region(r)], id(in["zone"]))).Contains(p.Addr()) {
		return fluffyapi.Errorf(fluffyapi.Invalid, "ipv4_cidr_block: %s is not in the zone's address prefix", block)
	}
	if f.Any(func(o dict) bool {
		other, err := netip.ParsePrefix(fmt.Sprint(o["ipv4_cidr_block"]))
		return err == nil && id(o["vpc"]) == id(in["vpc"]) && other.Overlaps(p)
	}, "subnets") {
		return fluffyapi.Errorf(fluffyapi.Invalid, "ipv4_cidr_block: %s overlaps another subnet", block)
	}
	return nil
}

// Rules are the ports, sorted, that the security groups of an instance open to the world.
func (f *Fake) Rules(instance string) (opened []string) {
	card, _ := f.Asked(instance)["primary_network_interface"].(dict)
	for _, g := range fakehttp.Items(card["security_groups"]) {
		for _, v := range fakehttp.Items(f.Thing("security_groups", id(g))["rules"]) {
			rule := v.(dict)
			remote, _ := rule["remote"].(dict)
			if rule["direction"] == "inbound" && rule["port_min"] != nil && (remote == nil || remote["cidr_block"] == "0.0.0.0/0") {
				opened = append(opened, fakehttp.Ports(rule["port_min"], rule["port_max"]))
			}
		}
	}
	slices.Sort(opened)
	return slices.Compact(opened)
}
