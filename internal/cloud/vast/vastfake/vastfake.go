// Package vastfake is Vast's API, https://console.vast.ai/api, as a server for tests.
// Its facts are from Vast's reference (docs.vast.ai: api-reference/openapi.yaml, "Creating
// Instances with the API", "Rate Limits and Errors", and the statuses of "show instances"),
// and where that is silent from public clients: that a start without room is queued, and
// the fakehttp.Filled for a lack of credit.
package vastfake

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Key is the API key of the only account.
const Key = "fake0123456789abcdef"

// Poor is a code for faults: the account has no credit.
const Poor, queued, taken fluffyapi.Code = "poor", "queued", "taken"

type dict = fakehttp.Dict

// Fake is the whole of Vast.
type Fake struct {
	*fakehttp.Fake
	rented map[int]string  // offers, and the instance that each was rented as
	outbid map[string]bool // instances whose machine somebody pays more for
	starts map[string]bool // those that start as soon as there is room
}

// countries are where machines are, by their codes.
var countries = map[string]string{"SE": "Sweden, SE", "US": "California, US"}

var machines = []struct {
	gpu                       string
	gpus, vram, cores, memory int
	price                     float64
}{{"RTX 4090", 1, 24564, 16, 64000, 0.4}, {"H100 SXM", 8, 81559, 192, 1548000, 16.8}}

// Type is the model's name of a kind of machine: what price lists call it.
func Type(kind int) string {
	m := machines[kind]
	return fmt.Sprintf("%dx-%s-%d-%d", m.gpus, strings.ReplaceAll(m.gpu, " ", "_"), m.cores, m.memory)
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/api", AtOnce: true, Regions: slices.Sorted(maps.Keys(countries)), // and limits by call: https://docs.vast.ai/api-reference
		Limits: []fakehttp.Limit{{Method: "PUT", Path: "/v0/asks/", Every: 4500 * time.Millisecond}, {Method: "POST", Path: "/v0/bundles/", Every: 6 * time.Second, Saved: 5}, {Method: "PUT", Path: "/v0/instances/", Every: time.Second}, {Method: "DELETE", Path: "/v0/instances/", Every: 3 * time.Second}},
		ID:     func(n uint64) string { return fmt.Sprint(4000000 + n) }, Noun: "instance",
		Login: fakehttp.Bearer(Key),
		Error: func(status int, code, message string) any {
			if status == http.StatusTooManyRequests {
				return nil // plain text, as a rule
			}
			return dict{"success": false, "error": code, "msg": fmt.Sprintf("error %d/3467: %s", status, message)}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "auth_error"}, fluffyapi.Forbidden: {Status: 403, Code: "not_authorized"}, fluffyapi.NotFound: {Status: 404, Code: "not_found"},
			fluffyapi.Invalid: {Status: 400, Code: "invalid_args"}, fluffyapi.NoCapacity: {Status: 410, Code: "no_such_ask"}, fluffyapi.QuotaExceeded: {Status: 400, Code: "insufficient_credit"},
			fluffyapi.Throttled: {Status: 429}, fluffyapi.Internal: {Status: 500, Code: "server_error"}, Poor: {Status: 400, Code: "insufficient_credit"},
			taken: {Status: 404, Code: "invalid_args"}, queued: {Status: 400, Code: "resources_unavailable"},
		},
	}
	for n, m := range machines {
		api.Types = append(api.Types, fakehttp.Type(Type(n), m.cores, m.gpu, m.gpus, m.price))
	}
	f := &Fake{Fake: fakehttp.New(api), rented: map[int]string{}, outbid: map[string]bool{}, starts: map[string]bool{}}
	for _, slash := range []string{"", "/{$}"} { // the reference writes both
		f.Route("GET", "/v0/users/current"+slash, "users.get", nil, fakehttp.Answer(dict{"id": 456, "username": "ann", "credit": 25.5}))
		f.Route("POST", "/v0/bundles"+slash, "offers", fakehttp.Schema{"type": `"(?:ondemand|on-demand|bid|reserved)"`, "limit": `\d+`}, f.search)
		f.Route("PUT", "/v0/asks/{id}"+slash, "instances.create", creating, f.create)
		f.Route("GET", "/v0/instances"+slash, "instances.list", nil, f.list)
		f.Route("GET", "/v1/instances"+slash, "instances.list", nil, f.list)
		f.RouteBy("PUT", "/v0/instances/{id}"+slash, fakehttp.By("state", map[any]string{"running": "instances.start", "stopped": "instances.stop"}), fakehttp.Schema{"state": `"(?:running|stopped)"`}, f.change)
		f.Turn("DELETE", "/v0/instances/{id}"+slash, "instances.terminate", nil, func(fluffyapi.Instance) any {
			return dict{"success": true, "msg": "Instance destroyed successfully"}
		})
	}
	return f
}

var (
	creating = fakehttp.Schema{
		"!image": fakehttp.Filled, "label": fakehttp.String, "disk": fakehttp.Number, "runtype": `"(?:ssh|jupyter|args|ssh_proxy|ssh_direct|jupyter_proxy|jupyter_direct)"`,
		"target_state": `"(?:running|stopped)"`, "price": fakehttp.Number, "cancel_unavail": fakehttp.Bool, "onstart": fakehttp.String, "args": fakehttp.List(fakehttp.String),
		"args_str": fakehttp.String, "image_login": fakehttp.String, "env": fakehttp.String + `|\{(?:` + fakehttp.Filled + `:` + fakehttp.String + `,?)*\}`,
	}
)

// most is how many offers there are of a kind in a country: each is one machine.
const most = 16

type place struct {
	country string
	kind    int
}

// offers are what can be rented now: the places of machines, by number.
func (f *Fake) offers(r *http.Request) map[int]place {
	all := map[int]place{}
	for c, country := range slices.Sorted(maps.Keys(countries)) {
		for k := range machines {
			left := min(f.Free(r, country, Type(k)), most)
			for id := (c+1)*100_000_000 + (k+1)*1_000_000; left > 0; id++ {
				if m, ok := f.Machine(f.rented[id]); !ok || m.State == fluffyapi.Terminated {
					all[id] = place{country, k}
					left--
				}
			}
		}
	}
	return all
}

// search answers with the offers that fit all filters, such as {"num_gpus": {"gte": 2}}.
func (f *Fake) search(r *http.Request, in dict) (any, error) {
	all := []dict{}
	offers := f.offers(r)
	for _, id := range slices.Sorted(maps.Keys(offers)) {
		at := offers[id]
		m := machines[at.kind]
		m.price = f.Now(m.price)
		bid := in["type"] == "bid"
		o := dict{
			"id": id, "ask_contract_id": id, "machine_id": id % 100_000_000, "host_id": 77, "gpu_name": m.gpu, "num_gpus": m.gpus, "gpu_ram": m.vram, "cpu_cores": m.cores,
			"cpu_cores_effective": float64(m.cores), "cpu_ram": m.memory, "disk_space": 900.5, "disk_bw": 2100.5, "geolocation": countries[at.country], "inet_up": 800.1, "inet_down": 900.1,
			"reliability": 0.997, "reliability2": 0.997, "verification": "verified", "verified": true, "hosting_type": 1, "datacenter": true, "cuda_max_good": 12.8, "direct_port_count": 100,
			"static_ip": true, "external": false, "rentable": true, "rented": false, "is_bid": bid, "dph_base": m.price, "dph_total": m.price, "min_bid": m.price / 2, "storage_cost": 0.15,
			"duration": 1e7, "search": dict{"gpuCostPerHour": m.price, "totalHour": m.price, "diskHour": 0.01},
		}
		if bid {
			o["dph_base"], o["dph_total"] = m.price/2, m.price/2
		}
		var have dict // as JSON has it
		text, _ := json.Marshal(o)
		_ = json.Unmarshal(text, &have)
		have["geolocation"] = at.country // which filters are about
		fit := true
		for field, filter := range in {
			conditions, _ := filter.(dict)
			for op, want := range conditions {
				fit = fit && tests[op] != nil && tests[op](have[field], want)
			}
		}
		if fit {
			all = append(all, o)
		}
	}
	if limit, ok := in["limit"].(float64); ok && len(all) > int(limit) {
		all = all[:int(limit)]
	}
	return dict{"success": true, "offers": all}, nil
}

// tests are the operators of filters.
var tests = map[string]func(have, want any) bool{
	"eq": func(a, b any) bool { return a == b }, "neq": func(a, b any) bool { return a != b },
	"in": func(a, b any) bool { return slices.Contains(fakehttp.Items(b), a) }, "notin": func(a, b any) bool { return !slices.Contains(fakehttp.Items(b), a) },
	"gt": func(a, b any) bool { return less(b, a) }, "lt": less,
	"gte": func(a, b any) bool { return a == b || less(b, a) }, "lte": func(a, b any) bool { return a == b || less(a, b) },
}

func less(a, b any) bool {
	x, ok := a.(float64)
	y, both := b.(float64)
	return ok && both && x < y
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	id, _ := strconv.Atoi(r.PathValue("id"))
	at, ok := f.offers(r)[id]
	if !ok { // somebody has the machine
		return nil, fluffyapi.Errorf(taken, "no_such_ask Instance type by id %d is not available.", id)
	}
	price, bid := in["price"].(float64)
	in["name"] = in["label"]
	i, err := f.Create(r, at.country, Type(at.kind), in)
	if err != nil {
		return nil, err
	}
	if f.rented[id] = i.ID; bid && price < f.Now(machines[at.kind].price)/2 {
		f.Outbid(i.ID)
	}
	return dict{"success": true, "new_contract": json.Number(i.ID)}, nil
}

// Outbid takes the machine of an interruptible instance, which stays and is off.
func (f *Fake) Outbid(id string) {
	f.outbid[id] = true
	f.Halt(id)
}

func (f *Fake) change(r *http.Request, in dict) (any, error) {
	id := r.PathValue("id")
	_, err := f.InPath(r)
	if err != nil {
		return nil, err
	}
	if delete(f.starts, id); in["state"] == "stopped" {
		_, err = f.Stop(r, id)
	} else if in["state"] == "running" {
		delete(f.outbid, id)
		var e *fluffyapi.Error
		if _, err = f.Start(r, id); errors.As(err, &e) && e.Code == fluffyapi.NoCapacity {
			f.starts[id] = true
			err = fluffyapi.Errorf(queued, "Required resources are currently unavailable, state change queued.")
		}
	}
	return dict{"success": true}, err
}

// list answers with all instances, version 1 with 25 at most.
func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	for id := range f.starts {
		if _, err := f.Start(r, id); err == nil {
			delete(f.starts, id)
		}
	}
	all, err := f.Existing(r, f.told)
	if strings.Contains(r.URL.Path, "/v0/") {
		return dict{"instances_found": len(all), "instances": all}, err
	}
	part, err2 := fakehttp.Pages{Token: "after_token", Usual: 25}.Part(r.URL.Query(), all)
	return dict{"success": true, "instances_found": len(part.Items), "total_instances": len(all), "next_token": part.Next, "instances": part.Items}, cmp.Or(err, err2)
}

var statuses = map[fluffyapi.State]any{fluffyapi.Pending: nil, fluffyapi.Stopping: "running", fluffyapi.Terminating: "running"}

var mapping = lazyregexp.New(`-p (\d+):(\d+)(/udp)?`)

// told is an instance in Vast's words.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked := fakehttp.Asked(i)
	m := machines[slices.Index([]string{Type(0), Type(1)}, i.Type)]
	status, ok := statuses[i.State]
	if !ok {
		status = string(i.State)
	}
	intended := "running"
	if i.State == fluffyapi.Stopping || i.State == fluffyapi.Stopped && i.Reason == "" && !f.starts[i.ID] {
		intended = "stopped"
	}
	out := dict{
		"id": json.Number(i.ID), "label": asked["label"], "actual_status": status, "intended_status": intended, "cur_state": intended, "next_state": intended, "image_uuid": asked["image"],
		"image_runtype": asked["runtype"], "onstart": asked["onstart"], "status_msg": "", "machine_id": 12, "start_date": float64(i.Created.UnixNano()) / float64(time.Second), "gpu_name": m.gpu,
		"num_gpus": m.gpus, "gpu_ram": m.vram, "cpu_cores_effective": float64(m.cores), "cpu_ram": m.memory, "geolocation": countries[i.Region], "dph_total": m.price, "is_bid": asked["price"] != nil,
		"public_ipaddr": nil, "local_ipaddrs": nil, "ssh_host": nil, "ssh_port": nil, "ports": nil, "disk_space": asked["disk"],
	}
	public, private := f.Addresses(i)
	if off := i.State == fluffyapi.Stopped && i.Reason != ""; off && f.outbid[i.ID] {
		out["cur_state"], out["status_msg"] = "stopped", "outbid"
	} else if off {
		out["actual_status"], out["status_msg"] = "exited", i.Reason
	} else if i.State == fluffyapi.Pending && public != "" {
		out["actual_status"], out["status_msg"] = "loading", "pulling the image"
	}
	if public == "" {
		return out
	}
	out["public_ipaddr"], out["local_ipaddrs"], out["ssh_host"], out["ssh_port"] = public, strings.TrimSpace(private+" 172.17.0.2"), "ssh5.vast.ai", 10600
	if status != "running" {
		return out
	}
	ports := dict{}
	text, _ := json.Marshal(asked["env"])
	if runtype, _ := asked["runtype"].(string); strings.HasSuffix(runtype, "_direct") {
		text = append(text, "-p 22:22"...)
	}
	for _, p := range mapping.FindAllStringSubmatch(string(text), -1) {
		ports[p[2]+"/"+cmp.Or(strings.TrimPrefix(p[3], "/"), "tcp")] = []dict{{"HostIp": "0.0.0.0", "HostPort": fmt.Sprint(40000 + len(ports))}}
	}
	out["ports"] = ports
	return out
}
