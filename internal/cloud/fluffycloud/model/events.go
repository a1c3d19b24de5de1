package model

import (
	"container/heap"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// event is something that happens by itself.
type event struct {
	At    time.Time `json:"at"`
	Seq   uint64    `json:"seq"` // orders what happens at once
	Kind  kind      `json:"kind"`
	ID    string    `json:"id,omitempty"`    // of the instance
	Epoch int       `json:"epoch,omitempty"` // the instance's when this was planned
	Point *Point    `json:"point,omitempty"`
}

type kind string

const (
	booted     kind = "booted"
	halted     kind = "halted"
	noticed    kind = "noticed"     // a spot instance learns its end
	takenBack  kind = "taken back"  // and meets it
	forgotten  kind = "forgotten"   // a terminated instance is no longer listed
	tracePoint kind = "trace point" // a price or a capacity changes
)

// queue orders events by time.
type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].At.Equal(q[j].At) {
		return q[i].At.Before(q[j].At)
	}
	return q[i].Seq < q[j].Seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// plan queues an event.
func (c *Cloud) plan(e event) {
	c.s.Seq++
	e.Seq = c.s.Seq
	heap.Push(&c.s.Queue, e)
}

// planFor queues an event that is void once the instance has changed.
func (c *Cloud) planFor(i *instance, k kind, after time.Duration) {
	c.plan(event{At: c.s.Now.Add(after), Kind: k, ID: i.ID, Epoch: i.Epoch})
}

// advance lets happen what is due until now. A clock that went back changes
// nothing.
func (c *Cloud) advance(now time.Time) {
	for len(c.s.Queue) > 0 && !c.s.Queue[0].At.After(now) {
		e := heap.Pop(&c.s.Queue).(event)
		if e.At.After(c.s.Now) {
			c.s.Now = e.At
		}
		c.happen(e)
	}
	if now.After(c.s.Now) {
		c.s.Now = now
	}
}

func (c *Cloud) happen(e event) {
	if e.Kind == tracePoint {
		c.apply(*e.Point)
		return
	}
	i := c.s.Instances[e.ID]
	if i == nil || i.Epoch != e.Epoch {
		return
	}
	switch e.Kind {
	case booted:
		c.move(i, fluffyapi.Running, "")
	case halted:
		c.halt(i, i.Reason)
	case noticed:
		c.giveNotice(i, c.cfg.Notice)
	case takenBack:
		c.terminate(i, preempted)
	case forgotten:
		c.forget(i)
	}
}

// Next is when something will happen by itself; false if nothing will.
func (c *Cloud) Next() (time.Time, bool) {
	c.lock()
	defer c.mu.Unlock()
	if len(c.s.Queue) == 0 {
		return time.Time{}, false
	}
	return c.s.Queue[0].At, true
}

// Change is one step in the life of an instance.
type Change struct {
	At       time.Time       `json:"at"`
	Instance string          `json:"instance"`
	From     fluffyapi.State `json:"from"`
	To       fluffyapi.State `json:"to"`
	Reason   string          `json:"reason,omitempty"`
}

// History is every change so far, if the configuration says to record them.
func (c *Cloud) History() []Change {
	c.lock()
	defer c.mu.Unlock()
	return append([]Change(nil), c.s.History...)
}
