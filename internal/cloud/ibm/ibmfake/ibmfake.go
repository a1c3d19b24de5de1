// Package ibmfake is the part of IBM Cloud that rents machines, as a server for tests: VPC
// infrastructure (https://REGION.iaas.cloud.ibm.com/v1), IAM's tokens, global tagging and
// global search. Its facts are from IBM's reference (cloud.ibm.com/apidocs: "Virtual Private
// Cloud API", "IAM Identity Services", "Global Tagging", "Global Search"), from IBM's SDKs
// (statuses, reasons, patterns of names) and its documentation ("Viewing instance status
// reasons": what there is no room for is made, and fails later). The codes of conflicts
// (…_in_use) and of throttling are made up in the reference's style, which lists none.
package ibmfake

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
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

// APIKey is that of the only account, and ResourceGroup its only resource group.
const APIKey, ResourceGroup = "fake-ibm-api-key-0123456789", "fee82deba12e4c0fb69c3b09d1f12345"

const account = "a/aa2432b1fa4d4ace891e9b80fc104e34"

const notUnique, missing fluffyapi.Code = "validation_unique_failed", "missing_field"

type dict = fakehttp.Dict

// Fake is all of that.
type Fake struct {
	*fakehttp.Fake
	tokens map[string]time.Time // and when they end
	tags   map[string][]string  // by CRN
	actors map[string]bool      // instances that were started after they had been off
	short  map[string]bool      // instances for whose start there was no room
}

var regions = map[string][]string{"us-south": {"us-south-1", "us-south-2"}, "eu-de": {"eu-de-1", "eu-de-2"}}

var profiles = map[string]struct {
	family            string
	cpus, memory, gpu int
	model             string
	price             float64
}{
	"bx2-4x16": {"balanced", 4, 16, 0, "", 0.19}, "gx2-8x64x1v100": {"gpu-v100", 8, 64, 1, "V100", 2.53}, "gx3-16x80x1l4": {"gpu-l4", 16, 80, 1, "L4", 1.4},
}

var images = []dict{
	{"id": "r006-ubuntu-2204-3", "name": "ibm-ubuntu-22-04-5-minimal-amd64-3", "created_at": "2025-05-01T00:00:00Z"},
	{"id": "r006-ubuntu-2204-1", "name": "ibm-ubuntu-22-04-5-minimal-amd64-1", "created_at": "2025-01-01T00:00:00Z"},
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	f := &Fake{tokens: map[string]time.Time{}, tags: map[string][]string{}, actors: map[string]bool{}, short: map[string]bool{}}
	api := fakehttp.API{
		Regions: slices.Sorted(maps.Keys(regions)), Zones: func(region string) []string { return regions[region] }, Protects: "security_groups", Linger: time.Minute, Before: f.check, Login: f.login,
		ID:    func(n uint64) string { return fmt.Sprintf("0717_%08x-dc67-4f9b-b3ba-3e1dcd8dd0a8", n) },
		Place: func(o cloud.Offer) (string, string) { return o.Zone, o.InstanceType },
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "not_authorized"}, fluffyapi.Forbidden: {Status: 403, Code: "not_authorized"}, fluffyapi.NotFound: {Status: 404, Code: "not_found"},
			fluffyapi.Invalid: {Status: 400, Code: "invalid_value"}, missing: {Status: 400, Code: "missing_field"}, notUnique: {Status: 400, Code: string(notUnique)}, fluffyapi.QuotaExceeded: {Status: 400, Code: "over_quota"},
			fluffyapi.WrongState: {Status: 409, Code: "invalid_state"}, fluffyapi.Throttled: {Status: 429, Code: "rate_limit_exceeded"}, fluffyapi.Internal: {Status: 500, Code: "internal_error"},
		},
		Error: func(status int, code, message string) any {
			field, _, found := strings.Cut(message, ": ")
			e := dict{"code": code, "message": message, "more_info": "https://cloud.ibm.com/docs/vpc?topic=vpc-rias-error-messages"}
			if found && status == 400 {
				e["target"] = dict{"name": field, "type": "field"}
			}
			return dict{"errors": []dict{e}, "trace": "ceb0f2d0-93d0-4f5e-a5d5-6d8d8a3c5a11"}
		},
		Refusal: func(r *http.Request, op string, e *fluffyapi.Error) *fakehttp.Reply {
			switch {
			case e.Code == fluffyapi.InUse:
				code := strings.TrimSuffix(strings.TrimSuffix(op, ".delete"), "s") + "_in_use"
				return &fakehttp.Reply{Status: http.StatusConflict, Body: dict{"errors": []dict{{"code": code, "message": e.Message}}, "trace": "ceb0f2d0"}}
			case e.Code == fluffyapi.QuotaExceeded:
				e.Message = "Creating a new instance will put the user over quota. Allocated: 1, Requested: 1, Quota: 1"
			case r.URL.Path == "/identity/token" && e.Code == fluffyapi.Invalid:
				return &fakehttp.Reply{Status: http.StatusBadRequest, Body: dict{"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found.", "context": dict{"requestId": "x"}}}
			}
			return nil
		},
	}
	for name, p := range profiles {
		t := model.Type{Name: name, CPUs: p.cpus, Price: p.price}
		if p.gpu > 0 {
			t.Accelerators = map[string]float64{p.model: float64(p.gpu)}
		}
		api.Types = append(api.Types, t)
	}
	f.Fake = fakehttp.New(api)
	f.account()
	f.network()
	// "Virtual Private Cloud API", "Instances"
	f.Route("GET", "/v1/instances", "instances.list", nil, func(r *http.Request, _ dict) (any, error) {
		all, err := f.instances(r)
		if err != nil {
			return nil, err
		}
		return page(r, "instances", slices.DeleteFunc(all, func(o dict) bool {
			q := r.URL.Query()
			return q.Get("name") != "" && o["name"] != q.Get("name") || q.Get("vpc.id") != "" && o["vpc"].(dict)["id"] != q.Get("vpc.id")
		}))
	})
	f.Route("GET", "/v1/instances/{id}", "instances.get", nil, func(r *http.Request, _ dict) (any, error) { return f.instance(r) })
	f.Route("POST", "/v1/instances", "instances.create", fakehttp.Schema{"!profile": named, "!zone": named, "!image": ref, "!primary_network_interface": object, "name": name, "vpc": ref, "keys": fakehttp.List(ref), "boot_volume_attachment": object, "resource_group": ref, "user_data": fakehttp.String}, f.create)
	f.Route("DELETE", "/v1/instances/{id}", "instances.terminate", nil, func(r *http.Request, _ dict) (any, error) {
		if o := f.Thing("instance", r.PathValue("id")); o != nil && o["region"] == region(r) {
			return nil, f.Drop("instance", o["id"])
		}
		if _, err := f.instance(r); err != nil {
			return nil, err
		}
		_, err := f.Terminate(r, r.PathValue("id"))
		return nil, err
	})
	act := func(_ *http.Request, in dict) string {
		return map[bool]string{true: "instances.start", false: "instances.stop"}[in["type"] == "start"]
	}
	f.RouteBy("POST", "/v1/instances/{id}/actions", act, fakehttp.Schema{"!type": `"(?:start|stop|reboot)"`, "force": `true|false`}, f.act)
	return f
}

var (
	name   = `"-?(?:[a-z]|[a-z][-a-z0-9]{0,61}[a-z0-9])"`
	word   = `"` + fakehttp.Char + `+"`
	object = `\{.*\}`
	named  = `\{(?:"href":` + word + `,)?"name":` + word + `\}`
	ref    = `\{.*"id":` + word + `.*\}`
	// version is the query parameter that every call of the VPC API has.
	version = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
)

// host is that which is asked.
func host(r *http.Request) string { return cmp.Or(r.Host, r.URL.Host) }

// region is that of the endpoint.
func region(r *http.Request) string {
	at, _, _ := strings.Cut(host(r), ".")
	return at
}

// check sends calls away that no host answers, or without the parameters that all have.
func (f *Fake) check(r *http.Request) *fakehttp.Reply {
	hosts := map[string]string{"identity": "iam.cloud.ibm.com", "tags": "tags.global-search-tagging.cloud.ibm.com", "resources": "api.global-search-tagging.cloud.ibm.com"}
	part := append(strings.Split(r.URL.Path, "/"), "", "")
	want := cmp.Or(hosts[part[1]], hosts[part[2]])
	if part[1] == "v1" {
		want = region(r) + ".iaas.cloud.ibm.com"
	}
	if host(r) != want || part[1] == "v1" && regions[region(r)] == nil {
		panic(http.ErrAbortHandler) // there is no such host
	}
	q := r.URL.Query()
	if part[1] == "v1" && (q.Get("generation") != "2" || !version.MatchString(q.Get("version"))) {
		return &fakehttp.Reply{Status: 400, Body: dict{"errors": []dict{{"code": "missing_field", "message": "version and generation are required", "target": dict{"name": "version", "type": "parameter"}}}, "trace": "ceb0f2d0"}}
	}
	return nil
}

func (f *Fake) login(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	in := r.URL.Path == "/identity/token"
	f.Locked(func() { in = in || ok && time.Now().Before(f.tokens[token]) })
	return in
}

// page is a part of a list of the VPC API ("Pagination").
func page(r *http.Request, field string, all []dict) (any, error) {
	q, limit := r.URL.Query(), 50
	if l := q.Get("limit"); l != "" {
		n, err := strconv.Atoi(l)
		if limit = n; err != nil || n < 1 || n > 100 {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "limit: %s is not from 1 to 100", l)
		}
	}
	part, next := fakehttp.PageAfter(all, q.Get("start"), limit)
	at := "https://" + host(r) + r.URL.Path
	out := dict{field: part, "limit": limit, "total_count": len(all), "first": dict{"href": at + "?limit=" + strconv.Itoa(limit)}}
	if next != nil {
		q.Set("start", fmt.Sprint(next))
		out["next"] = dict{"href": at + "?" + q.Encode()}
	}
	return out, nil
}

func crn(region, kind, id string) string {
	return fmt.Sprintf("crn:v1:bluemix:public:is:%s:%s::%s:%s", region, account, kind, id)
}

// id is that of a reference such as {"id": "…"}, or its name.
func id(v any) string {
	o, _ := v.(dict)
	s, _ := o["id"].(string)
	n, _ := o["name"].(string)
	return cmp.Or(s, n)
}

func created(body any) *fakehttp.Reply {
	return &fakehttp.Reply{Status: http.StatusCreated, Body: body}
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	card, _ := in["primary_network_interface"].(dict)
	subnet, vpc := f.find(r, "subnets", id(card["subnet"])), f.find(r, "vpcs", id(in["vpc"]))
	all, err := f.instances(r)
	if err != nil {
		return nil, err
	}
	if in["name"] == nil {
		in["name"] = "instance-" + f.NewID()[24:]
	}
	hidden := func(m model.Machine) bool { // from lists, and there
		return m.State != fluffyapi.Terminated && m.Region == region(r) && fakehttp.Asked(m.Instance)["name"] == in["name"]
	}
	switch zone := id(in["zone"]); {
	case slices.ContainsFunc(all, func(o dict) bool { return o["name"] == in["name"] }), slices.ContainsFunc(f.Cloud.Machines(), hidden):
		return nil, fluffyapi.Errorf(notUnique, "name: Provided Name (%v) is not unique", in["name"])
	case profiles[id(in["profile"])].cpus == 0:
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Profile %s not found", id(in["profile"]))
	case !slices.Contains(regions[region(r)], zone):
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "zone: there is no %s", zone)
	case !slices.ContainsFunc(images, func(o dict) bool { return o["id"] == id(in["image"]) }):
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Image %s not found", id(in["image"]))
	case subnet == nil:
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Subnet %s not found", id(card["subnet"]))
	case id(subnet["zone"]) != zone:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "primary_network_interface.subnet: it is in another zone")
	case in["vpc"] != nil && (vpc == nil || id(subnet["vpc"]) != vpc["id"]):
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "vpc: the subnet is in another one")
	}
	for _, k := range fakehttp.Items(in["keys"]) {
		if f.find(r, "keys", id(k)) == nil {
			return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Key %s not found", id(k))
		}
	}
	for _, g := range fakehttp.Items(card["security_groups"]) {
		if o := f.find(r, "security_groups", id(g)); o == nil || id(o["vpc"]) != id(subnet["vpc"]) {
			return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Security group %s not found", id(g))
		}
	}
	in["vpc"], in["region"] = subnet["vpc"], region(r)
	i, err := f.CreateIn(r, id(in["zone"]), id(in["profile"]), in)
	if e, ok := err.(*fluffyapi.Error); ok && e.Code == fluffyapi.NoCapacity { // which is found out later
		in["id"], in["made"] = "0717_"+f.NewID(), time.Now()
		f.Put("instance", in)
		return created(f.describe(in["id"].(string), in, "starting", in["made"].(time.Time), "")), nil
	}
	if err != nil {
		return nil, err
	}
	return created(f.view(i)), nil
}

var statuses = map[fluffyapi.State]string{fluffyapi.Pending: "pending", fluffyapi.Running: "running", fluffyapi.Stopping: "stopping", fluffyapi.Stopped: "stopped", fluffyapi.Terminating: "deleting"}

func (f *Fake) view(i fluffyapi.Instance) dict {
	public, private := f.Addresses(i)
	status := statuses[i.State]
	switch {
	case i.State == fluffyapi.Pending && (public != "" || f.actors[i.ID]):
		status = "starting"
	case status == "":
		status = string(i.State)
	}
	out := f.describe(i.ID, fakehttp.Asked(i), status, i.Created, private)
	if f.short[i.ID] && status == "stopped" {
		out["status_reasons"] = noRoom
	}
	return out
}

var noRoom = []dict{{"code": "cannot_start_capacity", "message": "Can't start instance because resource capacity is unavailable.", "more_info": "https://cloud.ibm.com/docs/vpc?topic=vpc-instance-status-messages"}}

func (f *Fake) describe(instance string, asked dict, status string, made time.Time, private string) dict {
	at := asked["region"].(string)
	card := dict{"id": "0717-nic-" + instance, "name": "eth0", "resource_type": "network_interface", "subnet": asked["primary_network_interface"].(dict)["subnet"], "primary_ip": dict{"address": cmp.Or(private, "0.0.0.0")}}
	reasons := []dict{}
	if status == "failed" {
		reasons = noRoom
	}
	return dict{
		"id": instance, "crn": crn(at, "instance", instance), "href": "https://" + at + ".iaas.cloud.ibm.com/v1/instances/" + instance, "name": asked["name"], "status": status, "status_reasons": reasons,
		"created_at": made.UTC().Format(time.RFC3339Nano), "zone": asked["zone"], "profile": asked["profile"], "image": asked["image"], "vpc": asked["vpc"], "resource_group": dict{"id": ResourceGroup},
		"primary_network_interface": card, "network_interfaces": []dict{card}, "resource_type": "instance", "startable": true, "lifecycle_state": "stable",
	}
}

// instances are those of the region, with those for which there was no room.
func (f *Fake) instances(r *http.Request) ([]dict, error) {
	list, err := f.Instances(r)
	all := []dict{}
	for _, i := range list {
		if i.State != fluffyapi.Terminated && i.Region == region(r) {
			all = append(all, f.view(i))
		}
	}
	for _, o := range f.Things("instance") {
		if o["region"] == region(r) {
			all = append(all, f.describe(o["id"].(string), o, "failed", o["made"].(time.Time), ""))
		}
	}
	return all, err
}

func (f *Fake) instance(r *http.Request) (dict, error) {
	if o := f.Thing("instance", r.PathValue("id")); o != nil && o["region"] == region(r) {
		return f.describe(o["id"].(string), o, "failed", o["made"].(time.Time), ""), nil
	}
	i, err := f.Owner.Instance(r.Context(), r.PathValue("id"))
	if err != nil || i.State == fluffyapi.Terminated || i.Region != region(r) {
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Instance not found")
	}
	return f.view(i), nil
}

// act switches an instance on or off; one for which there is no room stays off.
func (f *Fake) act(r *http.Request, in dict) (any, error) {
	instance := r.PathValue("id")
	o, err := f.instance(r)
	if err == nil && o["status"] == "failed" {
		err = fluffyapi.Errorf(fluffyapi.WrongState, "the instance is failed")
	}
	if err != nil {
		return nil, err
	}
	switch in["type"] {
	case "start":
		_, err = f.Start(r, instance)
		e, ok := err.(*fluffyapi.Error)
		if f.short[instance] = ok && e.Code == fluffyapi.NoCapacity; f.short[instance] {
			err = nil
		}
		f.actors[instance] = true
	case "stop":
		_, err = f.Stop(r, instance)
	}
	return created(dict{"id": f.NewID(), "type": in["type"], "status": "pending", "created_at": time.Now().UTC().Format(time.RFC3339)}), err
}

// Harness is fakehttp's, and knows of ports.
func (f *Fake) Harness(make func() cloud.Provider, shared ...string) cloudtest.Harness {
	h := f.Fake.Harness(make, shared...)
	h.OpenPorts = func(_ testing.TB, n cloud.Node) []string {
		return slices.DeleteFunc(f.Rules(n.ID), func(ports string) bool { return ports == "22" })
	}
	return h
}
