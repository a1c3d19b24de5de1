// Package paperspacefake is Paperspace's API, https://api.paperspace.com/v1, as a server
// for tests. Its facts are from Paperspace's API reference
// (docs.digitalocean.com/reference/paperspace/api-reference). That names no codes of
// errors: those here are what servers of its kind (tRPC) say, the text for a lack of room
// is the one that users show, and the refusal of a second start is SkyPilot's finding.
package paperspacefake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Key is the API key of the only team.
const Key = "fake0123456789abcdef"

type dict = fakehttp.Dict

// Fake is the whole of Paperspace. Its paths begin with /v1.
type Fake struct{ *fakehttp.Fake }

// regions have names for people, too, which price lists write.
var regions = map[string]string{"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}

var machines = map[string]struct {
	template, gpu string
	gpus, cpus    int
	ram           float64
	price         float64
}{"C5": {"t0nspur5", "", 0, 4, 8, 0.08}, "A4000": {"twnlo3zj", "RTX A4000", 1, 8, 45, 0.76}, "H100x8": {"t7vp562h", "H100", 8, 128, 1638, 47.6}}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/v1", Protects: "networks", Linger: time.Minute, Regions: slices.Sorted(maps.Keys(regions)), Unknown: "Machine not found", Gone: []fluffyapi.State{fluffyapi.Terminating},
		ID:    func(n uint64) string { return fmt.Sprintf("ps%010x", n) },
		Login: fakehttp.Bearer(Key),
		Error: func(_ int, code, message string) any { return dict{"code": code, "message": message} },
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "UNAUTHORIZED"}, fluffyapi.Forbidden: {Status: 403, Code: "FORBIDDEN"}, fluffyapi.NotFound: {Status: 404, Code: "NOT_FOUND"},
			fluffyapi.Invalid:    {Status: 400, Code: "BAD_REQUEST"},
			fluffyapi.NoCapacity: {Status: 400, Code: "BAD_REQUEST", Message: "We are currently out of capacity for the selected machine type."}, fluffyapi.QuotaExceeded: {Status: 400, Code: "BAD_REQUEST", Message: "You have reached the limit of this machine type for your team."},
			fluffyapi.WrongState: {Status: 400, Code: "BAD_REQUEST"}, fluffyapi.InUse: {Status: 409, Code: "CONFLICT"}, fluffyapi.Throttled: {Status: 429, Code: "TOO_MANY_REQUESTS"},
			fluffyapi.Internal: {Status: 500, Code: "INTERNAL_SERVER_ERROR"},
		},
	}
	for name, m := range machines {
		api.Types = append(api.Types, fakehttp.Type(name, m.cpus, "", 0, m.price))
	}
	f := &Fake{fakehttp.New(api)}
	f.Route("GET", "/auth/session", "account", nil, fakehttp.Answer(dict{"user": dict{"id": "u1", "email": "ann@example.com"}, "team": dict{"id": "te1", "namespace": "ann"}}))
	f.Route("GET", "/machine-availability", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		q := r.URL.Query()
		region, err := place(q.Get("region"))
		return dict{"available": err == nil && f.Free(r, region, q.Get("machineType")) > 0}, err
	})
	f.Route("GET", "/machines", "instances.list", nil, func(r *http.Request, _ dict) (any, error) {
		all, err := f.Existing(r, f.told)
		if err != nil {
			return nil, err
		}
		return page(r, all)
	})
	f.Show("/machines/{id}", func(i fluffyapi.Instance) any { return f.told(i) })
	f.Route("POST", "/machines", "instances.create", creating, f.create)
	f.Turn("DELETE", "/machines/{id}", "instances.terminate", nil, func(i fluffyapi.Instance) any { return f.event("destroy", i) })
	f.Route("PATCH", "/machines/{id}/start", "instances.start", nil, f.turn("start", fluffyapi.Stopped))
	f.Route("PATCH", "/machines/{id}/stop", "instances.stop", nil, f.turn("stop", fluffyapi.Running))
	f.keep("/startup-scripts", "scripts", fakehttp.Schema{"!name": fakehttp.Filled, "!script": fakehttp.Filled, "description": fakehttp.Filled, "isEnabled": fakehttp.Bool, "isRunOnce": fakehttp.Bool, "assignedMachineIds": fakehttp.List(fakehttp.Filled)}, nil)
	f.keep("/private-networks", "networks", fakehttp.Schema{"!name": fakehttp.Filled, "!region": fakehttp.Filled, "migrateMachines": fakehttp.Bool}, func(o dict) error {
		if len(f.MadeWith(o["id"])) > 0 {
			return fluffyapi.Errorf(fluffyapi.InUse, "the private network has machines")
		}
		return nil
	})
	return f
}

var (
	creating = fakehttp.Schema{
		"!name": fakehttp.Filled, "!machineType": fakehttp.Filled, "!templateId": fakehttp.Filled, "!diskSize": `(?:50|100|250|500|1000|2000)`, "!region": fakehttp.Filled, "networkId": fakehttp.Filled, "startupScriptId": fakehttp.Filled,
		"publicIpType": `"(?:static|dynamic|none)"`, "autoSnapshotEnabled": fakehttp.Bool, "autoShutdownEnabled": fakehttp.Bool, "takeInitialSnapshot": fakehttp.Bool,
		"emailPassword": fakehttp.Bool, "startOnCreate": fakehttp.Bool, "enableNvlink": fakehttp.Bool, "accessorIds": fakehttp.List(fakehttp.Filled),
	}
)

// place is a region by any of its names.
func place(name string) (string, error) {
	for region, long := range regions {
		if name == region || name == long {
			return region, nil
		}
	}
	return "", fluffyapi.Errorf(fluffyapi.Invalid, "region: there is no %q", name)
}

// page is a part of a list, behind the item that "after" names.
func page(r *http.Request, all []dict) (any, error) {
	q, from, size := r.URL.Query(), 0, 50
	if n := slices.IndexFunc(all, func(o dict) bool { return o["id"] == q.Get("after") }); n >= 0 {
		from = n + 1
	}
	if _, _ = fmt.Sscan(q.Get("limit"), &size); size < 1 || size > 120 {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "limit: must be 1 to 120")
	}
	all = slices.DeleteFunc(all[from:], func(o dict) bool { return q.Get("name") != "" && o["name"] != q.Get("name") })
	part, next := fakehttp.Page(all, 0, size)
	out := dict{"items": part, "hasMore": next > 0, "nextPage": nil}
	if next > 0 {
		out["nextPage"] = part[len(part)-1]["id"]
	}
	return out, nil
}

// keep answers the calls about things besides machines. The text of a script is not told.
func (f *Fake) keep(path, kind string, s fakehttp.Schema, removable func(o dict) error) {
	f.Keep(fakehttp.Kind{
		Name: kind, Path: path, Make: s, Change: s.Optional(), ChangeBy: http.MethodPut, All: page, Removable: removable, Gone: func(o dict) any { return dict{"id": o["id"]} },
		Describe: func(o dict) dict {
			out := maps.Clone(o)
			delete(out, "script")
			return out
		},
		Complete: func(r *http.Request, in dict) (err error) {
			if r.Method != http.MethodPost {
				return nil
			}
			if region, ok := in["region"].(string); ok {
				in["network"], in["netmask"] = "10.0.0.0", "255.255.0.0"
				in["region"], err = place(region)
			}
			in["dtCreated"], in["dtDeleted"] = time.Now().UTC(), nil
			return err
		},
	})
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	region, err := place(in["region"].(string))
	kind := in["machineType"].(string)
	network := f.Thing("networks", in["networkId"])
	switch m, ok := machines[kind]; {
	case err != nil:
		return nil, err
	case !ok || m.template != in["templateId"]:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "the machine type %s is not available for the template %v", kind, in["templateId"])
	case in["networkId"] != nil && (network == nil || network["region"] != region):
		return nil, fakehttp.Missing(in["networkId"])
	case in["startupScriptId"] != nil && f.Thing("scripts", in["startupScriptId"]) == nil:
		return nil, fakehttp.Missing(in["startupScriptId"])
	}
	i, err := f.Create(r, region, kind, in)
	if err != nil {
		return nil, err
	}
	return f.event("create", i), nil
}

func (f *Fake) event(name string, i fluffyapi.Instance) dict {
	return dict{"event": dict{"id": "me-" + i.ID, "name": name, "state": "new", "machineId": i.ID, "dtCreated": time.Now().UTC(), "error": nil}, "data": f.told(i)}
}

var states = fakehttp.States{fluffyapi.Pending: "provisioning", fluffyapi.Running: "ready", fluffyapi.Stopping: "stopping", fluffyapi.Stopped: "off"}

// told is a machine in Paperspace's words. A dynamic public address is its own as long as
// it is on.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, m, state := fakehttp.Asked(i), machines[i.Type], states.Of(i.State)
	public, private := f.Addresses(i)
	if f.Restarting(i) {
		state = "starting"
	} else if i.State == fluffyapi.Pending && public != "" {
		state = "serviceready"
	}
	out := dict{
		"id": i.ID, "name": asked["name"], "state": state, "os": "Ubuntu 22.04", "machineType": i.Type, "agentType": "LinuxHeadless", "cpus": m.cpus, "ram": m.ram * (1 << 30),
		"region": i.Region, "networkId": asked["networkId"], "publicIpType": asked["publicIpType"], "publicIp": nil, "privateIp": nil, "usageRate": m.price,
		"accelerators": []dict{}, "dtCreated": i.Created.UTC().Format(time.RFC3339Nano), "dtDeleted": nil,
	}
	if m.gpus > 0 {
		out["accelerators"] = []dict{{"name": m.gpu, "count": m.gpus}}
	}
	if private != "" {
		out["privateIp"] = private
	}
	if public != "" && asked["publicIpType"] != nil && asked["publicIpType"] != "none" && i.State != fluffyapi.Stopped {
		out["publicIp"] = public
	}
	return out
}

// turn switches a machine on or off that is in the one state for that.
func (f *Fake) turn(name string, from fluffyapi.State) fakehttp.Handler {
	return func(r *http.Request, _ dict) (any, error) {
		i, err := f.InPath(r)
		switch {
		case err != nil:
			return nil, err
		case i.State != from:
			return nil, fluffyapi.Errorf(fluffyapi.WrongState, "This machine is currently %s.", f.told(i)["state"])
		}
		i, err = f.Do(r, "instances."+name, i.ID)
		return f.event(name, i), err
	}
}
