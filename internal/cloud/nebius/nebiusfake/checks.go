package nebiusfake

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

func (f *Fake) checkGroup(_, spec dict) error {
	if f.Thing("network", spec["network_id"]) == nil {
		return fakehttp.Missing(spec["network_id"])
	}
	return nil
}

// groupUnused refuses to remove a group that has rules, or an instance.
func (f *Fake) groupUnused(o dict) error {
	if f.ThingBy("securityrule", "parent", o["id"]) != nil {
		return fluffyapi.Errorf(fluffyapi.InUse, "%v has rules", o["id"])
	}
	return f.Unused(o)
}

func (f *Fake) checkRule(_, spec dict) error {
	in, _ := spec["ingress"].(dict)
	out, _ := spec["egress"].(dict)
	priority, _ := spec["priority"].(float64)
	ports := append(fakehttp.Items(in["destination_ports"]), fakehttp.Items(out["destination_ports"])...)
	cidrs := append(fakehttp.Items(in["source_cidrs"]), fakehttp.Items(out["destination_cidrs"])...)
	switch {
	case (in == nil) == (out == nil):
		return invalid("spec.match", "exactly one field is required in oneof")
	case spec["access"] == nil, spec["protocol"] == nil:
		return invalid("spec", "access and protocol are required")
	case priority < 0 || priority > 1000:
		return invalid("spec.priority", "%v", priority)
	case len(ports) > 8 || len(cidrs) > 8:
		return invalid("spec.match", "value must contain no more than 8 item(s)")
	}
	for _, p := range ports {
		if n := p.(float64); n < 1 || n > 65535 {
			return invalid("spec.match.destination_ports", "%v", n)
		}
	}
	for _, c := range cidrs {
		if p, err := netip.ParsePrefix(str(c)); err != nil || p.Masked() != p {
			return invalid("spec.match.cidrs", "value must be a valid CIDR")
		}
	}
	return nil
}

func (f *Fake) checkCluster(_, spec dict) error {
	if str(spec["infiniband_fabric"]) == "" {
		return invalid("spec.infiniband_fabric", "value is required")
	}
	return nil
}

// chunk is what the size of some types of disks is a multiple of.
const chunk = 93 << 30

func checkDisk(_, spec dict) error {
	size := 0
	for field, unit := range map[string]int{"size_bytes": 1, "size_kibibytes": 1 << 10, "size_mebibytes": 1 << 20, "size_gibibytes": 1 << 30} {
		n, _ := strconv.Atoi(str(spec[field]))
		size += n * unit
	}
	family, _ := spec["source_image_family"].(dict)
	switch kind := str(spec["type"]); {
	case kind == "":
		return invalid("spec.type", "value is required")
	case size < 10<<30:
		return invalid("spec.size", "%d bytes are less than the image needs", size)
	case (kind == "NETWORK_SSD_NON_REPLICATED" || kind == "NETWORK_SSD_IO_M3") && size%chunk != 0:
		return invalid("spec.size", "the size must be a multiple of 93 GiB")
	case family != nil && !slices.Contains(families, str(family["image_family"])):
		return fakehttp.Missing("image family " + str(family["image_family"]))
	case spec["source_image_id"] != nil && !strings.HasPrefix(str(spec["source_image_id"]), "computeimage-"):
		return fakehttp.Missing(spec["source_image_id"])
	}
	return nil
}

// user is the instance that a disk is attached to; one that there was no room for has none.
func (f *Fake) user(disk dict) string {
	for _, i := range f.MadeWith(disk["id"]) {
		if i.State != fakehttp.Failed {
			return i.ID
		}
	}
	return ""
}

func (f *Fake) diskUnused(o dict) error {
	if f.user(o) != "" {
		return fluffyapi.Errorf(fluffyapi.InUse, "%v is in use", o["id"])
	}
	return nil
}

func (f *Fake) diskStatus(o dict) dict {
	if young(o) {
		return dict{"state": "CREATING", "reconciling": true}
	}
	return dict{"state": "READY", "read_write_attachment": f.user(o)}
}

// young reports whether a thing is being created.
func young(o dict) bool { return time.Since(o["made"].(time.Time)) < 10*time.Millisecond }

// checkParts looks at what an instance is made with: disks, cards, groups, a cluster.
func (f *Fake) checkParts(project, preset string, spec dict) error {
	boot, _ := spec["boot_disk"].(dict)
	existing, _ := boot["existing_disk"].(dict)
	managed, _ := boot["managed_disk"].(dict)
	switch disk := f.Thing("disk", existing["id"]); {
	case boot["attach_mode"] == nil:
		return invalid("spec.boot_disk.attach_mode", "value is required")
	case (existing == nil) == (managed == nil):
		return invalid("spec.boot_disk.type", "exactly one field is required in oneof")
	case existing != nil && (disk == nil || disk["parent"] != project):
		return fakehttp.Missing(existing["id"])
	case existing != nil && f.user(disk) != "":
		return fluffyapi.Errorf(fluffyapi.WrongState, "disk %v is attached to %s", disk["id"], f.user(disk))
	case existing != nil && young(disk):
		return fluffyapi.Errorf(fluffyapi.WrongState, "disk %v is being created", disk["id"])
	case managed != nil:
		s, _ := managed["spec"].(dict)
		if err := checkDisk(nil, s); err != nil || str(managed["name"]) == "" {
			return cmpErr(err, invalid("spec.boot_disk.managed_disk.name", "value is required"))
		}
	}
	if c, ok := spec["gpu_cluster"].(dict); ok {
		if o := f.Thing("gpucluster", c["id"]); o == nil || o["parent"] != project {
			return fakehttp.Missing(c["id"])
		} else if presets[preset].gpu != 8 {
			return invalid("spec.gpu_cluster", "preset %s cannot be in a cluster", preset)
		}
	}
	cards := fakehttp.Items(spec["network_interfaces"])
	if len(cards) < 1 || len(cards) > 8 {
		return invalid("spec.network_interfaces", "1 to 8 are needed")
	}
	for _, c := range cards {
		card := c.(dict)
		subnet := f.Thing("subnet", card["subnet_id"])
		switch {
		case !cardName.MatchString(str(card["name"])):
			return invalid("spec.network_interfaces.name", "%q", str(card["name"]))
		case card["ip_address"] == nil:
			return invalid("spec.network_interfaces.ip_address", "value is required")
		case subnet == nil || subnet["parent"] != project:
			return fakehttp.Missing(card["subnet_id"])
		}
		for _, g := range fakehttp.Items(card["security_groups"]) {
			if o := f.Thing("securitygroup", g.(dict)["id"]); o == nil || o["parent"] != project {
				return fakehttp.Missing(g.(dict)["id"])
			}
		}
	}
	return nil
}

// Rules are the TCP ports that the security groups of an instance open to the world. Rules
// hold single ports, or none for all: neighbours are a range here.
func (f *Fake) Rules(id string) (opened []string) {
	spec, _ := f.Asked(id)["spec"].(dict)
	var ports []int
	for _, c := range fakehttp.Items(spec["network_interfaces"]) {
		for _, g := range fakehttp.Items(c.(dict)["security_groups"]) {
			for _, o := range f.Things("securityrule") {
				s := o["spec"].(dict)
				in, ok := s["ingress"].(dict)
				world := len(fakehttp.Items(in["source_cidrs"])) == 0 || slices.Contains(fakehttp.Items(in["source_cidrs"]), any("0.0.0.0/0"))
				if !ok || o["parent"] != g.(dict)["id"] || !world || in["source_security_group_id"] != nil || s["access"] != "ALLOW" || s["protocol"] != "TCP" && s["protocol"] != "ANY" {
					continue
				}
				for _, p := range fakehttp.Items(in["destination_ports"]) {
					n, _ := strconv.Atoi(fmt.Sprint(p))
					ports = append(ports, n)
				}
				if len(fakehttp.Items(in["destination_ports"])) == 0 {
					opened = append(opened, "1-65535")
				}
			}
		}
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	for from := 0; from < len(ports); {
		to := from
		for to+1 < len(ports) && ports[to+1] == ports[to]+1 {
			to++
		}
		opened, from = append(opened, fakehttp.Ports(ports[from], ports[to])), to+1
	}
	slices.Sort(opened)
	return slices.Compact(opened)
}
