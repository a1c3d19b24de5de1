package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/googleauth"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// GCP fetches machine types, accelerators and TPUs of a project, and multiplies
// their sizes with the unit prices of the billing catalog. Token is an access
// token; without one the user's credentials are looked for. BaseURL is that of the
// compute API.
type GCP struct {
	API
	Project    string
	BillingURL string
	TPUURL     string

	payer string // the project that calls besides those to Compute Engine count for; "": the credentials' own
}

// headers are for calls that are not to Compute Engine. Those of a user count for the tool
// that the user logged in with, which Google refuses, if no project is named.
func (g GCP) headers() []string {
	if g.payer == "" {
		return g.bearer()
	}
	return append(g.bearer(), "X-Goog-User-Project", g.payer)
}

// login finds the credentials and the project, as sky check gcp does, if none are given,
// and another endpoint.
func (g GCP) login(ctx context.Context) (GCP, error) {
	elsewhere, err := vm.Endpoint("gcp", "")
	if err != nil {
		return g, err
	}
	if elsewhere != "" && g.BaseURL == "" {
		g.BaseURL, g.BillingURL, g.TPUURL = elsewhere+"/compute/v1", elsewhere+"/v1", elsewhere+"/v2"
	}
	g.Project = cmp.Or(g.Project, googleauth.EnvironmentProject())
	if g.Token == "" {
		creds, err := googleauth.Find(ctx, nil, googleauth.Scope)
		if err != nil {
			return g, fmt.Errorf("%w; run: %s", err, googleauth.Fix)
		}
		token, err := creds.Token(ctx)
		if err != nil {
			return g, fmt.Errorf("%w; run: %s", err, googleauth.Fix)
		}
		g.Token, g.Project = token.AccessToken, cmp.Or(g.Project, creds.Project, googleauth.Active("project"))
		if creds.Kind == googleauth.User {
			g.payer = cmp.Or(creds.QuotaProject, g.Project)
		}
	}
	if g.Project == "" {
		return g, errors.New("there is no project; set GOOGLE_CLOUD_PROJECT, or run: gcloud config set project PROJECT")
	}
	return g, nil
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
	g, err := g.login(ctx)
	if err != nil {
		return nil, err
	}
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
	tpus, err := g.tpus(ctx, zones, append(units, tpuUnits...)) // those of v5 and later are among the machines
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
		if err := g.json(ctx, fmt.Sprintf("%s/services/%s/skus?pageSize=5000&pageToken=%s", base, service, token), nil, &page, g.headers()...); err != nil {
			return nil, err
		}
		for _, s := range page.SKUs {
			words := strings.ToLower(s.Description)
			if s.Category.UsageType != "OnDemand" && s.Category.UsageType != "Preemptible" || len(s.Pricing) == 0 || slices.ContainsFunc(gcpOther, func(w string) bool { return strings.Contains(words, w) }) {
				continue
			}
			rates := s.Pricing[len(s.Pricing)-1].Expression.Rates
			if len(rates) == 0 {
				continue
			}
			last := rates[len(rates)-1].UnitPrice
			whole, _ := strconv.ParseFloat(last.Units, 64)
			out = append(out, unitPrice{words, s.Category.UsageType == "Preemptible", s.Regions, whole + last.Nanos/1e9})
		}
		if token = page.Next; token == "" {
			return out, nil
		}
	}
}

// gcpOther are words of prices for what is rented in other ways.
var gcpOther = []string{"custom", "premium", "reserved", "sole tenancy"}

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

// gcpSeries are the words that the unit prices of a series begin with, before "core" and
// "ram", where they are not "<series> instance" with or without the maker of its CPUs.
var gcpSeries = map[string]string{
	"n1": "n1 predefined instance",
	"c2": "compute optimized",
	"m1": "memory-optimized instance",
	"m3": "m3 memory-optimized instance",
}

// gcpWhole are the words of prices of whole machines.
var gcpWhole = map[string]string{"f1": "micro instance with burstable cpu", "g1": "small instance with 1 vcpu"}

// gcpUnknown are series whose price is not the sum of their parts. m2 costs a premium
// beside the parts of m1.
var gcpUnknown = map[string]bool{"m2": true}

func gcpPrice(units []unitPrice, series, region string, cpus, memory float64, spot bool) float64 {
	switch whole := gcpWhole[series]; {
	case series == "a4": // all is in the price of its GPUs
		return 0
	case gcpUnknown[series]:
		return none
	case whole != "":
		return round5(find(units, whole, region, spot))
	}
	names := []string{series + " instance", series + " amd instance", series + " arm instance", series + " memory-optimized instance"}
	if name, ok := gcpSeries[series]; ok {
		names = []string{name}
	}
	for _, name := range names {
		if price := find(units, name+" core", region, spot)*cpus + find(units, name+" ram", region, spot)*memory; !math.IsNaN(price) {
			return round5(price)
		}
	}
	return none
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
			if zone == tpuOnlyZone { // its prices are in no list
				continue
			}
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

// gcpGPUs are the accelerator types, our names, and what the descriptions of their prices
// hold.
var gcpGPUs = map[string]struct {
	name   string
	words  []string
	counts []float64
}{
	"nvidia-tesla-k80":      {"K80", []string{"k80 gpu"}, nil},
	"nvidia-tesla-p4":       {"P4", []string{"p4 gpu"}, nil},
	"nvidia-tesla-p100":     {"P100", []string{"p100 gpu"}, nil},
	"nvidia-tesla-v100":     {"V100", []string{"v100 gpu"}, nil},
	"nvidia-tesla-t4":       {"T4", []string{"t4 gpu"}, nil},
	"nvidia-tesla-a100":     {"A100", []string{"a100 gpu"}, []float64{1, 2, 4, 8, 16}},
	"nvidia-a100-80gb":      {"A100-80GB", []string{"a100 80gb gpu"}, nil},
	"nvidia-l4":             {"L4", []string{"l4 gpu"}, nil},
	"nvidia-h100-80gb":      {"H100", []string{"h100 80gb gpu"}, nil},
	"nvidia-h100-mega-80gb": {"H100-MEGA", []string{"h100 80gb mega gpu", "h100 mega 80gb gpu", "h100 80gb plus gpu"}, []float64{8}},
	"nvidia-h200-141gb":     {"H200", []string{"h200 141gb gpu"}, []float64{8}},
	"nvidia-b200":           {"B200", []string{"nvidia b200 (1 gpu slice)"}, []float64{8}},
}

// findGPU gives the price of the unit whose description holds one of the words.
func findGPU(units []unitPrice, words []string, region string, spot bool) float64 {
	for i := range units {
		u := &units[i]
		if u.spot == spot && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(" "+u.words, " "+w) }) && slices.Contains(u.regions, region) {
			return u.price
		}
	}
	return none
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
	one, spot := findGPU(units, gpu.words, region, false), findGPU(units, gpu.words, region, true)
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

// tpuWords are what the description of a generation's price holds.
var tpuWords = map[string]string{"v2": "tpu-v2", "v3": "tpu-v3", "v4": "tpu-v4", "v5p": "tpuv5p", "v5litepod": "tpuv5e", "v6e": "tpuv6e"}

const (
	// tpuOnlyZone has TPUs, and is in no list of zones of most projects.
	tpuOnlyZone = "us-central2-b"
	// tpuV6eMost is the price of slices of v6e where none is published: more than any costs,
	// so that places with a price come first.
	tpuV6eMost = 700
)

// tpus asks every zone for its slices.
func (g GCP) tpus(ctx context.Context, zones []string, units []unitPrice) ([]Row, error) {
	base := strings.TrimSuffix(g.TPUURL, "/")
	if base == "" {
		base = gcpTPU
	}
	var rows []Row
	for _, zone := range append(zones, tpuOnlyZone) {
		var answer struct {
			Types []struct {
				Type string `json:"type"`
			} `json:"acceleratorTypes"`
		}
		if err := g.json(ctx, fmt.Sprintf("%s/projects/%s/locations/%s/acceleratorTypes?pageSize=500", base, g.Project, zone), nil, &answer, g.headers()...); err != nil {
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
	// Slices of several machines are pods, and have prices of their own; all of v4 are.
	pod := (m[1] == "v2" || m[1] == "v3") && size > 8 || m[1] == "v4"
	price := func(spot bool) float64 {
		p := round5(findTPU(units, tpuWords[m[1]], region, pod, spot) * size / tpuUnit[m[1]])
		if math.IsNaN(p) && m[1] == "v6e" {
			return tpuV6eMost
		}
		return p
	}
	row := Row{Accelerator: "tpu-" + kind, Count: 1, Region: region, Zone: zone, Price: price(false), Spot: price(true)}
	return row, !math.IsNaN(row.Price) || !math.IsNaN(row.Spot)
}

// findTPU gives the price of a unit. Those of preemptible TPUs say so in their description
// only.
func findTPU(units []unitPrice, words, region string, pod, spot bool) float64 {
	for i := range units {
		u := &units[i]
		if strings.Contains(u.words, "preemptible") == spot && strings.Contains(u.words, words) && strings.Contains(u.words, "pod") == pod && slices.Contains(u.regions, region) {
			return u.price
		}
	}
	return none
}

var gcpSource = Source{"gcp", []string{"what sky check gcp finds (or GCP_ACCESS_TOKEN and GCP_PROJECT)"}, func(env func(string) string) Fetcher {
	return GCP{API: API{Token: env("GCP_ACCESS_TOKEN")}, Project: env("GCP_PROJECT")}
}}
