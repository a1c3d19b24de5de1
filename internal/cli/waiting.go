package cli

import (
	"sync"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// waiting shows that calls wait for the API server: a spinner on a terminal,
// elsewhere one line for each time that the server is away.
type waiting struct {
	t *term.Term

	mu    sync.Mutex
	spin  *term.Spinner
	noted time.Time // the wait that was shown as a line
}

// show takes the client's reports.
func (w *waiting) show(s sky.Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.Over:
		if w.spin != nil {
			w.spin.Stop()
			w.spin = nil
		}
	case !w.t.ErrTTY:
		if w.noted.IsZero() || s.Since.After(w.noted.Add(s.For)) {
			w.t.Note("%s", s)
			w.noted = s.Since
		}
	case w.spin == nil:
		w.spin = w.t.Spin("[bold yellow]" + s.String() + "[/]")
	default:
		w.spin.Update("[bold yellow]" + s.String() + "[/]")
	}
}
