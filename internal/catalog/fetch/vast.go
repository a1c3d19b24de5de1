package fetch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Vast fetches the offers of Vast's market place and makes types of them: the
// price of a type is the median, its spot price the dearest bid still cheap.
type Vast struct{ API }

type vastOffer struct {
	GPU       string  `json:"gpu_name"`
	GPUs      float64 `json:"num_gpus"`
	DeviceMiB float64 `json:"gpu_ram"`
	CPUs      float64 `json:"cpu_cores_effective"`
	MemoryMiB float64 `json:"cpu_ram"`
	Place     string  `json:"geolocation"`
	MinBid    float64 `json:"min_bid"`
	Search    struct {
		Hour float64 `json:"totalHour"`
	} `json:"search"`
}

type vastType struct{ instance, region string }

// Rows searches all offers that are fast enough to be of use.
func (v Vast) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		Offers []vastOffer `json:"offers"`
	}
	query := map[string]any{"limit": 10000, "type": "on-demand", "rentable": map[string]any{"eq": true}, "verified": map[string]any{"eq": true},
		"inet_down": map[string]any{"gte": 100}, "disk_space": map[string]any{"gte": 80}}
	if err := v.json(ctx, v.url("https://console.vast.ai/api/v0", "/bundles/"), query, &answer, v.bearer()...); err != nil {
		return nil, err
	}
	groups := map[vastType][]vastOffer{}
	for _, o := range answer.Offers {
		if len(o.Place) < 2 || o.GPUs == 0 {
			continue
		}
		key := vastType{VastType(o.GPU, o.GPUs, o.CPUs, o.MemoryMiB), o.Place}
		groups[key] = append(groups[key], o)
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b vastType) int { return strings.Compare(a.instance+a.region, b.instance+b.region) })
	var rows []Row
	for _, k := range keys {
		rows = append(rows, vastRow(k, groups[k]))
	}
	return rows, nil
}

// VastType is what a kind of Vast's machines is called, as "1x-RTX_4090-16-65536".
func VastType(gpu string, gpus, cpus, memoryMiB float64) string {
	return fmt.Sprintf("%vx-%s-%v-%v", gpus, strings.ReplaceAll(gpu, " ", "_"), cpus, memoryMiB)
}

func vastRow(k vastType, offers []vastOffer) Row {
	slices.SortFunc(offers, func(a, b vastOffer) int {
		switch {
		case a.Search.Hour < b.Search.Hour:
			return -1
		case a.Search.Hour > b.Search.Hour:
			return 1
		}
		return 0
	})
	o := offers[(len(offers)-1)/2]
	name := VastGPU(o.GPU)
	row := Row{InstanceType: k.instance, Accelerator: name, Count: o.GPUs, CPUs: o.CPUs, MemoryGiB: o.MemoryMiB / 1024, DeviceMiB: o.DeviceMiB,
		Price: o.Search.Hour, Spot: none, Region: k.region}
	for _, c := range offers {
		if c.Search.Hour <= row.Price && c.MinBid > 0 && !(row.Spot >= c.MinBid) {
			row.Spot = c.MinBid
		}
	}
	return row
}

var (
	vastSuffix = lazyregexp.New(`(Ti|PCIE|SXM4|SXM|NVL)$`)
	vastCards  = lazyregexp.New(`^(RTX\d0\d0)[SD]$`)
	vastNames  = map[string]string{"TeslaV100": "V100", "TeslaT4": "T4", "TeslaP100": "P100", "QRTX6000": "RTX6000", "QRTX8000": "RTX8000"}
)

// VastGPU turns Vast's names of GPUs into those of price lists: "RTX 6000Ada" into
// "RTX6000-Ada" and "H100 SXM" into "H100".
func VastGPU(gpu string) string {
	n := strings.ReplaceAll(gpu, " ", "")
	if base, ok := strings.CutSuffix(n, "Ada"); ok {
		n = base + "-Ada"
	}
	n = strings.TrimRight(vastSuffix.ReplaceAllString(n, ""), "-_")
	if m := vastCards.FindStringSubmatch(n); m != nil {
		n = m[1]
	}
	if known := vastNames[n]; known != "" {
		return known
	}
	return n
}

var vastSource = Source{"vast", nil, func(env func(string) string) Fetcher {
	return Vast{API{Token: env("VAST_API_KEY")}}
}}
