package fetch

import (
	"context"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Hyperbolic fetches what Hyperbolic's market has at the moment.
type Hyperbolic struct{ API }

// HyperbolicNode is a machine of the market, whose GPUs are let one by one. Its price is
// of one GPU, in cents.
type HyperbolicNode struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Total    int    `json:"gpus_total"`
	Reserved int    `json:"gpus_reserved"`
	Pricing  struct {
		Price struct {
			Amount float64 `json:"amount"`
		} `json:"price"`
	} `json:"pricing"`
	Hardware struct {
		CPUs []struct {
			Virtual float64 `json:"virtual_cores"`
		} `json:"cpus"`
		GPUs []struct {
			Model string  `json:"model"`
			MiB   float64 `json:"ram"`
		} `json:"gpus"`
		RAM []struct {
			GB float64 `json:"capacity"`
		} `json:"ram"`
	} `json:"hardware"`
}

// HyperbolicRegion stands for wherever a machine is: customers do not choose.
const HyperbolicRegion = "default"

// HyperbolicType is the type of so many GPUs of a model, as 2x-NVIDIA-H100-80GB-HBM3.
func HyperbolicType(count int, model string) string {
	return fmt.Sprintf("%dx-%s", count, strings.ReplaceAll(model, " ", "_"))
}

var hyperbolicNames = map[string]string{"RTX-A6000": "RTXA6000", "RTX-A5000": "RTXA5000", "RTX-A4000": "RTXA4000", "RTX-6000-Ada-Generation": "RTX6000-Ada"}

var hyperbolicForm = lazyregexp.New(`-(?:PCIe|SXM\d?|HBM\d?e?|\d+GB)\b`)

// hyperbolicGPU is the GPU that a model is.
func hyperbolicGPU(model string) string {
	name := strings.TrimPrefix(strings.ReplaceAll(strings.ReplaceAll(model, " ", "-"), "GeForce-", ""), "NVIDIA-")
	if strings.HasPrefix(name, "A100") && strings.Contains(name, "80GB") {
		return "A100-80GB"
	}
	if known := hyperbolicNames[name]; known != "" {
		return known
	}
	name = hyperbolicForm.ReplaceAllString(name, "")
	return strings.Replace(name, "RTX-", "RTX", 1)
}

// HyperbolicRows are the cheapest machines with so many GPUs that are free now.
func HyperbolicRows(nodes []HyperbolicNode) []Row {
	best := map[string]Row{}
	for _, n := range nodes {
		gpus := n.Hardware.GPUs
		if n.Status != "node_ready" || len(gpus) == 0 || n.Total < 1 {
			continue
		}
		cpus, memory := 0.0, 0.0
		for _, c := range n.Hardware.CPUs {
			cpus += c.Virtual
		}
		for _, m := range n.Hardware.RAM {
			memory += m.GB
		}
		for count := 1; count <= n.Total-n.Reserved; count *= 2 {
			share := float64(count) / float64(n.Total)
			row := Row{
				InstanceType: HyperbolicType(count, gpus[0].Model), Accelerator: hyperbolicGPU(gpus[0].Model), Count: float64(count), CPUs: float64(int(cpus * share)), MemoryGiB: float64(int(memory * share)),
				DeviceMiB: gpus[0].MiB, Price: n.Pricing.Price.Amount * float64(count) / 100, Spot: none, Region: HyperbolicRegion,
			}
			if other, ok := best[row.InstanceType]; !ok || row.Price < other.Price {
				best[row.InstanceType] = row
			}
		}
	}
	var rows []Row
	for _, row := range best {
		rows = append(rows, row)
	}
	return rows
}

// Rows asks POST /v1/marketplace.
func (h Hyperbolic) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		Nodes []HyperbolicNode `json:"instances"`
	}
	if err := h.json(ctx, h.url("https://api.hyperbolic.xyz", "/v1/marketplace"), map[string]any{"filters": map[string]any{}}, &answer, h.bearer()...); err != nil {
		return nil, err
	}
	return HyperbolicRows(answer.Nodes), nil
}

var hyperbolicSource = Source{"hyperbolic", []string{"HYPERBOLIC_API_KEY"}, func(env func(string) string) Fetcher {
	return Hyperbolic{API{Token: env("HYPERBOLIC_API_KEY")}}
}}
