package awsfake

import (
	"cmp"
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

func noInstance(id string) *fault {
	return refuse(http.StatusBadRequest, "InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
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
	for _, i := range c.images {
		if i.id == f.Get("ImageId") && (i.region != region || i.state() != "available") {
			return nil, refuse(http.StatusBadRequest, "InvalidAMIID.Unavailable", "The image id '[%s]' is not available", i.id)
		}
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
	open := c.openFor(where, machine, n, f)
	if left, ok := c.left[o]; ok && left < n-len(open) && held == nil {
		return nil, refuse(http.StatusInternalServerError, "InsufficientInstanceCapacity", "We currently do not have sufficient %s capacity in the Availability Zone you requested (%s).", machine, where)
	}
	made := run{parameters: parameters}
	for k := range n {
		i := c.make(region, o, tagsOf(f, "instance"))
		i.index, i.subnet, i.hidden = k, subnet, max(c.hide, c.unsettled)
		i.userData, i.image = f.Get("UserData"), f.Get("ImageId")
		i.endsWhenOff = f.Get("InstanceInitiatedShutdownBehavior") == "terminate"
		i.placement, i.held, i.kinds = f.Get("Placement.GroupName"), held, nics
		if k < len(open) {
			i.held = open[k]
		}
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
