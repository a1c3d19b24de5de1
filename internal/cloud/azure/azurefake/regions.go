package azurefake

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// serveLocation is what there is in a region:
// https://learn.microsoft.com/rest/api/compute/usage/list, virtual-machine-images, community-gallery-images.
func (f *Fake) serveLocation(r *http.Request, t *target) (any, error) {
	region := ""
	if len(t.names) > 0 {
		region = strings.ToLower(t.names[0])
	}
	if !slices.Contains(regions, region) {
		return nil, refuse(400, "NoRegisteredProviderFound", "No registered resource provider found for location '%s'.", region)
	}
	switch t.kind() {
	case "locations/operations":
		return f.serveOperation(r, t.name())
	case "locations/usages":
		return dict{"value": f.usages(region)}, nil
	case "locations/publishers/artifacttypes/offers/skus/versions":
		// …/publishers/P/artifacttypes/vmimage/offers/O/skus/S/versions
		prefix := strings.ToLower(t.names[1] + ":" + t.names[3] + ":" + t.names[4] + ":")
		all, plan := []any{}, false
		for _, name := range sorted(f.images) {
			if strings.HasPrefix(name, prefix) {
				plan = plan || f.plans[name]
				all = append(all, dict{"name": "22.04.202606010", "location": region, "id": r.URL.Path + "/22.04.202606010"})
			}
		}
		if len(all) == 0 {
			return nil, refuse(404, "NotFound", "Artifact: VMImage was not found.")
		}
		if len(t.names) < len(t.kinds) {
			return all, nil
		}
		o := all[0].(dict)
		o["properties"] = dict{"hyperVGeneration": "V2", "architecture": "x64", "osDiskImage": dict{"operatingSystem": "Linux", "sizeInGb": 30}}
		if plan { // https://learn.microsoft.com/rest/api/compute/virtual-machine-images/get: properties.plan
			o["properties"].(dict)["plan"] = dict{"publisher": t.names[1], "product": t.names[3], "name": t.names[4]}
		}
		return o, nil
	case "locations/communitygalleries/images":
		id := "/communitygalleries/" + strings.ToLower(t.names[1]) + "/images/" + strings.ToLower(t.name())
		if !f.images[id] {
			return nil, refuse(404, "NotFound", "The community gallery image %s was not found in %s.", t.name(), region)
		}
		return dict{"name": t.name(), "location": region, "type": "Microsoft.Compute/locations/communityGalleries/images", "properties": dict{"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2"}, "identifier": dict{"uniqueId": "/CommunityGalleries/" + t.names[1] + "/Images/" + t.name()}}, nil
	}
	return nil, refuse(404, "InvalidResourceType", "there is no %s", r.URL.Path)
}

func (f *Fake) usages(region string) (all []dict) {
	one := func(name, title string, used, limit int) {
		if limit < 0 {
			limit = 100_000
		}
		all = append(all, dict{"unit": "Count", "currentValue": used, "limit": limit, "name": dict{"value": name, "localizedValue": title}})
	}
	total := -1
	if limit, ok := f.cores[region]; ok {
		total = limit
	}
	one("cores", "Total Regional vCPUs", f.coresUsed(region), total)
	have, _ := f.Owner.Quotas(background, region)
	used, low := 0, -1
	for _, q := range have {
		if family, spot := strings.CutPrefix(q.Name, "spot-"); spot {
			used += q.Used
			if q.Limit >= 0 && (low < 0 || q.Limit < low) {
				low = q.Limit
			}
		} else {
			one(family, family+" vCPUs", q.Used, q.Limit)
		}
	}
	one("lowPriorityCores", "Total Regional Low-priority vCPUs", used, low)
	one("virtualMachines", "Virtual Machines", len(f.vms), 25000)
	return all
}

// serveSKUs is https://learn.microsoft.com/rest/api/compute/resource-skus/list.
func (f *Fake) serveSKUs(r *http.Request) (any, error) {
	want := ""
	if text := r.URL.Query().Get("$filter"); text != "" {
		m := regexp.MustCompile(`(?i)^\s*location eq '(\w+)'\s*$`).FindStringSubmatch(text)
		if m == nil {
			return nil, refuse(400, "InvalidFilter", "Only a filter by location is supported: %s", text)
		}
		want = strings.ToLower(m[1])
	}
	var all []dict
	for _, region := range regions {
		if want != "" && want != region {
			continue
		}
		for _, name := range sorted(sizes) {
			s := sizes[name]
			architecture := "x64"
			if strings.Contains(name, "ps_") {
				architecture = "Arm64"
			}
			capability := func(pairs ...string) (out []any) {
				for n := 0; n < len(pairs); n += 2 {
					out = append(out, dict{"name": pairs[n], "value": pairs[n+1]})
				}
				return out
			}
			restrictions := []any{}
			for _, zone := range f.restricted[region+" "+name] {
				if zone == "" {
					restrictions = append(restrictions, dict{"type": "Location", "values": []any{region}, "restrictionInfo": dict{"locations": []any{region}}, "reasonCode": "NotAvailableForSubscription"})
					continue
				}
				restrictions = append(restrictions, dict{"type": "Zone", "values": []any{region}, "restrictionInfo": dict{"locations": []any{region}, "zones": []any{zone}}, "reasonCode": "NotAvailableForSubscription"})
			}
			all = append(all, dict{
				"resourceType": "virtualMachines", "name": name, "tier": "Standard", "size": strings.TrimPrefix(name, "Standard_"), "family": s.family, "locations": []any{region},
				"locationInfo": []any{dict{"location": region, "zones": []any{"1", "2", "3"}, "zoneDetails": []any{}}}, "restrictions": restrictions,
				"capabilities": capability("vCPUs", fmt.Sprint(s.cpus), "MemoryGB", fmt.Sprint(s.memory), "GPUs", fmt.Sprint(s.gpus), "HyperVGenerations", s.generations, "PremiumIO", map[bool]string{true: "True", false: "False"}[s.premium],
					"LowPriorityCapable", "True", "CpuArchitectureType", architecture, "AcceleratedNetworkingEnabled", "True", "vCPUsAvailable", fmt.Sprint(s.cpus)),
			})
		}
		all = append(all, dict{"resourceType": "disks", "name": "Premium_LRS", "size": "P10", "locations": []any{region}, "restrictions": []any{}})
	}
	return dict{"value": all}, nil
}
