package ibmfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// account answers for IAM, tagging and search, and about what can be had.
func (f *Fake) account() {
	// "IAM Identity Services", "Create an IAM access token for … an API key"
	f.Route("POST", "/identity/token", "token", nil, func(r *http.Request, _ dict) (any, error) {
		if r.FormValue("grant_type") != "urn:ibm:params:oauth:grant-type:apikey" || r.FormValue("apikey") != APIKey {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "Provided API key could not be found.")
		}
		token := "eyJ" + f.NewID()
		f.tokens[token] = time.Now().Add(time.Hour)
		return dict{"access_token": token, "refresh_token": "not_supported", "token_type": "Bearer", "expires_in": 3600, "expiration": time.Now().Add(time.Hour).Unix(), "scope": "ibm openid"}, nil
	})
	// "Global Tagging": attach, detach, list
	tag := func(r *http.Request, in dict) (any, error) {
		results, names := []dict{}, fakehttp.Items(in["tag_names"])
		if one, ok := in["tag_name"].(string); ok {
			names = append(names, one)
		}
		for _, res := range fakehttp.Items(in["resources"]) {
			at := fmt.Sprint(res.(dict)["resource_id"])
			for _, n := range names {
				f.tags[at] = slices.DeleteFunc(f.tags[at], func(t string) bool { return t == n })
				if strings.HasSuffix(r.URL.Path, "attach") {
					f.tags[at] = append(f.tags[at], strings.ToLower(fmt.Sprint(n)))
				}
			}
			results = append(results, dict{"resource_id": at, "is_error": !strings.HasPrefix(at, "crn:")})
		}
		return dict{"results": results}, nil
	}
	tagging := fakehttp.Schema{"!resources": fakehttp.List(`\{.*"resource_id":` + word + `.*\}`), "tag_names": fakehttp.List(`"[A-Za-z0-9:_ .-]{1,128}"`), "tag_name": `"[A-Za-z0-9:_ .-]{1,128}"`}
	f.Route("POST", "/v3/tags/attach", "tags.put", tagging, tag)
	f.Route("POST", "/v3/tags/detach", "tags.put", tagging, tag)
	f.Route("GET", "/v3/tags", "tags.list", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, t := range f.tags[r.URL.Query().Get("attached_to")] {
			all = append(all, dict{"name": t})
		}
		return dict{"total_count": len(all), "offset": 0, "limit": 100, "items": all}, nil
	})
	// "Global Search", "Find instances of resources"
	f.Route("POST", "/v3/resources/search", "search", fakehttp.Schema{"query": word, "search_cursor": word}, f.search)
	// "Virtual Private Cloud API": Regions, Instance profiles, Images
	f.Route("GET", "/v1/regions", "regions", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for _, name := range slices.Sorted(maps.Keys(regions)) {
			all = append(all, dict{"name": name, "endpoint": "https://" + name + ".iaas.cloud.ibm.com", "status": "available"})
		}
		return dict{"regions": all}, nil
	})
	f.Route("GET", "/v1/regions/{region}/zones", "regions", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, z := range regions[r.PathValue("region")] {
			all = append(all, dict{"name": z, "status": "available", "region": dict{"name": r.PathValue("region")}})
		}
		return dict{"zones": all}, nil
	})
	f.Route("GET", "/v1/instance/profiles", "offers", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for _, name := range slices.Sorted(maps.Keys(profiles)) {
			p := profiles[name]
			one := dict{"name": name, "family": p.family, "vcpu_count": dict{"type": "fixed", "value": p.cpus}, "memory": dict{"type": "fixed", "value": p.memory}, "vcpu_architecture": dict{"type": "fixed", "value": "amd64"}, "status": "current"}
			if p.gpu > 0 {
				one["gpu_count"], one["gpu_model"] = dict{"type": "fixed", "value": p.gpu}, dict{"type": "enum", "values": []string{p.model}}
			}
			all = append(all, one)
		}
		return dict{"profiles": all, "total_count": len(all)}, nil
	})
	f.Route("GET", "/v1/images", "images", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, i := range images {
			one := maps.Clone(i)
			one["status"], one["visibility"], one["owner_type"] = "available", "public", "provider"
			one["operating_system"] = dict{"name": "ubuntu-22-04-amd64", "architecture": "amd64", "family": "Ubuntu Linux"}
			if v := r.URL.Query().Get("visibility"); v == "" || v == "public" {
				all = append(all, one)
			}
		}
		return page(r, "images", all)
	})
}

var term = regexp.MustCompile(`(\w+):\(?"?([^"\s()]+)"?\)?`)

// search finds what all terms of a query such as "type:vpc AND tags:web" fit.
func (f *Fake) search(r *http.Request, in dict) (any, error) {
	all := []dict{}
	add := func(kind, region string, name, at any) {
		o := dict{"crn": at, "name": name, "region": region, "type": kind, "resource_id": at.(string)[strings.LastIndex(at.(string), ":")+1:], "tags": append([]string{}, f.tags[at.(string)]...), "service_name": "is", "family": "is"}
		for _, t := range term.FindAllStringSubmatch(fmt.Sprint(in["query"]), -1) {
			values := []string{fmt.Sprint(o[t[1]])}
			if t[1] == "tags" {
				values = o["tags"].([]string)
			}
			if !slices.ContainsFunc(values, func(v string) bool {
				prefix, wild := strings.CutSuffix(t[2], "*")
				return strings.EqualFold(v, t[2]) || wild && strings.HasPrefix(v, prefix)
			}) {
				return
			}
		}
		all = append(all, o)
	}
	for _, kind := range []string{"vpcs", "subnets", "public_gateways", "security_groups", "keys", "floating_ips"} {
		for _, o := range f.Things(kind) {
			add(strings.ReplaceAll(strings.TrimSuffix(kind, "s"), "_", "-"), o["region"].(string), o["name"], o["crn"])
		}
	}
	list, err := f.Instances(r)
	for _, i := range list {
		if i.State != fluffyapi.Terminated {
			add("instance", i.Region, fakehttp.Asked(i)["name"], crn(i.Region, "instance", i.ID))
		}
	}
	token, _ := in["search_cursor"].(string)
	part, next := fakehttp.PageAfter(all, token, 100)
	out := dict{"items": part, "limit": 100}
	if next != nil {
		out["search_cursor"] = next
	}
	return out, err
}

// find is the thing of that id in the region of the call; nil: there is none.
func (f *Fake) find(r *http.Request, kind, id string) dict {
	if o := f.Thing(kind, id); o != nil && o["region"] == region(r) {
		return o
	}
	return nil
}

// keep answers the calls about things of a kind in a region.
func (f *Fake) keep(kind string, s fakehttp.Schema, check func(r *http.Request, in dict) error, inUse func(o dict) bool) {
	path := "/v1/" + kind
	tell := func(o dict) dict {
		out := maps.Clone(o)
		delete(out, "region")
		if t, ok := o["target"].(dict); ok && kind == "floating_ips" {
			delete(out, "target")
			for _, m := range f.Cloud.Machines() {
				if "0717-nic-"+m.ID == t["id"] && m.State != fluffyapi.Terminated {
					out["target"], out["address"] = t, m.PublicIP
				}
			}
		}
		return out
	}
	f.Route("GET", path, kind+".list", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, o := range f.Things(kind) {
			if vpc := r.URL.Query().Get("vpc.id"); o["region"] == region(r) && (vpc == "" || id(o["vpc"]) == vpc) {
				all = append(all, tell(o))
			}
		}
		return page(r, kind, all)
	})
	one := func(r *http.Request) (dict, error) {
		if o := f.find(r, kind, r.PathValue("id")); o != nil {
			return o, nil
		}
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "%s %s not found", kind, r.PathValue("id"))
	}
	f.Route("GET", path+"/{id}", kind+".get", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := one(r)
		if err != nil {
			return nil, err
		}
		return tell(o), nil
	})
	f.Route("POST", path, kind+".put", s, func(r *http.Request, in dict) (any, error) {
		if in["name"] == nil {
			in["name"] = "fake-" + f.NewID()[24:]
		}
		for _, o := range f.Things(kind) {
			if o["region"] == region(r) && o["name"] == in["name"] && id(o["vpc"]) == id(in["vpc"]) {
				return nil, fluffyapi.Errorf(notUnique, "name: Provided Name (%v) is not unique", in["name"])
			}
		}
		if in["vpc"] != nil {
			vpc := f.find(r, "vpcs", id(in["vpc"]))
			if vpc == nil {
				return nil, fluffyapi.Errorf(fluffyapi.NotFound, "VPC %s not found", id(in["vpc"]))
			}
			in["vpc"] = dict{"id": vpc["id"], "name": vpc["name"], "crn": vpc["crn"]}
		}
		if z := in["zone"]; z != nil && !slices.Contains(regions[region(r)], id(z)) {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "zone: there is no %s", id(z))
		}
		in["region"], in["id"] = region(r), "r006-"+f.NewID()
		in["crn"] = crn(region(r), strings.ReplaceAll(strings.TrimSuffix(kind, "s"), "_", "-"), in["id"].(string))
		in["href"], in["created_at"], in["status"], in["resource_group"] = "https://"+host(r)+path+"/"+in["id"].(string), time.Now().UTC().Format(time.RFC3339), "available", dict{"id": ResourceGroup}
		if check != nil {
			if err := check(r, in); err != nil {
				return nil, err
			}
		}
		return created(tell(f.Put(kind, in))), nil
	})
	f.Route("DELETE", path+"/{id}", kind+".delete", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := one(r)
		if err != nil {
			return nil, err
		}
		if inUse != nil && inUse(o) {
			return nil, fluffyapi.Errorf(fluffyapi.InUse, "%v is in use", o["id"])
		}
		delete(f.tags, o["crn"].(string))
		if kind == "vpcs" {
			_ = f.Drop("security_groups", id(o["default_security_group"]))
		}
		return nil, f.Drop(kind, o["id"])
	})
}

// mentioned tells whether an instance was made with that id.
func (f *Fake) mentioned(id any) bool {
	for _, m := range f.Cloud.Machines() {
		if m.State != fluffyapi.Terminated && strings.Contains(m.Tags["asked"], fmt.Sprintf("%q", id)) {
			return true
		}
	}
	return slices.ContainsFunc(f.Things("instance"), func(o dict) bool { return strings.Contains(fmt.Sprint(o), fmt.Sprint(id)) })
}

// among tells whether a thing of the kinds fits.
func (f *Fake) among(fits func(o dict) bool, kinds ...string) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool { return slices.ContainsFunc(f.Things(kind), fits) })
}

// network keeps what is around instances ("VPCs", "Subnets", "Public gateways", "Security
// groups", "Floating IPs", "Keys").
func (f *Fake) network() {
	f.keep("vpcs", fakehttp.Schema{"name": name, "address_prefix_management": `"(?:auto|manual)"`, "resource_group": ref}, func(r *http.Request, in dict) error {
		group := dict{"id": "r006-" + f.NewID(), "name": "default-of-" + in["name"].(string), "region": region(r), "vpc": dict{"id": in["id"], "name": in["name"]}, "rules": []any{}, "default": true}
		group["crn"] = crn(region(r), "security-group", group["id"].(string))
		in["default_security_group"] = dict{"id": f.Put("security_groups", group)["id"], "name": group["name"]}
		return nil
	}, func(o dict) bool {
		return f.mentioned(o["id"]) || f.among(func(p dict) bool { return id(p["vpc"]) == o["id"] && p["default"] == nil }, "subnets", "public_gateways", "security_groups")
	})
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
	f.keep("subnets", fakehttp.Schema{"name": name, "!vpc": ref, "zone": named, "ipv4_cidr_block": word, "total_ipv4_address_count": `\d+`, "public_gateway": ref, "resource_group": ref}, f.newSubnet, func(o dict) bool { return f.mentioned(o["id"]) })
	f.Route("PUT", "/v1/subnets/{id}/public_gateway", "subnets.put", fakehttp.Schema{"!id": word}, func(r *http.Request, in dict) (any, error) {
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
	f.keep("public_gateways", fakehttp.Schema{"name": name, "!vpc": ref, "!zone": named, "floating_ip": object, "resource_group": ref}, func(r *http.Request, in dict) error {
		if f.among(func(o dict) bool {
			return o["region"] == region(r) && id(o["vpc"]) == id(in["vpc"]) && id(o["zone"]) == id(in["zone"])
		}, "public_gateways") {
			return fluffyapi.Errorf(notUnique, "zone: the VPC has a public gateway there")
		}
		return nil
	}, func(o dict) bool {
		return f.among(func(s dict) bool { return id(s["public_gateway"]) == o["id"] }, "subnets")
	})
	f.keep("security_groups", fakehttp.Schema{"name": name, "!vpc": ref, "rules": `\[.*\]`, "resource_group": ref}, func(_ *http.Request, in dict) error {
		in["rules"] = append([]any{}, fakehttp.Items(in["rules"])...)
		for _, rule := range fakehttp.Items(in["rules"]) {
			rule.(dict)["id"] = "r006-" + f.NewID()
		}
		return nil
	}, func(o dict) bool { return o["default"] != nil || f.mentioned(o["id"]) })
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
	f.Route("POST", rules, "rules.put", fakehttp.Schema{"!direction": `"(?:inbound|outbound)"`, "!protocol": `"(?:all|any|icmp|icmp_tcp_udp|tcp|udp)"`, "port_min": `\d+`, "port_max": `\d+`, "remote": object, "ip_version": `"ipv4"`}, func(r *http.Request, in dict) (any, error) {
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
		if f.among(func(o dict) bool { return o["region"] == region(r) && o["fingerprint"] == in["fingerprint"] }, "keys") {
			return fluffyapi.Errorf(notUnique, "public_key: Key with the same fingerprint already exists")
		}
		return nil
	}, nil)
	f.keep("floating_ips", fakehttp.Schema{"name": name, "zone": named, "target": ref, "resource_group": ref}, func(_ *http.Request, in dict) error {
		in["address"] = fmt.Sprintf("169.48.0.%d", len(f.Things("floating_ips"))+1)
		if t, ok := in["target"].(dict); ok {
			if !f.mentionedCard(t["id"]) {
				return fluffyapi.Errorf(fluffyapi.NotFound, "Target %v not found", t["id"])
			}
			if f.among(func(o dict) bool { return id(o["target"]) == t["id"] }, "floating_ips") {
				return fluffyapi.Errorf(fluffyapi.Invalid, "target: it has a floating IP")
			}
		} else if in["zone"] == nil {
			return fluffyapi.Errorf(missing, "zone: zone or target is needed")
		}
		return nil
	}, nil)
}

func (f *Fake) mentionedCard(card any) bool {
	instance, _ := strings.CutPrefix(fmt.Sprint(card), "0717-nic-")
	m, ok := f.Machine(instance)
	return ok && m.State != fluffyapi.Terminated || f.Thing("instance", instance) != nil
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
	if f.among(func(o dict) bool {
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
				opened = append(opened, strings.TrimSuffix(fmt.Sprint(rule["port_min"], "-", rule["port_max"]), fmt.Sprint("-", rule["port_min"])))
			}
		}
	}
	slices.Sort(opened)
	return slices.Compact(opened)
}
