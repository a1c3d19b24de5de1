package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

const (
	// workingFresh is how long what is known of a cloud's credentials is told
	// without asking.
	workingFresh = 15 * time.Second
	// workingSoon is how long who has an older answer waits for a new one.
	workingSoon = 200 * time.Millisecond
	// workingLimit bounds one look, which goes on when nobody waits any more.
	workingLimit = time.Minute
	// workingPlaces bounds one at contexts and pools, of which those that are slower do not count.
	workingPlaces = 8 * time.Second
)

// working knows of which clouds the credentials work, for lists that must come at
// once although a cloud is slow to answer, or does not. The zero value is ready.
type working struct {
	mu sync.Mutex
	by map[string]*workingCloud
}

// workingCloud is what is known of one.
type workingCloud struct {
	works   bool
	places  []string      // the contexts or pools of it whose credentials work, where each has its own
	at      time.Time     // since when; zero: nothing is known
	looking chan struct{} // closed when the look under way is through; nil: there is none
}

// sections are the settings of a cloud by region.
type sections = func(region string) map[string]any

// ask reports whether a cloud's credentials work, and in which of its contexts or pools: as
// was seen a moment ago, or else what a new look shows, if it is soon or nothing was known
// before.
func (w *working) ask(ctx context.Context, p cloud.Provider, s sections) (works bool, places []string) {
	w.mu.Lock()
	c := w.of(p.Name())
	known := !c.at.IsZero()
	if known && time.Since(c.at) < workingFresh {
		defer w.mu.Unlock()
		return c.works, c.places
	}
	if c.looking == nil {
		c.looking = make(chan struct{})
		go w.look(context.WithoutCancel(ctx), p, s, c)
	}
	looking := c.looking
	w.mu.Unlock()

	var late <-chan time.Time
	if known {
		t := time.NewTimer(workingSoon)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-looking:
	case <-late:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.works, c.places
}

func (w *working) look(ctx context.Context, p cloud.Provider, s sections, c *workingCloud) {
	ctx, cancel := context.WithTimeout(ctx, workingLimit)
	defer cancel()
	var works bool
	var places []string
	if by, ok := cloud.As[cloud.PlaceChecker](p); ok {
		ctx, cancel := context.WithTimeout(ctx, workingPlaces)
		defer cancel()
		all, _ := by.CheckPlaces(ctx, "", s)
		for _, at := range all {
			if at.Err == nil {
				works, places = true, append(places, at.Region)
			}
		}
	} else {
		_, err := p.Check(ctx)
		works = err == nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.works, c.places, c.at = works, places, time.Now()
	close(c.looking)
	c.looking = nil
}

// forget makes the next who ask look again: somebody has seen that it may be
// otherwise.
func (w *working) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by = nil
}

// of is what is known of a cloud. w.mu is held.
func (w *working) of(name string) *workingCloud {
	if w.by == nil {
		w.by = map[string]*workingCloud{}
	}
	if w.by[name] == nil {
		w.by[name] = &workingCloud{}
	}
	return w.by[name]
}
