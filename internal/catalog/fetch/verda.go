package fetch

import (
	"context"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Verda fetches the types of machines of Verda, which cost the same at all locations.
type Verda struct {
	API
	ID, Secret string // of the API
}

// verdaType is a type of machines as Verda names it: so many of a GPU, its memory, vCPUs.
var verdaType = lazyregexp.New(`^([0-9]+)([A-Z][A-Z0-9]*?)(?:\.([0-9]+)[A-Z]?)?\.[0-9]+V$`)

var verdaNames = map[string]string{"A6000": "RTXA6000", "RTX6000ADA": "RTX6000-Ada", "RTXPRO6000": "RTXPRO6000"}

// verdaGPU is the GPU of a type such as 8A100.40S.176V.
func verdaGPU(instanceType string) string {
	part := verdaType.FindStringSubmatch(instanceType)
	switch {
	case part == nil:
		return ""
	case part[2] == "A100" && part[3] != "40":
		return "A100-80GB"
	case verdaNames[part[2]] != "":
		return verdaNames[part[2]]
	}
	return part[2]
}

// Rows asks for the types and the locations.
func (v Verda) Rows(ctx context.Context) ([]Row, error) {
	const api = "https://api.verda.com/v1"
	var token struct {
		Access string `json:"access_token"`
	}
	if err := v.json(ctx, v.url(api, "/oauth2/token"), map[string]string{"grant_type": "client_credentials", "client_id": v.ID, "client_secret": v.Secret}, &token); err != nil {
		return nil, err
	}
	v.Token = token.Access
	var types []struct {
		Type  string      `json:"instance_type"`
		Price looseNumber `json:"price_per_hour"`
		Spot  looseNumber `json:"spot_price"`
		CPU   struct {
			Cores float64 `json:"number_of_cores"`
		} `json:"cpu"`
		GPU struct {
			Count float64 `json:"number_of_gpus"`
		} `json:"gpu"`
		Memory struct {
			GB float64 `json:"size_in_gigabytes"`
		} `json:"memory"`
		VRAM struct {
			GB float64 `json:"size_in_gigabytes"`
		} `json:"gpu_memory"` // of all GPUs
	}
	if err := v.json(ctx, v.url(api, "/instance-types"), nil, &types, v.bearer()...); err != nil {
		return nil, err
	}
	var locations []struct {
		Code string `json:"code"`
	}
	if err := v.json(ctx, v.url(api, "/locations"), nil, &locations, v.bearer()...); err != nil {
		return nil, err
	}
	var rows []Row
	for _, t := range types {
		row := Row{InstanceType: t.Type, CPUs: t.CPU.Cores, MemoryGiB: t.Memory.GB, Price: float64(t.Price), Spot: none}
		if t.Spot > 0 {
			row.Spot = float64(t.Spot)
		}
		if t.GPU.Count > 0 {
			row.Count, row.Accelerator, row.DeviceMiB = t.GPU.Count, verdaGPU(t.Type), t.VRAM.GB*1024/t.GPU.Count
			if row.Accelerator == "" {
				row.Accelerator = strings.TrimPrefix(t.Type, strconv.Itoa(int(t.GPU.Count)))
			}
		}
		for _, l := range locations {
			row.Region = l.Code
			rows = append(rows, row)
		}
	}
	return rows, nil
}

var verdaSource = Source{"verda", []string{"VERDA_CLIENT_ID", "VERDA_CLIENT_SECRET"}, func(env func(string) string) Fetcher {
	return Verda{ID: env("VERDA_CLIENT_ID"), Secret: env("VERDA_CLIENT_SECRET")}
}}
