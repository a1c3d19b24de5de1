//go:build unix && !linux

package agent

import (
	"context"
	"path/filepath"
	"sync"
)

// watcher only passes on calls of wake: who follows a file looks at it every
// pollInterval.
type watcher struct {
	mu   sync.Mutex
	subs map[string]map[chan<- struct{}]int
}

func newWatcher(context.Context) *watcher {
	return &watcher{subs: map[string]map[chan<- struct{}]int{}}
}

// add sends to c, which has room for one, whenever wake is called for the file.
// It returns whether growth is seen; if not the caller has to look again from
// time to time.
func (w *watcher) add(path string, c chan<- struct{}) bool {
	path = filepath.Clean(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs[path] == nil {
		w.subs[path] = map[chan<- struct{}]int{}
	}
	w.subs[path][c]++
	return false
}

// remove undoes one add.
func (w *watcher) remove(path string, c chan<- struct{}) {
	path = filepath.Clean(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs[path][c]--; w.subs[path][c] <= 0 {
		delete(w.subs[path], c)
	}
	if len(w.subs[path]) == 0 {
		delete(w.subs, path)
	}
}

// wake tells the watchers of a file to look at it.
func (w *watcher) wake(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.subs[filepath.Clean(path)] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
