package cluster

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// tails are the logs that are followed right now. Each is read from its agent
// once, however many follow it: the stream begins with the first of them and ends
// with the last. What was read last is kept for those who are a little behind,
// and for those who come. Whoever asks for more than that reads it from the agent
// first; whoever falls behind by more gets a stream of their own from there on,
// so that nobody waits for them. The zero value is empty.
type tails struct {
	mu sync.Mutex
	by map[tailKey]*tail
}

// tailKey is one log: of a job of one incarnation of a cluster.
type tailKey struct {
	hash string
	job  int
}

// Bounds of what is kept of a log.
const (
	tailKeep   = 32 << 10        // for those who come
	tailWindow = 128 << 10       // for those who are behind
	tailBlock  = 4 << 10         // is allocated at once, unless more comes
	tailWait   = 1 * time.Second // how long the slowest is waited for when the window is full
)

// joinTries bounds how often a log that pours may run away from somebody who
// reads up to its end in order to join.
const joinTries = 5

// readLog writes a log from a position on, from so many lines before its end if
// lines > 0: to what is there, or with follow until the job has ended. begin, if
// not nil, is told where it starts. It returns the offset that it came to.
type readLog func(ctx context.Context, at LogPosition, lines int, follow bool, begin func(LogPosition) error, w io.Writer) (int64, error)

// endOfLog is what became of a job whose log is complete.
type endOfLog func(ctx context.Context) (*agentapi.Job, error)

// follow writes the log at a position until its job has ended, and returns what
// became of that. See readLog for the rest.
func (s *tails) follow(ctx context.Context, at LogPosition, lines int, begin func(LogPosition) error, w io.Writer, read readLog, end endOfLog) (*agentapi.Job, error) {
	var err error
	for range joinTries {
		t, r := s.join(ctx, at, lines, read, end)
		if r != nil {
			job, err := t.copy(ctx, r, at, begin, w)
			s.leave(t, r)
			if !errors.Is(err, errBehind) {
				return job, err
			}
			at.Offset, lines, begin = r.at, 0, nil
			break
		}
		if at.Offset, err = read(ctx, at, lines, false, begin, w); err != nil {
			return nil, err
		}
		lines, begin = 0, nil
	}
	if _, err := read(ctx, at, lines, true, begin, w); err != nil {
		return nil, err
	}
	return end(ctx)
}

// join enters a reader of the log that begins at a position; nil if that is no
// longer kept, or has to be found out.
func (s *tails) join(ctx context.Context, at LogPosition, lines int, read readLog, end endOfLog) (*tail, *tailReader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := tailKey{at.Hash, at.JobID}
	t := s.by[key]
	if t == nil {
		t = newTail(key)
		life, cancel := context.WithCancel(context.WithoutCancel(ctx))
		t.cancel = cancel
		if s.by == nil {
			s.by = map[tailKey]*tail{}
		}
		s.by[key] = t
		if lines == 0 {
			t.base, t.end = at.Offset, at.Offset
		} else {
			t.base = -1
		}
		r := &tailReader{at: t.base}
		t.readers[r] = true
		go func() {
			var job *agentapi.Job
			err := guarded(func() error {
				_, err := read(life, at, lines, true, t.begin, tailWriter{life, t})
				if err == nil {
					job, err = end(life)
				}
				return err
			})
			s.forget(t)
			t.finish(job, err)
			cancel()
		}()
		return t, r
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if lines > 0 || t.base < 0 || at.Offset < t.base {
		return nil, nil
	}
	r := &tailReader{at: at.Offset}
	t.readers[r] = true
	return t, r
}

// leave takes a reader out; the stream ends with the last.
func (s *tails) leave(t *tail, r *tailReader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.mu.Lock()
	delete(t.readers, r)
	last := len(t.readers) == 0
	t.mu.Unlock()
	t.tellWriter()
	if last {
		t.cancel()
		if s.by[t.key] == t {
			delete(s.by, t.key)
		}
	}
}

// forget makes who comes from now on begin anew.
func (s *tails) forget(t *tail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[t.key] == t {
		delete(s.by, t.key)
	}
}

// tail is one log on its way to all who follow it.
type tail struct {
	key    tailKey
	cancel context.CancelFunc // ends the stream
	moved  chan struct{}      // holds one token: a reader went on or left

	mu      sync.Mutex
	base    int64         // where the blocks begin; -1: not known yet
	end     int64         // and where they end
	blocks  [][]byte      // what was written of a block never changes
	grew    chan struct{} // closed at the next change
	readers map[*tailReader]bool
	over    bool // nothing more comes, because of
	err     error
	job     *agentapi.Job // or since the job has ended
}

// tailReader is how far somebody is; guarded by tail.mu.
type tailReader struct {
	at     int64 // -1: at the beginning, which is not known yet
	behind bool  // what follows is no longer kept
}

var errBehind = errors.New("too far behind the others who follow this log")

func newTail(key tailKey) *tail {
	return &tail{key: key, moved: make(chan struct{}, 1), grew: make(chan struct{}), readers: map[*tailReader]bool{}}
}

// begin is told where the stream starts.
func (t *tail) begin(p LogPosition) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base, t.end = p.Offset, p.Offset
	for r := range t.readers {
		if r.at < 0 {
			r.at = p.Offset
		}
	}
	t.wake()
	return nil
}

func (t *tail) finish(job *agentapi.Job, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over, t.job, t.err = true, job, err
	t.wake()
}

// wake makes readers look again. The caller holds t.mu.
func (t *tail) wake() {
	close(t.grew)
	t.grew = make(chan struct{})
}

// tellWriter makes the writer look again whether there is room.
func (t *tail) tellWriter() {
	select {
	case t.moved <- struct{}{}:
	default: // it will
	}
}

// copy writes what comes from r's place on until the log ends. begin, if not nil,
// is told where that is. [errBehind]: r.at is how far it came.
func (t *tail) copy(ctx context.Context, r *tailReader, at LogPosition, begin func(LogPosition) error, w io.Writer) (*agentapi.Job, error) {
	for {
		t.mu.Lock()
		p, grew := t.next(r), t.grew
		known, behind, over := r.at >= 0, r.behind, t.over
		at.Offset = r.at
		t.mu.Unlock()
		if known && begin != nil {
			if err := begin(at); err != nil {
				return nil, err
			}
			begin = nil
		}
		switch {
		case len(p) > 0:
			n, err := w.Write(p)
			t.mu.Lock()
			r.at += int64(n)
			t.mu.Unlock()
			t.tellWriter()
			if err != nil {
				return nil, plainWriteError(err)
			}
			continue
		case behind:
			return nil, errBehind
		case over:
			return t.job, t.err
		}
		select {
		case <-grew:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// next is what is kept from r's place on, as far as it lies in one piece. The
// caller holds t.mu.
func (t *tail) next(r *tailReader) []byte {
	if r.behind || r.at < t.base {
		return nil
	}
	at := r.at - t.base
	for _, b := range t.blocks {
		if at < int64(len(b)) {
			return b[at:len(b):len(b)]
		}
		at -= int64(len(b))
	}
	return nil
}

// tailWriter takes what the stream brings. It waits for readers, within bounds.
type tailWriter struct {
	ctx context.Context // the stream's own, for as long as the writer lives
	t   *tail
}

func (w tailWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		piece := p[n:min(len(p), n+tailKeep)]
		if err := w.t.makeRoom(w.ctx, len(piece)); err != nil {
			return n, err
		}
		w.t.add(piece)
		n += len(piece)
	}
	return n, nil
}

// add keeps p, for which there is room.
func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end += int64(len(p))
	if last := len(t.blocks) - 1; last >= 0 { // what it has room for
		b := t.blocks[last]
		n := min(len(p), cap(b)-len(b))
		t.blocks[last], p = append(b, p[:n]...), p[n:]
	}
	if len(p) > 0 {
		t.blocks = append(t.blocks, append(make([]byte, 0, max(len(p), tailBlock)), p...))
	}
	t.wake()
}

// makeRoom drops what all have read, as far as it is more than is kept for those
// who come. If the window is full nevertheless it waits for the slowest, and when
// that was in vain goes on without them.
func (t *tail) makeRoom(ctx context.Context, n int) error {
	var patience <-chan time.Time
	for {
		t.mu.Lock()
		t.drop(n)
		full := t.end-t.base+int64(n) > tailWindow
		t.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if !full {
			return nil
		}
		if patience == nil {
			timer := time.NewTimer(tailWait)
			defer timer.Stop()
			patience = timer.C
		}
		select {
		case <-t.moved:
		case <-ctx.Done():
		case <-patience:
			t.leaveBehind(n)
		}
	}
}

// drop drops blocks that all have read. The caller holds t.mu.
func (t *tail) drop(n int) {
	slowest := t.end
	for r := range t.readers {
		if !r.behind {
			slowest = min(slowest, r.at)
		}
	}
	for len(t.blocks) > 0 && t.end-t.base+int64(n) > tailKeep {
		next := t.base + int64(len(t.blocks[0]))
		if next > slowest {
			return
		}
		t.base, t.blocks[0], t.blocks = next, nil, t.blocks[1:]
	}
}

// leaveBehind lets go of those for whom n more bytes have no room.
func (t *tail) leaveBehind(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range t.readers {
		if r.at < t.end+int64(n)-tailWindow+tailKeep { // so much that it does not come to this again at once
			r.behind = true
		}
	}
	t.wake()
}

// plainWriteError is what the writer said.
func plainWriteError(err error) error {
	if we, ok := errors.AsType[*writeError](err); ok {
		return we.err
	}
	return err
}
