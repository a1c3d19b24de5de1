package requests

import (
	"os"
	"sync"

	"github.com/skypilot-go/sky/internal/state"
)

// feed is where those who follow or wait for one request learn of changes. It
// exists while somebody does, or while the request runs here.
type feed struct {
	id   string
	path string // of the log
	refs int    // guarded by Engine.mu

	mu      sync.Mutex
	changed chan struct{}  // closed at the next change of row or log
	moved   chan struct{}  // closed at the next change of row
	row     *state.Request // the latest that this server knows; never modified
	file    *os.File       // the log, one for all readers; nil while there is none
}

// acquire returns the feed of a request, to be released.
func (e *Engine) acquire(id string) *feed {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.acquireLocked(id)
}

func (e *Engine) acquireLocked(id string) *feed {
	f := e.feeds[id]
	if f == nil {
		f = &feed{id: id, path: e.logPath(id), changed: make(chan struct{}), moved: make(chan struct{})}
		e.feeds[id] = f
	}
	f.refs++
	return f
}

func (e *Engine) release(f *feed) {
	e.mu.Lock()
	f.refs--
	gone := f.refs == 0
	if gone {
		delete(e.feeds, f.id)
	}
	e.mu.Unlock()
	if gone && f.file != nil {
		f.file.Close()
	}
}

// feedOf calls f with a request's feed if anybody has it.
func (e *Engine) feedOf(id string, f func(*feed)) {
	e.mu.Lock()
	feed := e.feeds[id]
	e.mu.Unlock()
	if feed != nil {
		f(feed)
	}
}

// publish tells followers what a request is now.
func (e *Engine) publish(row *state.Request) {
	e.feedOf(row.ID, func(f *feed) { f.publish(row) })
}

// publish keeps the newer of what is known and row.
func (f *feed) publish(row *state.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.older(row) {
		f.row = row
	}
	f.wakeAll()
}

// status publishes a new status message.
func (f *feed) status(msg string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.row != nil {
		row := *f.row
		row.StatusMsg = msg
		f.row = &row
	}
	f.wakeAll()
}

// learn is what is known once row was read: row, unless something newer was
// published meanwhile.
func (f *feed) learn(row *state.Request) *state.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.older(row) {
		f.row = row
	}
	return f.row
}

// older reports whether what is known may be replaced by row.
func (f *feed) older(row *state.Request) bool {
	return f.row == nil || !f.row.Status.Terminal() && f.row.Attempt <= row.Attempt
}

// grew tells followers that the log did.
func (f *feed) grew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wake()
}

// touch tells followers to look again.
func (f *feed) touch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wakeAll()
}

func (f *feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *feed) wakeAll() {
	f.wake()
	close(f.moved)
	f.moved = make(chan struct{})
}

// view is what a feed showed at one moment.
type view struct {
	row     *state.Request // nil: not known yet
	changed <-chan struct{}
	moved   <-chan struct{}
}

func (f *feed) look() view {
	f.mu.Lock()
	defer f.mu.Unlock()
	return view{f.row, f.changed, f.moved}
}

// log is the log's file, nil if there is none yet.
func (f *feed) log() (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		file, err := os.Open(f.path)
		if os.IsNotExist(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		f.file = file
	}
	return f.file, nil
}
