package term

import (
	"io"

	sky "github.com/skypilot-go/sky"
)

// Log shows the stream of a request: its text on w, its spinners on the
// terminal. Close removes the spinner.
type Log struct {
	t    *Term
	w    io.Writer
	raw  bool
	text string
	spin *Spinner
}

// Log returns a writer for a request's log. Colours of the text are dropped when
// results have none.
func (t *Term) Log() *Log { return &Log{t: t, w: t.Out} }

// RawLog is Log for the output of jobs, which is never changed.
func (t *Term) RawLog() *Log { return &Log{t: t, w: t.Out, raw: true} }

// LogTo is Log with the text going to another writer.
func (t *Term) LogTo(w io.Writer) *Log { return &Log{t: t, w: w} }

func (l *Log) Write(p []byte) (int, error) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	l.t.clearSpinner()
	if l.raw {
		return l.w.Write(p)
	}
	if _, err := io.WriteString(l.w, l.t.Plain(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Control follows the control lines of the stream.
func (l *Log) Control(c sky.Control) {
	switch c.Code {
	case sky.SpinInit:
		l.text = c.Text
	case sky.SpinUpdate:
		l.text = c.Text
		if l.spin != nil {
			l.spin.Update(c.Text)
		}
	case sky.SpinStart:
		if c.Text != "" {
			l.text = c.Text
		}
		if l.spin == nil && l.text != "" {
			l.spin = l.t.Spin(l.text)
		}
	case sky.SpinStop, sky.SpinExit:
		l.Close()
	}
}

// Close removes the spinner.
func (l *Log) Close() {
	if l.spin != nil {
		l.spin.Stop()
		l.spin = nil
	}
}
