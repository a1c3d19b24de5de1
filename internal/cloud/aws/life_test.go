package aws_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
)

// TestBadDays takes a cluster through its life while any call may be throttled,
// fail, or lose its answer, while what is new is unknown for a while and lists
// are old, and while the server dies between two calls. Whatever happens, a
// cluster that was launched has the machines that were asked for and no other,
// and in the end nothing is left but what is documented as shared.
func TestBadDays(t *testing.T) {
	fake := start(t)
	fake.Page = 2
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		fake.Restore()
		bad := rapid.SliceOfN(rapid.SampledFrom([]awsfake.Trouble{awsfake.Fine, awsfake.Fine, awsfake.Fine,
			awsfake.Failing, awsfake.Broken, awsfake.Lost, awsfake.Exhausted}), 0, 60).Draw(r, "troubles")
		fake.Settle(rapid.IntRange(0, 3).Draw(r, "settles"))
		n := 0
		fake.Plague(func(_, action string) awsfake.Trouble {
			if n++; n > len(bad) {
				return awsfake.Fine
			}
			return bad[n-1]
		})
		p := provider()
		again := func(what string, call func() error) {
			for try := 0; ; try++ {
				err := call()
				if err == nil {
					return
				}
				if try > 100 {
					r.Fatalf("%s never comes to its end: %v", what, err)
				}
				if rapid.IntRange(0, 3).Draw(r, "the server dies") == 0 {
					p = provider()
					fake.Elapse() // which takes a while
				}
			}
		}
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: fmt.Sprint("h", round)}, Offer: here,
			Nodes: rapid.IntRange(1, 3).Draw(r, "nodes"), Token: fmt.Sprint("t", round)}
		if rapid.Bool().Draw(r, "ports") {
			spec.Ports = []string{"8080"}
		}
		if rapid.Bool().Draw(r, "fast network") {
			spec.NetworkTier, spec.Offer.InstanceType = "best", "p4d.24xlarge"
		}
		whole := func(what string) {
			var have []string
			for _, thing := range fake.Inventory() {
				if strings.HasPrefix(thing, "i-") {
					have = append(have, thing)
				}
			}
			if len(have) != spec.Nodes {
				r.Fatalf("%s: there are %v, want %d", what, have, spec.Nodes)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		launch := func() error {
			if err := p.Prepare(ctx, spec); err != nil {
				return err
			}
			_, err := p.Launch(ctx, spec)
			return err
		}
		if rapid.Bool().Draw(r, "given up at the first refusal") {
			_ = launch()
		} else {
			again("launch", launch)
			whole("launched")
			if rapid.Bool().Draw(r, "stop and start") {
				again("stop", func() error { return p.Stop(ctx, spec.ID) })
				again("start", launch)
				whole("started")
			}
			if rapid.Bool().Draw(r, "more ports") {
				again("open ports", func() error { return p.OpenPorts(ctx, spec.ID, []string{"9000-9010"}) })
			}
		}
		again("down", func() error { return p.Terminate(ctx, spec.ID) })
		if left := slices.DeleteFunc(fake.Inventory(), shared.MatchString); len(left) > 0 {
			r.Fatalf("left behind: %v", left)
		}
	})
}
