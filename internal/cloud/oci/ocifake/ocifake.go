// Package ocifake is the part of Oracle Cloud's API that rents machines, as a server for
// tests: identity, compute and network, version 20160918, each region at its own hosts.
// Its facts are from Oracle's API reference (docs.oracle.com/iaas/api, "Core Services" and
// "Identity and Access Management"; "API Errors"; "Request Signatures"), and that a lack of
// hosts is status 500 from answers that users show (MallocArray/obico-oraclecloud).
package ocifake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Tenancy and User are those of the only account; instances are in the root compartment.
const Tenancy, User = "ocid1.tenancy.oc1..aaaafake", "ocid1.user.oc1..aaaafake"

const related, missing fluffyapi.Code = "related", "missing"

type dict = fakehttp.Dict

// Fake is the whole of Oracle Cloud.
type Fake struct {
	*fakehttp.Fake
	tokens map[string]fluffyapi.Instance // what was launched, by retry token
}

// domains are the availability domains of each region.
var domains = map[string][]string{"us-phoenix-1": {"PHX-AD-1", "PHX-AD-2"}, "us-ashburn-1": {"US-ASHBURN-AD-1"}}

// zone is the model's of a domain, as the API calls it; "": the region has none of that name.
func zone(region string, domain any) string {
	name := strings.TrimPrefix(fmt.Sprint(domain), "Uocm:")
	if !slices.Contains(domains[region], name) {
		return ""
	}
	return region + "-" + name
}

func zones(region string) (all []string) {
	for _, name := range domains[region] {
		all = append(all, zone(region, name))
	}
	return all
}

var shapes = map[string]struct {
	gpu           string
	gpus          int
	ocpus, memory float64
	flexible      bool
	price         float64
}{
	"VM.Standard.E4.Flex": {"", 0, 4, 32, true, 0.148}, "VM.GPU.A10.1": {"NVIDIA A10", 1, 15, 240, false, 2}, "BM.GPU4.8": {"NVIDIA A100", 8, 64, 2048, false, 24.4},
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Prefix: "/20160918", Login: signed, Remembers: true, Regions: slices.Sorted(maps.Keys(domains)), Zones: zones,
		ID:    func(n uint64) string { return fmt.Sprintf("ocid1.instance.oc1..aaaa%08x", n) },
		Error: func(_ int, code, message string) any { return dict{"code": code, "message": message} },
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401, Code: "NotAuthenticated"}, fluffyapi.Forbidden: {Status: 403, Code: "NotAuthorized"}, fluffyapi.NotFound: {Status: 404, Code: "NotAuthorizedOrNotFound"},
			fluffyapi.Invalid: {Status: 400, Code: "InvalidParameter"}, missing: {Status: 400, Code: "MissingParameter"}, related: {Status: 400, Code: "RelatedResourceNotAuthorizedOrNotFound"},
			fluffyapi.NoCapacity: {Status: 500, Code: "InternalError", Message: "Out of host capacity."}, fluffyapi.QuotaExceeded: {Status: 400, Code: "LimitExceeded"}, fluffyapi.WrongState: {Status: 409, Code: "IncorrectState"},
			fluffyapi.TokenReused: {Status: 409, Code: "InvalidatedRetryToken"}, fluffyapi.InUse: {Status: 409, Code: "Conflict"}, fluffyapi.Throttled: {Status: 429, Code: "TooManyRequests"},
			fluffyapi.Internal: {Status: 500, Code: "InternalServerError"},
		},
		Protects: "networkSecurityGroups",
	}
	for name, s := range shapes {
		api.Types = append(api.Types, fakehttp.Type(name, int(2*s.ocpus), s.gpu, s.gpus, s.price)) // quotas are of CPUs where there are no GPUs
	}
	f := &Fake{fakehttp.New(api), map[string]fluffyapi.Instance{}}
	fixed := func(path, op string, answer func(r *http.Request) any) {
		f.Route("GET", path, op, nil, func(r *http.Request, _ dict) (any, error) { return answer(r), nil })
	}
	fixed("/users/"+User, "users.get", func(*http.Request) any {
		return dict{"id": User, "name": "ann", "compartmentId": Tenancy, "lifecycleState": "ACTIVE"}
	})
	fixed("/compartments", "compartments.list", func(*http.Request) any { return []dict{} })
	fixed("/tenancies/{id}/regionSubscriptions", "regions.list", func(*http.Request) any {
		all := []dict{}
		for region := range domains {
			all = append(all, dict{"regionKey": strings.ToUpper(region[3:6]), "regionName": region, "status": "READY", "isHomeRegion": region == "us-phoenix-1"})
		}
		return all
	})
	fixed("/availabilityDomains", "domains.list", func(r *http.Request) any {
		all := []dict{}
		for _, name := range domains[region(r)] {
			all = append(all, dict{"name": "Uocm:" + name, "compartmentId": Tenancy, "id": "ocid1.availabilitydomain.oc1.." + name[len(name)-1:]})
		}
		return all
	})
	fixed("/images", "images.list", func(r *http.Request) any {
		return []dict{{"id": "ocid1.image.oc1..ubuntu", "displayName": "Canonical-Ubuntu-22.04", "operatingSystem": "Canonical Ubuntu", "operatingSystemVersion": "22.04", "lifecycleState": "AVAILABLE"}}
	})
	for kind, parent := range map[string]string{"vcns": "", "subnets": "vcns", "internetGateways": "vcns", "routeTables": "vcns", "securityLists": "vcns", "networkSecurityGroups": "vcns"} {
		f.keep(kind, parent)
	}
	f.Route("POST", "/networkSecurityGroups/{id}/actions/addSecurityRules", "rules.put", fakehttp.Schema{"!securityRules": fakehttp.List(`\{.*\}`)}, f.addRules)
	f.Route("GET", "/networkSecurityGroups/{id}/securityRules", "rules.list", nil, func(r *http.Request, _ dict) (any, error) {
		return append([]any{}, fakehttp.Items(f.Thing("networkSecurityGroups", r.PathValue("id"))["rules"])...), nil
	})
	f.Route("POST", "/computeCapacityReports", "offers", fakehttp.Schema{"!compartmentId": fakehttp.Filled, "!availabilityDomain": fakehttp.Filled, "!shapeAvailabilities": `\[.+\]`}, f.report)
	f.Route("GET", "/instances", "instances.list", nil, f.list)
	f.Route("POST", "/instances", "instances.create", launching, f.create)
	f.Show("/instances/{id}", func(i fluffyapi.Instance) any { return f.told(i) })
	f.Turn("DELETE", "/instances/{id}", "instances.terminate", nil, func(fluffyapi.Instance) any { return nil })
	act := func(r *http.Request, _ dict) string {
		return map[bool]string{true: "instances.start", false: "instances.stop"}[r.URL.Query().Get("action") == "START"]
	}
	f.RouteBy("POST", "/instances/{id}", act, nil, f.act)
	f.Route("GET", "/vnicAttachments", "vnics.list", nil, f.attachments)
	f.Route("GET", "/vnics/{id}", "vnics.get", nil, f.vnic)
	return f
}

var (
	launching = fakehttp.Schema{
		"!availabilityDomain": fakehttp.Filled, "!compartmentId": fakehttp.Filled, "!shape": fakehttp.Filled, "displayName": `"` + fakehttp.Char + `{1,255}"`, "shapeConfig": fakehttp.Object, "createVnicDetails": fakehttp.Object, "metadata": fakehttp.Object,
		"freeformTags": `\{(?:` + fakehttp.Filled + `:` + fakehttp.String + `,?)*\}`, "preemptibleInstanceConfig": `\{.*"type":"TERMINATE".*\}`, "sourceDetails": `\{.*"sourceType":"(?:image|bootVolume)".*\}`,
	}
)

// region is that of the host which is asked; no other host exists.
func region(r *http.Request) string {
	part := strings.Split(fakehttp.Host(r), ".")
	if len(part) < 3 || domains[part[1]] == nil {
		panic(http.ErrAbortHandler)
	}
	return part[1]
}

// report reports whether there are hosts for shapes.
func (f *Fake) report(r *http.Request, in dict) (any, error) {
	out := []dict{}
	for _, one := range fakehttp.Items(in["shapeAvailabilities"]) {
		shape, status := fmt.Sprint(one.(dict)["instanceShape"]), "AVAILABLE"
		if zone := zone(region(r), in["availabilityDomain"]); shapes[shape].price == 0 || zone == "" {
			status = "HARDWARE_NOT_SUPPORTED"
		} else if f.Free(r, zone, shape) < 1 {
			status = "OUT_OF_HOST_CAPACITY"
		}
		out = append(out, dict{"instanceShape": shape, "availabilityStatus": status, "availableCount": nil})
	}
	return dict{"shapeAvailabilities": out}, nil
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	token := r.Header.Get("opc-retry-token")
	if i, ok := f.tokens[token]; ok && token != "" {
		if now, known := f.Machine(i.ID); known && now.State != fluffyapi.Terminated {
			return f.told(now.Instance), nil
		}
		return nil, fluffyapi.Errorf(fluffyapi.TokenReused, "%s", token)
	}
	shape, zone := in["shape"].(string), zone(region(r), in["availabilityDomain"])
	vnic, _ := in["createVnicDetails"].(dict)
	source, _ := in["sourceDetails"].(dict)
	switch subnet := f.Thing("subnets", vnic["subnetId"]); {
	case shapes[shape].price == 0, zone == "":
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no %s in %v", shape, in["availabilityDomain"])
	case shapes[shape].flexible && in["shapeConfig"] == nil:
		return nil, fluffyapi.Errorf(missing, "shapeConfig")
	case subnet == nil || subnet["region"] != region(r):
		return nil, fluffyapi.Errorf(related, "subnetId")
	case !strings.HasPrefix(fmt.Sprint(source["imageId"]), "ocid1.image."):
		return nil, fluffyapi.Errorf(related, "imageId")
	}
	for _, id := range fakehttp.Items(vnic["nsgIds"]) {
		if f.Thing("networkSecurityGroups", id) == nil {
			return nil, fluffyapi.Errorf(related, "nsgIds")
		}
	}
	in["name"] = in["displayName"]
	i, err := f.CreateIn(r, zone, shape, in)
	if err == nil {
		f.tokens[token] = i
	}
	return f.told(i), err
}

func (f *Fake) act(r *http.Request, _ dict) (any, error) {
	id, action := r.PathValue("id"), r.URL.Query().Get("action")
	m, ok := f.Machine(id)
	var i fluffyapi.Instance
	var err error
	switch {
	case !ok || m.State == fluffyapi.Terminated:
		return nil, fakehttp.Missing(id)
	case action == "START" && (m.State == fluffyapi.Stopped || m.State == fluffyapi.Running):
		i, err = f.Start(r, id)
	case (action == "STOP" || action == "SOFTSTOP") && (m.State == fluffyapi.Running || m.State == fluffyapi.Stopped):
		i, err = f.Stop(r, id)
	default:
		err = fluffyapi.Errorf(fluffyapi.WrongState, "%s is %s", id, m.State)
	}
	return f.told(i), err
}

func (f *Fake) told(i fluffyapi.Instance) dict {
	asked, state := fakehttp.Asked(i), strings.ToUpper(string(i.State))
	if i.State == fluffyapi.Pending {
		state = map[bool]string{true: "STARTING", false: "PROVISIONING"}[f.Restarting(i)]
	}
	out := dict{"id": i.ID, "lifecycleState": state, "region": i.Region, "timeCreated": i.Created.UTC().Format(time.RFC3339Nano), "faultDomain": "FAULT-DOMAIN-1"}
	for _, field := range []string{"availabilityDomain", "compartmentId", "displayName", "shape", "shapeConfig", "freeformTags", "metadata", "preemptibleInstanceConfig", "sourceDetails"} {
		out[field] = asked[field]
	}
	return out
}

// list tells of the instances in a region, for a while of those, too, that are terminated.
func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	instances, err := f.Instances(r)
	all, q := []dict{}, r.URL.Query()
	for _, i := range instances {
		t := f.told(i)
		if i.Region == region(r) && t["compartmentId"] == q.Get("compartmentId") && (q.Get("lifecycleState") == "" || q.Get("lifecycleState") == t["lifecycleState"]) && (q.Get("displayName") == "" || q.Get("displayName") == t["displayName"]) {
			all = append(all, t)
		}
	}
	return all, err
}

// attachments are the network cards of instances, each of which has one, once it has
// addresses.
func (f *Fake) attachments(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for _, m := range f.Cloud.Machines() {
		if public, _ := f.Addresses(m.Instance); public == "" || m.Region != region(r) || m.State == fluffyapi.Terminated || r.URL.Query().Get("instanceId") != "" && r.URL.Query().Get("instanceId") != m.ID {
			continue
		}
		all = append(all, dict{"id": "ocid1.vnicattachment." + m.ID, "instanceId": m.ID, "vnicId": "ocid1.vnic." + m.ID, "compartmentId": Tenancy, "lifecycleState": "ATTACHED", "availabilityDomain": fakehttp.Asked(m.Instance)["availabilityDomain"]})
	}
	return all, nil
}

func (f *Fake) vnic(r *http.Request, _ dict) (any, error) {
	m, ok := f.Machine(strings.TrimPrefix(r.PathValue("id"), "ocid1.vnic."))
	if !ok || m.State == fluffyapi.Terminated {
		return nil, fakehttp.Missing("the vnic")
	}
	public, private := f.Addresses(m.Instance)
	vnic, _ := fakehttp.Asked(m.Instance)["createVnicDetails"].(dict)
	return dict{"id": r.PathValue("id"), "isPrimary": true, "publicIp": public, "privateIp": private, "subnetId": vnic["subnetId"], "nsgIds": append([]any{}, fakehttp.Items(vnic["nsgIds"])...), "lifecycleState": "AVAILABLE"}, nil
}
