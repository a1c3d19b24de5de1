package lambdafake

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

var regions = map[string]string{"us-east-1": "Virginia, USA", "us-west-1": "California, USA", "europe-central-1": "Germany"}

func place(region string) dict  { return dict{"name": region, "description": regions[region]} }
func zone(region string) string { return region + "-a" } // the model's only one there

var kinds = map[string]struct {
	about, gpu, architecture     string
	gpus, cpus, mem, disk, cents int
}{
	"gpu_1x_a10":       {"A10 (24 GB PCIe)", "A10", "x86_64", 1, 30, 200, 1400, 75},
	"gpu_8x_h100_sxm5": {"H100 (80 GB SXM5)", "H100", "x86_64", 8, 208, 1800, 22528, 2392},
	"gpu_1x_gh200":     {"GH200 (96 GB)", "GH200", "arm64", 1, 64, 432, 4096, 149},
}

func kind(name string) dict {
	k := kinds[name]
	return dict{
		"name": name, "description": k.about, "gpu_description": k.about, "architecture": k.architecture, "price_cents_per_hour": k.cents,
		"specs": dict{"vcpus": k.cpus, "memory_gib": k.mem, "storage_gib": k.disk, "gpus": k.gpus},
	}
}

func (f *Fake) instanceTypes(r *http.Request, _ dict) (any, error) {
	all := dict{}
	for name := range kinds {
		free := []dict{}
		for region := range regions {
			if n, _ := f.owner.Available(r.Context(), zone(region), name, true); n > 0 {
				free = append(free, place(region))
			}
		}
		all[name] = dict{"instance_type": kind(name), "regions_with_capacity_available": free}
	}
	return all, nil
}

// asked is the body that an instance was launched with.
func asked(i fluffyapi.Instance) (body dict) {
	_ = json.Unmarshal([]byte(i.Tags["asked"]), &body)
	return body
}

// rulesets are the IDs in such a body.
func rulesets(asked dict) (ids []any) {
	for _, r := range items(asked["firewall_rulesets"]) {
		ids = append(ids, r.(dict)["id"])
	}
	return ids
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	region, kind, key := in["region_name"].(string), in["instance_type_name"].(string), in["ssh_key_names"].([]any)[0]
	for _, t := range items(in["tags"]) {
		if key := t.(dict)["key"].(string); strings.HasPrefix(key, "lambda-ai-") {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "tags: %s is reserved", key)
		}
	}
	for _, id := range rulesets(in) {
		if o := f.find("firewalls", id); o == nil || o["region"].(dict)["name"] != region {
			return nil, missing(id)
		}
	}
	named := slices.DeleteFunc(slices.Clone(f.things["keys"]), func(o dict) bool { return o["name"] != key })
	switch {
	case regions[region] == "":
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "region_name: there is no %q", region)
	case kinds[kind].gpus == 0:
		return nil, missing(kind)
	case len(named) == 0:
		return nil, missing(key)
	case len(named) > 1: // that two keys may have one name is SkyPilot's finding
		return nil, fluffyapi.Errorf(unknown, "an unknown error occurred")
	case len(items(in["file_system_names"]))+len(items(in["file_system_mounts"])) > 0:
		return nil, missing("the filesystem")
	}
	body, _ := json.Marshal(in)
	own := f.newID() // launches have no token, and names need not be unique
	i, err := f.owner.Create(r.Context(), fluffyapi.Create{
		ClientToken: own, Name: own, Zone: zone(region), Type: kind, Spot: true, Tags: map[string]string{"asked": string(body)},
	})
	return dict{"instance_ids": []string{lambdaID(i.ID)}}, err
}

const modelIDs, lambdaIDs = "fc-", "0920582c7ff041399e34823a" // what IDs begin with

func lambdaID(id string) string { return lambdaIDs + strings.TrimPrefix(id, modelIDs) }
func modelID(id string) string  { return modelIDs + strings.TrimPrefix(id, lambdaIDs) }

var statuses = map[fluffyapi.State]string{fluffyapi.Pending: "booting", fluffyapi.Running: "active"}

// told is an instance in Lambda's words. It has addresses after half of its boot.
func (f *Fake) told(i fluffyapi.Instance) dict {
	l := asked(i)
	status := string(i.State)
	if status == "terminated" && strings.HasPrefix(i.Reason, "preempted") {
		status = "preempted"
	} else if s, ok := statuses[i.State]; ok {
		status = s
	}
	can := dict{"available": status == "active"}
	out := dict{
		"id": lambdaID(i.ID), "status": status, "ssh_key_names": l["ssh_key_names"], "file_system_names": []string{}, "region": place(i.Region),
		"instance_type": kind(i.Type), "actions": dict{"migrate": can, "rebuild": can, "restart": can, "cold_reboot": can, "terminate": can},
	}
	for _, field := range []string{"name", "hostname", "tags", "firewall_rulesets"} {
		if l[field] != nil {
			out[field] = l[field]
		}
	}
	if status != "booting" || time.Since(i.Created) > f.boot/2 {
		out["ip"], out["private_ip"] = i.PublicIP, i.PrivateIP
	}
	return out
}

// list tells of what the reference calls running: what is not terminated.
func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	p, err := f.owner.Instances(r.Context(), fluffyapi.Query{})
	all := []dict{}
	for _, i := range p.Items {
		if t := f.told(i); t["status"] != "terminated" {
			all = append(all, t)
		}
	}
	return all, err
}

func (f *Fake) get(r *http.Request, _ dict) (any, error) {
	i, err := f.owner.Instance(r.Context(), modelID(r.PathValue("id")))
	return f.told(i), err
}

// terminate ends all the instances that are named, or none if one does not exist.
func (f *Fake) terminate(r *http.Request, in dict) (any, error) {
	ids, ended := items(in["instance_ids"]), []dict{}
	for _, id := range ids {
		if _, err := f.owner.Instance(r.Context(), modelID(id.(string))); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		i, _ := f.owner.Terminate(r.Context(), modelID(id.(string)))
		ended = append(ended, f.told(i))
	}
	return dict{"terminated_instances": ended}, nil
}
