package awsfake

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settle brings machines to where time has taken them. The caller holds mu.
func (c *Cloud) settle() {
	now := time.Now()
	for _, i := range c.instances {
		if !i.takenBack.IsZero() && !now.Before(i.takenBack) && i.alive() {
			c.end(i, "Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
			i.takenBack = time.Time{}
		}
		if i.target != "" && !now.Before(i.due) && (c.Hardware == nil || i.arrived) {
			i.state, i.target = i.target, ""
		}
	}
}

func (i *instance) alive() bool {
	return i.state != "terminated" && i.state != "shutting-down"
}

// move lets a machine change to a state after some time.
func (i *instance) move(through, to string, after time.Duration) {
	i.state, i.target, i.due, i.arrived = through, to, time.Now().Add(after), false
	if after == 0 && i.address == "" {
		i.state, i.target = to, ""
	}
}

func (c *Cloud) end(i *instance, code, reason string) {
	if !i.alive() {
		return
	}
	i.move("shutting-down", "terminated", c.End)
	i.reasonCode, i.reason = code, reason
	c.giveBack(i)
}

func (c *Cloud) giveBack(i *instance) {
	o := offer{i.zone, i.machine, i.spot}
	for _, m := range []map[offer]int{c.left, c.allowed} {
		if n, ok := m[o]; ok {
			m[o] = n + 1
		}
	}
}

func (c *Cloud) find(id string) *instance {
	for _, i := range c.instances {
		if i.id == id {
			return i
		}
	}
	return nil
}

type item[T any] struct {
	Item []T `xml:"item"`
}

func (c *Cloud) ec2(region, action string, f url.Values) (any, *fault) {
	switch action {
	case "DescribeRegions":
		type one struct {
			RegionName  string `xml:"regionName"`
			OptInStatus string `xml:"optInStatus"`
		}
		var out struct {
			Set item[one] `xml:"regionInfo"`
		}
		for _, r := range regions {
			out.Set.Item = append(out.Set.Item, one{r.name, "opt-in-not-required"})
		}
		return out, nil
	case "DescribeAvailabilityZones":
		type one struct {
			ZoneName string `xml:"zoneName"`
			ZoneID   string `xml:"zoneId"`
			State    string `xml:"zoneState"`
		}
		var out struct {
			Set item[one] `xml:"availabilityZoneInfo"`
		}
		for _, z := range zonesOf(region) {
			out.Set.Item = append(out.Set.Item, one{z.name, z.id, "available"})
		}
		return out, nil
	case "DescribeVpcs":
		type one struct {
			VpcID     string `xml:"vpcId"`
			IsDefault bool   `xml:"isDefault"`
		}
		var out struct {
			Set item[one] `xml:"vpcSet"`
		}
		if fits(filtersOf(f), map[string]string{}, map[string]string{"is-default": "true"}) {
			out.Set.Item = append(out.Set.Item, one{"vpc-" + region, true})
		}
		return out, nil
	case "DescribeSubnets":
		type one struct {
			SubnetID            string `xml:"subnetId"`
			State               string `xml:"state"`
			VpcID               string `xml:"vpcId"`
			AvailabilityZone    string `xml:"availabilityZone"`
			AvailabilityZoneID  string `xml:"availabilityZoneId"`
			MapPublicIPOnLaunch bool   `xml:"mapPublicIpOnLaunch"`
		}
		var out struct {
			Set item[one] `xml:"subnetSet"`
		}
		for _, z := range zonesOf(region) {
			out.Set.Item = append(out.Set.Item, one{"subnet-" + z.name, "available", "vpc-" + region, z.name, z.id, true})
		}
		return out, nil
	case "DescribeRouteTables":
		type route struct {
			GatewayID string `xml:"gatewayId"`
		}
		type association struct {
			Main bool `xml:"main"`
		}
		type one struct {
			Routes       item[route]       `xml:"routeSet"`
			Associations item[association] `xml:"associationSet"`
		}
		var out struct {
			Set item[one] `xml:"routeTableSet"`
		}
		out.Set.Item = []one{{item[route]{[]route{{"igw-1"}}}, item[association]{[]association{{true}}}}}
		return out, nil
	case "DescribeImages":
		return c.describeImages(f)
	case "DescribeSecurityGroups", "CreateSecurityGroup", "DeleteSecurityGroup", "AuthorizeSecurityGroupIngress", "AuthorizeSecurityGroupEgress":
		return c.securityGroups(region, action, f)
	case "DescribeCapacityReservations":
		return c.describeReservations(region, f)
	case "DescribeInstanceTypes":
		return describeTypes(f)
	case "CreatePlacementGroup", "DescribePlacementGroups", "DeletePlacementGroup":
		return c.placementGroups(region, action, f)
	case "DescribeInstances":
		return c.describeInstances(region, f)
	case "RunInstances":
		return c.runInstances(region, f)
	case "StartInstances", "StopInstances", "TerminateInstances":
		return c.change(region, action, f)
	case "CreateTags":
		return c.createTags(region, f)
	case "ModifyInstanceAttribute":
		i := c.find(f.Get("InstanceId"))
		if i == nil || i.region != region {
			return nil, noInstance(f.Get("InstanceId"))
		}
		if !i.alive() {
			return nil, refuse(http.StatusBadRequest, "IncorrectInstanceState", "The instance %s is not in a valid state for this operation.", i.id)
		}
		if behavior := f.Get("InstanceInitiatedShutdownBehavior.Value"); behavior != "" {
			i.endsWhenOff = behavior == "terminate"
		}
		if g := indexed(f, "GroupId"); len(g) > 0 {
			i.groups = g
		}
		return struct {
			Return bool `xml:"return"`
		}{true}, nil
	}
	return nil, refuse(http.StatusBadRequest, "InvalidAction", "The action %s is not valid for this web service.", action)
}

func noInstance(id string) *fault {
	return refuse(http.StatusBadRequest, "InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
}

func zonesOf(region string) []zone {
	for _, r := range regions {
		if r.name == region {
			return r.zones
		}
	}
	return nil
}

func (c *Cloud) describeImages(f url.Values) (any, *fault) {
	type ebs struct {
		VolumeSize int `xml:"volumeSize"`
	}
	type device struct {
		DeviceName string `xml:"deviceName"`
		Ebs        ebs    `xml:"ebs"`
	}
	type one struct {
		ImageID        string       `xml:"imageId"`
		RootDeviceName string       `xml:"rootDeviceName"`
		Devices        item[device] `xml:"blockDeviceMapping"`
		CreationDate   string       `xml:"creationDate"`
	}
	var out struct {
		Set item[one] `xml:"imagesSet"`
	}
	names := filtersOf(f)
	for _, name := range published {
		if len(names) > 0 && fits(names, nil, map[string]string{"name": name, "state": "available"}) {
			out.Set.Item = append(out.Set.Item, one{"ami-efa-" + name[len(name)-8:], "/dev/sda1", item[device]{[]device{{"/dev/sda1", ebs{60}}}}, name[len(name)-8:]})
		}
	}
	for _, id := range indexed(f, "ImageId") {
		if strings.Contains(id, "missing") {
			return nil, refuse(http.StatusBadRequest, "InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
		out.Set.Item = append(out.Set.Item, one{id, "/dev/xvda", item[device]{[]device{{"/dev/xvda", ebs{8}}}}, ""})
	}
	return out, nil
}

func (c *Cloud) securityGroups(region, action string, f url.Values) (any, *fault) {
	at := func(id string) int {
		return slices.IndexFunc(c.groups, func(g *group) bool { return g.id == id && g.region == region })
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
		g := &group{id: c.next("sg"), name: name, region: region, vpc: vpc, tags: tagsOf(f, "security-group")}
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
		if slices.ContainsFunc(c.instances, func(i *instance) bool { return i.state != "terminated" && slices.Contains(i.groups, g.id) }) {
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
		r := rule{protocol: f.Get("IpPermissions.1.IpProtocol"), cidr: f.Get("IpPermissions.1.IpRanges.1.CidrIp"), from: f.Get("IpPermissions.1.Groups.1.GroupId")}
		r.low, _ = strconv.Atoi(f.Get("IpPermissions.1.FromPort"))
		r.high, _ = strconv.Atoi(f.Get("IpPermissions.1.ToPort"))
		if slices.Contains(c.groups[n].rules, r) {
			return nil, refuse(http.StatusBadRequest, "InvalidPermission.Duplicate", "the specified rule already exists")
		}
		c.groups[n].rules = append(c.groups[n].rules, r)
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
		Set item[one] `xml:"securityGroupInfo"`
	}
	for _, g := range c.groups {
		if g.region != region || !fits(filtersOf(f), g.tags, map[string]string{"group-name": g.name, "vpc-id": g.vpc}) {
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
		out.Set.Item = append(out.Set.Item, o)
	}
	return out, nil
}

type stateXML struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type reasonXML struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type instanceXML struct {
	InstanceID  string     `xml:"instanceId"`
	State       stateXML   `xml:"instanceState"`
	Machine     string     `xml:"instanceType"`
	LaunchIndex int        `xml:"amiLaunchIndex"`
	LaunchTime  string     `xml:"launchTime"`
	Zone        string     `xml:"placement>availabilityZone"`
	ZoneID      string     `xml:"placement>availabilityZoneId"`
	PrivateIP   string     `xml:"privateIpAddress,omitempty"`
	PublicIP    string     `xml:"ipAddress,omitempty"`
	Lifecycle   string     `xml:"instanceLifecycle,omitempty"`
	Reason      *reasonXML `xml:"stateReason,omitempty"`
	Tags        item[tag]  `xml:"tagSet"`
	Attached    string     `xml:"blockDeviceMapping>item>ebs>attachTime"`
	Groups      struct {
		Item []struct {
			GroupID string `xml:"groupId"`
		} `xml:"item"`
	} `xml:"groupSet"`
}

var stateCodes = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}

func (c *Cloud) show(i *instance) instanceXML {
	state := i.state
	if s, ok := c.lie[i.id]; ok {
		state = s
	}
	x := instanceXML{
		InstanceID: i.id, State: stateXML{stateCodes[state], state}, Machine: i.machine, LaunchIndex: i.index,
		LaunchTime: i.launched.UTC().Format("2006-01-02T15:04:05.000Z"), Zone: i.zone, Tags: item[tag]{tagSet(i.tags)},
		Attached: i.created.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	for _, z := range zonesOf(i.region) {
		if z.name == i.zone {
			x.ZoneID = z.id
		}
	}
	switch {
	case !i.alive():
	case i.address != "":
		x.PrivateIP, x.PublicIP = i.address, i.address
	default:
		x.PrivateIP = fmt.Sprintf("172.31.%d.%d", i.ip/250, i.ip%250+4)
		if i.state == "running" {
			x.PublicIP = fmt.Sprintf("198.51.%d.%d", i.ip/250, i.ip%250+4)
		}
	}
	if i.spot {
		x.Lifecycle = "spot"
	}
	if i.reasonCode != "" {
		x.Reason = &reasonXML{i.reasonCode, i.reason}
	}
	for _, g := range i.groups {
		x.Groups.Item = append(x.Groups.Item, struct {
			GroupID string `xml:"groupId"`
		}{g})
	}
	return x
}

type reservationXML struct {
	ReservationID string            `xml:"reservationId"`
	Instances     item[instanceXML] `xml:"instancesSet"`
}

func (c *Cloud) describeInstances(region string, f url.Values) (any, *fault) {
	var found []instanceXML
	for _, i := range c.instances {
		if i.region != region {
			continue
		}
		if i.hidden > 0 {
			i.hidden--
			continue
		}
		if fits(filtersOf(f), i.tags, map[string]string{"instance-state-name": i.state}) {
			found = append(found, c.show(i))
		}
	}
	var out struct {
		Set       item[reservationXML] `xml:"reservationSet"`
		NextToken string               `xml:"nextToken,omitempty"`
	}
	from, _ := strconv.Atoi(f.Get("NextToken"))
	from = min(max(from, 0), len(found))
	to := len(found)
	if c.Page > 0 && f.Get("MaxResults") != "" {
		to = min(from+c.Page, to)
	}
	for n, i := range found[from:to] {
		out.Set.Item = append(out.Set.Item, reservationXML{fmt.Sprintf("r-%d", from+n), item[instanceXML]{[]instanceXML{i}}})
	}
	if to < len(found) {
		out.NextToken = strconv.Itoa(to)
	}
	return out, nil
}

func (c *Cloud) runInstances(region string, f url.Values) (any, *fault) {
	var out struct {
		ReservationID string            `xml:"reservationId"`
		Instances     item[instanceXML] `xml:"instancesSet"`
	}
	out.ReservationID = c.next("r")
	token := f.Get("ClientToken")
	parameters := hash(f, "ClientToken")
	if before, ok := c.tokens[region+token]; ok && token != "" {
		if before.parameters != parameters {
			return nil, refuse(http.StatusBadRequest, "IdempotentParameterMismatch", "The client token %s was used before with other parameters", token)
		}
		for _, id := range before.ids {
			out.Instances.Item = append(out.Instances.Item, c.show(c.find(id)))
		}
		return out, nil
	}
	n, err := strconv.Atoi(f.Get("MinCount"))
	if err != nil || n < 1 || f.Get("MaxCount") != f.Get("MinCount") {
		return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "Value for parameter MinCount is invalid")
	}
	machine, subnet := f.Get("InstanceType"), f.Get("NetworkInterface.1.SubnetId")
	if !slices.Contains(machines, machine) {
		return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "Invalid value '%s' for InstanceType.", machine)
	}
	if f.Get("ImageId") == "" {
		return nil, refuse(http.StatusBadRequest, "MissingParameter", "The request must contain the parameter ImageId")
	}
	where := strings.TrimPrefix(subnet, "subnet-")
	if !slices.ContainsFunc(zonesOf(region), func(z zone) bool { return z.name == where }) {
		return nil, refuse(http.StatusBadRequest, "InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", subnet)
	}
	groups := indexed(f, "NetworkInterface.1.SecurityGroupId")
	for _, g := range groups {
		if !slices.ContainsFunc(c.groups, func(x *group) bool { return x.id == g }) {
			return nil, refuse(http.StatusBadRequest, "InvalidGroup.NotFound", "The security group '%s' does not exist", g)
		}
	}
	if p := f.Get("IamInstanceProfile.Name"); p != "" {
		if _, ok := c.profiles[p]; !ok {
			return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", p)
		}
	}
	held, nics, bad := c.admitInterfaces(region, where, machine, n, f)
	if bad != nil {
		return nil, bad
	}
	o := offer{where, machine, f.Get("InstanceMarketOptions.MarketType") == "spot"}
	if allowed, ok := c.allowed[o]; ok && allowed < n {
		if o.spot {
			return nil, refuse(http.StatusBadRequest, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
		}
		return nil, refuse(http.StatusBadRequest, "VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the specified instance type belongs to.")
	}
	if left, ok := c.left[o]; ok && left < n && held == nil {
		return nil, refuse(http.StatusInternalServerError, "InsufficientInstanceCapacity", "We currently do not have sufficient %s capacity in the Availability Zone you requested (%s).", machine, where)
	}
	made := run{parameters: parameters}
	for k := range n {
		i := c.make(region, o, tagsOf(f, "instance"))
		i.groups, i.index, i.subnet, i.hidden = groups, k, subnet, c.hide
		i.userData = f.Get("UserData")
		i.placement, i.held, i.nics = f.Get("Placement.GroupName"), held, nics
		disk := "BlockDeviceMapping.1.Ebs."
		i.disk = strings.Join([]string{f.Get(disk + "VolumeType"), f.Get(disk + "Iops"), f.Get(disk + "Throughput")}, " ")
		i.move("pending", "running", c.Boot)
		if _, ok := c.left[o]; ok {
			c.left[o]--
		}
		if _, ok := c.allowed[o]; ok {
			c.allowed[o]--
		}
		made.ids = append(made.ids, i.id)
		out.Instances.Item = append(out.Instances.Item, c.show(i))
	}
	if token != "" {
		c.tokens[region+token] = made
	}
	return out, nil
}

// make adds a machine.
func (c *Cloud) make(region string, o offer, tags map[string]string) *instance {
	i := &instance{id: c.next("i"), region: region, zone: o.zone, machine: o.machine, spot: o.spot, tags: tags, launched: c.now(), created: c.now(), vpc: "vpc-" + region}
	i.ip = c.serial
	if c.Hardware != nil {
		i.address = c.Hardware.Address(i.id)
	}
	c.instances = append(c.instances, i)
	return i
}

func (c *Cloud) change(region, action string, f url.Values) (any, *fault) {
	type one struct {
		InstanceID string   `xml:"instanceId"`
		Current    stateXML `xml:"currentState"`
	}
	var out struct {
		Set item[one] `xml:"instancesSet"`
	}
	var list []*instance
	for _, id := range indexed(f, "InstanceId") {
		i := c.find(id)
		if i == nil || i.region != region {
			return nil, noInstance(id)
		}
		list = append(list, i)
	}
	wrong := func(i *instance) *fault {
		return refuse(http.StatusBadRequest, "IncorrectInstanceState", "The instance '%s' is not in a state from which it can be changed: %s", i.id, i.state)
	}
	// All or nothing, as there.
	for _, i := range list {
		switch {
		case action == "StartInstances" && i.state != "stopped" && i.state != "running" && i.state != "pending",
			action == "StopInstances" && !i.alive():
			return nil, wrong(i)
		case action == "StopInstances" && i.spot:
			return nil, refuse(http.StatusBadRequest, "UnsupportedOperation", "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request.", i.id)
		case action == "StartInstances" && i.state == "stopped":
			o := offer{i.zone, i.machine, i.spot}
			if left, ok := c.left[o]; ok && left < 1 {
				return nil, refuse(http.StatusInternalServerError, "InsufficientInstanceCapacity", "Insufficient capacity in %s.", i.zone)
			}
		}
	}
	for _, i := range list {
		switch action {
		case "StartInstances":
			if i.state == "stopped" {
				o := offer{i.zone, i.machine, i.spot}
				if _, ok := c.left[o]; ok {
					c.left[o]--
				}
				i.reasonCode, i.reason = "", ""
				i.launched = c.now()
				i.move("pending", "running", c.Boot)
			}
		case "StopInstances":
			if i.state == "running" || i.state == "pending" {
				i.move("stopping", "stopped", c.End)
				i.reasonCode, i.reason = "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"
				o := offer{i.zone, i.machine, i.spot}
				if n, ok := c.left[o]; ok {
					c.left[o] = n + 1
				}
			}
		case "TerminateInstances":
			c.end(i, "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
		}
		out.Set.Item = append(out.Set.Item, one{i.id, stateXML{stateCodes[i.state], i.state}})
	}
	return out, nil
}

func (c *Cloud) createTags(region string, f url.Values) (any, *fault) {
	var list []*instance
	for _, id := range indexed(f, "ResourceId") {
		i := c.find(id)
		if i == nil || i.region != region {
			return nil, noInstance(id)
		}
		list = append(list, i)
	}
	for n := 1; ; n++ {
		key, ok := f[fmt.Sprintf("Tag.%d.Key", n)]
		if !ok {
			break
		}
		for _, i := range list {
			i.tags[key[0]] = f.Get(fmt.Sprintf("Tag.%d.Value", n))
		}
	}
	return struct {
		Return bool `xml:"return"`
	}{true}, nil
}
