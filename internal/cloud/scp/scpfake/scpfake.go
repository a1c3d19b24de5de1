// Package scpfake is the part of Samsung Cloud Platform's Open API that rents machines, as a
// server for tests: https://openapi.samsungsdscloud.com. The reference (cloud.samsungsds.com/
// openapiguide) cannot be read without a browser; the facts are from clients: Skyplane's
// provider, which Samsung SDS wrote (a server has an address from EDITING on; 404 "Not found
// any cluster by requested Scale" is a lack of room; 412 and 500 pass), SkyPilot's
// (signatures, paths, fields, states, "There is an ongoing request") and the models of
// Samsung's Terraform provider (names, sizes of disks). Made up: the statuses and texts of
// other refusals, that 412 is that of an ongoing request, the default size of pages, and how
// old a signature may be. Names of servers need not be unique, as far as is known.
package scpfake

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
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

// The credentials of the only project.
const AccessKey, SecretKey, ProjectID = "fakeAccessKey0123456", "fakeSecretKey0123456789", "PROJECT-fake0123456789"

// settle is how long things take to become ready, and changes of rules to be made.
const settle = 10 * time.Millisecond

const ongoing fluffyapi.Code = "ongoing"

type dict = fakehttp.Dict

// Fake is all of that. In each region there are a VPC, a public subnet, an internet gateway
// and a firewall, and the project has a key pair.
type Fake struct{ *fakehttp.Fake }

// regions are the names of service zones, and their ids.
var regions = map[string]string{
	"KOREA-WEST-1-SCP-B001": "ZONE-FClPklmysrhRpknZ6DaI2f", "KOREA-WEST-2-SCP-B001": "ZONE-lxu6F_ntqxeIMaZZwh2I-p", "KOREA-EAST-1-SCP-B001": "ZONE-Yi4UK3uHsujPbQYqsRgo7i",
}

var types = []model.Type{
	fakehttp.Type("s1v2m4", 2, "", 0, 0.1), fakehttp.Type("s1v8m16", 8, "", 0, 0.41), fakehttp.Type("g1v8v1", 8, "V100-32GB", 1, 2.27), fakehttp.Type("g1v16a1", 16, "A100-80GB", 1, 3.74),
}

var images = []dict{
	{"imageId": "IMAGE-dW-daWg-sKnGu7v28o2bBh", "imageName": "Ubuntu 20.04", "osType": "UBUNTU", "imageState": "ACTIVE", "servicedFor": "Virtual Server"},
	{"imageId": "IMAGE-FIN-B001-2e0a6d2872970048192", "imageName": "Ubuntu 18.04 GPU", "osType": "UBUNTU", "imageState": "ACTIVE", "servicedFor": "GPU Server"},
}

// New returns a cloud that has nothing but capacity and networks.
func New() *Fake {
	bad := fakehttp.Word{Status: http.StatusBadRequest}
	f := &Fake{}
	api := fakehttp.API{
		Regions: slices.Sorted(maps.Keys(regions)), Types: types, Login: signed, Linger: time.Minute, Protects: "securitygroups", Noun: "virtual server", Opened: f.Rules,
		ID:    func(n uint64) string { return fmt.Sprintf("INSTANCE-fake%018x", n) },
		Error: func(_ int, _, message string) any { return dict{"message": message} },
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.NoCapacity: {Status: http.StatusNotFound, Message: "Not found any cluster by requested Scale"}, fluffyapi.Invalid: bad, fluffyapi.NameTaken: bad, fluffyapi.WrongState: bad, ongoing: {Status: http.StatusPreconditionFailed},
			fluffyapi.QuotaExceeded: {Status: http.StatusBadRequest, Message: "The quota of virtual servers is exceeded"}, fluffyapi.InUse: {Status: http.StatusBadRequest, Message: "The resource is in use"},
			fluffyapi.Throttled: {Status: http.StatusTooManyRequests, Message: "Too many requests", Again: "1"}, cloudtest.OddCode: {Status: http.StatusBadRequest, Message: cloudtest.OddCode}, // there are no codes
		},
	}
	f.Fake = fakehttp.New(api)
	for _, region := range api.Regions {
		vpc := f.put("vpcs", "vpc", "VPC", "fakeVpc", dict{"serviceZoneId": regions[region]})["id"]
		f.put("subnets", "subnet", "SUBNET", "fakeSubnet", dict{"vpcId": vpc, "subnetType": "PUBLIC", "subnetCidrBlock": "10.0.0.0/8"})
		f.firewall(f.put("internetgateways", "internetGateway", "INTERNET_GATEWAY", fmt.Sprint("IGW_", vpc), dict{"vpcId": vpc, "internetGatewayType": "SHARED"}))
	}
	for _, o := range slices.Concat(f.Things("vpcs"), f.Things("subnets"), f.Things("internetgateways"), f.Things("firewalls")) { // they have been there for long
		o["made"], o["changed"] = time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)
	}
	f.Put("keypairs", dict{"id": "KEY_PAIR-fake", "keyPairId": "KEY_PAIR-fake", "name": "fakeKey", "keyPairName": "fakeKey"})
	f.network()
	f.servers()
	return f
}

// signed reports whether a request has a good signature, as SkyPilot's scp_utils.py makes it.
func signed(r *http.Request) bool {
	h := r.Header
	url := cmp.Or(r.URL.Scheme, "http") + "://" + fakehttp.Host(r) + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		url += "?" + r.URL.RawQuery
	}
	at, err := strconv.ParseInt(h.Get("X-Cmp-Timestamp"), 10, 64)
	mac := hmac.New(sha256.New, []byte(SecretKey))
	mac.Write([]byte(r.Method + url + h.Get("X-Cmp-Timestamp") + AccessKey + ProjectID + "OpenApi"))
	return err == nil && time.Since(time.UnixMilli(at)).Abs() < 15*time.Minute && h.Get("X-Cmp-Signature") == base64.StdEncoding.EncodeToString(mac.Sum(nil)) &&
		h.Get("X-Cmp-AccessKey") == AccessKey && h.Get("X-Cmp-ProjectId") == ProjectID && h.Get("X-Cmp-ClientType") == "OpenApi"
}

// page is the part that is asked for of the things that fit. Some filters are plural, such
// as subnetTypes.
func page(r *http.Request, all []dict) (any, error) {
	q, known := r.URL.Query(), []string{}
	if len(all) > 0 {
		for name := range q {
			field := strings.TrimSuffix(name, "s")
			if _, ok := all[0][name]; ok {
				field = name
			}
			if _, ok := all[0][field]; ok {
				q[field], known = q[name], append(known, field)
			}
		}
	}
	part, err := fakehttp.Pages{Number: "page", Size: "size", Usual: 20, Strict: true}.Part(q, fakehttp.Fitting(q, all, known...))
	return dict{"contents": part.Items, "totalCount": part.Total, "page": part.From / max(part.Size, 1), "size": part.Size}, err
}

// accepted answers a call whose effect comes later ("AsyncResponse").
func accepted(id any) *fakehttp.Reply {
	return &fakehttp.Reply{Status: http.StatusAccepted, Body: dict{"resourceId": id, "requestId": "REQUEST-fake", "projectId": ProjectID}}
}

// flag is a truth, which some clients write as text.
const flag = `(?:"?(?:true|false)"?)`

// servers answers about virtual servers, images, key pairs and the project (SkyPilot,
// scp_utils.py and provision/scp; Skyplane, scp_cloud_provider.py; Terraform's virtualserver).
func (f *Fake) servers() {
	f.Route("GET", "/project/v3/projects/{project}/zones", "zones", nil, func(r *http.Request, _ dict) (any, error) {
		if r.PathValue("project") != ProjectID {
			return nil, fakehttp.Missing("project " + r.PathValue("project"))
		}
		all := []dict{}
		for _, name := range slices.Sorted(maps.Keys(regions)) {
			all = append(all, dict{"serviceZoneId": regions[name], "serviceZoneName": name, "serviceZoneLocation": name})
		}
		return page(r, all)
	})
	f.Route("GET", "/image/v2/standard-images", "images", nil, func(r *http.Request, _ dict) (any, error) {
		if r.URL.Query().Get("serviceZoneId") == "" {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "serviceZoneId is required")
		}
		return page(r, images)
	})
	f.Keep(fakehttp.Kind{Name: "keypairs", Path: "/key-pair/v1/key-pairs", NoGet: true, All: page})
	const v2 = "/virtual-server/v2/virtual-servers"
	f.Route("GET", v2, "instances.list", nil, func(r *http.Request, _ dict) (any, error) {
		all, err := f.Existing(r, f.describe)
		if err != nil {
			return nil, err
		}
		return page(r, all)
	})
	f.Show("/virtual-server/v3/virtual-servers/{id}", func(i fluffyapi.Instance) any { return f.describe(i) })
	f.Route("GET", v2+"/{id}/nics", "instances.get", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.InPath(r)
		if err != nil {
			return nil, err
		}
		nic := fakehttp.Asked(i)["nic"].(dict)
		card := dict{"nicId": "NIC-" + i.ID, "subnetId": nic["subnetId"], "subnetType": "PUBLIC"}
		public, private := f.Addresses(i)
		if private != "" && public != "" {
			card["ip"] = private
			if fmt.Sprint(nic["natEnabled"]) == "true" {
				card["natIp"] = public
			}
		}
		return page(r, []dict{card})
	})
	f.Route("POST", "/virtual-server/v4/virtual-servers", "instances.create", fakehttp.Schema{
		"!virtualServerName": `"[a-z][a-zA-Z0-9-]{2,27}"`, "!serviceZoneId": fakehttp.Filled, "!serverType": fakehttp.Filled, "!imageId": fakehttp.Filled, "contractId": fakehttp.Filled, "deletionProtectionEnabled": flag, "keyPairId": fakehttp.Filled, "osAdmin": fakehttp.Object,
		"!blockStorage": `\{"blockStorageName":"[a-zA-Z][a-zA-Z0-9 -]{2,27}",.*"diskSize":[1-9]\d+0[,}].*`, "!nic": `\{.*"natEnabled":` + flag + `.*"subnetId":` + fakehttp.Filled + `.*\}`, "!securityGroupIds": `\[` + fakehttp.Filled + `(?:,` + fakehttp.Filled + `)*\]`,
		"initialScript": `\{"encodingType":"(?:plain|base64)","initialScriptContent":` + fakehttp.String + `,"initialScriptShell":"(?:bash|pwsh)","initialScriptType":"text"\}`,
		"tags":          fakehttp.List(`\{"tagKey":` + fakehttp.Filled + `,"tagValue":` + fakehttp.String + `\}`),
	}, f.create)
	f.Route("DELETE", v2+"/{id}", "instances.terminate", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.InPath(r)
		if err == nil && fmt.Sprint(fakehttp.Asked(i)["deletionProtectionEnabled"]) == "true" {
			err = fluffyapi.Errorf(fluffyapi.Invalid, "the virtual server is protected from deletion")
		}
		if err == nil {
			_, err = f.Terminate(r, i.ID)
		}
		return accepted(i.ID), err
	})
	ordered := func(i fluffyapi.Instance) any { return accepted(i.ID) }
	f.Turn("POST", v2+"/{id}/start", "instances.start", fakehttp.Schema{}, ordered)
	f.Turn("POST", v2+"/{id}/stop", "instances.stop", fakehttp.Schema{}, ordered)
	f.Route("GET", "/tag/v2/resources/{id}/tags", "tags.list", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.InPath(r)
		if err != nil {
			return nil, err
		}
		all := []dict{}
		for _, t := range fakehttp.Items(fakehttp.Asked(i)["tags"]) {
			all = append(all, t.(dict))
		}
		return page(r, all)
	})
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	names := slices.Sorted(maps.Keys(regions))
	n := slices.IndexFunc(names, func(name string) bool { return regions[name] == in["serviceZoneId"] })
	nic, subnet, disk := in["nic"].(dict), dict(nil), in["blockStorage"].(dict)
	if subnet = f.Thing("subnets", nic["subnetId"]); subnet == nil {
		return nil, fakehttp.Missing("subnet " + nic["subnetId"].(string))
	}
	script, _ := in["initialScript"].(dict)
	switch {
	case n < 0:
		return nil, fakehttp.Missing(fmt.Sprint("service zone ", in["serviceZoneId"]))
	case !slices.ContainsFunc(types, func(t model.Type) bool { return t.Name == in["serverType"] }):
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no server type %v", in["serverType"])
	case !slices.ContainsFunc(images, func(o dict) bool { return o["imageId"] == in["imageId"] }):
		return nil, fakehttp.Missing(fmt.Sprint("image ", in["imageId"]))
	case f.Thing("vpcs", subnet["vpcId"])["serviceZoneId"] != in["serviceZoneId"]:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "the subnet is in another service zone")
	case in["keyPairId"] == nil && in["osAdmin"] == nil:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "keyPairId or osAdmin is required")
	case in["keyPairId"] != nil && f.Thing("keypairs", in["keyPairId"]) == nil:
		return nil, fakehttp.Missing(fmt.Sprint("key pair ", in["keyPairId"]))
	case disk["diskSize"].(float64) < 100:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "diskSize is less than 100")
	case script["encodingType"] == "base64":
		text := strings.ReplaceAll(script["initialScriptContent"].(string), "\n", "")
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "initialScriptContent is not base64")
		}
	}
	for _, id := range fakehttp.Items(in["securityGroupIds"]) {
		if o := f.Thing("securitygroups", id); o == nil {
			return nil, fakehttp.Missing(fmt.Sprint("security group ", id))
		} else if o["vpcId"] != subnet["vpcId"] {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "the security group %v is of another VPC", id)
		} else if err := busy(o); err != nil {
			return nil, err
		}
	}
	in["name"], in["vpcId"] = in["virtualServerName"], subnet["vpcId"]
	i, err := f.Create(r, names[n], in["serverType"].(string), in)
	return accepted(i.ID), err
}

var states = fakehttp.States{fluffyapi.Running: "RUNNING", fluffyapi.Stopping: "STOPPING", fluffyapi.Stopped: "STOPPED", fluffyapi.Terminating: "TERMINATING"}

// describe is a virtual server in Samsung's words; its public address is that of its NIC.
func (f *Fake) describe(i fluffyapi.Instance) dict {
	asked := fakehttp.Asked(i)
	public, private := f.Addresses(i)
	state := states.Of(i.State)
	switch {
	case f.Restarting(i):
		state = "STARTING"
	case i.State == fluffyapi.Pending && public != "":
		state = "EDITING"
	case i.State == fluffyapi.Pending:
		state = "CREATING"
	}
	groups := []dict{}
	for _, id := range fakehttp.Items(asked["securityGroupIds"]) {
		groups = append(groups, dict{"securityGroupId": id})
	}
	out := dict{
		"virtualServerId": i.ID, "virtualServerName": asked["virtualServerName"], "virtualServerState": state, "projectId": ProjectID, "serviceZoneId": asked["serviceZoneId"], "serverType": i.Type, "imageId": asked["imageId"],
		"vpcId": asked["vpcId"], "securityGroupIds": groups, "keyPairId": asked["keyPairId"], "contract": "None", "deletionProtectionEnabled": false, "createdDt": i.Created.UTC().Format(time.RFC3339), "createdBy": "fake",
	}
	if public != "" && private != "" {
		out["ip"] = private
	}
	return out
}

// Body is what a server was made with, its first script as text.
func (f *Fake) Body(server string) dict {
	asked := f.Asked(server)
	script, _ := asked["initialScript"].(dict)
	content, _ := script["initialScriptContent"].(string)
	if text, err := base64.StdEncoding.DecodeString(content); err == nil {
		asked["initialScript"] = string(text)
	}
	return asked
}

// Harness is fakehttp's, and knows of the firewalls' rules. Every server has a private
// address.
func (f *Fake) Harness(make func() cloud.Provider, shared ...string) cloudtest.Harness {
	h := f.Fake.Harness(make, shared...)
	h.Bare = nil
	inventory := h.Inventory
	h.Inventory = func(t testing.TB) []string { return append(inventory(t), f.firewallRules()...) }
	return h
}
