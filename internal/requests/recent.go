package requests

import (
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// recent keeps requests that ended here a moment ago, with their results: they
// are what clients ask for next, and they never change again. The zero value is
// empty.
type recent struct {
	rows  map[string]*state.Request
	order []kept
	size  int // bytes of results
}

type kept struct {
	id string
	at time.Time
}

// Bounds of what is kept.
const (
	recentTime = 10 * time.Second
	recentRows = 4096
	recentSize = 4 << 20
)

func sizeOf(r *state.Request) int { return len(r.ReturnValue) + len(r.Error) + len(r.State) }

func (k *recent) add(r *state.Request, now time.Time) {
	if sizeOf(r) > recentSize/4 {
		return
	}
	if k.rows == nil {
		k.rows = map[string]*state.Request{}
	}
	if k.rows[r.ID] != nil {
		return
	}
	light := *r
	light.Body = nil // nobody who asks for a result reads it
	k.rows[r.ID] = &light
	k.order = append(k.order, kept{r.ID, now})
	k.size += sizeOf(r)
	k.forget(now)
}

func (k *recent) get(id string, now time.Time) *state.Request {
	k.forget(now)
	return k.rows[id]
}

func (k *recent) forget(now time.Time) {
	n := 0
	for n < len(k.order) && (now.Sub(k.order[n].at) > recentTime || len(k.order)-n > recentRows || k.size > recentSize) {
		k.size -= sizeOf(k.rows[k.order[n].id])
		delete(k.rows, k.order[n].id)
		n++
	}
	if k.order = k.order[n:]; len(k.order) == 0 {
		k.order = nil
	}
}
