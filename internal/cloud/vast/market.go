package vast

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// ask is a machine, or a part of one, that its owner offers.
type ask struct {
	ID          int64   `json:"id"`
	GPU         string  `json:"gpu_name"`
	GPUs        float64 `json:"num_gpus"`
	CPUs        float64 `json:"cpu_cores_effective"`
	MemoryMiB   float64 `json:"cpu_ram"`
	Place       string  `json:"geolocation"`
	Base        float64 `json:"dph_base"`  // $ an hour without the disk
	Total       float64 `json:"dph_total"` // and with it
	MinBid      float64 `json:"min_bid"`
	Reliability float64 `json:"reliability2"`
	Down        float64 `json:"inet_down"`
}

// price is what an hour costs without the disk, and with it.
func (a ask) price(spot bool) (bare, whole float64) {
	if spot {
		return a.MinBid, a.MinBid + max(0, a.Total-a.Base)
	}
	return cmp.Or(a.Base, a.Total), cmp.Or(a.Total, a.Base)
}

// cost ranks machines: an hour of one that is there half of the time is worth half.
func (a ask) cost(spot bool) float64 {
	bare, _ := a.price(spot)
	return bare / max(a.Reliability, 0.01)
}

// rank sorts machines: the cheapest for what can be expected of it first, then the
// faster line.
func rank(asks []ask, spot bool) {
	slices.SortStableFunc(asks, func(a, b ask) int {
		return cmp.Or(cmp.Compare(a.cost(spot), b.cost(spot)), cmp.Compare(b.Down, a.Down), cmp.Compare(a.ID, b.ID))
	})
}

// wish is what a machine has to be like.
type wish struct {
	datacenter, verified               bool
	reliability, bandwidth, disk, cuda float64
	countries                          []string
}

// wishes are those of the settings; what nobody set has a standard that is safe.
func wishes(settings map[string]any) wish {
	number := func(key string, standard float64) float64 {
		switch v := settings[key].(type) {
		case float64:
			return v
		case int:
			return float64(v)
		case int64:
			return float64(v)
		case uint64:
			return float64(v)
		}
		return standard
	}
	w := wish{
		verified: true, reliability: number("min_reliability", 0.95), bandwidth: number("min_bandwidth", 100),
		disk: number("min_disk_bandwidth", 200), cuda: number("min_cuda", 12),
	}
	w.datacenter, _ = settings["datacenter_only"].(bool)
	if v, ok := settings["verified"].(bool); ok {
		w.verified = v
	}
	list, _ := settings["countries"].([]any)
	for _, c := range list {
		w.countries = append(w.countries, strings.ToUpper(fmt.Sprint(c)))
	}
	return w
}

const (
	defaultDiskGB = 80
	mostOffers    = 5000
	mostAsks      = 64 // of one kind
)

// query is a search for machines like that.
func (w wish) query(spot bool, diskGB, most int) map[string]any {
	is := func(op string, v any) map[string]any { return map[string]any{op: v} }
	q := map[string]any{
		"type": "on-demand", "limit": most, "order": [][]string{{"dph_total", "asc"}}, "allocated_storage": diskGB, "rentable": is("eq", true), "external": is("eq", false),
		"verified": is("eq", true), "reliability": is("gte", w.reliability), "inet_down": is("gte", w.bandwidth), "disk_bw": is("gte", w.disk), "cuda_max_good": is("gte", w.cuda),
		"disk_space": is("gte", diskGB), "direct_port_count": is("gte", 1),
	}
	if spot {
		q["type"] = "bid"
	}
	if !w.verified { // what is left out is Vast's own standard
		q["verified"] = is("in", []bool{true, false})
	}
	if w.datacenter {
		q["datacenter"], q["hosting_type"] = is("eq", true), is("gte", 1)
	}
	if len(w.countries) > 0 {
		q["geolocation"] = is("in", w.countries)
	}
	return q
}

func search(ctx context.Context, c *rest.Client, query map[string]any) ([]ask, error) {
	found, err := rest.Do[struct{ Offers []ask }](ctx, c, "POST", "/v0/bundles/", query)
	return found.Offers, err
}

// country is the code at the end of a place such as "Oregon, US"; "": it has none.
func country(place string) string {
	i := strings.LastIndex(place, ",")
	code := strings.TrimSpace(place[i+1:])
	if len(code) != 2 || code != strings.ToUpper(code) {
		return ""
	}
	return code
}

// kinds are offers of what the machines are alike in, the best machine of each.
func kinds(asks []ask, spot bool) []cloud.Offer {
	rank(asks, spot)
	type kind struct{ instance, country string }
	seen := map[kind]bool{}
	var all []cloud.Offer
	for _, a := range asks {
		k := kind{fetch.VastType(a.GPU, a.GPUs, a.CPUs, a.MemoryMiB), country(a.Place)}
		_, price := a.price(spot)
		if seen[k] || k.country == "" || a.GPUs == 0 || price <= 0 {
			continue
		}
		seen[k] = true
		all = append(all, cloud.Offer{
			Place: cloud.Place{Cloud: Name, Region: k.country}, InstanceType: k.instance, CPUs: a.CPUs, MemoryGiB: a.MemoryMiB / 1024,
			Accelerators: map[string]float64{fetch.VastGPU(a.GPU): a.GPUs}, Spot: spot, HourlyPrice: price,
		})
	}
	return all
}

// machine is what a type such as "1x-RTX_4090-16-65536" asks for.
func machine(instanceType string) (a ask, err error) {
	gpus, rest, ok := strings.Cut(instanceType, "x-")
	part := strings.Split(rest, "-")
	var errs [3]error
	if n := len(part); ok && n >= 3 {
		a.GPU = strings.ReplaceAll(strings.Join(part[:n-2], "-"), "_", " ")
		a.GPUs, errs[0] = strconv.ParseFloat(gpus, 64)
		a.CPUs, errs[1] = strconv.ParseFloat(part[n-2], 64)
		a.MemoryMiB, errs[2] = strconv.ParseFloat(part[n-1], 64)
	}
	if a.GPU == "" || a.GPUs <= 0 || cmp.Or(errs[0], errs[1], errs[2]) != nil {
		return ask{}, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("%q is no type of Vast's machines, such as 1x-RTX_4090-16-65536", instanceType)}
	}
	return a, nil
}

// room are the machines that a launch may take, the best first. It is a CapacityError if
// there are none, or only dearer ones than were planned with.
func room(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec) ([]ask, error) {
	o := spec.Offer
	like, err := machine(o.InstanceType)
	if err != nil {
		return nil, err
	}
	w := wishes(spec.Settings)
	if code := country(o.Region); code != "" {
		if len(w.countries) > 0 && !slices.Contains(w.countries, code) {
			return nil, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("vast.countries allows %s", strings.Join(w.countries, ", "))}
		}
		w.countries = []string{code}
	}
	q := w.query(o.Spot, cmp.Or(spec.DiskGB, defaultDiskGB), mostAsks)
	q["gpu_name"], q["num_gpus"] = map[string]any{"eq": like.GPU}, map[string]any{"eq": like.GPUs}
	q["cpu_cores_effective"], q["cpu_ram"] = map[string]any{"gte": like.CPUs}, map[string]any{"gte": like.MemoryMiB}
	asks, err := search(ctx, c, q)
	if err != nil {
		return nil, err
	}
	rank(asks, o.Spot)
	least := 0.0
	within := slices.DeleteFunc(slices.Clone(asks), func(a ask) bool {
		bare, _ := a.price(o.Spot)
		if least == 0 || bare < least {
			least = bare
		}
		return o.HourlyPrice > 0 && bare > o.HourlyPrice*1.0001
	})
	switch {
	case len(asks) == 0:
		return nil, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("nobody on Vast offers such a machine there now that passes the settings of vast")}
	case len(within) == 0:
		return nil, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("the price rose: the cheapest such machine on Vast costs $%.3f an hour now, and $%.3f was planned with", least, o.HourlyPrice)}
	}
	return within, nil
}
