package awsfake

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// What a call may say and has to say. A parameter or a filter that this fake
// gives no meaning to is refused: passing over it would be kinder than AWS.

// call is one action of EC2: the parameters that it understands beside those of
// all, and those that it needs.
type call struct {
	may  string // names as in the query, N for any number, * for what follows
	must []string
}

const listing = " Filter.N.Name Filter.N.Value.N MaxResults NextToken"

var calls = map[string]call{
	"DescribeRegions":           {may: ""},
	"DescribeAvailabilityZones": {may: ""},
	"DescribeVpcs":              {may: listing},
	"DescribeSubnets":           {may: listing},
	"DescribeRouteTables":       {may: listing},
	"DescribeImages":            {may: listing + " ImageId.N Owner.N"},
	"CreateImage": {may: " InstanceId Name Description TagSpecification.N.ResourceType TagSpecification.N.Tag.N.Key TagSpecification.N.Tag.N.Value",
		must: []string{"InstanceId", "Name"}},
	"DeregisterImage":              {may: " ImageId", must: []string{"ImageId"}},
	"DescribeSnapshots":            {may: listing + " Owner.N"},
	"DeleteSnapshot":               {may: " SnapshotId", must: []string{"SnapshotId"}},
	"DescribeInstanceTypes":        {may: listing + " InstanceType.N"},
	"DescribeCapacityReservations": {may: listing},
	"DescribePlacementGroups":      {may: " Filter.N.Name Filter.N.Value.N"},
	"DescribeInstances":            {may: listing},
	"DescribeSecurityGroups":       {may: listing},
	"CreateSecurityGroup": {may: " GroupName GroupDescription VpcId TagSpecification.N.ResourceType TagSpecification.N.Tag.N.Key TagSpecification.N.Tag.N.Value",
		must: []string{"GroupName", "GroupDescription"}},
	"DeleteSecurityGroup":           {may: " GroupId", must: []string{"GroupId"}},
	"AuthorizeSecurityGroupIngress": {may: " GroupId IpPermissions.*", must: []string{"GroupId", "IpPermissions.1.IpProtocol"}},
	"AuthorizeSecurityGroupEgress":  {may: " GroupId IpPermissions.*", must: []string{"GroupId", "IpPermissions.1.IpProtocol"}},
	"CreatePlacementGroup": {may: " GroupName Strategy TagSpecification.N.ResourceType TagSpecification.N.Tag.N.Key TagSpecification.N.Tag.N.Value",
		must: []string{"GroupName", "Strategy"}},
	"DeletePlacementGroup": {may: " GroupName", must: []string{"GroupName"}},
	"RunInstances": {may: " ImageId InstanceType MinCount MaxCount ClientToken UserData InstanceInitiatedShutdownBehavior IamInstanceProfile.Name InstanceMarketOptions.MarketType" +
		" InstanceMarketOptions.SpotOptions.SpotInstanceType InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior" +
		" CapacityReservationSpecification.CapacityReservationPreference CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId" +
		" Placement.GroupName MetadataOptions.HttpTokens MetadataOptions.HttpEndpoint" +
		" NetworkInterface.N.DeviceIndex NetworkInterface.N.NetworkCardIndex NetworkInterface.N.SubnetId NetworkInterface.N.SecurityGroupId.N" +
		" NetworkInterface.N.AssociatePublicIpAddress NetworkInterface.N.DeleteOnTermination NetworkInterface.N.InterfaceType" +
		" BlockDeviceMapping.N.DeviceName BlockDeviceMapping.N.Ebs.VolumeSize BlockDeviceMapping.N.Ebs.VolumeType BlockDeviceMapping.N.Ebs.Iops" +
		" BlockDeviceMapping.N.Ebs.Throughput BlockDeviceMapping.N.Ebs.Encrypted BlockDeviceMapping.N.Ebs.DeleteOnTermination" +
		" TagSpecification.N.ResourceType TagSpecification.N.Tag.N.Key TagSpecification.N.Tag.N.Value",
		must: []string{"ImageId", "InstanceType", "MinCount", "MaxCount"}},
	"StartInstances":                  {may: " InstanceId.N", must: []string{"InstanceId.1"}},
	"StopInstances":                   {may: " InstanceId.N", must: []string{"InstanceId.1"}},
	"TerminateInstances":              {may: " InstanceId.N", must: []string{"InstanceId.1"}},
	"CreateTags":                      {may: " ResourceId.N Tag.N.Key Tag.N.Value", must: []string{"ResourceId.1", "Tag.1.Key"}},
	"ModifyInstanceAttribute":         {may: " InstanceId InstanceInitiatedShutdownBehavior.Value GroupId.N", must: []string{"InstanceId"}},
	"ModifyNetworkInterfaceAttribute": {may: " NetworkInterfaceId SecurityGroupId.N", must: []string{"NetworkInterfaceId"}},
}

// filters are what each list can be narrowed by, beside tags.
var filterNames = map[string][]string{
	"DescribeVpcs":                 {"is-default"},
	"DescribeSubnets":              {"vpc-id"},
	"DescribeRouteTables":          {"vpc-id"},
	"DescribeImages":               {"name", "state"},
	"DescribeCapacityReservations": {"instance-type", "state"},
	"DescribeInstances":            {"instance-state-name"},
	"DescribeSecurityGroups":       {"group-name", "vpc-id"},
}

var number = regexp.MustCompile(`\.\d+`)

// wellFormed refuses a call that says too much or too little.
func wellFormed(action string, f url.Values) *fault {
	known, ok := calls[action]
	if !ok {
		return refuse(http.StatusBadRequest, "InvalidAction", "The action %s is not valid for this web service.", action)
	}
	may := append(strings.Fields(known.may), "Action", "Version", "DryRun")
	for name := range f {
		plain := number.ReplaceAllString(name, ".N")
		understood := slices.ContainsFunc(may, func(m string) bool {
			prefix, open := strings.CutSuffix(m, "*")
			return plain == m || open && strings.HasPrefix(plain, prefix)
		})
		if !understood {
			return refuse(http.StatusBadRequest, "UnknownParameter", "The parameter %s is not recognized", name)
		}
	}
	for _, name := range known.must {
		if f.Get(name) == "" {
			return refuse(http.StatusBadRequest, "MissingParameter", "The request must contain the parameter %s", strings.TrimSuffix(name, ".1"))
		}
	}
	for _, by := range filtersOf(f) {
		if by.name != "tag-key" && !strings.HasPrefix(by.name, "tag:") && !slices.Contains(filterNames[action], by.name) {
			return refuse(http.StatusBadRequest, "InvalidParameterValue", "The filter '%s' is invalid", by.name)
		}
		if len(by.values) == 0 || len(by.values) > 200 {
			return refuse(http.StatusBadRequest, "InvalidParameterValue", "A filter has 1 to 200 values")
		}
	}
	return wellTagged(action, f)
}

// taggable are the things that a call may make with tags.
var taggable = map[string][]string{
	"RunInstances":         {"instance", "volume", "network-interface", "spot-instances-request"},
	"CreateSecurityGroup":  {"security-group"},
	"CreateImage":          {"image", "snapshot"},
	"CreatePlacementGroup": {"placement-group"},
}

// mostTags is how many tags a thing has at most.
const mostTags = 50

func wellTagged(action string, f url.Values) *fault {
	for n := 1; ; n++ {
		prefix := nth("TagSpecification", n)
		kind, ok := f[prefix+".ResourceType"]
		if !ok {
			break
		}
		if !slices.Contains(taggable[action], kind[0]) {
			return refuse(http.StatusBadRequest, "InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", kind[0])
		}
		if no := tagsFine(f, prefix+".Tag", 0); no != nil {
			return no
		}
	}
	return tagsFine(f, "Tag", 0)
}

// tagsFine refuses tags that a thing with so many cannot have.
func tagsFine(f url.Values, prefix string, have int) *fault {
	for n := 1; ; n++ {
		key, ok := f[nth(prefix, n)+".Key"]
		value := f.Get(nth(prefix, n) + ".Value")
		switch {
		case !ok && n-1+have > mostTags:
			return refuse(http.StatusBadRequest, "TagLimitExceeded", "More than %d tags were specified", mostTags)
		case !ok:
			return nil
		case strings.HasPrefix(strings.ToLower(key[0]), "aws:"):
			return refuse(http.StatusBadRequest, "InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		case key[0] == "" || len([]rune(key[0])) > 128:
			return refuse(http.StatusBadRequest, "InvalidParameterValue", "Tag key exceeds the maximum length of 128 characters")
		case len([]rune(value)) > 256:
			return refuse(http.StatusBadRequest, "InvalidParameterValue", "Tag value exceeds the maximum length of 256 characters")
		}
	}
}
