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
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Token is that of the only user.
const Token = "fake-seeweb-token-0123456789"

type dict = fakehttp.Dict

// Fake is the whole of Seeweb's cloud servers. Its paths begin with /ecs/v2.
type Fake struct {
	*fakehttp.Fake
	actions []dict          // oldest first
	on      map[string]bool // servers that were switched on after they had been off
}

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
	bad := func(code string) fakehttp.Word { return fakehttp.Word{Status: 400, Code: code} }
	api := fakehttp.API{
		Prefix: "/ecs/v2", Regions: slices.Sorted(maps.Keys(regions)), Linger: time.Minute,
		ID: func(n uint64) string { return fmt.Sprintf("ec%06d", 200400+n) },
		Login: func(r *http.Request) bool {
			return r.Header.Get("X-APITOKEN") == Token || r.Header.Get("Authorization") == "Bearer "+Token
		},
		Error: func(status int, code, message string) any {
			if code != "" {
				message = code + ": " + message
			}
			return dict{"error": dict{"error_code": status, "status": "error", "message": message}}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401}, fluffyapi.Forbidden: {Status: 403}, fluffyapi.NotFound: {Status: 404}, fluffyapi.Invalid: bad("invalid"), fluffyapi.NoCapacity: bad(""), fluffyapi.QuotaExceeded: bad(""),
			fluffyapi.WrongState: {Status: 409}, fluffyapi.NameTaken: bad("invalid"), fluffyapi.Internal: {Status: 500},
		},
		Refusal: func(_ *http.Request, _ string, e *fluffyapi.Error) *fakehttp.Reply {
			switch e.Code {
			case fluffyapi.NoCapacity:
				e.Message = "plan not available in this region"
			case fluffyapi.QuotaExceeded:
				e.Message = "maximum number of servers reached"
			case fluffyapi.Throttled:
				return &fakehttp.Reply{Status: http.StatusTooManyRequests, Header: map[string]string{"Retry-After": "1"}, Body: dict{"error": dict{"error_code": 429, "status": "error", "message": "too many requests"}}}
			}
			return nil
		},
	}
	for name, p := range plans {
		t := model.Type{Name: name, CPUs: p.cpu, Price: p.price}
		if p.gpu > 0 {
			t.Accelerators = map[string]float64{p.label: float64(p.gpu)}
		}
		api.Types = append(api.Types, t)
	}
	f := &Fake{Fake: fakehttp.New(api), on: map[string]bool{}}
	f.offers()
	// ecsapi, "servers"; cloudserver-go-client, server.go
	f.Route("GET", "/servers", "instances.list", nil, f.list)
	f.Route("GET", "/servers/{name}", "instances.get", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.server(r)
		if err != nil {
			return nil, err
		}
		return dict{"status": "ok", "server": f.told(i)}, nil
	})
	f.Route("GET", "/servers/{name}/status", "instances.get", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.server(r)
		return dict{"status": "ok", "server": dict{"name": i.ID, "current_status": f.current(i)}}, err
	})
	f.Route("POST", "/servers", "instances.create", fakehttp.Schema{"!plan": word, "!image": word, "!location": word, "notes": fakehttp.String, "ssh_key": word, "password": fakehttp.String, "group": word, "user_customize": word + `|\d+`, "user_customize_env": fakehttp.String}, f.create)
	f.Route("PUT", "/servers/{name}", "servers.put", fakehttp.Schema{"notes": fakehttp.String, "note": fakehttp.String, "group": word}, func(r *http.Request, _ dict) (any, error) {
		_, err := f.server(r)
		return dict{"status": "ok"}, err
	})
	f.Route("DELETE", "/servers/{name}", "instances.terminate", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.server(r)
		if err == nil {
			_, err = f.Terminate(r, i.ID)
		}
		if err != nil {
			return nil, err
		}
		return dict{"status": "ok", "action": f.action(f.act(i.ID, "delete_server"))}, nil
	})
	power := func(_ *http.Request, in dict) string {
		return map[any]string{"power_on": "instances.start", "power_off": "instances.stop"}[in["type"]]
	}
	f.RouteBy("POST", "/servers/{name}/actions", power, fakehttp.Schema{"!type": `"(?:power_on|power_off)"`}, f.power)
	// ecsapi, "actions"; cloudserver-go-client, action.go
	f.Route("GET", "/actions", "actions.list", nil, func(r *http.Request, _ dict) (any, error) {
		all, q := []dict{}, r.URL.Query()
		for _, a := range slices.Backward(f.actions) {
			if q.Get("resource") == "" || q.Get("resource") == a["resource"] {
				all = append(all, f.action(a))
			}
		}
		start, _ := strconv.Atoi(q.Get("start"))
		length, err := strconv.Atoi(q.Get("length"))
		if err != nil {
			length = 50
		}
		part, _ := fakehttp.Page(all, start, length)
		return dict{"status": "ok", "actions": part, "total_actions": len(all)}, nil
	})
	f.Route("GET", "/actions/{id}", "actions.get", nil, func(r *http.Request, _ dict) (any, error) {
		for _, a := range f.actions {
			if fmt.Sprint(a["id"]) == r.PathValue("id") {
				return dict{"status": "ok", "action": f.action(a)}, nil
			}
		}
		return nil, fakehttp.Missing("action " + r.PathValue("id"))
	})
	// ecsapi, "sshkey" and "cloud_script": keys are named by their labels
	f.keep("/sshkeys", "pubkeys", "pubkey", "label", fakehttp.Schema{"!key": `"(?:ssh|ecdsa)-[^ ]+ [^ ]+.*"`, "!label": word})
	f.keep("/scripts", "scripts", "script", "title", fakehttp.Schema{"!title": word, "!content": word, "windows": `true|false`})
	return f
}

var word = `"` + fakehttp.Char + `+"`

// keep answers the calls about things that have numbers as ids, and unique names.
func (f *Fake) keep(path, kind, one, name string, s fakehttp.Schema) {
	find := func(r *http.Request) (dict, error) {
		id, _ := strconv.Atoi(r.PathValue("id"))
		if o := f.Thing(kind, id); o != nil {
			return o, nil
		}
		return nil, fakehttp.Missing(one + " " + r.PathValue("id"))
	}
	f.Route("GET", path, kind+".list", nil, func(*http.Request, dict) (any, error) {
		return dict{"status": "ok", kind: f.Things(kind)}, nil
	})
	f.Route("GET", path+"/{id}", kind+".get", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := find(r)
		return dict{"status": "ok", one: o}, err
	})
	serial := 0
	f.Route("POST", path, kind+".put", s, func(_ *http.Request, in dict) (any, error) {
		for _, o := range f.Things(kind) {
			if o[name] == in[name] {
				return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "%s already exists", in[name])
			}
		}
		serial++
		in["id"], in["name"], in["created_at"] = serial, in[name], time.Now().UTC().Format(time.RFC3339Nano)
		return dict{"status": "ok", one: f.Put(kind, in)}, nil
	})
	f.Route("DELETE", path+"/{id}", kind+".delete", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := find(r)
		if err != nil {
			return nil, err
		}
		return dict{"status": "ok"}, f.Drop(kind, o["id"])
	})
}

func plan(name string) dict {
	p := plans[name]
	out := dict{
		"id": p.id, "name": name, "cpu": strconv.Itoa(p.cpu), "ram": strconv.Itoa(p.ram), "disk": strconv.Itoa(p.disk), "gpu": strconv.Itoa(p.gpu), "gpu_label": nil, "hourly_price": p.price,
		"montly_price": p.price * 720, "windows": false, "host_type": p.host, "available": true,
	}
	if p.gpu > 0 {
		out["gpu_label"] = p.label
	}
	return out
}

// offers answers about plans, regions and images ("montly_price" is Seeweb's word).
func (f *Fake) offers() {
	names := slices.Sorted(maps.Keys(plans))
	place := func(n int, location string) dict {
		return dict{"id": n + 2, "location": location, "description": regions[location]}
	}
	locations := slices.Sorted(maps.Keys(regions))
	f.Route("GET", "/plans", "offers", nil, func(*http.Request, dict) (any, error) {
		all, everywhere := []dict{}, []dict{}
		for n, l := range locations {
			everywhere = append(everywhere, place(n, l))
		}
		for _, name := range names {
			p := plan(name)
			p["available_regions"] = everywhere
			all = append(all, p)
		}
		return dict{"status": "ok", "plans": all}, nil
	})
	system := func(name string) dict {
		return dict{"id": 100 + len(name), "name": name, "description": images[name], "status": "CD", "active_flag": true, "public": true, "cloud_image": false, "required_disk": 20, "creation_date": "2024-05-01T00:00:00+00:00", "uuid": "2efb717c-40a9-4686-9f46-ae49426206eb", "so_base": "ubuntu", "notes": "", "version": "1", "api_version": "v4", "api_version_value": 4}
	}
	systems := []dict{}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		systems = append(systems, system(name))
	}
	f.Route("GET", "/plans/availables", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, name := range names {
			p, in := plan(name), []dict{}
			for _, l := range locations {
				if f.Free(r, l, name) > 0 {
					in = append(in, dict{"region": l, "hosts": []dict{}})
				}
			}
			if p["os_availables"], p["region_availables"] = systems, in; len(in) > 0 {
				all = append(all, p)
			}
		}
		return dict{"status": "ok", "plans": all}, nil
	})
	f.Route("GET", "/regions", "regions", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for n, l := range locations {
			all = append(all, place(n, l))
		}
		return dict{"status": "ok", "regions": all}, nil
	})
	f.Route("POST", "/regions/availables", "regions", fakehttp.Schema{"!plan": word}, func(r *http.Request, in dict) (any, error) {
		all := []string{}
		for _, l := range locations {
			if f.Free(r, l, in["plan"].(string)) > 0 {
				all = append(all, l)
			}
		}
		return dict{"status": "ok", "regions": all}, nil
	})
	basics := func(*http.Request, dict) (any, error) { return dict{"status": "ok", "images": systems}, nil }
	f.Route("GET", "/images/basics", "images", nil, basics)
	f.Route("GET", "/images/cloud-images", "images", nil, basics)
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
	case key != nil && !slices.ContainsFunc(f.Things("pubkeys"), func(o dict) bool { return o["label"] == key }):
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "ssh key %v does not exist", key)
	case numbered && f.Thing("scripts", int(script)) == nil:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "script %v does not exist", script)
	}
	in["name"] = in["notes"]
	i, err := f.Create(r, location, name, in)
	if err != nil {
		return nil, err
	}
	return dict{"status": "ok", "action_id": f.act(i.ID, "create_server")["id"], "server": f.told(i)}, nil
}

func (f *Fake) power(r *http.Request, in dict) (any, error) {
	i, err := f.server(r)
	if err != nil {
		return nil, err
	}
	if in["type"] == "power_on" {
		_, err = f.Start(r, i.ID)
		f.on[i.ID] = true
	} else {
		_, err = f.Stop(r, i.ID)
	}
	if err != nil {
		return nil, err
	}
	return f.action(f.act(i.ID, in["type"].(string))), nil
}

// act keeps an action that begins.
func (f *Fake) act(server, kind string) dict {
	a := dict{"id": 59168 + len(f.actions), "resource": server, "type": kind, "created_at": time.Now().UTC().Format(time.RFC3339Nano)}
	f.actions = append(f.actions, a)
	return a
}

// action is one in Seeweb's words.
func (f *Fake) action(a dict) dict {
	out := maps.Clone(a)
	out["user"], out["resource_type"], out["started_at"], out["status"], out["progress"], out["completed_at"] = "fake", "ECS", a["created_at"], "in-progress", 0, nil
	m, ok := f.Machine(a["resource"].(string))
	if ended := !ok || m.State == fluffyapi.Terminated; ended || m.State == fluffyapi.Running || m.State == fluffyapi.Stopped {
		out["status"], out["progress"], out["completed_at"] = "completed", 100, time.Now().UTC().Format(time.RFC3339Nano)
		if ended && a["type"] != "delete_server" {
			out["status"] = "failed"
		}
	}
	return out
}

// statuses are those of lists, in which a server that is off does not differ.
var statuses = map[fluffyapi.State]string{
	fluffyapi.Pending: "Booting", fluffyapi.Running: "Booted", fluffyapi.Stopping: "Booted", fluffyapi.Stopped: "Booted", fluffyapi.Terminating: "Deleting",
}

func (f *Fake) current(i fluffyapi.Instance) string {
	switch {
	case i.State == fluffyapi.Pending && f.on[i.ID]:
		return "PoweringOn"
	case i.State == fluffyapi.Pending:
		return "Booting"
	case i.State == fluffyapi.Running:
		return "RUNNING"
	case i.State == fluffyapi.Stopping:
		return "PoweringOff"
	case i.State == fluffyapi.Stopped:
		return "SHUTOFF"
	}
	return string(i.State)
}

// told is a server in Seeweb's words, which has no private address.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, p := fakehttp.Asked(i), plan(i.Type)
	status, ok := statuses[i.State]
	if !ok {
		status = string(i.State)
	} else if i.State == fluffyapi.Pending && f.on[i.ID] {
		status = "Booted"
	}
	public, _ := f.Addresses(i)
	notes, _ := asked["notes"].(string)
	out := dict{
		"name": i.ID, "ipv4": public, "ipv6": "", "group": nil, "plan": i.Type, "plan_size": dict{"core": p["cpu"], "ram": p["ram"], "disk": p["disk"], "gpu": p["gpu"], "gpu_label": p["gpu_label"], "host_type": p["host_type"]},
		"location": i.Region, "location_label": regions[i.Region], "notes": notes, "so": asked["image"], "so_label": images[fmt.Sprint(asked["image"])], "creation_date": i.Created.UTC().Format("2006-01-02T15:04:05.000000+00:00"),
		"deletion_date": nil, "active_flag": status == "Booted", "status": status, "progress": map[bool]int{true: 100}[status == "Booted"], "api_version": "v5", "api_version_value": 5, "user": "fake", "virttype": "KVM",
		"reserved_plans": []dict{}, "is_reserved": false, "reserved_until": "", "support": nil, "last_restored_snapshot": nil,
	}
	return out
}

// server is the one of the path, as long as it exists.
func (f *Fake) server(r *http.Request) (fluffyapi.Instance, error) {
	i, err := f.Owner.Instance(r.Context(), r.PathValue("name"))
	if err != nil || i.State == fluffyapi.Terminated {
		return i, fakehttp.Missing("server " + r.PathValue("name"))
	}
	return i, nil
}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	instances, err := f.Instances(r)
	all := []dict{}
	for _, i := range instances {
		if i.State != fluffyapi.Terminated {
			all = append(all, f.told(i))
		}
	}
	return dict{"status": "ok", "count": len(all), "server": all}, err
}
