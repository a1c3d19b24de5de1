package aws

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// runInput is the call for instances, without count, token and subnet.
func runInput(spec cloud.LaunchSpec, s Settings, img image, groupID, profile string) *ec2.RunInstancesInput {
	in := &ec2.RunInstancesInput{
		ImageId:      sdk.String(img.id),
		InstanceType: types.InstanceType(spec.Offer.InstanceType),
		UserData:     sdk.String(base64.StdEncoding.EncodeToString([]byte(userData(s.user(), spec.AuthorizedKey, spec.LocalDisk != "", s.FirstRun)))),
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: sdk.Int32(0), Groups: []string{groupID}, DeleteOnTermination: sdk.Bool(true),
			AssociatePublicIpAddress: sdk.Bool(!s.InternalIPs),
		}},
		BlockDeviceMappings: disks(spec, s, img),
		MetadataOptions:     &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired, HttpEndpoint: types.InstanceMetadataEndpointStateEnabled},
		TagSpecifications:   specifications(tagsOf(spec, s)),
	}
	if profile != "" {
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: sdk.String(profile)}
	}
	if spec.Offer.Spot {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{
			MarketType: types.MarketTypeSpot,
			SpotOptions: &types.SpotMarketOptions{
				SpotInstanceType:             types.SpotInstanceTypeOneTime,
				InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate,
			},
		}
		// It cannot be stopped, so powering off by itself can only be its end.
		in.InstanceInitiatedShutdownBehavior = types.ShutdownBehaviorTerminate
	}
	if !spec.Offer.Spot {
		in.CapacityReservationSpecification = &types.CapacityReservationSpecification{CapacityReservationPreference: types.CapacityReservationPreferenceOpen}
	}
	return in
}

// tagsOf is what every machine of a cluster carries from its first moment. A
// label may replace a tag that only people read.
func tagsOf(spec cloud.LaunchSpec, s Settings) map[string]string {
	tags := map[string]string{tagRayCluster: spec.ID.Name, tagName: spec.ID.Name}
	for k, v := range s.Labels {
		tags[k] = v
	}
	for k, v := range spec.Labels {
		tags[k] = v
	}
	for k, v := range spec.RecordTags() {
		tags[k] = v
	}
	if spec.User != "" {
		tags[tagUser] = spec.User
	}
	for k, v := range spec.ID.Tags() {
		tags[k] = v
	}
	return tags
}

// specifications put the tags on machines and what is made with them.
func specifications(tags map[string]string) []types.TagSpecification {
	return []types.TagSpecification{
		{ResourceType: types.ResourceTypeInstance, Tags: toTags(tags)},
		{ResourceType: types.ResourceTypeVolume, Tags: toTags(tags)},
		{ResourceType: types.ResourceTypeNetworkInterface, Tags: toTags(tags)},
	}
}

// defaultDiskGB is the size of the disk when a task names none.
const defaultDiskGB = 256

// disks are the machine's own, and those that its image brings: they go with it,
// too, whatever the image says.
func disks(spec cloud.LaunchSpec, s Settings, img image) []types.BlockDeviceMapping {
	out := []types.BlockDeviceMapping{{DeviceName: sdk.String(img.root), Ebs: disk(spec, s, img)}}
	for _, device := range img.more {
		d := &types.EbsBlockDevice{DeleteOnTermination: sdk.Bool(true)}
		if s.EncryptDisks {
			d.Encrypted = sdk.Bool(true)
		}
		out = append(out, types.BlockDeviceMapping{DeviceName: sdk.String(device), Ebs: d})
	}
	return out
}

// mostMagnetic is the largest disk of the tier low, in GB.
const mostMagnetic = 1024

// disk is the machine's disk by its tier.
func disk(spec cloud.LaunchSpec, s Settings, img image) *types.EbsBlockDevice {
	size := spec.DiskGB
	if size == 0 {
		size = defaultDiskGB
	}
	size = max(size, img.size)
	d := &types.EbsBlockDevice{VolumeSize: sdk.Int32(int32(size)), DeleteOnTermination: sdk.Bool(true)}
	if s.EncryptDisks {
		d.Encrypted = sdk.Bool(true)
	}
	switch spec.DiskTier {
	case "low":
		d.VolumeType = types.VolumeTypeStandard
	case "high":
		d.VolumeType, d.Iops, d.Throughput = types.VolumeTypeGp3, iops(7000, size), sdk.Int32(437)
	case "ultra", "best":
		d.VolumeType, d.Iops = types.VolumeTypeIo2, sdk.Int32(int32(max(100, min(20000, mostIOPS*size))))
	default: // medium
		d.VolumeType, d.Iops, d.Throughput = types.VolumeTypeGp3, iops(3500, size), sdk.Int32(218)
	}
	return d
}

// mostIOPS is how many a volume may be given for each GB of its size.
const mostIOPS = 500

// iops are what a gp3 volume is given, as many as wanted if it is large enough;
// nil: the 3000 that each has.
func iops(want, size int) *int32 {
	if want = min(want, mostIOPS*size); want <= 3000 {
		return nil
	}
	return sdk.Int32(int32(want))
}

// userData lets the key in and keeps the system's updates from running while
// work does. Disks inside the machine are mounted at each boot, if that is
// wanted: they are empty whenever it comes back on another host. The user's
// commands run once, at the end of the first boot. cloud-init reads it.
func userData(user, key string, localDisks bool, firstRun []any) string {
	var b strings.Builder
	b.WriteString("#cloud-config\nusers:\n- default\n")
	if key = strings.TrimSpace(key); key != "" {
		fmt.Fprintf(&b, "- name: %s\n  shell: /bin/bash\n  sudo: ALL=(ALL) NOPASSWD:ALL\n  ssh_authorized_keys:\n  - %s\n", user, strconv.Quote(key))
	}
	b.WriteString("bootcmd:\n" + vm.BootCommand())
	if localDisks {
		b.WriteString("- [sh, -c, " + strconv.Quote(mountLocal) + "]\n")
	}
	if len(firstRun) > 0 {
		commands, err := json.Marshal(firstRun) // YAML, too
		if err != nil {
			panic(err) // texts and lists of texts, as the configuration was checked
		}
		fmt.Fprintf(&b, "runcmd: %s\n", commands)
	}
	return b.String()
}

// mountLocal makes a file system on each disk inside the machine that has none
// and mounts them at /mnt/local, /mnt/local1, ...
const mountLocal = `lsblk -dno NAME,MODEL | awk '/EC2 NVMe Instance Storage/ {print $1}' | sort | { n=; while read -r d; do ` +
	`m=/mnt/local$n; n=$((n+1)); findmnt -S /dev/$d >/dev/null && continue; ` +
	`blkid /dev/$d >/dev/null || mkfs.ext4 -q /dev/$d || continue; mkdir -p $m; mount /dev/$d $m && chmod 1777 $m; done; }`

// mostTags is how many tags a thing can have.
const mostTags = 50

var validUser = lazyregexp.New(`^[a-z_][a-z0-9_-]{0,31}$`)

// valid refuses what AWS would refuse, or worse, understand otherwise.
func (p *Provider) valid(spec cloud.LaunchSpec) error {
	name := spec.ID.Name
	if name == "" || len(name) > maxName {
		return fmt.Errorf("a cluster's name has 1 to %d bytes, %q has %d", maxName, name, len(name))
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-') {
			return fmt.Errorf("%q holds %q; the names of clusters on AWS have small letters, digits and dashes", name, r)
		}
	}
	for k, v := range spec.Labels {
		if err := validLabel(k, v); err != nil {
			return err
		}
	}
	if n := len(tagsOf(spec, p.settings(spec))) + len(rankTags(spec.ID, 0)) - 1; n > mostTags { // Name is in both
		return fmt.Errorf("a machine has %d tags at most, and with these labels it would have %d", mostTags, n)
	}
	if size := cmp.Or(spec.DiskGB, defaultDiskGB); spec.DiskTier == "low" && size > mostMagnetic {
		return fmt.Errorf("disks of tier low have %d GB at most on AWS, not %d; take disk_tier: medium", mostMagnetic, size)
	}
	for _, ports := range spec.Ports {
		if _, _, err := cloud.PortRange(ports); err != nil {
			return err
		}
	}
	if s := p.settings(spec); !validUser.MatchString(s.user()) {
		return fmt.Errorf("%q is no user to log in as (aws.ssh_user in the configuration)", s.user())
	}
	return nil
}

func validLabel(k, v string) error {
	noSpace := func(s string, limit int) bool {
		return utf8.RuneCountInString(s) <= limit && !strings.ContainsAny(s, " \t\r\n")
	}
	switch {
	case k == "" || strings.HasPrefix(strings.ToLower(k), "aws:") || !noSpace(k, 127):
		return fmt.Errorf("%q cannot be a label on AWS: up to 127 characters, no spaces, not beginning with aws:", k)
	case !noSpace(v, 255):
		return fmt.Errorf("%q cannot be the value of a label on AWS: up to 255 characters, no spaces", v)
	}
	return nil
}
