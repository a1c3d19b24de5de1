package cloudtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// OddCode is what a cloud refuses with that nobody has heard of.
const OddCode = "martian-weather"

// oddities are what clouds do besides what their references promise.
var oddities = []Behaviour{
	{"a refusal that nobody knows is told whole and closes no more than its place", []string{"Odd", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		s.Odd(s, Creating)
		_, err := s.try(spec)
		var (
			auth      *cloud.AuthError
			forbidden *cloud.PermissionError
			invalid   *cloud.InvalidError
			quota     *cloud.QuotaError
		)
		switch at := spec.Offer.Place; {
		case err == nil || !strings.Contains(err.Error(), OddCode):
			s.Fatalf("the cloud's own words are missing: %v", err)
		case errors.As(err, &auth), errors.As(err, &forbidden) && forbidden.Place != at, errors.As(err, &invalid) && invalid.Place != at, errors.As(err, &quota):
			s.Errorf("%T (%v) says more than was understood", err, err)
		}
		s.Restore(s)
		s.launch(spec)
	}},
	{"a creation that lacks something is not repeated for ever", []string{"Lacking", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		calls := s.Lacking(s)
		_, err := s.try(spec)
		if err == nil || ctxErr(err) {
			s.Errorf("it was refused with %v", err)
		}
		if n := calls(); n < 1 || n > 4*spec.Nodes {
			s.Errorf("%d calls were made", n)
		}
		s.Restore(s)
		s.launch(spec)
	}},
	{"what is ending already can be ended again, whatever the cloud says", []string{"Linger", "Restore"}, func(s *suite) {
		id := s.id("web")
		s.launch(s.spec(id, s.some(2)))
		s.Linger(s, 3)
		s.terminate(id)
		s.Restore(s)
		s.nothingLeft(id)
	}},
	{"a conflict while something is removed means later", []string{"Conflict", "Restore", "open_ports"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		spec.Ports = []string{"8080"}
		s.launch(spec)
		s.Conflict(s, 2)
		s.terminate(spec.ID)
		s.Restore(s)
		s.nothingLeft(spec.ID)
	}},
	{"a state that never ends is no capacity in time", []string{"Stick", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		s.Stick(s)
		ctx, cancel := context.WithTimeout(s.Context(), 2*time.Hour)
		defer cancel()
		_, err := tryWith(ctx, s.p, spec)
		if e := want[*cloud.CapacityError](s, err); e.Place != spec.Offer.Place {
			s.Errorf("it names %v", e.Place)
		}
		s.Restore(s)
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"nodes without a private address have one that reaches, or are refused", []string{"Bare", "Restore", "multi-node"}, func(s *suite) {
		spec := s.spec(s.id("web"), 2)
		s.Bare(s)
		nodes, err := s.try(spec)
		if err != nil {
			want[*cloud.InvalidError](s, err)
			return
		}
		s.complete(nodes, 2)
		if a, b := nodes[0].InternalIP, nodes[1].InternalIP; a == "" || b == "" || a == b {
			s.Errorf("the addresses are %q and %q", a, b)
		}
	}},
	{"the default options keep the cloud's limits", []string{"Limited"}, func(s *suite) {
		p, over := s.Limited(s)
		ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
		defer cancel()
		var clusters sync.WaitGroup
		for _, name := range []string{"web", "db"} {
			spec := s.spec(s.id(name), s.some(2))
			clusters.Go(func() {
				nodes, err := tryWith(ctx, p, spec)
				if err != nil {
					s.Error(err)
					return
				}
				s.complete(nodes, spec.Nodes)
				if err := p.Terminate(ctx, spec.ID); err != nil {
					s.Error(err)
				}
			})
		}
		clusters.Wait()
		// As fast as the options let it, for longer than the limits count.
		for began, n := time.Now(), 0; n < 3000 && time.Since(began) < limitsCount; n++ {
			if _, err := p.Nodes(ctx, s.id("web")); err != nil {
				s.Fatal(err)
			}
		}
		if n := over(); n > 0 {
			s.Errorf("%d calls were one too many", n)
		}
	}},
}

// limitsCount is longer than what most limits are about: calls in a minute.
const limitsCount = 90 * time.Second

func ctxErr(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
