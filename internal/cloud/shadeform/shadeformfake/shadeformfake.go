// Package shadeformfake is Shadeform's API, https://api.shadeform.ai/v1, as a server for
// tests. Its facts are from Shadeform's OpenAPI document, version 1.0.0
// (github.com/shadeform/shadeform-cli, .speakeasy/out.openapi.yaml). That tells nothing of
// refusals: here they are statuses with a text.
package shadeformfake

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
const Key = "fake0123456789"

type dict = fakehttp.Dict

// Fake is the whole of Shadeform.
type Fake struct{ *fakehttp.Fake }

var regions = map[string]string{"us-central-1": "US, Wichita, KS", "us-central-2": "US, Des Moines, IA", "canada-1": "CA, Toronto"}

// kinds are of machines that one cloud behind Shadeform has.
var kinds = map[string]struct {
	cloud, shade, own, gpu, interconnect        string
	gpus, vram, cpus, memory, disk, cents, spot int
}{
	"massedcompute_A6000":     {"massedcompute", "A6000", "gpu_1x_a6000", "A6000", "pcie", 1, 48, 6, 48, 256, 57, 0},
	"hyperstack_H100_sxm5x8":  {"hyperstack", "H100_sxm5x8", "n3-H100-SXM5x8", "H100", "sxm5", 8, 80, 192, 1800, 20000, 1920, 1100},
	"massedcompute_A6000x4":   {"massedcompute", "A6000x4", "gpu_4x_a6000", "A6000", "pcie", 4, 48, 24, 192, 1000, 228, 150},
	"datacrunch_cpu_only_4x8": {"datacrunch", "cpu_only_4x8", "CPU.4V.8G", "", "", 0, 0, 4, 8, 100, 4, 0},
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/v1", Noun: "instance", Regions: slices.Sorted(maps.Keys(regions)),
		ID:    func(n uint64) string { return fmt.Sprintf("d290f1ee-6c54-4b01-90e6-%012x", n) },
		Login: fakehttp.Header("X-API-KEY", Key),
		Error: func(_ int, code, message string) any {
			return dict{"error": fakehttp.Coded(code, message)}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Invalid:    {Status: 400},
			fluffyapi.NoCapacity: {Status: 409, Code: "out of stock"}, fluffyapi.QuotaExceeded: {Status: 400, Code: "quota exceeded"}, fluffyapi.InUse: {Status: 409, Code: "in use"},
		},
	}
	for name, k := range kinds {
		api.Types = append(api.Types, fakehttp.Type(name, k.cpus, k.gpu, k.gpus, float64(k.cents)/100))
	}
	f := &Fake{fakehttp.New(api)}
	f.Put("keys", dict{"name": "Shadeform Managed Key", "public_key": "ssh-rsa AAAA", "is_default": true})
	f.Route("GET", "/instances/types", "offers", nil, f.types)
	f.Route("GET", "/instances", "instances.list", nil, f.list)
	f.Route("POST", "/instances/create", "instances.create", creating, f.create)
	f.Show("/instances/{id}/info", func(i fluffyapi.Instance) any { return f.told(i) })
	f.Turn("POST", "/instances/{id}/delete", "instances.terminate", nil, func(fluffyapi.Instance) any { return nil })
	f.Route("GET", "/sshkeys", "keys.list", nil, func(*http.Request, dict) (any, error) { return dict{"ssh_keys": f.Things("keys")}, nil })
	f.Route("POST", "/sshkeys/add", "keys.put", fakehttp.Schema{"!name": fakehttp.Filled, "!public_key": fakehttp.Filled}, func(_ *http.Request, in dict) (any, error) {
		in["is_default"] = false
		return dict{"id": f.Put("keys", in)["id"]}, nil
	})
	f.Route("POST", "/sshkeys/{id}/delete", "keys.delete", nil, func(r *http.Request, _ dict) (any, error) {
		id := r.PathValue("id")
		if o := f.Thing("keys", id); o != nil && (o["is_default"] == true || len(f.MadeWith(id)) > 0) {
			return nil, fluffyapi.Errorf(fluffyapi.InUse, "the key cannot be deleted")
		}
		return nil, f.Drop("keys", id)
	})
	return f
}

var (
	texts    = fakehttp.List(fakehttp.String)
	env      = `\{"name":` + fakehttp.Filled + `,"value":` + fakehttp.String + `\}`
	creating = fakehttp.Schema{
		"!cloud": fakehttp.Filled, "!region": fakehttp.Filled, "!shade_instance_type": fakehttp.Filled, "!shade_cloud": `true|false`, "!name": fakehttp.Filled, "rental_type": `"(?:on_demand|spot)"`, "os": fakehttp.Filled,
		"template_id": fakehttp.Filled, "launch_configuration": `\{.*"type":"(?:docker|script)".*\}`, "volume_ids": texts, "ssh_key_id": fakehttp.Filled, "tags": texts, "envs": fakehttp.List(env),
		"auto_delete": `\{.*\}`, "alert": `\{.*\}`, "volume_mount": `\{.*\}`,
	}
)

// types are the kinds that fit a query, with a fakehttp.Filled for each region and way to rent.
func (f *Fake) types(r *http.Request, _ dict) (any, error) {
	q, all := r.URL.Query(), []dict{}
	wants := func(field string, have any) bool { return q.Get(field) == "" || q.Get(field) == fmt.Sprint(have) }
	for name, k := range kinds {
		if !wants("cloud", k.cloud) || !wants("num_gpus", k.gpus) || !wants("gpu_type", k.gpu) || !wants("shade_instance_type", k.shade) {
			continue
		}
		at := []dict{}
		for region, display := range regions {
			free := f.Free(r, region, name) > 0
			if !wants("region", region) || !wants("available", free) {
				continue
			}
			at = append(at, dict{"region": region, "available": free, "display_name": display, "rental_type": "on_demand"})
			if k.spot > 0 {
				at = append(at, dict{"region": region, "available": free, "display_name": display, "rental_type": "spot", "hourly_price": fmt.Sprintf("%.2f", f.Now(float64(k.spot))/100)})
			}
		}
		if len(at) == 0 {
			continue
		}
		c := f.configuration(name)
		c["os_options"] = []string{"ubuntu22.04_cuda12.2_shade_os", "ubuntu22.04"}
		all = append(all, dict{
			"cloud": k.cloud, "shade_instance_type": k.shade, "cloud_instance_type": k.own, "configuration": c, "hourly_price": int(f.Now(float64(k.cents))), "deployment_type": "vm", "availability": at,
			"boot_time": dict{"min_boot_in_sec": 180, "max_boot_in_sec": 300},
		})
	}
	slices.SortFunc(all, func(a, b dict) int { return a["hourly_price"].(int) - b["hourly_price"].(int) })
	return dict{"instance_types": all}, nil
}

func (f *Fake) configuration(kind string) dict {
	k := kinds[kind]
	return dict{
		"memory_in_gb": k.memory, "storage_in_gb": k.disk, "vcpus": k.cpus, "num_gpus": k.gpus, "gpu_type": k.gpu, "interconnect": k.interconnect, "nvlink": k.interconnect == "sxm5",
		"vram_per_gpu_in_gb": k.vram, "gpu_manufacturer": "nvidia",
	}
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	kind := fmt.Sprint(in["cloud"], "_", in["shade_instance_type"])
	switch spot := in["rental_type"] == "spot"; {
	case kinds[kind].cloud == "":
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "%v has no %v", in["cloud"], in["shade_instance_type"])
	case in["ssh_key_id"] != nil && f.Thing("keys", in["ssh_key_id"]) == nil:
		return nil, fakehttp.Missing(in["ssh_key_id"])
	case spot && (kinds[kind].spot == 0 || in["shade_cloud"] != true):
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there are no spot instances of %s", kind)
	}
	i, err := f.Create(r, in["region"].(string), kind, in)
	return dict{"id": i.ID}, err
}

var statuses = fakehttp.States{
	fluffyapi.Pending: "creating", fluffyapi.Running: "active", fluffyapi.Terminating: "deleting", fluffyapi.Terminated: "deleted",
}

// told is an instance in Shadeform's words. One whose launch went wrong has the status
// "error", which tests have with Lie.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, k := fakehttp.Asked(i), kinds[i.Type]
	status := statuses.Of(i.State)
	rental := asked["rental_type"]
	if rental == nil {
		rental = "on_demand"
	}
	c := f.configuration(i.Type)
	c["os"] = "ubuntu22.04_cuda12.2_shade_os"
	out := dict{
		"id": i.ID, "cloud": k.cloud, "region": i.Region, "shade_instance_type": k.shade, "cloud_instance_type": k.own, "cloud_assigned_id": "13b057d7", "shade_cloud": asked["shade_cloud"],
		"name": asked["name"], "configuration": c, "ip": "", "ssh_user": "shadeform", "ssh_port": 22, "status": status, "status_details": "", "cost_estimate": "0.1", "hourly_price": k.cents,
		"rental_terms": dict{"rental_type": rental, "ending_at": nil}, "tags": asked["tags"], "port_mappings": nil, "created_at": i.Created.UTC().Format(time.RFC3339Nano), "deleted_at": nil,
		"ssh_key_id": asked["ssh_key_id"], "envs": asked["envs"], "launch_configuration": asked["launch_configuration"],
	}
	if public, _ := f.Addresses(i); public != "" {
		if out["ip"] = public; status == "creating" {
			out["status"], out["status_details"] = "pending", "downloading"
		}
	}
	if strings.HasPrefix(i.Reason, "preempted") {
		out["status_details"] = "preempted"
	}
	return out
}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	all, err := f.Existing(r, f.told)
	return dict{"instances": all}, err
}
