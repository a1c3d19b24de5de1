package ibmfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// Gen2Plan is the pricing plan that profiles of the second generation share; later ones have
// one each.
const Gen2Plan = "a736a57f-0584-474f-8411-55dc7d9dc811"

// catalogPages are those of the Global Catalog ("_offset", "_limit": 50 unless said, at most 200).
var catalogPages = fakehttp.Pages{Token: "_offset", Size: "_limit", Usual: 50, Most: 200}

func catalogPage(r *http.Request, all []dict) (any, error) {
	part, err := catalogPages.Part(r.URL.Query(), all)
	return dict{"offset": part.From, "limit": part.Size, "count": part.Total, "resource_count": len(part.Items), "resources": part.Items}, err
}

// metric is a price, as charged per unit; what others are charged in their money comes first.
func metric(id, unit string, price float64) dict {
	amount := func(country, currency string, price float64) dict {
		return dict{"country": country, "currency": currency, "prices": []dict{{"quantity_tier": 1, "price": price}}}
	}
	return dict{"metric_id": id, "charge_unit_name": unit, "charge_unit_quantity": 1, "tier_model": "Linear Tier", "amounts": []dict{amount("DEU", "EUR", price*0.9), amount("AUS", "USD", price*1.2), amount("USA", "USD", price)}}
}

func shared(profile string) bool {
	return strings.HasPrefix(profile, "bx2-") || strings.HasPrefix(profile, "gx2-")
}

// meters are what a profile uses: of the second generation so much of each part, and of later
// ones the whole.
func meters(profile string) []dict {
	p := profiles[profile]
	all := []dict{{"unit": "VCPU", "quantity": fmt.Sprint(p.cpus)}, {"unit": "MEMORY", "quantity": fmt.Sprint(p.memory)}, {"unit": "INSTANCE", "quantity": "1"}, {"unit": "PROFILE", "quantity": profile}}
	if p.gpu > 0 {
		all = append(all, dict{"unit": "GPU", "quantity": fmt.Sprint(p.gpu)}, dict{"unit": "GPU_CARD", "quantity": p.model})
	}
	if !shared(profile) {
		all = append(all, dict{"unit": "INSTANCE_MULTI_TENANT", "quantity": "1"}, dict{"unit": "INSTANCE_DEDICATED_HOST", "quantity": "0"})
	}
	return all
}

// metrics are the prices of a profile in a region: of its parts, which are for so many as the
// profile has, or of the whole, and of what may run on it.
func metrics(profile, region string) []dict {
	p := profiles[profile]
	price := p.price
	if region != "us-south" {
		price *= 1.1
	}
	windows := metric("part-is.windows-vcpu-hours", "WINDOWS_VCPU_HOURS", 0.04*float64(p.cpus))
	switch {
	case !shared(profile):
		return []dict{windows, metric("part-is.instance-hours-dh-"+profile, "INSTANCE_HOURS_DEDICATED_HOST", 0), metric("part-is.spot-"+profile, "INSTANCE_HOURS_SPOT", price/4), metric("part-is.instance-hours-"+profile, "INSTANCE_HOURS_MULTI_TENANT", price)}
	case p.gpu > 0:
		return []dict{windows, metric("part-is.cpu-hours", "VCPU_HOURS", price/8), metric("part-is.ram-hours", "MEMORY_HOURS", price/8), metric("part-is.v100-hours", "V100_HOURS", price/4*3)}
	}
	return []dict{windows, metric("part-is.cpu-hours", "VCPU_HOURS", price/4*3), metric("part-is.ram-hours", "MEMORY_HOURS", price/4)}
}

// catalog answers for the Global Catalog, without credentials. "Global Catalog"
// (cloud.ibm.com/apidocs/resource-catalog/global-catalog): "Get parent catalog entries", "Get
// child catalog entries of a specific kind", "Get the pricing deployments for a plan"; the walk
// from a service to its prices is in "Getting dynamic pricing"
// (cloud.ibm.com/docs/account?topic=account-getting-pricing-api). Which meters a profile has, and
// what their metrics are called, is from programs that read the live catalog.
func (f *Fake) catalog() {
	names := slices.Sorted(maps.Keys(profiles))
	f.Route("GET", "/api/v1", "prices", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, name := range names {
			plan := "plan-" + name
			if shared(name) {
				plan = Gen2Plan
			}
			deployments := []dict{{"type": "dedicated-host", "plan": "plan-of-hosts", "meters": meters(name)}, {"type": "multi-tenant", "plan": plan, "meters": meters(name)}}
			all = append(all, dict{"id": name, "name": name, "kind": "instance.profile", "active": true, "disabled": false, "metadata": dict{"other": dict{"profile": dict{"resource_type": "instance", "measures": []dict{{"component": "os", "deployments": []dict{}}, {"component": "instance", "deployments": deployments}}}}}})
		}
		// One that is announced has a plan that is not published.
		early := dict{"type": "multi-tenant", "plan": "plan-unpublished", "meters": []dict{{"unit": "INSTANCE_MULTI_TENANT", "quantity": "1"}}}
		all = append(all, dict{"id": "bx9-2x8", "name": "bx9-2x8", "kind": "instance.profile", "active": true, "disabled": false, "metadata": dict{"other": dict{"profile": dict{"resource_type": "instance", "measures": []dict{{"component": "instance", "deployments": []dict{early}}}}}}})
		if kind, ok := strings.CutPrefix(r.URL.Query().Get("q"), "kind:"); ok && kind != "instance.profile" {
			all = nil
		}
		if r.URL.Query().Get("include") != "*" { // a basic set of properties
			for i := range all {
				delete(all[i], "metadata")
			}
		}
		return catalogPage(r, all)
	})
	// deployments are those of a plan: a profile in a region each.
	deployments := func(plan string, each func(name, region string)) error {
		found := false
		for _, name := range names {
			for _, region := range slices.Sorted(maps.Keys(regions)) {
				if plan == Gen2Plan && shared(name) || plan == "plan-"+name && !shared(name) {
					found = true
					each(name, region)
				}
			}
		}
		if !found {
			return fakehttp.Missing(plan)
		}
		return nil
	}
	f.Route("GET", "/api/v1/{plan}/deployment", "prices", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		err := deployments(r.PathValue("plan"), func(name, region string) {
			all = append(all, dict{"id": "deployment-" + name + "-" + region, "name": name + "-" + region, "kind": "deployment", "active": true, "disabled": false, "parent_id": r.PathValue("plan")})
		})
		if err != nil {
			return nil, err
		}
		return catalogPage(r, all)
	})
	f.Route("GET", "/api/v1/{plan}/pricing/deployment", "prices", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{{"deployment_id": "DEFAULT", "deployment_location": "DEFAULT", "metrics": nil}}
		err := deployments(r.PathValue("plan"), func(name, region string) {
			all = append(all, dict{"deployment_id": "deployment-" + name + "-" + region, "deployment_location": region, "deployment_region": region, "metrics": metrics(name, region)})
		})
		if err != nil {
			return nil, err
		}
		return catalogPage(r, all)
	})
}
