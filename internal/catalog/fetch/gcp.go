package fetch

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// GCP fetches machine types, accelerators and TPUs of a project, and multiplies
// their sizes with the unit prices of the billing catalog. Token is an access
// token; BaseURL is that of the compute API.
type GCP struct {
	API
	Project    string
	BillingURL string
	TPUURL     string
}

const (
	gcpCompute = "https://compute.googleapis.com/compute/v1"
	gcpBilling = "https://cloudbilling.googleapis.com/v1"
	gcpTPU     = "https://tpu.googleapis.com/v2"
	gceService = "6F81-5844-456A"
	tpuService = "E000-3F24-B8AA"
)

// unitPrice is what one vCPU, GB, GPU or TPU chip costs per hour.
type unitPrice struct {
	words   string // description, lower case
	spot    bool
	regions []string
	price   float64
}

// Rows lists hosts, GPUs and TPUs by zone. Google prices hosts and accelerators
// apart, and so does the list.
func (g GCP) Rows(ctx context.Context) ([]Row, error) {
	units, err := g.units(ctx, gceService)
	if err != nil {
		return nil, err
	}
	rows, zones, err := g.machines(ctx, units)
	if err != nil {
		return nil, err
	}
	gpus, err := g.gpus(ctx, units)
	if err != nil {
		return nil, err
	}
	tpuUnits, err := g.units(ctx, tpuService)
	if err != nil {
		return nil, err
	}
	tpus, err := g.tpus(ctx, zones, tpuUnits)
	return append(append(rows, gpus...), tpus...), err
}

// units reads the unit prices of a service, page by page.
func (g GCP) units(ctx context.Context, service string) ([]unitPrice, error) {
	base := strings.TrimSuffix(g.BillingURL, "/")
	if base == "" {
		base = gcpBilling
	}
	var out []unitPrice
	for token := ""; ; {
		var page struct {
			SKUs []struct {
				Description string `json:"description"`
				Category    struct {
					UsageType string `json:"usageType"`
				} `json:"category"`
				Regions []string `json:"serviceRegions"`
				Pricing []struct {
					Expression struct {
						Rates []struct {
							UnitPrice struct {
								Units string  `json:"units"`
								Nanos float64 `json:"nanos"`
							} `json:"unitPrice"`
						} `json:"tieredRates"`
					} `json:"pricingExpression"`
				} `json:"pricingInfo"`
			} `json:"skus"`
			Next string `json:"nextPageToken"`
		}
		if err := g.json(ctx, fmt.Sprintf("%s/services/%s/skus?pageSize=5000&pageToken=%s", base, service, token), nil, &page, g.bearer()...); err != nil {
			return nil, err
		}
		for _, s := range page.SKUs {
			if s.Category.UsageType != "OnDemand" && s.Category.UsageType != "Preemptible" || len(s.Pricing) == 0 {
				continue
			}
			rates := s.Pricing[len(s.Pricing)-1].Expression.Rates
			if len(rates) == 0 {
				continue
			}
			last := rates[len(rates)-1].UnitPrice
			whole, _ := strconv.ParseFloat(last.Units, 64)
			out = append(out, unitPrice{strings.ToLower(s.Description), s.Category.UsageType == "Preemptible", s.Regions, whole + last.Nanos/1e9})
		}
		if token = page.Next; token == "" {
			return out, nil
		}
	}
}

// find gives the price of the unit whose description begins with the words
// (after "Spot Preemptible"), in a region; NaN if there is none.
func find(units []unitPrice, words, region string, spot bool) float64 {
	for i := range units {
		u := &units[i]
		text := strings.TrimPrefix(strings.TrimPrefix(u.words, "spot "), "preemptible ")
		if u.spot == spot && strings.HasPrefix(text, words) && slices.Contains(u.regions, region) {
			return u.price
		}
	}
	return none
}

// gcpSeries are the words that the unit prices of a series begin with, for
// vCPUs and memory, where they are not "<series> instance core" and "… ram".
var gcpSeries = map[string][2]string{
	"n1": {"n1 predefined instance core", "n1 predefined instance ram"},
	"c2": {"compute optimized core", "compute optimized ram"},
	"m1": {"memory-optimized instance core", "memory-optimized instance ram"},
	"m2": {"memory-optimized instance core", "memory-optimized instance ram"},
	"a3": {"a3 instance core", "a3 instance ram"},
	"a4": {"", ""}, // all in the price of its GPUs
}

func gcpPrice(units []unitPrice, series, region string, cpus, memory float64, spot bool) float64 {
	words, ok := gcpSeries[series]
	if !ok {
		words = [2]string{series + " instance core", series + " instance ram"}
	}
	if words[0] == "" {
		return 0
	}
	return round5(find(units, words[0], region, spot)*cpus + find(units, words[1], region, spot)*memory)
}

func round5(x float64) float64 { return math.Round(x*1e5) / 1e5 }

// machines lists the machine types of all zones.
func (g GCP) machines(ctx context.Context, units []unitPrice) (rows []Row, zones []string, err error) {
	for token := ""; ; {
		var page struct {
			Items map[string]struct {
				Types []struct {
					Name     string  `json:"name"`
					CPUs     float64 `json:"guestCpus"`
					MemoryMB float64 `json:"memoryMb"`
				} `json:"machineTypes"`
			} `json:"items"`
			Next string `json:"nextPageToken"`
		}
		url := g.url(gcpCompute, fmt.Sprintf("/projects/%s/aggregated/machineTypes?maxResults=500&pageToken=%s", g.Project, token))
		if err := g.json(ctx, url, nil, &page, g.bearer()...); err != nil {
			return nil, nil, err
		}
		for scope, in := range page.Items {
			zone := strings.TrimPrefix(scope, "zones/")
			region := gcpRegion(zone)
			if len(in.Types) > 0 && !slices.Contains(zones, zone) {
				zones = append(zones, zone)
			}
			for _, m := range in.Types {
				series, _, _ := strings.Cut(m.Name, "-")
				memory := m.MemoryMB / 1024
				row := Row{InstanceType: m.Name, CPUs: m.CPUs, MemoryGiB: memory, Region: region, Zone: zone,
					Price: gcpPrice(units, series, region, m.CPUs, memory, false), Spot: gcpPrice(units, series, region, m.CPUs, memory, true)}
				if !math.IsNaN(row.Price) || !math.IsNaN(row.Spot) {
					rows = append(rows, row)
				}
			}
		}
		if token = page.Next; token == "" {
			slices.Sort(zones)
			return rows, zones, nil
		}
	}
}

func gcpRegion(zone string) string {
	if i := strings.LastIndexByte(zone, '-'); i > 0 {
		return zone[:i]
	}
	return zone
}

// gcpGPUs are the accelerator types, our names, and the words of their price.
var gcpGPUs = map[string]struct {
	name, words string
	counts      []float64
}{
	"nvidia-tesla-k80":      {"K80", "nvidia tesla k80 gpu", nil},
	"nvidia-tesla-p4":       {"P4", "nvidia tesla p4 gpu", nil},
	"nvidia-tesla-p100":     {"P100", "nvidia tesla p100 gpu", nil},
	"nvidia-tesla-v100":     {"V100", "nvidia tesla v100 gpu", nil},
	"nvidia-tesla-t4":       {"T4", "nvidia tesla t4 gpu", nil},
	"nvidia-tesla-a100":     {"A100", "nvidia tesla a100 gpu", []float64{1, 2, 4, 8, 16}},
	"nvidia-a100-80gb":      {"A100-80GB", "nvidia tesla a100 80gb gpu", nil},
	"nvidia-l4":             {"L4", "nvidia l4 gpu", nil},
	"nvidia-h100-80gb":      {"H100", "nvidia h100 80gb gpu", nil},
	"nvidia-h100-mega-80gb": {"H100-MEGA", "nvidia h100 80gb mega gpu", []float64{8}},
	"nvidia-h200-141gb":     {"H200", "nvidia h200 141gb gpu", []float64{8}},
	"nvidia-b200":           {"B200", "nvidia b200 gpu", []float64{8}},
}

// gpus lists the accelerators of all zones.
func (g GCP) gpus(ctx context.Context, units []unitPrice) ([]Row, error) {
	var rows []Row
	for token := ""; ; {
		var page struct {
			Items map[string]struct {
				Types []struct {
					Name string  `json:"name"`
					Max  float64 `json:"maximumCardsPerInstance"`
				} `json:"acceleratorTypes"`
			} `json:"items"`
			Next string `json:"nextPageToken"`
		}
		url := g.url(gcpCompute, fmt.Sprintf("/projects/%s/aggregated/acceleratorTypes?maxResults=500&pageToken=%s", g.Project, token))
		if err := g.json(ctx, url, nil, &page, g.bearer()...); err != nil {
			return nil, err
		}
		for scope, in := range page.Items {
			zone := strings.TrimPrefix(scope, "zones/")
			for _, a := range in.Types {
				rows = append(rows, gpuRows(units, a.Name, a.Max, zone)...)
			}
		}
		if token = page.Next; token == "" {
			return rows, nil
		}
	}
}

func gpuRows(units []unitPrice, kind string, most float64, zone string) []Row {
	gpu, known := gcpGPUs[kind]
	if !known {
		return nil
	}
	region := gcpRegion(zone)
	one, spot := find(units, gpu.words, region, false), find(units, gpu.words, region, true)
	if math.IsNaN(one) && math.IsNaN(spot) {
		return nil
	}
	counts := gpu.counts
	if counts == nil {
		for n := 1.0; n <= most; n *= 2 {
			counts = append(counts, n)
		}
	}
	var rows []Row
	for _, n := range counts {
		rows = append(rows, Row{Accelerator: gpu.name, Count: n, DeviceMiB: deviceMiB(gpu.name), Region: region, Zone: zone, Price: round5(one * n), Spot: round5(spot * n)})
	}
	return rows
}

var tpuType = lazyregexp.New(`^(v\d+[a-z]*)-(\d+)$`)

// tpuUnit is how many of the cores or chips in a slice's name one unit of its
// price buys.
var tpuUnit = map[string]float64{"v2": 8, "v3": 8, "v4": 8, "v5p": 2, "v5litepod": 1, "v6e": 1}

// tpuWords are what the description of a generation's price holds; slices of
// more than one host are "pods".
var tpuWords = map[string]string{"v2": "tpu-v2", "v3": "tpu-v3", "v4": "tpu-v4", "v5p": "tpu-v5p", "v5litepod": "tpu-v5e", "v6e": "tpu-v6e"}

// tpus asks every zone for its slices.
func (g GCP) tpus(ctx context.Context, zones []string, units []unitPrice) ([]Row, error) {
	base := strings.TrimSuffix(g.TPUURL, "/")
	if base == "" {
		base = gcpTPU
	}
	var rows []Row
	for _, zone := range zones {
		var answer struct {
			Types []struct {
				Type string `json:"type"`
			} `json:"acceleratorTypes"`
		}
		if err := g.json(ctx, fmt.Sprintf("%s/projects/%s/locations/%s/acceleratorTypes?pageSize=500", base, g.Project, zone), nil, &answer, g.bearer()...); err != nil {
			if strings.Contains(err.Error(), " 403 ") || strings.Contains(err.Error(), " 404 ") {
				continue // a zone without TPUs
			}
			return nil, err
		}
		for _, t := range answer.Types {
			if row, ok := tpuRow(units, t.Type, zone); ok {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

func tpuRow(units []unitPrice, kind, zone string) (Row, bool) {
	m := tpuType.FindStringSubmatch(kind)
	if m == nil || tpuUnit[m[1]] == 0 {
		return Row{}, false
	}
	size, _ := strconv.ParseFloat(m[2], 64)
	region := gcpRegion(zone)
	pod := (m[1] == "v2" || m[1] == "v3") && size > 8
	n := size / tpuUnit[m[1]]
	row := Row{Accelerator: "tpu-" + kind, Count: 1, Region: region, Zone: zone,
		Price: round5(findTPU(units, tpuWords[m[1]], region, pod, false) * n), Spot: round5(findTPU(units, tpuWords[m[1]], region, pod, true) * n)}
	return row, !math.IsNaN(row.Price) || !math.IsNaN(row.Spot)
}

func findTPU(units []unitPrice, words, region string, pod, spot bool) float64 {
	for i := range units {
		u := &units[i]
		if u.spot == spot && strings.Contains(u.words, words) && strings.Contains(u.words, "pod") == pod && slices.Contains(u.regions, region) {
			return u.price
		}
	}
	return none
}

var gcpSource = Source{"gcp", []string{"GCP_ACCESS_TOKEN", "GCP_PROJECT"}, func(env func(string) string) Fetcher {
	return GCP{API: API{Token: env("GCP_ACCESS_TOKEN")}, Project: env("GCP_PROJECT")}
}}
