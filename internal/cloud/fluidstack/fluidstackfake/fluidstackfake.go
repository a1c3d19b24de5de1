// Package fluidstackfake is FluidStack's API, https://platform.fluidstack.io, as a server
// for tests. Its facts are from FluidStack's OpenAPI document, version 0.1.0, its Go
// client (both github.com/fluidstackio/fern-config) and SkyPilot's client (rename). The
// reference has no words for a lack of room or a quota: those here are made up.
package fluidstackfake

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Key is the API key of the only account.
const Key = "api_key_fake0123456789"

type dict = fakehttp.Dict

// Fake is the whole of FluidStack.
type Fake struct {
	*fakehttp.Fake
	renamed map[string]any // instances' names, by id
}

var regions = []string{"norway_4_eu", "canada_1_ca", "generic_1_canada"}

var gpus = map[string]struct {
	price                    float64
	cpus, memory, nvme, vram int // of one GPU
}{"RTX_A6000_48GB": {0.49, 16, 59, 425, 48}, "H100_PCIE_80GB": {2.89, 32, 180, 750, 80}}

var counts = []int{1, 2, 4, 8}

// Type is the model's name of so many GPUs.
func Type(gpu string, count int) string { return fmt.Sprintf("%s::%d", gpu, count) }

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Regions: regions, AtOnce: true, Remembers: true, Gone: []fluffyapi.State{fluffyapi.Terminating}, ID: func(n uint64) string { return fmt.Sprintf("i-fs%08x", n) },
		Login: fakehttp.Header("api-key", Key),
		Error: func(status int, code, message string) any {
			message = fakehttp.Coded(code, message) // of faults: there are no codes
			if status == http.StatusUnprocessableEntity {
				return dict{"detail": []dict{{"loc": []string{"body"}, "msg": message, "type": "value_error"}}}
			}
			return dict{"message": message}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Invalid: {Status: 422}, fluffyapi.WrongState: {Status: 400}, fluffyapi.NameTaken: {Status: 409},
			fluffyapi.NoCapacity: {Status: 400, Message: "The requested configuration is out of stock"}, fluffyapi.QuotaExceeded: {Status: 400, Message: "The limit of instances of your account is reached"},
		},
	}
	for gpu, g := range gpus {
		for _, n := range counts {
			api.Types = append(api.Types, fakehttp.Type(Type(gpu, n), g.cpus*n, gpu, n, g.price*float64(n)))
		}
	}
	f := &Fake{fakehttp.New(api), map[string]any{}}
	f.Route("GET", "/list_available_configurations", "offers", nil, f.configurations)
	f.Route("GET", "/instances", "instances.list", nil, f.list)
	describe := func(i fluffyapi.Instance) any { return f.told(i) }
	f.Show("/instances/{id}", describe)
	f.Route("POST", "/instances", "instances.create", creating, f.create)
	f.Turn("DELETE", "/instances/{id}", "instances.terminate", nil, func(fluffyapi.Instance) any { return nil })
	f.Turn("PUT", "/instances/{id}/stop", "instances.stop", nil, describe)
	f.Turn("PUT", "/instances/{id}/start", "instances.start", nil, describe)
	f.Route("PUT", "/instances/{id}/rename", "instances.put", fakehttp.Schema{"!new_instance_name": fakehttp.Filled}, f.rename)
	f.Keep(fakehttp.Kind{
		Name: "keys", Path: "/ssh_keys", ByField: "name", Unique: "name", NameTaken: "an SSH key with the name %v already exists",
		Make: fakehttp.Schema{"!name": fakehttp.Filled, "!public_key": `"ssh-` + fakehttp.Char + `+ ` + fakehttp.Char + `+"`},
	})
	return f
}

var (
	creating = fakehttp.Schema{
		"name": fakehttp.Filled, "!gpu_type": fakehttp.Filled, "gpu_count": `[1-9]\d*`, "!ssh_key": fakehttp.Filled, "region": fakehttp.Filled, "volumes": fakehttp.List(`\{.*\}`),
		"operating_system_label": `"ubuntu_2[02]_04_lts(?:_nvidia)?"`,
	}
)

// configurations are those that can be had now. That one has a region is not said of
// each number of GPUs.
func (f *Fake) configurations(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for gpu, g := range gpus {
		free, in := []int{}, []string{}
		for _, n := range counts {
			for _, region := range regions {
				if f.Free(r, region, Type(gpu, n)) == 0 {
					continue
				}
				if !slices.Contains(free, n) {
					free = append(free, n)
				}
				if !slices.Contains(in, region) {
					in = append(in, region)
				}
			}
		}
		if len(free) > 0 {
			all = append(all, dict{
				"gpu_type": gpu, "gpu_counts": free, "price_per_gpu_hr": fmt.Sprintf("%.2f", f.Now(g.price)), "estimated_provisioning_time_minutes": 5, "regions": in,
				"min_cpu_count_per_gpu": g.cpus, "min_memory_per_gpu": g.memory,
			})
		}
	}
	return all, nil
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	gpu, count, region := in["gpu_type"].(string), 1, regions[0]
	if n, ok := in["gpu_count"].(float64); ok {
		count = int(n)
	}
	if at, ok := in["region"].(string); ok {
		region = at
	}
	switch {
	case gpus[gpu].cpus == 0 || !slices.Contains(counts, count):
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no configuration with %d %s", count, gpu)
	case f.ThingBy("keys", "name", in["ssh_key"]) == nil:
		return nil, fakehttp.Missing("the SSH key")
	case len(fakehttp.Items(in["volumes"])) > 0:
		return nil, fakehttp.Missing("the volume")
	}
	in["configuration"] = dict{
		"id": "c-" + gpu, "gpu_model": dict{"name": gpu, "memory_size_gb": gpus[gpu].vram}, "gpu_count": count, "cpu_count": count * gpus[gpu].cpus,
		"memory_size_gb": count * gpus[gpu].memory, "nvme_storage_size_gb": count * gpus[gpu].nvme, "region": region,
	}
	i, err := f.Create(r, region, Type(gpu, count), in)
	return dict{"id": i.ID, "name": in["name"], "gpu_type": gpu, "operating_system_label": in["operating_system_label"]}, err
}

// told is an instance in FluidStack's words. It has an address once it is provisioned.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, status := fakehttp.Asked(i), string(i.State)
	name := asked["name"]
	if n := f.renamed[i.ID]; n != nil {
		name = n
	}
	out := dict{
		"id": i.ID, "name": name, "username": "ubuntu", "ssh_port": "22", "ssh_keys": []any{asked["ssh_key"]}, "ip_address": nil, "configuration": asked["configuration"],
		"created_at": i.Created.UTC().Format(time.RFC3339Nano), "volumes": []dict{}, "operating_system_label": asked["operating_system_label"], "user_email": "ann@example.com",
	}
	public, _ := f.Addresses(i)
	switch {
	case i.State == fluffyapi.Pending && public != "":
		status = "provisioning"
	case i.State == fluffyapi.Terminating:
		status = "terminated"
	}
	if out["status"] = status; public != "" {
		out["ip_address"] = public
	}
	return out
}

// pages have 50 instances.
var pages = fakehttp.Pages{Number: "page", First: 1, Usual: 50}

// list tells of what is not terminated.
func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	all, err := f.Existing(r, f.told)
	if err != nil {
		return nil, err
	}
	part, err := pages.Part(r.URL.Query(), all)
	return part.Items, err
}

// rename changes a name, which is all that is ever changed.
func (f *Fake) rename(r *http.Request, in dict) (any, error) {
	i, err := f.InPath(r)
	if err != nil {
		return nil, err
	}
	f.renamed[i.ID] = in["new_instance_name"]
	return f.told(i), nil
}
