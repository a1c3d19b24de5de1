package azure_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/azureauth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/azure"
	"github.com/skypilot-go/sky/internal/cloud/azure/azurefake"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: azure.Name, Region: "eastus"}, InstanceType: "Standard_D4s_v5", CPUs: 4, MemoryGiB: 16, HourlyPrice: 0.2}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: azure.Name, Region: "westus2"}, InstanceType: "Standard_D4s_v5", CPUs: 4, MemoryGiB: 16, HourlyPrice: 0.2}
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

// quick are the options of tests that are about something else than the time.
var quick = vm.Tuning{Poll: time.Second, Paces: []rest.Pace{}, Busy: -1}

// start is a subscription, and how to make providers over it.
func start(t testing.TB, settings map[string]any) (*azurefake.Fake, func(tuning vm.Tuning) *azure.Provider) {
	t.Helper()
	fake := azurefake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	env := map[string]string{"AZURE_TENANT_ID": azurefake.Tenant, "AZURE_CLIENT_ID": azurefake.Client, "AZURE_CLIENT_SECRET": azurefake.Secret, "AZURE_SUBSCRIPTION_ID": azurefake.Subscription}
	return fake, func(tuning vm.Tuning) *azure.Provider {
		if tuning.Transport == nil {
			tuning.Transport = fake
		}
		return azure.New(azure.Options{
			Tuning: tuning, Settings: func() map[string]any { return settings },
			Auth: azureauth.Options{Home: home, Getenv: func(name string) string { return env[name] }, OnAzure: func() bool { return false }},
		})
	}
}

// harness is that of a provider with settings.
func harness(t testing.TB, settings map[string]any, prepare func(*azurefake.Fake)) cloudtest.Harness {
	fake, provider := start(t, settings)
	if prepare != nil {
		prepare(fake)
	}
	h := fake.Harness(func() cloud.Provider { return provider(quick) })
	spot := here
	spot.Spot = true
	h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &elsewhere, &spot
	h.Halt = func(t testing.TB, n cloud.Node) { goDown(t, fake, n) }
	h.Limited = func(testing.TB) (cloud.Provider, func() int) {
		fake.Limit()
		return provider(vm.Tuning{}), fake.Over
	}
	return h
}

// TestASpotMachineCostsNoMoreThanItsTaskAllows: Azure takes it back when its price rises above
// that, and does not make it if the price is above that already.
func TestASpotMachineCostsNoMoreThanItsTaskAllows(t *testing.T) {
	for most, want := range map[float64]any{0: -1.0, 0.3: 0.3, 0.1: nil} {
		synctest.Test(t, func(t *testing.T) {
			fake, provider := start(t, nil)
			fake.SpotPrice(0.2)
			spec, p := cloudtest.Cluster(here, "web"), provider(quick)
			spec.Offer.Spot, spec.Offer.MaxHourlyCost = true, most
			if err := p.Prepare(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			nodes, err := p.Launch(t.Context(), spec)
			switch {
			case want == nil && !cloudtest.Is[*cloud.CapacityError](err):
				t.Errorf("%v: %v, %v", most, nodes, err)
			case want == nil:
			case err != nil:
				t.Errorf("%v: %v", most, err)
			default:
				properties := fake.Body(nodes[0].ID)["properties"].(map[string]any)
				if got := properties["billingProfile"].(map[string]any)["maxPrice"]; got != want {
					t.Errorf("%v: %v, want %v", most, got, want)
				}
			}
		})
	}
}

// goDown is a machine that is switched off from inside: what off.sh does if it is to end,
// and nothing if it is not, as where it has no identity.
func goDown(t testing.TB, fake *azurefake.Fake, n cloud.Node) {
	body := fake.Body(n.ID)
	if body == nil {
		return // it has gone with another's group
	}
	tags, _ := body["tags"].(map[string]any)
	id := body["id"].(string)
	path := id + "?api-version=2024-11-01"
	switch group, _, _ := strings.Cut(id, "/providers/"); {
	case tags["sky-ends-when-off"] != "true":
		fake.Halt(n.ID)
		return
	case n.Rank == 0:
		path = group + "?api-version=2021-04-01"
	}
	call(t, fake, http.MethodDelete, path, "")
}

// call is one of the user's own.
func call(t testing.TB, fake *azurefake.Fake, method, path, body string) string {
	t.Helper()
	r, err := http.NewRequest(method, "https://management.azure.com"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+fake.Token())
	r.Header.Set("Content-Type", "application/json")
	answer, err := fake.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	return string(text)
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness { return harness(t, nil, nil) })
}

// The user's own resource group and network, addresses that are internal, and machines
// without an identity of sky's.
func TestConformanceInTheUsersGroup(t *testing.T) {
	const group = "/subscriptions/" + azurefake.Subscription + "/resourceGroups/Mine_1"
	settings := map[string]any{"resource_group_vm": "Mine_1", "vpc_name": "office", "use_internal_ips": true, "remote_identity": "robot"}
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t, settings)
		call(t, fake, "PUT", group+"?api-version=2021-04-01", `{"location":"eastus"}`)
		call(t, fake, "PUT", group+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/robot?api-version=2023-01-31", `{"location":"eastus"}`)
		for _, region := range []string{"eastus", "westus2"} {
			where := group
			if region != "eastus" {
				where += "-west"
				call(t, fake, "PUT", where+"?api-version=2021-04-01", `{"location":"westus2"}`)
			}
			call(t, fake, "PUT", where+"/providers/Microsoft.Network/virtualNetworks/office?api-version=2024-05-01",
				`{"location":"`+region+`","properties":{"addressSpace":{"addressPrefixes":["10.0.0.0/16"]},"subnets":[{"name":"desks","properties":{"addressPrefix":"10.0.0.0/20"}}]}}`)
		}
		h := fake.Harness(func() cloud.Provider { return provider(quick) }, "resourceGroups Mine_1", "userAssignedIdentities", "virtualNetworks")
		spot := here
		spot.Spot = true
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &elsewhere, &spot
		h.Halt = nil // the identity is the user's business
		return h
	})
}

// Lists have pages, what was made is known late, and a full region says so at once.
func TestConformanceOnABadDay(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		unkind := func(f *azurefake.Fake) {
			f.Pages(2)
			f.AtOnce(true)
			f.Take(3 * time.Second)
			f.RetryAfter(2)
		}
		return harness(t, nil, unkind)
	})
}
