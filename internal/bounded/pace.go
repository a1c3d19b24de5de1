package bounded

import (
	"context"
	"time"
)

// A Pace lets a number of things happen at once and from then on so many in a
// second. It is not safe for concurrent use.
type Pace struct {
	most, rate float64
	left       float64
	at         time.Time
}

// NewPace makes a Pace.
func NewPace(most, rate float64) *Pace {
	return &Pace{most: most, rate: rate, left: most, at: time.Now()}
}

func (p *Pace) refill() {
	now := time.Now()
	p.left = min(p.most, p.left+now.Sub(p.at).Seconds()*p.rate)
	p.at = now
}

// Allow reports whether one more may happen now, and counts it if so.
func (p *Pace) Allow() bool {
	p.refill()
	if p.left < 1 {
		return false
	}
	p.left--
	return true
}

// Wait returns when one more may happen.
func (p *Pace) Wait(ctx context.Context) error {
	p.refill()
	p.left--
	if p.left >= 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(-p.left / p.rate * float64(time.Second)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
