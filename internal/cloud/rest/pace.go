package rest

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"
)

// Pace is how often an API may be called.
type Pace struct {
	Method, Path string        // of the calls that it is for, Path being how they begin; "": all
	Every        time.Duration // one call each, in the long run
	Burst        int           // calls that may be made at once; 0: 1
}

func (p Pace) fits(method, path string) bool {
	return (p.Method == "" || p.Method == method) && strings.HasPrefix(path, p.Path)
}

// pacer makes calls wait until their pace allows them.
type pacer struct {
	paces []Pace
	mu    sync.Mutex
	next  map[int]time.Time // when the next call of a pace may be made if none were saved up
}

// wait returns when the call may be made: when every pace that fits allows it. A call
// that waits for one takes no place of another meanwhile.
func (p *pacer) wait(ctx context.Context, method, path string) error {
	for {
		wait := p.take(method, path, time.Now())
		if err := sleep(ctx, wait); err != nil || wait <= 0 {
			return err
		}
	}
}

// take takes a place of every pace that fits, or of none: then it returns how long it is
// until there may be one.
func (p *pacer) take(method, path string, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = map[int]time.Time{}
	}
	next := map[int]time.Time{}
	for i, pace := range p.paces {
		if !pace.fits(method, path) {
			continue
		}
		at := p.next[i]
		if earliest := now.Add(-time.Duration(max(pace.Burst, 1)-1) * pace.Every); at.Before(earliest) {
			at = earliest
		}
		wait = max(wait, at.Sub(now))
		next[i] = at.Add(pace.Every)
	}
	if wait <= 0 {
		maps.Copy(p.next, next)
	}
	return wait
}

// sleep waits, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
)

// later is how long a call waits that was one too many: as long as the API says,
// if that makes sense, else longer from try to try.
func later(after time.Duration, try int) time.Duration {
	if after > 0 {
		return min(after, mostPause)
	}
	return min(firstPause<<min(try, 10), mostPause)
}
