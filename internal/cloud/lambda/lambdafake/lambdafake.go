// Package lambdafake is Lambda's GPU cloud, https://cloud.lambda.ai/api/v1, as a
// server for tests: the HTTP face of the cloud in package model. Its facts are from
// Lambda's OpenAPI specification, versions 1.8.3 and 1.10.0, and where that is silent
// from SkyPilot's issues 2261 (status 429) and 8221 (keys of one name).
package lambdafake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Key is the API key of the only account.
const Key = "secret_fake_0123456789abcdef"

type dict = map[string]any

// Fake is the whole of Lambda Cloud. Its paths begin with /api/v1, as Lambda's do.
// Its methods may be called concurrently.
type Fake struct {
	http.ServeMux
	cloud         *model.Cloud
	restored      atomic.Int64
	caller, owner *model.Account // faults hit the caller; effects are the owner's

	mu           sync.Mutex
	serial       int
	limits       bool
	boot         time.Duration
	call, launch time.Time         // when the last ones were
	things       map[string][]dict // SSH keys and firewall rulesets, by the names that faults have for them
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	cfg := model.Config{PageSize: math.MaxInt}
	for name, k := range kinds {
		price := float64(k.cents) / 100 // as spot too: only such instances can be taken back
		cfg.Types = append(cfg.Types, model.Type{Name: name, CPUs: k.cpus, Accelerators: map[string]float64{k.gpu: float64(k.gpus)}, Price: price, SpotPrice: price})
	}
	for name := range regions {
		cfg.Regions = append(cfg.Regions, model.Region{Name: name, Zones: []string{zone(name)}})
	}
	c, err := model.New(cfg)
	if err != nil {
		panic(err)
	}
	f := &Fake{cloud: c, caller: c.Account("caller", "owner"), owner: c.Account("team", "owner"), things: map[string][]dict{}}
	f.Restore()
	f.route("GET", "/instance-types", "offers", nil, f.instanceTypes)
	f.route("GET", "/instances", "instances.list", nil, f.list)
	f.route("GET", "/instances/{id}", "instances.get", nil, f.get)
	f.route("POST", "/instance-operations/launch", "instances.create", launching, f.create)
	f.route("POST", "/instance-operations/terminate", "instances.terminate", terminating, f.terminate)
	for path, kind := range map[string]string{"/ssh-keys": "keys", "/firewall-rulesets": "firewalls"} {
		f.route("GET", path, kind+".list", nil, f.thing(kind))
		f.route("POST", path, kind+".put", putting[kind], f.thing(kind))
		f.route("DELETE", path+"/{id}", kind+".delete", nil, f.thing(kind))
	}
	f.route("GET", "/firewall-rulesets/{id}", "firewalls.get", nil, f.thing("firewalls"))
	f.route("PATCH", "/firewall-rulesets/{id}", "firewalls.put", patching, f.thing("firewalls"))
	return f
}

// handler answers a call whose body fits its schema. It runs under Fake.mu.
type handler func(r *http.Request, in dict) (any, error)

// route answers calls of the operation op, as faults know it.
func (f *Fake) route(method, path, op string, s schema, do handler) {
	f.HandleFunc(method+" /api/v1"+path, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // first: only after the body is it noticed that a caller leaves
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		lost, err := false, f.enter(r, op)
		if err == nil {
			before := f.restored.Load()
			if lost, err = f.caller.Enter(r.Context(), op); before != f.restored.Load() {
				panic(http.ErrAbortHandler) // it hung, and its caller may have left
			}
		}
		var in dict
		if err == nil && s != nil {
			in, err = s.read(body)
		}
		var out []byte
		if err == nil {
			f.mu.Lock()
			var data any
			data, err = do(r, in)
			out, _ = json.Marshal(dict{"data": data})
			f.mu.Unlock()
		}
		var e *fluffyapi.Error
		status := http.StatusOK
		switch {
		case errors.As(err, &e) && e.Code == fluffyapi.Throttled:
			http.Error(w, "too many", http.StatusTooManyRequests) // the reference promises nothing but the status
			return
		case e != nil:
			status = refusals[e.Code].status
			out, _ = json.Marshal(dict{"error": dict{"code": refusals[e.Code].code, "message": e.Message, "suggestion": "Ask otherwise."}})
		case err != nil || lost:
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(out)
	})
}

// enter asks for the key, and keeps the limits.
func (f *Fake) enter(r *http.Request, op string) error {
	if r.Header.Get("Authorization") != "Bearer "+Key {
		return fluffyapi.Errorf(fluffyapi.Unauthorized, "the API key is missing, invalid, expired or deleted")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now, launch := time.Now(), op == "instances.create"
	if f.limits && (now.Sub(f.call) < time.Second || launch && now.Sub(f.launch) < 12*time.Second) {
		return fluffyapi.Errorf(fluffyapi.Throttled, "one too many")
	}
	f.call = now
	if launch {
		f.launch = now
	}
	return nil
}

// Inactive is a code for [Fake.Inject]: the account is not active.
const Inactive, unknown fluffyapi.Code = "inactive", "unknown"

// refusals are what Lambda says for the model's codes.
var refusals = map[fluffyapi.Code]struct {
	status int
	code   string
}{
	fluffyapi.Unauthorized: {401, "global/invalid-api-key"}, fluffyapi.Forbidden: {403, "global/forbidden"}, Inactive: {403, "global/account-inactive"},
	fluffyapi.NotFound: {404, "global/object-does-not-exist"}, fluffyapi.Invalid: {400, "global/invalid-parameters"},
	fluffyapi.QuotaExceeded: {400, "global/quota-exceeded"}, fluffyapi.NoCapacity: {400, "instance-operations/launch/insufficient-capacity"},
	fluffyapi.InUse:    {400, "firewall-rulesets/firewall-ruleset-in-use"},
	fluffyapi.Internal: {500, "global/internal-error"}, unknown: {500, "global/unknown"},
}

// schema is what a body may hold: for each field a pattern of its JSON, with sorted
// keys and without spaces; "!" before a field says that it is required.
type schema map[string]string

const (
	char  = `(?:[^"\\]|\\(?:u....|.))`
	text  = `"` + char + `*"`
	texts = `\[(?:` + text + `,?)*\]`
	short = `"` + char + `{0,64}"`
	note  = `"` + char + `{0,128}"`
	rules = `\[(?:{"description":` + note + `,(?:"port_range":\[\d+,\d+\],"protocol":"(?:tcp|udp|all)"|"protocol":"icmp"),"source_network":"[0-9.]+(?:/\d+)?"},?)*\]`
)

var (
	launching = schema{
		"!region_name": text, "!instance_type_name": text, "!ssh_key_names": `\[` + text + `\]`, "file_system_names": texts, "file_system_mounts": `\[.*\]`,
		"hostname": `"[a-z0-9][0-9a-z-]{0,62}"`, "name": short, "image": `{"(?:id|family)":` + text + `}`, "user_data": `".*"`,
		"tags": `\[(?:{"key":"[a-z][a-z0-9-:]{1,54}","value":` + note + `},?)*\]`, "firewall_rulesets": `\[(?:{"id":` + text + `},?)*\]`,
	}
	terminating = schema{"!instance_ids": `\[` + text + `(?:,` + text + `)*\]`}
	putting     = map[string]schema{
		"keys":      {"!name": `"` + char + `{1,64}"`, "!public_key": `"` + char + `+"`}, // without one Lambda makes a pair
		"firewalls": {"!name": short, "!region": text, "!rules": rules},
	}
	patching = schema{"name": short, "rules": rules}
)

func (s schema) read(body []byte) (in dict, err error) {
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "the body: %v", err)
	}
	for field, pattern := range s {
		name, required := strings.CutPrefix(field, "!")
		v, ok := in[name]
		got, _ := json.Marshal(v)
		if len(got) > 1_000_000 || !ok && required || ok && !regexp.MustCompile(`(?s)^`+pattern+`$`).Match(got) {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "%s: not %.99s", name, got)
		}
	}
	for name := range in {
		if s[name] == "" && s["!"+name] == "" {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "%s: there is no such field", name)
		}
	}
	return in, nil
}

// thing answers calls about SSH keys or firewall rulesets.
func (f *Fake) thing(kind string) handler {
	return func(r *http.Request, in dict) (any, error) {
		id := r.PathValue("id")
		if _, err := ports(in); err != nil {
			return nil, err
		}
		if r.Method == http.MethodPost {
			id = f.newID()
			in["id"] = id
			if region, ok := in["region"].(string); ok {
				if regions[region] == "" {
					return nil, fluffyapi.Errorf(fluffyapi.Invalid, "region: there is no %q", region)
				}
				in["region"], in["created"], in["instance_ids"] = place(region), time.Now().UTC(), nil
			}
			f.things[kind] = append(f.things[kind], in)
		}
		for _, o := range f.things[kind] {
			if _, ok := o["instance_ids"]; ok {
				o["instance_ids"] = f.users(o["id"])
			}
		}
		if id == "" {
			return append([]dict{}, f.things[kind]...), nil
		}
		o := f.find(kind, id)
		switch {
		case o == nil:
			return nil, missing(id)
		case r.Method == http.MethodDelete && len(f.users(id)) > 0:
			return nil, fluffyapi.Errorf(fluffyapi.InUse, "%s is in use", id)
		case r.Method == http.MethodDelete:
			f.things[kind] = slices.DeleteFunc(f.things[kind], func(o dict) bool { return o["id"] == id })
			return dict{}, nil
		}
		maps.Copy(o, in)
		return o, nil
	}
}

// find returns the thing with that ID; nil if there is none.
func (f *Fake) find(kind string, id any) dict {
	for _, o := range f.things[kind] {
		if o["id"] == id {
			return o
		}
	}
	return nil
}

// users are the instances that a ruleset is for.
func (f *Fake) users(ruleset any) []string {
	ids := []string{}
	for _, m := range f.cloud.Machines() {
		if m.State != fluffyapi.Terminated && slices.Contains(rulesets(asked(m.Instance)), ruleset) {
			ids = append(ids, lambdaID(m.ID))
		}
	}
	return ids
}

// ports are those that the rules of a ruleset open to the world.
func ports(ruleset dict) (open []string, err error) {
	for _, v := range items(ruleset["rules"]) {
		rule := v.(dict)
		r := items(rule["port_range"])
		if len(r) == 0 {
			continue // icmp
		}
		from, to := r[0].(float64), r[1].(float64)
		if from < 1 || from > to || to > 65535 {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "port_range: %v", r)
		}
		if rule["source_network"] == "0.0.0.0/0" && rule["protocol"] != "udp" {
			open = append(open, strings.TrimSuffix(fmt.Sprint(from, "-", to), fmt.Sprint("-", from)))
		}
	}
	return open, nil
}

func items(list any) []any {
	all, _ := list.([]any)
	return all
}

func missing(what any) error { return fluffyapi.Errorf(fluffyapi.NotFound, "%v does not exist", what) }

func (f *Fake) newID() string {
	f.serial++
	return fmt.Sprintf("f00d%028x", f.serial)
}
