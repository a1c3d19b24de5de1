// Package cudofake is CUDO Compute's API, https://rest.compute.cudo.org/v1, as a server
// for tests. Its facts are from Cudo's API reference, and where that is silent from
// SkyPilot (the short names of states, and in which of them a machine can be ended).
package cudofake

import (
	"fmt"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Key and Project are those of the only account.
const Key, Project = "fake0123456789", "my-project"

const notNow fluffyapi.Code = "not now"

type dict = fakehttp.Dict

// Fake is the whole of Cudo.
type Fake struct{ *fakehttp.Fake }

// dataCenters have machines of these types, in the one size that the model has of each.
var dataCenters = []string{"gb-bournemouth-1", "no-luster-1"}

var machines = map[string]struct {
	gpu                string
	gpus, cpus, memory int
	price              float64
}{"epyc-milan-rtx-a5000": {"RTX A5000", 1, 4, 8, 0.4}, "sapphire-rapids-h100": {"H100 SXM", 8, 64, 128, 20}}

// Size is the model's only size of a type, as Cudo's price list writes it.
func Size(machine string) string {
	m := machines[machine]
	return fmt.Sprintf("%s_%dx%dv%dgb", machine, m.gpus, m.cpus, m.memory)
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/v1", Regions: dataCenters, Named: "vmId",
		ID:    func(n uint64) string { return fmt.Sprintf("vm%d", n) },
		Login: fakehttp.Bearer(Key),
		Error: func(status int, code, message string) any {
			return dict{"code": status, "status": code, "message": message, "details": []any{}}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "UNAUTHENTICATED"}, fluffyapi.Forbidden: {Status: 403, Code: "PERMISSION_DENIED"},
			fluffyapi.NotFound: {Status: 404, Code: "NOT_FOUND"}, fluffyapi.Invalid: {Status: 400, Code: "INVALID_ARGUMENT"}, notNow: {Status: 400, Code: "FAILED_PRECONDITION"},
			fluffyapi.NameTaken: {Status: 409, Code: "ALREADY_EXISTS"}, fluffyapi.NoCapacity: {Status: 429, Code: "RESOURCE_EXHAUSTED"},
			fluffyapi.QuotaExceeded: {Status: 429, Code: "RESOURCE_EXHAUSTED"}, fluffyapi.Throttled: {Status: 429, Code: "RESOURCE_EXHAUSTED"},
			fluffyapi.Internal: {Status: 500, Code: "INTERNAL"},
		},
	}
	for name, m := range machines {
		api.Types = append(api.Types, fakehttp.Type(name, m.cpus, m.gpu, m.gpus, m.price))
	}
	f := &Fake{fakehttp.New(api)}
	f.Route("GET", "/vms/machine-types-2", "offers", nil, f.types)
	f.Route("GET", "/projects/{project}/vms", "instances.list", nil, f.list)
	f.Route("POST", "/projects/{project}/vm", "instances.create", creating, f.create)
	f.Route("POST", "/projects/{project}/vms/{id}/terminate", "instances.terminate", nil, f.terminate)
	return f
}

var (
	number   = `[0-9]+`
	creating = fakehttp.Schema{
		"!vmId": `"[a-z0-9][a-z0-9-]{0,59}"`, "!dataCenterId": fakehttp.Filled, "!machineType": fakehttp.Filled, "!vcpus": number, "!memoryGib": number, "gpus": number, "!bootDiskImageId": fakehttp.Filled,
		"bootDisk": `\{.*\}`, "sshKeySource": `"SSH_KEY_SOURCE_(?:NONE|USER|PROJECT)"`, "customSshKeys": fakehttp.List(fakehttp.Filled), "metadata": `\{(?:` + fakehttp.Filled + `:` + fakehttp.String + `,?)*\}`,
	}
)

func (f *Fake) project(r *http.Request) error {
	if p := r.PathValue("project"); p != Project {
		return fluffyapi.Errorf(fluffyapi.Forbidden, "project %s", p)
	}
	return nil
}

func (f *Fake) types(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for _, at := range dataCenters {
		for name, m := range machines {
			n := min(f.Free(r, at, name), 1000)
			all = append(all, dict{
				"dataCenterId": at, "machineType": name, "gpuModel": m.gpu, "totalVcpuFree": n * m.cpus, "totalMemoryGibFree": n * m.memory, "totalGpuFree": n * m.gpus,
				"gpuPriceHr": dict{"value": fmt.Sprint(f.Now(m.price) / float64(m.gpus))}, "vcpuPriceHr": dict{"value": "0"}, "memoryGibPriceHr": dict{"value": "0"},
			})
		}
	}
	return dict{"machineTypes": all}, nil
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	if err := f.project(r); err != nil {
		return nil, err
	}
	name := in["machineType"].(string)
	m, ok := machines[name]
	if !ok || in["vcpus"] != float64(m.cpus) || in["memoryGib"] != float64(m.memory) || in["gpus"] != float64(m.gpus) {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no %s of this size", name)
	}
	i, err := f.Create(r, in["dataCenterId"].(string), name, in)
	if err != nil {
		return nil, words(err)
	}
	return dict{"id": in["vmId"], "vm": f.told(i)}, nil
}

// words are what is behind RESOURCE_EXHAUSTED.
func words(err error) error {
	if e, ok := err.(*fluffyapi.Error); ok {
		switch e.Code {
		case fluffyapi.NoCapacity:
			e.Message = "insufficient capacity: " + e.Message
		case fluffyapi.QuotaExceeded:
			e.Message = "the project's quota: " + e.Message
		}
	}
	return err
}

var states = fakehttp.States{fluffyapi.Pending: "pend", fluffyapi.Running: "runn", fluffyapi.Stopped: "poff", fluffyapi.Terminating: "epil", fluffyapi.Terminated: "done"}

func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, state := fakehttp.Asked(i), states.Of(i.State)
	out := dict{
		"id": asked["vmId"], "shortState": state, "datacenterId": i.Region, "machineType": i.Type, "createTime": i.Created.Format(time.RFC3339Nano),
		"metadata": asked["metadata"], "vcpus": asked["vcpus"], "memory": asked["memoryGib"], "gpuQuantity": asked["gpus"],
	}
	if public, private := f.Addresses(i); public != "" {
		if state == "pend" {
			out["shortState"] = "boot"
		}
		out["externalIpAddress"], out["internalIpAddress"] = public, private
	}
	return out
}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	if err := f.project(r); err != nil {
		return nil, err
	}
	all, err := f.Existing(r, f.told)
	return dict{"VMs": all, "totalCount": len(all)}, err
}

// terminate ends a machine that is not in the middle of something.
func (f *Fake) terminate(r *http.Request, _ dict) (any, error) {
	if err := f.project(r); err != nil {
		return nil, err
	}
	m, ok := f.Machine(r.PathValue("id"))
	if !ok {
		return nil, fakehttp.Missing(r.PathValue("id"))
	}
	if f.told(m.Instance)["shortState"] == "boot" && time.Until(m.BootAt) < time.Hour { // else it hangs
		return nil, fluffyapi.Errorf(notNow, "the machine is booting")
	}
	_, err := f.Terminate(r, m.ID)
	return dict{}, err
}
