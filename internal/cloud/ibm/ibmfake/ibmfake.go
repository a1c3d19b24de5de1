// Package ibmfake is the part of IBM Cloud that rents machines, as a server for tests: VPC
// infrastructure (https://REGION.iaas.cloud.ibm.com/v1), IAM's tokens, global tagging,
// global search, and the prices of the global catalog. Its facts are from IBM's reference (cloud.ibm.com/apidocs: "Virtual Private
// Cloud API", "IAM Identity Services", "Global Tagging", "Global Search", "Global Catalog"), from IBM's SDKs
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
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
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
	tokens fakehttp.Tokens
	tags   map[string][]string // by CRN
	short  map[string]bool     // instances for whose start there was no room
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
	f := &Fake{tags: map[string][]string{}, short: map[string]bool{}}
	api := fakehttp.API{
		Regions: slices.Sorted(maps.Keys(regions)), Zones: func(region string) []string { return regions[region] }, Protects: "security_groups", Linger: time.Minute, Noun: "instance", FailsLater: true, Before: f.check, Login: f.login, Opened: f.Rules,
		ID:    func(n uint64) string { return fmt.Sprintf("0717_%08x-dc67-4f9b-b3ba-3e1dcd8dd0a8", n) },
		Place: func(o cloud.Offer) (string, string) { return o.Zone, o.InstanceType },
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "not_authorized"}, fluffyapi.Forbidden: {Status: 403, Code: "not_authorized"}, fluffyapi.NotFound: {Status: 404, Code: "not_found"},
			fluffyapi.Invalid: {Status: 400, Code: "invalid_value"}, missing: {Status: 400, Code: "missing_field"}, notUnique: {Status: 400, Code: string(notUnique)}, fluffyapi.QuotaExceeded: {Status: 400, Code: "over_quota", Message: "Creating a new instance will put the user over quota. Allocated: 1, Requested: 1, Quota: 1"},
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
			case r.URL.Path == "/identity/token" && e.Code == fluffyapi.Invalid:
				return &fakehttp.Reply{Status: http.StatusBadRequest, Body: dict{"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found.", "context": dict{"requestId": "x"}}}
			}
			return nil
		},
	}
	for name, p := range profiles {
		api.Types = append(api.Types, fakehttp.Type(name, p.cpus, p.model, p.gpu, p.price))
	}
	f.Fake = fakehttp.New(api)
	f.account()
	f.catalog()
	f.network()
	// "Virtual Private Cloud API", "Instances"
	f.Route("GET", "/v1/instances", "instances.list", nil, func(r *http.Request, _ dict) (any, error) {
		all, err := f.instances(r)
		if err != nil {
			return nil, err
		}
		return page(r, "instances", fakehttp.Fitting(r.URL.Query(), all, "name", "vpc.id"))
	})
	f.Route("GET", "/v1/instances/{id}", "instances.get", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.instance(r)
		if err != nil {
			return nil, err
		}
		return f.view(i), nil
	})
	f.Route("POST", "/v1/instances", "instances.create", fakehttp.Schema{"!profile": named, "!zone": named, "!image": ref, "!primary_network_interface": fakehttp.Object, "name": name, "vpc": ref, "keys": fakehttp.List(ref), "boot_volume_attachment": fakehttp.Object, "resource_group": ref, "user_data": fakehttp.String}, f.create)
	f.Route("DELETE", "/v1/instances/{id}", "instances.terminate", nil, func(r *http.Request, _ dict) (any, error) {
		_, err := f.instance(r)
		if err == nil {
			_, err = f.Terminate(r, r.PathValue("id"))
		}
		return nil, err
	})
	f.RouteBy("POST", "/v1/instances/{id}/actions", fakehttp.By("type", actions), fakehttp.Schema{"!type": `"(?:start|stop|reboot)"`, "force": fakehttp.Bool}, f.act)
	return f
}

var actions = map[any]string{"start": "instances.start", "stop": "instances.stop", "reboot": "instances.reboot"}

var (
	name  = `"-?(?:[a-z]|[a-z][-a-z0-9]{0,61}[a-z0-9])"`
	named = `\{(?:"href":` + fakehttp.Filled + `,)?"name":` + fakehttp.Filled + `\}`
	ref   = `\{.*"id":` + fakehttp.Filled + `.*\}`
	// version is the query parameter that every call of the VPC API has.
	version = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
)

// region is that of the endpoint.
func region(r *http.Request) string {
	at, _, _ := strings.Cut(fakehttp.Host(r), ".")
	return at
}

// check sends calls away that no host answers, or without the parameters that all have.
func (f *Fake) check(r *http.Request) *fakehttp.Reply {
	hosts := map[string]string{"identity": "iam.cloud.ibm.com", "tags": "tags.global-search-tagging.cloud.ibm.com", "resources": "api.global-search-tagging.cloud.ibm.com", "api": "globalcatalog.cloud.ibm.com"}
	part := append(strings.Split(r.URL.Path, "/"), "", "")
	want := cmp.Or(hosts[part[1]], hosts[part[2]])
	if part[1] == "v1" {
		want = region(r) + ".iaas.cloud.ibm.com"
	}
	if fakehttp.Host(r) != want || part[1] == "v1" && regions[region(r)] == nil {
		panic(http.ErrAbortHandler) // there is no such host
	}
	q := r.URL.Query()
	if part[1] == "v1" && (q.Get("generation") != "2" || !version.MatchString(q.Get("version"))) {
		return &fakehttp.Reply{Status: 400, Body: dict{"errors": []dict{{"code": "missing_field", "message": "version and generation are required", "target": dict{"name": "version", "type": "parameter"}}}, "trace": "ceb0f2d0"}}
	}
	return nil
}

func (f *Fake) login(r *http.Request) bool {
	return r.URL.Path == "/identity/token" || strings.HasPrefix(r.URL.Path, "/api/v1") || f.tokens.Good(r)
}

// pages are those of the VPC API ("Pagination").
var pages = fakehttp.Pages{Token: "start", Size: "limit", Usual: 50, Most: 100, Strict: true}

func page(r *http.Request, field string, all []dict) (any, error) {
	q := r.URL.Query()
	part, err := pages.Part(q, all)
	at := "https://" + fakehttp.Host(r) + r.URL.Path
	out := dict{field: part.Items, "limit": part.Size, "total_count": part.Total, "first": dict{"href": fmt.Sprint(at, "?limit=", part.Size)}}
	if part.Next != nil {
		q.Set("start", fmt.Sprint(part.Next))
		out["next"] = dict{"href": at + "?" + q.Encode()}
	}
	return out, err
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
	in["vpc"] = subnet["vpc"]
	i, err := f.CreateIn(r, id(in["zone"]), id(in["profile"]), in)
	if err != nil {
		return nil, err
	}
	out := f.view(i)
	if i.State == fakehttp.Failed { // which is found out later
		out["status"], out["status_reasons"] = "starting", []dict{}
	}
	return created(out), nil
}

var statuses = fakehttp.States{fluffyapi.Pending: "pending", fluffyapi.Running: "running", fluffyapi.Stopping: "stopping", fluffyapi.Stopped: "stopped", fluffyapi.Terminating: "deleting"}

var noRoom = []dict{{"code": "cannot_start_capacity", "message": "Can't start instance because resource capacity is unavailable.", "more_info": "https://cloud.ibm.com/docs/vpc?topic=vpc-instance-status-messages"}}

// view is an instance in IBM's words.
func (f *Fake) view(i fluffyapi.Instance) dict {
	asked, status, reasons := fakehttp.Asked(i), statuses.Of(i.State), []dict{}
	public, private := f.Addresses(i)
	switch {
	case i.State == fluffyapi.Pending && public != "", f.Restarting(i):
		status = "starting"
	case i.State == fakehttp.Failed, i.State == fluffyapi.Stopped && f.short[i.ID]:
		reasons = noRoom
	}
	card := dict{"id": "0717-nic-" + i.ID, "name": "eth0", "resource_type": "network_interface", "subnet": asked["primary_network_interface"].(dict)["subnet"], "primary_ip": dict{"address": cmp.Or(private, "0.0.0.0")}}
	return dict{
		"id": i.ID, "crn": crn(i.Region, "instance", i.ID), "href": "https://" + i.Region + ".iaas.cloud.ibm.com/v1/instances/" + i.ID, "name": asked["name"], "status": status, "status_reasons": reasons,
		"created_at": i.Created.UTC().Format(time.RFC3339Nano), "zone": asked["zone"], "profile": asked["profile"], "image": asked["image"], "vpc": asked["vpc"], "resource_group": dict{"id": ResourceGroup},
		"primary_network_interface": card, "network_interfaces": []dict{card}, "resource_type": "instance", "startable": true, "lifecycle_state": "stable",
	}
}

// instances are those of the region.
func (f *Fake) instances(r *http.Request) ([]dict, error) {
	all, err := f.Existing(r, f.view)
	return slices.DeleteFunc(all, func(o dict) bool { return !strings.Contains(o["crn"].(string), ":"+region(r)+":") }), err
}

func (f *Fake) instance(r *http.Request) (fluffyapi.Instance, error) {
	i, err := f.InPath(r)
	if err == nil && i.Region != region(r) {
		err = fakehttp.Missing("instance " + i.ID)
	}
	return i, err
}

// act switches an instance on or off; one for which there is no room stays off.
func (f *Fake) act(r *http.Request, in dict) (any, error) {
	i, err := f.instance(r)
	if err != nil {
		return nil, err
	}
	if op := actions[in["type"]]; op != "instances.reboot" {
		_, err = f.Do(r, op, i.ID)
	}
	e, ok := err.(*fluffyapi.Error)
	if f.short[i.ID] = in["type"] == "start" && ok && e.Code == fluffyapi.NoCapacity; f.short[i.ID] {
		err = nil
	}
	return created(dict{"id": f.NewID(), "type": in["type"], "status": "pending", "created_at": time.Now().UTC().Format(time.RFC3339)}), err
}
