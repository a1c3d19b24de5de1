package fetch

import (
	"context"
	"fmt"
	"math"
	"strings"
)

// OCI multiplies Oracle's public unit prices, the same everywhere, with the
// shapes that sky uses.
type OCI struct {
	API
	// Domains are the availability domains by region.
	Domains map[string][]string
}

type ociShape struct {
	name         string
	cpus, memory float64 // vCPUs, GB
	gpu          string
	gpus         float64
	words        string // of the price per GPU
}

var ociGPUs = []ociShape{
	{"VM.GPU2.1", 24, 72, "P100", 1, "gpu - x7"},
	{"BM.GPU2.2", 56, 192, "P100", 2, "gpu - x7"},
	{"VM.GPU3.1", 12, 90, "V100", 1, "gpu - v2"},
	{"VM.GPU3.2", 24, 180, "V100", 2, "gpu - v2"},
	{"VM.GPU3.4", 48, 360, "V100", 4, "gpu - v2"},
	{"BM.GPU3.8", 104, 768, "V100", 8, "gpu - v2"},
	{"BM.GPU4.8", 128, 2048, "A100", 8, "gpu - e3"},
	{"BM.GPU.A100-v2.8", 256, 2048, "A100-80GB", 8, "gpu - a100 - v2"},
	{"VM.GPU.A10.1", 30, 240, "A10", 1, "gpu - a10"},
	{"VM.GPU.A10.2", 60, 480, "A10", 2, "gpu - a10"},
	{"BM.GPU.A10.4", 128, 1024, "A10", 4, "gpu - a10"},
	{"BM.GPU.L40S.4", 224, 1024, "L40S", 4, "gpu - l40s"},
	{"BM.GPU.H100.8", 224, 2048, "H100", 8, "gpu - h100"},
	{"BM.GPU.H200.8", 224, 3072, "H200", 8, "gpu - h200"},
	{"BM.GPU.MI300X.8", 224, 2048, "MI300X", 8, "gpu - mi300x"},
	{"BM.GPU.B200.8", 256, 4096, "B200", 8, "gpu - b200"},
}

// ociFlexible are the families whose size is free, and the sizes sky offers.
var ociFlexible = []string{"E4", "E5"}

var ociSizes = [][2]float64{{2, 8}, {2, 16}, {4, 16}, {4, 32}, {8, 32}, {8, 64}, {16, 64}, {16, 128}, {32, 128}, {32, 256}, {64, 256}, {64, 512}, {128, 512}, {128, 1024}}

// Rows asks the public price list.
func (o OCI) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		Items []struct {
			Name       string `json:"displayName"`
			Metric     string `json:"metricName"`
			Currencies []struct {
				Code   string `json:"currencyCode"`
				Prices []struct {
					Model string  `json:"model"`
					Value float64 `json:"value"`
				} `json:"prices"`
			} `json:"currencyCodeLocalizations"`
		} `json:"items"`
	}
	if err := o.json(ctx, o.url("https://apexapps.oracle.com", "/pls/apex/cetools/api/v1/products/?currencyCode=USD"), nil, &answer); err != nil {
		return nil, err
	}
	units := map[string]float64{}
	for _, i := range answer.Items {
		for _, c := range i.Currencies {
			for _, p := range c.Prices {
				if c.Code == "USD" && p.Model == "PAY_AS_YOU_GO" && p.Value > 0 {
					units[ociWords(i.Name)] = p.Value
				}
			}
		}
	}
	var rows []Row
	for _, f := range ociFlexible {
		cpu, memory := unitOf(units, "standard - "+strings.ToLower(f)+" - ocpu"), unitOf(units, "standard - "+strings.ToLower(f)+" - memory")
		for _, s := range ociSizes {
			row := Row{InstanceType: fmt.Sprintf("VM.Standard.%s.Flex$_%v_%v", f, s[0], s[1]), CPUs: s[0], MemoryGiB: s[1], Price: cpu*s[0]/2 + memory*s[1]}
			row.Spot = row.Price / 2
			rows = append(rows, o.everywhere(row)...)
		}
	}
	for _, s := range ociGPUs {
		row := Row{InstanceType: s.name, Accelerator: s.gpu, Count: s.gpus, CPUs: s.cpus, MemoryGiB: s.memory, DeviceMiB: deviceMiB(s.gpu),
			Price: unitOf(units, s.words) * s.gpus, Spot: none}
		if strings.HasPrefix(s.name, "VM.") {
			row.Spot = row.Price / 2
		}
		rows = append(rows, o.everywhere(row)...)
	}
	return rows, nil
}

// ociWords drops what all names begin with: "Oracle Cloud Infrastructure -
// Compute - GPU - A10" is "gpu - a10".
func ociWords(name string) string {
	name = strings.ToLower(name)
	if _, rest, ok := strings.Cut(name, "compute - "); ok {
		name = rest
	}
	return strings.TrimPrefix(name, "virtual machine ")
}

func unitOf(units map[string]float64, words string) float64 {
	if p, ok := units[words]; ok {
		return p
	}
	return none
}

func (o OCI) everywhere(row Row) []Row {
	if math.IsNaN(row.Price) {
		return nil
	}
	var rows []Row
	for region, domains := range o.Domains {
		for _, d := range domains {
			row.Region, row.Zone = region, d
			rows = append(rows, row)
		}
	}
	return rows
}

// ociDomains reads us-phoenix-1/PHX-AD-1,us-ashburn-1/US-ASHBURN-AD-1.
func ociDomains(list string) map[string][]string {
	domains := map[string][]string{}
	for _, w := range words(list) {
		region, domain, _ := strings.Cut(w, "/")
		domains[region] = append(domains[region], domain)
	}
	return domains
}

var ociSource = Source{"oci", []string{"OCI_DOMAINS"}, func(env func(string) string) Fetcher {
	return OCI{Domains: ociDomains(env("OCI_DOMAINS"))}
}}
