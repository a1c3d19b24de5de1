package awsfake

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What comes with instances: volumes and network interfaces, which outlive them
// unless they were told not to.

type volume struct {
	id, region, instance string // instance: "" is attached to none
	ends                 bool   // with its instance
	encrypted            bool
	tags                 map[string]string
}

type nic struct {
	id, region, instance, kind string
	ends                       bool
	groups                     []string
	tags                       map[string]string
}

// mostRules is how many rules a security group has at most.
const mostRules = 60

// moreDisks are disks that an image brings beside its root, and that stay when
// its machine goes unless the launch says otherwise.
func moreDisks(image string) []string {
	if strings.Contains(image, "with-data") {
		return []string{"/dev/sdb"}
	}
	return nil
}

// disksOf reads the disks of a launch by their devices and refuses what no
// volume can be.
func disksOf(f url.Values) (map[string]volume, *fault) {
	out := map[string]volume{}
	for n := 1; f.Has(nth("BlockDeviceMapping", n) + ".DeviceName"); n++ {
		p := nth("BlockDeviceMapping", n) + "."
		get := func(key string) int { v, _ := strconv.Atoi(f.Get(p + "Ebs." + key)); return v }
		size, iops, through, kind := get("VolumeSize"), get("Iops"), get("Throughput"), f.Get(p+"Ebs.VolumeType")
		wrong := func(format string, args ...any) (map[string]volume, *fault) {
			return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", format, args...)
		}
		switch {
		case through > 0 && kind != "gp3":
			return nil, refuse(http.StatusBadRequest, "InvalidParameterCombination", "The parameter throughput is not supported for %s volumes", kind)
		case kind == "gp3" && (iops != 0 && (iops < 3000 || iops > 16000) || through != 0 && (through < 125 || through*4 > max(iops, 3000))):
			return wrong("gp3 volumes have 3000 to 16000 IOPS and 0.25 MiB/s for each at most, not %d and %d", iops, through)
		case kind == "gp3" && size > 0 && iops > max(3000, 500*size):
			return wrong("Iops to volume size ratio of %d is too high; maximum is 500", iops/size)
		case kind == "io2" && (iops < 100 || size > 0 && iops > 1000*size):
			return wrong("Iops to volume size ratio of %d for %d GiB is too high; maximum is 1000", iops, size)
		case kind == "standard" && (iops > 0 || size > 1024):
			return wrong("Volume of %dGiB is too large for volume type standard; maximum is 1024 GiB", size)
		case size > 16384:
			return wrong("Volume of %dGiB is too large; maximum is 16384 GiB", size)
		}
		out[f.Get(p+"DeviceName")] = volume{ends: f.Get(p+"Ebs.DeleteOnTermination") == "true", encrypted: f.Get(p+"Ebs.Encrypted") == "true"}
	}
	for _, device := range moreDisks(f.Get("ImageId")) {
		if _, ok := out[device]; !ok {
			out[device] = volume{}
		}
	}
	return out, nil
}

// furnish makes what comes with an instance. The caller holds mu.
func (c *Cloud) furnish(i *instance, f url.Values, disks map[string]volume) {
	for _, d := range disks {
		d.id, d.region, d.instance, d.tags = c.next("vol"), i.region, i.id, tagsOf(f, "volume")
		c.volumes = append(c.volumes, &d)
	}
	for k := 1; f.Has(nth("NetworkInterface", k) + ".DeviceIndex"); k++ {
		p := nth("NetworkInterface", k)
		c.nics = append(c.nics, &nic{id: c.next("eni"), region: i.region, instance: i.id, kind: f.Get(p + ".InterfaceType"),
			ends: f.Get(p+".DeleteOnTermination") == "true", groups: indexed(f, p+".SecurityGroupId"), tags: tagsOf(f, "network-interface")})
	}
}

// clear takes away what ends with an instance. The caller holds mu.
func (c *Cloud) clear(i *instance) {
	c.volumes = slices.DeleteFunc(c.volumes, func(v *volume) bool { return v.instance == i.id && v.ends })
	c.nics = slices.DeleteFunc(c.nics, func(n *nic) bool { return n.instance == i.id && n.ends })
}

func (c *Cloud) modifyInstance(region string, f url.Values) (any, *fault) {
	i := c.find(f.Get("InstanceId"))
	groups, behavior := indexed(f, "GroupId"), f.Get("InstanceInitiatedShutdownBehavior.Value")
	switch {
	case i == nil || i.region != region || unknown(&i.hidden):
		return nil, noInstance(f.Get("InstanceId"))
	case !i.alive():
		return nil, refuse(http.StatusBadRequest, "IncorrectInstanceState", "The instance %s is not in a valid state for this operation.", i.id)
	case len(groups) > 0 == (behavior != ""):
		return nil, refuse(http.StatusBadRequest, "InvalidParameterCombination", "One attribute can be modified at a time")
	case behavior == "stop" && i.spot:
		return nil, refuse(http.StatusBadRequest, "UnsupportedOperation", "The shutdown behavior of a Spot Instance cannot be modified")
	case behavior != "":
		i.endsWhenOff = behavior == "terminate"
	default:
		var own []*nic
		for _, n := range c.nics {
			if n.instance == i.id {
				own = append(own, n)
			}
		}
		if len(own) > 1 {
			return nil, refuse(http.StatusBadRequest, "InvalidInstanceID", "There are multiple interfaces attached to instance '%s'. Please specify an interface ID for the operation instead.", i.id)
		}
		if no := c.put(own[0], groups); no != nil {
			return nil, no
		}
	}
	return struct {
		Return bool `xml:"return"`
	}{true}, nil
}

func (c *Cloud) modifyInterface(region string, f url.Values) (any, *fault) {
	id := f.Get("NetworkInterfaceId")
	n := slices.IndexFunc(c.nics, func(n *nic) bool { return n.id == id && n.region == region })
	if n < 0 {
		return nil, refuse(http.StatusBadRequest, "InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id)
	}
	if no := c.put(c.nics[n], indexed(f, "SecurityGroupId")); no != nil {
		return nil, no
	}
	return struct {
		Return bool `xml:"return"`
	}{true}, nil
}

// put moves an interface into security groups. The caller holds mu.
func (c *Cloud) put(n *nic, groups []string) *fault {
	for _, id := range groups {
		if !slices.ContainsFunc(c.groups, func(g *group) bool { return g.id == id && g.region == n.region && !unknown(&g.unknown) }) {
			return refuse(http.StatusBadRequest, "InvalidSecurityGroupID.NotFound", "The security group '%s' does not exist", id)
		}
	}
	n.groups = groups
	return nil
}

// groupsOf are the security groups of a machine. The caller holds mu.
func (c *Cloud) groupsOf(id string) []string {
	var out []string
	for _, n := range c.nics {
		if n.instance == id {
			out = append(out, n.groups...)
		}
	}
	return out
}

// Tags are what a machine, its volumes and its network interfaces carry.
func (c *Cloud) Tags(id string) (machine map[string]string, volumes, nics []map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.find(id); i != nil {
		machine = i.tags
	}
	for _, v := range c.volumes {
		if v.instance == id {
			volumes = append(volumes, v.tags)
		}
	}
	for _, n := range c.nics {
		if n.instance == id {
			nics = append(nics, n.tags)
		}
	}
	return machine, volumes, nics
}

// CloseRegion lets nobody use a region: every call there is answered with code,
// OptInRequired or AuthFailure for one that is not switched on, and
// UnauthorizedOperation for one that a policy of the organization denies.
func (c *Cloud) CloseRegion(region, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed[region] = code
}

// Without takes a type of machine out of a zone.
func (c *Cloud) Without(zone, machine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsupported[offer{zone: zone, machine: machine}] = true
}

// Private adds a private subnet to each zone.
func (c *Cloud) Private() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.private = true
}

// Drift sets AWS's clock, by which signatures are judged, apart from ours.
func (c *Cloud) Drift(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drift = by
}

// GroupsOf are the security groups of a machine's network interfaces, one after
// the other.
func (c *Cloud) GroupsOf(id string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groupsOf(id)
}

// SendsToItself reports that a rule of its own lets the members of a security
// group send to each other.
func (c *Cloud) SendsToItself(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.groups, func(g *group) bool { return g.id == id && g.outward })
}
