package fetch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Vast fetches the offers of Vast's market place and makes types of them: the
// price of a type is the median, its spot price the dearest bid still cheap.
type Vast struct{ API }

// VastOffer is a machine, or a part of one, that its owner offers on Vast.
type VastOffer struct {
	ID          int64   `json:"id"`
	GPU         string  `json:"gpu_name"`
	GPUs        float64 `json:"num_gpus"`
	DeviceMiB   float64 `json:"gpu_ram"`
	CPUs        float64 `json:"cpu_cores_effective"`
	MemoryMiB   float64 `json:"cpu_ram"`
	Place       string  `json:"geolocation"`
	Base        float64 `json:"dph_base"`  // $ an hour without the disk
	Total       float64 `json:"dph_total"` // and with it
	MinBid      float64 `json:"min_bid"`
	Reliability float64 `json:"reliability2"`
	Down        float64 `json:"inet_down"`
	Hosting     int     `json:"hosting_type"` // 1 and more: in a data centre
	Search      struct {
		Hour float64 `json:"totalHour"`
	} `json:"search"`
}

// cost ranks machines: an hour of one that is there half of the time is worth half.
func (o VastOffer) cost(spot bool) float64 {
	bare, _ := o.Price(spot)
	return bare / max(o.Reliability, 0.01)
}

// RankVast sorts machines: the cheapest for what can be expected of it first, then the
// faster line.
func RankVast(offers []VastOffer, spot bool) {
	slices.SortStableFunc(offers, func(a, b VastOffer) int {
		return cmp.Or(cmp.Compare(a.cost(spot), b.cost(spot)), cmp.Compare(b.Down, a.Down), cmp.Compare(a.ID, b.ID))
	})
}

// VastRows are what the machines are alike in, with the price of the best machine of each.
func VastRows(offers []VastOffer, spot bool) (rows []Row) {
	RankVast(offers, spot)
	seen := map[vastType]bool{}
	for _, o := range offers {
		k := vastType{o.Type(), o.Country(), 0}
		_, price := o.Price(spot)
		if seen[k] || k.region == "" || o.GPUs == 0 || price <= 0 {
			continue
		}
		seen[k] = true
		row := o.row(k.region)
		if spot {
			row.Spot = price
		} else {
			row.Price = price
		}
		rows = append(rows, row)
	}
	return rows
}

// VastSearch is what machines have to be like.
type VastSearch struct {
	Verified, Datacenter                        bool
	Reliability, Bandwidth, DiskBandwidth, CUDA float64
	DiskGB                                      int
	Countries                                   []string  // none: all
	Like                                        VastOffer // with this GPU, and at least as large; no GPU: any
}

// Query is the search for at most so many, in the words of the API.
func (s VastSearch) Query(spot bool, most int) map[string]any {
	is := func(op string, v any) map[string]any { return map[string]any{op: v} }
	q := map[string]any{
		"type": "on-demand", "limit": most, "order": [][]string{{"dph_total", "asc"}}, "allocated_storage": s.DiskGB, "rentable": is("eq", true), "external": is("eq", false),
		"verified": is("eq", true), "reliability": is("gte", s.Reliability), "inet_down": is("gte", s.Bandwidth), "disk_bw": is("gte", s.DiskBandwidth), "cuda_max_good": is("gte", s.CUDA),
		"disk_space": is("gte", s.DiskGB), "direct_port_count": is("gte", 1),
	}
	if spot {
		q["type"] = "bid"
	}
	if !s.Verified { // what is left out is Vast's own standard
		q["verified"] = is("in", []bool{true, false})
	}
	if s.Datacenter {
		q["datacenter"], q["hosting_type"] = is("eq", true), is("gte", 1)
	}
	if len(s.Countries) > 0 {
		q["geolocation"] = is("in", s.Countries)
	}
	if s.Like.GPU != "" {
		q["gpu_name"], q["num_gpus"] = is("eq", s.Like.GPU), is("eq", s.Like.GPUs)
		q["cpu_cores_effective"], q["cpu_ram"] = is("gte", s.Like.CPUs), is("gte", s.Like.MemoryMiB)
	}
	return q
}

// Price is what an hour costs without the disk, and with it.
func (o VastOffer) Price(spot bool) (bare, whole float64) {
	if spot {
		return o.MinBid, o.MinBid + max(0, o.Total-o.Base)
	}
	return cmp.Or(o.Base, o.Total), cmp.Or(o.Total, o.Base)
}

// Country is the code at the end of a place such as "Oregon, US"; "": it has none.
func (o VastOffer) Country() string {
	i := strings.LastIndex(o.Place, ",")
	code := strings.TrimSpace(o.Place[i+1:])
	if len(code) != 2 || code != strings.ToUpper(code) {
		return ""
	}
	return code
}

// row is the offer's line without a price.
func (o VastOffer) row(region string) Row {
	return Row{InstanceType: o.Type(), Accelerator: VastGPU(o.GPU), Count: o.GPUs, CPUs: o.CPUs, MemoryGiB: o.MemoryMiB / 1024, DeviceMiB: o.DeviceMiB, Price: none, Spot: none, Region: region, Hosting: o.Hosting}
}

// Type is what a kind of Vast's machines is called, as "1x-RTX_4090-16-65536".
func (o VastOffer) Type() string {
	return fmt.Sprintf("%vx-%s-%v-%v", o.GPUs, strings.ReplaceAll(o.GPU, " ", "_"), o.CPUs, o.MemoryMiB)
}

// VastKind is what a type asks for.
func VastKind(instanceType string) (o VastOffer, err error) {
	gpus, rest, ok := strings.Cut(instanceType, "x-")
	part := strings.Split(rest, "-")
	var errs [3]error
	if n := len(part); ok && n >= 3 {
		o.GPU = strings.ReplaceAll(strings.Join(part[:n-2], "-"), "_", " ")
		o.GPUs, errs[0] = strconv.ParseFloat(gpus, 64)
		o.CPUs, errs[1] = strconv.ParseFloat(part[n-2], 64)
		o.MemoryMiB, errs[2] = strconv.ParseFloat(part[n-1], 64)
	}
	if o.GPU == "" || o.GPUs <= 0 || cmp.Or(errs[0], errs[1], errs[2]) != nil {
		return VastOffer{}, fmt.Errorf("%q is no type of Vast's machines, such as 1x-RTX_4090-16-65536", instanceType)
	}
	return o, nil
}

type vastType struct {
	instance, region string
	hosting          int
}

// Rows searches all offers that are fast enough to be of use.
func (v Vast) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		Offers []VastOffer `json:"offers"`
	}
	query := VastSearch{Verified: true, Bandwidth: 100, DiskGB: 80}.Query(false, 10000)
	if err := v.json(ctx, v.url("https://console.vast.ai/api/v0", "/bundles/"), query, &answer, v.bearer()...); err != nil {
		return nil, err
	}
	groups := map[vastType][]VastOffer{}
	for _, o := range answer.Offers {
		if len(o.Place) < 2 || o.GPUs == 0 {
			continue
		}
		key := vastType{o.Type(), o.Place, o.Hosting}
		groups[key] = append(groups[key], o)
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b vastType) int {
		return cmp.Or(strings.Compare(a.instance+a.region, b.instance+b.region), cmp.Compare(a.hosting, b.hosting))
	})
	var rows []Row
	for _, k := range keys {
		rows = append(rows, vastRow(k, groups[k]))
	}
	return rows, nil
}

func vastRow(k vastType, offers []VastOffer) Row {
	slices.SortFunc(offers, func(a, b VastOffer) int {
		switch {
		case a.Search.Hour < b.Search.Hour:
			return -1
		case a.Search.Hour > b.Search.Hour:
			return 1
		}
		return 0
	})
	o := offers[(len(offers)-1)/2]
	row := o.row(k.region)
	row.Price = o.Search.Hour
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
