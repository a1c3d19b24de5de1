package fetch

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// RunPod fetches RunPod's GPU types, secure cloud only.
type RunPod struct {
	API
	// Zones are data centers by country; nil: the countries alone.
	Zones map[string][]string
	// Names adds or changes accelerator names by RunPod's device id.
	Names map[string]string
}

// runpodNames are the ids whose accelerator name does not follow from the text.
var runpodNames = map[string]string{
	"AMD Instinct MI300X OAM": "MI300X", "NVIDIA A100 80GB PCIe": "A100-80GB", "NVIDIA A100-SXM4-80GB": "A100-80GB-SXM",
	"NVIDIA H100 PCIe": "H100", "NVIDIA H100 80GB HBM3": "H100-SXM", "NVIDIA H100 NVL": "H100-NVL", "NVIDIA H200": "H200-SXM",
	"NVIDIA RTX 4000 SFF Ada Generation": "RTX4000-Ada-SFF", "NVIDIA RTX PRO 4500 Blackwell": "RTXPRO4500",
	"NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTXPRO6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTXPRO6000-WK",
	"Tesla V100-FHHL-16GB": "V100-16GB-FHHL", "Tesla V100-SXM2-16GB": "V100-16GB-SXM2", "Tesla V100-SXM2-32GB": "V100-32GB-SXM2", "Tesla V100-PCIE-16GB": "V100-16GB-PCIe",
}

// name gives the accelerator name of a device id. Ids that nobody has seen yet
// are shortened by rule instead of being dropped.
func (r RunPod) name(id string) string {
	if n := r.Names[id]; n != "" {
		return n
	}
	if n := runpodNames[id]; n != "" {
		return n
	}
	n := strings.NewReplacer("NVIDIA ", "", "GeForce ", "", " Ada Generation", "-Ada").Replace(id)
	return strings.ReplaceAll(n, " ", "")
}

var runpodCountries = []string{"CA", "CZ", "IS", "NL", "NO", "RO", "SE", "US"}

const runpodQuery = `query gpuTypes { gpuTypes { id displayName memoryInGb secureCloud securePrice secureSpotPrice maxGpuCountSecureCloud
 lowestPrice(input: {gpuCount: 1, secureCloud: true}) { minVcpu minMemory } } }`

// Rows asks the GraphQL API for gpuTypes.
func (r RunPod) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		Data struct {
			GPUTypes []struct {
				ID        string  `json:"id"`
				MemoryGB  float64 `json:"memoryInGb"`
				Secure    bool    `json:"secureCloud"`
				Price     float64 `json:"securePrice"`
				SpotPrice float64 `json:"secureSpotPrice"`
				MaxCount  int     `json:"maxGpuCountSecureCloud"`
				Lowest    struct {
					VCPU   float64 `json:"minVcpu"`
					Memory float64 `json:"minMemory"`
				} `json:"lowestPrice"`
			} `json:"gpuTypes"`
		} `json:"data"`
		Errors []struct{ Message string } `json:"errors"`
	}
	if err := r.json(ctx, r.url("https://api.runpod.io", "/graphql"), map[string]string{"query": runpodQuery}, &answer, r.bearer()...); err != nil {
		return nil, err
	}
	if len(answer.Errors) > 0 {
		return nil, errors.New("RunPod: " + answer.Errors[0].Message)
	}
	var rows []Row
	for _, g := range answer.Data.GPUTypes {
		if !g.Secure || g.Price == 0 || g.ID == "unknown" {
			continue
		}
		name := r.name(g.ID)
		for n := 1; n <= max(g.MaxCount, 1); n *= 2 {
			count := float64(n)
			row := Row{InstanceType: fmt.Sprintf("%dx_%s_SECURE", n, name), Accelerator: name, Count: count, CPUs: g.Lowest.VCPU * count,
				MemoryGiB: g.Lowest.Memory * count, DeviceMiB: g.MemoryGB * 1024, Price: g.Price * count, Spot: none}
			if g.SpotPrice > 0 {
				row.Spot = g.SpotPrice * count
			}
			rows = append(rows, r.everywhere(row)...)
		}
	}
	return rows, nil
}

func (r RunPod) everywhere(row Row) []Row {
	var rows []Row
	if r.Zones == nil {
		for _, country := range runpodCountries {
			row.Region = country
			rows = append(rows, row)
		}
	}
	for country, zones := range r.Zones {
		for _, z := range zones {
			row.Region, row.Zone = country, z
			rows = append(rows, row)
		}
	}
	return rows
}

var runpodSource = Source{"runpod", []string{"RUNPOD_API_KEY"}, func(env func(string) string) Fetcher {
	return RunPod{API: API{Token: env("RUNPOD_API_KEY")}}
}}
