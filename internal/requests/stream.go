package requests

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// StreamOptions say what of a log is streamed, and how.
type StreamOptions struct {
	Tail   int  // > 0: only so many of the lines there are (control lines not counted), and what follows
	Follow bool // until the request has ended; else only what there is
	Plain  bool // no control lines, except heartbeats
	// Progress passes on the lines that tell programs of progress, which clients that do not
	// know them would show.
	Progress bool
}

const (
	silence    = 30 * time.Second      // after which a heartbeat is sent
	patience   = 2 * time.Second       // after which a short request gets a spinner
	breath     = 25 * time.Millisecond // between bursts, while a request prints without a pause
	plainWidth = 4096                  // spaces that make proxies pass a plain status on
)

// Stream writes the log of a request to w, from the start and always the same,
// line for line, and follows it. While the request waits there is a spinner,
// after 30 s without a line a heartbeat. If w has a Flush method it is called
// after each burst. The stream of a log request is its function called again,
// which knows of no tail while it runs and follows as it always does. Ends when the request has ended and all is written, with
// ctx, or when the server stops, then with the line that makes clients ask
// again.
func (e *Engine) Stream(ctx context.Context, id string, o StreamOptions, w io.Writer) error {
	f := e.acquire(id)
	defer e.release(f)
	v, err := e.look(ctx, f)
	if err != nil {
		return err
	}
	if e.handlers[v.row.Name].l != nil {
		return e.replay(ctx, v.row, o, w)
	}
	s := newStreamer(w, o)
	for {
		v, err := e.look(ctx, f)
		if err != nil {
			return err
		}
		file, err := f.log()
		if err != nil {
			return err
		}
		now, row := time.Now(), v.row
		ended := row.Status.Terminal()
		if o.Follow {
			s.wait(waitText(row, e.store.Now(), s.printed))
		}
		s.copy(file, ended)
		if ended || !o.Follow {
			return s.finish(row)
		}
		s.beat(now)
		hurried := s.dirty && now.Sub(s.burst) < breath
		if s.dirty {
			s.burst = now
		}
		if s.flush(); s.err != nil {
			return s.err
		}
		next := s.quiet(now)
		if d := untilSpinner(row, e.store.Now()); d > 0 {
			next = min(next, d)
		}
		if hurried {
			err = e.pause(ctx, f, v.moved, breath)
		} else {
			err = e.pause(ctx, f, v.changed, next)
		}
		if err == ErrShutdown {
			return s.again()
		}
		if err != nil {
			return err
		}
	}
}

// waitText is what the spinner of a request that does nothing yet says, ""
// for no spinner: it waits for a slot, or has said what it waits for and
// printed nothing.
func waitText(row *state.Request, now time.Time, printed bool) string {
	switch {
	case row.Status == api.RequestPending && untilSpinner(row, now) > 0:
		return ""
	case row.Status == api.RequestPending && row.StatusMsg == "":
		return fmt.Sprintf("Waiting for a free worker: %s (request %s)", strings.TrimPrefix(row.Name, "sky."), row.ID)
	case row.Status == api.RequestPending, row.Status == api.RequestRunning && !printed:
		return row.StatusMsg
	}
	return ""
}

// untilSpinner is how long a waiting request goes without a spinner.
func untilSpinner(row *state.Request, now time.Time) time.Duration {
	if row.Status != api.RequestPending || row.Schedule != api.ScheduleShort {
		return 0
	}
	return max(0, patience-now.Sub(row.CreatedAt))
}
