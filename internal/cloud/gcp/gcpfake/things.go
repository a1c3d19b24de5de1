package gcpfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// routes are all.
func (f *Fake) routes() {
	f.tokenRoutes()
	f.accountRoutes()
	f.operationRoutes()
	f.placeRoutes()
	for _, c := range collections() {
		f.serve(c)
	}
	f.on("GET", "/compute/{version}/projects/{project}/global/networks/{name}/getEffectiveFirewalls", "networks.get", "compute.networks.getEffectiveFirewalls", nil, func(r *http.Request, _ dict) (any, error) {
		p := "projects/" + Project + "/global/networks/" + r.PathValue("name")
		if !f.exists(p) {
			return nil, notFound(p)
		}
		rules := []dict{}
		for _, q := range f.under("projects/" + Project + "/global/firewalls/") {
			if path(Project, fmt.Sprint(f.items[q]["network"])) == p {
				rules = append(rules, f.items[q])
			}
		}
		return dict{"firewalls": rules, "firewallPolicys": []any{}}, nil
	})
	f.on("GET", "/compute/{version}/projects/{project}/global/images/family/{family}", "images.get", "compute.images.getFromFamily", nil, func(r *http.Request, _ dict) (any, error) {
		var newest dict
		for _, p := range f.under("projects/" + r.PathValue("project") + "/global/images/") {
			if o := f.items[p]; o["family"] == r.PathValue("family") && o["deprecated"] == nil {
				newest = o // of those in the order of their names
			}
		}
		if newest == nil {
			return nil, notFound("projects/" + r.PathValue("project") + "/global/images/family/" + r.PathValue("family"))
		}
		return newest, nil
	})
	f.instanceRoutes()
	f.groupRoutes()
	f.tpuRoutes()
}

// collections are what is kept besides machines, each as its page of
// https://cloud.google.com/compute/docs/reference/rest/v1/NAME has it.
func collections() []*collection {
	return []*collection{
		{
			name: "networks", kind: "compute#network", scope: "global", fields: "name description autoCreateSubnetworks mtu routingConfig IPv4Range enableUlaInternalIpv6 networkFirewallPolicyEnforcementOrder networkProfile params",
			check: checkNetwork,
			users: func(f *Fake, p string) []string { return f.usersOf(p, "network") },
			made: func(f *Fake, p string) {
				if f.items[p]["autoCreateSubnetworks"] == true {
					f.subnets(p)
				}
			},
			gone: func(f *Fake, p string) {
				for q, o := range f.items {
					if strings.Contains(q, "/subnetworks/") && path(Project, fmt.Sprint(o["network"])) == p {
						delete(f.items, q)
					}
				}
			},
		},
		{
			name: "subnetworks", kind: "compute#subnetwork", scope: "regions", fields: "name description network ipCidrRange region secondaryIpRanges privateIpGoogleAccess purpose role logConfig enableFlowLogs stackType ipv6AccessType internalIpv6Prefix externalIpv6Prefix privateIpv6GoogleAccess fingerprint params",
			check: func(f *Fake, r *http.Request, in dict) error {
				n, _ := in["network"].(string)
				if n == "" {
					return missing("network")
				}
				if !f.exists(path(Project, n)) {
					return notFound(path(Project, n))
				}
				if zone := f.profileZone(path(Project, n)); zone != "" && regionOf(zone) != r.PathValue("region") {
					return invalid("region", r.PathValue("region"), "The network's profile is of the zone '%s'.", zone)
				}
				cidr, err := netip.ParsePrefix(fmt.Sprint(in["ipCidrRange"]))
				if err != nil || cidr.Masked() != cidr {
					return invalid("ipCidrRange", in["ipCidrRange"], "Must be a valid IPv4 CIDR range with the host bits zero.")
				}
				for p, o := range f.items {
					other, _ := netip.ParsePrefix(fmt.Sprint(o["ipCidrRange"]))
					if strings.Contains(p, "/subnetworks/") && path(Project, fmt.Sprint(o["network"])) == path(Project, n) && other.Overlaps(cidr) {
						return refuse(400, "invalid", "Invalid IPCidrRange: %s conflicts with existing subnetwork '%s' in region '%s'.", cidr, o["name"], strings.Split(p, "/")[3])
					}
				}
				in["network"], in["gatewayAddress"] = link(path(Project, n)), cidr.Addr().Next().String()
				return nil
			},
			users: func(f *Fake, p string) []string { return f.usersOf(p, "subnetwork") },
		},
		{
			name: "firewalls", kind: "compute#firewall", scope: "global", patch: true,
			fields: "kind id creationTimestamp selfLink name description network priority sourceRanges destinationRanges sourceTags targetTags sourceServiceAccounts targetServiceAccounts allowed denied direction logConfig disabled params",
			check:  checkFirewall,
		},
		{
			name: "disks", kind: "compute#disk", scope: "zones", labels: true, fields: "name description sizeGb type sourceImage sourceSnapshot sourceDisk labels labelFingerprint zone architecture params enableConfidentialCompute physicalBlockSizeBytes provisionedIops provisionedThroughput resourcePolicies guestOsFeatures licenses diskEncryptionKey accessMode storagePool",
			check: func(f *Fake, r *http.Request, in dict) error {
				gb, err := f.diskSize(in["sizeGb"], in["sourceImage"], "sizeGb")
				if err != nil {
					return err
				}
				if in["sourceImage"] == nil && in["sizeGb"] == nil {
					gb = 500
				}
				if err := checkDiskType(r.PathValue("zone"), in["type"], "type"); err != nil {
					return err
				}
				if in["type"] == nil {
					in["type"] = link("projects/" + Project + "/" + scopeOf(r) + "/diskTypes/pd-standard")
				}
				in["sizeGb"], in["status"] = strconv.Itoa(gb), "READY"
				return nil
			},
			users: func(f *Fake, p string) []string { return f.usersOf(p, "disk") },
		},
		{
			name: "resourcePolicies", kind: "compute#resourcePolicy", scope: "regions", fields: "name description groupPlacementPolicy snapshotSchedulePolicy instanceSchedulePolicy workloadPolicy diskConsistencyGroupPolicy region",
			check: func(f *Fake, _ *http.Request, in dict) error {
				if in["groupPlacementPolicy"] == nil && in["workloadPolicy"] == nil && in["snapshotSchedulePolicy"] == nil && in["instanceSchedulePolicy"] == nil {
					return invalid("", "", "One of the policies must be specified.")
				}
				in["status"] = "READY"
				return nil
			},
			users: func(f *Fake, p string) []string { return f.usersOf(p, "policy") },
		},
		{
			name: "images", kind: "compute#image", scope: "global", labels: true, fields: "name description family sourceDisk sourceImage sourceSnapshot rawDisk diskSizeGb labels labelFingerprint guestOsFeatures licenses storageLocations architecture params sourceType",
			check: func(f *Fake, _ *http.Request, in dict) error {
				d, _ := in["sourceDisk"].(string)
				if d == "" && in["sourceImage"] == nil && in["rawDisk"] == nil && in["sourceSnapshot"] == nil {
					return missing("sourceDisk")
				}
				if d != "" {
					disk := f.items[path(Project, d)]
					if disk == nil {
						return notFound(path(Project, d))
					}
					if users := f.usersOf(path(Project, d), "disk"); len(users) > 0 && f.running(users[0]) {
						return refuse(400, "resourceInUseByAnotherResource", "The disk resource '%s' is already being used by '%s'", path(Project, d), users[0])
					}
					in["diskSizeGb"] = disk["sizeGb"]
				}
				in["status"] = "READY"
				return nil
			},
		},
		{name: "machineImages", kind: "compute#machineImage", scope: "global", fields: "name description sourceInstance guestFlush storageLocations machineImageEncryptionKey", check: func(f *Fake, _ *http.Request, in dict) error {
			v := f.vmAt(path(Project, fmt.Sprint(in["sourceInstance"])))
			if v == nil {
				return notFound(path(Project, fmt.Sprint(in["sourceInstance"])))
			}
			in["status"], in["instanceProperties"] = "READY", v.body
			return nil
		}},
		{
			name: "reservations", kind: "compute#reservation", scope: "zones", fields: "name description specificReservation specificReservationRequired aggregateReservation shareSettings resourcePolicies deleteAtTime deleteAfterDuration zone schedulingType deploymentType params reservationSharingPolicy",
			check: func(f *Fake, _ *http.Request, in dict) error {
				s, _ := in["specificReservation"].(dict)
				p, _ := s["instanceProperties"].(dict)
				if s == nil || p == nil {
					return missing("specificReservation")
				}
				if machineTypes[fmt.Sprint(p["machineType"])].cpus == 0 {
					return invalid("specificReservation.instanceProperties.machineType", p["machineType"], "The machine type does not exist in the zone.")
				}
				in["status"], s["inUseCount"] = "READY", "0"
				s["count"] = fmt.Sprint(s["count"])
				return nil
			},
			users: func(f *Fake, p string) []string { return f.usersOf(p, "reservation") },
			told: func(f *Fake, p string, o dict) dict {
				out, s := maps.Clone(o), maps.Clone(mapOf(o["specificReservation"]))
				_, used := f.reserved(p)
				s["inUseCount"], out["specificReservation"] = strconv.Itoa(used), s
				return out
			},
		},
		{
			name: "addresses", kind: "compute#address", scope: "regions", labels: true, fields: "name description addressType networkTier subnetwork address labels purpose prefixLength ipVersion",
			check: func(f *Fake, _ *http.Request, in dict) error {
				f.serial++
				in["status"], in["address"] = "RESERVED", fmt.Sprintf("34.1.%d.%d", f.serial>>8&255, f.serial&255)
				return nil
			},
			users: func(f *Fake, p string) []string { return f.usersOf(p, "address") },
		},
		{name: "instanceTemplates", kind: "compute#instanceTemplate", scope: "global", fields: "name description properties sourceInstance sourceInstanceParams", check: checkTemplate, users: templateUsers},
		{name: "instanceTemplates", kind: "compute#instanceTemplate", scope: "regions", fields: "name description properties sourceInstance sourceInstanceParams", check: checkTemplate, users: templateUsers},
	}
}

var (
	portSpec  = regexp.MustCompile(`^(\d+)(?:-(\d+))?$`)
	protocols = []string{"tcp", "udp", "icmp", "esp", "ah", "ipip", "sctp", "all"}
)

// checkFirewall is https://cloud.google.com/compute/docs/reference/rest/v1/firewalls/insert.
func checkFirewall(f *Fake, _ *http.Request, in dict) error {
	n, _ := in["network"].(string)
	if n == "" {
		n = "global/networks/default"
	}
	if n = path(Project, n); !f.exists(n) {
		return notFound(n)
	}
	if f.profileZone(n) != "" {
		return invalid("network", n, "The network's profile supports no firewall rules.")
	}
	in["network"] = link(n)
	if in["direction"] == nil {
		in["direction"] = "INGRESS"
	}
	if in["priority"] == nil {
		in["priority"] = 1000
	} else if p, ok := in["priority"].(float64); ok && (p < 0 || p > 65535) {
		return invalid("priority", p, "Must be between 0 and 65535, inclusive")
	}
	allowed, denied := fakehttp.Items(in["allowed"]), fakehttp.Items(in["denied"])
	if (len(allowed) == 0) == (len(denied) == 0) {
		return refuse(400, "invalid", "Invalid value for field 'resource': ''. Exactly one of the fields 'allowed' and 'denied' must be specified.")
	}
	for n, x := range append(slices.Clone(allowed), denied...) {
		rule, _ := x.(dict)
		protocol, _ := rule["IPProtocol"].(string)
		if number, err := strconv.Atoi(protocol); !slices.Contains(protocols, strings.ToLower(protocol)) && (err != nil || number < 0 || number > 255) {
			return invalid(fmt.Sprintf("allowed[%d].IPProtocol", n), protocol, "Must be a well-known protocol or a number.")
		}
		for k, p := range fakehttp.Items(rule["ports"]) {
			m := portSpec.FindStringSubmatch(fmt.Sprint(p))
			low, high := 0, 0
			if m != nil {
				low, _ = strconv.Atoi(m[1])
				if high = low; m[2] != "" {
					high, _ = strconv.Atoi(m[2])
				}
			}
			if m == nil || low > high || high > 65535 || protocol == "icmp" || protocol == "all" {
				return invalid(fmt.Sprintf("allowed[%d].ports[%d]", n, k), p, "Not a valid port or range of ports for protocol %s.", protocol)
			}
		}
	}
	for _, list := range []string{"sourceRanges", "destinationRanges"} {
		for k, c := range fakehttp.Items(in[list]) {
			if _, err := netip.ParsePrefix(fmt.Sprint(c)); err != nil {
				if _, err := netip.ParseAddr(fmt.Sprint(c)); err != nil {
					return invalid(fmt.Sprintf("%s[%d]", list, k), c, "Must be a valid CIDR address range.")
				}
			}
		}
	}
	if in["direction"] == "INGRESS" && in["sourceRanges"] == nil && in["sourceTags"] == nil && in["sourceServiceAccounts"] == nil {
		in["sourceRanges"] = []any{"0.0.0.0/0"}
	}
	for _, list := range []string{"sourceTags", "targetTags"} {
		for k, t := range fakehttp.Items(in[list]) {
			if !rfc1035.MatchString(fmt.Sprint(t)) {
				return invalid(fmt.Sprintf("%s[%d]", list, k), t, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
			}
		}
	}
	return nil
}

// usersOf are what uses a thing.
func (f *Fake) usersOf(p, as string) (users []string) {
	for _, v := range f.alive() {
		if slices.Contains(v.uses[as], p) {
			users = append(users, v.path())
		}
	}
	for q, o := range f.items {
		n, _ := o["network"].(string)
		if as != "network" || n == "" || path(Project, n) != p {
			continue
		}
		automatic := strings.Contains(q, "/subnetworks/") && f.items[p]["autoCreateSubnetworks"] == true
		if !automatic {
			users = append(users, q)
		}
	}
	slices.Sort(users)
	return users
}

// subnets makes those of a network of auto mode.
func (f *Fake) subnets(network string) {
	name := network[strings.LastIndex(network, "/")+1:]
	var all []any
	for n, region := range regions {
		p := "projects/" + Project + "/regions/" + region + "/subnetworks/" + name
		f.keep("compute#subnetwork", false, p, dict{"name": name, "network": link(network), "ipCidrRange": fmt.Sprintf("10.%d.0.0/20", 128+n*4), "gatewayAddress": fmt.Sprintf("10.%d.0.1", 128+n*4), "purpose": "PRIVATE", "stackType": "IPV4_ONLY", "privateIpGoogleAccess": false})
		all = append(all, link(p))
	}
	f.items[network]["subnetworks"] = all
}

// standNetwork makes what every new project has.
func (f *Fake) standNetwork() {
	p := "projects/" + Project + "/global/networks/default"
	f.keep("compute#network", false, p, dict{"name": "default", "autoCreateSubnetworks": true, "mtu": 1460, "routingConfig": dict{"routingMode": "REGIONAL"}})
	f.subnets(p)
	rule := func(name, from string, allowed ...any) {
		q := "projects/" + Project + "/global/firewalls/" + name
		f.keep("compute#firewall", false, q, dict{"name": name, "network": link(p), "priority": 65534, "direction": "INGRESS", "sourceRanges": []any{from}, "allowed": allowed, "disabled": false})
	}
	icmp := dict{"IPProtocol": "icmp"}
	rule("default-allow-internal", "10.128.0.0/9", dict{"IPProtocol": "tcp", "ports": []any{"0-65535"}}, dict{"IPProtocol": "udp", "ports": []any{"0-65535"}}, icmp)
	rule("default-allow-ssh", "0.0.0.0/0", dict{"IPProtocol": "tcp", "ports": []any{"22"}})
	rule("default-allow-icmp", "0.0.0.0/0", icmp)
	for q := range f.items {
		f.standing[q] = true
	}
	f.serviceAccount(Machine)
	f.standing["projects/"+Project+"/serviceAccounts/"+Machine] = true
}

// AddImage makes an image that everybody, or the project, has.
func (f *Fake) AddImage(project, name, family string, gb int) {
	f.Locked(func() {
		architecture := "X86_64"
		if strings.Contains(name, "arm64") {
			architecture = "ARM64"
		}
		p := "projects/" + project + "/global/images/" + name
		f.items["public/"+project] = dict{}
		f.standing["public/"+project], f.standing[p] = true, true
		f.items[p] = dict{
			"kind": "compute#image", "id": f.newID(), "creationTimestamp": now(), "name": name, "family": family, "diskSizeGb": strconv.Itoa(gb), "archiveSizeBytes": "1000000000", "status": "READY", "architecture": architecture,
			"selfLink": link(p), "labelFingerprint": fingerprint(nil), "guestOsFeatures": []any{dict{"type": "UEFI_COMPATIBLE"}, dict{"type": "GVNIC"}},
		}
	})
}

// image finds the one of a URL, also by family.
func (f *Fake) image(ref string) dict {
	p := path(Project, ref)
	if head, family, ok := strings.Cut(p, "/images/family/"); ok {
		var newest dict
		for _, q := range f.under(head + "/images/") {
			if f.items[q]["family"] == family {
				newest = f.items[q]
			}
		}
		return newest
	}
	return f.items[p]
}

// diskSize is that of a disk, which must hold its image.
func (f *Fake) diskSize(size, image any, field string) (gb int, err error) {
	if s := fmt.Sprint(size); size != nil {
		if gb, err = strconv.Atoi(s); err != nil || gb < 1 || gb > 65536 {
			return 0, invalid(field, s, "Disk size must be between 1 GB and 65536 GB.")
		}
	}
	ref, _ := image.(string)
	if ref == "" {
		return gb, nil
	}
	o := f.image(ref)
	if o == nil {
		return 0, notFound(path(Project, ref))
	}
	least, _ := strconv.Atoi(fmt.Sprint(o["diskSizeGb"]))
	if gb == 0 {
		gb = least
	}
	if gb < least {
		return 0, invalid(field, gb, "Requested disk size cannot be smaller than the image size (%d GB)", least)
	}
	return gb, nil
}

var diskTypes = []string{"pd-standard", "pd-balanced", "pd-ssd", "pd-extreme", "local-ssd", "hyperdisk-balanced", "hyperdisk-extreme", "hyperdisk-throughput", "hyperdisk-ml"}

func checkDiskType(zone string, t any, field string) error {
	ref, _ := t.(string)
	if ref == "" {
		return nil
	}
	p := path(Project, ref)
	s := strings.Split(p, "/")
	if len(s) != 6 || s[4] != "diskTypes" || !slices.Contains(diskTypes, s[5]) {
		return notFound(p)
	}
	if s[3] != zone {
		return invalid(field, ref, "Cross-zone reference: the disk type must be in the zone '%s'.", zone)
	}
	return nil
}

// placeRoutes are those of what there is to be had:
// https://cloud.google.com/compute/docs/reference/rest/v1/regions, zones, machineTypes, acceleratorTypes, diskTypes, projects.
func (f *Fake) placeRoutes() {
	base := "/compute/{version}/projects/{project}"
	many := func(where, what, permission string, all func(r *http.Request) []dict) {
		kind := "compute#" + strings.TrimSuffix(what, "s")
		f.on("GET", base+where+"/"+what, what+".list", "compute."+permission+".list", nil, func(r *http.Request, _ dict) (any, error) { return f.page(r, kind+"List", all(r)) })
		f.on("GET", base+where+"/"+what+"/{name}", what+".get", "compute."+permission+".get", nil, func(r *http.Request, _ dict) (any, error) {
			for _, o := range all(r) {
				if o["name"] == r.PathValue("name") {
					return o, nil
				}
			}
			return nil, notFound(strings.TrimPrefix(r.URL.Path, "/compute/v1/"))
		})
	}
	many("", "regions", "regions", func(r *http.Request) (all []dict) {
		for _, region := range regions {
			var zones []any
			for _, z := range zonesOf[region] {
				zones = append(zones, link("projects/"+Project+"/zones/"+z))
			}
			all = append(all, dict{"kind": "compute#region", "name": region, "status": "UP", "zones": zones, "quotas": f.quotas(r, region), "selfLink": link("projects/" + Project + "/regions/" + region)})
		}
		return all
	})
	many("", "zones", "zones", func(r *http.Request) (all []dict) {
		for _, region := range regions {
			for _, z := range zonesOf[region] {
				all = append(all, dict{"kind": "compute#zone", "name": z, "status": "UP", "region": link("projects/" + Project + "/regions/" + region), "selfLink": link("projects/" + Project + "/zones/" + z)})
			}
		}
		return all
	})
	many("/zones/{zone}", "machineTypes", "machineTypes", func(r *http.Request) []dict { return typesIn(r.PathValue("zone")) })
	many("/zones/{zone}", "acceleratorTypes", "acceleratorTypes", func(r *http.Request) []dict { return acceleratorsIn(r.PathValue("zone")) })
	many("/zones/{zone}", "diskTypes", "diskTypes", func(r *http.Request) (all []dict) {
		for _, t := range diskTypes {
			all = append(all, dict{"kind": "compute#diskType", "name": t, "zone": link("projects/" + Project + "/zones/" + r.PathValue("zone")), "selfLink": link("projects/" + Project + "/zones/" + r.PathValue("zone") + "/diskTypes/" + t)})
		}
		return all
	})
	for what, in := range map[string]func(zone string) []dict{"machineTypes": typesIn, "acceleratorTypes": acceleratorsIn} {
		f.on("GET", base+"/aggregated/"+what, what+".list", "compute."+what+".list", nil, func(r *http.Request, _ dict) (any, error) {
			var all []scoped
			for _, region := range regions {
				for _, z := range zonesOf[region] {
					for _, o := range in(z) {
						all = append(all, scoped{"zones/" + z, o})
					}
				}
			}
			return f.aggregate(r, "compute#"+strings.TrimSuffix(what, "s")+"AggregatedList", what, all)
		})
	}
	f.on("GET", base, "project.get", "compute.projects.get", nil, func(r *http.Request, _ dict) (any, error) {
		limit := 100_000.0
		if f.gpus >= 0 {
			limit = float64(f.gpus)
		}
		return dict{
			"kind": "compute#project", "id": Number, "name": Project, "defaultServiceAccount": Machine, "selfLink": link("projects/" + Project), "defaultNetworkTier": "PREMIUM",
			"commonInstanceMetadata": dict{"kind": "compute#metadata", "fingerprint": fingerprint(nil)},
			"quotas": []dict{
				{"metric": "GPUS_ALL_REGIONS", "limit": limit, "usage": float64(f.gpusInUse())}, {"metric": "NETWORKS", "limit": float64(mostNetworks), "usage": float64(len(f.under("projects/" + Project + "/global/networks/")))},
				{"metric": "FIREWALLS", "limit": 200.0, "usage": float64(len(f.under("projects/" + Project + "/global/firewalls/")))}, {"metric": "CPUS_ALL_REGIONS", "limit": 100_000.0, "usage": 0.0},
			},
		}, nil
	})
}

func typesIn(zone string) (all []dict) {
	for name, t := range machineTypes {
		p := "projects/" + Project + "/zones/" + zone + "/machineTypes/" + name
		o := dict{"kind": "compute#machineType", "id": fmt.Sprint(len(name)), "name": name, "zone": zone, "guestCpus": t.cpus, "memoryMb": t.memory, "isSharedCpu": t.cpus < 2, "selfLink": link(p), "architecture": "X86_64"}
		if t.gpu != "" {
			o["accelerators"] = []any{dict{"guestAcceleratorType": t.gpu, "guestAcceleratorCount": t.gpus}}
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b dict) int { return strings.Compare(a["name"].(string), b["name"].(string)) })
	return all
}

func acceleratorsIn(zone string) (all []dict) {
	for name := range accelerators {
		p := "projects/" + Project + "/zones/" + zone + "/acceleratorTypes/" + name
		all = append(all, dict{"kind": "compute#acceleratorType", "name": name, "zone": link("projects/" + Project + "/zones/" + zone), "maximumCardsPerInstance": 8, "selfLink": link(p)})
	}
	slices.SortFunc(all, func(a, b dict) int { return strings.Compare(a["name"].(string), b["name"].(string)) })
	return all
}

// quotas are those of a region, in Compute Engine's words.
func (f *Fake) quotas(r *http.Request, region string) (all []dict) {
	have, _ := f.Owner.Quotas(r.Context(), region)
	for _, q := range have {
		if metric(q.Name) == "" {
			continue // of another service
		}
		limit := float64(q.Limit)
		if q.Limit < 0 {
			limit = 100_000
		}
		all = append(all, dict{"metric": metric(q.Name), "limit": limit, "usage": float64(q.Used)})
	}
	all = append(all, dict{"metric": "IN_USE_ADDRESSES", "limit": 1000.0, "usage": 0.0}, dict{"metric": "DISKS_TOTAL_GB", "limit": 1_000_000.0, "usage": 0.0}, dict{"metric": "SSD_TOTAL_GB", "limit": 1_000_000.0, "usage": 0.0})
	return all
}

// metric is Compute Engine's name of a quota of the model's.
func metric(family string) string {
	name, spot := strings.CutPrefix(family, "spot-")
	if name == "cpus" {
		name = "CPUS"
	} else {
		name = accelerators[name]
	}
	if spot && name != "" {
		return "PREEMPTIBLE_" + name
	}
	return name
}
