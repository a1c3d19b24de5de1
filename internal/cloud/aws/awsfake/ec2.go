package awsfake

import (
	"cmp"
	"fmt"
	"maps"
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
		if i.state == "terminated" {
			c.clear(i)
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

func (c *Cloud) ec2(region, action string, f url.Values) (answer any, no *fault) {
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
			if c.closed[r.name] == "OptInRequired" { // lists name what the account has switched on
				continue
			}
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
			Set  item[one] `xml:"vpcSet"`
			Next string    `xml:"nextToken,omitempty"`
		}
		var all []one
		for _, v := range []one{{"vpc-other-" + region, false}, {"vpc-more-" + region, false}, {"vpc-" + region, true}} {
			if fits(filtersOf(f), map[string]string{"Name": v.VpcID}, map[string]string{"is-default": strconv.FormatBool(v.IsDefault)}) {
				all = append(all, v)
			}
		}
		out.Set.Item, out.Next, no = page(c, region, action, f, all)
		return out, no
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
			Set  item[one] `xml:"subnetSet"`
			Next string    `xml:"nextToken,omitempty"`
		}
		var all []one
		for _, z := range zonesOf(region) {
			if fits(filtersOf(f), nil, map[string]string{"vpc-id": "vpc-" + region}) {
				all = append(all, one{"subnet-" + z.name, "available", "vpc-" + region, z.name, z.id, true})
			}
		}
		if private := c.private; private && len(all) > 0 {
			for _, z := range zonesOf(region) {
				all = append(all, one{"subnet-private-" + z.name, "available", "vpc-" + region, z.name, z.id, false})
			}
		}
		out.Set.Item, out.Next, no = page(c, region, action, f, all)
		return out, no
	case "DescribeRouteTables":
		type route struct {
			GatewayID string `xml:"gatewayId"`
		}
		type association struct {
			Main   bool   `xml:"main"`
			Subnet string `xml:"subnetId,omitempty"`
		}
		type one struct {
			Routes       item[route]       `xml:"routeSet"`
			Associations item[association] `xml:"associationSet"`
		}
		var out struct {
			Set  item[one] `xml:"routeTableSet"`
			Next string    `xml:"nextToken,omitempty"`
		}
		if !fits(filtersOf(f), nil, map[string]string{"vpc-id": "vpc-" + region}) {
			return out, nil
		}
		all := []one{{item[route]{[]route{{"igw-1"}}}, item[association]{[]association{{Main: true}}}}}
		for _, z := range zonesOf(region) {
			all = append(all, one{item[route]{[]route{{"local"}}}, item[association]{[]association{{Subnet: "subnet-private-" + z.name}}}})
		}
		out.Set.Item, out.Next, no = page(c, region, action, f, all)
		return out, no
	case "DescribeImages":
		return c.describeImages(region, f)
	case "DescribeSecurityGroups", "CreateSecurityGroup", "DeleteSecurityGroup", "AuthorizeSecurityGroupIngress", "AuthorizeSecurityGroupEgress":
		return c.securityGroups(region, action, f)
	case "DescribeCapacityReservations":
		return c.describeReservations(region, f)
	case "DescribeInstanceTypes":
		return c.describeTypes(region, f)
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
		return c.modifyInstance(region, f)
	case "ModifyNetworkInterfaceAttribute":
		return c.modifyInterface(region, f)
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

func (c *Cloud) describeImages(region string, f url.Values) (answer any, no *fault) {
	type ebs struct {
		VolumeSize int  `xml:"volumeSize"`
		Ends       bool `xml:"deleteOnTermination"`
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
		Set  item[one] `xml:"imagesSet"`
		Next string    `xml:"nextToken,omitempty"`
	}
	var all []one
	names := filtersOf(f)
	for _, name := range published {
		if len(names) > 0 && fits(names, nil, map[string]string{"name": name, "state": "available"}) {
			all = append(all, one{"ami-efa-" + name[len(name)-8:], "/dev/sda1", item[device]{[]device{{"/dev/sda1", ebs{60, true}}}}, name[len(name)-8:]})
		}
	}
	for _, id := range indexed(f, "ImageId") {
		if strings.Contains(id, "missing") {
			return nil, refuse(http.StatusBadRequest, "InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
		o := one{id, "/dev/xvda", item[device]{[]device{{"/dev/xvda", ebs{8, true}}}}, ""}
		for _, d := range moreDisks(id) {
			o.Devices.Item = append(o.Devices.Item, device{d, ebs{100, false}})
		}
		all = append(all, o)
	}
	out.Set.Item, out.Next, no = page(c, region, "DescribeImages", f, all)
	return out, no
}

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

type stateXML struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type reasonXML struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type instanceXML struct {
	InstanceID  string         `xml:"instanceId"`
	State       stateXML       `xml:"instanceState"`
	Machine     string         `xml:"instanceType"`
	LaunchIndex int            `xml:"amiLaunchIndex"`
	LaunchTime  string         `xml:"launchTime"`
	Zone        string         `xml:"placement>availabilityZone"`
	ZoneID      string         `xml:"placement>availabilityZoneId"`
	PrivateIP   string         `xml:"privateIpAddress,omitempty"`
	PublicIP    string         `xml:"ipAddress,omitempty"`
	Lifecycle   string         `xml:"instanceLifecycle,omitempty"`
	Reason      *reasonXML     `xml:"stateReason,omitempty"`
	Tags        item[tag]      `xml:"tagSet"`
	Attached    string         `xml:"blockDeviceMapping>item>ebs>attachTime"`
	VpcID       string         `xml:"vpcId"`
	Groups      item[groupXML] `xml:"groupSet"`
	Nics        item[nicXML]   `xml:"networkInterfaceSet"`
}

type groupXML struct {
	GroupID   string `xml:"groupId"`
	GroupName string `xml:"groupName"`
}

type nicXML struct {
	ID     string         `xml:"networkInterfaceId"`
	Kind   string         `xml:"interfaceType"`
	Groups item[groupXML] `xml:"groupSet"`
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
		Attached: i.created.UTC().Format("2006-01-02T15:04:05.000Z"), VpcID: i.vpc,
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
	for _, n := range c.nics {
		if n.instance != i.id {
			continue
		}
		shown := nicXML{ID: n.id, Kind: cmp.Or(n.kind, "interface")}
		for _, g := range n.groups {
			one := groupXML{GroupID: g}
			if n := slices.IndexFunc(c.groups, func(have *group) bool { return have.id == g }); n >= 0 {
				one.GroupName = c.groups[n].name
			}
			shown.Groups.Item = append(shown.Groups.Item, one)
			if len(x.Nics.Item) == 0 {
				x.Groups.Item = append(x.Groups.Item, one)
			}
		}
		x.Nics.Item = append(x.Nics.Item, shown)
	}
	if len(x.Nics.Item) == 1 && x.Nics.Item[0].Kind == "interface" {
		x.Nics.Item = nil // the only one has nothing to tell that the machine does not; long lists stay short
	}
	return x
}

// list is show as lists have it, which come after what has happened.
func (c *Cloud) list(i *instance) instanceXML {
	x := c.show(i)
	if unknown(&i.behind) {
		x.State = stateXML{stateCodes[i.before], i.before}
	}
	if i.tagsBehind > 0 {
		x.Tags = item[tag]{tagSet(i.tagsBefore)}
	}
	return x
}

type reservationXML struct {
	ReservationID string            `xml:"reservationId"`
	Instances     item[instanceXML] `xml:"instancesSet"`
}

func (c *Cloud) describeInstances(region string, f url.Values) (answer any, no *fault) {
	var out struct {
		Set  item[reservationXML] `xml:"reservationSet"`
		Next string               `xml:"nextToken,omitempty"`
	}
	var all []reservationXML
	if !f.Has("NextToken") {
		for _, i := range c.instances {
			if i.region != region || unknown(&i.hidden) {
				continue
			}
			tags := i.tags
			if i.tagsBehind > 0 {
				tags = i.tagsBefore
			}
			if fits(filtersOf(f), tags, map[string]string{"instance-state-name": i.state}) {
				all = append(all, reservationXML{"r-" + i.id, item[instanceXML]{[]instanceXML{c.list(i)}}})
			}
			unknown(&i.tagsBehind)
		}
	}
	out.Set.Item, out.Next, no = page(c, region, "DescribeInstances", f, all)
	return out, no
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
			if !c.find(id).alive() {
				return nil, refuse(http.StatusBadRequest, "IdempotentInstanceTerminated", "The client token you have provided is associated with a terminated instance. Please use a different client token.")
			}
			out.Instances.Item = append(out.Instances.Item, c.show(c.find(id)))
		}
		return out, nil
	}
	if len(token) > 64 {
		return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "Value (%s) for parameter clientToken is invalid. Expected length of 64 or less.", token)
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
	where := strings.TrimPrefix(strings.TrimPrefix(subnet, "subnet-"), "private-")
	if !slices.ContainsFunc(zonesOf(region), func(z zone) bool { return z.name == where }) {
		return nil, refuse(http.StatusBadRequest, "InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", subnet)
	}
	groups := indexed(f, "NetworkInterface.1.SecurityGroupId")
	for _, g := range groups {
		if !slices.ContainsFunc(c.groups, func(x *group) bool { return x.id == g && !unknown(&x.unknown) }) {
			return nil, refuse(http.StatusBadRequest, "InvalidGroup.NotFound", "The security group '%s' does not exist", g)
		}
	}
	if p := f.Get("IamInstanceProfile.Name"); p != "" {
		roles, ok := c.profiles[p]
		switch { // EC2 learns of the profile, and then of the role in it
		case !ok:
			return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", p)
		case len(roles) == 0 || c.tooYoung("profile "+p):
			return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "IAM Instance Profile \"arn:aws:iam::%s:instance-profile/%s\" has no associated IAM Roles", Account, p)
		}
	}
	held, nics, bad := c.admitInterfaces(region, where, machine, n, f)
	if bad != nil {
		return nil, bad
	}
	disks, bad := disksOf(f)
	if bad != nil {
		return nil, bad
	}
	o := offer{where, machine, f.Get("InstanceMarketOptions.MarketType") == "spot"}
	if c.unsupported[offer{zone: where, machine: machine}] {
		return nil, refuse(http.StatusBadRequest, "Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s). Please retry your request by not specifying an Availability Zone.", machine, where)
	}
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
		i.index, i.subnet, i.hidden = k, subnet, max(c.hide, c.unsettled)
		i.userData = f.Get("UserData")
		i.endsWhenOff = f.Get("InstanceInitiatedShutdownBehavior") == "terminate"
		i.placement, i.held, i.kinds = f.Get("Placement.GroupName"), held, nics
		disk := "BlockDeviceMapping.1.Ebs."
		i.disk = strings.Join([]string{f.Get(disk + "VolumeType"), f.Get(disk + "Iops"), f.Get(disk + "Throughput")}, " ")
		c.furnish(i, f, disks)
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
	for _, id := range made.ids { // the answer still says pending
		if c.broken != nil {
			c.end(c.find(id), c.broken.Code, c.broken.Message)
		}
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
		if i == nil || i.region != region || unknown(&i.hidden) {
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
			action == "StopInstances" && (!i.alive() || i.state == "pending"):
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
		i.before, i.behind = i.state, c.unsettled
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
		if i.state == i.before {
			i.behind = 0
		}
		out.Set.Item = append(out.Set.Item, one{i.id, stateXML{stateCodes[i.state], i.state}})
	}
	return out, nil
}

func (c *Cloud) createTags(region string, f url.Values) (any, *fault) {
	var list []*instance
	for _, id := range indexed(f, "ResourceId") {
		i := c.find(id)
		if i == nil || i.region != region || unknown(&i.hidden) {
			return nil, noInstance(id)
		}
		list = append(list, i)
	}
	for _, i := range list {
		if i.tagsBehind == 0 {
			i.tagsBefore, i.tagsBehind = maps.Clone(i.tags), c.unsettled
		}
		tags := maps.Clone(i.tags)
		for n := 1; f.Has(nth("Tag", n) + ".Key"); n++ {
			tags[f.Get(nth("Tag", n)+".Key")] = f.Get(nth("Tag", n) + ".Value")
		}
		if len(tags) > mostTags {
			return nil, refuse(http.StatusBadRequest, "TagLimitExceeded", "More than %d tags were specified", mostTags)
		}
		i.tags = tags
	}
	return struct {
		Return bool `xml:"return"`
	}{true}, nil
}
