package catalog

import (
	"math"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
)

// Count is in which numbers an accelerator is offered.
type Count struct {
	Name   string
	Counts []float64
}

// CountList keeps its order: that of the clouds, then of names. As JSON it is
// an object.
type CountList []Count

// MarshalJSON writes an object, in order.
func (l CountList) MarshalJSON() ([]byte, error) {
	return marshalOrdered(l, func(c Count) (string, any) {
		counts := make([]api.Float, len(c.Counts))
		for i, n := range c.Counts {
			counts[i] = api.Float(n)
		}
		return c.Name, counts
	})
}

// Counts lists in which numbers the accelerators of several clouds are offered.
func Counts(tables []*Table, q ListQuery) CountList {
	matches := q.matcher()
	var out CountList
	at := map[string]int{}
	for _, t := range tables {
		q.AllRegions = false
		for _, name := range t.acceleratorNames {
			if !matches(name) {
				continue
			}
			for _, id := range t.kindsOf[strings.ToLower(name)] {
				k := &t.kinds[id]
				if !t.shows(k, &q) || q.Count != 0 && !SameCount(k.count, q.Count) || !t.offeredIn(k, &q) {
					continue
				}
				i, ok := at[name]
				if !ok {
					i = len(out)
					at[name] = i
					out = append(out, Count{Name: name})
				}
				if !slices.Contains(out[i].Counts, k.count) {
					out[i].Counts = append(out[i].Counts, k.count)
				}
			}
		}
	}
	for i := range out {
		slices.Sort(out[i].Counts)
	}
	return out
}

func (t *Table) offeredIn(k *kind, q *ListQuery) bool {
	for i := k.rows.from; i < k.rows.to; i++ {
		if (q.Unpriced || !math.IsNaN(t.price[i])) && (q.Region == "" || strings.EqualFold(q.Region, t.regions[t.region[i]])) {
			return true
		}
	}
	return false
}

// CommonGPUs are the accelerators that "gpus list" shows without being asked.
var CommonGPUs = []string{"A10", "A10G", "A100", "A100-80GB", "B200", "B300", "GB200", "GB300", "GH200", "H100", "H200", "L4", "L40S", "T4", "V100", "V100-32GB"}

// CommonTPUs are the TPU slices that it shows.
var CommonTPUs = []string{"tpu-v2-8", "tpu-v3-8", "tpu-v4-8", "tpu-v4-16", "tpu-v4-32",
	"tpu-v5litepod-1", "tpu-v5litepod-4", "tpu-v5litepod-8", "tpu-v5p-8", "tpu-v6e-1", "tpu-v6e-4", "tpu-v6e-8"}
