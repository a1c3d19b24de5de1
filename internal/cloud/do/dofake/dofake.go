// Package dofake is DigitalOcean's API, https://api.digitalocean.com/v2, as a server for
// tests. Its facts are from DigitalOcean's OpenAPI documents
// (github.com/digitalocean/openapi), and the texts of refusals, of which those have one
// code, from answers that users show (digitalocean/api-v2, hashicorp/packer).
package dofake

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

// Token is that of the only team.
const Token = "dop_v1_fake0123456789abcdef"

type dict = fakehttp.Dict

// Fake is the whole of DigitalOcean. Its paths begin with /v2.
type Fake struct{ *fakehttp.Fake }

var regions = map[string]string{"nyc2": "New York 2", "tor1": "Toronto 1", "ams3": "Amsterdam 3"}

var sizes = map[string]struct {
	cpus, memory, disk int
	price              float64
	gpus, vram         int
	gpu                string
}{
	"s-4vcpu-8gb": {4, 8192, 160, 0.07143, 0, 0, ""}, "gpu-h100x1-80gb": {20, 245760, 720, 3.39, 1, 80, "nvidia_h100"},
	"gpu-h100x8-640gb": {160, 1966080, 2048, 23.92, 8, 640, "nvidia_h100"},
}

var images = []string{"ubuntu-22-04-x64", "ubuntu-24-04-x64", "gpu-h100x1-base", "gpu-h100x8-base"}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/v2", Linger: time.Minute, OffCosts: true, Regions: slices.Sorted(maps.Keys(regions)), Gone: []fluffyapi.State{fluffyapi.Terminating},
		ID:    func(n uint64) string { return fmt.Sprint(3164000 + n) },
		Login: fakehttp.Bearer(Token),
		Error: func(_ int, code, message string) any {
			return dict{"id": code, "message": message, "request_id": "4d9d8375-3c56-4925-a3e7-eb137fed17e9"}
		},
		// https://docs.digitalocean.com/reference/api/intro/: "Rate Limit"
		Limits: []fakehttp.Limit{{Every: time.Minute, Calls: 250}, {Every: time.Hour, Calls: 5000}},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "unauthorized"}, fluffyapi.Forbidden: {Status: 403, Code: "forbidden"},
			fluffyapi.NotFound: {Status: 404, Code: "not_found", Message: "The resource you were accessing could not be found."}, fluffyapi.Throttled: {Status: 429, Code: "too_many_requests"},
			fluffyapi.Invalid:    unprocessable,
			fluffyapi.NoCapacity: {Status: 422, Code: "unprocessable_entity", Message: "Size is not available in this region."}, fluffyapi.QuotaExceeded: {Status: 422, Code: "unprocessable_entity", Message: "creating this/these droplet(s) will exceed your droplet limit"}, fluffyapi.WrongState: unprocessable,
			fluffyapi.InUse: {Status: 409, Code: "conflict"}, fluffyapi.Internal: {Status: 500, Code: "server_error"},
		},
	}
	for name, s := range sizes {
		api.Types = append(api.Types, fakehttp.Type(name, s.cpus, "", 0, s.price))
	}
	f := &Fake{fakehttp.New(api)}
	f.Route("GET", "/account", "account", nil, fakehttp.Answer(dict{"account": dict{"droplet_limit": 25, "email": "ann@example.com", "uuid": "b6fc48dbf6d9", "status": "active"}}))
	f.Route("GET", "/sizes", "offers", nil, f.sizes)
	f.Route("GET", "/droplets", "instances.list", nil, f.list)
	f.Show("/droplets/{id}", func(i fluffyapi.Instance) any { return dict{"droplet": f.told(i)} })
	f.Route("POST", "/droplets", "instances.create", creating, f.create)
	f.Route("DELETE", "/droplets/{id}", "instances.terminate", nil, f.destroy)
	f.Route("DELETE", "/droplets/{id}/destroy_with_associated_resources/dangerous", "instances.terminate", nil, f.destroy)
	f.Keep(fakehttp.Kind{
		Name: "keys", Path: "/account/keys", Make: fakehttp.Schema{"!name": fakehttp.Filled, "!public_key": fakehttp.Key}, Complete: f.newKey, One: func(o dict) any { return dict{"ssh_key": o} },
		All: func(r *http.Request, all []dict) (any, error) { return page(r, "ssh_keys", all) },
	})
	f.Keep(fakehttp.Kind{
		Name: "volumes", Path: "/volumes", Make: fakehttp.Schema{"!name": `"[a-z][a-z0-9-]{0,63}"`, "!size_gigabytes": `[1-9]\d*`, "!region": fakehttp.Filled, "filesystem_type": `"(?:ext4|xfs)"`, "tags": tags},
		Complete: func(_ *http.Request, in dict) error {
			in["region"] = region(in["region"].(string))
			return nil
		},
		Describe: func(o dict) dict {
			o["droplet_ids"] = append([]int{}, f.users(o["id"])...)
			return o
		},
		Removable: func(o dict) error {
			if len(f.users(o["id"])) > 0 {
				return fluffyapi.Errorf(fluffyapi.InUse, "attached volume cannot be deleted")
			}
			return nil
		},
		One: func(o dict) any { return dict{"volume": o} },
		All: func(r *http.Request, all []dict) (any, error) {
			return page(r, "volumes", fakehttp.Fitting(r.URL.Query(), all, "name"))
		},
	})
	f.RouteBy("POST", "/droplets/{id}/actions", fakehttp.By("type", actions), fakehttp.Schema{"!type": `"(?:power_on|power_off|shutdown)"`}, f.act)
	return f
}

var (
	unprocessable = fakehttp.Word{Status: 422, Code: "unprocessable_entity"}
	actions       = map[any]string{"power_on": "instances.start", "power_off": "instances.stop", "shutdown": "instances.stop"}
	tags          = `null|` + fakehttp.List(`"[A-Za-z0-9:_-]{1,255}"`)
	creating      = fakehttp.Schema{
		"!name": `"[A-Za-z0-9.-]{1,255}"`, "!region": fakehttp.Filled, "!size": fakehttp.Filled, "!image": fakehttp.Filled + `|\d+`, "ssh_keys": fakehttp.List(fakehttp.Filled + `|\d+`), "backups": fakehttp.Bool, "ipv6": fakehttp.Bool,
		"monitoring": fakehttp.Bool, "tags": tags, "user_data": fakehttp.String, "vpc_uuid": fakehttp.Filled, "volumes": fakehttp.List(fakehttp.Filled), "with_droplet_agent": fakehttp.Bool,
	}
)

func region(slug string) dict { return dict{"slug": slug, "name": regions[slug], "available": true} }

func number(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// page is a part of a list, which has 20 things unless more are asked for.
func page(r *http.Request, kind string, all []dict) (any, error) {
	q, pages := r.URL.Query(), dict{}
	part, err := fakehttp.Pages{Number: "page", First: 1, Size: "per_page", Usual: 20, Most: 200}.Part(q, all)
	if part.Next != nil {
		q.Set("page", fmt.Sprint(part.From/part.Size+2))
		pages["next"] = "https://api.digitalocean.com" + r.URL.Path + "?" + q.Encode()
	}
	return dict{kind: part.Items, "links": dict{"pages": pages}, "meta": dict{"total": part.Total}}, err
}

// sizes have the regions in which droplets of them can be created now.
func (f *Fake) sizes(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for slug, s := range sizes {
		in := f.With(r, slug)
		one := dict{
			"slug": slug, "memory": s.memory, "vcpus": s.cpus, "disk": s.disk, "transfer": 6.0, "price_monthly": f.Now(s.price) * 672, "price_hourly": f.Now(s.price), "regions": in,
			"available": len(in) > 0, "description": "Basic",
		}
		if s.gpus > 0 {
			one["gpu_info"] = dict{"count": s.gpus, "model": s.gpu, "vram": dict{"amount": s.vram, "unit": "gib"}}
		}
		all = append(all, one)
	}
	return page(r, "sizes", all)
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	region, size := in["region"].(string), in["size"].(string)
	for _, v := range fakehttp.Items(in["volumes"]) {
		if o := f.Thing("volumes", v); o == nil || o["region"].(dict)["slug"] != region {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "volume not found")
		}
	}
	for _, k := range fakehttp.Items(in["ssh_keys"]) {
		if !slices.ContainsFunc(f.Things("keys"), func(o dict) bool { return fmt.Sprint(o["id"]) == fmt.Sprint(k) || o["fingerprint"] == k }) {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "%v are invalid key identifiers for Droplet creation.", k)
		}
	}
	switch image, named := in["image"].(string); {
	case regions[region] == "":
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "You specified an invalid region for Droplet creation.")
	case sizes[size].cpus == 0:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "You specified an invalid size for Droplet creation.")
	case named && !slices.Contains(images, image):
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "You specified an invalid image for Droplet creation.")
	}
	i, err := f.Create(r, region, size, in)
	return dict{"droplet": f.told(i), "links": dict{"actions": []dict{{"id": 7515, "rel": "create", "href": "https://api.digitalocean.com/v2/actions/7515"}}}}, err
}

var statuses = fakehttp.States{fluffyapi.Pending: "new", fluffyapi.Running: "active", fluffyapi.Stopping: "active", fluffyapi.Stopped: "off"}

// told is a droplet in DigitalOcean's words, which are few: one that is being switched
// on is off, and one that is being switched off is active, and both are locked.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, status := fakehttp.Asked(i), statuses.Of(i.State)
	if f.Restarting(i) {
		status = "off"
	}
	s, v4 := sizes[i.Type], []dict{}
	public, private := f.Addresses(i)
	for kind, ip := range map[string]string{"public": public, "private": private} {
		if ip != "" {
			v4 = append(v4, dict{"ip_address": ip, "netmask": "255.255.240.0", "gateway": "198.18.0.1", "type": kind})
		}
	}
	return dict{
		"id": number(i.ID), "name": asked["name"], "vcpus": s.cpus, "locked": i.State != fluffyapi.Running && i.State != fluffyapi.Stopped, "status": status, "created_at": i.Created.UTC().Format(time.RFC3339), "features": []string{"private_networking"}, "volume_ids": append([]any{}, fakehttp.Items(asked["volumes"])...), "size_slug": i.Type, "size": dict{"slug": i.Type, "price_hourly": s.price},
		"region": region(i.Region), "tags": append([]any{}, fakehttp.Items(asked["tags"])...), "networks": dict{"v4": v4, "v6": []dict{}},
		"vpc_uuid": "760e09ef-dc84-11e8-981e-3cfdfeaae000",
	}
}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	all, err := f.Existing(r, f.told)
	if err != nil {
		return nil, err
	}
	tag := r.URL.Query().Get("tag_name")
	return page(r, "droplets", fakehttp.Fitting(r.URL.Query(), slices.DeleteFunc(all, func(o dict) bool {
		return tag != "" && !slices.ContainsFunc(fakehttp.Items(o["tags"]), func(t any) bool { return strings.EqualFold(t.(string), tag) })
	}), "name"))
}

// destroy ends a droplet, with its volumes where that is asked for.
func (f *Fake) destroy(r *http.Request, _ dict) (any, error) {
	i, err := f.InPath(r)
	if err != nil {
		return nil, err
	}
	for _, v := range fakehttp.Items(fakehttp.Asked(i)["volumes"]) {
		if r.Header.Get("X-Dangerous") == "true" {
			_ = f.Drop("volumes", v)
		}
	}
	_, err = f.Terminate(r, i.ID)
	return nil, err
}

// act switches a droplet on or off, one that is in the middle of nothing.
func (f *Fake) act(r *http.Request, in dict) (any, error) {
	i, err := f.InPath(r)
	on := in["type"] == "power_on"
	switch {
	case err != nil:
		return nil, err
	case i.State != fluffyapi.Running && i.State != fluffyapi.Stopped:
		return nil, fluffyapi.Errorf(fluffyapi.WrongState, "Droplet already has a pending event.")
	case on == (i.State == fluffyapi.Running):
		return nil, fluffyapi.Errorf(fluffyapi.WrongState, "Droplet is already powered %s.", map[bool]string{true: "on", false: "off"}[on])
	}
	_, err = f.Do(r, actions[in["type"]], i.ID)
	return dict{"action": dict{"id": 36804636, "status": "in-progress", "type": in["type"], "resource_id": number(i.ID), "resource_type": "droplet", "region_slug": i.Region}}, err
}

func (f *Fake) newKey(_ *http.Request, in dict) error {
	print := fmt.Sprintf("%x", strings.Fields(in["public_key"].(string))[1])
	if f.ThingBy("keys", "fingerprint", print) != nil {
		return fluffyapi.Errorf(fluffyapi.Invalid, "SSH Key is already in use on your account")
	}
	in["id"], in["fingerprint"] = 512000+len(f.Things("keys")), print
	return nil
}

// users are the droplets that a volume is attached to.
func (f *Fake) users(volume any) (ids []int) {
	for _, i := range f.MadeWith(volume) {
		if i.State != fluffyapi.Terminating {
			ids = append(ids, number(i.ID))
		}
	}
	return ids
}
