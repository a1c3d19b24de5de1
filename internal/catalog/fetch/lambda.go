package fetch

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Lambda fetches Lambda's instance types. They cost the same in every region.
type Lambda struct {
	API
	Regions []string // nil: those that have capacity of anything at the moment
}

var lambdaGPU = lazyregexp.New(`^gpu_(\d+)x_([a-z0-9]+)(.*)$`)

// Rows asks GET /instance-types.
func (l Lambda) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		Data map[string]struct {
			InstanceType struct {
				Name  string  `json:"name"`
				Cents float64 `json:"price_cents_per_hour"`
				Specs struct {
					VCPUs     float64 `json:"vcpus"`
					MemoryGiB float64 `json:"memory_gib"`
					GPUs      float64 `json:"gpus"`
				} `json:"specs"`
			} `json:"instance_type"`
			Regions []struct {
				Name string `json:"name"`
			} `json:"regions_with_capacity_available"`
		} `json:"data"`
	}
	if err := l.json(ctx, l.url("https://cloud.lambdalabs.com/api/v1", "/instance-types"), nil, &answer, l.bearer()...); err != nil {
		return nil, err
	}
	regions := slices.Clone(l.Regions)
	if regions == nil {
		seen := map[string]bool{}
		for _, d := range answer.Data {
			for _, r := range d.Regions {
				seen[r.Name] = true
			}
		}
		regions = slices.Sorted(maps.Keys(seen))
	}
	var rows []Row
	for _, name := range slices.Sorted(maps.Keys(answer.Data)) {
		t := answer.Data[name].InstanceType
		row := Row{InstanceType: t.Name, CPUs: t.Specs.VCPUs, MemoryGiB: t.Specs.MemoryGiB, Price: t.Cents / 100, Spot: none}
		row.Accelerator, row.Count = lambdaAccelerator(t.Name)
		row.DeviceMiB = deviceMiB(row.Accelerator)
		for _, r := range regions {
			row.Region = r
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// lambdaAccelerator reads "gpu_8x_a100_80gb_sxm4".
func lambdaAccelerator(instance string) (name string, count float64) {
	m := lambdaGPU.FindStringSubmatch(instance)
	if m == nil {
		return "", 0
	}
	count, _ = strconv.ParseFloat(m[1], 64)
	name = strings.ToUpper(m[2])
	if name == "A100" && strings.Contains(m[3], "_80gb") {
		name = "A100-80GB"
	}
	return name, count
}

var lambdaSource = Source{"lambda", []string{"LAMBDA_API_KEY"}, func(env func(string) string) Fetcher {
	return Lambda{API: API{Token: env("LAMBDA_API_KEY")}}
}}
