// Package fluidstackfake is FluidStack's API, https://platform.fluidstack.io, as a server
// for tests. Its facts are from FluidStack's OpenAPI document, version 0.1.0, its Go
// client (both github.com/fluidstackio/fern-config) and SkyPilot's client (rename). The
// reference has no words for a lack of room or a quota: those here are made up.
package fluidstackfake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
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
		Regions: regions, AtOnce: true, ID: func(n uint64) string { return fmt.Sprintf("i-fs%08x", n) },
		Login: func(r *http.Request) bool { return r.Header.Get("api-key") == Key },
		Error: func(status int, code, message string) any {
			message = strings.TrimPrefix(code+": "+message, ": ") // of faults: there are no codes
			if status == http.StatusUnprocessableEntity {
				return dict{"detail": []dict{{"loc": []string{"body"}, "msg": message, "type": "value_error"}}}
			}
			return dict{"message": message}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401}, fluffyapi.Forbidden: {Status: 403}, fluffyapi.NotFound: {Status: 404}, fluffyapi.Invalid: {Status: 422},
			fluffyapi.NoCapacity: {Status: 400}, fluffyapi.QuotaExceeded: {Status: 400}, fluffyapi.WrongState: {Status: 400}, fluffyapi.Throttled: {Status: 429},
			fluffyapi.NameTaken: {Status: 409}, fluffyapi.Internal: {Status: 500},
		},
	}
	for gpu, g := range gpus {
		for _, n := range counts {
			api.Types = append(api.Types, model.Type{Name: Type(gpu, n), CPUs: g.cpus * n, Accelerators: map[string]float64{gpu: float64(n)}, Price: g.price * float64(n)})
		}
	}
	f := &Fake{fakehttp.New(api), map[string]any{}}
	f.Route("GET", "/list_available_configurations", "offers", nil, f.configurations)
	f.Route("GET", "/instances", "instances.list", nil, f.list)
	f.Route("GET", "/instances/{id}", "instances.get", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.Owner.Instance(r.Context(), r.PathValue("id"))
		return f.told(i), err
	})
	f.Route("POST", "/instances", "instances.create", creating, f.create)
	f.Route("DELETE", "/instances/{id}", "instances.terminate", nil, func(r *http.Request, _ dict) (any, error) {
		_, err := f.Terminate(r, r.PathValue("id"))
		return nil, err
	})
	f.Route("PUT", "/instances/{id}/stop", "instances.stop", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.Stop(r, r.PathValue("id"))
		return f.told(i), err
	})
	f.Route("PUT", "/instances/{id}/start", "instances.start", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.Start(r, r.PathValue("id"))
		return f.told(i), words(err)
	})
	f.Route("PUT", "/instances/{id}/rename", "instances.put", fakehttp.Schema{"!new_instance_name": word}, f.rename)
	f.Route("GET", "/ssh_keys", "keys.list", nil, func(*http.Request, dict) (any, error) { return f.Things("keys"), nil })
	f.Route("POST", "/ssh_keys", "keys.put", fakehttp.Schema{"!name": word, "!public_key": `"ssh-` + fakehttp.Char + `+ ` + fakehttp.Char + `+"`}, func(_ *http.Request, in dict) (any, error) {
		if f.key(in["name"]) != nil {
			return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "an SSH key with this name already exists")
		}
		return f.Put("keys", in), nil
	})
	f.Route("DELETE", "/ssh_keys/{name}", "keys.delete", nil, func(r *http.Request, _ dict) (any, error) {
		k := f.key(r.PathValue("name"))
		if k == nil {
			return nil, fakehttp.Missing(r.PathValue("name"))
		}
		return nil, f.Drop("keys", k["id"])
	})
	return f
}

var (
	word     = `"` + fakehttp.Char + `+"`
	creating = fakehttp.Schema{
		"name": word, "!gpu_type": word, "gpu_count": `[1-9]\d*`, "!ssh_key": word, "region": word, "volumes": fakehttp.List(`\{.*\}`),
		"operating_system_label": `"ubuntu_2[02]_04_lts(?:_nvidia)?"`,
	}
)

// key is an ssh key by its name, which no other one has.
func (f *Fake) key(name any) dict {
	for _, k := range f.Things("keys") {
		if k["name"] == name {
			return k
		}
	}
	return nil
}

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
				"gpu_type": gpu, "gpu_counts": free, "price_per_gpu_hr": fmt.Sprintf("%.2f", g.price), "estimated_provisioning_time_minutes": 5, "regions": in,
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
	case f.key(in["ssh_key"]) == nil:
		return nil, fakehttp.Missing("the SSH key")
	case len(fakehttp.Items(in["volumes"])) > 0:
		return nil, fakehttp.Missing("the volume")
	}
	in["configuration"] = dict{
		"id": "c-" + gpu, "gpu_model": dict{"name": gpu, "memory_size_gb": gpus[gpu].vram}, "gpu_count": count, "cpu_count": count * gpus[gpu].cpus,
		"memory_size_gb": count * gpus[gpu].memory, "nvme_storage_size_gb": count * gpus[gpu].nvme, "region": region,
	}
	i, err := f.Create(r, region, Type(gpu, count), in)
	return dict{"id": i.ID, "name": in["name"], "gpu_type": gpu, "operating_system_label": in["operating_system_label"]}, words(err)
}

// words are what tells refusals apart that have no codes.
func words(err error) error {
	if e, ok := err.(*fluffyapi.Error); ok && e.Code == fluffyapi.NoCapacity {
		e.Message = "The requested configuration is out of stock"
	} else if ok && e.Code == fluffyapi.QuotaExceeded {
		e.Message = "The limit of instances of your account is reached"
	}
	return err
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

// pageSize is how many instances a page has.
const pageSize = 50

// list tells of what is not terminated.
func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	instances, err := f.Instances(r)
	all, n := []dict{}, 1
	for _, i := range instances {
		if t := f.told(i); t["status"] != "terminated" {
			all = append(all, t)
		}
	}
	_, _ = fmt.Sscan(r.URL.Query().Get("page"), &n)
	part, _ := fakehttp.Page(all, (n-1)*pageSize, pageSize)
	return part, err
}

// rename changes a name, which is all that is ever changed.
func (f *Fake) rename(r *http.Request, in dict) (any, error) {
	i, err := f.Owner.Instance(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	f.renamed[i.ID] = in["new_instance_name"]
	return f.told(i), nil
}
