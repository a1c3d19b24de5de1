package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// slowToStart and slowToEnd are how many times longer than others machines
// without a hypervisor may take: their own firmware tests and wipes them, which
// has been seen to last 20 minutes and more.
const (
	slowToStart = 4
	slowToEnd   = 3
)

// bare matches the types of machines without a hypervisor, and the largest ones.
var bare = lazyregexp.New(`\.metal(-|$)|^u-|^u7|^mac`)

// patience is how long machines of a type may take to start.
func (p *Provider) patience(machine string) time.Duration {
	if bare.MatchString(machine) {
		return slowToStart * p.o.Timeout
	}
	return p.o.Timeout
}

// LaunchLimit is how long bare machines may take, which is longer than anybody
// expects; others take what they usually take.
func (p *Provider) LaunchLimit(spec cloud.LaunchSpec) time.Duration {
	if machine := spec.Offer.InstanceType; bare.MatchString(machine) {
		return p.patience(machine) + time.Minute // to make what they need
	}
	return 0
}

// wait is something that is looked at again and again until it holds.
type wait struct {
	what string // for people; whoever looks may say it more exactly
	most time.Duration
}

// until repeats f until it reports that all is done. Waits end with the context
// or when they have taken too long.
func (p *Provider) until(ctx context.Context, w *wait, f func(context.Context) (done bool, err error)) error {
	limited, cancel := context.WithTimeout(ctx, w.most)
	defer cancel()
	tick := time.NewTicker(p.o.Poll)
	defer tick.Stop()
	for {
		done, err := f(limited)
		switch {
		case done || err != nil && limited.Err() == nil:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %s: %w", w.what, context.Cause(ctx))
		case limited.Err() != nil:
			return &cloud.UnreachableError{Err: &cloud.OverdueError{Err: fmt.Errorf("waited %v for %s", w.most, w.what)}}
		}
		cloud.Waits(ctx, w.what)
		select {
		case <-limited.Done():
		case <-tick.C:
		}
	}
}

// mostNamed is how many machines are named to people who wait for them.
const mostNamed = 3

// machinesTo says which of so many machines are waited for, as in "1 of 2
// machines to run (i-0abc: pending)".
func machinesTo(do string, of int, list []instance, done func(instance) bool) string {
	var open []string
	left := of
	for _, i := range list {
		switch {
		case done(i):
			left--
		case i.exists():
			open = append(open, i.id+": "+string(i.state))
		}
	}
	slices.Sort(open)
	if n := len(open) - mostNamed; n > 0 {
		open = append(open[:mostNamed], fmt.Sprintf("%d more", n))
	}
	count := fmt.Sprint(left)
	if left < of {
		count = fmt.Sprintf("%d of %d", left, of)
	}
	noun := "machines"
	if of == 1 {
		noun = "machine"
	}
	how := strings.Join(open, ", ")
	if how == "" {
		how = "not listed by AWS yet"
	}
	return fmt.Sprintf("%s %s to %s (%s)", count, noun, do, how)
}
