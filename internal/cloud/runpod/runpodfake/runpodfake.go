// Package runpodfake is RunPod's REST API, https://api.runpod.io/v2, as a server for
// tests. Its facts are from RunPod's OpenAPI document, version 2.0.0.
package runpodfake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Key is the API key of the only account.
const Key = "rpa_fake0123456789"

// Poor is a code for faults: the account has no credit.
const Poor fluffyapi.Code = "poor"

type dict = fakehttp.Dict

// Fake is the whole of RunPod.
type Fake struct{ *fakehttp.Fake }

var dataCenters = []string{"US-KS-2", "EU-CZ-1", "EUR-IS-1", "US-GA-2"}

// gpus are RunPod's ids, and what an hour of one costs.
var gpus = map[string]float64{"NVIDIA GeForce RTX 4090": 0.69, "NVIDIA H100 80GB HBM3": 2.99}

var counts = []int{1, 2, 8}

// Type is the model's name of so many GPUs.
func Type(gpu string, count int) string { return fmt.Sprintf("%d %s", count, gpu) }

// titles are those of RunPod's problems, by status.
var titles = map[int]string{401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 400: "Bad Request", 404: "Not Found", 422: "Unprocessable Entity", 429: "Too Many Requests"}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/v2", Regions: dataCenters, AtOnce: true, Noun: "pod", Remembers: true, Gone: []fluffyapi.State{fluffyapi.Terminating},
		ID:    func(n uint64) string { return fmt.Sprintf("7h9k2m%08x", n) },
		Login: fakehttp.Bearer(Key),
		Error: func(status int, code, message string) any {
			if title, ok := titles[status]; ok && code == "" {
				code = title
			}
			return dict{"title": code, "status": status, "detail": message}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Invalid: {Status: 422}, fluffyapi.NoCapacity: {Status: 400}, fluffyapi.QuotaExceeded: {Status: 400}, fluffyapi.InUse: {Status: 409}, Poor: {Status: 402},
		},
	}
	for gpu, price := range gpus {
		for _, n := range counts {
			api.Types = append(api.Types, fakehttp.Type(Type(gpu, n), 8*n, gpu, n, price*float64(n)))
		}
	}
	f := &Fake{fakehttp.New(api)}
	f.Route("GET", "/catalog/datacenters", "offers", nil, f.catalog)
	f.Route("GET", "/catalog/gpus", "offers", nil, f.gpuTypes)
	f.Route("GET", "/pods", "instances.list", nil, f.list)
	f.Route("POST", "/pods", "instances.create", creating, f.create)
	f.Turn("DELETE", "/pods/{id}", "instances.terminate", nil, func(fluffyapi.Instance) any { return nil })
	f.keep("/registries", fakehttp.Kind{Name: "registries", Make: fakehttp.Schema{"!name": fakehttp.Filled, "!username": fakehttp.Filled, "!password": fakehttp.Filled}, Complete: func(_ *http.Request, in dict) error {
		delete(in, "password") // which is never told
		return nil
	}})
	f.keep("/network-volumes", fakehttp.Kind{Name: "networkVolumes", Make: fakehttp.Schema{"!name": `".+"`, "!size": `\d+`, "!dataCenter": fakehttp.Filled, "type": `"(?:STANDARD|HIGH_PERFORMANCE)"`}, Complete: newVolume, Removable: f.Unused})
	return f
}

var (
	creating = fakehttp.Schema{
		"!name": fakehttp.Filled, "!image": fakehttp.Filled, "args": fakehttp.String, "disk": `[1-9]\d*`, "ports": fakehttp.List(`"\d+/(?:tcp|http|udp)"`), "env": `\{.*\}`,
		"registry": fakehttp.Filled, "cloud": `"(?:SECURE|COMMUNITY)"`, "dataCenterIds": fakehttp.List(fakehttp.Filled), "gpu": `\{"count":[1-9]\d*,"id":` + fakehttp.Filled + `\}`,
		"cpu": `\{"id":` + fakehttp.Filled + `,"vcpuCount":[1-9]\d*\}`, "mounts": `\{"network":\[\{"path":"/` + fakehttp.Char + `*","volumeId":` + fakehttp.Filled + `\}\]\}`,
	}
)

// keep answers the calls about things whose lists are objects.
func (f *Fake) keep(path string, k fakehttp.Kind) {
	k.Path, k.All = path, func(_ *http.Request, all []dict) (any, error) { return dict{k.Name: all}, nil }
	k.Gone = func(dict) any { return dict{} }
	f.Keep(k)
}

// newVolume completes a network volume that is asked for.
func newVolume(_ *http.Request, in dict) error {
	if n := in["size"].(float64); n < 10 || n > 4096 {
		return fluffyapi.Errorf(fluffyapi.Invalid, "size: %v is not within 10 and 4096", n)
	} else if !slices.Contains(dataCenters, in["dataCenter"].(string)) {
		return fluffyapi.Errorf(fluffyapi.Invalid, "dataCenter: there is no %v", in["dataCenter"])
	}
	if in["type"] == nil {
		in["type"] = "STANDARD"
	}
	return nil
}

// network is the network volume that a pod is made with; nil: there is none.
func network(pod dict) any {
	mounts, _ := pod["mounts"].(dict)
	for _, m := range fakehttp.Items(mounts["network"]) {
		return m.(dict)["volumeId"]
	}
	return nil
}

func (f *Fake) catalog(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for _, id := range dataCenters {
		d := dict{"id": id, "name": id}
		if r.URL.Query().Get("include") == "GPU_AVAILABILITY" {
			have := []dict{}
			for gpu := range gpus {
				stock := "NONE"
				if n := f.Free(r, id, Type(gpu, 1)); n > 10 {
					stock = "HIGH"
				} else if n > 0 {
					stock = "LOW"
				}
				have = append(have, dict{"id": gpu, "availability": stock})
			}
			d["gpuAvailability"] = have
		}
		all = append(all, d)
	}
	return dict{"dataCenters": all}, nil
}

// gpuTypes have the price of one GPU in each of RunPod's clouds.
func (f *Fake) gpuTypes(*http.Request, dict) (any, error) {
	all := []dict{}
	for id, price := range gpus {
		all = append(all, dict{"id": id, "name": id, "secure": true, "community": false, "price": dict{"secure": f.Now(price), "community": f.Now(price) / 2}, "maxCount": dict{"secure": 8, "community": 1}})
	}
	return dict{"gpus": all}, nil
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	if field := creating.Unknown(in); field != "" {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "%s: there is no such field", field)
	}
	gpu, _ := in["gpu"].(dict)
	if (gpu == nil) == (in["cpu"] == nil) {
		return nil, fluffyapi.Errorf(fluffyapi.NoCapacity, "exactly one of gpu and cpu must be set")
	}
	if id := in["registry"]; id != nil && f.Thing("registries", id) == nil {
		return nil, fakehttp.Missing(id)
	}
	if gpu == nil {
		return nil, fluffyapi.Errorf(fluffyapi.NoCapacity, "there are no instances currently available")
	}
	id, count := gpu["id"].(string), int(gpu["count"].(float64))
	if gpus[id] == 0 || !slices.Contains(counts, count) {
		return nil, fluffyapi.Errorf(fluffyapi.NoCapacity, "there are no instances with %d %s", count, id)
	}
	at := dataCenters[0]
	if where := fakehttp.Items(in["dataCenterIds"]); len(where) > 0 {
		at = where[0].(string)
	}
	if v := network(in); v != nil {
		o := f.Thing("networkVolumes", v)
		if o == nil {
			return nil, fakehttp.Missing(v)
		} else if o["dataCenter"] != at {
			return nil, fluffyapi.Errorf(fluffyapi.NoCapacity, "the network volume %v is in %v", v, o["dataCenter"])
		}
	}
	i, err := f.Create(r, at, Type(id, count), in)
	if err != nil {
		return nil, err
	}
	return f.told(i), nil
}

var statuses = fakehttp.States{
	fluffyapi.Pending: "PROVISIONING", fluffyapi.Running: "RUNNING", fluffyapi.Stopped: "EXITED", fluffyapi.Terminating: "TERMINATED", fluffyapi.Terminated: "TERMINATED",
}

// told is a pod in RunPod's words. It is somewhere once it is placed.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, status := fakehttp.Asked(i), statuses.Of(i.State)
	out := dict{
		"id": i.ID, "name": asked["name"], "image": asked["image"], "args": asked["args"], "disk": asked["disk"], "ports": asked["ports"], "status": status,
		"gpu": asked["gpu"], "cloud": asked["cloud"], "dataCenterId": nil, "runtime": nil, "createdAt": i.Created, "registry": asked["registry"], "mounts": asked["mounts"],
	}
	public, _ := f.Addresses(i)
	if status == "PROVISIONING" && public != "" {
		out["status"] = "STARTING"
	}
	if public == "" {
		return out
	}
	out["dataCenterId"] = i.Region
	if status != "RUNNING" {
		return out
	}
	mapped := []dict{}
	for n, p := range fakehttp.Items(asked["ports"]) {
		port, kind, _ := strings.Cut(p.(string), "/")
		mapped = append(mapped, dict{"private": number(port), "public": 30000 + n, "type": kind, "ip": public})
	}
	out["runtime"] = dict{"uptime": 1, "ports": mapped}
	return out
}

func number(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// pages have 50 pods.
var pages = fakehttp.Pages{Token: "cursor", Usual: 50}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	all, err := f.Existing(r, f.told)
	if err != nil {
		return nil, err
	}
	part, err := pages.Part(r.URL.Query(), all)
	return dict{"pods": part.Items, "pagination": dict{"nextCursor": part.Next, "hasNextPage": part.Next != nil}}, err
}
