package scpfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// put keeps a thing, whose fields are named as its kind is (vpcId, vpcName). Two of its
// fields are not Samsung's: when it was made and when it was changed.
func (f *Fake) put(kind, one, prefix, name string, o dict) dict {
	o["id"] = prefix + "-" + f.NewID()[10:]
	o["name"], o[one+"Id"], o[one+"Name"], o["made"], o["changed"] = name, o["id"], name, time.Now(), time.Now()
	return f.Put(kind, o)
}

// gateway puts an internet gateway at a VPC, which brings a firewall.
func (f *Fake) gateway(vpc any) any {
	gateway := f.put("internetgateways", "internetGateway", "INTERNET_GATEWAY", "IGW_"+fmt.Sprint(vpc), dict{"vpcId": vpc, "internetGatewayType": "SHARED"})["id"]
	f.put("firewalls", "firewall", "FIREWALL", "FW_"+fmt.Sprint(vpc), dict{"vpcId": vpc, "objectId": gateway})
	return gateway
}

// busy refuses a change of a thing that is still changing.
func busy(o dict) error {
	if time.Since(o["changed"].(time.Time)) < settle {
		return fluffyapi.Errorf(ongoing, "There is an ongoing request on the resource %v", o["id"])
	}
	return nil
}

// list answers the calls that look at things of a kind.
func (f *Fake) list(path, kind, one, ready string) func(r *http.Request) (dict, error) {
	describe := func(o dict) dict {
		out := maps.Clone(o)
		for _, own := range []string{"id", "name", "made", "changed", "rules"} {
			delete(out, own)
		}
		out[one+"State"], out["projectId"], out["createdDt"] = ready, ProjectID, o["made"].(time.Time).UTC().Format(time.RFC3339)
		switch {
		case time.Since(o["made"].(time.Time)) < settle:
			out[one+"State"] = "CREATING"
		case kind == "firewalls" && busy(o) != nil:
			out[one+"State"] = "DEPLOYING"
		}
		return out
	}
	get := func(r *http.Request) (dict, error) {
		if o := f.Thing(kind, r.PathValue("id")); o != nil {
			return o, nil
		}
		return nil, fakehttp.Missing(one + " " + r.PathValue("id"))
	}
	f.Route("GET", path, kind+".list", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, o := range f.Things(kind) {
			all = append(all, describe(o))
		}
		return page(r, all)
	})
	f.Route("GET", path+"/{id}", kind+".get", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := get(r)
		if err != nil {
			return nil, err
		}
		return describe(o), nil
	})
	return get
}

// remove answers the call that deletes a thing of a kind.
func (f *Fake) remove(path, kind string, get func(r *http.Request) (dict, error), inUse func(id any) bool) {
	f.Route("DELETE", path+"/{id}", kind+".delete", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := get(r)
		switch {
		case err != nil:
			return nil, err
		case busy(o) != nil:
			return nil, busy(o)
		case inUse(o["id"]):
			return nil, fluffyapi.Errorf(fluffyapi.InUse, "%v is in use", o["id"])
		}
		if kind == "internetgateways" {
			for _, wall := range f.Things("firewalls") {
				if wall["objectId"] == o["id"] {
					_ = f.Drop("firewalls", wall["id"])
				}
			}
		}
		return accepted(o["id"]), f.Drop(kind, o["id"])
	})
}

// among reports whether a server that exists was made with an id, or a thing of the kinds has it.
func (f *Fake) among(field string, kinds ...string) func(id any) bool {
	return func(id any) bool {
		for _, m := range f.Cloud.Machines() {
			if m.State != fluffyapi.Terminated && strings.Contains(m.Tags["asked"], fmt.Sprintf("%q", id)) {
				return true
			}
		}
		return slices.ContainsFunc(kinds, func(kind string) bool {
			return slices.ContainsFunc(f.Things(kind), func(o dict) bool { return o[field] == id })
		})
	}
}

// network answers about VPCs, subnets, internet gateways, security groups and firewalls
// (Skyplane, scp_network.py; SkyPilot, scp_utils.py).
func (f *Fake) network() {
	const vpcs, subnets, gateways, groups = "/vpc/v2/vpcs", "/subnet/v2/subnets", "/internet-gateway/v2/internet-gateways", "/security-group/v2/security-groups"
	f.remove(vpcs, "vpcs", f.list(vpcs, "vpcs", "vpc", "ACTIVE"), f.among("vpcId", "subnets", "internetgateways", "securitygroups"))
	f.remove(subnets, "subnets", f.list(subnets, "subnets", "subnet", "ACTIVE"), f.among(""))
	f.remove(gateways, "internetgateways", f.list(gateways, "internetgateways", "internetGateway", "ATTACHED"), f.among(""))
	group := f.list(groups, "securitygroups", "securityGroup", "ACTIVE")
	f.remove(groups, "securitygroups", group, f.among(""))
	f.rules(groups+"/{id}/rules", "securitygroups", group)
	const walls = "/firewall/v2/firewalls"
	f.rules(walls+"/{id}/rules", "firewalls", f.list(walls, "firewalls", "firewall", "ACTIVE"))

	name := `"[a-zA-Z][a-zA-Z0-9]{2,19}"`
	f.Route("POST", "/vpc/v3/vpcs", "vpcs.put", fakehttp.Schema{"!serviceZoneId": word, "!vpcName": name, "vpcDescription": fakehttp.String}, func(_ *http.Request, in dict) (any, error) {
		if !slices.Contains(slices.Collect(maps.Values(regions)), in["serviceZoneId"].(string)) {
			return nil, fakehttp.Missing(in["serviceZoneId"])
		}
		return accepted(f.put("vpcs", "vpc", "VPC", in["vpcName"].(string), in)["id"]), nil
	})
	// vpc returns an error unless the VPC that is named is ready
	vpc := func(in dict) error {
		o := f.Thing("vpcs", in["vpcId"])
		if o == nil {
			return fakehttp.Missing(in["vpcId"])
		}
		return busy(o)
	}
	f.Route("POST", subnets, "subnets.put", fakehttp.Schema{"!subnetCidrBlock": word, "!subnetName": name, "!subnetType": `"(?:PUBLIC|PRIVATE)"`, "!vpcId": word}, func(_ *http.Request, in dict) (any, error) {
		if err := vpc(in); err != nil {
			return nil, err
		}
		return accepted(f.put("subnets", "subnet", "SUBNET", in["subnetName"].(string), in)["id"]), nil
	})
	f.Route("POST", "/internet-gateway/v4/internet-gateways", "internetgateways.put", fakehttp.Schema{"!firewallEnabled": flag, "firewallLoggable": flag, "!internetGatewayType": `"SHARED"`, "!vpcId": word}, func(_ *http.Request, in dict) (any, error) {
		if err := vpc(in); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(f.Things("internetgateways"), func(o dict) bool { return o["vpcId"] == in["vpcId"] }) {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "the VPC has an internet gateway")
		}
		return accepted(f.gateway(in["vpcId"])), nil
	})
	f.Route("POST", "/security-group/v3/security-groups", "securitygroups.put", fakehttp.Schema{"!loggable": flag, "!securityGroupName": name, "!serviceZoneId": word, "!vpcId": word, "securityGroupDescription": fakehttp.String}, func(_ *http.Request, in dict) (any, error) {
		if err := vpc(in); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(f.Things("securitygroups"), func(o dict) bool { return o["vpcId"] == in["vpcId"] && o["name"] == in["securityGroupName"] }) {
			return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "the name %v is taken", in["securityGroupName"])
		}
		return accepted(f.put("securitygroups", "securityGroup", "SECURITY_GROUP", in["securityGroupName"].(string), in)["id"]), nil
	})
}

// rules answers the calls about the rules of security groups or firewalls. While one is
// being made or deleted, others cannot be.
func (f *Fake) rules(path, kind string, get func(r *http.Request) (dict, error)) {
	describe := func(owner dict, rule any) dict {
		out := maps.Clone(rule.(dict))
		out["ruleState"] = "ACTIVE"
		if busy(owner) != nil && out["made"] == owner["changed"] {
			out["ruleState"] = map[bool]string{true: "DEPLOYING", false: "CREATING"}[kind == "firewalls"]
		}
		delete(out, "made")
		return out
	}
	f.Route("GET", path, "rules.list", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := get(r)
		if err != nil {
			return nil, err
		}
		all := []dict{}
		for _, rule := range fakehttp.Items(o["rules"]) {
			all = append(all, describe(o, rule))
		}
		return page(r, all)
	})
	f.Route("GET", path+"/{rule}", "rules.get", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := get(r)
		if err != nil {
			return nil, err
		}
		for _, rule := range fakehttp.Items(o["rules"]) {
			if rule.(dict)["ruleId"] == r.PathValue("rule") {
				return describe(o, rule), nil
			}
		}
		return nil, fakehttp.Missing("rule " + r.PathValue("rule"))
	})
	addresses := `\[` + word + `(?:,` + word + `)*\]`
	schema := fakehttp.Schema{"!ruleDirection": `"(?:IN|OUT)"`, "!services": `\[\{"serviceType":"(?:TCP_ALL|UDP_ALL|ICMP_ALL|ALL|(?:TCP|UDP)","serviceValue":"\d{1,5}(?:-\d{1,5})?)"\}.*\]`, "sourceIpAddresses": addresses, "destinationIpAddresses": addresses, "ruleDescription": fakehttp.String}
	if kind == "firewalls" {
		maps.Copy(schema, fakehttp.Schema{"!sourceIpAddresses": addresses, "!destinationIpAddresses": addresses, "!ruleAction": `"(?:ALLOW|DROP)"`, "!isRuleEnabled": flag, "!ruleLocationType": `"(?:FIRST|BEFORE|AFTER|LAST)"`})
	}
	f.Route("POST", path, "rules.put", schema, func(r *http.Request, in dict) (any, error) {
		o, err := get(r)
		if err == nil {
			err = busy(o)
		}
		if other := map[any]string{"IN": "sourceIpAddresses", "OUT": "destinationIpAddresses"}[in["ruleDirection"]]; err == nil && in[other] == nil {
			err = fluffyapi.Errorf(fluffyapi.Invalid, "%s is required", other)
		}
		if err != nil {
			return nil, err
		}
		tcp := []any{}
		for _, v := range fakehttp.Items(in["services"]) {
			if s := v.(dict); s["serviceType"] == "TCP" {
				tcp = append(tcp, s["serviceValue"])
			}
		}
		o["changed"] = time.Now()
		in["ruleId"], in["tcpServices"], in["made"] = "RULE-"+f.NewID()[10:], tcp, o["changed"]
		delete(in, "services")
		o["rules"] = append(fakehttp.Items(o["rules"]), in)
		return accepted(in["ruleId"]), nil
	})
	f.Route("DELETE", path, "rules.delete", fakehttp.Schema{"!ruleDeletionType": `"(?:PARTIAL|ALL)"`, "ruleIds": fakehttp.List(word)}, func(r *http.Request, in dict) (any, error) {
		o, err := get(r)
		if err == nil {
			err = busy(o)
		}
		if err != nil {
			return nil, err
		}
		rules, gone := fakehttp.Items(o["rules"]), fakehttp.Items(in["ruleIds"])
		left := slices.DeleteFunc(slices.Clone(rules), func(v any) bool {
			return in["ruleDeletionType"] == "ALL" || slices.Contains(gone, v.(dict)["ruleId"])
		})
		if len(rules)-len(left) < len(gone) {
			return nil, fakehttp.Missing(fmt.Sprint("one of the rules ", gone))
		}
		o["rules"], o["changed"] = left, time.Now()
		return accepted(o["id"]), nil
	})
}

// Rules are the ports, sorted, of a server that both its security groups and its VPC's
// firewall open to the world.
func (f *Fake) Rules(server string) (opened []string) {
	m, _ := f.Machine(server)
	asked := fakehttp.Asked(m.Instance)
	var allowed []any
	f.Locked(func() {
		collect := func(rules any, server bool) (ports []any) {
			for _, v := range fakehttp.Items(rules) {
				rule := v.(dict)
				reaches := !server || slices.Contains(fakehttp.Items(rule["destinationIpAddresses"]), any(m.PrivateIP)) && rule["ruleAction"] == "ALLOW"
				if rule["ruleDirection"] == "IN" && reaches && slices.Contains(fakehttp.Items(rule["sourceIpAddresses"]), any("0.0.0.0/0")) {
					ports = append(ports, rule["tcpServices"].([]any)...)
				}
			}
			return ports
		}
		for _, wall := range f.Things("firewalls") {
			if wall["vpcId"] == asked["vpcId"] {
				allowed = append(allowed, collect(wall["rules"], true)...)
			}
		}
		for _, id := range fakehttp.Items(asked["securityGroupIds"]) {
			for _, ports := range collect(f.Thing("securitygroups", id)["rules"], false) {
				if slices.Contains(allowed, ports) {
					opened = append(opened, fmt.Sprint(ports))
				}
			}
		}
	})
	slices.Sort(opened)
	return slices.Compact(opened)
}

// firewallRules is a line for each rule of the firewalls, which are not listed by themselves.
func (f *Fake) firewallRules() (lines []string) {
	f.Locked(func() {
		for _, wall := range f.Things("firewalls") {
			for _, rule := range fakehttp.Items(wall["rules"]) {
				lines = append(lines, fmt.Sprint("firewall rule ", rule.(dict)["ruleId"]))
			}
		}
	})
	return lines
}
