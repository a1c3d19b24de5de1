package awsfake

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func (c *Cloud) securityGroups(region, action string, f url.Values) (answer any, no *fault) {
	at := func(id string) int {
		n := slices.IndexFunc(c.groups, func(g *group) bool { return g.id == id && g.region == region })
		if n >= 0 && unknown(&c.groups[n].unknown) {
			return -1
		}
		return n
	}
	yes := struct {
		Return bool `xml:"return"`
	}{true}
	switch action {
	case "CreateSecurityGroup":
		name, vpc := f.Get("GroupName"), f.Get("VpcId")
		if slices.ContainsFunc(c.groups, func(g *group) bool { return g.name == name && g.vpc == vpc }) {
			return nil, refuse(http.StatusBadRequest, "InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", name, vpc)
		}
		if len(name) > 255 {
			return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "Value (%s) for parameter GroupName is invalid. Character sets beyond ASCII are not supported; at most 255 characters.", name)
		}
		if !strings.HasSuffix(vpc, region) {
			return nil, refuse(http.StatusBadRequest, "InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", vpc)
		}
		g := &group{id: c.next("sg"), name: name, region: region, vpc: vpc, tags: tagsOf(f, "security-group"), unknown: c.unsettled}
		c.groups = append(c.groups, g)
		return struct {
			GroupID string `xml:"groupId"`
		}{g.id}, nil
	case "DeleteSecurityGroup":
		n := at(f.Get("GroupId"))
		if n < 0 {
			return nil, refuse(http.StatusBadRequest, "InvalidGroup.NotFound", "The security group '%s' does not exist", f.Get("GroupId"))
		}
		g := c.groups[n]
		if slices.ContainsFunc(c.nics, func(i *nic) bool { return slices.Contains(i.groups, g.id) }) ||
			slices.ContainsFunc(c.groups, func(o *group) bool {
				return o != g && slices.ContainsFunc(o.rules, func(r rule) bool { return r.from == g.id })
			}) {
			return nil, refuse(http.StatusBadRequest, "DependencyViolation", "resource %s has a dependent object", g.id)
		}
		c.groups = slices.Delete(c.groups, n, n+1)
		return yes, nil
	case "AuthorizeSecurityGroupEgress":
		n := at(f.Get("GroupId"))
		if n < 0 {
			return nil, refuse(http.StatusBadRequest, "InvalidGroup.NotFound", "The security group '%s' does not exist", f.Get("GroupId"))
		}
		if c.groups[n].outward {
			return nil, refuse(http.StatusBadRequest, "InvalidPermission.Duplicate", "the specified rule already exists")
		}
		c.groups[n].outward = f.Get("IpPermissions.1.Groups.1.GroupId") == c.groups[n].id
		return yes, nil
	case "AuthorizeSecurityGroupIngress":
		n := at(f.Get("GroupId"))
		if n < 0 {
			return nil, refuse(http.StatusBadRequest, "InvalidGroup.NotFound", "The security group '%s' does not exist", f.Get("GroupId"))
		}
		var fresh []rule
		for k := 1; f.Has(nth("IpPermissions", k) + ".IpProtocol"); k++ {
			p := nth("IpPermissions", k)
			r := rule{protocol: f.Get(p + ".IpProtocol"), cidr: f.Get(p + ".IpRanges.1.CidrIp"), from: f.Get(p + ".Groups.1.GroupId")}
			r.low, _ = strconv.Atoi(f.Get(p + ".FromPort"))
			r.high, _ = strconv.Atoi(f.Get(p + ".ToPort"))
			if slices.Contains(c.groups[n].rules, r) || slices.Contains(fresh, r) {
				return nil, refuse(http.StatusBadRequest, "InvalidPermission.Duplicate", "the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists", r.cidr, r.protocol, r.low, r.high)
			}
			if r.protocol == "tcp" && (!f.Has(p+".FromPort") || r.low > r.high) {
				return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "Invalid value for portRange. Must specify both from and to ports with TCP/UDP.")
			}
			fresh = append(fresh, r)
		}
		if len(c.groups[n].rules)+len(fresh) > mostRules {
			return nil, refuse(http.StatusBadRequest, "RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached.")
		}
		c.groups[n].rules = append(c.groups[n].rules, fresh...)
		return yes, nil
	}
	type pair struct {
		GroupID string `xml:"groupId"`
	}
	type ipRange struct {
		CidrIP string `xml:"cidrIp"`
	}
	type permission struct {
		Protocol string        `xml:"ipProtocol"`
		From     int           `xml:"fromPort"`
		To       int           `xml:"toPort"`
		Groups   item[pair]    `xml:"groups"`
		Ranges   item[ipRange] `xml:"ipRanges"`
	}
	type one struct {
		GroupID     string           `xml:"groupId"`
		GroupName   string           `xml:"groupName"`
		VpcID       string           `xml:"vpcId"`
		Permissions item[permission] `xml:"ipPermissions"`
		Tags        item[tag]        `xml:"tagSet"`
	}
	var out struct {
		Set  item[one] `xml:"securityGroupInfo"`
		Next string    `xml:"nextToken,omitempty"`
	}
	var all []one
	for _, g := range c.groups {
		if g.region != region || unknown(&g.unknown) || !fits(filtersOf(f), g.tags, map[string]string{"group-name": g.name, "vpc-id": g.vpc}) {
			continue
		}
		o := one{GroupID: g.id, GroupName: g.name, VpcID: g.vpc, Tags: item[tag]{tagSet(g.tags)}}
		for _, r := range g.rules {
			p := permission{Protocol: r.protocol, From: r.low, To: r.high}
			if r.cidr != "" {
				p.Ranges.Item = []ipRange{{r.cidr}}
			}
			if r.from != "" {
				p.Groups.Item = []pair{{r.from}}
			}
			o.Permissions.Item = append(o.Permissions.Item, p)
		}
		all = append(all, o)
	}
	out.Set.Item, out.Next, no = page(c, region, action, f, all)
	return out, no
}
