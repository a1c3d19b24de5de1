// Package bounded reads what others send without trusting them with this
// process's memory: whole answers, lines of JSON and the output of commands, each
// up to a limit. What is longer is a [*TooMuchError].
package bounded

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A TooMuchError means that somebody sent more than is read.
type TooMuchError struct {
	What string // has the limit, such as "an answer"
	Most int64
	Unit string // of Most; "": bytes
}

func (e *TooMuchError) Error() string {
	if e.Unit != "" {
		return fmt.Sprintf("%s has more than %d %s, the limit", e.What, e.Most, e.Unit)
	}
	n, unit := e.Most, "bytes"
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		n, unit = n>>20, "MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		n, unit = n>>10, "KiB"
	}
	return fmt.Sprintf("%s is longer than %d %s, the limit", e.What, n, unit)
}

// reader is [Reader].
type reader struct {
	r    io.Reader
	left int64
	err  *TooMuchError
}

// Reader reads from r. When r has more than most bytes the error is a
// [*TooMuchError], after the bytes that are within the limit.
func Reader(r io.Reader, most int64, what string) io.Reader {
	return &reader{r, most, &TooMuchError{What: what, Most: most}}
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.left < 0 {
		return 0, r.err
	}
	if int64(len(p)) > r.left+1 { // one more reports whether there is more
		p = p[:r.left+1]
	}
	n, err := r.r.Read(p)
	if int64(n) > r.left {
		n, err = int(r.left), r.err
		r.left = -1
		return n, err
	}
	r.left -= int64(n)
	return n, err
}

// ReadCloser is [Reader] of something that is closed.
func ReadCloser(r io.ReadCloser, most int64, what string) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{Reader(r, most, what), r}
}

// lineReader is [LineReadCloser].
type lineReader struct {
	io.ReadCloser
	left, most int64
	what       string
}

// LineReadCloser reads from r, an endless stream whose lines have at most so many
// bytes each.
func LineReadCloser(r io.ReadCloser, most int64, what string) io.ReadCloser {
	return &lineReader{r, most, most, what}
}

func (r *lineReader) Read(p []byte) (int, error) {
	if r.left < 0 {
		return 0, &TooMuchError{What: r.what, Most: r.most}
	}
	n, err := r.ReadCloser.Read(p)
	if end := bytes.LastIndexByte(p[:n], '\n'); end >= 0 {
		r.left = r.most - int64(n-end-1)
	} else {
		r.left -= int64(n)
	}
	return n, err
}

// ReadAll reads all of r.
func ReadAll(r io.Reader, most int64, what string) ([]byte, error) {
	b, err := io.ReadAll(Reader(r, most, what))
	if err != nil {
		return nil, err
	}
	return b, nil
}

// JSON decodes the one JSON value that r holds.
func JSON(r io.Reader, most int64, what string, v any) error {
	b, err := ReadAll(r, most, what)
	if err != nil {
		return err
	}
	return Unmarshal(b, what, v)
}

// objectsFree is how many objects a JSON text may have however short it is, and
// objectBytes how many bytes of it there must be for each one more.
const (
	objectsFree = 10_000
	objectBytes = 64
)

// Unmarshal is json.Unmarshal for a text that is within its limit. An object of two
// bytes may become a record of hundreds, so their number is limited, too.
func Unmarshal(b []byte, what string, v any) error {
	if most := max(objectsFree, len(b)/objectBytes); bytes.Count(b, []byte("{")) > most {
		return &TooMuchError{What: what, Most: int64(most), Unit: "objects for its length"}
	}
	return json.Unmarshal(b, v)
}

// free is how much of a message is read without taking the semaphore.
const free = 256 << 10

// A Semaphore lets messages longer than 256 KiB be held one at a time, so that a peer
// that sends many at once makes its reader hold one limit and not one each. A nil
// Semaphore does not wait; [NewSemaphore] makes one.
type Semaphore chan struct{}

// NewSemaphore makes a Semaphore that nobody holds.
func NewSemaphore() Semaphore { return make(Semaphore, 1) }

// take waits for the semaphore and returns what releases it.
func (s Semaphore) take(ctx context.Context) (func(), error) {
	if s == nil {
		return func() {}, nil
	}
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Message decodes the one JSON value that r holds; a long one takes the semaphore.
func (s Semaphore) Message(ctx context.Context, r io.Reader, most int64, what string, v any) error {
	b, err := io.ReadAll(io.LimitReader(r, min(free, most)))
	if err != nil {
		return err
	}
	if int64(len(b)) == free {
		end, err := s.take(ctx)
		if err != nil {
			return err
		}
		defer end()
		rest, err := io.ReadAll(Reader(r, most-int64(len(b)), what))
		if err != nil {
			return limited(err, most)
		}
		b = append(b, rest...)
	} else if _, err := io.ReadFull(r, make([]byte, 1)); err == nil { // most is below what is free
		return &TooMuchError{What: what, Most: most}
	}
	if v == nil {
		return nil
	}
	return Unmarshal(b, what, v)
}

// limited puts the whole limit into an error of a part.
func limited(err error, most int64) error {
	if e, ok := errors.AsType[*TooMuchError](err); ok {
		e.Most = most
	}
	return err
}

// Lines decodes a stream of JSON values, one a line.
type Lines struct {
	r    *bufio.Reader
	most int64
	what string
	sem  Semaphore
}

// NewLines decodes the lines of r, each of at most so many bytes.
func NewLines(r io.Reader, most int64, what string, sem Semaphore) *Lines {
	return &Lines{bufio.NewReaderSize(r, 4<<10), most, what, sem}
}

// Decode decodes the next line that is not empty. At the end of the stream between
// lines it returns io.EOF.
func (l *Lines) Decode(ctx context.Context, v any) error {
	end := func() {}
	defer func() { end() }()
	var line []byte
	for held := false; ; {
		part, err := l.r.ReadSlice('\n')
		if int64(len(line)+len(part)) > l.most {
			return &TooMuchError{What: l.what, Most: l.most}
		}
		if !held && len(line)+len(part) > free {
			held = true
			var terr error
			if end, terr = l.sem.take(ctx); terr != nil {
				end = func() {}
				return terr
			}
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil && len(bytes.TrimSpace(line)) == 0:
			line = line[:0]
			continue
		case err == io.EOF && len(bytes.TrimSpace(line)) > 0:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		return Unmarshal(line, l.what, v)
	}
}

// A Buffer keeps what is written to it, up to a limit. Its methods may be called
// concurrently: what writes to it may go on after it was given up.
type Buffer struct {
	Most int64
	What string
	Over func() // is called once, when there is more; may be nil

	mu   sync.Mutex
	b    []byte
	full bool
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full {
		return 0, b.err()
	}
	if int64(len(b.b)+len(p)) > b.Most {
		b.full = true
		if b.Over != nil {
			b.Over()
		}
		return 0, b.err()
	}
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *Buffer) err() error { return &TooMuchError{What: b.What, Most: b.Most} }

// Bytes returns a copy of what was written, or a [*TooMuchError] if there was more.
func (b *Buffer) Bytes() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full {
		return nil, b.err()
	}
	return bytes.Clone(b.b), nil
}
