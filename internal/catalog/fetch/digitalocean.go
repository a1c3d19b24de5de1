package fetch

import (
	"context"
	"fmt"
	"strings"
)

// DigitalOcean fetches droplet sizes.
type DigitalOcean struct{ API }

var doNames = map[string]string{"nvidia_h100": "H100", "nvidia_h200": "H200", "nvidia_l40s": "L40S", "nvidia_rtx4000_ada": "RTX4000-Ada", "nvidia_rtx6000_ada": "RTX6000-Ada", "amd_mi300x": "MI300X", "amd_mi325x": "MI325X"}

// Rows asks GET /v2/sizes, page by page.
func (d DigitalOcean) Rows(ctx context.Context) ([]Row, error) {
	var rows []Row
	for page := 1; ; page++ {
		var answer struct {
			Sizes []struct {
				Slug      string   `json:"slug"`
				MemoryMB  float64  `json:"memory"`
				VCPUs     float64  `json:"vcpus"`
				Price     float64  `json:"price_hourly"`
				Regions   []string `json:"regions"`
				Available bool     `json:"available"`
				GPU       *struct {
					Count float64 `json:"count"`
					Model string  `json:"model"`
					VRAM  struct {
						Amount float64 `json:"amount"`
						Unit   string  `json:"unit"`
					} `json:"vram"`
				} `json:"gpu_info"`
			} `json:"sizes"`
			Links struct {
				Pages struct {
					Next string `json:"next"`
				} `json:"pages"`
			} `json:"links"`
		}
		if err := d.json(ctx, d.url("https://api.digitalocean.com", fmt.Sprintf("/v2/sizes?per_page=200&page=%d", page)), nil, &answer, d.bearer()...); err != nil {
			return nil, err
		}
		for _, s := range answer.Sizes {
			row := Row{InstanceType: s.Slug, CPUs: s.VCPUs, MemoryGiB: s.MemoryMB / 1024, Price: s.Price, Spot: none}
			if g := s.GPU; g != nil && g.Count > 0 {
				row.Accelerator, row.Count, row.DeviceMiB = doName(g.Model), g.Count, g.VRAM.Amount*1024
			}
			for _, r := range s.Regions {
				row.Region = r
				rows = append(rows, row)
			}
		}
		if answer.Links.Pages.Next == "" {
			return rows, nil
		}
	}
}

func doName(model string) string {
	if n := doNames[strings.ToLower(model)]; n != "" {
		return n
	}
	_, name, ok := strings.Cut(model, "_")
	if !ok {
		name = model
	}
	return strings.ToUpper(strings.ReplaceAll(name, "_", "-"))
}

var digitaloceanSource = Source{"do", []string{"DIGITALOCEAN_TOKEN"}, func(env func(string) string) Fetcher {
	return DigitalOcean{API{Token: env("DIGITALOCEAN_TOKEN")}}
}}
