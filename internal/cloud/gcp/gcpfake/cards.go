package gcpfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// fabricCards are how many network cards a machine of a type with cards between GPUs has,
// and rdmaCards how many of those are for RDMA:
// https://cloud.google.com/compute/docs/gpus/gpu-network-bandwidth.
var (
	fabricCards = map[string]int{"a3-edgegpu-8g": 5, "a3-highgpu-8g": 5, "a3-megagpu-8g": 9, "a3-ultragpu-8g": 10, "a4-highgpu-8g": 10}
	rdmaCards   = map[string]int{"a3-ultragpu-8g": 8, "a4-highgpu-8g": 8}
)

// mostCards is how many network interfaces a machine may have:
// https://cloud.google.com/vpc/docs/create-use-multiple-interfaces#max-interfaces.
func mostCards(machine string) int {
	if n, ok := fabricCards[machine]; ok {
		return n
	}
	return min(max(machineTypes[machine].cpus, 2), 8)
}

// withoutRDMA is a zone without a profile for RDMA.
const withoutRDMA = "us-central1-f"

// mostNetworks is the quota of networks of a new project.
const mostNetworks = 15

// checkNetwork is https://cloud.google.com/compute/docs/reference/rest/v1/networks/insert, with
// the profiles of https://cloud.google.com/vpc/docs/rdma-network-profiles.
func checkNetwork(f *Fake, _ *http.Request, in dict) error {
	if mtu, ok := in["mtu"].(float64); ok && (mtu < 1300 || mtu > 8896) {
		return invalid("mtu", mtu, "Must be between 1300 and 8896")
	}
	if in["autoCreateSubnetworks"] == nil && in["IPv4Range"] == nil {
		in["autoCreateSubnetworks"] = true
	}
	if in["routingConfig"] == nil {
		in["routingConfig"] = dict{"routingMode": "REGIONAL"}
	}
	if len(f.under("projects/"+Project+"/global/networks/")) >= mostNetworks {
		return refuse(403, "quotaExceeded", "Quota 'NETWORKS' exceeded.  Limit: %d.0 globally.", mostNetworks)
	}
	ref, _ := in["networkProfile"].(string)
	if ref == "" {
		return nil
	}
	p := path(Project, ref)
	zone, ok := strings.CutSuffix(p[strings.LastIndex(p, "/")+1:], "-vpc-roce")
	switch {
	case !strings.HasPrefix(p, "projects/"+Project+"/global/networkProfiles/") || !ok || regionOf(zone) == "" || zone == withoutRDMA:
		return invalid("networkProfile", ref, "The referenced network profile cannot be found.")
	case in["autoCreateSubnetworks"] == true:
		return invalid("autoCreateSubnetworks", true, "The network profile allows no subnetworks of automatic mode.")
	}
	in["networkProfile"] = link(p)
	return nil
}

// profileZone is the zone of a network with a profile; "": it has none.
func (f *Fake) profileZone(network string) string {
	p, _ := f.items[network]["networkProfile"].(string)
	return strings.TrimSuffix(p[strings.LastIndex(p, "/")+1:], "-vpc-roce")
}

func (f *Fake) checkNetworks(zone string, in dict, p *plan) error {
	nics := fakehttp.Items(in["networkInterfaces"])
	if len(nics) == 0 {
		return invalid("networkInterfaces", "", "At least one network interface is required.")
	}
	if most := mostCards(p.machine); len(nics) > most {
		return refuse(400, "badRequest", "Invalid value for field 'resource.networkInterfaces': ''. Too many network interfaces. The maximum number of network interfaces allowed for this instance is %d.", most)
	}
	var told []any
	var ranges []netip.Prefix
	for n, x := range nics {
		nic, _ := x.(dict)
		at := fmt.Sprintf("networkInterfaces[%d]", n)
		if no := known(nic, nicFields, at); no != nil {
			return no
		}
		network, _ := nic["network"].(string)
		subnet, _ := nic["subnetwork"].(string)
		if network == "" && subnet == "" {
			network = "global/networks/default"
		}
		if network != "" {
			if network = path(Project, network); !f.exists(network) {
				return notFound(network)
			}
			if subnet == "" {
				if f.items[network]["autoCreateSubnetworks"] != true {
					return invalid(at, "", "Network interface must specify a subnet if the network resource is in custom subnet mode.")
				}
				subnet = "regions/" + regionOf(zone) + "/subnetworks/" + network[strings.LastIndex(network, "/")+1:]
			}
		}
		if subnet = path(Project, subnet); !f.exists(subnet) {
			return notFound(subnet)
		}
		if strings.Split(subnet, "/")[3] != regionOf(zone) {
			return invalid(at+".subnetwork", subnet, "Subnetwork must be in the region '%s' of the instance.", regionOf(zone))
		}
		of := path(Project, fmt.Sprint(f.items[subnet]["network"]))
		if network != "" && of != network {
			return invalid(at+".subnetwork", subnet, "The subnetwork is not of the network '%s'.", network)
		}
		profile, _ := f.items[of]["networkProfile"].(string)
		kind, _ := nic["nicType"].(string)
		switch {
		case kind != "" && !slices.Contains([]string{"GVNIC", "VIRTIO_NET", "MRDMA"}, kind):
			return invalid(at+".nicType", kind, "No such value.")
		case (kind == "MRDMA") != (profile != ""):
			return invalid(at+".nicType", kind, "The network '%s' does not take such interfaces: those of the type MRDMA belong into networks with a profile for RDMA.", of)
		case profile != "" && (rdmaCards[p.machine] == 0 || profile[strings.LastIndex(profile, "/")+1:] != zone+"-vpc-roce"):
			return invalid(at+".network", of, "The network's profile '%s' takes no instances of the type '%s' in the zone '%s'.", profile, p.machine, zone)
		case profile != "" && len(fakehttp.Items(nic["accessConfigs"])) > 0:
			return invalid(at+".accessConfigs", "", "The network's profile '%s' allows no external addresses.", profile)
		case profile != "" && slices.Contains(p.uses["subnetwork"], subnet):
			return invalid(at+".subnetwork", subnet, "Several interfaces are in the same subnetwork.")
		}
		cidr, _ := netip.ParsePrefix(fmt.Sprint(f.items[subnet]["ipCidrRange"]))
		if slices.ContainsFunc(ranges, cidr.Overlaps) {
			return invalid(at+".subnetwork", subnet, "The range '%s' overlaps that of another interface.", cidr)
		}
		ranges = append(ranges, cidr)
		if profile == "" && slices.Contains(p.uses["network"], of) {
			return invalid(at+".network", of, "Networks must be distinct for NICs in the same zone.")
		}
		if !f.may("compute.subnetworks.use") {
			return refuse(403, "forbidden", "Required 'compute.subnetworks.use' permission for '%s'", subnet)
		}
		access := fakehttp.Items(nic["accessConfigs"])
		if len(access) > 1 {
			return invalid(at+".accessConfigs", len(access), "At most one access config.")
		}
		if len(access) == 1 {
			if !f.may("compute.subnetworks.useExternalIp") {
				return refuse(403, "forbidden", "Required 'compute.subnetworks.useExternalIp' permission for '%s'", subnet)
			}
			if no := known(access[0].(dict), "kind type name natIP networkTier setPublicPtr publicPtrDomainName externalIpv6 externalIpv6PrefixLength securityPolicy", at+".accessConfigs[0]"); no != nil {
				return no
			}
			if t := access[0].(dict)["type"]; t != nil && t != "ONE_TO_ONE_NAT" {
				return invalid(at+".accessConfigs[0].type", t, "No such value.")
			}
			p.public = true
		}
		p.uses["network"], p.uses["subnetwork"] = append(p.uses["network"], of), append(p.uses["subnetwork"], subnet)
		shown := maps.Clone(nic)
		shown["name"], shown["network"], shown["subnetwork"], shown["fingerprint"], shown["kind"] = fmt.Sprintf("nic%d", n), link(of), link(subnet), fingerprint(n), "compute#networkInterface"
		told = append(told, shown)
	}
	p.body["networkInterfaces"] = told
	return nil
}
