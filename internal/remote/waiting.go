package remote

import "sync"

// waiting says what nodes that are set up at the same time wait for: of the one
// with the lowest rank, lest the nodes talk over each other.
type waiting struct {
	told func(what string)

	mu sync.Mutex
	of []string // by rank; "": for nothing
}

// hear notes what a node waits for.
func (w *waiting) hear(rank int, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[rank] = what
	for _, what := range w.of {
		if what != "" {
			w.told(what)
			return
		}
	}
}
