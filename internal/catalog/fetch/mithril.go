package fetch

import (
	"context"
	"strconv"
	"strings"
)

// Mithril fetches what Mithril's auctions ask for machines at the moment.
type Mithril struct{ API }

// MithrilType is a type of machine of Mithril. A name may have several types, one for each
// of some regions.
type MithrilType struct {
	ID       string  `json:"fid"`
	Name     string  `json:"name"`
	CPUs     float64 `json:"num_cpus"`
	MemoryGB float64 `json:"ram_gb"`
	GPUs     float64 `json:"num_gpus"`
	GPU      string  `json:"gpu_type"`
	VRAM     float64 `json:"gpu_memory_gb"` // of one
}

// MithrilAuction is what machines of a type cost in a region. Prices are of a machine and
// an hour, as in "$10.00".
type MithrilAuction struct {
	ID       string `json:"fid"`
	Type     string `json:"instance_type"` // the id of a MithrilType
	Region   string `json:"region"`
	Capacity int    `json:"capacity"`
	Last     string `json:"last_instance_price"`
}

// Price is what a machine costs an hour now; false: the auction does not say.
func (a MithrilAuction) Price() (float64, bool) {
	price, err := strconv.ParseFloat(strings.TrimPrefix(a.Last, "$"), 64)
	return price, err == nil && price > 0
}

// accelerator is the GPU of a type in the names of price lists: those with the less common
// memory have it in their name.
func (t MithrilType) accelerator() string {
	switch {
	case t.GPUs == 0 || t.GPU == "":
		return ""
	case t.GPU == "A100" && t.VRAM == 80:
		return "A100-80GB"
	}
	return t.GPU
}

// MithrilRows are the types in the regions that sell them. All of them are sold by auction,
// also those that are not asked for as spot machines.
func MithrilRows(types []MithrilType, auctions []MithrilAuction) []Row {
	byID := map[string]MithrilType{}
	for _, t := range types {
		byID[t.ID] = t
	}
	var rows []Row
	for _, a := range auctions {
		t, ok := byID[a.Type]
		price, known := a.Price()
		if !ok || !known || t.Name == "" {
			continue
		}
		row := Row{InstanceType: t.Name, CPUs: t.CPUs, MemoryGiB: t.MemoryGB, Price: price, Spot: price, Region: a.Region}
		if row.Accelerator = t.accelerator(); row.Accelerator != "" {
			row.Count, row.DeviceMiB = t.GPUs, t.VRAM*1024
		}
		rows = append(rows, row)
	}
	return rows
}

// Rows asks for the types and the auctions.
func (m Mithril) Rows(ctx context.Context) ([]Row, error) {
	const api = "https://api.mithril.ai"
	var types []MithrilType
	if err := m.json(ctx, m.url(api, "/v2/instance-types"), nil, &types, m.bearer()...); err != nil {
		return nil, err
	}
	var auctions []MithrilAuction
	if err := m.json(ctx, m.url(api, "/v2/spot/availability"), nil, &auctions, m.bearer()...); err != nil {
		return nil, err
	}
	return MithrilRows(types, auctions), nil
}

var mithrilSource = Source{"mithril", []string{"MITHRIL_API_KEY"}, func(env func(string) string) Fetcher {
	return Mithril{API{Token: env("MITHRIL_API_KEY")}}
}}
