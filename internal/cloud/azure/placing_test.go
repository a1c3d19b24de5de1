package azure_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/azure/azurefake"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
)

const (
	ownedGroup = "/subscriptions/" + azurefake.Subscription + "/resourceGroups/paid"
	reservedIn = ownedGroup + "/providers/Microsoft.Compute/capacityReservationGroups/"
)

// reserve makes a reservation of some machines of a size.
func reserve(t *testing.T, fake *azurefake.Fake, group, size, more string) {
	t.Helper()
	call(t, fake, "PUT", ownedGroup+"?api-version=2021-04-01", `{"location":"eastus"}`)
	call(t, fake, "PUT", reservedIn+group+"?api-version=2024-11-01", `{"location":"eastus"}`)
	call(t, fake, "PUT", reservedIn+group+"/capacityReservations/r?api-version=2024-11-01", `{"location":"eastus","sku":{"name":"`+size+`",`+more+`}`)
}

// held are the capacity reservation groups that machines are in, by rank; "": none.
func held(t *testing.T, fake *azurefake.Fake, nodes []cloud.Node) (all []string) {
	t.Helper()
	for _, n := range nodes {
		var body struct {
			Properties struct {
				Reservation struct {
					Group struct{ ID string } `json:"capacityReservationGroup"`
				} `json:"capacityReservation"`
			}
		}
		text, err := json.Marshal(fake.Body(n.ID))
		if err == nil {
			err = json.Unmarshal(text, &body)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimPrefix(body.Properties.Reservation.Group.ID, reservedIn))
	}
	return all
}

func TestReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := map[string]any{"specific_reservations": []any{"small", reservedIn + "large", "other", "zonal"}}
		fake, provider := start(t, settings)
		reserve(t, fake, "small", here.InstanceType, `"capacity":1}`)
		reserve(t, fake, "large", here.InstanceType, `"capacity":2}`)
		reserve(t, fake, "other", "Standard_E4s_v5", `"capacity":5}`)
		reserve(t, fake, "zonal", here.InstanceType, `"capacity":5},"zones":["1"]`)
		p := provider(quick)
		nodes, err := try(t.Context(), p, launchSpec(4, "t"))
		if err != nil {
			t.Fatal(err)
		}
		if got := held(t, fake, nodes); !slices.Equal(got, []string{"large", "large", "small", ""}) {
			t.Errorf("the machines are in %q", got)
		}
		other := launchSpec(1, "u")
		other.ID.Name = "more" // which finds no room there any more
		if nodes, err = try(t.Context(), p, other); err != nil || held(t, fake, nodes)[0] != "" {
			t.Errorf("another cluster: %v, %v", nodes, err)
		}
		for _, spec := range []cloud.LaunchSpec{launchSpec(4, "t"), other} {
			if err := p.Terminate(t.Context(), spec.ID); err != nil {
				t.Error(err)
			}
		}
		spot := launchSpec(1, "v")
		spot.Offer.Spot = true
		if nodes, err = try(t.Context(), p, spot); err != nil || held(t, fake, nodes)[0] != "" {
			t.Errorf("a spot machine: %v, %v", nodes, err)
		}
		if err := p.Terminate(t.Context(), spot.ID); err != nil {
			t.Error(err)
		}
		if left := fake.Inventory(); len(left) != 5 { // the user's own
			t.Errorf("left: %v", left)
		}
		settings["specific_reservations"] = "none"
		if _, err := try(t.Context(), p, launchSpec(1, "w")); err == nil || !strings.Contains(err.Error(), `no capacity reservation group "none"`) {
			t.Errorf("a group that is not there: %v", err)
		}
	})
}

// What a plan may count on is what a launch is put into.
func TestListReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t, nil)
		reserve(t, fake, "small", here.InstanceType, `"capacity":1}`)
		reserve(t, fake, "large", here.InstanceType, `"capacity":2}`)
		reserve(t, fake, "other", "Standard_E4s_v5", `"capacity":5}`)
		reserve(t, fake, "zonal", here.InstanceType, `"capacity":5},"zones":["1"]`)
		section := map[string]any{"specific_reservations": []any{"small", reservedIn + "large", "zonal"}}
		listed := func(regions []string, want ...int) {
			t.Helper()
			all, err := provider(quick).ListReservations(t.Context(), section, regions)
			var got []int
			for _, r := range all {
				if !r.Covers(&here) || r.Place.Region != "eastus" || r.Place.Zone != "" {
					t.Errorf("%+v", r)
				}
				got = append(got, r.Free)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%v: %v, want %v, %v", regions, got, want, err)
			}
		}
		listed(nil, 1, 2)
		listed([]string{"eastus"}, 1, 2)
		listed([]string{"westus2"})
		spec := launchSpec(2, "t")
		spec.Settings = section
		if nodes, err := try(t.Context(), provider(quick), spec); err != nil || !slices.Equal(held(t, fake, nodes), []string{"large", "large"}) {
			t.Errorf("%v, %v", nodes, err)
		}
		listed(nil, 1)
		section["specific_reservations"] = "none"
		if _, err := provider(quick).ListReservations(t.Context(), section, nil); err == nil || !strings.Contains(err.Error(), `no capacity reservation group "none"`) {
			t.Errorf("a group that is not there: %v", err)
		}
		// Nobody else asks anything.
		asked := fake.Asked()
		if all, err := provider(quick).ListReservations(t.Context(), map[string]any{"prioritize_reservations": true}, nil); all != nil || err != nil || !slices.Equal(fake.Asked(), asked) {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// What is reserved needs no quota.
func TestReservedMachinesNeedNoQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t, map[string]any{"specific_reservations": "paid"})
		reserve(t, fake, "paid", here.InstanceType, `"capacity":1}`)
		fake.Cores("eastus", 0)
		p := provider(quick)
		if a, err := p.Available(t.Context(), here, 1); err != nil || a.Verdict == cloud.AvailableNone {
			t.Errorf("one: %+v, %v", a, err)
		}
		if a, err := p.Available(t.Context(), here, 2); err != nil || a.Verdict != cloud.AvailableNone {
			t.Errorf("two: %+v, %v", a, err)
		}
	})
}

func TestPlacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := map[string]any{"placement_policy": "compact"}
		fake, provider := start(t, settings)
		p := provider(quick)
		nodes, err := try(t.Context(), p, launchSpec(2, "t"))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if text, _ := json.Marshal(fake.Body(n.ID)); !strings.Contains(string(text), `"proximityPlacementGroup":{"id":`) {
				t.Errorf("%s is not placed: %s", n.ID, text)
			}
		}
		if err := p.Terminate(t.Context(), launchSpec(2, "t").ID); err != nil {
			t.Error(err)
		}
		nothing(t, fake, "placement")
		settings["placement_policy"] = "spread"
		if _, err := try(t.Context(), p, launchSpec(1, "u")); err == nil || !strings.Contains(err.Error(), "azure.placement_policy") {
			t.Errorf("another policy: %v", err)
		}
	})
}

// The contract holds for machines that are near each other, also in the user's group,
// which stays.
func TestConformanceOfPlacement(t *testing.T) {
	t.Run("its own group", func(t *testing.T) {
		cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
			return harness(t, map[string]any{"placement_policy": "compact"}, nil)
		})
	})
	t.Run("the user's group", func(t *testing.T) {
		settings := map[string]any{"resource_group_vm": "Mine_1", "placement_policy": "compact"}
		cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
			fake, provider := start(t, settings)
			call(t, fake, "PUT", "/subscriptions/"+azurefake.Subscription+"/resourceGroups/Mine_1?api-version=2021-04-01", `{"location":"eastus"}`)
			h := fake.Harness(func() cloud.Provider { return provider(quick) }, "resourceGroups Mine_1")
			h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &elsewhere
			h.Halt = nil
			return h
		})
	})
}
