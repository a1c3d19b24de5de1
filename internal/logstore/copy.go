package logstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Copy keeps a log that is elsewhere, byte for byte: the size of the copy is where it
// goes on.
type Copy struct {
	Kept  Logs
	Name  string
	Most  int64         // bytes that are kept
	Pause time.Duration // for which bytes are gathered before they are written; 0: none
	Wrote func()        // called after each write
	Room  func(n int64) error
	// From opens the log at an offset. It ends when the log does.
	From func(ctx context.Context, offset int64) (io.ReadCloser, error)
}

// LogCut is the last line of a log that was longer.
func LogCut(most int64) string {
	return fmt.Sprintf("\n[The log is longer than %d MiB; the rest is only on the cluster.]\n", most>>20)
}

// Once copies until the log ends, or its stream breaks, or as much is there as is
// kept, and returns how many bytes it read.
func (c Copy) Once(ctx context.Context) (n int64, err error) {
	kept, err := c.Kept.Append(c.Name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	f := &gathering{to: kept, pause: c.Pause, wrote: c.Wrote}
	defer f.stop()
	size := kept.Size()
	if size >= c.Most {
		return 0, nil
	}
	if err := c.Room(0); err != nil {
		return 0, err
	}
	rc, err := c.From(ctx, size)
	if err != nil {
		return 0, err
	}
	defer rc.Close()
	buf := make([]byte, 4<<10) // most logs drip, and there are many
	for {
		got, rerr := rc.Read(buf)
		if got > 0 {
			b := buf[:got]
			cut := size+n+int64(got) >= c.Most
			if cut {
				b = append(b[:c.Most-size-n:c.Most-size-n], LogCut(c.Most)...)
			}
			if err := c.Room(int64(len(b))); err != nil {
				return n, errors.Join(err, f.sync())
			}
			if _, err := f.Write(b); err != nil {
				return n, err
			}
			n += int64(got)
			if cut {
				return n, f.sync()
			}
			if got == len(buf) && len(buf) < 256<<10 {
				buf = make([]byte, 4*len(buf))
			}
		}
		if errors.Is(rerr, io.EOF) {
			return n, f.sync()
		}
		if rerr != nil {
			return n, errors.Join(rerr, f.sync())
		}
	}
}

// GatherFor is for how long what a program prints is gathered before it is written
// to a database, and gatherMost how much at once: each write makes a row there.
const (
	GatherFor  = 500 * time.Millisecond
	gatherMost = 256 << 10
)

// gathering writes to a log after a pause, so that a job that prints line by line
// is not written line by line; without a pause at once. A log is written by one
// goroutine, which in the end calls stop.
type gathering struct {
	to    Appender
	pause time.Duration
	wrote func()

	mu    sync.Mutex
	late  []byte // what is not written yet
	err   error  // of a write that nobody waited for
	timer *time.Timer
}

func (g *gathering) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return 0, g.err
	}
	if g.pause == 0 {
		defer g.wrote()
		return g.to.Write(p)
	}
	if g.late = append(g.late, p...); len(g.late) >= gatherMost {
		return len(p), g.flush()
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(g.pause, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.timer = nil
			_ = g.flush() // the next call tells
		})
	}
	return len(p), nil
}

// flush writes what is late; g.mu is held.
func (g *gathering) flush() error {
	if len(g.late) == 0 || g.err != nil {
		return g.err
	}
	_, g.err = g.to.Write(g.late)
	g.late = g.late[:0]
	g.wrote()
	return g.err
}

// sync returns once everything is kept.
func (g *gathering) sync() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.flush(); err != nil {
		return err
	}
	return g.to.Sync()
}

// stop gives up what is late.
func (g *gathering) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late = nil
	if g.timer != nil {
		g.timer.Stop()
	}
}
