package fetch

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Azure fetches retail prices, which are public, and the sizes a subscription
// may use, for which Token is an access token of the management API.
type Azure struct {
	API           // BaseURL is that of the retail prices
	ManagementURL string
	Subscription  string
	Regions       []string
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
			if strings.HasSuffix(p.ProductName, " Windows") || strings.Contains(p.ProductName, " Win") || strings.Contains(p.ProductName, "Cloud Services") ||
				strings.HasSuffix(p.SkuName, "Low Priority") || p.ArmSkuName == "" {
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
	base := strings.TrimSuffix(a.ManagementURL, "/")
	if base == "" {
		base = "https://management.azure.com"
	}
	next := fmt.Sprintf("%s/subscriptions/%s/providers/Microsoft.Compute/skus?api-version=2021-07-01&$filter=%s", base, a.Subscription, url.QueryEscape("location eq '"+region+"'"))
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
			size := azureSize{family: strings.ToLower(s.Family)}
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
	{lazyregexp.New(`^standardnvadsa10v5family$`), "A10"},
	{lazyregexp.New(`^standard(ncadsh100v5|ndsh100v5|ndsrh100v5)family$`), "H100"},
	{lazyregexp.New(`^standardnds?r?h200v5family$`), "H200"},
	{lazyregexp.New(`^standardndmi300xv5family$`), "MI300X"},
}

func azureRows(region string, sizes map[string]azureSize, prices map[string][2]float64) []Row {
	var rows []Row
	for name, s := range sizes {
		p, ok := prices[name]
		if !ok {
			continue
		}
		row := Row{InstanceType: name, CPUs: s.cpus, MemoryGiB: s.memory, Price: p[0], Spot: p[1], Region: region, Generation: s.generation}
		if s.gpus > 0 || strings.HasPrefix(name, "Standard_NV") && strings.Contains(name, "ads_A10") {
			gpu, known := azureGPU(s.family)
			if !known || gpu == "" {
				continue
			}
			row.Accelerator, row.Count, row.DeviceMiB = gpu, s.gpus, deviceMiB(gpu)
			// The small A10 sizes have a slice of a device, in step with their CPUs.
			if gpu == "A10" && s.cpus < 36 {
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

var azureSource = Source{"azure", []string{"AZURE_ACCESS_TOKEN", "AZURE_SUBSCRIPTION_ID"}, func(env func(string) string) Fetcher {
	return Azure{API: API{Token: env("AZURE_ACCESS_TOKEN")}, Subscription: env("AZURE_SUBSCRIPTION_ID"), Regions: words(env("AZURE_REGIONS"))}
}}
