package provision

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestOverpriced(t *testing.T) {
	dearer := &cloud.PriceError{Place: cloud.Place{Cloud: "vast", Region: "CZ"}, Planned: 2.5, Now: 3, Err: errors.New("it costs $3 an hour now, and $2.5 was planned with")}
	for name, tt := range map[string]struct {
		times int
		most  float64
		want  string // "": it is an offer like another
	}{
		"nothing bounds it":          {times: 1},
		"at the bound":               {times: 1, most: 3},
		"above the bound":            {times: 1, most: 2.9, want: "it costs $3 an hour now, and $2.5 was planned with; max_hourly_cost is $2.9"},
		"again and again":            {times: mostRises, most: 4},
		"again and again, too often": {times: mostRises + 1, want: "it costs $3 an hour now, and $2.5 was planned with; it rose 4 times during this launch, from $2"},
	} {
		err := overpriced(rise{from: 2, times: tt.times}, dearer, tt.most)
		switch got, _ := errors.AsType[*cloud.PriceError](err); {
		case tt.want == "" && err == nil:
		case err == nil || got.Err.Error() != tt.want || got.Planned != 2 || got.Now != 3 || got.Place != dearer.Place:
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// pricing is a scripted cloud whose zones ask other prices than were planned with.
type pricing struct {
	*scripted
	asks   func(zone string) float64
	probed bool // it says so when it is asked for room
	stays  bool // a machine that was stopped costs what it cost
}

func (p *pricing) Features() cloud.Features {
	f := p.scripted.Features()
	f.PriceStays = p.stays
	return f
}

func (p *pricing) rose(o cloud.Offer) error {
	if now := p.asks(o.Zone); now > o.HourlyPrice {
		return &cloud.PriceError{Place: o.Place, Planned: o.HourlyPrice, Now: now, Err: errors.New("the price rose")}
	}
	return nil
}

func (p *pricing) Available(_ context.Context, o cloud.Offer, _ int) (cloud.Availability, error) {
	a := cloud.Availability{Verdict: cloud.AvailabilityUnknown}
	if p.probed && p.rose(o) != nil {
		a.Price, a.Reason = p.asks(o.Zone), "the price rose"
	}
	return a, nil
}

// TestAPriceThatRose: the offer is taken at its new price unless another one is cheaper then,
// whether the cloud says so when it is asked for room or only when machines are asked for.
func TestAPriceThatRose(t *testing.T) {
	price := func(now map[string]float64) func(string) float64 { return func(z string) float64 { return now[z] } }
	agreed := func(p float64) *float64 { return &p }
	higher := 1.0
	for name, tt := range map[string]struct {
		asks   func(string) float64
		most   float64
		agreed *float64
		keep   bool
		want   string  // the zone
		at     float64 // its price
		err    string
		said   string
	}{
		"it stays the cheapest":                         {asks: price(map[string]float64{"a": 1.1}), want: "a", at: 1.1, said: "⚠ aws/east/a: the price rose"},
		"another is cheaper now":                        {asks: price(map[string]float64{"a": 9}), want: "b", at: 2},
		"all are dearer":                                {asks: price(map[string]float64{"a": 9, "b": 8}), want: "b", at: 8},
		"within the bound":                              {asks: price(map[string]float64{"a": 1.1}), most: 1.1, want: "a", at: 1.1},
		"above the bound, another is not":               {asks: price(map[string]float64{"a": 1.5}), most: 1.2, want: "b", at: 2, said: "✗ aws/east/a: too dear: the price rose; max_hourly_cost is $1.2"},
		"all above the bound":                           {asks: price(map[string]float64{"a": 1.5, "b": 3}), most: 1.2, err: "Price: raise max_hourly_cost"},
		"asked about":                                   {asks: price(map[string]float64{"a": 1.5}), agreed: agreed(1), err: "p4 in aws/east/a costs $1.5 an hour now each; the plan said $1"},
		"agreed to":                                     {asks: price(map[string]float64{"a": 1.5}), agreed: agreed(1.5), want: "a", at: 1.5},
		"what is dearer by the plan is not asked about": {asks: price(map[string]float64{"a": 9}), agreed: agreed(1), want: "b", at: 2},
		"it rises all the time": {asks: func(z string) float64 {
			if z == "b" {
				return 0
			}
			higher += 0.01
			return higher
		}, want: "b", at: 2, said: "it rose 4 times during this launch"},
		"a cluster that was up before, within the bound": {asks: price(map[string]float64{"a": 1.5}), keep: true, most: 1.5, want: "a", at: 1.5, said: "⚠ aws/east/a: "},
		"a cluster that was up before, above the bound":  {asks: price(map[string]float64{"a": 1.5}), keep: true, most: 1.2, err: "max_hourly_cost is $1.2"},
		"a cluster that was up before":                   {asks: price(map[string]float64{"a": 9}), keep: true, want: "a", at: 9},
	} {
		for _, probed := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, nil)
				p := &pricing{scripted: s.p, asks: tt.asks, probed: probed}
				p.launch = func(_ context.Context, spec cloud.LaunchSpec) error { return p.rose(spec.Offer) }
				s.providers = cloud.NewRegistry(p)
				dear := zone("b")
				dear.HourlyPrice = 2
				r := Request{Cluster: s.c, Nodes: 2, Tiers: [][]cloud.Offer{{zone("a"), dear}}, Out: &s.out, Keep: tt.keep, Agreed: tt.agreed}
				if r.Most = func(o cloud.Offer) float64 {
					if o.Zone == "b" && tt.err == "" {
						return 0
					}
					return tt.most
				}; tt.keep {
					r.Tiers = Exactly(zone("a"))
				}
				o, _, err := s.Provision(t.Context(), r)
				switch {
				case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
					t.Errorf("%s (probed: %t): %v, want %q", name, probed, err, tt.err)
				case tt.err == "" && (err != nil || o.Zone != tt.want || o.HourlyPrice != tt.at):
					t.Errorf("%s (probed: %t): %s at %v, %v; want %s at %v", name, probed, o.Zone, o.HourlyPrice, err, tt.want, tt.at)
				case !strings.Contains(s.out.String(), tt.said):
					t.Errorf("%s (probed: %t): %q is not said:\n%s", name, probed, tt.said, s.out.String())
				case s.open(t) > 0:
					t.Errorf("%s (probed: %t): %d attempts are open", name, probed, s.open(t))
				}
				if launches := slices.DeleteFunc(s.p.calls, func(c string) bool { return !strings.HasPrefix(c, "launch") }); probed && !tt.keep && len(launches) > 1 && tt.said == "" {
					t.Errorf("%s: it was known before: %v", name, launches)
				}
			})
		}
	}
}

// TestStartingAtAPriceThatRose: what machines of a cluster cost that was up before is asked for
// before they are started, and bounded by what its task allowed. Machines that run are looked
// at and not asked about, and those whose price stays are started.
func TestStartingAtAPriceThatRose(t *testing.T) {
	for name, tt := range map[string]struct {
		was, now, most float64
		running        int
		stays, silent  bool
		at             float64
		err            string
		said           string
	}{
		"the same":                           {was: 1, now: 1, most: 1, at: 1},
		"it fell":                            {was: 1, now: 0.5, most: 1, at: 1},
		"within the bound":                   {was: 1, now: 1.5, most: 2, at: 1.5, said: "⚠ aws/east/a: p4 costs $1.5 an hour now; it cost $1 so far"},
		"nothing bounds it":                  {was: 1, now: 9, at: 9, said: "it cost $1 so far"},
		"above the bound":                    {was: 1, now: 3, most: 2, err: "p4 costs $3 an hour now; it cost $1 so far; max_hourly_cost is $2"},
		"a bound that it never was within":   {was: 3, now: 3, most: 2, err: "p4 costs $3 an hour now; it cost $3 so far; max_hourly_cost is $2"},
		"such a bound that it is within now": {was: 3, now: 1, most: 2, at: 3},
		"nobody knew its price":              {now: 3, most: 2, err: "its price was not known when it was rented; max_hourly_cost is $2"},
		"one of two runs":                    {was: 1, now: 3, most: 2, running: 1, err: "max_hourly_cost is $2"},
		"both run":                           {was: 1, now: 3, most: 2, running: 2, at: 1},
		"its price stays":                    {was: 1, now: 3, most: 2, stays: true, at: 1},
		"its price stays above the bound":    {was: 3, now: 1, most: 2, stays: true, err: "it cost $3 so far; max_hourly_cost is $2"},
		"nobody knows":                       {was: 1, now: 3, most: 2, silent: true, at: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, func(_ context.Context, spec cloud.LaunchSpec) error {
				if spec.Offer.MaxHourlyCost != tt.most {
					t.Errorf("%s: the provider may bid $%v, want %v", name, spec.Offer.MaxHourlyCost, tt.most)
				}
				return nil
			})
			s.providers = cloud.NewRegistry(&pricing{scripted: s.p, asks: func(string) float64 { return tt.now }, probed: !tt.silent, stays: tt.stays})
			o := zone("a")
			o.HourlyPrice, o.MaxHourlyCost = tt.was, tt.most
			s.p.up(cloud.LaunchSpec{ID: s.ClusterID(s.c), Offer: o}, tt.running)
			got, _, err := s.Provision(t.Context(), Request{Cluster: s.c, Nodes: 2, Tiers: Exactly(o), Out: &s.out, Keep: true})
			switch launched := slices.ContainsFunc(s.p.calls, func(c string) bool { return strings.HasPrefix(c, "launch") }); {
			case tt.err != "" && (launched || err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%s: %v, want %q", name, err, tt.err)
			case tt.err == "" && (err != nil || got.HourlyPrice != tt.at || got.MaxHourlyCost != tt.most):
				t.Errorf("%s: %+v, %v; want it at %v", name, got, err, tt.at)
			case !strings.Contains(s.out.String(), tt.said) || tt.said == "" && strings.Contains(s.out.String(), "⚠"):
				t.Errorf("%s: %q is not said:\n%s", name, tt.said, s.out.String())
			case s.open(t) > 0:
				t.Errorf("%s: %d attempts are open", name, s.open(t))
			}
		})
	}
}

// TestAPriceThatRoseIsAskedAboutLast: nobody is asked while an attempt is under way that may
// make the question needless.
func TestAPriceThatRoseIsAskedAboutLast(t *testing.T) {
	for _, room := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, nil)
			p := &pricing{scripted: s.p, asks: func(z string) float64 { return map[string]float64{"b": 1.4}[z] }, probed: true}
			p.launch = func(ctx context.Context, spec cloud.LaunchSpec) error {
				if !sleep(ctx, paces[stepLaunch].usual*3/2) {
					return context.Cause(ctx)
				} else if !room {
					return &cloud.CapacityError{Place: spec.Offer.Place, Err: errors.New("full")}
				}
				return nil
			}
			s.providers = cloud.NewRegistry(p)
			agreed := 1.0
			o, _, err := s.Provision(t.Context(), Request{Cluster: s.c, Nodes: 2, Tiers: [][]cloud.Offer{{zone("a"), zone("b")}}, Out: &s.out, Agreed: &agreed, Options: Options{Hedge: 2}})
			if room && (err != nil || o.Zone != "a") {
				t.Errorf("%v %v\n%s", o.Zone, err, s.out.String())
			} else if !room && (!is[*RoseError](err) || !strings.Contains(s.out.String(), "✗ aws/east/a: no capacity: full")) {
				t.Errorf("%v\n%s", err, s.out.String())
			}
		})
	}
}

// TestAPriceThatRoseTeachesNothing: the offer is as likely to be had as before, and not passed
// over by the next launch.
func TestAPriceThatRoseTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		p := &pricing{scripted: s.p, asks: func(string) float64 { return 5 }}
		p.launch = func(_ context.Context, spec cloud.LaunchSpec) error { return p.rose(spec.Offer) }
		s.providers = cloud.NewRegistry(p)
		_, _, err := s.Provision(t.Context(), Request{Cluster: s.c, Nodes: 2, Tiers: [][]cloud.Offer{{zone("a")}}, Out: &s.out, Most: func(cloud.Offer) float64 { return 2 }})
		if u, ok := errors.AsType[*UnplacedError](err); !ok || u.Kind() != "price" || !u.Retryable() {
			t.Fatalf("%v", err)
		}
		h := s.history(t.Context())
		if len(h.Refusals(nil)) > 0 || len(h.Seen()) > 0 {
			t.Errorf("it teaches %v, %v", h.Refusals(nil), h.Seen())
		}
	})
}
