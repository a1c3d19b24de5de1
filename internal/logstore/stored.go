package logstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// MaxLog is how long a log in the database may become. A launch prints
// kilobytes; this bounds what a task that prints without end costs.
const MaxLog = 256 << 20

// Bounds of one answer from the database, and of waiting for it.
const (
	readPieces = 64
	askLimit   = 20 * time.Second
	// writeFor is how long a write is tried again while the database is away. A
	// server that cannot reach it for longer has lost what it was working on.
	writeFor   = 30 * time.Second
	writeAgain = 250 * time.Millisecond
)

// Stored keeps logs in a database, as streams.
type Stored struct {
	Store  *state.Store
	Prefix string // of the streams' names
}

// Append begins at the end that the log has now.
func (s Stored) Append(name string) (Appender, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	size, err := s.Store.Streams().Size(ctx, s.Prefix+name)
	if err != nil {
		return nil, err
	}
	return &storedAppender{streams: s.Store.Streams(), name: s.Prefix + name, at: size, closed: make(chan struct{})}, nil
}

// Open is [fs.ErrNotExist] until something was written.
func (s Stored) Open(name string) (Log, error) {
	l := &storedLog{streams: s.Store.Streams(), name: s.Prefix + name, grew: true}
	switch n, err := l.Size(); {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return l, nil
}

// Remove removes the streams.
func (s Stored) Remove(names ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	streams := make([]string, len(names))
	for i, name := range names {
		streams[i] = s.Prefix + name
	}
	return s.Store.Streams().Delete(ctx, streams)
}

// List asks for the streams.
func (s Stored) List(pattern string) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	sizes, err := s.Store.Streams().Sizes(ctx, s.Prefix)
	if err != nil {
		return nil, err
	}
	matching := map[string]int64{}
	for stream, size := range sizes {
		name := strings.TrimPrefix(stream, s.Prefix)
		match, err := path.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if match {
			matching[name] = size
		}
	}
	return matching, nil
}

// storedAppender writes one stream. A piece is keyed by where it begins, so of
// two who believe to be the writer one is told.
type storedAppender struct {
	streams *state.Streams
	name    string
	at      int64

	once   sync.Once
	closed chan struct{}
}

// Write adds p in as few pieces as there can be. [ErrTaken] means that nothing
// of the rest was added.
func (a *storedAppender) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if a.at >= MaxLog {
			return n, ErrFull
		}
		part := p[:min(len(p), state.MaxPiece)]
		if err := a.put(part); err != nil {
			return n, err
		}
		a.at += int64(len(part))
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

// put adds one piece, again and again while the database is away: a log must
// not miss a line for a restart of it.
func (a *storedAppender) put(part []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeFor)
	defer cancel()
	for first := true; ; first = false {
		err := a.streams.Append(ctx, a.name, state.Piece{At: a.at, Data: part})
		if errors.Is(err, state.ErrConflict) && !first && a.wrote(ctx, part) {
			return nil // the try before: its answer was lost
		}
		if err == nil {
			return nil
		}
		if errors.Is(err, state.ErrConflict) {
			return ErrTaken
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("writing the log %s: %w", a.name, err)
		case <-a.closed:
			return fmt.Errorf("writing the log %s: %w", a.name, err)
		case <-time.After(writeAgain):
		}
	}
}

// wrote reports whether the piece that is there now is this one.
func (a *storedAppender) wrote(ctx context.Context, part []byte) bool {
	got, err := a.streams.Read(ctx, a.name, a.at, 1)
	return err == nil && len(got) == 1 && got[0].At == a.at && bytes.Equal(got[0].Data, part)
}

func (a *storedAppender) Size() int64 { return a.at }
func (a *storedAppender) Sync() error { return nil }

// Close makes a write that still waits for the database give up.
func (a *storedAppender) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// storedLog reads one stream for many readers. They stand at the same place
// mostly, its end; so what was read last serves the others.
type storedLog struct {
	streams *state.Streams
	name    string

	mu   sync.Mutex
	from int64  // where kept begins
	kept []byte // what was read last
	end  int64  // where the log ended when it was read to its end
	grew bool   // it may be longer now
}

func (l *storedLog) Grew() {
	l.mu.Lock()
	l.grew = true
	l.mu.Unlock()
}

func (l *storedLog) Close() error { return nil }

func (l *storedLog) Size() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	return l.streams.Size(ctx, l.name)
}

// ReadAt is like that of a file: fewer bytes than asked for come with [io.EOF].
func (l *storedLog) ReadAt(p []byte, off int64) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n < len(p) {
		at := off + int64(n)
		if at >= l.from && at < l.from+int64(len(l.kept)) {
			n += copy(p[n:], l.kept[at-l.from:])
			continue
		}
		if at >= l.end && !l.grew {
			return n, io.EOF
		}
		more, err := l.fetch(at)
		if err != nil {
			return n, err
		}
		if !more {
			return n, io.EOF
		}
	}
	return n, nil
}

// fetch reads what is at an offset; false is the end.
func (l *storedLog) fetch(at int64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	l.grew = false // before the question: what comes during it is asked for again
	pieces, err := l.streams.Read(ctx, l.name, at, readPieces)
	if err != nil {
		l.grew = true
		return false, err
	}
	if len(pieces) == 0 {
		l.end = at
		return false, nil
	}
	l.from, l.kept = pieces[0].At, nil
	for _, p := range pieces {
		l.kept = append(l.kept, p.Data...)
		if len(l.kept) >= state.MaxPiece { // enough at once
			break
		}
	}
	// There may be more behind; only a look past the end tells.
	l.grew, l.end = true, l.from+int64(len(l.kept))
	return true, nil
}
