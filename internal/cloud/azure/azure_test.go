package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/azureauth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// recorded answers calls with what Azure's reference shows: "METHOD path" to "status body",
// without the query; several calls of one in turn, the last one for good.
type recorded struct {
	answers map[string][]string
	calls   []string // with queries
	bodies  map[string]map[string]any
	headers map[string]http.Header
}

func (r *recorded) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Host == "login.microsoftonline.com" {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"access_token":"T","expires_in":3600}`))}, nil
	}
	if q.Header.Get("Authorization") != "Bearer T" || q.URL.Host != "management.azure.com" || q.URL.Query().Get("api-version") == "" {
		return nil, fmt.Errorf("a call that is not Azure's: %s", q.URL)
	}
	key := q.Method + " " + q.URL.Path
	r.calls = append(r.calls, q.Method+" "+q.URL.RequestURI())
	if q.Body != nil {
		text, _ := io.ReadAll(q.Body)
		body := map[string]any{}
		_ = json.Unmarshal(text, &body)
		if r.bodies == nil {
			r.bodies = map[string]map[string]any{}
		}
		r.bodies[key] = body
	}
	all := r.answers[key]
	if len(all) == 0 {
		all = []string{`404 {"error":{"code":"ResourceNotFound","message":"` + key + `"}}`}
	}
	if len(all) > 1 {
		r.answers[key] = all[1:]
	}
	var status int
	fmt.Sscan(all[0], &status)
	_, body, _ := strings.Cut(all[0], " ")
	header := r.headers[key]
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
}

const sub = "/subscriptions/s1"

// over is a provider over recorded answers, and its account.
func over(t *testing.T, r *recorded, settings map[string]any) (driver, *account) {
	t.Helper()
	env := map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "app", "AZURE_CLIENT_SECRET": "x", "AZURE_SUBSCRIPTION_ID": "s1"}
	p := New(Options{
		Tuning: vm.Tuning{Transport: r, Paces: []rest.Pace{}, Busy: -1}, Settings: func() map[string]any { return settings },
		Auth: azureauth.Options{Home: t.TempDir(), Getenv: func(name string) string { return env[name] }, OnAzure: func() bool { return false }},
		Image: func(_ context.Context, tag, region string) (string, bool) {
			id, ok := map[string]string{"skypilot:custom-gpu-ubuntu-v2": "/CommunityGalleries/gal/Images/gpu", "skypilot:mine": "pub:off:sku:latest"}[tag]
			return id, ok
		},
	})
	a, err := p.account(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return driver{p, refusals}, a
}

const skuList = `200 {"value":[
	{"resourceType":"disks","name":"Standard_D4s_v5"},
	{"resourceType":"virtualMachines","name":"Standard_D4s_v5","family":"standardDSv5Family","capabilities":[{"name":"vCPUs","value":"4"},{"name":"HyperVGenerations","value":"V1,V2"},{"name":"CpuArchitectureType","value":"x64"}],"restrictions":[]},
	{"resourceType":"virtualMachines","name":"Standard_NC6","family":"standardNCFamily","capabilities":[{"name":"vCPUs","value":"6"},{"name":"HyperVGenerations","value":"V1"},{"name":"LowPriorityCapable","value":"False"}],"restrictions":[]},
	{"resourceType":"virtualMachines","name":"Standard_D2ps_v5","family":"f","capabilities":[{"name":"vCPUs","value":"2"},{"name":"CpuArchitectureType","value":"Arm64"}],"restrictions":[]},
	{"resourceType":"virtualMachines","name":"Standard_ND96","family":"g","capabilities":[{"name":"vCPUs","value":"96"}],"restrictions":[{"type":"Zone","values":["eastus"],"reasonCode":"x"},{"type":"Location","values":["eastus"],"reasonCode":"NotAvailableForSubscription"}]}]}`

const usageList = `200 {"value":[{"unit":"Count","currentValue":90,"limit":100,"name":{"value":"cores","localizedValue":"Total Regional vCPUs"}},
	{"unit":"Count","currentValue":0,"limit":8,"name":{"value":"standardDSv5Family"}},{"unit":"Count","currentValue":0,"limit":4,"name":{"value":"lowPriorityCores"}}]}`

func TestWhatCannotFitIsNotAskedFor(t *testing.T) {
	offer := func(size string, spot bool) cloud.Offer {
		return cloud.Offer{Place: east, InstanceType: size, Spot: spot}
	}
	for _, tt := range []struct {
		name  string
		offer cloud.Offer
		nodes int
		want  string
	}{
		{"it fits", offer("standard_d4s_V5", false), 2, "other"},
		{"more than the family may have", offer("Standard_D4s_v5", false), 3, "quota azure/eastus"},
		{"more than the region may have", offer("Standard_NC6", false), 2, "quota azure/eastus"},
		{"spot has a quota of its own", offer("Standard_D4s_v5", true), 1, "other"},
		{"and no more", offer("Standard_D4s_v5", true), 2, "quota azure/eastus"},
		{"closed to the subscription", offer("Standard_ND96", false), 1, "capacity azure/eastus"},
		{"no spot of it", offer("Standard_NC6", true), 1, "invalid azure/eastus"},
		{"no such size", offer("Standard_X", false), 1, "invalid azure/eastus"},
	} {
		r := &recorded{answers: map[string][]string{"GET " + sub + "/providers/Microsoft.Compute/skus": {skuList}, "GET " + sub + "/providers/Microsoft.Compute/locations/eastus/usages": {usageList}}}
		d, a := over(t, r, nil)
		err := d.room(t.Context(), a, tt.offer, tt.nodes)
		if got := describe(err); got != tt.want || (err == nil) != (tt.want == "other") {
			t.Errorf("%s: %v", tt.name, err)
		}
		got, err := d.Available(t.Context(), tt.offer, tt.nodes)
		if none := got.Verdict == cloud.AvailableNone; none != (strings.HasPrefix(tt.want, "quota") || strings.HasPrefix(tt.want, "capacity")) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
		if n := len(slices.DeleteFunc(slices.Clone(r.calls), func(c string) bool { return !strings.Contains(c, "/skus?") })); n != 1 {
			t.Errorf("%s: the long list was read %d times", tt.name, n)
		}
	}
	// A quota that is not told proves nothing, and credentials that are refused do.
	r := &recorded{answers: map[string][]string{"GET " + sub + "/providers/Microsoft.Compute/skus": {skuList}, "GET " + sub + "/providers/Microsoft.Compute/locations/eastus/usages": {`403 {"error":{"code":"AuthorizationFailed","message":"no"}}`}}}
	d, a := over(t, r, nil)
	if err := d.room(t.Context(), a, offer("Standard_D4s_v5", false), 99); err != nil {
		t.Error(err)
	}
	r.answers["GET "+sub+"/providers/Microsoft.Compute/locations/eastus/usages"] = []string{`401 {"error":{"code":"ExpiredAuthenticationToken","message":"old"}}`}
	if got := describe(d.room(t.Context(), a, offer("Standard_D4s_v5", false), 1)); !strings.HasPrefix(got, "auth") {
		t.Error(got)
	}
}

func TestImages(t *testing.T) {
	gallery := sub + "/providers/Microsoft.Compute/locations/eastus/communityGalleries/gal/images/gpu"
	versions := sub + "/providers/Microsoft.Compute/locations/eastus/publishers/pub/artifacttypes/vmimage/offers/off/skus/sku/versions"
	own := sub + "/resourceGroups/g/providers/Microsoft.Compute/galleries/mine/images/base"
	for _, tt := range []struct {
		name, id, size, gpu, region string
		answers                     map[string][]string
		want                        string // the reference, plan and trust; "!": an error of that kind
	}{
		{name: "plain", size: "Standard_D4s_v5", want: "map[offer:ubuntu-24_04-lts publisher:Canonical sku:server version:latest] map[] false"},
		{name: "the first generation", size: "Standard_NC6", want: "map[offer:ubuntu-24_04-lts publisher:Canonical sku:server-gen1 version:latest] map[] false"},
		{name: "ARM", size: "Standard_D2ps_v5", want: "map[offer:ubuntu-24_04-lts publisher:Canonical sku:server-arm64 version:latest] map[] false"},
		{name: "of a tag", size: "Standard_D4s_v5", gpu: "T4", answers: map[string][]string{"GET " + gallery: {`200 {"properties":{"features":[{"name":"SecurityType","value":"TrustedLaunch"}]}}`}},
			want: "map[communityGalleryImageId:/CommunityGalleries/gal/Images/gpu] map[] true"},
		{name: "of a tag whose image is gone", size: "Standard_D4s_v5", gpu: "T4", want: "map[offer:ubuntu-hpc publisher:microsoft-dsvm sku:2204 version:latest] map[] false"},
		{name: "of a tag elsewhere", size: "Standard_D4s_v5", gpu: "T4", region: "norwayeast", want: "map[offer:ubuntu-hpc publisher:microsoft-dsvm sku:2204 version:latest] map[] false"},
		{name: "of Volta", size: "Standard_D4s_v5", gpu: "V100-32GB", want: "map[offer:ubuntu-hpc publisher:microsoft-dsvm sku:2204-v100 version:latest] map[] false"},
		{name: "of AMD", size: "Standard_D4s_v5", gpu: "MI300X", want: "map[offer:ubuntu-hpc publisher:microsoft-dsvm sku:2204-rocm version:latest] map[] false"},
		{name: "parts of an A10", size: "Standard_D4s_v5", gpu: "A10", want: "!invalid azure/eastus"},
		{name: "an old GPU", size: "Standard_D4s_v5", gpu: "M60", want: "!invalid azure/eastus"},
		{name: "an old GPU of the first generation", size: "Standard_NC6", gpu: "V100", want: "!invalid azure/eastus"},
		{name: "of the marketplace", id: "pub:off:sku:1.2.3", size: "Standard_D4s_v5", answers: map[string][]string{"GET " + versions + "/1.2.3": {`200 {"properties":{"plan":{"publisher":"pub","name":"sku","product":"off"},"features":[{"name":"SecurityType","value":"TrustedLaunchSupported"}]}}`}},
			want: "map[offer:off publisher:pub sku:sku version:1.2.3] map[name:sku product:off publisher:pub] false"},
		{name: "the newest, by a tag", id: "skypilot:mine", size: "Standard_D4s_v5", answers: map[string][]string{"GET " + versions: {`200 [{"name":"2.0.0"}]`}, "GET " + versions + "/2.0.0": {`200 {"properties":{}}`}},
			want: "map[offer:off publisher:pub sku:sku version:latest] map[] false"},
		{name: "one's own", id: own + "/versions/1.0.0", size: "Standard_D4s_v5", answers: map[string][]string{"GET " + own: {`200 {"properties":{"purchasePlan":{"name":"n","publisher":"p","product":"o"}}}`}},
			want: "map[id:" + own + "/versions/1.0.0] map[name:n product:o publisher:p] false"},
		{name: "gone", id: own, size: "Standard_D4s_v5", want: "!invalid azure/eastus"},
		{name: "no image", id: "ami-1", size: "Standard_D4s_v5", want: "!invalid azure"},
		{name: "no such tag", id: "skypilot:other", size: "Standard_D4s_v5", want: "!invalid azure/eastus"},
	} {
		r := &recorded{answers: map[string][]string{"GET " + sub + "/providers/Microsoft.Compute/skus": {skuList}}}
		for k, v := range tt.answers {
			r.answers[k] = v
		}
		d, a := over(t, r, nil)
		o := cloud.Offer{Place: east, InstanceType: tt.size}
		if tt.region != "" {
			o.Region = tt.region
		}
		if tt.gpu != "" {
			o.Accelerators = map[string]float64{tt.gpu: 1}
		}
		got, err := d.image(t.Context(), a, cloud.LaunchSpec{Offer: o, ImageID: tt.id})
		said := fmt.Sprint(got.reference, got.plan, got.trusted)
		if err != nil {
			said = "!" + describe(d.Refused(t.Context(), o.Place, err))
		}
		if said != tt.want {
			t.Errorf("%s: %s (%v), want %s", tt.name, said, err, tt.want)
		}
	}
}

func TestOperationsAreWaitedFor(t *testing.T) {
	const vmPath, status, location = sub + "/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m", sub + "/providers/Microsoft.Compute/locations/eastus/operations/1", sub + "/operationresults/2"
	async := http.Header{"Azure-Asyncoperation": {"https://management.azure.com" + status + "?api-version=2024-11-01"}, "Retry-After": {"7"}}
	for _, tt := range []struct {
		name    string
		answers map[string][]string
		header  http.Header
		want    string
		took    time.Duration
	}{
		{"done at once", map[string][]string{"PUT " + vmPath: {`200 {}`}}, nil, "", 0},
		{"made, and done", map[string][]string{"PUT " + vmPath: {`201 {"properties":{"provisioningState":"Succeeded"}}`}}, nil, "", 0},
		{"by its status", map[string][]string{"PUT " + vmPath: {`201 {}`}, "GET " + status: {`200 {"status":"InProgress"}`, `200 {"status":"Succeeded"}`}}, async, "", 9 * time.Second},
		{"it failed", map[string][]string{"PUT " + vmPath: {`201 {}`}, "GET " + status: {`200 {"status":"Failed","error":{"code":"AllocationFailed","message":"Allocation failed."}}`}}, async, "AllocationFailed: Allocation failed", 7 * time.Second},
		{"it was cancelled", map[string][]string{"PUT " + vmPath: {`201 {}`}, "GET " + status: {`200 {"status":"Canceled"}`}}, async, "the operation ended as Canceled", 7 * time.Second},
		{"by a location", map[string][]string{"PUT " + vmPath: {`202 `}, "GET " + location: {`202 `, `200 {}`}}, http.Header{"Location": {"https://management.azure.com" + location + "?api-version=1"}}, "", 3 * time.Second},
		{"by the resource", map[string][]string{"PUT " + vmPath: {`201 {"properties":{"provisioningState":"Updating"}}`}, "GET " + vmPath: {`200 {"properties":{"provisioningState":"Updating"}}`, `200 {"properties":{"provisioningState":"Succeeded"}}`}}, nil, "", 3 * time.Second},
		{"a resource that failed", map[string][]string{"PUT " + vmPath: {`201 {"properties":{"provisioningState":"Updating"}}`}, "GET " + vmPath: {`200 {"properties":{"provisioningState":"Failed"}}`}}, nil, vmPath + " failed, and Azure does not say why", time.Second},
		{"somebody else's address", map[string][]string{"PUT " + vmPath: {`201 {}`}}, http.Header{"Azure-Asyncoperation": {"https://evil.example.com/x"}}, `no answer from Azure: it refers to "https://evil.example.com/x", which is not at management.azure.com`, time.Second},
		{"busy for a while", map[string][]string{"PUT " + vmPath: {`409 {"error":{"code":"AnotherOperationInProgress","message":"m"}}`, `429 {"error":{"code":"RetryableErrorDueToAnotherOperation","message":"m"}}`, `200 {}`}}, nil, "", 3 * time.Second},
		{"a refusal", map[string][]string{"PUT " + vmPath: {`409 {"error":{"code":"SkuNotAvailable","message":"m"}}`}}, nil, "SkuNotAvailable: m", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorded{answers: tt.answers, headers: map[string]http.Header{"PUT " + vmPath: tt.header}}
				_, a := over(t, r, nil)
				began := time.Now()
				err := a.put(t.Context(), vmPath, apiCompute, map[string]any{})
				got := ""
				if err != nil {
					got = err.Error()
				}
				if took := time.Since(began); got != tt.want || took != tt.took {
					t.Errorf("%q after %v, want %q after %v", got, took, tt.want, tt.took)
				}
			})
		})
	}
}

func TestPagesAreFollowedOnTheSameServerOnly(t *testing.T) {
	r := &recorded{answers: map[string][]string{
		"GET /subscriptions": {`200 {"value":[{"subscriptionId":"a"}],"nextLink":"https://management.azure.com/subscriptions?api-version=2022-12-01&$skiptoken=2"}`, `200 {"value":[{"subscriptionId":"b"}]}`},
	}}
	_, a := over(t, r, nil)
	got, err := list[subscription](t.Context(), a, "/subscriptions", apiSubscriptions)
	if err != nil || len(got) != 2 || !strings.Contains(r.calls[1], "skiptoken=2") {
		t.Errorf("%v, %v, %v", got, err, r.calls)
	}
	r.answers["GET /subscriptions"] = []string{`200 {"value":[],"nextLink":"https://evil.example.com/subscriptions"}`}
	if _, err := list[subscription](t.Context(), a, "/subscriptions", apiSubscriptions); err == nil || !strings.Contains(err.Error(), "evil.example.com") {
		t.Error(err)
	}
}

func TestCheckNamesTheAccountAndItsSubscription(t *testing.T) {
	for state, want := range map[string]string{"Enabled": "app [subscription_id=s1]", "Warned": "app [subscription_id=s1]", "Disabled": "!the subscription Pay (s1) is disabled", "Deleted": "!the subscription Pay (s1) is deleted"} {
		r := &recorded{answers: map[string][]string{"GET " + sub: {`200 {"subscriptionId":"s1","displayName":"Pay","state":"` + state + `"}`}}}
		d, _ := over(t, r, nil)
		who, err := d.Check(t.Context())
		var auth *cloud.AuthError
		switch {
		case !strings.HasPrefix(want, "!"):
			if err != nil || who[0] != want {
				t.Errorf("%s: %v, %v", state, who, err)
			}
		case !errors.As(err, &auth) || auth.Err.Error() != want[1:] || auth.Fix != fixSubscription:
			t.Errorf("%s: %v", state, err)
		}
	}
	p := New(Options{Auth: azureauth.Options{Home: t.TempDir(), Getenv: func(string) string { return "" }, OnAzure: func() bool { return false }}})
	var auth *cloud.AuthError
	if _, err := p.Check(t.Context()); !errors.As(err, &auth) || auth.Fix != azureauth.Fix || p.CredentialStamp() != "" {
		t.Errorf("without credentials: %v", err)
	}
}

// away are the hosts that calls go to, none of which knows anything.
type away map[string]bool

func (a away) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Host == "login.microsoftonline.com" {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"access_token":"T","expires_in":3600}`))}, nil
	}
	a[q.URL.Scheme+"://"+q.URL.Host+"/"+strings.Split(q.URL.Path, "/")[1]] = true
	return &http.Response{StatusCode: 404, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"error":{"code":"ResourceNotFound","message":"m"}}`))}, nil
}

// SKY_AZURE_ENDPOINT takes the place of Azure Resource Manager.
func TestAnotherEndpoint(t *testing.T) {
	env := map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "app", "AZURE_CLIENT_SECRET": "x", "AZURE_SUBSCRIPTION_ID": "s1"}
	for variable, want := range map[string]string{
		"": "https://management.azure.com/subscriptions", "https://gateway.example/azure": "https://gateway.example/azure", "http://127.0.0.1:9/x": "http://127.0.0.1:9/x", "http://gateway.example": "",
	} {
		t.Setenv("SKY_AZURE_ENDPOINT", variable)
		calls := away{}
		p := New(Options{
			Tuning: vm.Tuning{Transport: calls, Paces: []rest.Pace{}, Busy: -1},
			Auth:   azureauth.Options{Home: t.TempDir(), Getenv: func(name string) string { return env[name] }, OnAzure: func() bool { return false }},
		})
		if _, err := p.Check(t.Context()); err == nil {
			t.Errorf("%q: nobody knew the subscription, and the check passed", variable)
		}
		_, _ = p.Nodes(t.Context(), cloud.ClusterID{Installation: "i", Name: "c"})
		_, _ = p.Quotas(t.Context(), east.Region)
		if (want == "") != (len(calls) == 0) || want != "" && (!calls[want] || len(calls) != 1) {
			t.Errorf("%q: called %v, want %s", variable, calls, want)
		}
	}
}

func TestTheSubscriptionIsTheOnlyOneThatIsOpen(t *testing.T) {
	env := map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "app", "AZURE_CLIENT_SECRET": "x"}
	for answer, want := range map[string]string{
		`[{"subscriptionId":"a","state":"Disabled"},{"subscriptionId":"b","state":"Enabled"}]`: "b",
		`[{"subscriptionId":"a","state":"Enabled"},{"subscriptionId":"b","state":"Enabled"}]`:  "!2 that are open: a, b",
		`[]`: "!0 that are open",
	} {
		r := &recorded{answers: map[string][]string{"GET /subscriptions": {`200 {"value":` + answer + `}`}}}
		p := New(Options{Tuning: vm.Tuning{Transport: r}, Auth: azureauth.Options{Home: t.TempDir(), Getenv: func(name string) string { return env[name] }}})
		a, err := p.account(t.Context())
		switch {
		case !strings.HasPrefix(want, "!") && (err != nil || a.subscription != want):
			t.Errorf("%s: %v, %v", answer, a, err)
		case strings.HasPrefix(want, "!") && (err == nil || !strings.Contains(err.Error(), want[1:])):
			t.Errorf("%s: %v", answer, err)
		}
	}
}

func TestWhatIsLackingIsNamed(t *testing.T) {
	r := &recorded{answers: map[string][]string{
		"GET " + sub + "/providers/Microsoft.Authorization/permissions": {`200 {"value":[{"actions":["*"],"notActions":["Microsoft.Authorization/*/Delete","Microsoft.Authorization/*/Write"]}]}`}, // Contributor
		"GET " + sub + "/providers/Microsoft.Compute":                   {`200 {"namespace":"Microsoft.Compute","registrationState":"Registered"}`},
		"GET " + sub + "/providers/Microsoft.Network":                   {`200 {"namespace":"Microsoft.Network","registrationState":"NotRegistered"}`},
		"GET " + sub + "/providers/Microsoft.ManagedIdentity":           {`200 {"namespace":"Microsoft.ManagedIdentity","registrationState":"Registering"}`},
	}}
	d, _ := over(t, r, nil)
	lack, err := d.Lacking(t.Context())
	want := "Microsoft.Authorization/roleAssignments/delete Microsoft.Authorization/roleAssignments/write the registration of Microsoft.Network (NotRegistered)"
	if err != nil || strings.Join(lack.Permissions, " ") != want || !strings.Contains(lack.Fix, "az provider register --namespace Microsoft.Network") || !strings.Contains(lack.Fix, "az role assignment create --assignee app --scope "+sub) {
		t.Errorf("%v, %+v", err, lack)
	}
	r.answers["GET "+sub+"/resourceGroups/mine/providers/Microsoft.Authorization/permissions"] = []string{`200 {"value":[{"actions":["Microsoft.Compute/*","Microsoft.Network/*","Microsoft.ManagedIdentity/*","Microsoft.Authorization/*"],"notActions":[]}]}`}
	r.answers["GET "+sub+"/providers/Microsoft.Network"] = []string{`200 {"registrationState":"Registered"}`}
	d, _ = over(t, r, map[string]any{"resource_group_vm": "mine"})
	if lack, err := d.Lacking(t.Context()); err != nil || len(lack.Permissions) > 0 || lack.Fix != "" {
		t.Errorf("in a group of the user's: %v, %+v", err, lack)
	}
}

// The role of docs/azure.md has what sky needs, and no more.
func TestTheDocumentedRoleIsWhatIsNeeded(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../../docs/azure.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```json\n")
	block, _, _ = strings.Cut(block, "```")
	var role struct {
		Name, Description         string
		AssignableScopes, Actions []string
	}
	strict := json.NewDecoder(strings.NewReader(block))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&role); err != nil || role.Name == "" || role.Description == "" || !slices.Equal(role.AssignableScopes, []string{"/subscriptions/SUBSCRIPTION"}) {
		t.Fatal(err, block)
	}
	extra := []string{"Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read", "Microsoft.Compute/galleries/images/read", "Microsoft.Compute/galleries/images/versions/read",
		"Microsoft.Authorization/permissions/read", "Microsoft.Resources/subscriptions/read", "Microsoft.Resources/subscriptions/resources/read", "Microsoft.Resources/subscriptions/providers/read"}
	want := slices.Concat(needed, placementPermissions, reservedPermissions, extra)
	slices.Sort(want)
	slices.Sort(role.Actions)
	if !slices.Equal(role.Actions, want) {
		t.Errorf("the role has\n%s\nwant\n%s", strings.Join(role.Actions, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatASpotMachineMayCost(t *testing.T) {
	for most, want := range map[float64]float64{0: -1, 2: 2, 0.29: 0.29, 0.0123456: 0.01234} {
		if got := maxPrice(cloud.Offer{MaxHourlyCost: most}); got != want {
			t.Errorf("%v: %v, want %v", most, got, want)
		}
	}
}

func TestWhatIsAskedForAMachine(t *testing.T) {
	spec := cloud.LaunchSpec{
		ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: cloud.Offer{Place: east, InstanceType: "Standard_D4s_v5", Spot: true}, Nodes: 2, AuthorizedKey: "ssh-ed25519 AAAA me\n",
		MachineSpec: cloud.MachineSpec{DiskGB: 256},
	}
	l := &launch{spec: spec, settings: settings{}, group: "g", identity: sub + "/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/m",
		image: image{reference: map[string]string{"id": "x"}, plan: map[string]string{"name": "n"}, trusted: true}}
	text, err := json.Marshal(l.body(1, "nic", "", nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"priority":"Spot"`, `"evictionPolicy":"Delete"`, `"maxPrice":-1`, `"securityType":"TrustedLaunch"`, `"plan":{"name":"n"}`, `"diskSizeGB":256`, `"storageAccountType":"Premium_LRS"`,
		`"deleteOption":"Delete","diskSizeGB"`, `"networkInterfaces":[{"id":"nic","properties":{"deleteOption":"Delete","primary":true}}]`, `"computerName":"` + machineName(spec.ID, 1) + `"`,
		`"keyData":"ssh-ed25519 AAAA me"`, `"disablePasswordAuthentication":true`, `"sky-rank":"1"`, `"userAssignedIdentities":{"` + l.identity + `":{}}`, `"location":"eastus"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	l.identity, l.image, l.spec.Offer.Spot, l.spec.DiskGB = "", image{}, false, 0
	text, _ = json.Marshal(l.body(0, "nic", "", nil))
	for _, no := range []string{"priority", "evictionPolicy", "identity", "plan", "securityProfile", "diskSizeGB"} {
		if strings.Contains(string(text), `"`+no+`"`) {
			t.Errorf("%s is in\n%s", no, text)
		}
	}
	if n := machineName(cloud.ClusterID{Name: strings.Repeat("n", maxName)}, 9999); len(n) > 64 {
		t.Errorf("%s has %d characters, and a machine's name 64", n, len(n))
	}
	if n := ownGroup(cloud.ClusterID{Name: strings.Repeat("n", maxName)}, "southafricanorthwest1"); len(n) > 90 {
		t.Errorf("%s has %d characters, and a group's name 90", n, len(n))
	}
}

// The first boot is what cloud-init reads, and what it installs is what the provider means.
func TestTheFirstBoot(t *testing.T) {
	var data struct {
		Files []struct{ Path, Permissions, Content string } `json:"write_files"`
		Run   []string                                      `json:"runcmd"`
		Boot  [][]string                                    `json:"bootcmd"`
	}
	text := customData("/subscriptions/s1/id", true)
	cloudtest.ReadYAML(t, text, &data)
	if len(data.Files) != 2 || len(data.Run) != 2 || len(data.Boot) != 1 || data.Boot[0][2] != vm.QuietUpdates {
		t.Fatal(text)
	}
	if f := data.Files[0]; f.Path != "/usr/local/sbin/sky-off" || f.Permissions != "0755" || strings.Contains(f.Content, "@") && strings.Contains(f.Content, "@IDENTITY@") || data.Files[1].Content != offUnit {
		t.Errorf("%+v", data.Files)
	}
	if strings.Contains(customData("", true), "sky-off") {
		t.Error("a machine without an identity gives itself back")
	}
}

// A machine that goes down asks Azure to take it back: the calls that its script makes.
func TestAMachineThatGoesDownGivesItselfBack(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	const id = "/subscriptions/s1/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m"
	for _, tt := range []struct {
		name, jobs, tags string
		alone            bool
		want             string
	}{
		{"off, on a copy of a disk", "poweroff.target start", "sky-rank:0;copy:1", true, "POST https://management.azure.com" + id + "/deallocate?api-version=" + apiCompute},
		{"a reboot", "reboot.target start", "sky-rank:0", true, ""},
		{"off", "poweroff.target start", "sky-rank:0", true, "POST https://management.azure.com" + id + "/deallocate?api-version=" + apiCompute},
		{"halted", "halt.target start", "sky-rank:0;sky-ends-when-off:false", true, "POST https://management.azure.com" + id + "/deallocate?api-version=" + apiCompute},
		{"a head that ends", "poweroff.target start", "sky-ends-when-off:true;sky-rank:0", true, "DELETE https://management.azure.com/subscriptions/s1/resourceGroups/g?api-version=" + apiResources},
		{"a worker that ends", "poweroff.target start", "sky-ends-when-off:true;sky-rank:1", true, "DELETE https://management.azure.com" + id + "?api-version=" + apiCompute},
		{"a head in a group of the user's", "poweroff.target start", "sky-ends-when-off:true;sky-rank:0", false, "DELETE https://management.azure.com" + id + "?api-version=" + apiCompute},
		{"a label that looks like it", "poweroff.target start", "x-sky-ends-when-off:true;sky-rank:0", true, "POST https://management.azure.com" + id + "/deallocate?api-version=" + apiCompute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			var data struct {
				Files []struct{ Content string } `json:"write_files"`
			}
			cloudtest.ReadYAML(t, customData("/subscriptions/s1/id", tt.alone), &data)
			curl := `#!/bin/sh
for a; do url=$a; done
case $url in
*resourceId*) printf %s '` + id + `' ;;
*compute/tags*) printf %s '` + tt.tags + `' ;;
*azEnvironment*) printf AzurePublicCloud ;;
*oauth2/token*msi_res_id=/subscriptions/s1/id) case '` + tt.tags + `' in *copy:1*) exit 22 ;; esac; printf '{"access_token":"TOKEN","expires_in":"1"}' ;;
*oauth2/token*resource=https://management.azure.com) printf '{"access_token":"TOKEN","expires_in":"1"}' ;;
*) while [ $# -gt 1 ]; do [ "$1" = -X ] && method=$2; [ "$1" = "Authorization: Bearer TOKEN" ] && good=1; shift; done; [ "$good" ] && echo "$method $url" >> '` + dir + `/asked' ;;
esac
`
			for name, script := range map[string]string{"curl": curl, "systemctl": "#!/bin/sh\necho '" + tt.jobs + "'\n", "sky-off": data.Files[0].Content} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.Command("/bin/sh", filepath.Join(dir, "sky-off"))
			c.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
			if got := strings.TrimSpace(string(asked)); got != tt.want {
				t.Errorf("it asked %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDisks(t *testing.T) {
	for _, tt := range []struct{ size, tier, want string }{
		{"Standard_D4s_v5", "", "Premium_LRS false"}, {"Standard_D4s_v5", "low", "Standard_LRS false"}, {"Standard_D4s_v5", "medium", "Premium_LRS false"}, {"Standard_D4s_v5", "high", "Premium_LRS true"},
		{"Standard_D4s_v5", "best", "Premium_LRS true"}, {"Standard_NC6", "best", "Standard_LRS false"}, {"Standard_NC6", "", "Standard_LRS false"},
	} {
		if got := fmt.Sprintln(diskOf(tt.size, tt.tier)); strings.TrimSpace(got) != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.size, tt.tier, got, tt.want)
		}
	}
}
