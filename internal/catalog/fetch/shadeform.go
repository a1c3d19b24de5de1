package fetch

import (
	"context"
	"strings"
)

// Shadeform fetches what the clouds behind Shadeform have at the moment.
type Shadeform struct{ API }

// ShadeformType is a kind of machine of one of those clouds. Its price is in cents.
type ShadeformType struct {
	Cloud         string `json:"cloud"`
	Shade         string `json:"shade_instance_type"`
	Deployment    string `json:"deployment_type"`
	Configuration struct {
		Memory float64  `json:"memory_in_gb"`
		Disk   int      `json:"storage_in_gb"`
		CPUs   float64  `json:"vcpus"`
		GPUs   float64  `json:"num_gpus"`
		GPU    string   `json:"gpu_type"`
		VRAM   float64  `json:"vram_per_gpu_in_gb"`
		OS     []string `json:"os_options"`
	} `json:"configuration"`
	Cents        float64 `json:"hourly_price"`
	Availability []struct {
		Region    string      `json:"region"`
		Available bool        `json:"available"`
		Rental    string      `json:"rental_type"`
		Price     looseNumber `json:"hourly_price"` // of spot machines, in $
	} `json:"availability"`
}

// Name is what the kind is called in price lists.
func (t ShadeformType) Name() string { return t.Cloud + "_" + t.Shade }

// Price is what an hour in a region costs now; false: there is no such machine now.
func (t ShadeformType) Price(region string, spot bool) (price float64, ok bool) {
	for _, a := range t.Availability {
		if a.Region != region || !a.Available || spot != (a.Rental == "spot") {
			continue
		}
		if spot {
			return float64(a.Price), true
		}
		return t.Cents / 100, true
	}
	return 0, false
}

// In reports whether there are such machines in a region, now or at another time.
func (t ShadeformType) In(region string) bool {
	for _, a := range t.Availability {
		if a.Region == region {
			return true
		}
	}
	return false
}

var shadeformNames = map[string]string{"A100_80G": "A100-80GB", "A6000": "RTXA6000", "A5000": "RTXA5000", "A4000": "RTXA4000", "RTX6000Ada": "RTX6000-Ada", "RTX4000Ada": "RTX4000-Ada"}

// ShadeformRows are the kinds in the regions that have them now. Containers are none:
// they are no machines that a node could be.
func ShadeformRows(types []ShadeformType) []Row {
	var rows []Row
	for _, t := range types {
		if t.Deployment == "container" {
			continue
		}
		c := t.Configuration
		row := Row{InstanceType: t.Name(), Count: c.GPUs, CPUs: c.CPUs, MemoryGiB: c.Memory, DeviceMiB: c.VRAM * 1024}
		if c.GPUs > 0 {
			if row.Accelerator = shadeformNames[c.GPU]; row.Accelerator == "" {
				row.Accelerator = strings.ReplaceAll(c.GPU, "_", "-")
			}
		}
		seen := map[string]bool{}
		for _, a := range t.Availability {
			if seen[a.Region] {
				continue
			}
			seen[a.Region] = true
			row.Region, row.Price, row.Spot = a.Region, none, none
			price, now := t.Price(a.Region, false)
			if now {
				row.Price = price
			}
			spot, also := t.Price(a.Region, true)
			if also {
				row.Spot = spot
			}
			if now || also {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// Rows asks GET /instances/types.
func (s Shadeform) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		Types []ShadeformType `json:"instance_types"`
	}
	if err := s.json(ctx, s.url("https://api.shadeform.ai/v1", "/instances/types"), nil, &answer, "X-API-KEY", s.Token); err != nil {
		return nil, err
	}
	return ShadeformRows(answer.Types), nil
}

var shadeformSource = Source{"shadeform", []string{"SHADEFORM_API_KEY"}, func(env func(string) string) Fetcher {
	return Shadeform{API{Token: env("SHADEFORM_API_KEY")}}
}}
