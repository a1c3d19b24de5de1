package requests

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// replay calls a log request's function again, for a reader who asks for the
// stream by the request's id. If the request was cancelled that is all there
// is to say.
func (e *Engine) replay(ctx context.Context, row *state.Request, o StreamOptions, w io.Writer) error {
	s := newStreamer(w, o)
	if row.Status == api.RequestCancelled {
		return s.finish(row)
	}
	out := &replayWriter{s: s}
	if o.Tail > 0 && row.Status.Terminal() {
		out.keep = o.Tail
	}
	live := newLiveWriter(out)
	stopBeats := live.keepAlive()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer e.onClosing(func() { cancel(ErrShutdown) })()
	c := e.call(row, streamLog(live))
	c.replay = true
	_, err := e.protect(ctx, c, func() (any, error) { return e.handlers[row.Name].l(ctx, c, live) })
	c.Log.close()
	stopBeats()
	out.release()
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, ErrShutdown) {
			return s.again()
		}
		return cause
	}
	if err != nil && s.err == nil { // it is the request's own failure, or will be: the result says it
		e.log.DebugContext(ctx, "replay of a log ended", "replayed", row.ID, slog.Any("error", err))
	}
	s.endLine()
	s.flush()
	return s.err
}

// onClosing calls f when streams must end, unless the result is called before.
func (e *Engine) onClosing(f func()) (undo func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-e.closing:
			f()
		case <-done:
		}
	})
	return func() { close(done); wg.Wait() }
}

// replayWriter passes what a function writes to a streamer; with keep > 0 only
// the last lines, at the end.
type replayWriter struct {
	s    *streamer
	keep int
	held [][]byte // lines, those that count at most keep
	n    int      // how many of them count
	part []byte
}

func (r *replayWriter) Write(p []byte) (int, error) {
	if r.keep == 0 {
		r.pass(p)
		r.s.flush()
		return len(p), r.s.err
	}
	r.part = append(r.part, p...)
	for {
		end := bytes.IndexByte(r.part, '\n') + 1
		if end == 0 {
			return len(p), nil
		}
		r.hold(bytes.Clone(r.part[:end]))
		r.part = r.part[end:]
	}
}

func (r *replayWriter) hold(line []byte) {
	r.held = append(r.held, line)
	if !isControl(line) {
		r.n++
	}
	for r.n > r.keep {
		if !isControl(r.held[0]) {
			r.n--
		}
		r.held = r.held[1:]
	}
}

func (r *replayWriter) release() {
	for _, line := range r.held {
		r.pass(line)
	}
	r.pass(r.part)
}

func (r *replayWriter) pass(p []byte) {
	r.s.send(r.s.filtered(p))
}
