//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/notify"
)

const (
	pieceSize    = 64 << 10               // of raw output that is merged at once
	partialAfter = 500 * time.Millisecond // then a line without an end is shown
	restAfter    = 10 * time.Millisecond  // between looks at output that trickles
	pollInterval = 200 * time.Millisecond // where growth cannot be watched
	retryAfter   = time.Second            // when the disk is full
)

// jobLog merges what a job's ranks print into its run.log, which only grows.
//
// Each rank's raw output is a file: a source. An index says, a line for each
// piece, which bytes of which source become which bytes of run.log, and is
// written before them. So after a crash at any instant the last pieces can be
// finished, and no line is lost or there twice. The lines of the index:
//
//	S <path> <prefix>                              a source; counted from 0
//	B <offset> <length> <source> <from> <to> <how> a piece of it; how: b, p, s
//	N <offset> <length> <key> <text>               a line of our own
type jobLog struct {
	dir   string // the job's log folder
	log   *slog.Logger
	watch *watcher
	kick  chan struct{}     // something to do
	grown *notify.Broadcast // notified when run.log has grown or is complete

	mu      sync.Mutex // guards what follows
	index   *os.File
	out     *os.File
	indexAt int64 // length of the index's whole lines
	size    int64 // of run.log
	open    bool  // run.log does not end with a newline
	last    int   // source of its last bytes; -1: none
	sources []*source
	notes   map[string]bool
}

// source is one rank's output file.
type source struct {
	path    string // relative to the job's folder
	prefix  string
	f       *os.File
	pos     int64     // merged up to here
	partial time.Time // since when the bytes at pos wait for a newline
	open    bool      // the byte before pos is not a newline
	seen    bool      // growth is watched
	final   bool      // nothing is added any more
	drained bool      // final, and all of it is merged
}

// openJobLog opens or continues the log of a job: dir is its folder, index the
// path of its index. Pieces that a crash left half written are finished.
func openJobLog(dir, index string, log *slog.Logger, w *watcher, b *notify.Broadcast) (*jobLog, error) {
	if err := os.MkdirAll(filepath.Join(dir, "tasks"), 0o700); err != nil {
		return nil, err
	}
	l := &jobLog{dir: dir, log: log, watch: w, grown: b, kick: make(chan struct{}, 1), last: -1, notes: map[string]bool{}}
	var err error
	if l.index, err = os.OpenFile(index, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if l.out, err = os.OpenFile(l.path(), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		l.index.Close()
		return nil, err
	}
	if err := l.recover(); err != nil {
		l.close()
		return nil, fmt.Errorf("continuing the log %s: %w", dir, err)
	}
	return l, nil
}

func (l *jobLog) path() string { return filepath.Join(l.dir, "run.log") }

// close releases the files; the log can be opened again.
func (l *jobLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index.Close()
	l.out.Close()
	for _, s := range l.sources {
		l.release(s)
	}
}

func (l *jobLog) release(s *source) {
	if s.f != nil {
		s.f.Close()
		s.f = nil
		l.watch.remove(filepath.Join(l.dir, s.path), l.kick)
	}
}

// declared reports whether the source is known, and thus its rank has started.
func (l *jobLog) declared(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(path) != nil
}

func (l *jobLog) find(path string) *source {
	for _, s := range l.sources {
		if s.path == path {
			return s
		}
	}
	return nil
}

// declare adds a source unless it is known. Sources that are declared earlier
// are merged first as far as they are there.
func (l *jobLog) declare(ctx context.Context, path, prefix string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.find(path) == nil {
		if err := l.announce(ctx, fmt.Sprintf("S %s %s\n", strconv.Quote(path), strconv.Quote(prefix))); err != nil {
			return err
		}
		l.sources = append(l.sources, &source{path: path, prefix: prefix})
	}
	l.wake()
	return nil
}

// finish says that nothing is added to the source any more.
func (l *jobLog) finish(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.find(path); s != nil {
		s.final = true
	}
	l.wake()
}

// finishAll is finish for all sources.
func (l *jobLog) finishAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		s.final = true
	}
	l.wake()
}

func (l *jobLog) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// say writes a line of our own, once for each key.
func (l *jobLog) say(ctx context.Context, key, text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notes[key] {
		return nil
	}
	if l.open {
		text = "\n" + text
	}
	text += "\n"
	if err := l.announce(ctx, fmt.Sprintf("N %d %d %s %s\n", l.size, len(text), key, strconv.Quote(text))); err != nil {
		return err
	}
	l.notes[key] = true
	l.last = -1
	return l.append(ctx, []byte(text))
}

// merge moves output into run.log until the context ends.
func (l *jobLog) merge(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	buf := make([]byte, pieceSize)
	var out []byte
	for ctx.Err() == nil {
		var moved, more bool
		var wait time.Duration
		moved, more, wait, out = l.pass(ctx, buf, out)
		if cap(out) > 4*pieceSize {
			out = nil
		}
		if more {
			continue
		}
		// A little rest joins the wakes of output that comes byte by byte.
		select {
		case <-ctx.Done():
			return
		case <-time.After(restAfter):
		}
		if moved {
			continue // what is left is an open line, which must not wait for more
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		case <-timer.C:
		}
	}
}

// pass merges one piece of each source. It says whether that was anything,
// whether more is there already, and else when to look again if nobody calls.
func (l *jobLog) pass(ctx context.Context, buf, out []byte) (moved, more bool, wait time.Duration, _ []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait = time.Hour
	for i, s := range l.sources {
		if s.drained {
			continue
		}
		if s.f == nil && !l.openSource(s) {
			wait = min(wait, pollInterval)
			continue
		}
		n, err := s.f.ReadAt(buf, s.pos)
		if err != nil && n == 0 && s.final {
			s.drained = true
			l.release(s)
			l.grown.Notify()
			continue
		}
		if !s.seen {
			wait = min(wait, pollInterval)
		}
		if n == 0 {
			s.partial = time.Time{}
			continue
		}
		now := time.Now()
		if s.partial.IsZero() {
			s.partial = now
		}
		full := n == len(buf)
		n = cut(buf[:n], full, s.final || now.Sub(s.partial) >= partialAfter)
		if n == 0 {
			wait = min(wait, max(partialAfter-now.Sub(s.partial), time.Millisecond))
			continue
		}
		s.partial = time.Time{}
		data := buf[:n]
		how := pieceFor(l.open, s.open, l.last == i, data[0])
		out = how.render(out[:0], data, s.prefix)
		line := fmt.Sprintf("B %d %d %d %d %d %s\n", l.size, len(out), i, s.pos, s.pos+int64(n), how)
		if l.announce(ctx, line) != nil {
			return moved, more, wait, out
		}
		s.pos += int64(n)
		s.open = data[n-1] != '\n'
		l.last = i
		if l.append(ctx, out) != nil {
			return moved, more, wait, out
		}
		moved = true
		more = more || full || s.final
		if s.final {
			break // what is over comes before what goes on
		}
	}
	return moved, more, wait, out
}

func (l *jobLog) openSource(s *source) bool {
	path := filepath.Join(l.dir, s.path)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && s.final {
		s.drained = true
		l.grown.Notify()
	}
	if err != nil {
		return false
	}
	s.f = f
	s.seen = l.watch.add(path, l.kick)
	return true
}

// isDrained reports whether all output is merged.
func (l *jobLog) isDrained() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		if !s.drained {
			return false
		}
	}
	return true
}

// drain returns when all sources are final and merged.
func (l *jobLog) drain(ctx context.Context) error {
	for {
		next := l.grown.Next()
		if l.isDrained() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// announce adds a line to the index. It repeats until there is room on the disk,
// and fails only with the context.
func (l *jobLog) announce(ctx context.Context, line string) error {
	err := l.persist(ctx, l.index, []byte(line), l.indexAt)
	if err == nil {
		l.indexAt += int64(len(line))
	}
	return err
}

// append adds bytes to run.log that the index has announced.
func (l *jobLog) append(ctx context.Context, data []byte) error {
	if err := l.persist(ctx, l.out, data, l.size); err != nil {
		return err
	}
	if len(data) > 0 {
		l.size += int64(len(data))
		l.open = data[len(data)-1] != '\n'
		l.grown.Notify()
	}
	return nil
}

// persist writes data at an offset. What fails is tried again, without an end:
// the raw output is kept, so nothing is lost while we wait.
func (l *jobLog) persist(ctx context.Context, f *os.File, data []byte, at int64) error {
	for warned := false; ; {
		n, err := f.WriteAt(data, at)
		if err == nil {
			return nil
		}
		data, at = data[n:], at+int64(n)
		if !warned {
			l.log.Warn("log not written, trying again", "file", f.Name(), "err", err)
			warned = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryAfter):
		}
	}
}

func (p piece) String() string {
	var b strings.Builder
	for _, x := range []struct {
		on bool
		c  byte
	}{{p.brk, 'b'}, {p.prefix, 'p'}, {p.skip, 's'}, {p.back, 'r'}} {
		if x.on {
			b.WriteByte(x.c)
		}
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}

func parsePiece(s string) piece {
	return piece{brk: strings.Contains(s, "b"), prefix: strings.Contains(s, "p"), skip: strings.Contains(s, "s"), back: strings.Contains(s, "r")}
}

// lastByte returns the byte before off.
func lastByte(f *os.File, off int64) (byte, bool) {
	var b [1]byte
	if off <= 0 {
		return 0, false
	}
	_, err := f.ReadAt(b[:], off-1)
	return b[0], err == nil
}
