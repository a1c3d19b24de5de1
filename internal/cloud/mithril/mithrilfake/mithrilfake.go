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

// Fake is the whole of Mithril. Its paths begin with /v2. Its things are "keys", "bids" and,
// for lists of bids only, those that have "ended".
type Fake struct{ *fakehttp.Fake }

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
	bad := fakehttp.Word{Status: http.StatusBadRequest}
	api := fakehttp.API{
		Prefix: "/v2", Regions: regions, Records: []string{"ended"}, Linger: 10 * time.Minute, Login: fakehttp.Bearer(Key),
		ID: func(n uint64) string { return fmt.Sprintf("inst_%016x", n) },
		Is: func(m model.Machine, id string) bool { return fakehttp.Asked(m.Instance)["bid"] == id }, // of a provider that goes by bids
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: http.StatusUnauthorized, Message: "Invalid credentials"}, fluffyapi.Invalid: {Status: http.StatusUnprocessableEntity}, fluffyapi.QuotaExceeded: bad, fluffyapi.InUse: bad, fluffyapi.NameTaken: bad, fluffyapi.WrongState: bad,
			fluffyapi.Throttled: {Status: http.StatusTooManyRequests, Message: "Too Many Requests", Again: "1"},
		},
		Error: func(status int, code, message string) any {
			if status != http.StatusUnprocessableEntity {
				return dict{"detail": fakehttp.Coded(code, message)}
			}
			field, msg, _ := strings.Cut(message, ": ")
			return dict{"detail": []dict{{"loc": []string{"body", field}, "msg": msg, "type": "value_error"}}}
		},
	}
	for name, k := range kinds {
		api.Types = append(api.Types, fakehttp.Type(name, k.cpus, k.gpu, k.gpus, k.price))
	}
	f := &Fake{fakehttp.New(api)}
	// "Profile", "Projects"
	f.Route("GET", "/me", "account", nil, fakehttp.Answer(dict{"id": "user_fake", "email": "ann@example.com", "user_name": "ann"}))
	f.Route("GET", "/projects", "account", nil, fakehttp.Answer([]dict{{"fid": Project, "name": "default", "created_at": "2025-01-01T00:00:00Z"}}))
	f.offers()
	// "SSH Keys"
	f.Keep(fakehttp.Kind{
		Name: "keys", Path: "/ssh-keys", Make: fakehttp.Schema{"!project": fakehttp.Filled, "!name": fakehttp.Filled, "public_key": `null|` + fakehttp.Key, "required": fakehttp.Bool},
		All: func(r *http.Request, all []dict) (any, error) { return all, project(r.URL.Query().Get("project")) }, Complete: f.newKey, Made: created,
		Removable: func(o dict) error {
			if f.Any(func(b dict) bool { return slices.Contains(specified(b, "ssh_keys"), o["id"]) }, "bids") {
				return fluffyapi.Errorf(fluffyapi.InUse, "SSH key is used in active bids")
			}
			return nil
		},
	})
	f.bids()
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

// offers answers about what is to be had, and its prices ("Instance types", "Pricing").
func (f *Fake) offers() {
	list := func(row func(r *http.Request, name, region string) dict) fakehttp.Handler {
		return func(r *http.Request, _ dict) (any, error) {
			all := []dict{}
			each(func(name, region string) { all = append(all, row(r, name, region)) })
			return all, nil
		}
	}
	free := func(r *http.Request, name, region string) int { return min(f.Free(r, region, name), 64) }
	f.Route("GET", "/instance-types", "offers", nil, list(func(_ *http.Request, name, region string) dict { return hardware(name, region) }))
	f.Route("GET", "/instance-types/{id}", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		if name, region := typeOf(r.PathValue("id")); name != "" {
			return hardware(name, region), nil
		}
		return nil, fakehttp.Missing(r.PathValue("id"))
	})
	f.Route("GET", "/spot/availability", "offers", nil, list(func(r *http.Request, name, region string) dict {
		id, price := typeID(name, region), fmt.Sprintf("$%.2f", f.Now(kinds[name].price))
		return dict{"fid": "auc_" + id[3:], "instance_type": id, "region": region, "capacity": free(r, name, region), "last_instance_price": price, "lowest_allocated_price": price}
	}))
	f.Route("GET", "/pricing/current", "offers", nil, func(r *http.Request, _ dict) (any, error) {
		name, region := typeOf(r.URL.Query().Get("instance_type"))
		if name == "" {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "instance_type: unknown")
		}
		cents := int(f.Now(kinds[name].price) * 100)
		return dict{"spot_price_cents": cents, "reserved_price_cents": 2 * cents, "minimum_price_cents": cents, "lowest_allocated_bid_cents": cents, "available_capacity": free(r, name, region)}, nil
	})
}

// project refuses what is not about the only one.
func project(asked any) error {
	switch asked {
	case "":
		return fluffyapi.Errorf(fluffyapi.Invalid, "project: Field required")
	case Project:
		return nil
	}
	return fluffyapi.Errorf(fluffyapi.Forbidden, "User is not a member of project %v", asked)
}

func created(o dict) any { return &fakehttp.Reply{Status: http.StatusCreated, Body: o} }

func (f *Fake) newKey(_ *http.Request, in dict) error {
	in["id"] = "sshkey_" + f.NewID()
	in["fid"], in["created_at"] = in["id"], time.Now().UTC().Format(time.RFC3339)
	if in["public_key"] == nil { // then Mithril makes a pair
		in["public_key"], in["private_key"] = "ssh-rsa AAAA"+f.NewID(), "-----BEGIN RSA PRIVATE KEY-----..."
	}
	if in["required"] == nil {
		in["required"] = false
	}
	return project(in["project"])
}

// pages are those of lists.
var pages = fakehttp.Pages{Token: "next_cursor", Size: "limit", Usual: 100, Most: 100, Strict: true}

// page is the part that is asked for of the things that fit.
func page(r *http.Request, all []dict, fields ...string) (any, error) {
	part, err := pages.Part(r.URL.Query(), fakehttp.Fitting(r.URL.Query(), all, fields...))
	return dict{"data": part.Items, "next_cursor": part.Next}, err
}

var statuses = fakehttp.States{
	fluffyapi.Pending: "STATUS_INITIALIZING", fluffyapi.Running: "STATUS_RUNNING", fluffyapi.Stopping: "STATUS_STOPPING", fluffyapi.Stopped: "STATUS_PAUSED", fluffyapi.Terminating: "STATUS_STOPPING",
}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	if err := project(r.URL.Query().Get("project")); err != nil {
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
		if t := f.instance(i); bids == "" || slices.Contains(strings.Split(bids, ","), fmt.Sprint(t["bid"])) {
			all = append(all, t)
		}
	}
	return page(r, all, "instance_type", "region")
}

// instance is one in Mithril's words.
func (f *Fake) instance(i fluffyapi.Instance) dict {
	asked, status := fakehttp.Asked(i), statuses.Of(i.State)
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
