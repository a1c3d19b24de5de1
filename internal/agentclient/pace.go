package agentclient

import (
	"context"
	"time"
)

// A pace lets a number of things happen at once and then so many in a second.
type pace struct {
	most, rate float64
	left       float64
	at         time.Time
}

func newPace(most, rate float64) *pace {
	return &pace{most: most, rate: rate, left: most, at: time.Now()}
}

// wait returns when one more may happen.
func (p *pace) wait(ctx context.Context) error {
	now := time.Now()
	p.left = min(p.most, p.left+now.Sub(p.at).Seconds()*p.rate)
	p.at = now
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
