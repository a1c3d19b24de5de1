package catalog

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// table lays the collected rows out in columns.
func (b *builder) table() *Table {
	t := b.t
	if t.traits.Attached {
		b.joinGCP()
	}
	b.reprice()
	n := 0
	for _, rows := range b.rows {
		n += len(rows)
	}
	t.regions, t.zones = b.regions.list, b.zones.list
	t.region, t.zone = make([]uint16, 0, n), make([]uint16, 0, n)
	t.price, t.spot = make([]float64, 0, n), make([]float64, 0, n)
	t.regionHead, t.seq = make([]bool, 0, n), make([]uint32, 0, n)
	t.kindsOf, t.byInstance = map[string][]int32{}, map[string][]int32{}
	seen := make([]bool, len(t.regions))
	order := placeOrder{t: t, class: regionClasses(&t.traits, t.regions)}
	order.regionRank, order.zoneRank = ranks(t.regions), ranks(t.zones)
	for i := range b.kinds {
		rows := slices.DeleteFunc(b.rows[i], func(r row) bool {
			gone := math.IsNaN(r.price) && math.IsNaN(r.spot)
			if gone {
				t.Report.Unpriced++
			}
			return gone
		})
		if len(rows) > 0 {
			t.addKind(b.kinds[i], rows, &order, seen)
		}
	}
	t.Report.Rows = len(t.price)
	t.index()
	return t
}

// placeOrder compares rows of one kind: by the class of the region, then by
// price, then by the names of region and zone.
type placeOrder struct {
	t                    *Table
	class                []int
	regionRank, zoneRank []int32
}

func regionClasses(tr *traits, regions []string) []int {
	class := make([]int, len(regions))
	if tr.RegionClass != nil {
		for i, r := range regions {
			class[i] = tr.RegionClass(r)
		}
	}
	return class
}

// ranks gives the position of each name in alphabetical order.
func ranks(names []string) []int32 {
	order := make([]int32, len(names))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(names[a], names[b]) })
	out := make([]int32, len(names))
	for rank, i := range order {
		out[i] = int32(rank)
	}
	return out
}

// compare orders NaN (no price) last.
func (o *placeOrder) compare(a, b *row, pa, pb float64) int {
	if na, nb := math.IsNaN(pa), math.IsNaN(pb); na || nb {
		return cmp.Compare(b2i(na), b2i(nb))
	}
	if c := cmp.Or(cmp.Compare(o.class[a.region], o.class[b.region]), cmp.Compare(pa, pb)); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(o.regionRank[a.region], o.regionRank[b.region]), cmp.Compare(o.zoneRank[a.zone], o.zoneRank[b.zone]))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (t *Table) addKind(k kind, rows []row, order *placeOrder, seen []bool) {
	slices.SortStableFunc(rows, func(a, b row) int { return order.compare(&a, &b, a.price, b.price) })
	clear(seen)
	from := uint32(len(t.price))
	k.minPrice, k.minSpot = math.Inf(1), math.Inf(1)
	for _, r := range rows {
		t.region, t.zone = append(t.region, r.region), append(t.zone, r.zone)
		t.price, t.spot = append(t.price, r.price), append(t.spot, r.spot)
		t.seq = append(t.seq, r.seq)
		head := !seen[r.region] && !math.IsNaN(r.price)
		t.regionHead = append(t.regionHead, head)
		if head {
			seen[r.region] = true
		}
		if r.price < k.minPrice {
			k.minPrice = r.price
		}
		if r.spot < k.minSpot {
			k.minSpot = r.spot
		}
	}
	k.rows = span{from, uint32(len(t.price))}
	at := make([]uint32, 0, len(rows))
	for i := range rows {
		if !math.IsNaN(rows[i].spot) {
			at = append(at, uint32(i))
		}
	}
	slices.SortFunc(at, func(a, b uint32) int {
		return cmp.Or(order.compare(&rows[a], &rows[b], rows[a].spot, rows[b].spot), cmp.Compare(a, b))
	})
	k.spots.from = uint32(len(t.bySpot))
	for _, i := range at {
		t.bySpot = append(t.bySpot, from+i)
	}
	k.spots.to = uint32(len(t.bySpot))
	t.kinds = append(t.kinds, k)
}

// index builds the ways into the table.
func (t *Table) index() {
	var offers []int32
	for i := range t.kinds {
		k, id := &t.kinds[i], int32(i)
		if first, ok := t.traits.sizeFamilies(k); ok {
			for f := first; f <= AllFamilies; f++ {
				t.sizes[f] = append(t.sizes[f], id)
			}
		}
		if k.instance != "" {
			if t.byInstance[k.instance] == nil {
				t.instanceNames = append(t.instanceNames, k.instance)
			}
			t.byInstance[k.instance] = append(t.byInstance[k.instance], id)
		}
		if k.accelerator != "" {
			low := strings.ToLower(k.accelerator)
			if t.kindsOf[low] == nil {
				t.acceleratorNames = append(t.acceleratorNames, k.accelerator)
			}
			t.kindsOf[low] = append(t.kindsOf[low], id)
			offers = append(offers, id)
		}
	}
	slices.Sort(t.instanceNames)
	slices.Sort(t.acceleratorNames)
	slices.SortStableFunc(offers, func(a, b int32) int { return cmp.Compare(t.kinds[a].minPrice, t.kinds[b].minPrice) })
	seen := map[string]bool{}
	for _, i := range offers {
		name := FormatCount(t.kinds[i].accelerator, t.kinds[i].count)
		if !seen[name] {
			seen[name] = true
			t.acceleratorOffers = append(t.acceleratorOffers, name)
		}
	}
}

// reprice applies price overrides and the discount.
func (b *builder) reprice() {
	if len(b.o.Prices) == 0 && b.o.Discount == 0 {
		return
	}
	for i := range b.kinds {
		for j := range b.rows[i] {
			r := &b.rows[i][j]
			r.price, r.spot = r.price*(1-b.o.Discount), r.spot*(1-b.o.Discount)
			for _, p := range b.o.Prices {
				if p.InstanceType != b.kinds[i].instance || p.Region != "" && !strings.EqualFold(p.Region, b.regions.list[r.region]) {
					continue
				}
				if p.Price != nil {
					r.price = *p.Price
				}
				if p.SpotPrice != nil {
					r.spot = *p.SpotPrice
				}
			}
		}
	}
}
