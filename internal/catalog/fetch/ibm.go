package fetch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/ibmapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// IBM joins the profiles that each region has with the prices of IBM's Global Catalog, which
// anybody may read.
type IBM struct {
	Home      string            // with the credentials, for the profiles; "": the user's
	Transport http.RoundTripper // nil: one of its own
}

type (
	ibmValue struct {
		Value  any   `json:"value"`
		Values []any `json:"values"`
	}
	// ibmProfile is a type of machines in a region.
	ibmProfile struct {
		Name         string   `json:"name"`
		CPUs         ibmValue `json:"vcpu_count"`
		Memory       ibmValue `json:"memory"`
		Architecture ibmValue `json:"vcpu_architecture"`
		GPUs         ibmValue `json:"gpu_count"`
		Model        ibmValue `json:"gpu_model"`
	}
	// ibmEntry is a profile or a deployment of the catalog.
	ibmEntry struct {
		ID       string `json:"id"`
		Name     string `json:"name"`
		Disabled bool   `json:"disabled"`
		Metadata struct {
			Other struct {
				Profile struct {
					Measures []struct {
						Component   string    `json:"component"`
						Deployments []ibmPlan `json:"deployments"`
					} `json:"measures"`
				} `json:"profile"`
			} `json:"other"`
		} `json:"metadata"`
	}
	// ibmPlan says what is charged for a machine of a profile.
	ibmPlan struct {
		Type   string `json:"type"`
		ID     string `json:"plan"`
		Meters []struct {
			Unit     string `json:"unit"`
			Quantity any    `json:"quantity"`
		} `json:"meters"`
	}
	// ibmCharges are the prices of a deployment of a plan.
	ibmCharges struct {
		ID      string `json:"deployment_id"`
		Region  string `json:"deployment_location"`
		Metrics []struct {
			ID      string  `json:"metric_id"`
			Unit    string  `json:"charge_unit_name"`
			Per     float64 `json:"charge_unit_quantity"`
			Amounts []struct {
				Country  string `json:"country"`
				Currency string `json:"currency"`
				Prices   []struct {
					Price float64 `json:"price"`
				} `json:"prices"`
			} `json:"amounts"`
		} `json:"metrics"`
	}
)

func (v ibmValue) number() float64 { n, _ := v.Value.(float64); return n }

// gpu is the name of the profile's GPU, as lists have it.
func (p ibmProfile) gpu() string {
	if p.GPUs.number() == 0 || len(p.Model.Values) == 0 {
		return ""
	}
	var name []string
	for _, w := range strings.Fields(fmt.Sprint(p.Model.Values[0])) {
		if !slices.Contains([]string{"NVIDIA", "TESLA", "AMD", "INSTINCT", "INTEL", "HGX", "SXM", "PCIE"}, strings.ToUpper(w)) {
			name = append(name, w)
		}
	}
	return strings.Join(name, "")
}

// charged are the names of what an hour of a machine of a profile costs: the metric of the
// whole, or the units of its parts.
func (p ibmPlan) charged(profile string) (names []string) {
	card := ""
	for _, m := range p.Meters {
		if m.Unit == "GPU_CARD" {
			card = fmt.Sprint(m.Quantity)
		}
	}
	for _, m := range p.Meters {
		switch {
		case fmt.Sprint(m.Quantity) == "0", m.Unit == "INSTANCE", m.Unit == "PROFILE", m.Unit == "GPU_CARD":
		case m.Unit == "INSTANCE_MULTI_TENANT":
			return []string{"part-is.instance-hours-" + profile}
		case m.Unit == "GPU":
			names = append(names, card+"_HOURS")
		case strings.HasSuffix(m.Unit, "STORAGE"):
			names = append(names, m.Unit+"_GIGABYTE_HOURS")
		default:
			names = append(names, m.Unit+"_HOURS")
		}
	}
	return names
}

// dollars is what the names cost together; 0: not all have a price.
func (c ibmCharges) dollars(names []string) (sum float64) {
	prices := map[string]float64{}
	for _, m := range c.Metrics {
		for _, a := range m.Amounts {
			if a.Country == "USA" && a.Currency == "USD" && len(a.Prices) > 0 && m.Per <= 1 {
				prices[m.ID], prices[m.Unit] = a.Prices[0].Price, a.Prices[0].Price
			}
		}
	}
	for _, name := range names {
		if prices[name] == 0 {
			return 0
		}
		sum += prices[name]
	}
	return sum
}

// ibmPages reads a list of the catalog.
func ibmPages[T any](ctx context.Context, c *rest.Client, path string, query url.Values) ([]T, error) {
	return rest.Counted(ctx, c, func(ctx context.Context, have int) ([]T, *int, error) {
		q := url.Values{"_limit": {"200"}, "_offset": {strconv.Itoa(have)}}
		maps.Copy(q, query)
		page, err := rest.Send[struct {
			Resources []T  `json:"resources"`
			Count     *int `json:"count"`
		}](ctx, c, rest.Call{Method: "GET", Path: path, Query: q})
		return page.Resources, page.Count, err
	})
}

// prices are those of profiles by region. Profiles of the second generation share a plan, and
// each has a deployment in each region there, whose amounts are for all that the profile has;
// the others have a plan each.
func (i IBM) prices(ctx context.Context) (map[[2]string]float64, error) {
	endpoint, err := vm.Endpoint(ibmapi.Name, "https://globalcatalog.cloud.ibm.com")
	if err != nil {
		return nil, err
	}
	c := rest.New(rest.Options{Cloud: ibmapi.DisplayName, Endpoint: endpoint + "/api/v1", Host: "globalcatalog.cloud.ibm.com", Transport: i.Transport, Refusal: ibmapi.Refusal})
	defer c.Close()
	profiles, err := ibmPages[ibmEntry](ctx, c, "", url.Values{"q": {"kind:instance.profile"}, "include": {"*"}})
	if err != nil {
		return nil, err
	}
	plans := map[string]map[string][]string{} // by their ids, what is charged for profiles
	for _, p := range profiles {
		for _, m := range p.Metadata.Other.Profile.Measures {
			for _, plan := range m.Deployments {
				if m.Component == "instance" && plan.Type == "multi-tenant" && plan.ID != "" && !p.Disabled {
					if plans[plan.ID] == nil {
						plans[plan.ID] = map[string][]string{}
					}
					plans[plan.ID][p.Name] = plan.charged(p.Name)
				}
			}
		}
	}
	found := map[[2]string]float64{}
	for _, id := range slices.Sorted(maps.Keys(plans)) {
		charges, err := ibmPages[ibmCharges](ctx, c, "/"+url.PathEscape(id)+"/pricing/deployment", nil)
		deployments := map[string]string{} // names by ids
		if err == nil && len(plans[id]) > 1 {
			var all []ibmEntry
			all, err = ibmPages[ibmEntry](ctx, c, "/"+url.PathEscape(id)+"/deployment", nil)
			for _, d := range all {
				deployments[d.ID] = d.Name
			}
		}
		if refused := (*rest.Error)(nil); errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			continue // a plan that is not published yet
		} else if err != nil {
			return nil, err
		}
		for _, d := range charges {
			for profile, names := range plans[id] {
				if price := d.dollars(names); price > 0 && (len(plans[id]) == 1 || deployments[d.ID] == profile+"-"+d.Region) {
					found[[2]string{profile, d.Region}] = max(price, found[[2]string{profile, d.Region}])
				}
			}
		}
	}
	return found, nil
}

// Rows asks for prices, then for the zones and profiles of each region. A profile without a
// price is left out, and so is one of other processors than images are for.
func (i IBM) Rows(ctx context.Context) ([]Row, error) {
	account := ibmapi.Account(vm.Tuning{Home: i.Home, Transport: i.Transport})
	first, _, err := account.In(ibmapi.First)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, account.Fix)
	}
	regions, err := ibmapi.Available(ctx, first, "regions")
	if err != nil {
		return nil, err
	}
	prices, err := i.prices(ctx)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, region := range regions {
		c, _, err := account.In(region)
		if err != nil {
			return nil, err
		}
		zones, err := ibmapi.Available(ctx, c, "regions/"+url.PathEscape(region)+"/zones")
		if err != nil {
			return nil, err
		}
		profiles, err := ibmapi.List[ibmProfile](ctx, c, "instance/profiles", nil)
		if err != nil {
			return nil, err
		}
		for _, p := range profiles {
			row := Row{InstanceType: p.Name, CPUs: p.CPUs.number(), MemoryGiB: p.Memory.number(), Price: prices[[2]string{p.Name, region}], Spot: none, Region: region}
			if row.Price == 0 || p.Architecture.Value != "amd64" {
				continue
			}
			if gpu := p.gpu(); gpu != "" {
				row.Accelerator, row.Count, row.DeviceMiB = gpu, p.GPUs.number(), deviceMiB(gpu)
			}
			for _, row.Zone = range zones {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

var ibmSource = Source{ibmapi.Name, []string{"~/" + ibmapi.Path}, func(func(string) string) Fetcher { return IBM{} }}
