// Package mithrilfake is Mithril's compute API, https://api.mithril.ai/v2, as a server for
// tests. Its facts are from Mithril's reference (docs.mithril.ai, "Compute API reference":
// Spot, Instances, Instance types, Pricing, SSH keys, Projects, Profile), from what it says
// about bids ("Statuses", "Handling spot interruptions"; docs.mlfoundry.com, "Using spot
// instances": bids are all or nothing, and stay) and, where that is silent, from SkyPilot's
// provider (the fields of availability, names of instances that begin with the bid's,
// status 404 for a bid that has ended). The reference has bodies for status 422 only.
package mithrilfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Key and Project are those of the only user.
const Key, Project = "fkey_fake0123456789abcdef", "proj_fake0123456789"

type dict = fakehttp.Dict

// Fake is the whole of Mithril. Its paths begin with /v2.
type Fake struct {
	*fakehttp.Fake
	ended []dict // bids
}

var regions = []string{"us-central1-b", "us-central2-a", "eu-central1-a"}

var kinds = map[string]struct {
	gpu                     string
	gpus, cpus, ram, memory int
	price                   float64 // of an instance, an hour
}{
	"a100-80gb.sxm.1x": {"A100", 1, 15, 116, 80, 1.2}, "a100-80gb.sxm.8x": {"A100", 8, 124, 928, 80, 9.6}, "h100-80gb.sxm.8x": {"H100", 8, 192, 1536, 80, 20},
}

// typeID is the fid of a type: each region has its own.
func typeID(name, region string) string {
	return "it_" + strings.NewReplacer(".", "", "-", "").Replace(name+region)
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/v2", Regions: regions, Linger: 10 * time.Minute,
		ID:    func(n uint64) string { return fmt.Sprintf("inst_%016x", n) },
		Is:    func(m model.Machine, id string) bool { return fakehttp.Asked(m.Instance)["bid"] == id }, // of a provider that goes by bids
		Login: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+Key },
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401}, fluffyapi.Forbidden: {Status: 403}, fluffyapi.NotFound: {Status: 404}, fluffyapi.Invalid: {Status: 422},
			fluffyapi.QuotaExceeded: {Status: 400}, fluffyapi.InUse: {Status: 400}, fluffyapi.NameTaken: {Status: 400}, fluffyapi.WrongState: {Status: 400}, fluffyapi.Internal: {Status: 500},
		},
		Error: func(status int, code, message string) any {
			switch {
			case status == http.StatusUnauthorized:
				return dict{"detail": "Invalid credentials"}
			case status == http.StatusUnprocessableEntity:
				field, msg, _ := strings.Cut(message, ": ")
				return dict{"detail": []dict{{"loc": []string{"body", field}, "msg": msg, "type": "value_error"}}}
			case code != "":
				message = code + ": " + message
			}
			return dict{"detail": message}
		},
		Refusal: func(_ *http.Request, _ string, e *fluffyapi.Error) *fakehttp.Reply {
			if e.Code != fluffyapi.Throttled {
				return nil
			}
			return &fakehttp.Reply{Status: http.StatusTooManyRequests, Header: map[string]string{"Retry-After": "1"}, Body: dict{"detail": "Too Many Requests"}}
		},
	}
	for name, k := range kinds {
		api.Types = append(api.Types, model.Type{Name: name, CPUs: k.cpus, Accelerators: map[string]float64{k.gpu: float64(k.gpus)}, Price: k.price})
	}
	f := &Fake{Fake: fakehttp.New(api)}
	// "Profile", "Projects"
	f.Route("GET", "/me", "account", nil, func(*http.Request, dict) (any, error) {
		return dict{"id": "user_fake", "email": "ann@example.com", "user_name": "ann"}, nil
	})
	f.Route("GET", "/projects", "account", nil, func(*http.Request, dict) (any, error) {
		return []dict{{"fid": Project, "name": "default", "created_at": "2025-01-01T00:00:00Z"}}, nil
	})
	// "Instance types", "Pricing"
	f.Route("GET", "/instance-types", "offers", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		each(func(name, region string) { all = append(all, hardware(name, region)) })
		return all, nil
	})
	f.Route("GET", "/instance-types/{id}", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		if name, region := typeOf(r.PathValue("id")); name != "" {
			return hardware(name, region), nil
		}
		return nil, fakehttp.Missing(r.PathValue("id"))
	})
	f.Route("GET", "/spot/availability", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		each(func(name, region string) {
			all = append(all, dict{
				"fid": "auc_" + typeID(name, region)[3:], "instance_type": typeID(name, region), "region": region, "capacity": min(f.Free(r, region, name), 64),
				"last_instance_price": dollars(kinds[name].price), "lowest_allocated_price": dollars(kinds[name].price),
			})
		})
		return all, nil
	})
	f.Route("GET", "/pricing/current", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		name, region := typeOf(r.URL.Query().Get("instance_type"))
		if name == "" {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "instance_type: unknown")
		}
		cents := int(kinds[name].price * 100)
		return dict{"spot_price_cents": cents, "reserved_price_cents": 2 * cents, "minimum_price_cents": cents, "lowest_allocated_bid_cents": cents, "available_capacity": min(f.Free(r, region, name), 64)}, nil
	})
	// "SSH Keys"
	f.Route("GET", "/ssh-keys", "keys.list", nil, func(r *http.Request, _ dict) (any, error) {
		return f.Things("keys"), project(r)
	})
	f.Route("POST", "/ssh-keys", "keys.put", fakehttp.Schema{"!project": word, "!name": word, "public_key": `null|"ssh-[^ ]+ [^ ]+.*"`, "required": `true|false`}, f.newKey)
	f.Route("DELETE", "/ssh-keys/{id}", "keys.delete", nil, func(r *http.Request, _ dict) (any, error) {
		if slices.ContainsFunc(f.Things("bids"), func(b dict) bool { return slices.Contains(specified(b, "ssh_keys"), any(r.PathValue("id"))) }) {
			return nil, fluffyapi.Errorf(fluffyapi.InUse, "SSH key is used in active bids")
		}
		return nil, f.Drop("keys", r.PathValue("id"))
	})
	// "Spot"
	f.Route("GET", "/spot/bids", "bids.list", nil, f.listBids)
	f.Route("POST", "/spot/bids", "instances.create", bidding, f.bid)
	f.Route("GET", "/spot/bids/{id}", "bids.get", nil, func(r *http.Request, _ dict) (any, error) {
		if b := f.Thing("bids", r.PathValue("id")); b != nil {
			return f.told(r, b), nil
		}
		return nil, fakehttp.Missing("Bid")
	})
	pause := func(_ *http.Request, in dict) string {
		return map[any]string{true: "instances.stop", false: "instances.start"}[in["paused"]]
	}
	f.RouteBy("PATCH", "/spot/bids/{id}", pause, fakehttp.Schema{"paused": `null|true|false`, "limit_price": `null|` + price}, f.change)
	f.Route("DELETE", "/spot/bids/{id}", "instances.terminate", nil, f.cancel)
	// "Instances"
	f.Route("GET", "/instances", "instances.list", nil, f.list)
	f.Route("GET", "/instances/{id}/status", "instances.get", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.Owner.Instance(r.Context(), r.PathValue("id"))
		if err != nil {
			return nil, err
		}
		t := f.instance(i)
		status := dict{"fid": t["fid"], "name": t["name"], "status": t["status"], "bid": t["bid"], "reservation": nil, "end_time": nil}
		if i.TakenBack != nil && t["status"] == "STATUS_PREEMPTING" {
			status["end_time"] = i.TakenBack.UTC().Format(time.RFC3339)
		}
		return status, nil
	})
	return f
}

var (
	word    = `"` + fakehttp.Char + `+"`
	price   = `"\$\d+(?:\.\d{1,2})?"`
	bidding = fakehttp.Schema{
		"!project": word, "!region": word, "!instance_type": word, "!limit_price": price, "!instance_quantity": `[1-9]\d*`, "!name": word,
		"!launch_specification": `\{(?:"image_version":(?:null|` + word + `),)?(?:"kubernetes_cluster":(?:null|` + word + `),)?"ssh_keys":` + fakehttp.List(word) + `,(?:"startup_script":(?:null|` + fakehttp.String + `),)?"volumes":` + fakehttp.List(word) + `\}`,
	}
)

func dollars(p float64) string { return fmt.Sprintf("$%.2f", p) }

func each(do func(name, region string)) {
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		for _, region := range regions {
			do(name, region)
		}
	}
}

func typeOf(id string) (name, region string) {
	each(func(n, r string) {
		if typeID(n, r) == id {
			name, region = n, r
		}
	})
	return name, region
}

func hardware(name, region string) dict {
	k := kinds[name]
	return dict{
		"fid": typeID(name, region), "name": name, "num_cpus": k.cpus, "cpu_type": "x86", "ram_gb": k.ram, "num_gpus": k.gpus, "gpu_type": k.gpu, "gpu_memory_gb": k.memory, "gpu_socket": "SXM",
		"local_storage_gb": 1000, "network_type": nil, "ib_count": 0, "bridge_count": 0,
	}
}

// project refuses what is not asked about the only one.
func project(r *http.Request) error {
	switch p := r.URL.Query().Get("project"); p {
	case "":
		return fluffyapi.Errorf(fluffyapi.Invalid, "project: Field required")
	case Project:
		return nil
	default:
		return fluffyapi.Errorf(fluffyapi.Forbidden, "User is not a member of project %s", p)
	}
}

func (f *Fake) newKey(_ *http.Request, in dict) (any, error) {
	if in["project"] != Project {
		return nil, fluffyapi.Errorf(fluffyapi.Forbidden, "User is not a member of project %v", in["project"])
	}
	in["id"] = "sshkey_" + f.NewID()
	in["fid"], in["created_at"] = in["id"], time.Now().UTC().Format(time.RFC3339)
	if in["public_key"] == nil { // then Mithril makes a pair
		in["public_key"], in["private_key"] = "ssh-rsa AAAA"+f.NewID(), "-----BEGIN RSA PRIVATE KEY-----..."
	}
	if in["required"] == nil {
		in["required"] = false
	}
	return &fakehttp.Reply{Status: http.StatusCreated, Body: f.Put("keys", in)}, nil
}

func specified(bid dict, field string) []any {
	spec, _ := bid["launch_specification"].(dict)
	return fakehttp.Items(spec[field])
}

func (f *Fake) bid(r *http.Request, in dict) (any, error) {
	name, region := typeOf(in["instance_type"].(string))
	keys := specified(in, "ssh_keys")
	for _, k := range f.Things("keys") {
		if k["required"] == true && !slices.Contains(keys, k["fid"]) {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "launch_specification: key %v is required", k["fid"])
		}
	}
	for _, k := range keys {
		if f.Thing("keys", k) == nil {
			return nil, fluffyapi.Errorf(fluffyapi.NotFound, "SSH key %v not found", k)
		}
	}
	switch {
	case in["project"] != Project:
		return nil, fluffyapi.Errorf(fluffyapi.Forbidden, "User is not a member of project %v", in["project"])
	case name == "" || region != in["region"]:
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Instance type %v not found in %v", in["instance_type"], in["region"])
	case slices.ContainsFunc(append(f.Things("bids"), f.ended...), func(b dict) bool { return b["name"] == in["name"] }): // as Mithril's own command line tells
		return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "Name already used")
	case len(keys) == 0:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "launch_specification: at least one SSH key is needed")
	case len(specified(in, "volumes")) > 0:
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Volume not found")
	}
	in["fid"], in["created_at"], in["paused"], in["all"] = "bid_"+f.NewID(), time.Now().UTC().Format(time.RFC3339Nano), false, []string{}
	in["id"] = in["fid"]
	if err := f.allocate(r, in); err != nil {
		return nil, err
	}
	return &fakehttp.Reply{Status: http.StatusCreated, Body: f.told(r, f.Put("bids", in))}, nil
}

// alive are the instances of a bid that are neither gone nor taken back.
func (f *Fake) alive(b dict) (all []model.Machine) {
	for _, id := range b["all"].([]string) {
		if m, ok := f.Machine(id); ok && m.State != fluffyapi.Terminated && m.State != fluffyapi.Terminating {
			all = append(all, m)
		}
	}
	return all
}

// allocate gives a bid that wins all of its instances, or none. One whose instances were
// taken back can win again; what broke is not made again.
func (f *Fake) allocate(r *http.Request, b dict) error {
	name, region := typeOf(b["instance_type"].(string))
	limit, _ := strconv.ParseFloat(b["limit_price"].(string)[1:], 64)
	n, alive := int(b["instance_quantity"].(float64)), f.alive(b)
	for _, id := range b["all"].([]string) {
		if m, ok := f.Machine(id); ok && m.State == fluffyapi.Terminated && !strings.HasPrefix(m.Reason, "preempted") {
			return nil
		}
	}
	switch {
	case b["deactivated_at"] != nil || b["paused"] == true || limit < kinds[name].price || len(alive) == n && !slices.ContainsFunc(alive, off):
		return nil
	case len(alive) == n: // they were paused
		if f.Free(r, region, name) < n {
			return nil
		}
		for _, m := range slices.DeleteFunc(alive, func(m model.Machine) bool { return !off(m) }) {
			if m.State == fluffyapi.Stopped {
				if _, err := f.Start(r, m.ID); err != nil {
					return err
				}
			}
		}
		return nil
	case len(alive) > 0 || f.Free(r, region, name) < n:
		return nil
	}
	for range n {
		asked := maps.Clone(b)
		asked["bid"], asked["name"] = b["fid"], fmt.Sprintf("%v-%d", b["name"], len(b["all"].([]string))+1)
		i, err := f.Create(r, region, name, asked)
		if err != nil {
			for _, m := range f.alive(b) {
				_, _ = f.Terminate(r, m.ID)
			}
			return err
		}
		b["all"] = append(b["all"].([]string), i.ID)
	}
	return nil
}

func off(m model.Machine) bool {
	return m.State == fluffyapi.Stopped || m.State == fluffyapi.Stopping
}

// told is a bid in Mithril's words, as it is after another auction.
func (f *Fake) told(r *http.Request, b dict) dict {
	_ = f.allocate(r, b)
	alive, ids, status := f.alive(b), []string{}, "Open"
	for _, m := range alive {
		if ids = append(ids, m.ID); m.TakenBack != nil {
			status = "Preempting"
		} else if status == "Open" && !off(m) {
			status = "Allocated"
		}
	}
	if b["paused"] == true {
		status = "Paused"
	}
	if b["deactivated_at"] != nil {
		status = "Terminated"
	}
	return dict{
		"fid": b["fid"], "name": b["name"], "project": b["project"], "created_by": "user_fake", "created_at": b["created_at"], "deactivated_at": b["deactivated_at"], "limit_price": b["limit_price"],
		"instance_quantity": b["instance_quantity"], "instance_type": b["instance_type"], "region": b["region"], "instances": ids, "launch_specification": b["launch_specification"], "status": status,
	}
}

// page is a part of a list: at most limit, which is 100 unless less is asked for.
func page(r *http.Request, all []dict) (any, error) {
	q, size := r.URL.Query(), 100
	if l := q.Get("limit"); l != "" {
		n, err := strconv.Atoi(l)
		if size = n; err != nil || n < 1 || n > 100 {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "limit: %s is not from 1 to 100", l)
		}
	}
	part, next := fakehttp.PageAfter(all, q.Get("next_cursor"), size)
	return dict{"data": part, "next_cursor": next}, nil
}

// fits tells whether a thing is one of those that a list is asked for.
func fits(r *http.Request, o dict, fields ...string) bool {
	for _, field := range fields {
		if want := r.URL.Query().Get(field); want != "" && o[field] != want {
			return false
		}
	}
	return true
}

func (f *Fake) listBids(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for _, b := range append(f.Things("bids"), f.ended...) {
		if t := f.told(r, b); fits(r, t, "project", "name", "instance_type", "region", "status") {
			all = append(all, t)
		}
	}
	return page(r, all)
}

// change pauses a bid or ends that, and changes its limit.
func (f *Fake) change(r *http.Request, in dict) (any, error) {
	b := f.Thing("bids", r.PathValue("id"))
	if b == nil {
		return nil, fakehttp.Missing("Bid")
	}
	if in["limit_price"] != nil {
		b["limit_price"] = in["limit_price"]
	}
	if in["paused"] != nil {
		b["paused"] = in["paused"]
	}
	for _, m := range f.alive(b) {
		if b["paused"] == true && !off(m) {
			if _, err := f.Stop(r, m.ID); err != nil {
				return nil, err
			}
		}
	}
	if err := f.allocate(r, b); err != nil {
		return nil, err
	}
	return f.told(r, b), nil
}

// cancel ends a bid and its instances at once.
func (f *Fake) cancel(r *http.Request, _ dict) (any, error) {
	b := f.Thing("bids", r.PathValue("id"))
	if b == nil {
		return nil, fakehttp.Missing("Bid")
	}
	for _, m := range f.alive(b) {
		if _, err := f.Terminate(r, m.ID); err != nil {
			return nil, err
		}
	}
	b["deactivated_at"] = time.Now().UTC().Format(time.RFC3339Nano)
	f.ended = append(f.ended, b)
	return nil, f.Drop("bids", b["id"])
}

var statuses = map[fluffyapi.State]string{
	fluffyapi.Pending: "STATUS_INITIALIZING", fluffyapi.Running: "STATUS_RUNNING", fluffyapi.Stopping: "STATUS_STOPPING", fluffyapi.Stopped: "STATUS_PAUSED", fluffyapi.Terminating: "STATUS_STOPPING",
}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	if err := project(r); err != nil {
		return nil, err
	}
	for _, b := range f.Things("bids") {
		_ = f.allocate(r, b)
	}
	instances, err := f.Instances(r)
	if err != nil {
		return nil, err
	}
	all, bids := []dict{}, r.URL.Query().Get("bid_fid_in")
	for _, i := range instances {
		t := f.instance(i)
		if fits(r, t, "instance_type", "region") && (bids == "" || slices.Contains(strings.Split(bids, ","), fmt.Sprint(t["bid"]))) {
			all = append(all, t)
		}
	}
	return page(r, all)
}

// instance is one in Mithril's words.
func (f *Fake) instance(i fluffyapi.Instance) dict {
	asked, status := fakehttp.Asked(i), statuses[i.State]
	public, private := f.Addresses(i)
	switch {
	case i.State == fluffyapi.Terminated && strings.HasPrefix(i.Reason, "preempted"):
		status = "STATUS_PREEMPTED"
	case i.State == fluffyapi.Terminated:
		status = "STATUS_TERMINATED"
	case i.State == fluffyapi.Running && i.TakenBack != nil:
		status = "STATUS_PREEMPTING"
	case i.State == fluffyapi.Pending && public != "":
		status = "STATUS_STARTING"
	case status == "":
		status = string(i.State)
	}
	t := dict{
		"fid": i.ID, "name": asked["name"], "project": Project, "created_at": i.Created.UTC().Format(time.RFC3339Nano), "created_by": "user_fake", "instance_type": asked["instance_type"],
		"region": i.Region, "bid": asked["bid"], "reservation": nil, "ssh_destination": nil, "private_ip": nil, "status": status,
	}
	if public != "" && i.State != fluffyapi.Stopped && i.State != fluffyapi.Terminated {
		if t["ssh_destination"] = public; private != "" {
			t["private_ip"] = private
		}
	}
	return t
}

// Preempt takes back all instances of a bid: of that which the instance is of.
func (f *Fake) Preempt(id string, in time.Duration) {
	for _, m := range f.Cloud.Machines() {
		if fakehttp.Asked(m.Instance)["bid"] == f.Asked(id)["bid"] && m.State == fluffyapi.Running {
			f.Fake.Preempt(m.ID, in)
		}
	}
}

// Harness is fakehttp's, of a cloud that takes back whole bids.
func (f *Fake) Harness(make func() cloud.Provider, shared ...string) cloudtest.Harness {
	h := f.Fake.Harness(make, shared...)
	h.Preempt = func(_ testing.TB, n cloud.Node, in time.Duration) { f.Preempt(n.ID, in) }
	return h
}
