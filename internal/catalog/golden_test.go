package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shared is the folder of measured answers and price lists, beside the repo.
const shared = "../../../shared"

func goldenTables(t testing.TB, clouds []string) []*Table {
	t.Helper()
	var out []*Table
	for _, c := range clouds {
		text, err := os.ReadFile(filepath.Join(shared, "catalogs/v5", c, "vms.csv"))
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("the shared price lists are not here: ", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		table, err := Load(c, text, Options{})
		if err != nil {
			t.Fatal(c, err)
		}
		out = append(out, table)
	}
	return out
}

type goldenItem struct {
	Cloud        string
	InstanceType *string  `json:"instance_type"`
	Name         string   `json:"accelerator_name"`
	Count        float64  `json:"accelerator_count"`
	CPUs         *float64 `json:"vcpus"`
	DeviceGiB    *float64 `json:"device_memory_gib"`
	MemoryGiB    *float64 `json:"memory_gib"`
	Price        *float64
	SpotPrice    *float64 `json:"spot_price"`
	Region       string
}

func (g goldenItem) String() string {
	f := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return fmt.Sprintf("%.4f", *x)
	}
	instance := "-"
	if g.InstanceType != nil {
		instance = *g.InstanceType
	}
	return strings.Join([]string{strings.ToLower(g.Cloud), instance, g.Name, f(&g.Count), f(g.CPUs), f(g.DeviceGiB), f(g.MemoryGiB), f(g.Price), f(g.SpotPrice), g.Region}, " ")
}

func (i ListItem) golden() string {
	p := func(x float64) *float64 {
		if math.IsNaN(x) {
			return nil
		}
		return &x
	}
	g := goldenItem{Cloud: i.Cloud, Name: i.Accelerator, Count: i.Count, CPUs: p(i.CPUs), DeviceGiB: p(i.DeviceGiB), MemoryGiB: p(i.MemoryGiB), Price: p(i.Price), SpotPrice: p(i.SpotPrice), Region: i.Region}
	if i.InstanceType != "" {
		g.InstanceType = &i.InstanceType
	}
	return g.String()
}

func TestGoldenListings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(shared, "goldens/show_gpus.json"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the measured answers are not here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Clouds     []string                           `json:"clouds_order"`
		All        map[string][]goldenItem            `json:"all"`
		AllRegions map[string][]goldenItem            `json:"all_regions"`
		NotGPUs    map[string][]goldenItem            `json:"not_gpus_only"`
		Counts     map[string][]float64               `json:"counts"`
		Filters    map[string]map[string][]goldenItem `json:"filters"`
	}
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	tables := goldenTables(t, g.Clouds)
	text, err = os.ReadFile("testdata/differences.json")
	if err != nil {
		t.Fatal(err)
	}
	var differences map[string]string // view and name → why ours is better
	if err := json.Unmarshal(text, &differences); err != nil {
		t.Fatal(err)
	}
	matched, explained, wrong := 0, 0, 0
	check := func(view string, q ListQuery, want map[string][]goldenItem, whole bool) {
		got := map[string][]ListItem{}
		for _, l := range List(tables, q) {
			got[l.Name] = l.Items
		}
		if whole && !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			wrong++
			t.Errorf("%s: names %v, want %v", view, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		for name, items := range want {
			var a, b []string
			for _, i := range got[name] {
				a = append(a, i.golden())
			}
			for _, i := range items {
				if q.Unlisted {
					i.DeviceGiB = nil // the reference forgets it in this view
				}
				b = append(b, i.String())
			}
			if q.Unlisted {
				a = a[:0]
				for _, i := range got[name] {
					i.DeviceGiB = none
					a = append(a, i.golden())
				}
			}
			x, y := strings.Join(a, "\n\t"), strings.Join(b, "\n\t")
			_, listed := differences[view+" "+name]
			switch {
			case x == y && !listed:
				matched++
			case x != y && listed:
				explained++
			default:
				wrong++
				t.Errorf("%s %s (listed as different: %v):\n\t%s\nwant\n\t%s", view, name, listed, x, y)
			}
		}
	}
	check("all", ListQuery{}, g.All, false)
	check("all regions", ListQuery{AllRegions: true}, g.AllRegions, false)
	check("not only GPUs", ListQuery{Unlisted: true}, g.NotGPUs, false)
	for spec, want := range g.Filters {
		var f struct {
			Name   string `json:"name_filter"`
			Region string `json:"region_filter"`
		}
		if err := json.Unmarshal([]byte(spec), &f); err != nil {
			t.Fatal(err)
		}
		check(spec, ListQuery{Name: f.Name, Region: f.Region}, want, true)
	}
	counts := map[string][]float64{}
	for _, c := range Counts(tables, ListQuery{}) {
		counts[c.Name] = c.Counts
	}
	for name, want := range g.Counts {
		if !slices.Equal(counts[name], want) {
			wrong++
			t.Errorf("counts of %s: %v, want %v", name, counts[name], want)
		} else {
			matched++
		}
	}
	t.Logf("listings: matched %d, explained %d, wrong %d", matched, explained, wrong)
}
