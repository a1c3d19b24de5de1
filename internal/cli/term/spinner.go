package term

import (
	"io"
	"sync"
	"time"
)

// Spinner shows that something goes on, on the error stream of a terminal;
// elsewhere it shows nothing. At most one spinner of a Term is visible.
type Spinner struct {
	t    *Term
	text string
	stop chan struct{}
	done sync.WaitGroup
}

const spinInterval = 80 * time.Millisecond

var spinFrames = [...]string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// Spin shows a spinner until Stop.
func (t *Term) Spin(text string) *Spinner {
	s := &Spinner{t: t, text: text, stop: make(chan struct{})}
	if !t.ErrTTY {
		close(s.stop)
		return s
	}
	t.mu.Lock()
	t.clearSpinner()
	t.spin = s
	t.mu.Unlock()
	s.done.Go(s.run)
	return s
}

func (s *Spinner) run() {
	tick := time.NewTicker(spinInterval)
	defer tick.Stop()
	for i := 0; ; i++ {
		s.t.mu.Lock()
		if s.t.spin == s {
			cols, _ := s.t.Size()
			line := Markup(s.text, s.t.ErrColor)
			_, _ = io.WriteString(s.t.Err, "\r"+spinFrames[i%len(spinFrames)]+" "+clip(line, cols-3)+"\x1b[K")
		}
		s.t.mu.Unlock()
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

// Update changes the text.
func (s *Spinner) Update(text string) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.text = text
}

// Stop removes the spinner. It may be called more than once.
func (s *Spinner) Stop() {
	s.t.mu.Lock()
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	if s.t.spin == s {
		s.t.clearSpinner()
		s.t.spin = nil
	}
	s.t.mu.Unlock()
	s.done.Wait()
}

// clearSpinner makes room for other output; t.mu is held.
func (t *Term) clearSpinner() {
	if t.spin != nil {
		_, _ = io.WriteString(t.Err, "\r\x1b[K")
	}
}

// clip cuts a line with colours to n columns.
func clip(s string, n int) string {
	if n <= 0 {
		return ""
	}
	width, inEscape := 0, false
	for i, r := range s {
		switch {
		case inEscape:
			inEscape = r < '@' || r > '~' || r == '['
		case r == 0x1b:
			inEscape = true
		default:
			if width++; width > n {
				return s[:i] + "\x1b[0m"
			}
		}
	}
	return s
}
