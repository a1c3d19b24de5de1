// Package azurefake is the part of Azure that sky uses, as a server for tests: Azure
// Resource Manager with resources, network, compute, identities and roles, and the
// places that hand out tokens. Its facts are from Microsoft's REST references and the
// specifications of azure-rest-api-specs; the page stands at each group of routes.
package azurefake

import (
	"crypto/rsa"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Subscription and Tenant are the only ones.
const (
	Subscription = "0b1f6471-1bf0-4dda-aec3-cb9272f09590"
	Tenant       = "72f988bf-86f1-41af-91ab-2d7cd011db47"
)

type dict = fakehttp.Dict

// Fake is the whole of Azure. As a transport it answers for all hosts that it knows;
// served at one address it tells services apart by their paths.
type Fake struct {
	*fakehttp.Fake

	// All below is used while [fakehttp.Fake.Locked].
	items        map[string]dict // resources and groups, by their ids in lower case
	vms          map[string]*vm  // by the id of the resource in lower case
	deleting     map[string]bool // ids in lower case
	operations   map[string]*operation
	serial       uint64
	took         time.Duration // by operations about other things than machines
	retryAfter   int           // seconds
	pageSize     int           // of lists; 0: no pages
	lag          int           // calls for which what is new does not exist
	young        map[string]int
	denied       map[string]bool // actions, such as "Microsoft.Compute/virtualMachines/write"
	asked        map[string]bool // that calls took
	readOnly     bool
	state        string          // of the subscription
	providers    map[string]bool // that are registered, in lower case
	spotPrice    float64         // of an hour of a spot machine
	restricted   map[string][]string
	cores        map[string]int // how many cores a region may have in all; absent: any number
	images       map[string]bool
	plans        map[string]bool // images that ask for a plan
	failing      []*failure
	atOnce       bool // a full region refuses the call itself, with SkuNotAvailable
	reserved     map[string]reservation
	assignments  map[string]dict
	newPrincipal int // calls for which principals of new identities are unknown
	tokens       fakehttp.Tokens
	key          *rsa.PublicKey // of the application
}

type reservation struct {
	vm    string
	until time.Time
}

// regions are those that there are.
var regions = []string{"eastus", "westus2", "westeurope"}

// size is one of those that machines have.
type size struct {
	family       string
	cpus, memory int
	gpu          string
	gpus         int
	generations  string
	premium      bool
}

var sizes = map[string]size{
	"Standard_D2s_v5": {"standardDSv5Family", 2, 8, "", 0, "V1,V2", true}, "Standard_D4s_v5": {"standardDSv5Family", 4, 16, "", 0, "V1,V2", true}, "Standard_D8s_v5": {"standardDSv5Family", 8, 32, "", 0, "V1,V2", true},
	"Standard_D16s_v5": {"standardDSv5Family", 16, 64, "", 0, "V1,V2", true}, "Standard_D4_v5": {"standardDv5Family", 4, 16, "", 0, "V1,V2", false}, "Standard_E4s_v5": {"standardESv5Family", 4, 32, "", 0, "V1,V2", true}, "Standard_E8s_v5": {"standardESv5Family", 8, 64, "", 0, "V1,V2", true},
	"Standard_F4s_v2": {"standardFSv2Family", 4, 8, "", 0, "V1,V2", true}, "Standard_B2s": {"standardBSFamily", 2, 4, "", 0, "V1,V2", true}, "Standard_D4ps_v5": {"standardDPSv5Family", 4, 16, "", 0, "V2", true},
	"Standard_NC6s_v3": {"standardNCSv3Family", 6, 112, "V100", 1, "V1,V2", true}, "Standard_NC24s_v3": {"standardNCSv3Family", 24, 448, "V100", 4, "V1,V2", true},
	"Standard_NC4as_T4_v3": {"Standard NCASv3_T4 Family", 4, 28, "T4", 1, "V1,V2", true}, "Standard_NC64as_T4_v3": {"Standard NCASv3_T4 Family", 64, 440, "T4", 4, "V1,V2", true},
	"Standard_NC24ads_A100_v4": {"StandardNCADSA100v4Family", 24, 220, "A100-80GB", 1, "V2", true}, "Standard_NC96ads_A100_v4": {"StandardNCADSA100v4Family", 96, 880, "A100-80GB", 4, "V2", true},
	"Standard_ND96asr_v4": {"Standard NDASv4_A100 Family", 96, 900, "A100", 8, "V2", true}, "Standard_ND96isr_H100_v5": {"standardNDSH100v5Family", 96, 1900, "H100", 8, "V2", true}, "Standard_NC40ads_H100_v5": {"StandardNCadsH100v5Family", 40, 320, "H100", 1, "V2", true},
	"Standard_NV36ads_A10_v5": {"StandardNVADSA10v5Family", 36, 440, "A10", 1, "V1,V2", true},
}

// sizeNamed finds a size whatever the case of its name.
func sizeNamed(name string) (string, size, bool) {
	for n, s := range sizes {
		if strings.EqualFold(n, name) {
			return n, s, true
		}
	}
	return "", size{}, false
}

// New returns a subscription that has nothing.
func New() *Fake {
	f := &Fake{
		items: map[string]dict{}, vms: map[string]*vm{}, deleting: map[string]bool{}, operations: map[string]*operation{}, young: map[string]int{}, denied: map[string]bool{}, asked: map[string]bool{}, providers: map[string]bool{}, restricted: map[string][]string{},
		cores: map[string]int{}, images: map[string]bool{}, plans: map[string]bool{}, reserved: map[string]reservation{}, assignments: map[string]dict{}, took: 10 * time.Millisecond, retryAfter: 1, state: "Enabled",
	}
	api := fakehttp.API{
		Regions: regions, Protects: "networksecuritygroups",
		// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
		Limits: []fakehttp.Limit{
			{Method: "GET", Path: "/subscriptions/", Every: time.Second / 25, Saved: 250}, {Method: "PUT", Path: "/subscriptions/", Every: time.Second / 10, Saved: 200},
			{Method: "DELETE", Path: "/subscriptions/", Every: time.Second / 10, Saved: 200},
		},
		ID:      func(n uint64) string { return fmt.Sprintf("5a2f0c1e-77aa-4b1e-8000-%012x", n) },
		Place:   func(o cloud.Offer) (string, string) { name, _, _ := sizeNamed(o.InstanceType); return o.Region, name },
		Is:      isMachine,
		Login:   func(r *http.Request) bool { return open(r.URL.Path) || f.tokens.Good(r) },
		Before:  before,
		Refusal: f.refusal,
	}
	for name, s := range sizes { // quotas are of cores of a family: the model counts what it calls accelerators
		api.Types = append(api.Types, model.Type{Name: name, CPUs: s.cpus, MemoryGiB: float64(s.memory), Accelerators: map[string]float64{s.family: float64(s.cpus)}, Price: float64(s.cpus) / 20})
	}
	f.Fake = fakehttp.New(api)
	for _, ns := range []string{"Microsoft.Compute", "Microsoft.Network", "Microsoft.ManagedIdentity", "Microsoft.Authorization", "Microsoft.Resources", "Microsoft.Storage"} {
		f.providers[strings.ToLower(ns)] = true
	}
	f.AddImage("Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:latest", "")
	f.AddImage("Canonical:0001-com-ubuntu-server-jammy:22_04-lts:latest", "")
	f.AddImage("Canonical:ubuntu-24_04-lts:server:latest", "")
	f.AddImage("microsoft-dsvm:ubuntu-hpc:2204:latest", "")
	f.AddImage("microsoft-dsvm:ubuntu-2004:2004-gen2:latest", "")
	f.tokenRoutes()
	for _, method := range []string{"GET", "PUT", "POST", "PATCH", "DELETE"} {
		f.Handle(method+" /{path...}", func(r *http.Request, _ dict) string { return f.operationOf(r) }, nil, func(r *http.Request, _ dict) (any, error) { return f.serve(r) })
	}
	return f
}

// isMachine reports that an id is of a machine: the resource's, its name, or the vmId.
func isMachine(m model.Machine, id string) bool {
	id = strings.ToLower(id)
	group, name, _ := strings.Cut(m.Name, "/")
	return id == name || id == m.Name || strings.HasSuffix(id, "/resourcegroups/"+group+"/providers/microsoft.compute/virtualmachines/"+name)
}

// before refuses what is sent to the wrong host.
func before(r *http.Request) *fakehttp.Reply {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	want := "management.azure.com"
	switch {
	case strings.HasPrefix(r.URL.Path, "/metadata/"):
		want = "169.254.169.254"
	case open(r.URL.Path):
		want = "login.microsoftonline.com"
	}
	if ip := net.ParseIP(host); host == want || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return &fakehttp.Reply{Status: 404, Body: fakehttp.Text("there is no " + r.URL.Path + " at " + host)}
}

// refuse is the body of the errors of Azure Resource Manager:
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors.
func refuse(status int, code, format string, args ...any) *fakehttp.Reply {
	return &fakehttp.Reply{Status: status, Body: dict{"error": dict{"code": code, "message": fmt.Sprintf(format, args...)}}}
}

// refusal is what faults, and the model, say.
func (f *Fake) refusal(r *http.Request, op string, e *fluffyapi.Error) *fakehttp.Reply {
	after := 0
	f.Locked(func() { after = f.retryAfter })
	if open(r.URL.Path) {
		switch e.Code {
		case fluffyapi.Unauthorized:
			return &fakehttp.Reply{Status: 401, Body: dict{"error": "invalid_client", "error_description": "AADSTS7000222: The provided client secret keys for app '" + Client + "' are expired."}}
		case fluffyapi.Throttled:
			return &fakehttp.Reply{Status: 429, Header: map[string]string{"Retry-After": fmt.Sprint(after)}, Body: dict{"error": "temporarily_unavailable"}}
		}
		return &fakehttp.Reply{Status: 400, Body: dict{"error": "invalid_request", "error_description": "AADSTS900144: " + e.Message}}
	}
	switch e.Code {
	case fluffyapi.Unauthorized:
		code, message := "InvalidAuthenticationToken", "The access token is invalid."
		if r.Header.Get("Authorization") == "" {
			code, message = "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing."
		}
		no := refuse(401, code, "%s", message)
		no.Header = map[string]string{"WWW-Authenticate": `Bearer authorization_uri="https://login.windows.net/` + Tenant + `", error="invalid_token", error_description="The access token is invalid."`}
		return no
	case fluffyapi.Forbidden:
		return f.forbidden(r, op, r.URL.Path)
	case fluffyapi.Throttled:
		no := refuse(429, "SubscriptionRequestsThrottled", "Number of requests for subscription '%s' actor '%s' exceeded. Please try again after '%d' seconds after additional tokens are available. Refer to https://aka.ms/arm-throttling for additional information.", Subscription, Object, after)
		no.Header = map[string]string{"Retry-After": fmt.Sprint(after), "x-ms-ratelimit-remaining-subscription-reads": "0"}
		return no
	case fluffyapi.NotFound:
		return refuse(404, "ResourceNotFound", "The Resource '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", r.URL.Path)
	case fluffyapi.InUse:
		return refuse(400, "InUseNetworkSecurityGroupCannotBeDeleted", "Network security group %s cannot be deleted because it is in use by the following resources.", r.URL.Path)
	case fluffyapi.Invalid:
		return refuse(400, "InvalidParameter", "%s", e.Message)
	case fluffyapi.WrongState:
		return refuse(409, "OperationNotAllowed", "%s", e.Message)
	case fluffyapi.Internal:
		return refuse(500, "InternalServerError", "Encountered internal server error. Diagnostic information: timestamp '20260601T000000Z'.")
	}
	return refuse(400, string(e.Code), "%s", e.Message)
}

func (f *Fake) forbidden(_ *http.Request, action, scope string) *fakehttp.Reply {
	return refuse(403, "AuthorizationFailed", "The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.", Client, Object, action, scope)
}

// AddImage makes an image: "publisher:offer:sku:version", or the id of one in a community
// gallery. plan is not "" if machines of it must name their plan.
func (f *Fake) AddImage(name, plan string) {
	f.Locked(func() {
		f.images[strings.ToLower(name)] = true
		f.plans[strings.ToLower(name)] = plan != ""
	})
}

// versions are the API versions of each type.
var versions = map[string][]string{
	"subscriptions":  {"2014-04-01", "2016-06-01", "2018-06-01", "2019-06-01", "2019-11-01", "2020-01-01", "2021-01-01", "2022-12-01"},
	"resourcegroups": {"2019-05-01", "2019-10-01", "2020-06-01", "2020-10-01", "2021-01-01", "2021-04-01", "2022-09-01", "2023-07-01", "2024-03-01", "2024-07-01", "2024-11-01", "2025-03-01", "2025-04-01"},
	"microsoft.compute/virtualmachines": {"2018-10-01", "2019-03-01", "2019-07-01", "2019-12-01", "2020-06-01", "2020-12-01", "2021-03-01", "2021-04-01", "2021-07-01", "2021-11-01", "2022-03-01", "2022-08-01", "2022-11-01", "2023-03-01", "2023-07-01", "2023-09-01",
		"2024-03-01", "2024-07-01", "2024-11-01", "2025-04-01"},
	"microsoft.compute/disks":     {"2020-12-01", "2021-04-01", "2021-08-01", "2021-12-01", "2022-03-02", "2022-07-02", "2023-01-02", "2023-04-02", "2023-10-02", "2024-03-02", "2025-01-02"},
	"microsoft.compute/snapshots": {"2021-04-01", "2021-12-01", "2022-07-02", "2023-04-02", "2023-10-02", "2024-03-02", "2025-01-02"},
	"microsoft.compute/skus":      {"2017-03-30", "2017-09-01", "2019-04-01", "2021-07-01"},
	"microsoft.network": {"2020-11-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-08-01", "2022-01-01", "2022-05-01", "2022-07-01", "2022-09-01", "2022-11-01", "2023-02-01", "2023-04-01", "2023-05-01", "2023-06-01", "2023-09-01", "2023-11-01",
		"2024-01-01", "2024-03-01", "2024-05-01", "2024-07-01", "2024-10-01", "2025-01-01"},
	"microsoft.compute/locations/communitygalleries/images": {"2021-07-01", "2022-01-03", "2022-03-03", "2022-08-03", "2023-07-03", "2024-03-03"},
	"microsoft.managedidentity":                             {"2018-11-30", "2023-01-31", "2024-11-30"},
	"microsoft.authorization":                               {"2015-07-01", "2018-07-01", "2020-10-01-preview", "2022-04-01"},
}

// checkVersion wants the query parameter that all calls need.
func checkVersion(r *http.Request, t *target) error {
	v := r.URL.Query().Get("api-version")
	if v == "" {
		return refuse(400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	kind := t.kind()
	known := versions[t.namespace+"/"+kind]
	switch {
	case t.namespace != "" && len(t.kinds) == 0: // a resource provider itself: https://learn.microsoft.com/rest/api/resources/providers/get
		known = versions["resourcegroups"]
	case t.namespace == "microsoft.compute" && kind == "locations/operations": // links have the version of the call
		known = slices.Concat(versions["microsoft.compute/virtualmachines"], versions["microsoft.compute/disks"])
	case t.namespace == "microsoft.compute" && known == nil:
		known = versions["microsoft.compute/virtualmachines"]
	case t.namespace == "microsoft.resources" || t.namespace == "" && (t.group != "" || slices.Contains([]string{"resourcegroups", "resources", "providers", "operationresults", "tagnames"}, t.top)):
		known = versions["resourcegroups"]
	case t.namespace == "":
		known = versions["subscriptions"]
	case known == nil:
		known = versions[t.namespace]
	}
	if known == nil {
		return refuse(404, "InvalidResourceNamespace", "The resource namespace '%s' is invalid.", t.namespace)
	}
	if !slices.Contains(known, v) {
		if t.namespace == "" {
			return refuse(400, "InvalidApiVersionParameter", "The api-version '%s' is invalid. The supported versions are '%s'.", v, strings.Join(known, ","))
		}
		return refuse(400, "NoRegisteredProviderFound", "No registered resource provider found for location '%s' and API version '%s' for type '%s'. The supported api-versions are '%s'. The supported locations are '%s'.", regions[0], v, kind, strings.Join(known, ", "), strings.Join(regions, ", "))
	}
	return nil
}

// sorted are the keys of a map in their order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
