// Package primeintellectfake is Prime Intellect's API, https://api.primeintellect.ai/api/v1,
// as a server for tests. Its facts are from the API reference
// (docs.primeintellect.ai/api-reference: pods, availability, "Get Availability
// Information"; its OpenAPI document as in github.com/api-evangelist/prime-intellect) and
// the client of its makers (github.com/PrimeIntellect-ai/prime: ssh_keys). Of refusals
// those tell 401 and the form of 422; the other statuses here have the same form.
package primeintellectfake

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
const Key = "pit_fake0123456789"

// Poor is a code for faults: the account's wallet is empty.
const Poor fluffyapi.Code = "poor"

type dict = fakehttp.Dict

// Fake is the whole of Prime Intellect.
type Fake struct{ *fakehttp.Fake }

var dataCenters = map[string]struct{ country, region string }{"US-1": {"US", "united_states"}, "CANADA-1": {"CA", "canada"}}

// kinds are pods that the clouds behind Prime Intellect have, by their ids there.
var kinds = map[string]struct {
	provider, gpu, socket, security  string
	gpus, vram, cpus, memory, maxGiB int
	price                            float64
	spot                             bool
}{
	"n3-H100x1":        {"hyperstack", "H100_80GB", "PCIe", "secure_cloud", 1, 80, 28, 180, 750, 1.9, false},
	"8x-a100-spot":     {"datacrunch", "A100_80GB", "SXM4", "secure_cloud", 8, 80, 176, 960, 2000, 6.4, true},
	"NVIDIA RTX A6000": {"runpod", "A6000_48GB", "PCIe", "community_cloud", 1, 48, 8, 50, 500, 0.5, false},
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/api/v1", Noun: "pod", Regions: slices.Sorted(maps.Keys(dataCenters)),
		ID:    func(n uint64) string { return fmt.Sprintf("0f0e0d0c0b0a0908%016x", n) },
		Login: fakehttp.Bearer(Key),
		Error: func(_ int, code, message string) any {
			param, details := "", fakehttp.Coded(code, message)
			if p, rest, ok := strings.Cut(message, ": not "); ok { // of a field
				param, details = p, "not "+rest
			}
			return dict{"errors": []dict{{"param": param, "details": details}}}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Invalid:    {Status: 422},
			fluffyapi.NoCapacity: {Status: 400, Code: "There are currently no available instances"}, fluffyapi.QuotaExceeded: {Status: 400, Code: "Quota exceeded"},
			Poor: {Status: 402, Code: "Insufficient wallet balance"},
		},
	}
	for id, k := range kinds {
		api.Types = append(api.Types, fakehttp.Type(id, k.cpus, k.gpu, k.gpus, k.price))
	}
	f := &Fake{fakehttp.New(api)}
	for _, slash := range []string{"", "/{$}"} { // its clients write both
		f.Route("GET", "/availability/gpus"+slash, "offers", nil, f.availability)
		f.Route("GET", "/pods"+slash, "instances.list", nil, f.list)
		f.Route("POST", "/pods"+slash, "instances.create", fakehttp.Schema{"!pod": `\{.*\}`, "!provider": `\{"type":"[a-z_]+"\}`, "disks": `null|\[.*\]`, "team": `null|\{.*\}`}, f.create)
		f.Route("GET", "/pods/status"+slash, "instances.list", nil, f.status)
		f.Route("GET", "/ssh_keys"+slash, "keys.list", nil, func(r *http.Request, _ dict) (any, error) { return page(r, "totalCount", f.Things("keys")), nil })
		f.Route("POST", "/ssh_keys"+slash, "keys.put", fakehttp.Schema{"!name": fakehttp.Filled, "!publicKey": fakehttp.Filled}, func(_ *http.Request, in dict) (any, error) {
			in["userId"], in["isPrimary"], in["isUserKey"] = "user-1", len(f.Things("keys")) == 0, true
			return f.Put("keys", in), nil
		})
	}
	f.Show("/pods/{id}", func(i fluffyapi.Instance) any { return f.told(i) })
	f.Turn("DELETE", "/pods/{id}", "instances.terminate", nil, func(fluffyapi.Instance) any { return dict{"status": "DELETING"} })
	f.Route("DELETE", "/ssh_keys/{id}", "keys.delete", nil, func(r *http.Request, _ dict) (any, error) { return nil, f.Drop("keys", r.PathValue("id")) })
	return f
}

var (
	text     = `null|` + fakehttp.String
	positive = `null|[1-9]\d*`
	creating = fakehttp.Schema{
		"!cloudId": fakehttp.Filled, "!gpuType": fakehttp.Filled, "!socket": `"(?:PCIe|SXM[2-6])"`, "!gpuCount": `[1-9]\d*`, "name": fakehttp.String, "diskSize": positive, "vcpus": positive, "memory": positive,
		"maxPrice": `null|` + fakehttp.Number, "image": fakehttp.Filled, "customTemplateId": text, "dataCenterId": text, "country": text, "security": `null|"(?:secure|community)_cloud"`,
		"envVars": `null|` + fakehttp.List(`\{"key":`+fakehttp.Filled+`,"value":`+fakehttp.String+`\}`), "jupyterPassword": text, "sshKeyId": text, "autoRestart": `null|true|false`, "prepaidForHr": `null|` + fakehttp.Number,
	}
)

// page is a part of a list: 100 things, unless another number is asked for.
func page(r *http.Request, total string, all []dict) dict {
	part, _ := fakehttp.Pages{Token: "offset", Size: "limit", Usual: 100}.Part(r.URL.Query(), all)
	return dict{"data": part.Items, total: part.Total, "offset": part.From, "limit": part.Size}
}

// availability is what can be had, a row for each kind and place.
func (f *Fake) availability(r *http.Request, _ dict) (any, error) {
	q, all := r.URL.Query(), []dict{}
	wants := func(field string, have any) bool {
		return q.Get(field) == "" || slices.Contains(q[field], fmt.Sprint(have))
	}
	for id, k := range kinds {
		for at, where := range dataCenters {
			fit := wants("gpu_type", k.gpu) && wants("gpu_count", k.gpus) && wants("socket", k.socket) && wants("security", k.security) && wants("cloud_id", id)
			if !fit || !wants("data_center_id", at) || !wants("regions", where.region) {
				continue
			}
			stock := "Unavailable"
			if n := f.Free(r, at, id); n > 10 {
				stock = "High"
			} else if n > 0 {
				stock = "Low"
			}
			prices := dict{"onDemand": f.Now(k.price), "communityPrice": nil, "isVariable": false, "currency": "USD"}
			if k.security == "community_cloud" {
				prices["onDemand"], prices["communityPrice"] = nil, f.Now(k.price)
			}
			resource := func(n, most int, price float64) dict {
				return dict{"minCount": n, "defaultCount": n, "maxCount": most, "pricePerUnit": price, "step": 1, "defaultIncludedInPrice": price == 0, "additionalInfo": nil}
			}
			all = append(all, dict{
				"cloudId": id, "gpuType": k.gpu, "socket": k.socket, "provider": k.provider, "region": where.region, "dataCenter": at, "country": where.country, "gpuCount": k.gpus, "gpuMemory": k.vram,
				"disk": resource(80, k.maxGiB, 0.00014), "vcpu": resource(k.cpus, k.cpus, 0), "memory": resource(k.memory, k.memory, 0), "stockStatus": stock, "security": k.security, "prices": prices,
				"images": []string{"ubuntu_22_cuda_12"}, "isSpot": k.spot,
			})
		}
	}
	slices.SortFunc(all, func(a, b dict) int {
		return strings.Compare(fmt.Sprint(a["cloudId"], a["dataCenter"]), fmt.Sprint(b["cloudId"], b["dataCenter"]))
	})
	part, err := fakehttp.Pages{Number: "page", First: 1, Size: "page_size", Usual: 100, Most: 100}.Part(q, all)
	return dict{"items": part.Items, "totalCount": part.Total}, err
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	pod := in["pod"].(dict)
	if field := creating.Unknown(pod); field != "" {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "pod.%s: not permitted", field)
	}
	if err := creating.Fits(pod); err != nil {
		return nil, err
	}
	id, at := pod["cloudId"].(string), "US-1"
	if where, ok := pod["dataCenterId"].(string); ok {
		at = where
	}
	k := kinds[id]
	max, bounded := pod["maxPrice"].(float64)
	switch {
	case k.gpu != pod["gpuType"] || float64(k.gpus) != pod["gpuCount"] || k.provider != in["provider"].(dict)["type"]:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "pod.cloudId: not known as such")
	case bounded && f.Now(k.price) > max:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "pod.maxPrice: not enough, it costs %v", f.Now(k.price))
	case pod["sshKeyId"] != nil && f.Thing("keys", pod["sshKeyId"]) == nil:
		return nil, fakehttp.Missing("the ssh key")
	}
	pod["provider"] = k.provider
	i, err := f.Create(r, at, id, pod)
	return f.told(i), err
}

var statuses = fakehttp.States{
	fluffyapi.Pending: "PROVISIONING", fluffyapi.Running: "ACTIVE", fluffyapi.Terminating: "DELETING", fluffyapi.Terminated: "TERMINATED",
}

// told is a pod in Prime Intellect's words. "ERROR", "STOPPED" and "UNKNOWN" are for tests
// to say, with Lie.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, k := fakehttp.Asked(i), kinds[i.Type]
	status := statuses.Of(i.State)
	made := i.Created.UTC().Format(time.RFC3339Nano)
	out := dict{
		"id": i.ID, "userId": "user-1", "teamId": nil, "name": asked["name"], "type": "HOSTED", "providerType": k.provider, "status": status, "installationStatus": "PENDING", "installationFailure": nil,
		"installationProgress": 0, "createdAt": made, "updatedAt": made, "terminatedAt": nil, "gpuName": k.gpu, "gpuCount": k.gpus, "socket": k.socket, "priceHr": k.price, "environmentType": asked["image"],
		"primePortMapping": []dict{}, "sshConnection": nil, "ip": nil, "resources": dict{"memory": k.memory, "vcpus": k.cpus, "disk": asked["diskSize"]}, "isSpot": k.spot,
	}
	if public, _ := f.Addresses(i); public != "" {
		if status == "PROVISIONING" {
			out["status"] = "PENDING"
		}
		out["ip"], out["sshConnection"] = public, "root@"+public+" -p 22"
		out["primePortMapping"] = []dict{{"internal": "22", "external": "22", "protocol": "TCP", "usedBy": "SSH", "description": ""}}
	}
	if status == "ACTIVE" {
		out["installationStatus"], out["installationProgress"] = "FINISHED", 100
	}
	return out
}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	all, err := f.Existing(r, f.told)
	return page(r, "total_count", all), err
}

// status tells of some pods.
func (f *Fake) status(r *http.Request, _ dict) (any, error) {
	all, err := f.Existing(r, f.told)
	some := []dict{}
	for _, p := range all {
		if p["podId"] = p["id"]; slices.Contains(r.URL.Query()["pod_ids"], p["id"].(string)) {
			some = append(some, p)
		}
	}
	return dict{"data": some}, err
}
