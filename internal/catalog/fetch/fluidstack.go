package fetch

import (
	"context"
	"encoding/json"
	"fmt"
)

// FluidStack fetches what FluidStack can configure at the moment.
type FluidStack struct{ API }

var fluidstackNames = map[string]string{
	"H100_PCIE_80GB": "H100", "H100_NVLINK_80GB": "H100-NVLINK", "H100_SXM5_80GB": "H100-SXM",
	"A100_NVLINK_80GB": "A100-80GB-NVLINK", "A100_SXM4_80GB": "A100-80GB-SXM", "A100_PCIE_80GB": "A100-80GB", "A100_SXM4_40GB": "A100", "A100_PCIE_40GB": "A100",
	"Tesla_V100_SXM2_16GB": "V100", "Tesla_V100_PCIE_16GB": "V100", "A10_PCIE_24GB": "A10", "A30_24GB": "A30", "A40_48GB": "A40",
	"RTX_A6000_48GB": "RTXA6000", "RTX_A5000_24GB": "RTXA5000", "RTX_A4000_16GB": "RTXA4000",
	"Quadro_RTX_5000_16GB": "RTX5000", "Quadro_RTX_4000_8GB": "RTX4000", "Quadro_RTX_6000_16GB": "RTX6000", "L40_48GB": "L40", "T4_16GB": "T4", "RTX_3090_24GB": "RTX3090",
}

// fluidstackRegion is an id, or an object that has one.
type fluidstackRegion string

func (r *fluidstackRegion) UnmarshalJSON(text []byte) error {
	var object struct{ ID, Name string }
	if json.Unmarshal(text, (*string)(r)) == nil {
		return nil
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	*r = fluidstackRegion(object.ID)
	if object.ID == "" {
		*r = fluidstackRegion(object.Name)
	}
	return nil
}

// Rows asks GET /list_available_configurations.
func (f FluidStack) Rows(ctx context.Context) ([]Row, error) {
	var answer []struct {
		GPU       string             `json:"gpu_type"`
		Counts    []float64          `json:"gpu_counts"`
		Price     looseNumber        `json:"price_per_gpu_hr"`
		Regions   []fluidstackRegion `json:"regions"`
		CPUsPer   float64            `json:"min_cpu_count_per_gpu"`
		MemoryPer float64            `json:"min_memory_per_gpu"`
	}
	if err := f.json(ctx, f.url("https://platform.fluidstack.io", "/list_available_configurations"), nil, &answer, "api-key", f.Token); err != nil {
		return nil, err
	}
	var rows []Row
	for _, c := range answer {
		name := fluidstackNames[c.GPU]
		if name == "" {
			name = c.GPU
		}
		for _, n := range c.Counts {
			row := Row{InstanceType: fmt.Sprintf("%s::%v", c.GPU, n), Accelerator: name, Count: n, CPUs: c.CPUsPer * n, MemoryGiB: c.MemoryPer * n,
				DeviceMiB: deviceMiB(name), Price: float64(c.Price) * n, Spot: none}
			for _, r := range c.Regions {
				row.Region = string(r)
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

var fluidstackSource = Source{"fluidstack", []string{"FLUIDSTACK_API_KEY"}, func(env func(string) string) Fetcher {
	return FluidStack{API{Token: env("FLUIDSTACK_API_KEY")}}
}}
