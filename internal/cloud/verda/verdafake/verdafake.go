// Package verdafake is Verda's API (formerly DataCrunch's), https://api.verda.com/v1, as a
// server for tests. Its facts are from Verda's Go client (verda-cloud/verdacloud-sdk-go:
// fields, statuses, actions, answers that are no JSON), its Python client
// (DataCrunch-io/datacrunch-python: codes of errors) and an answer that a user shows
// (verda-cloud/verda-cli, issue 4: status 503 where there is no room).
package verdafake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// ClientID and Secret are those of the only project.
const ClientID, Secret = "fake-client", "fake-secret-0123456789"

// Poor is a code for faults: the project has no funds.
const Poor fluffyapi.Code = "poor"

type dict = fakehttp.Dict

// Fake is the whole of Verda. Its paths begin with /v1.
type Fake struct {
	*fakehttp.Fake
	tokens fakehttp.Tokens
}

var locations = []string{"FIN-01", "FIN-03", "ICE-01"}

var kinds = map[string]struct {
	gpu                     string
	gpus, cpus, memory, vrm int
	price, spot             float64
}{
	"1V100.6V": {"Tesla V100", 1, 6, 23, 16, 0.14, 0.05}, "8H100.80S.176V": {"H100 SXM5 80GB", 8, 176, 1480, 640, 15.92, 6.37}, "CPU.4V.16G": {"", 0, 4, 16, 0, 0.03, 0.01},
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	f := &Fake{}
	api := fakehttp.API{
		Prefix: "/v1", Regions: locations, Linger: time.Minute, Remembers: true,
		ID:    func(n uint64) string { return fmt.Sprintf("123dd514-7a17-4f8e-b3a6-%012x", n) },
		Login: func(r *http.Request) bool { return r.URL.Path == "/v1/oauth2/token" || f.tokens.Good(r) },
		Error: func(_ int, code, message string) any { return dict{"code": code, "message": message} },
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "unauthorized_request"}, fluffyapi.Forbidden: {Status: 403, Code: "forbidden_action"}, fluffyapi.NotFound: {Status: 404, Code: "not_found"},
			fluffyapi.Invalid: {Status: 400, Code: "invalid_request"}, fluffyapi.QuotaExceeded: {Status: 400, Code: "invalid_request"}, fluffyapi.WrongState: {Status: 400, Code: "invalid_request"},
			fluffyapi.NoCapacity: {Status: 503, Code: "service_unavailable"}, fluffyapi.Throttled: {Status: 429, Code: "too_many_requests"},
			fluffyapi.Internal: {Status: 500, Code: "server_error"}, Poor: {Status: 402, Code: "insufficient_funds"},
		},
	}
	for name, k := range kinds {
		api.Types = append(api.Types, fakehttp.Type(name, k.cpus, "", 0, k.price))
	}
	f.Fake = fakehttp.New(api)
	f.Route("POST", "/oauth2/token", "token", fakehttp.Schema{"!grant_type": `"(?:client_credentials|refresh_token)"`, "!client_id": fakehttp.Filled, "!client_secret": fakehttp.Filled}, f.token)
	f.Route("GET", "/balance", "account", nil, fakehttp.Answer(dict{"amount": 42.5, "currency": "usd"}))
	f.Route("GET", "/locations", "locations", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for _, l := range locations {
			all = append(all, dict{"code": l, "name": "Somewhere", "country_code": l[:2]})
		}
		return all, nil
	})
	f.Route("GET", "/instance-types", "offers", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for name := range kinds {
			all = append(all, f.hardware(name))
		}
		return all, nil
	})
	f.Route("GET", "/instance-availability", "offers", nil, f.availability)
	f.Route("GET", "/instance-availability/{type}", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		return slices.ContainsFunc(locations, func(l string) bool {
			at := r.URL.Query().Get("location_code")
			return (at == "" || at == l) && f.Free(r, l, r.PathValue("type")) > 0
		}), nil
	})
	f.Route("GET", "/instances", "instances.list", nil, f.list)
	f.Show("/instances/{id}", func(i fluffyapi.Instance) any { return f.told(i) })
	f.Route("POST", "/instances", "instances.create", creating, f.create)
	f.RouteBy("PUT", "/instances", fakehttp.By("action", actions), fakehttp.Schema{"!id": fakehttp.Filled + `|` + fakehttp.List(fakehttp.Filled), "!action": fakehttp.Filled, "volume_ids": `null|` + fakehttp.List(fakehttp.Filled), "delete_permanently": fakehttp.Bool}, f.act)
	f.keep("/ssh-keys", "keys", fakehttp.Schema{"!name": fakehttp.Filled, "!key": fakehttp.Key})
	f.keep("/sshkeys", "keys", fakehttp.Schema{"!name": fakehttp.Filled, "!key": fakehttp.Key})
	f.keep("/scripts", "scripts", fakehttp.Schema{"!name": fakehttp.Filled, "!script": fakehttp.Filled})
	return f
}

var (
	creating = fakehttp.Schema{
		"!instance_type": fakehttp.Filled, "!image": fakehttp.Filled, "!hostname": `"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,59}[a-zA-Z0-9])?"`, "!description": fakehttp.Filled, "ssh_key_ids": fakehttp.Filled + `|` + fakehttp.List(fakehttp.Filled),
		"location_code": fakehttp.Filled, "contract": `"(?:LONG_TERM|PAY_AS_YOU_GO|SPOT)"`, "pricing": `"(?:DYNAMIC_PRICE|FIXED_PRICE)"`, "startup_script_id": `null|` + fakehttp.Filled, "is_spot": fakehttp.Bool,
		"os_volume": `null|\{"name":` + fakehttp.Filled + `(?:,"on_spot_discontinue":"(?:keep_detached|move_to_trash|delete_permanently)")?,"size":[1-9]\d*\}`, "volumes": `null|\[\]`, "existing_volumes": `null|\[\]`,
		"tags": fakehttp.List(`\{"key":` + fakehttp.Filled + `(?:,"value":` + fakehttp.String + `)?\}`),
	}
)

func (f *Fake) token(_ *http.Request, in dict) (any, error) {
	if in["client_id"] != ClientID || in["client_secret"] != Secret {
		return nil, fluffyapi.Errorf(fluffyapi.Unauthorized, "Invalid client id or client secret")
	}
	token := f.tokens.Mint(ClientID, func(int) string { return f.NewID() })
	return fakehttp.TokenReply(token, int(fakehttp.TokenLife.Seconds()), dict{"refresh_token": f.NewID(), "scope": "fullAccess"}), nil
}

// keep answers the calls about keys and scripts. A new one's answer is its id, without
// quotes, and a single one is a list of one.
func (f *Fake) keep(path, kind string, s fakehttp.Schema) {
	f.Keep(fakehttp.Kind{
		Name: kind, Path: path, Make: s, One: func(o dict) any { return []dict{o} }, Made: func(o dict) any { return fakehttp.Text(o["id"].(string)) },
		Complete: func(_ *http.Request, in dict) error {
			in["created_at"] = time.Now().UTC()
			return nil
		},
	})
}

// hardware is a type of instance. Prices are texts.
func (f *Fake) hardware(name string) dict {
	k := kinds[name]
	return dict{
		"id": name, "instance_type": name, "model": k.gpu, "cpu": dict{"description": fmt.Sprint(k.cpus, " CPU"), "number_of_cores": k.cpus},
		"gpu": dict{"description": fmt.Sprintf("%dx %s", k.gpus, k.gpu), "number_of_gpus": k.gpus}, "gpu_memory": dict{"size_in_gigabytes": k.vrm},
		"memory": dict{"description": fmt.Sprint(k.memory, "GB RAM"), "size_in_gigabytes": k.memory}, "storage": dict{"description": "dynamic"},
		"price_per_hour": fmt.Sprintf("%.4f", f.Now(k.price)), "spot_price": fmt.Sprintf("%.4f", f.Now(k.spot)), "currency": "usd",
	}
}

func (f *Fake) availability(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for _, l := range locations {
		free, at := []string{}, r.URL.Query().Get("location_code")
		for name := range kinds {
			if f.Free(r, l, name) > 0 {
				free = append(free, name)
			}
		}
		if at == "" || at == l {
			all = append(all, dict{"location_code": l, "availabilities": free})
		}
	}
	return all, nil
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	kind, at := in["instance_type"].(string), "FIN-01"
	if l, ok := in["location_code"].(string); ok {
		at = l
	}
	keys := fakehttp.Items(in["ssh_key_ids"])
	if id, ok := in["ssh_key_ids"].(string); ok {
		keys = []any{id}
	}
	if len(keys) == 0 {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "SSH keys can be an array of UUID's, a single UUID string, null value or not defined")
	}
	if id := in["startup_script_id"]; id != nil && f.Thing("scripts", id) == nil {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "Invalid startup script id")
	}
	for _, id := range keys {
		if f.Thing("keys", id) == nil {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "Invalid ssh key id")
		}
	}
	switch {
	case kinds[kind].cpus == 0:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "Invalid instance type")
	case len(fakehttp.Items(in["tags"])) > 10:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "An instance has at most 10 tags")
	}
	i, err := f.Create(r, at, kind, in)
	if e, ok := err.(*fluffyapi.Error); ok && e.Code == fluffyapi.NoCapacity {
		e.Message = fmt.Sprintf("Not enough resources to deploy a %d GPU instance type %s in %s", kinds[kind].gpus, kind, at)
	}
	return fakehttp.Text(i.ID), err
}

// An instance has no status of its own for being switched off.
var statuses = fakehttp.States{
	fluffyapi.Pending: "ordered", fluffyapi.Running: "running", fluffyapi.Stopping: "running", fluffyapi.Stopped: "offline", fluffyapi.Terminating: "deleting", fluffyapi.Terminated: "discontinued",
}

// told is an instance in Verda's words.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, out := fakehttp.Asked(i), f.hardware(i.Type)
	status := statuses.Of(i.State)
	spot := asked["is_spot"] == true || asked["contract"] == "SPOT"
	tags := []dict{}
	for _, t := range fakehttp.Items(asked["tags"]) {
		t := t.(dict)
		tags = append(tags, dict{"id": "t", "key": strings.ToLower(t["key"].(string)), "value": t["value"]})
	}
	out["id"], out["ip"], out["location"], out["created_at"], out["tags"] = i.ID, nil, i.Region, i.Created.UTC().Format(time.RFC3339Nano), tags
	out["is_spot"], out["contract"] = spot, map[bool]string{true: "SPOT", false: "PAY_AS_YOU_GO"}[spot]
	for _, field := range []string{"hostname", "description", "image", "ssh_key_ids", "startup_script_id"} {
		out[field] = asked[field]
	}
	if public, private := f.Addresses(i); public != "" {
		if out["ip"] = public; private != "" {
			out["private_ip"] = private
		}
		if status == "ordered" {
			status = "provisioning"
		}
	}
	out["status"] = status
	return out
}

// list tells of the instances that are not deleted, or of those in a status.
func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	instances, err := f.Instances(r)
	all, want := []dict{}, r.URL.Query().Get("status")
	for _, i := range instances {
		if t := f.told(i); want == "" && t["status"] != "discontinued" || want == t["status"] {
			all = append(all, t)
		}
	}
	return all, err
}

var actions = map[any]string{
	"boot": "instances.start", "start": "instances.start", "shutdown": "instances.stop", "force_shutdown": "instances.stop", "delete": "instances.terminate", "discontinue": "instances.terminate",
}

// act does the same to some instances, and answers for each.
func (f *Fake) act(r *http.Request, in dict) (any, error) {
	ids, results := fakehttp.Items(in["id"]), []dict{}
	if id, ok := in["id"].(string); ok {
		ids = []any{id}
	}
	op := actions[in["action"]]
	if op == "" || len(ids) == 0 {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "Invalid action")
	}
	for _, id := range ids {
		result := dict{"action": in["action"], "instanceId": id, "status": "success"}
		i, err := f.Owner.Instance(r.Context(), id.(string))
		if err == nil && i.State == fluffyapi.Pending && op == "instances.stop" {
			err = fluffyapi.Errorf(fluffyapi.WrongState, "the instance is provisioning")
		}
		if err == nil {
			_, err = f.Do(r, op, id.(string))
		}
		if e, ok := err.(*fluffyapi.Error); ok {
			if len(ids) == 1 {
				return nil, e
			}
			result["status"], result["error"], result["statusCode"] = "error", e.Message, map[bool]int{true: 404, false: 400}[e.Code == fluffyapi.NotFound]
		}
		results = append(results, result)
	}
	return results, nil
}
