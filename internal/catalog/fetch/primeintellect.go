package fetch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// PrimeIntellect fetches what the clouds behind Prime Intellect have at the moment.
type PrimeIntellect struct{ API }

// PrimeResource is how much of something a pod has, and what that costs besides.
type PrimeResource struct {
	Default  *int     `json:"defaultCount"`
	Min      *int     `json:"minCount"`
	Max      *int     `json:"maxCount"`
	Price    *float64 `json:"pricePerUnit"`
	Step     *int     `json:"step"`
	Included *bool    `json:"defaultIncludedInPrice"`
}

// Size is how much is had if so much is wanted; 0: what is usual. It costs that more an hour
// than the pod alone.
func (r PrimeResource) Size(want int) (size int, price float64, ok bool) {
	usual := 0
	switch {
	case r.Default != nil:
		usual = *r.Default
	case r.Min != nil:
		usual = *r.Min
	}
	size = cmp.Or(want, usual)
	if r.Min != nil {
		size = max(size, *r.Min)
	}
	if r.Step != nil && *r.Step > 1 && r.Min != nil {
		size = *r.Min + (size-*r.Min+*r.Step-1) / *r.Step * *r.Step
	}
	if r.Max != nil && size > *r.Max {
		return size, 0, false
	}
	if r.Price != nil {
		paid := size
		if r.Included != nil && *r.Included {
			paid = max(0, size-usual)
		}
		price = float64(paid) * *r.Price
	}
	return size, price, true
}

// PrimeOffer is a kind of pod at a place.
type PrimeOffer struct {
	CloudID    string        `json:"cloudId"`
	GPU        string        `json:"gpuType"`
	Socket     string        `json:"socket"`
	Provider   string        `json:"provider"`
	DataCenter string        `json:"dataCenter"`
	Country    string        `json:"country"`
	GPUs       int           `json:"gpuCount"`
	GB         float64       `json:"gpuMemory"` // of a GPU
	Disk       PrimeResource `json:"disk"`
	CPUs       PrimeResource `json:"vcpu"`
	Memory     PrimeResource `json:"memory"`
	Stock      string        `json:"stockStatus"`
	Security   string        `json:"security"`
	Prices     struct {
		OnDemand  *float64 `json:"onDemand"`
		Community *float64 `json:"communityPrice"`
		Currency  string   `json:"currency"`
	} `json:"prices"`
	Images  []string `json:"images"`
	Spot    bool     `json:"isSpot"`
	Prepaid float64  `json:"prepaidTime"` // hours to pay for at once
}

// Name is what the kind is called in price lists, as hyperstack_1x_H100_80GB_PCIe. Pods of
// strangers' machines have another.
func (o PrimeOffer) Name() string {
	name := fmt.Sprintf("%s_%dx_%s_%s", o.Provider, o.GPUs, o.GPU, o.Socket)
	if o.Security == "community_cloud" {
		name += "_community"
	}
	return name
}

// Place is the region in price lists.
func (o PrimeOffer) Place() string { return cmp.Or(o.DataCenter, o.Country, "anywhere") }

// Image is the one to start; "": there is none that a node could be.
func (o PrimeOffer) Image() string {
	for _, prefix := range []string{"ubuntu_22_cuda_12", "ubuntu_22", "ubuntu"} {
		for _, i := range o.Images {
			if strings.HasPrefix(i, prefix) {
				return i
			}
		}
	}
	return ""
}

// Price is what an hour costs with so large a disk; false: it is not to be had so.
func (o PrimeOffer) Price(diskGB int) (price float64, ok bool) {
	switch {
	case o.Prices.Currency != "" && o.Prices.Currency != "USD", o.Prepaid > 0:
		return 0, false
	case o.Prices.OnDemand != nil:
		price = *o.Prices.OnDemand
	case o.Prices.Community != nil:
		price = *o.Prices.Community
	default:
		return 0, false
	}
	for r, want := range map[*PrimeResource]int{&o.Disk: diskGB, &o.CPUs: 0, &o.Memory: 0} {
		_, more, fits := r.Size(want)
		if !fits {
			return 0, false
		}
		price += more
	}
	return price, true
}

// Now reports whether there is one now.
func (o PrimeOffer) Now() bool {
	return slices.Contains([]string{"Available", "Low", "Medium", "High"}, o.Stock)
}

var (
	primeNames  = map[string]string{"A100_80GB": "A100-80GB", "V100_32GB": "V100-32GB", "A6000_48GB": "RTXA6000", "A5000_24GB": "RTXA5000", "A4000_16GB": "RTXA4000", "A4500_20GB": "RTXA4500", "RTX6000Ada_48GB": "RTX6000-Ada"}
	primeMemory = lazyregexp.New(`_\d+GB$`)
)

func primeGPU(name string) string {
	return cmp.Or(primeNames[name], strings.ReplaceAll(primeMemory.ReplaceAllString(name, ""), "_", "-"))
}

// PrimeIntellectRows are the cheapest pods of each kind at each place that has some now.
func PrimeIntellectRows(offers []PrimeOffer) []Row {
	best := map[string]Row{}
	for _, o := range offers {
		price, ok := o.Price(0)
		if !ok || !o.Now() || o.Image() == "" {
			continue
		}
		cpus, _, _ := o.CPUs.Size(0)
		memory, _, _ := o.Memory.Size(0)
		row := Row{InstanceType: o.Name(), Region: o.Place(), CPUs: float64(cpus), MemoryGiB: float64(memory), Price: price, Spot: none}
		if o.GPU != "CPU_NODE" {
			row.Accelerator, row.Count, row.DeviceMiB = primeGPU(o.GPU), float64(o.GPUs), o.GB*1024
		}
		key := row.InstanceType + "\x00" + row.Region
		if o.Spot {
			row.Price, row.Spot = none, price
		}
		other, there := best[key]
		if !there {
			best[key] = row
			continue
		}
		other.Price, other.Spot = cheaper(other.Price, row.Price), cheaper(other.Spot, row.Spot)
		best[key] = other
	}
	var rows []Row
	for _, row := range best {
		rows = append(rows, row)
	}
	return rows
}

// cheaper is the lower price; NaN is none.
func cheaper(a, b float64) float64 {
	if a != a || b < a {
		return b
	}
	return a
}

// PrimePages are all pages of GET /availability/gpus.
func PrimePages(page func(number int) (items []PrimeOffer, total int, err error)) (all []PrimeOffer, err error) {
	for number := 1; ; number++ {
		items, total, err := page(number)
		if all = append(all, items...); err != nil || len(items) == 0 || len(all) >= total {
			return all, err
		}
	}
}

// Rows asks GET /availability/gpus.
func (p PrimeIntellect) Rows(ctx context.Context) ([]Row, error) {
	all, err := PrimePages(func(number int) ([]PrimeOffer, int, error) {
		var answer struct {
			Items []PrimeOffer `json:"items"`
			Total int          `json:"totalCount"`
		}
		err := p.json(ctx, p.url("https://api.primeintellect.ai/api/v1", "/availability/gpus?page_size=100&page="+strconv.Itoa(number)), nil, &answer, p.bearer()...)
		return answer.Items, answer.Total, err
	})
	if err != nil {
		return nil, err
	}
	return PrimeIntellectRows(all), nil
}

var primeintellectSource = Source{"primeintellect", []string{"PRIME_API_KEY"}, func(env func(string) string) Fetcher {
	return PrimeIntellect{API{Token: env("PRIME_API_KEY")}}
}}
