package cloudtest

import (
	"context"
	"math"
	"regexp"

	"github.com/skypilot-go/sky/internal/cloud"
)

var word = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

var descriptions = []Behaviour{
	{"the name is what users can write", nil, func(s *suite) {
		if !word.MatchString(s.p.Name()) || s.p.DisplayName() == "" {
			s.Errorf("name %q, display name %q", s.p.Name(), s.p.DisplayName())
		}
	}},
	{"what is lacking has a reason", nil, func(s *suite) {
		for feature, why := range s.p.Features().Lacks {
			if why == "" {
				s.Errorf("no reason for lacking %s", feature)
			}
		}
		if n := s.p.Features().MaxNameLength; n < 0 || n > 0 && n < 36 {
			s.Errorf("names of at most %d characters cannot hold a digest and a user's hash", n)
		}
	}},
	{"features tell the truth about stopping", nil, func(s *suite) {
		_, lacks := s.p.Features().Lacks[cloud.FeatureStop]
		if _, can := cloud.As[cloud.Stopper](s.p); can == lacks {
			s.Errorf("lacks stop: %t, is a Stopper: %t", lacks, can)
		}
	}},
	{"features tell the truth about spot machines", nil, func(s *suite) {
		offers, err := s.p.Offers(s.ctx())
		if err != nil {
			s.Fatal(err)
		}
		_, lacks := s.p.Features().Lacks[cloud.FeatureSpot]
		for _, o := range offers {
			if o.Spot && lacks {
				s.Errorf("%v offers %s as spot, which the provider says it lacks", o.Place, o.InstanceType)
			}
		}
	}},
	{"features need no cloud", []string{"Cut"}, func(s *suite) {
		before := len(s.p.Features().Lacks)
		s.Cut(s)
		if after := len(s.p.Features().Lacks); after != before {
			s.Errorf("%d are lacking without the cloud, %d with it", after, before)
		}
		s.Restore(s)
	}},
	{"check knows whose account it is", nil, func(s *suite) {
		first, err := s.p.Check(s.ctx())
		if err != nil || len(first) == 0 || first[0] == "" {
			s.Fatalf("%v, %v", first, err)
		}
		again, err := s.p.Check(s.ctx())
		if err != nil {
			s.Fatal(err)
		}
		s.same("the identity the second time", again, first)
	}},
	{"offers are sane", nil, func(s *suite) {
		offers, err := s.p.Offers(s.ctx())
		if err != nil {
			s.Fatal(err)
		}
		if offers == nil {
			return // a price list knows better
		}
		type key struct {
			place cloud.Place
			name  string
			spot  bool
		}
		prices := map[key]float64{}
		for _, o := range offers {
			k := key{o.Place, o.InstanceType, o.Spot}
			if _, twice := prices[k]; twice {
				s.Errorf("%v offers %s twice", o.Place, o.InstanceType)
			}
			prices[k] = o.HourlyPrice
			switch {
			case o.Cloud != s.p.Name(), o.InstanceType == "", o.Zone != "" && o.Region == "":
				s.Errorf("an offer of nothing or nowhere: %+v", o)
			case o.CPUs <= 0, o.MemoryGiB < 0:
				s.Errorf("%v: %s has %g CPUs and %g GiB", o.Place, o.InstanceType, o.CPUs, o.MemoryGiB)
			case o.HourlyPrice < 0, math.IsNaN(o.HourlyPrice), math.IsInf(o.HourlyPrice, 0):
				s.Errorf("%v: %s costs %g", o.Place, o.InstanceType, o.HourlyPrice)
			}
			for acc, n := range o.Accelerators {
				if acc == "" || n <= 0 {
					s.Errorf("%v: %s has %g of accelerator %q", o.Place, o.InstanceType, n, acc)
				}
			}
		}
		for k, price := range prices {
			full, ok := prices[key{k.place, k.name, false}]
			if k.spot && ok && price > full {
				s.Errorf("%v: %s costs more as spot (%g) than on demand (%g)", k.place, k.name, price, full)
			}
		}
		if _, ok := prices[key{s.Spec.Offer.Place, s.Spec.Offer.InstanceType, s.Spec.Offer.Spot}]; !ok && s.Spec.Offer.InstanceType != "" {
			s.Errorf("what the suite launches is not offered: %+v", s.Spec.Offer)
		}
	}},
	{"offers come in the same order every time", nil, func(s *suite) {
		first, err := s.p.Offers(s.ctx())
		if err != nil {
			s.Fatal(err)
		}
		again, err := s.p.Offers(s.ctx())
		if err != nil || len(again) != len(first) {
			s.Fatalf("%d offers, then %d: %v", len(first), len(again), err)
		}
		for i := range first {
			if first[i].Place != again[i].Place || first[i].InstanceType != again[i].InstanceType || first[i].Spot != again[i].Spot {
				s.Fatalf("offer %d was %+v and is %+v", i, first[i], again[i])
			}
		}
	}},
	{"preparing twice is preparing once", nil, func(s *suite) {
		spec := s.spec(s.id("prep"), 1)
		if err := s.p.Prepare(s.ctx(), spec); err != nil {
			s.Fatal(err)
		}
		before := s.inventory()
		if err := s.p.Prepare(s.ctx(), spec); err != nil {
			s.Fatal(err)
		}
		s.same("after the second time there is", s.inventory(), before)
	}},
	{"what was prepared and never launched can be removed", nil, func(s *suite) {
		id := s.id("prep")
		if err := s.p.Prepare(s.ctx(), s.spec(id, 1)); err != nil {
			s.Fatal(err)
		}
		if n := s.alive(id); len(n) > 0 {
			s.Errorf("preparing made machines: %v", brief(n))
		}
		s.terminate(id)
		s.nothingLeft(id)
	}},
	{"refused credentials say how to mend them", []string{"Refuse", "Restore"}, func(s *suite) {
		s.Refuse(s)
		_, err := s.p.Check(s.ctx())
		if e := want[*cloud.AuthError](s, err); e.Cloud != s.p.Name() || e.Fix == "" {
			s.Errorf("cloud %q, fix %q", e.Cloud, e.Fix)
		}
		s.Restore(s)
		if _, err := s.p.Check(s.ctx()); err != nil {
			s.Errorf("good credentials are refused afterwards: %v", err)
		}
	}},
	{"checking an unreachable cloud proves nothing about the credentials", []string{"Cut"}, func(s *suite) {
		s.Cut(s)
		_, err := s.p.Check(s.ctx())
		want[*cloud.UnreachableError](s, err)
		s.Restore(s)
	}},
	{"a cancelled check returns promptly", []string{"Hang"}, func(s *suite) {
		s.Hang(s)
		if err := s.promptly("Check", 50e6, func(ctx context.Context) error { _, err := s.p.Check(ctx); return err }); err == nil {
			s.Error("it says that the credentials are good")
		}
		s.Restore(s)
	}},
}
