package agent

import (
	"sync"

	"github.com/skypilot-go/sky/api/agentapi"
)

// hub passes events on to whoever listens. A listener that is too slow is cut
// off: it comes back and gets the whole state again.
type hub struct {
	mu        sync.Mutex
	listeners map[chan agentapi.Event]bool
}

const hubBacklog = 256

func newHub() *hub { return &hub{listeners: map[chan agentapi.Event]bool{}} }

func (h *hub) publish(e agentapi.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.listeners {
		select {
		case c <- e:
		default:
			delete(h.listeners, c)
			close(c)
		}
	}
}

// listen returns a channel of events; it is closed when the listener is cut off.
func (h *hub) listen() chan agentapi.Event {
	c := make(chan agentapi.Event, hubBacklog)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listeners[c] = true
	return c
}

func (h *hub) leave(c chan agentapi.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, c)
}
