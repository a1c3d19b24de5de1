package scpfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// fill adds what all things have, in fields that are named as their kind is (vpcId, vpcName).
// Two of its fields are not Samsung's: when it was made and when it was changed.
func (f *Fake) fill(one, prefix, name string, o dict) {
	o["id"] = prefix + "-" + f.NewID()[10:]
	o["name"], o[one+"Id"], o[one+"Name"], o["made"], o["changed"] = name, o["id"], name, time.Now(), time.Now()
}

// put keeps a thing that nobody asked for.
func (f *Fake) put(kind, one, prefix, name string, o dict) dict {
	f.fill(one, prefix, name, o)
	return f.Put(kind, o)
}

// firewall puts what comes with an internet gateway.
func (f *Fake) firewall(gateway dict) {
	f.put("firewalls", "firewall", "FIREWALL", fmt.Sprint("FW_", gateway["vpcId"]), dict{"vpcId": gateway["vpcId"], "objectId": gateway["id"]})
}

// busy refuses a change of a thing that is still changing.
func busy(o dict) error {
	if time.Since(o["changed"].(time.Time)) < settle {
		return fluffyapi.Errorf(ongoing, "There is an ongoing request on the resource %v", o["id"])
	}
	return nil
}

// kind is a kind of things that are named as one of them is, and ready in a state. They
// settle after they were made, firewalls after changes, too.
func (f *Fake) kind(path, name, one, ready string) fakehttp.Kind {
	return fakehttp.Kind{Name: name, Path: path, Noun: one, All: page, Describe: func(o dict) dict {
		out := maps.Clone(o)
		for _, own := range []string{"id", "name", "made", "changed", "rules"} {
			delete(out, own)
		}
		out[one+"State"], out["projectId"], out["createdDt"] = ready, ProjectID, o["made"].(time.Time).UTC().Format(time.RFC3339)
		switch {
		case time.Since(o["made"].(time.Time)) < settle:
			out[one+"State"] = "CREATING"
		case name == "firewalls" && busy(o) != nil:
			out[one+"State"] = "DEPLOYING"
		}
		return out
	}}
}

// changeable adds to a kind that things of it can be made, by a body that is sent to a path,
// and deleted. prefix begins their ids. check refuses bodies and completes them; in names
// kinds that things of it cannot be deleted before.
func (f *Fake) changeable(k fakehttp.Kind, path, prefix string, s fakehttp.Schema, check func(in dict) error, in ...string) {
	k.MakePath, k.Make = path, s
	k.Complete = func(_ *http.Request, in dict) error {
		if err := check(in); err != nil {
			return err
		}
		f.fill(k.Noun, prefix, fmt.Sprint(in[k.Noun+"Name"]), in)
		return nil
	}
	k.Made = func(o dict) any { return accepted(o[k.Noun+"Id"]) }
	k.Gone = func(o dict) any { return accepted(o["id"]) }
	k.Removable = func(o dict) error {
		if err := busy(o); err != nil {
			return err
		}
		if f.Any(func(other dict) bool { return other[k.Noun+"Id"] == o["id"] }, in...) {
			return fluffyapi.Errorf(fluffyapi.InUse, "%v is in use", o["id"])
		}
		return f.Unused(o)
	}
	f.Keep(k)
}

// network answers about VPCs, subnets, internet gateways, security groups and firewalls
// (Skyplane, scp_network.py; SkyPilot, scp_utils.py).
func (f *Fake) network() {
	// ready refuses what is for a VPC that is not ready.
	ready := func(in dict) error {
		if o := f.Thing("vpcs", in["vpcId"]); o != nil {
			return busy(o)
		}
		return fakehttp.Missing(in["vpcId"])
	}
	name := `"[a-zA-Z][a-zA-Z0-9]{2,19}"`
	f.changeable(f.kind("/vpc/v2/vpcs", "vpcs", "vpc", "ACTIVE"), "/vpc/v3/vpcs", "VPC", fakehttp.Schema{"!serviceZoneId": fakehttp.Filled, "!vpcName": name, "vpcDescription": fakehttp.String}, func(in dict) error {
		if !slices.Contains(slices.Collect(maps.Values(regions)), in["serviceZoneId"].(string)) {
			return fakehttp.Missing(in["serviceZoneId"])
		}
		return nil
	}, "subnets", "internetgateways", "securitygroups")
	const subnets = "/subnet/v2/subnets"
	f.changeable(f.kind(subnets, "subnets", "subnet", "ACTIVE"), subnets, "SUBNET", fakehttp.Schema{"!subnetCidrBlock": fakehttp.Filled, "!subnetName": name, "!subnetType": `"(?:PUBLIC|PRIVATE)"`, "!vpcId": fakehttp.Filled}, ready)
	gateways := f.kind("/internet-gateway/v2/internet-gateways", "internetgateways", "internetGateway", "ATTACHED")
	gateways.Added = f.firewall
	gateways.Removed = func(o dict) {
		if wall := f.ThingBy("firewalls", "objectId", o["id"]); wall != nil {
			_ = f.Drop("firewalls", wall["id"])
		}
	}
	f.changeable(gateways, "/internet-gateway/v4/internet-gateways", "INTERNET_GATEWAY", fakehttp.Schema{"!firewallEnabled": flag, "firewallLoggable": flag, "!internetGatewayType": `"SHARED"`, "!vpcId": fakehttp.Filled}, func(in dict) error {
		if f.ThingBy("internetgateways", "vpcId", in["vpcId"]) != nil {
			return fluffyapi.Errorf(fluffyapi.Invalid, "the VPC has an internet gateway")
		}
		in["internetGatewayName"] = fmt.Sprint("IGW_", in["vpcId"])
		return ready(in)
	})
	groups := f.kind("/security-group/v2/security-groups", "securitygroups", "securityGroup", "ACTIVE")
	f.changeable(groups, "/security-group/v3/security-groups", "SECURITY_GROUP", fakehttp.Schema{
		"!loggable": flag, "!securityGroupName": name, "!serviceZoneId": fakehttp.Filled, "!vpcId": fakehttp.Filled, "securityGroupDescription": fakehttp.String,
	}, func(in dict) error {
		if f.Any(func(o dict) bool { return o["vpcId"] == in["vpcId"] && o["name"] == in["securityGroupName"] }, "securitygroups") {
			return fluffyapi.Errorf(fluffyapi.NameTaken, "the name %v is taken", in["securityGroupName"])
		}
		return ready(in)
	})
	f.rules(groups)
	walls := f.kind("/firewall/v2/firewalls", "firewalls", "firewall", "ACTIVE")
	f.Keep(walls)
	f.rules(walls)
}

// rules answers the calls about the rules of security groups or firewalls. While one is
// being made or deleted, others cannot be.
func (f *Fake) rules(of fakehttp.Kind) {
	path, firewalls := of.Path+"/{id}/rules", of.Name == "firewalls"
	// free is what the rules are of, as long as it is not changing.
	free := func(r *http.Request) (dict, error) {
		o, err := f.Kept(of, r)
		if err != nil {
			return nil, err
		}
		return o, busy(o)
	}
	describe := func(owner dict, rule any) dict {
		out := maps.Clone(rule.(dict))
		out["ruleState"] = "ACTIVE"
		if busy(owner) != nil && out["made"] == owner["changed"] {
			out["ruleState"] = map[bool]string{true: "DEPLOYING", false: "CREATING"}[firewalls]
		}
		delete(out, "made")
		return out
	}
	f.Route("GET", path, "rules.list", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := f.Kept(of, r)
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
		o, err := f.Kept(of, r)
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
	addresses := `\[` + fakehttp.Filled + `(?:,` + fakehttp.Filled + `)*\]`
	schema := fakehttp.Schema{"!ruleDirection": `"(?:IN|OUT)"`, "!services": `\[\{"serviceType":"(?:TCP_ALL|UDP_ALL|ICMP_ALL|ALL|(?:TCP|UDP)","serviceValue":"\d{1,5}(?:-\d{1,5})?)"\}.*\]`, "sourceIpAddresses": addresses, "destinationIpAddresses": addresses, "ruleDescription": fakehttp.String}
	if firewalls {
		maps.Copy(schema, fakehttp.Schema{"!sourceIpAddresses": addresses, "!destinationIpAddresses": addresses, "!ruleAction": `"(?:ALLOW|DROP)"`, "!isRuleEnabled": flag, "!ruleLocationType": `"(?:FIRST|BEFORE|AFTER|LAST)"`})
	}
	f.Route("POST", path, "rules.put", schema, func(r *http.Request, in dict) (any, error) {
		o, err := free(r)
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
	f.Route("DELETE", path, "rules.delete", fakehttp.Schema{"!ruleDeletionType": `"(?:PARTIAL|ALL)"`, "ruleIds": fakehttp.List(fakehttp.Filled)}, func(r *http.Request, in dict) (any, error) {
		o, err := free(r)
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
