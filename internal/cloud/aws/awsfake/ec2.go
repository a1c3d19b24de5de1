package awsfake

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

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
	case "CreateImage":
		return c.createImage(region, f)
	case "DeregisterImage":
		return c.deregisterImage(region, f)
	case "DescribeSnapshots":
		return c.describeSnapshots(region, f)
	case "DeleteSnapshot":
		return c.deleteSnapshot(region, f)
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
		VolumeSize int    `xml:"volumeSize"`
		Ends       bool   `xml:"deleteOnTermination"`
		SnapshotID string `xml:"snapshotId,omitempty"`
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
		State          string       `xml:"imageState"`
		Tags           item[tag]    `xml:"tagSet"`
	}
	var out struct {
		Set  item[one] `xml:"imagesSet"`
		Next string    `xml:"nextToken,omitempty"`
	}
	var all []one
	names := filtersOf(f)
	for _, name := range published {
		if len(names) > 0 && fits(names, nil, map[string]string{"name": name, "state": "available"}) {
			all = append(all, one{"ami-efa-" + name[len(name)-8:], "/dev/sda1", item[device]{[]device{{"/dev/sda1", ebs{60, true, ""}}}}, name[len(name)-8:], "available", item[tag]{}})
		}
	}
	own := func(i *image) one {
		return one{i.id, "/dev/sda1", item[device]{[]device{{"/dev/sda1", ebs{i.gb, true, i.snapshot}}}}, i.created.UTC().Format("2006-01-02T15:04:05.000Z"), i.state(), item[tag]{tagSet(i.tags)}}
	}
	if slices.Contains(indexed(f, "Owner"), "self") {
		for _, i := range c.images {
			if i.region == region && fits(names, i.tags, map[string]string{"name": i.name, "state": i.state()}) && !unknown(&i.hidden) {
				all = append(all, own(i))
			}
		}
	}
	for _, id := range indexed(f, "ImageId") {
		if n := slices.IndexFunc(c.images, func(i *image) bool { return i.id == id && i.region == region }); n >= 0 {
			all = append(all, own(c.images[n]))
			continue
		}
		if strings.Contains(id, "missing") {
			return nil, refuse(http.StatusBadRequest, "InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
		o := one{id, "/dev/xvda", item[device]{[]device{{"/dev/xvda", ebs{8, true, ""}}}}, "", "available", item[tag]{}}
		for _, d := range moreDisks(id) {
			o.Devices.Item = append(o.Devices.Item, device{d, ebs{100, false, ""}})
		}
		all = append(all, o)
	}
	out.Set.Item, out.Next, no = page(c, region, "DescribeImages", f, all)
	return out, no
}

var stateCodes = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}

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
