package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/skypilot-go/sky/internal/storage"
)

// An engine runs the requests of one transfer.
type engine struct {
	o      Options
	ctx    context.Context // ends with the transfer, or with its first fatal error
	end    context.CancelCauseFunc
	slots  *slots
	memory *semaphore.Weighted
	large  chan struct{} // files that are moved in parts at the same time
	wg     sync.WaitGroup
	idle   chan func() // workers that wait for something to do
	over   chan struct{}
	meter  *meter
	parts  sync.Pool // buffers of the size of parts

	mu     sync.Mutex
	fatal  error
	failed FilesError
	report Report
	noted  map[string]int // how often a kind of note was made
}

// largeAtOnce is how many files are moved in parts at the same time: enough that
// the end of one does not leave the others waiting.
const largeAtOnce = 4

func newEngine(ctx context.Context, o Options) *engine {
	e := &engine{o: o.filled(), noted: map[string]int{}, idle: make(chan func()), over: make(chan struct{})}
	e.ctx, e.end = context.WithCancelCause(ctx)
	e.slots = newSlots(e.o.Workers)
	e.memory = semaphore.NewWeighted(e.o.Memory)
	e.large = make(chan struct{}, largeAtOnce)
	e.meter = startMeter(e.o.Progress)
	return e
}

// wrap repeats the calls to a bucket, and notes when it asks for fewer.
func (e *engine) wrap(b storage.Bucket) storage.Bucket {
	r := e.o.Retries
	on := r.On
	r.On = func(err error, wait time.Duration) {
		if _, ok := errors.AsType[*storage.ThrottledError](err); ok {
			e.slots.throttled()
		}
		if on != nil {
			on(err, wait)
		}
	}
	return storage.Retry(b, r)
}

// do calls f in a worker. Workers are kept, with stacks that have grown: calls to stores
// go deep.
func (e *engine) do(f func()) {
	select {
	case e.idle <- f:
	default:
		go func() {
			for {
				f()
				select {
				case f = <-e.idle:
				case <-e.over:
					return
				}
			}
		}()
	}
}

// finish waits for all that was begun and says how the transfer ended.
func (e *engine) finish() (Report, error) {
	e.wg.Wait()
	close(e.over)
	e.end(nil)
	e.meter.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for kind, n := range e.noted {
		if n > namedNotes {
			e.report.Notes = append(e.report.Notes, fmt.Sprintf("%s: %d more", kind, n-namedNotes))
		}
	}
	switch {
	case e.fatal != nil:
		return e.report, e.fatal
	case e.failed.Count > 0:
		return e.report, &e.failed
	}
	return e.report, nil
}

// stop ends the transfer with its first error.
func (e *engine) stop(err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	if e.fatal == nil {
		e.fatal = err
	}
	e.mu.Unlock()
	e.end(err)
}

// ended is the cause, if the transfer is over.
func (e *engine) ended() error {
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	return nil
}

// result notes how one file went: what is wrong with the file alone is collected,
// and the rest ends the transfer.
func (e *engine) result(name string, err error) {
	if err == nil {
		return
	}
	if e.ctx.Err() != nil {
		e.stop(context.Cause(e.ctx))
		return
	}
	if !ofTheFile(err) {
		e.stop(fmt.Errorf("%q: %w", name, err))
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed.Count++
	if len(e.failed.Failed) < 100 {
		var own *FileError
		if !errors.As(err, &own) {
			own = &FileError{Name: name, Err: err}
		}
		e.failed.Failed = append(e.failed.Failed, own)
	}
}

// A localError is about a file on this machine.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// ofTheFile reports whether other files may fare better.
func ofTheFile(err error) bool {
	if _, ok := errors.AsType[*localError](err); ok {
		return !noSpace(err)
	}
	if _, ok := errors.AsType[*storage.InvalidError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*storage.ConflictError](err); ok {
		return true
	}
	missing, ok := errors.AsType[*storage.NotFoundError](err)
	return ok && missing.Key != "" // deleted since it was listed
}

const namedNotes = 3

// note tells of something that was left out, the first of its kind by name.
func (e *engine) note(kind, name string, skipped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if skipped {
		e.report.Skipped++
	}
	if e.noted[kind]++; e.noted[kind] <= namedNotes {
		e.report.Notes = append(e.report.Notes, kind+": "+name)
	}
}

func (e *engine) moved(bytes int64) {
	e.mu.Lock()
	e.report.Files++
	e.report.Bytes += bytes
	e.mu.Unlock()
	e.meter.file()
}

func (e *engine) same(bytes int64) {
	e.mu.Lock()
	e.report.Same++
	e.mu.Unlock()
	e.meter.bytes(bytes)
	e.meter.file()
}

// A group is some requests that belong together. Its first error ends the others.
type group struct {
	e   *engine
	ctx context.Context
	end context.CancelCauseFunc
	wg  sync.WaitGroup
	mu  sync.Mutex
	err error
}

func (e *engine) group() *group {
	g := &group{e: e}
	g.ctx, g.end = context.WithCancelCause(e.ctx)
	return g
}

func (g *group) fail(err error) {
	if err == nil {
		return
	}
	g.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.mu.Unlock()
	g.end(err)
}

// run makes a request that holds so much memory and moves so many bytes, when there
// is room for it. It returns when the request was begun; false: there is an error.
func (g *group) run(memory, moves int64, f func(context.Context) error) bool {
	memory = min(memory, g.e.o.Memory)
	if err := g.e.memory.Acquire(g.ctx, memory); err != nil {
		g.fail(context.Cause(g.ctx))
		return false
	}
	if err := g.e.slots.take(g.ctx); err != nil {
		g.e.memory.Release(memory)
		g.fail(err)
		return false
	}
	g.wg.Add(1)
	g.e.do(func() {
		defer g.wg.Done()
		g.fail(f(g.ctx)) // before its slot is free: nothing begins after an error
		g.e.slots.give(moves)
		g.e.memory.Release(memory)
	})
	return true
}

// wait waits for all requests.
func (g *group) wait() error {
	g.wg.Wait()
	g.end(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// small moves something in one request, named for errors. It returns when the
// request was begun; false: the transfer is over.
func (e *engine) small(name string, bytes int64, f func(context.Context) error) bool {
	memory := min(max(bytes, 4<<10), e.o.Memory)
	if err := e.memory.Acquire(e.ctx, memory); err != nil {
		e.stop(context.Cause(e.ctx))
		return false
	}
	if err := e.slots.take(e.ctx); err != nil {
		e.memory.Release(memory)
		e.stop(err)
		return false
	}
	e.wg.Add(1)
	e.do(func() {
		defer e.wg.Done()
		e.result(name, f(e.ctx)) // before its slot is free: nothing begins after a fatal error
		e.slots.give(bytes)
		e.memory.Release(memory)
	})
	return true
}

// inParts moves something in many requests, which f makes in a group of its own.
func (e *engine) inParts(name string, f func() error) bool {
	select {
	case e.large <- struct{}{}:
	case <-e.ctx.Done():
		e.stop(context.Cause(e.ctx))
		return false
	}
	if err := e.ended(); err != nil { // the turn came at the same time
		<-e.large
		e.stop(err)
		return false
	}
	e.wg.Go(func() {
		e.result(name, f())
		<-e.large
	})
	return true
}

// buffer is room for so many bytes.
func (e *engine) buffer(n int64) []byte {
	if n > e.o.Part || n <= e.o.Part/4 {
		return make([]byte, n)
	}
	if p, ok := e.parts.Get().(*[]byte); ok {
		return (*p)[:n]
	}
	return make([]byte, n, e.o.Part)
}

// free gives a buffer back.
func (e *engine) free(p []byte) {
	if int64(cap(p)) == e.o.Part {
		p = p[:0]
		e.parts.Put(&p)
	}
}
