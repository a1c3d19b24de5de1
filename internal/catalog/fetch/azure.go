package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/azureauth"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Azure fetches retail prices, which are public, and the sizes a subscription
// may use, for which Token is an access token of the management API; without one the
// user's credentials are looked for.
type Azure struct {
	API           // BaseURL is that of the retail prices
	ManagementURL string
	Subscription  string
	Regions       []string // none: all that the subscription sees
}

// login finds the credentials and the subscription, as sky check azure does, if none are
// given, and another endpoint.
func (a Azure) login(ctx context.Context) (Azure, error) {
	manager := cmp.Or(a.ManagementURL, "https://management.azure.com")
	if a.Token == "" {
		creds, err := azureauth.Find(azureauth.Options{})
		if err != nil {
			return a, fmt.Errorf("%w; %s", err, azureauth.Fix)
		}
		token, err := creds.Token(ctx, creds.Cloud.Manager+"/.default")
		if err != nil {
			return a, fmt.Errorf("%w; %s", err, azureauth.Fix)
		}
		a.Token, a.Subscription, manager = token.Value, cmp.Or(a.Subscription, creds.Subscription), cmp.Or(a.ManagementURL, creds.Cloud.Manager)
	}
	if a.Subscription == "" {
		return a, errors.New("there is no subscription; set AZURE_SUBSCRIPTION_ID, or run: az account set --subscription ID")
	}
	if a.ManagementURL != "" {
		return a, nil
	}
	var err error
	a.ManagementURL, err = vm.Endpoint("azure", manager)
	return a, err
}

// regions are those of the subscription that machines are rented in.
func (a Azure) regions(ctx context.Context) ([]string, error) {
	var all struct {
		Value []struct {
			Name     string `json:"name"`
			Metadata struct {
				Type string `json:"regionType"`
			} `json:"metadata"`
		} `json:"value"`
	}
	if err := a.json(ctx, a.manage("/locations?api-version=2022-12-01"), nil, &all, a.bearer()...); err != nil {
		return nil, err
	}
	var out []string
	for _, r := range all.Value {
		if r.Metadata.Type == "Physical" && !strings.HasSuffix(r.Name, "stg") && !strings.HasSuffix(r.Name, "euap") {
			out = append(out, r.Name)
		}
	}
	return out, nil
}

// manage is the address of something of the subscription.
func (a Azure) manage(path string) string {
	return strings.TrimSuffix(a.ManagementURL, "/") + "/subscriptions/" + url.PathEscape(a.Subscription) + path
}

type azurePrice struct {
	ArmSkuName  string  `json:"armSkuName"`
	ProductName string  `json:"productName"`
	SkuName     string  `json:"skuName"`
	Price       float64 `json:"unitPrice"`
}

type azureSize struct {
	cpus, memory, gpus float64
	family, generation string
}

// Rows asks for prices and sizes region by region.
func (a Azure) Rows(ctx context.Context) ([]Row, error) {
	a, err := a.login(ctx)
	if err != nil {
		return nil, err
	}
	if len(a.Regions) == 0 {
		if a.Regions, err = a.regions(ctx); err != nil {
			return nil, err
		}
	}
	var rows []Row
	for _, region := range a.Regions {
		sizes, err := a.sizes(ctx, region)
		if err != nil {
			return nil, err
		}
		prices, err := a.prices(ctx, region)
		if err != nil {
			return nil, err
		}
		rows = append(rows, azureRows(region, sizes, prices)...)
	}
	return rows, nil
}

// prices follows the pages of the retail price list of a region.
func (a Azure) prices(ctx context.Context, region string) (map[string][2]float64, error) {
	filter := fmt.Sprintf("serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '%s'", region)
	next := a.url("https://prices.azure.com", "/api/retail/prices?$filter="+url.QueryEscape(filter))
	out := map[string][2]float64{} // ordinary and spot
	for next != "" {
		var page struct {
			Items []azurePrice
			Next  string `json:"NextPageLink"`
		}
		if err := a.json(ctx, next, nil, &page); err != nil {
			return nil, err
		}
		for _, p := range page.Items {
			if strings.Contains(p.ProductName, " Win") || strings.Contains(p.ProductName, "Cloud Services") || strings.Contains(p.ProductName, "CloudServices") ||
				strings.HasSuffix(p.SkuName, "Low Priority") || p.ArmSkuName == "" || p.Price <= 0 {
				continue
			}
			both, ok := out[p.ArmSkuName]
			if !ok {
				both = [2]float64{none, none}
			}
			at := 0
			if strings.HasSuffix(p.SkuName, " Spot") {
				at = 1
			}
			if !(both[at] <= p.Price) {
				both[at] = p.Price
			}
			out[p.ArmSkuName] = both
		}
		next = page.Next
	}
	return out, nil
}

// sizes lists the machine sizes of a region that the subscription may use.
func (a Azure) sizes(ctx context.Context, region string) (map[string]azureSize, error) {
	next := a.manage("/providers/Microsoft.Compute/skus?api-version=2021-07-01&$filter=" + url.QueryEscape("location eq '"+region+"'"))
	out := map[string]azureSize{}
	for next != "" {
		var page struct {
			Value []struct {
				Name         string `json:"name"`
				ResourceType string `json:"resourceType"`
				Family       string `json:"family"`
				Capabilities []struct{ Name, Value string }
				Restrictions []struct{ Type string }
			} `json:"value"`
			Next string `json:"nextLink"`
		}
		if err := a.json(ctx, next, nil, &page, a.bearer()...); err != nil {
			return nil, err
		}
		for _, s := range page.Value {
			if s.ResourceType != "virtualMachines" || slices.ContainsFunc(s.Restrictions, func(r struct{ Type string }) bool { return r.Type == "Location" }) {
				continue
			}
			size := azureSize{family: strings.ToLower(strings.ReplaceAll(s.Family, " ", ""))}
			for _, c := range s.Capabilities {
				x, _ := strconv.ParseFloat(c.Value, 64)
				switch c.Name {
				case "vCPUs":
					size.cpus = x
				case "MemoryGB":
					size.memory = x
				case "GPUs":
					size.gpus = x
				case "HyperVGenerations":
					size.generation = c.Value
				}
			}
			out[s.Name] = size
		}
		next = page.Next
	}
	return out, nil
}

// azureFamilies tells the GPU of a family of sizes; the first that matches.
var azureFamilies = []struct {
	family *lazyregexp.Regexp
	gpu    string // "": dropped
}{
	{lazyregexp.New(`^standardnc(promo)?family$`), "K80"},
	{lazyregexp.New(`^standardncsv2family$`), "P100"},
	{lazyregexp.New(`^standardncsv3family$`), "V100"},
	{lazyregexp.New(`^standardncasv3_t4family$`), "T4"},
	{lazyregexp.New(`^standardndsv2family$`), "V100-32GB"},
	{lazyregexp.New(`^standard(ncadsa100v4|ndamsv4_a100)family$`), "A100-80GB"},
	{lazyregexp.New(`^standardndasv4_a100family$`), "A100"},
	{lazyregexp.New(`^standardnvsv2family$`), ""},
	{lazyregexp.New(`^standardnv(sv3|promo)?family$`), "M60"},
	{lazyregexp.New(`^standardnvsv4family$`), "Radeon MI25"},
	{lazyregexp.New(`^standardndsfamily$`), "P40"},
	{lazyregexp.New(`^standard(nvadsa10v5|ncadsa10v4)family$`), "A10"},
	{lazyregexp.New(`^standard(ncadsh100v5|nccads2023|ndi?sr?h100v5)family$`), "H100"},
	{lazyregexp.New(`^standardndi?sr?h200v5family$`), "H200"},
	{lazyregexp.New(`^standardndi?sr?gb200v6(ndr)?family$`), "GB200"},
	{lazyregexp.New(`^standardndi?sr?gb300v6(ndr)?family$`), "GB300"},
	{lazyregexp.New(`^standardnd(mi300xv5|i?sv5mi300x)family$`), "MI300X"},
}

// azureCounts are the GPUs of sizes for which the list of sizes does not say how many.
var azureCounts = map[string]float64{"Standard_ND128isr_NDR_GB200_v6": 4, "Standard_ND128isr_GB300_v6": 4, "Standard_ND96is_MI300X_v5": 8}

func azureRows(region string, sizes map[string]azureSize, prices map[string][2]float64) []Row {
	var rows []Row
	for name, s := range sizes {
		gpu, known := azureGPU(s.family)
		count := cmp.Or(s.gpus, azureCounts[name])
		p, ok := prices[name]
		switch {
		case !ok && gpu == "H100": // some are rented without a published price
			p = [2]float64{0, 0}
		case !ok, count > 0 && !known, known && gpu == "":
			continue
		}
		row := Row{InstanceType: name, CPUs: s.cpus, MemoryGiB: s.memory, Price: p[0], Spot: p[1], Region: region, Generation: s.generation}
		if known && count > 0 {
			row.Accelerator, row.Count, row.DeviceMiB = gpu, count, deviceMiB(gpu)
			// The small sizes for visualization have a slice of a device, in step with their CPUs.
			if gpu == "A10" && s.cpus < 36 && strings.HasPrefix(name, "Standard_NV") {
				row.Count = float64(int(s.cpus/36*1e3+0.5)) / 1e3
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func azureGPU(family string) (gpu string, known bool) {
	for _, f := range azureFamilies {
		if f.family.MatchString(family) {
			return f.gpu, true
		}
	}
	return "", false
}

var azureSource = Source{"azure", []string{"what sky check azure finds (or AZURE_ACCESS_TOKEN and AZURE_SUBSCRIPTION_ID)"}, func(env func(string) string) Fetcher {
	return Azure{API: API{Token: env("AZURE_ACCESS_TOKEN")}, Subscription: env("AZURE_SUBSCRIPTION_ID"), Regions: words(env("AZURE_REGIONS"))}
}}
