// Package lambdafake is Lambda's GPU cloud, https://cloud.lambda.ai/api/v1, as a
// server for tests. Its facts are from Lambda's OpenAPI specification, version 1.10.0,
// and where that is silent from SkyPilot's issues 2261 (status 429) and 8221 (keys of
// one name).
package lambdafake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Key is the API key of the only account.
const Key = "secret_fake_0123456789abcdef"

// Inactive is a code for faults: the account is not active.
const Inactive, unknown fluffyapi.Code = "inactive", "unknown"

type dict = fakehttp.Dict

// Fake is the whole of Lambda Cloud. Its paths begin with /api/v1, as Lambda's do.
type Fake struct {
	*fakehttp.Fake
	rules []any // of all machines
}

var regions = map[string]string{"us-east-1": "Virginia, USA", "us-west-1": "California, USA", "europe-central-1": "Germany", open: "Texas, USA"}

// open is a region without rulesets and private addresses.
const open = "us-south-1"

var kinds = map[string]struct {
	about, gpu, architecture     string
	gpus, cpus, mem, disk, cents int
}{
	"gpu_1x_a10":       {"A10 (24 GB PCIe)", "A10", "x86_64", 1, 30, 200, 1400, 75},
	"gpu_8x_h100_sxm5": {"H100 (80 GB SXM5)", "H100", "x86_64", 8, 208, 1800, 22528, 2392},
	"gpu_1x_gh200":     {"GH200 (96 GB)", "GH200", "arm64", 1, 64, 432, 4096, 149},
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	f := &Fake{rules: []any{}}
	api := fakehttp.API{
		Prefix: "/api/v1", Protects: "firewalls", Linger: 10 * time.Minute, Remembers: true, Opened: f.Rules, Regions: slices.Sorted(maps.Keys(regions)),
		ID:    func(n uint64) string { return fmt.Sprintf("0920582c7ff041399e34823a%08x", n) },
		Login: fakehttp.Bearer(Key),
		Wrap:  func(data any) any { return dict{"data": data} },
		Error: func(status int, code, message string) any {
			if status == http.StatusTooManyRequests {
				return nil // the reference promises nothing but the status
			}
			return dict{"error": dict{"code": code, "message": message, "suggestion": "Ask otherwise."}}
		},
		Limits: []fakehttp.Limit{{Every: time.Second}, {Method: "POST", Path: "/instance-operations/launch", Every: 12 * time.Second}},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "global/invalid-api-key"}, fluffyapi.Forbidden: {Status: 403, Code: "global/forbidden"},
			fluffyapi.NotFound: {Status: 404, Code: "global/object-does-not-exist"}, fluffyapi.Invalid: {Status: 400, Code: "global/invalid-parameters"},
			fluffyapi.QuotaExceeded: {Status: 400, Code: "global/quota-exceeded"}, fluffyapi.NoCapacity: {Status: 400, Code: "instance-operations/launch/insufficient-capacity"},
			fluffyapi.InUse: {Status: 400, Code: "firewall-rulesets/firewall-ruleset-in-use"}, fluffyapi.Internal: {Status: 500, Code: "global/internal-error"},
			fluffyapi.Throttled: {Status: 429}, Inactive: {Status: 403, Code: "global/account-inactive"}, unknown: {Status: 500, Code: "global/unknown"},
		},
	}
	for name, k := range kinds {
		api.Types = append(api.Types, fakehttp.Type(name, k.cpus, k.gpu, k.gpus, float64(k.cents)/100))
	}
	f.Fake = fakehttp.New(api)
	f.Route("GET", "/instance-types", "offers", nil, f.instanceTypes)
	f.Route("GET", "/regions", "regions", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for name := range regions {
			all = append(all, place(name))
		}
		return all, nil
	})
	f.Route("GET", "/instances", "instances.list", nil, f.list)
	f.Show("/instances/{id}", func(i fluffyapi.Instance) any { return f.told(i) })
	f.Route("POST", "/instance-operations/launch", "instances.create", launching, f.create)
	f.Route("POST", "/instance-operations/terminate", "instances.terminate", terminating, f.terminate)
	gone := func(dict) any { return dict{} }
	f.Keep(fakehttp.Kind{Name: "keys", Path: "/ssh-keys", Gone: gone, Make: fakehttp.Schema{"!name": `"` + fakehttp.Char + `{1,64}"`, "!public_key": fakehttp.Filled}}) // without one Lambda makes a pair
	f.Keep(fakehttp.Kind{
		Name: "firewalls", Path: "/firewall-rulesets", Gone: gone, Complete: complete, Removable: f.Unused,
		Make: fakehttp.Schema{"!name": short, "!region": fakehttp.String, "!rules": rules}, Change: fakehttp.Schema{"name": short, "rules": rules, "region": `null`},
		Describe: func(o dict) dict {
			o["instance_ids"] = f.users(o["id"])
			return o
		},
	})
	global := func(method, path string, s fakehttp.Schema, field string, answer func() any) {
		f.Route(method, path, "firewalls.global", s, func(_ *http.Request, in dict) (any, error) {
			if in[field] != nil {
				if _, err := ports(dict{"rules": in[field]}); err != nil {
					return nil, err
				}
				f.rules = fakehttp.Items(in[field])
			}
			return answer(), nil
		})
	}
	list := func() any { return f.rules }
	whole := func() any { return dict{"id": "global", "name": "Global Firewall Rules", "rules": f.rules} }
	global("GET", "/firewall-rules", nil, "", list)
	global("PUT", "/firewall-rules", fakehttp.Schema{"!data": rules}, "data", list)
	global("GET", "/firewall-rulesets/global", nil, "", whole)
	global("PATCH", "/firewall-rulesets/global", fakehttp.Schema{"!rules": rules}, "rules", whole)
	return f
}

var (
	short = `"` + fakehttp.Char + `{0,64}"`
	note  = `"` + fakehttp.Char + `{0,128}"`
	rules = fakehttp.List(`{"description":` + note + `,(?:"port_range":\[\d+,\d+\],"protocol":"(?:tcp|udp|all)"|"protocol":"icmp"),"source_network":"[0-9.]+(?:/\d+)?"}`)
	texts = fakehttp.List(fakehttp.String)

	launching = fakehttp.Schema{
		"!region_name": fakehttp.String, "!instance_type_name": fakehttp.String, "!ssh_key_names": `\[` + fakehttp.String + `\]`, "file_system_names": texts,
		"file_system_mounts": `\[.*\]`, "hostname": `"[a-z0-9][0-9a-z-]{0,62}"`, "name": short, "image": `{"(?:id|family)":` + fakehttp.String + `}`,
		"user_data": `".*"`, "quantity": `1`, "tags": fakehttp.List(`{"key":"[a-z][a-z0-9-:]{1,54}","value":` + note + `}`),
		"firewall_rulesets": fakehttp.List(`{"id":` + fakehttp.String + `}`),
	}
	terminating = fakehttp.Schema{"!instance_ids": `\[` + fakehttp.String + `(?:,` + fakehttp.String + `)*\]`}
)

// complete is what Lambda adds to a new ruleset.
func complete(_ *http.Request, in dict) error {
	if region, ok := in["region"].(string); ok {
		if regions[region] == "" {
			return fluffyapi.Errorf(fluffyapi.Invalid, "region: there is no %q", region)
		}
		in["region"], in["created"] = place(region), time.Now().UTC()
	}
	_, err := ports(in)
	return err
}

func place(region string) dict { return dict{"name": region, "description": regions[region]} }

func (f *Fake) kind(name string) dict {
	k := kinds[name]
	return dict{
		"name": name, "description": k.about, "gpu_description": k.about, "architecture": k.architecture, "price_cents_per_hour": int(f.Now(float64(k.cents))),
		"specs": dict{"vcpus": k.cpus, "memory_gib": k.mem, "storage_gib": k.disk, "gpus": k.gpus},
	}
}

func (f *Fake) instanceTypes(r *http.Request, _ dict) (any, error) {
	all := dict{}
	for name := range kinds {
		free := []dict{}
		for _, region := range f.With(r, name) {
			free = append(free, place(region))
		}
		all[name] = dict{"instance_type": f.kind(name), "regions_with_capacity_available": free}
	}
	return all, nil
}

// rulesets are the ids in the body of a launch.
func rulesets(asked dict) (ids []any) {
	for _, r := range fakehttp.Items(asked["firewall_rulesets"]) {
		ids = append(ids, r.(dict)["id"])
	}
	return ids
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	region, kind, key := in["region_name"].(string), in["instance_type_name"].(string), in["ssh_key_names"].([]any)[0]
	for _, t := range fakehttp.Items(in["tags"]) {
		if key := t.(dict)["key"].(string); strings.HasPrefix(key, "lambda-ai-") {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "tags: %s is reserved", key)
		}
	}
	if region != open { // which knows none, and asks for none
		for _, id := range rulesets(in) {
			if o := f.Thing("firewalls", id); o == nil || o["region"].(dict)["name"] != region {
				return nil, fakehttp.Missing(id)
			}
		}
	}
	switch named := slices.DeleteFunc(f.Things("keys"), func(o dict) bool { return o["name"] != key }); {
	case kinds[kind].gpus == 0:
		return nil, fakehttp.Missing(kind)
	case len(named) == 0:
		return nil, fakehttp.Missing(key)
	case len(named) > 1: // that two keys may have one name is SkyPilot's finding
		return nil, fluffyapi.Errorf(unknown, "an unknown error occurred")
	case len(fakehttp.Items(in["file_system_names"]))+len(fakehttp.Items(in["file_system_mounts"])) > 0:
		return nil, fakehttp.Missing("the filesystem")
	}
	i, err := f.Create(r, region, kind, in)
	return dict{"instance_ids": []string{i.ID}}, err
}

var statuses = fakehttp.States{fluffyapi.Pending: "booting", fluffyapi.Running: "active"}

// told is an instance in Lambda's words.
func (f *Fake) told(i fluffyapi.Instance) dict {
	l, status := fakehttp.Asked(i), statuses.Of(i.State)
	if i.State == fluffyapi.Terminated && strings.HasPrefix(i.Reason, "preempted") {
		status = "preempted"
	}
	can := dict{"available": status == "active"}
	out := dict{
		"id": i.ID, "status": status, "ssh_key_names": l["ssh_key_names"], "file_system_names": []string{}, "region": place(i.Region),
		"instance_type": f.kind(i.Type), "actions": dict{"migrate": can, "rebuild": can, "restart": can, "cold_reboot": can, "terminate": can},
	}
	for _, field := range []string{"name", "hostname", "tags", "firewall_rulesets"} {
		if l[field] != nil {
			out[field] = l[field]
		}
	}
	if public, private := f.Addresses(i); public != "" {
		if out["ip"] = public; private != "" && i.Region != open {
			out["private_ip"] = private
		}
	}
	return out
}

// list tells of what the reference calls running: what is not terminated.
func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	instances, err := f.Instances(r)
	all := []dict{}
	for _, i := range instances {
		if t := f.told(i); t["status"] != "terminated" {
			all = append(all, t)
		}
	}
	return all, err
}

// terminate ends all the instances that are named, or none if one does not exist.
func (f *Fake) terminate(r *http.Request, in dict) (any, error) {
	ids, ended := fakehttp.Items(in["instance_ids"]), []dict{}
	for _, id := range ids {
		if _, ok := f.Machine(id.(string)); !ok {
			return nil, fakehttp.Missing(id)
		}
	}
	for _, id := range ids {
		i, err := f.Terminate(r, id.(string))
		if ended = append(ended, f.told(i)); err != nil {
			return nil, err
		}
	}
	return dict{"terminated_instances": ended}, nil
}

// users are the ids of the instances that a ruleset is for.
func (f *Fake) users(ruleset any) []string {
	ids := []string{}
	for _, i := range f.MadeWith(ruleset) {
		ids = append(ids, i.ID)
	}
	return ids
}

// Rules are the ports that the rulesets of an instance, and the account's, open to the
// world, sorted.
func (f *Fake) Rules(id string) []string {
	m, _ := f.Machine(id)
	opened, _ := ports(dict{"rules": f.rules})
	for _, ruleset := range rulesets(fakehttp.Asked(m.Instance)) {
		more, _ := ports(f.Thing("firewalls", ruleset))
		opened = append(opened, more...)
	}
	slices.Sort(opened)
	return slices.Compact(opened)
}

// ports are those that rules open to the world.
func ports(ruleset dict) (opened []string, err error) {
	for _, v := range fakehttp.Items(ruleset["rules"]) {
		rule := v.(dict)
		r := fakehttp.Items(rule["port_range"])
		if len(r) == 0 {
			continue // icmp
		}
		from, to := r[0].(float64), r[1].(float64)
		if from < 1 || from > to || to > 65535 {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "port_range: %v", r)
		}
		if rule["source_network"] == "0.0.0.0/0" && rule["protocol"] != "udp" {
			opened = append(opened, fakehttp.Ports(from, to))
		}
	}
	return opened, nil
}
