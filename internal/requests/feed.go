package requests

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// feed is where those who follow or wait for one request learn of changes. It
// exists while somebody does, or while the request runs here.
type feed struct {
	id   string
	name string // of the log
	logs logstore.Logs
	made time.Time
	refs int // guarded by Engine.mu

	// Whoever asks the database does so for all who wait.
	asking sync.Mutex
	asked  time.Time // when the row was last read

	mu      sync.Mutex
	changed chan struct{}  // closed at the next change of row or log
	moved   chan struct{}  // closed at the next change of row
	row     *state.Request // the latest that this server knows; never modified
	file    logstore.Log   // the log, one for all readers; nil while there is none
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
		f = &feed{id: id, name: e.logName(id), logs: e.logs, made: time.Now(), changed: make(chan struct{}), moved: make(chan struct{})}
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
	f.stale()
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
	f.stale()
	close(f.changed)
	f.changed = make(chan struct{})
}

// stale tells the log that there may be more of it. The caller holds f.mu.
func (f *feed) stale() {
	if f.file != nil {
		f.file.Grew()
	}
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
func (f *feed) log() (logstore.Log, error) {
	f.mu.Lock()
	file := f.file
	f.mu.Unlock()
	if file != nil {
		return file, nil
	}
	file, err := f.logs.Open(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil { // somebody else was quicker
		file.Close()
	} else {
		f.file = file
	}
	return f.file, nil
}

// fetch reads the row, unless it was read for somebody else a moment ago.
func (f *feed) fetch(ctx context.Context, get func(context.Context, string) (*state.Request, error)) (*state.Request, error) {
	f.asking.Lock()
	defer f.asking.Unlock()
	if row := f.look().row; row != nil && time.Since(f.asked) < f.poll()/2 {
		return row, nil
	}
	row, err := get(ctx, f.id)
	if err != nil {
		return nil, err
	}
	f.asked = time.Now()
	return f.learn(row), nil
}

// How often a request that another server runs is looked at: often at first, for
// most take no time.
const (
	pollFirst = 20 * time.Millisecond
	pollMost  = time.Second
)

func (f *feed) poll() time.Duration {
	return min(max(time.Since(f.made)/8, pollFirst), pollMost)
}
