package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
)

// ListQuery selects accelerators. The zero value lists every GPU and TPU, one
// row per instance type, in the region where it is cheapest.
type ListQuery struct {
	Name          string // regular expression, found anywhere in the name; "" all
	CaseSensitive bool
	Region        string  // in any case
	Count         float64 // 0: any
	AllRegions    bool    // one row per region
	// Unlisted includes accelerators that GPU lists leave out, such as AI chips
	// of which a cloud does not tell the memory.
	Unlisted bool
	// Unpriced includes what can be had only as spot.
	Unpriced bool
}

// Listing is what is on offer of one accelerator.
type Listing struct {
	Name  string // for TPUs the generation, "tpu-v4"
	Items []ListItem
}

// Listings keep their order: that of the clouds, then of names. As JSON they
// are an object.
type Listings []Listing

// ListItem is an instance type with accelerators. Unknown numbers are NaN.
type ListItem struct {
	Cloud        string // display name
	InstanceType string // "" for accelerators that have none of their own
	Accelerator  string
	Count        float64
	CPUs         float64
	DeviceGiB    float64
	MemoryGiB    float64
	Price        float64 // $ per hour
	SpotPrice    float64
	Region       string
}

// MarshalJSON writes it as clients know it.
func (i ListItem) MarshalJSON() ([]byte, error) {
	number := func(x float64) *float64 {
		if math.IsNaN(x) {
			return nil
		}
		return &x
	}
	price := func(x float64) *float64 {
		if x == 0 { // how lists write one that is not known
			return nil
		}
		return number(x)
	}
	o := api.AcceleratorOffer{Cloud: i.Cloud, AcceleratorName: i.Accelerator, AcceleratorCount: i.Count, CPUCount: number(i.CPUs),
		DeviceMemory: number(i.DeviceGiB), Memory: number(i.MemoryGiB), Price: price(i.Price), SpotPrice: price(i.SpotPrice), Region: &i.Region}
	if i.InstanceType != "" {
		o.InstanceType = &i.InstanceType
	}
	return o.MarshalJSON()
}

// MarshalJSON writes an object, in order. Of each accelerator those whose price is not
// known come last.
func (l Listings) MarshalJSON() ([]byte, error) {
	return marshalOrdered(l, func(e Listing) (string, any) {
		items := slices.Clone(e.Items)
		slices.SortStableFunc(items, func(a, b ListItem) int { return b2i(a.unpriced()) - b2i(b.unpriced()) })
		return e.Name, items
	})
}

func (i ListItem) unpriced() bool { return i.Price == 0 || math.IsNaN(i.Price) }

func marshalOrdered[T any](list []T, entry func(T) (string, any)) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		name, v := entry(e)
		for k, part := range []any{name, v} {
			text, err := json.Marshal(part)
			if err != nil {
				return nil, err
			}
			b.Write(text)
			if k == 0 {
				b.WriteByte(':')
			}
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// List finds accelerators in several clouds' tables. An expression that is not
// valid is taken as plain text.
func List(tables []*Table, q ListQuery) Listings {
	matches := q.matcher()
	var out Listings
	at := map[string]int{}
	for _, t := range tables {
		for _, item := range t.list(&q, matches) {
			name := listName(item.Accelerator)
			i, ok := at[name]
			if !ok {
				i = len(out)
				at[name] = i
				out = append(out, Listing{Name: name})
			}
			out[i].Items = append(out[i].Items, item)
		}
	}
	return out
}

// listName puts the sizes of a TPU generation together.
func listName(accelerator string) string {
	if strings.HasPrefix(accelerator, "tpu-") {
		if i := strings.LastIndexByte(accelerator, '-'); i > len("tpu") {
			return accelerator[:i]
		}
	}
	return accelerator
}

// matcher reads the name as a request by memory, such as 40GB+, or as a regular
// expression.
func (q *ListQuery) matcher() func(string) bool {
	if q.Name == "" {
		return func(string) bool { return true }
	}
	if memory, ok := ParseMemoryRequest(q.Name); ok {
		all := memory.Accelerators()
		return func(name string) bool {
			return slices.ContainsFunc(all, func(a Accelerator) bool { return strings.EqualFold(a.Name, name) })
		}
	}
	expr := q.Name
	if _, err := regexp.Compile(expr); err != nil {
		expr = regexp.QuoteMeta(expr)
	}
	if !q.CaseSensitive {
		expr = "(?i)" + expr
	}
	return regexp.MustCompile(expr).MatchString
}

// list gives the rows of one cloud: by name, count and instance type.
func (t *Table) list(q *ListQuery, matches func(string) bool) []ListItem {
	var kinds []int32
	for _, name := range t.acceleratorNames {
		if !matches(name) {
			continue
		}
		for _, i := range t.kindsOf[strings.ToLower(name)] {
			if k := &t.kinds[i]; (q.Count == 0 || SameCount(k.count, q.Count)) && t.shows(k, q) {
				kinds = append(kinds, i)
			}
		}
	}
	slices.SortStableFunc(kinds, func(a, b int32) int {
		x, y := &t.kinds[a], &t.kinds[b]
		return cmp.Or(compareAccelerators(x.accelerator, y.accelerator), cmp.Compare(x.count, y.count), cmp.Compare(x.instance, y.instance))
	})
	kinds = t.ownHosts(kinds)
	seen := make([]bool, len(t.regions))
	var out []ListItem
	var rows []uint32
	for _, i := range kinds {
		rows = t.cheapestFirst(rows[:0], i, q)
		clear(seen)
		for _, r := range rows {
			if region := t.region[r]; !seen[region] {
				seen[region] = true
				out = append(out, t.item(&t.kinds[i], r))
			}
			if !q.AllRegions {
				break
			}
		}
	}
	return out
}

// shows reports whether a kind is part of the list at all.
func (t *Table) shows(k *kind, q *ListQuery) bool {
	return (k.listed || q.Unlisted) && !k.tpuNode
}

// compareAccelerators orders names by their letters, sizes of a TPU by number.
func compareAccelerators(a, b string) int {
	if x, y := listName(a), listName(b); x == y && len(a) != len(b) && strings.HasPrefix(a, "tpu-") {
		return cmp.Compare(len(a), len(b))
	}
	return strings.Compare(a, b)
}

// ownHosts keeps, of accelerators that go into several hosts, the one host that
// is taken when no size is asked for.
func (t *Table) ownHosts(kinds []int32) []int32 {
	if !t.traits.Attached {
		return kinds
	}
	best := map[string]int32{}
	key := func(k *kind) string { return FormatCount(k.accelerator, k.count) }
	for _, i := range kinds {
		k := &t.kinds[i]
		if k.attached && (k.cpus < k.defaultCPUs || k.memory < 4*k.cpus) {
			continue
		}
		if b, ok := best[key(k)]; !ok || k.minPrice < t.kinds[b].minPrice {
			best[key(k)] = i
		}
	}
	return slices.DeleteFunc(kinds, func(i int32) bool { return best[key(&t.kinds[i])] != i })
}

// cheapestFirst appends the rows of a kind that the query wants, by price, spot
// price and place in the file (all regions: by name).
func (t *Table) cheapestFirst(rows []uint32, id int32, q *ListQuery) []uint32 {
	k := &t.kinds[id]
	for i := k.rows.from; i < k.rows.to; i++ {
		if math.IsNaN(t.price[i]) && !q.Unpriced || q.Region != "" && !strings.EqualFold(q.Region, t.regions[t.region[i]]) {
			continue
		}
		rows = append(rows, i)
	}
	slices.SortFunc(rows, func(a, b uint32) int {
		c := cmp.Or(compareNumbers(t.price[a], t.price[b]), compareNumbers(t.spot[a], t.spot[b]))
		if c == 0 && q.AllRegions {
			c = strings.Compare(t.regions[t.region[a]], t.regions[t.region[b]])
		}
		return cmp.Or(c, cmp.Compare(t.seq[a], t.seq[b]))
	})
	return rows
}

// compareNumbers orders NaN last.
func compareNumbers(a, b float64) int {
	if na, nb := math.IsNaN(a), math.IsNaN(b); na || nb {
		return b2i(na) - b2i(nb)
	}
	return cmp.Compare(a, b)
}

func (t *Table) item(k *kind, r uint32) ListItem {
	i := ListItem{Cloud: t.DisplayName(), InstanceType: k.instance, Accelerator: k.accelerator, Count: k.count,
		CPUs: known(k.cpus), DeviceGiB: none, MemoryGiB: known(k.memory), Price: t.price[r], SpotPrice: t.spot[r], Region: t.regions[t.region[r]]}
	if k.deviceMiB > 0 {
		i.DeviceGiB = k.deviceMiB / 1024
	}
	if k.assumed {
		i.InstanceType, i.CPUs, i.MemoryGiB = "", none, none
	}
	return i
}

func known(x float64) float64 {
	if x == 0 {
		return none
	}
	return x
}
