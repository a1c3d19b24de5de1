package optimizer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
)

// Listed is a Source over a plain list of offers.
type Listed struct {
	name, display string
	offers        []cloud.Offer
	lacks         map[cloud.Feature]string
	// LastResort keeps the source out unless a request names it or there are only
	// machines of one's own beside it, which come first. It is set for the machine sky
	// runs on and its containers.
	LastResort bool
}

// OffersSource makes a Source of a provider's own list of offers. There is no
// default size in it: a request that names none fits any machine. An offer
// that costs nothing is one's own machine, which can run smaller requests too.
func OffersSource(name, displayName string, offers []cloud.Offer, lacks map[cloud.Feature]string) *Listed {
	sorted := slices.Clone(offers)
	slices.SortStableFunc(sorted, func(a, b cloud.Offer) int { return cmp.Compare(a.HourlyPrice, b.HourlyPrice) })
	for i := range sorted {
		sorted[i].Cloud = name
	}
	return &Listed{name: name, display: displayName, offers: sorted, lacks: lacks, LastResort: facts.Of(name).Hardware == facts.Here}
}

func (s *Listed) Name() string                    { return s.name }
func (s *Listed) DisplayName() string             { return s.display }
func (s *Listed) Lacks() map[cloud.Feature]string { return s.lacks }

// Find lists the offers that answer the query, cheapest first.
func (s *Listed) Find(q catalog.Query) []cloud.Offer {
	var out []cloud.Offer
	for i := range s.offers {
		if answers(&s.offers[i], &q) {
			out = append(out, s.offers[i])
		}
	}
	return out
}

func answers(o *cloud.Offer, q *catalog.Query) bool {
	own := o.HourlyPrice == 0
	fits := catalog.Amount.Fits
	if own {
		fits = catalog.Amount.Least
	}
	return o.Spot == q.Spot &&
		(q.InstanceType == "" || q.InstanceType == o.InstanceType) &&
		fits(q.CPUs, o.CPUs, o.CPUs) && fits(q.Memory, o.MemoryGiB, o.CPUs) &&
		(q.MaxHourly == 0 || o.HourlyPrice <= q.MaxHourly) &&
		oneOf(q.Regions, o.Region) && oneOf(q.Zones, o.Zone) &&
		hasAccelerator(o, q, own)
}

func hasAccelerator(o *cloud.Offer, q *catalog.Query, own bool) bool {
	if q.Accelerator == "" {
		return true
	}
	for name, n := range o.Accelerators {
		if strings.EqualFold(name, q.Accelerator) && (q.Count == 0 || catalog.SameCount(n, q.Count) || own && n >= q.Count) {
			return true
		}
	}
	return false
}

// oneOf reports whether v is one of the allowed values, in any case; no values
// allow everything.
func oneOf(allowed []string, v string) bool {
	return len(allowed) == 0 || slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, v) })
}

// Names lists what the offers have of a kind.
func (s *Listed) Names(k catalog.NameKind) []string {
	var out []string
	add := func(n string) {
		if n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for i := range s.offers {
		o := &s.offers[i]
		switch k {
		case catalog.RegionNames:
			add(o.Region)
		case catalog.ZoneNames:
			add(o.Zone)
		case catalog.InstanceNames:
			add(o.InstanceType)
		case catalog.AcceleratorNames:
			for n := range o.Accelerators {
				add(n)
			}
		case catalog.AcceleratorOffers:
			for n, c := range o.Accelerators {
				add(catalog.FormatCount(n, c))
			}
		}
	}
	return out
}
