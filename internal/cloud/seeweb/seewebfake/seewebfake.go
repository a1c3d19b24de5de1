// Package seewebfake is Seeweb's Cloud Server API, https://api.seeweb.it/ecs/v2, as a server
// for tests. Its facts are from Seeweb's clients (Seeweb/cloudserver-go-client: forms of
// answers and errors; rh363/ecsapi, the SDK that SkyPilot uses: paths, headers, fields, and
// answers in its tests) and from SkyPilot's provider (lists say Booted of servers that are
// off, and /status says SHUTOFF). How a lack of room or of quota is refused is not public:
// here it is status 400 with a message of its own.
package seewebfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Token is that of the only user.
const Token = "fake-seeweb-token-0123456789"

type dict = fakehttp.Dict

// Fake is the whole of Seeweb's cloud servers. Its paths begin with /ecs/v2.
type Fake struct{ *fakehttp.Fake }

var regions = map[string]string{"it-fr2": "Frosinone", "it-mi2": "Milano"}

var plans = map[string]struct {
	id, cpu, ram, disk, gpu int
	label, host             string
	price                   float64
}{
	"eCS4": {9, 4, 8192, 160, 0, "", "ECS", 0.063}, "ECS1GPU6": {41, 4, 32768, 100, 1, "L4", "ECSGPU6", 0.38}, "ECS2GPU3": {35, 32, 245760, 2000, 2, "A100 80GB", "ECSGPU3", 3.78},
}

var images = map[string]string{"ubuntu-2204": "Ubuntu 22.04", "ubuntu-2404": "Ubuntu 24.04", "debian-12": "Debian Linux 12"}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	bad := func(code, message string) fakehttp.Word {
		return fakehttp.Word{Status: http.StatusBadRequest, Code: code, Message: message}
	}
	api := fakehttp.API{
		Prefix: "/ecs/v2", Regions: slices.Sorted(maps.Keys(regions)), Linger: time.Minute, Noun: "server", Records: []string{"actions"},
		ID: func(n uint64) string { return fmt.Sprintf("ec%06d", 200400+n) },
		Login: func(r *http.Request) bool {
			return r.Header.Get("X-APITOKEN") == Token || fakehttp.Bearer(Token)(r)
		},
		Error: func(status int, code, message string) any {
			return dict{"error": dict{"error_code": status, "status": "error", "message": fakehttp.Coded(code, message)}}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Invalid: bad("invalid", ""), fluffyapi.NameTaken: bad("invalid", ""), fluffyapi.NoCapacity: bad("", "plan not available in this region"), fluffyapi.QuotaExceeded: bad("", "maximum number of servers reached"),
			fluffyapi.WrongState: {Status: http.StatusConflict}, fluffyapi.Throttled: {Status: http.StatusTooManyRequests, Message: "too many requests", Again: "1"},
		},
	}
	for name, p := range plans {
		api.Types = append(api.Types, fakehttp.Type(name, p.cpu, p.label, p.gpu, p.price))
	}
	f := &Fake{fakehttp.New(api)}
	f.offers()
	// ecsapi, "servers"; cloudserver-go-client, server.go
	f.Route("GET", "/servers", "instances.list", nil, func(r *http.Request, _ dict) (any, error) {
		all, err := f.Existing(r, f.view)
		return dict{"status": "ok", "count": len(all), "server": all}, err
	})
	f.Show("/servers/{id}", func(i fluffyapi.Instance) any { return dict{"status": "ok", "server": f.view(i)} })
	f.Show("/servers/{id}/status", func(i fluffyapi.Instance) any {
		return dict{"status": "ok", "server": dict{"name": i.ID, "current_status": f.current(i)}}
	})
	f.Route("POST", "/servers", "instances.create", creating, f.create)
	f.Route("PUT", "/servers/{id}", "servers.put", fakehttp.Schema{"notes": fakehttp.String, "note": fakehttp.String, "group": fakehttp.Filled}, func(r *http.Request, _ dict) (any, error) {
		_, err := f.InPath(r)
		return dict{"status": "ok"}, err
	})
	f.Turn("DELETE", "/servers/{id}", "instances.terminate", nil, func(i fluffyapi.Instance) any {
		return dict{"status": "ok", "action": f.action(f.act(i.ID, "delete_server"))}
	})
	f.RouteBy("POST", "/servers/{id}/actions", fakehttp.By("type", powers), fakehttp.Schema{"!type": `"(?:power_on|power_off)"`}, f.power)
	// ecsapi, "actions"; cloudserver-go-client, action.go
	f.Keep(fakehttp.Kind{Name: "actions", Path: "/actions", Noun: "action", Describe: f.action, One: answer("action"), All: func(r *http.Request, all []dict) (any, error) {
		slices.Reverse(all) // the latest first
		part, err := fakehttp.Pages{Token: "start", Size: "length", Usual: 50}.Part(r.URL.Query(), fakehttp.Fitting(r.URL.Query(), all, "resource"))
		return dict{"status": "ok", "actions": part.Items, "total_actions": part.Total}, err
	}})
	// ecsapi, "sshkey" and "cloud_script": keys are named by their labels
	f.keep("/sshkeys", "pubkeys", "pubkey", "label", fakehttp.Schema{"!key": fakehttp.Key, "!label": fakehttp.Filled})
	f.keep("/scripts", "scripts", "script", "title", fakehttp.Schema{"!title": fakehttp.Filled, "!content": fakehttp.Filled, "windows": fakehttp.Bool})
	return f
}

var (
	powers   = map[any]string{"power_on": "instances.start", "power_off": "instances.stop"}
	creating = fakehttp.Schema{
		"!plan": fakehttp.Filled, "!image": fakehttp.Filled, "!location": fakehttp.Filled, "notes": fakehttp.String, "ssh_key": fakehttp.Filled, "password": fakehttp.String, "group": fakehttp.Filled,
		"user_customize": fakehttp.Filled + `|\d+`, "user_customize_env": fakehttp.String,
	}
)

// answer is a thing as the answer to a call about it has it.
func answer(one string) func(o dict) any {
	return func(o dict) any { return dict{"status": "ok", one: o} }
}

// keep answers the calls about things that have numbers as ids, and unique names.
func (f *Fake) keep(path, kind, one, name string, s fakehttp.Schema) {
	serial := 0
	f.Keep(fakehttp.Kind{
		Name: kind, Path: path, Noun: one, Make: s, Unique: name, One: answer(one), Gone: func(dict) any { return dict{"status": "ok"} },
		All: func(_ *http.Request, all []dict) (any, error) { return dict{"status": "ok", kind: all}, nil },
		Complete: func(_ *http.Request, in dict) error {
			serial++
			in["id"], in["name"], in["created_at"] = serial, in[name], time.Now().UTC().Format(time.RFC3339Nano)
			return nil
		},
	})
}

func (f *Fake) plan(name string) dict {
	p := plans[name]
	out := dict{
		"id": p.id, "name": name, "cpu": strconv.Itoa(p.cpu), "ram": strconv.Itoa(p.ram), "disk": strconv.Itoa(p.disk), "gpu": strconv.Itoa(p.gpu), "gpu_label": nil, "hourly_price": f.Now(p.price),
		"montly_price": f.Now(p.price) * 720, "windows": false, "host_type": p.host, "available": true,
	}
	if p.gpu > 0 {
		out["gpu_label"] = p.label
	}
	return out
}

// offers answers about plans, regions and images ("montly_price" is Seeweb's word).
func (f *Fake) offers() {
	places, systems := []dict{}, []dict{}
	for n, l := range slices.Sorted(maps.Keys(regions)) {
		places = append(places, dict{"id": n + 2, "location": l, "description": regions[l]})
	}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		systems = append(systems, dict{
			"id": 100 + len(name), "name": name, "description": images[name], "status": "CD", "active_flag": true, "public": true, "cloud_image": false, "required_disk": 20, "creation_date": "2024-05-01T00:00:00+00:00",
			"uuid": "2efb717c-40a9-4686-9f46-ae49426206eb", "so_base": "ubuntu", "notes": "", "version": "1", "api_version": "v4", "api_version_value": 4,
		})
	}
	f.Route("GET", "/plans", "offers", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for _, name := range slices.Sorted(maps.Keys(plans)) {
			p := f.plan(name)
			p["available_regions"] = places
			all = append(all, p)
		}
		return dict{"status": "ok", "plans": all}, nil
	})
	f.Route("GET", "/plans/availables", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, name := range slices.Sorted(maps.Keys(plans)) {
			p, in := f.plan(name), []dict{}
			for _, l := range f.With(r, name) {
				in = append(in, dict{"region": l, "hosts": []dict{}})
			}
			if p["os_availables"], p["region_availables"] = systems, in; len(in) > 0 {
				all = append(all, p)
			}
		}
		return dict{"status": "ok", "plans": all}, nil
	})
	f.Route("GET", "/regions", "regions", nil, fakehttp.Answer(dict{"status": "ok", "regions": places}))
	f.Route("POST", "/regions/availables", "regions", fakehttp.Schema{"!plan": fakehttp.Filled}, func(r *http.Request, in dict) (any, error) {
		return dict{"status": "ok", "regions": f.With(r, in["plan"].(string))}, nil
	})
	f.Route("GET", "/images/basics", "images", nil, fakehttp.Answer(dict{"status": "ok", "images": systems}))
	f.Route("GET", "/images/cloud-images", "images", nil, fakehttp.Answer(dict{"status": "ok", "images": systems}))
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	name, location := in["plan"].(string), in["location"].(string)
	script, numbered := in["user_customize"].(float64)
	switch key := in["ssh_key"]; {
	case plans[name].cpu == 0:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "plan %s does not exist", name)
	case regions[location] == "":
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "location %s does not exist", location)
	case images[in["image"].(string)] == "":
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "image %v does not exist", in["image"])
	case key != nil && f.ThingBy("pubkeys", "label", key) == nil:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "ssh key %v does not exist", key)
	case numbered && f.Thing("scripts", int(script)) == nil:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "script %v does not exist", script)
	}
	in["name"] = in["notes"]
	i, err := f.Create(r, location, name, in)
	if err != nil {
		return nil, err
	}
	return dict{"status": "ok", "action_id": f.act(i.ID, "create_server")["id"], "server": f.view(i)}, nil
}

func (f *Fake) power(r *http.Request, in dict) (any, error) {
	i, err := f.InPath(r)
	if err == nil {
		_, err = f.Do(r, powers[in["type"]], i.ID)
	}
	if err != nil {
		return nil, err
	}
	return f.action(f.act(i.ID, in["type"].(string))), nil
}

// act keeps an action that begins.
func (f *Fake) act(server, kind string) dict {
	return f.Put("actions", dict{"id": 59168 + len(f.Things("actions")), "resource": server, "type": kind, "created_at": time.Now().UTC().Format(time.RFC3339Nano)})
}

// action is one in Seeweb's words.
func (f *Fake) action(a dict) dict {
	out := maps.Clone(a)
	out["user"], out["resource_type"], out["started_at"], out["status"], out["progress"], out["completed_at"] = "fake", "ECS", a["created_at"], "in-progress", 0, nil
	if server := a["resource"].(string); f.Settled(server) {
		out["status"], out["progress"], out["completed_at"] = "completed", 100, time.Now().UTC().Format(time.RFC3339Nano)
		if m, ok := f.Machine(server); (!ok || m.State == fluffyapi.Terminated) && a["type"] != "delete_server" {
			out["status"] = "failed"
		}
	}
	return out
}

// statuses are those of lists, in which a server that is off does not differ.
var statuses = fakehttp.States{
	fluffyapi.Pending: "Booting", fluffyapi.Running: "Booted", fluffyapi.Stopping: "Booted", fluffyapi.Stopped: "Booted", fluffyapi.Terminating: "Deleting",
}

// currents are those of /status.
var currents = fakehttp.States{fluffyapi.Pending: "Booting", fluffyapi.Running: "RUNNING", fluffyapi.Stopping: "PoweringOff", fluffyapi.Stopped: "SHUTOFF"}

func (f *Fake) current(i fluffyapi.Instance) string {
	if f.Restarting(i) {
		return "PoweringOn"
	}
	return currents.Of(i.State)
}

// view is a server in Seeweb's words, which has no private address.
func (f *Fake) view(i fluffyapi.Instance) dict {
	asked, p := fakehttp.Asked(i), f.plan(i.Type)
	status := statuses.Of(i.State)
	if f.Restarting(i) {
		status = "Booted"
	}
	public, _ := f.Addresses(i)
	notes, _ := asked["notes"].(string)
	return dict{
		"name": i.ID, "ipv4": public, "ipv6": "", "group": nil, "plan": i.Type, "plan_size": dict{"core": p["cpu"], "ram": p["ram"], "disk": p["disk"], "gpu": p["gpu"], "gpu_label": p["gpu_label"], "host_type": p["host_type"]},
		"location": i.Region, "location_label": regions[i.Region], "notes": notes, "so": asked["image"], "so_label": images[fmt.Sprint(asked["image"])], "creation_date": i.Created.UTC().Format("2006-01-02T15:04:05.000000+00:00"),
		"deletion_date": nil, "active_flag": status == "Booted", "status": status, "progress": map[bool]int{true: 100}[status == "Booted"], "api_version": "v5", "api_version_value": 5, "user": "fake", "virttype": "KVM",
		"reserved_plans": []dict{}, "is_reserved": false, "reserved_until": "", "support": nil, "last_restored_snapshot": nil,
	}
}
