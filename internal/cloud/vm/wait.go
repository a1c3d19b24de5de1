package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

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
	for pause := p.o.FirstPoll; ; pause = min(2*pause, p.o.Poll) {
		done, err := f(limited)
		switch {
		case done || err != nil && limited.Err() == nil:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %s: %w", w.what, context.Cause(ctx))
		case limited.Err() != nil:
			return &cloud.UnreachableError{Err: &cloud.OverdueError{Err: fmt.Errorf("waited %v for %s", w.most, w.what)}}
		}
		cloud.ReportWait(ctx, w.what)
		again := time.NewTimer(pause)
		select {
		case <-limited.Done():
		case <-again.C:
		}
		again.Stop()
	}
}

// mostNamed is how many machines are named to people who wait for them.
const mostNamed = 3

// machinesTo says which of so many machines are waited for, as in "1 of 2
// machines to run (i-0abc: pending)".
func (p *Provider) machinesTo(do string, of int, list []Machine, done func(Machine) bool) string {
	var open []string
	left := of
	for _, m := range list {
		switch {
		case done(m):
			left--
		case m.State.exists():
			open = append(open, m.ID+": "+m.RawState)
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
		how = "not listed by " + p.o.DisplayName + " yet"
	}
	return fmt.Sprintf("%s %s to %s (%s)", count, noun, do, how)
}
