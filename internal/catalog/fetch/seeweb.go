package fetch

import (
	"context"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Seeweb fetches the plans that Seeweb can activate at the moment.
type Seeweb struct{ API }

// SeewebPlan is a type of server that Seeweb can activate. Its price is in euros.
type SeewebPlan struct {
	Name    string      `json:"name"`
	CPUs    looseNumber `json:"cpu"`
	Memory  looseNumber `json:"ram"`  // MiB
	Disk    looseNumber `json:"disk"` // GB
	GPUs    looseNumber `json:"gpu"`
	Label   string      `json:"gpu_label"`
	Price   looseNumber `json:"hourly_price"`
	Windows bool        `json:"windows"`
	Default string      `json:"default_image"`
	Images  []struct {
		Name   string `json:"name"`
		Active *bool  `json:"active_flag"`
	} `json:"os_availables"`
	Regions []struct {
		Region string `json:"region"`
	} `json:"region_availables"` // where it can be activated now
	Sells []struct {
		Region string `json:"location"`
	} `json:"available_regions"` // in the list of all plans: where it can be at other times, too
}

// Sold reports whether the plan can be activated in a region at times.
func (p SeewebPlan) Sold(region string) bool {
	for _, r := range p.Sells {
		if r.Region == region {
			return true
		}
	}
	return false
}

// In reports whether the plan can be activated in a region now.
func (p SeewebPlan) In(region string) bool {
	for _, r := range p.Regions {
		if r.Region == region {
			return true
		}
	}
	return false
}

var (
	seewebNames  = map[string]string{"RTX A6000": "RTXA6000", "L40S": "L40S", "RTX 6000": "RTX6000", "RTX PRO 6000": "RTXPRO6000"}
	seewebMemory = lazyregexp.New(`\s*\b([0-9]+) ?GB\b`)
)

// gpu is the GPU of a plan and its memory in GB, which stands in most labels, as in
// "A100 80GB"; "": it has none that programs for NVIDIA's run on.
func (p SeewebPlan) gpu() (name string, memory float64) {
	label := strings.TrimPrefix(strings.ToUpper(strings.Join(strings.Fields(p.Label), " ")), "NVIDIA ")
	if p.GPUs == 0 || label == "" || strings.Contains(label, "MI300") || strings.Contains(label, "TENSTORRENT") || strings.Contains(label, "GRAYSKULL") {
		return "", 0
	}
	name = label
	if part := seewebMemory.FindStringSubmatch(label); part != nil {
		memory, _ = strconv.ParseFloat(part[1], 64)
		name = strings.TrimSpace(strings.Replace(label, part[0], "", 1))
	}
	switch {
	case seewebNames[name] != "":
		name = seewebNames[name]
	case name == "A100" && memory == 80:
		name = "A100-80GB"
	}
	return strings.ReplaceAll(name, " ", "-"), memory
}

// SeewebRows are the plans in the regions where they can be activated.
func SeewebRows(plans []SeewebPlan) []Row {
	var rows []Row
	for _, p := range plans {
		row := Row{InstanceType: p.Name, CPUs: float64(p.CPUs), MemoryGiB: float64(p.Memory) / 1024, Price: float64(p.Price), Spot: none}
		name, memory := p.gpu()
		if p.Windows || p.Price <= 0 || p.GPUs > 0 && name == "" {
			continue
		}
		if name != "" {
			row.Accelerator, row.Count, row.DeviceMiB = name, float64(p.GPUs), memory*1024
		}
		for _, r := range p.Regions {
			row.Region = r.Region
			rows = append(rows, row)
		}
	}
	return rows
}

// Rows asks for the plans.
func (s Seeweb) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		Plans []SeewebPlan `json:"plans"`
	}
	if err := s.json(ctx, s.url("https://api.seeweb.it/ecs/v2", "/plans/availables"), nil, &answer, "X-APITOKEN", s.Token); err != nil {
		return nil, err
	}
	return SeewebRows(answer.Plans), nil
}

var seewebSource = Source{"seeweb", []string{"SEEWEB_API_KEY"}, func(env func(string) string) Fetcher {
	return Seeweb{API{Token: env("SEEWEB_API_KEY")}}
}}
