package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/grpc"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// Nebius fetches the presets of Nebius's platforms in the regions in which a tenant has
// projects, and asks what each would cost that tenant.
type Nebius struct {
	Tenant, Token string
	Domain        string            // "": Nebius's
	Transport     http.RoundTripper // nil: one of its own
}

type (
	nebiusParent struct {
		Parent string `pb:"1"`
		Size   int64  `pb:"2"`
		Page   string `pb:"3"`
	}
	nebiusProject struct {
		Metadata struct {
			ID string `pb:"1"`
		} `pb:"1"`
		Spec struct {
			Region string `pb:"1"`
		} `pb:"2"`
		Status struct {
			Region string `pb:"4"`
		} `pb:"3"`
	}
	nebiusProjects struct {
		Items []nebiusProject `pb:"1"`
		Next  string          `pb:"2"`
	}
	nebiusPreset struct {
		Name string `pb:"1"`
		Has  struct {
			CPUs int32 `pb:"1"`
			GiB  int32 `pb:"3"`
			GPUs int32 `pb:"4"`
		} `pb:"2"`
	}
	nebiusPlatform struct {
		Metadata struct {
			Name string `pb:"3"`
		} `pb:"1"`
		Spec struct {
			Presets  []nebiusPreset `pb:"1"`
			DeviceGB int32          `pb:"12"`
		} `pb:"2"`
		Status struct {
			Preemptible bool `pb:"3"`
		} `pb:"3"`
	}
	nebiusPlatforms struct {
		Items []nebiusPlatform `pb:"1"`
		Next  string           `pb:"2"`
	}
	nebiusMachine struct {
		Metadata struct {
			Parent string `pb:"2"`
		} `pb:"1"`
		Spec struct {
			Resources struct {
				Platform string `pb:"1"`
				Preset   string `pb:"2"`
			} `pb:"2"`
			Preemptible struct {
				OnPreemption int32 `pb:"1"`
				Priority     int32 `pb:"2"`
			} `pb:"19"`
		} `pb:"2"`
	}
	nebiusTotal struct {
		Per struct {
			Unit string `pb:"1"`
		} `pb:"1"`
		General struct {
			Total struct {
				Cost string `pb:"2"`
			} `pb:"1"`
		} `pb:"20"`
	}
	nebiusEstimate struct {
		Totals   []nebiusTotal `pb:"10"`
		Currency string        `pb:"20"`
	}
)

// nebiusGPU is the GPU of a platform such as gpu-h100-sxm.
func nebiusGPU(platform string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(platform, "gpu-"), "-")
	if name == "rtx6000" {
		return "RTXPRO6000"
	}
	return strings.ToUpper(name)
}

// Rows asks for projects, platforms and prices.
func (n Nebius) Rows(ctx context.Context) ([]Row, error) {
	client := func(service string) *rest.Client {
		return rest.New(rest.Options{
			Cloud: "Nebius", Endpoint: "https://" + service + "." + cmp.Or(n.Domain, "api.nebius.cloud:443"), Authorize: rest.Bearer(n.Token),
			Transport: grpc.NewTransport(n.Transport, nil), Paces: []rest.Pace{{Every: 100 * time.Millisecond, Burst: 5}},
		})
	}
	iam, compute, billing := client("cpl.iam"), client("compute"), client("api.calculator.billing-data-plane")
	defer iam.Close()
	defer compute.Close()
	defer billing.Close()
	projects := map[string]string{} // one of each region
	var regions []string
	for page := "first"; page != ""; {
		all, err := grpc.Call[nebiusProjects](ctx, iam, "nebius.iam.v1.ProjectService/List", "", nebiusParent{n.Tenant, 100, strings.TrimPrefix(page, "first")})
		if err != nil {
			return nil, err
		}
		for _, p := range all.Items {
			if region := cmp.Or(p.Status.Region, p.Spec.Region); region != "" && projects[region] == "" {
				projects[region] = p.Metadata.ID
				regions = append(regions, region)
			}
		}
		page = all.Next
	}
	if len(regions) == 0 {
		return nil, errors.New("the tenant has no projects, of which each region that is used needs one")
	}
	var rows []Row
	for _, region := range regions {
		for page := "first"; page != ""; {
			all, err := grpc.Call[nebiusPlatforms](ctx, compute, "nebius.compute.v1.PlatformService/List", "", struct {
				Size   int64  `pb:"1"`
				Page   string `pb:"2"`
				Parent string `pb:"3"`
			}{100, strings.TrimPrefix(page, "first"), projects[region]})
			if err != nil {
				return nil, err
			}
			for _, p := range all.Items {
				some, err := n.presets(ctx, billing, projects[region], region, p)
				if err != nil {
					return nil, err
				}
				rows = append(rows, some...)
			}
			page = all.Next
		}
	}
	return rows, nil
}

func (n Nebius) presets(ctx context.Context, billing *rest.Client, project, region string, p nebiusPlatform) (rows []Row, err error) {
	for _, preset := range p.Spec.Presets {
		row := Row{InstanceType: p.Metadata.Name + "_" + preset.Name, CPUs: float64(preset.Has.CPUs), MemoryGiB: float64(preset.Has.GiB), Spot: none, Region: region}
		if preset.Has.GPUs > 0 {
			row.Accelerator, row.Count, row.DeviceMiB = nebiusGPU(p.Metadata.Name), float64(preset.Has.GPUs), float64(p.Spec.DeviceGB)*1024
		}
		if row.Price, err = NebiusPrice(ctx, billing, project, p.Metadata.Name, preset.Name, false); err != nil {
			return nil, fmt.Errorf("%s: %w", row.InstanceType, err)
		}
		if p.Status.Preemptible {
			if row.Spot, err = NebiusPrice(ctx, billing, project, p.Metadata.Name, preset.Name, true); err != nil {
				return nil, fmt.Errorf("%s, preemptible: %w", row.InstanceType, err)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// NebiusPrice is what a machine costs a project an hour, in dollars. c calls the calculator.
func NebiusPrice(ctx context.Context, c *rest.Client, project, platform, preset string, preemptible bool) (float64, error) {
	var m nebiusMachine
	m.Metadata.Parent, m.Spec.Resources.Platform, m.Spec.Resources.Preset = project, platform, preset
	if preemptible {
		m.Spec.Preemptible.OnPreemption, m.Spec.Preemptible.Priority = 1, 1
	}
	type spec struct {
		Of grpc.Any `pb:"1"`
	}
	e, err := grpc.Call[nebiusEstimate](ctx, c, "nebius.billing.v1.CalculatorService/EstimateBatch", "", struct {
		Specs    []spec `pb:"1"`
		Currency string `pb:"11"`
		Units    struct {
			Of []int32 `pb:"1"`
		} `pb:"20"`
	}{[]spec{{grpc.Any{Type: "type.googleapis.com/nebius.compute.v1.CreateInstanceRequest", Value: grpc.Marshal(m)}}}, "usd", struct {
		Of []int32 `pb:"1"`
	}{[]int32{2}}}) // by the hour
	if err != nil {
		return 0, err
	}
	for _, t := range e.Totals {
		if strings.EqualFold(t.Per.Unit, "hour") && strings.EqualFold(e.Currency, "usd") {
			return strconv.ParseFloat(t.General.Total.Cost, 64)
		}
	}
	return 0, errors.New("the estimate has no price for an hour in dollars")
}

var nebiusSource = Source{"nebius", []string{"NEBIUS_TENANT_ID", "NEBIUS_IAM_TOKEN"}, func(env func(string) string) Fetcher {
	return Nebius{Tenant: env("NEBIUS_TENANT_ID"), Token: env("NEBIUS_IAM_TOKEN")}
}}
