// Package term is what the command line shows and asks: colours, spinners and
// questions. Colours appear on a terminal only, and not with NO_COLOR; questions
// are put to people only.
package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	xterm "golang.org/x/term"

	"github.com/skypilot-go/sky/internal/table"
)

// Term is a terminal, or what stands in for it in a pipe or a test.
type Term struct {
	In  io.Reader
	Out io.Writer // results
	Err io.Writer // progress, warnings, errors

	InTTY, OutTTY, ErrTTY bool
	OutColor, ErrColor    bool

	mu    sync.Mutex
	lines *bufio.Reader
	spin  *Spinner // the one that is shown

	leftOut []string // titles of columns that had no room
}

// New looks at the three streams; getenv is asked for NO_COLOR and TERM.
func New(in io.Reader, out, err io.Writer, getenv func(string) string) *Term {
	t := &Term{In: in, Out: out, Err: err, InTTY: isTTY(in), OutTTY: isTTY(out), ErrTTY: isTTY(err)}
	color := getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	t.OutColor, t.ErrColor = color && t.OutTTY, color && t.ErrTTY
	return t
}

func isTTY(v any) bool {
	f, ok := v.(*os.File)
	return ok && xterm.IsTerminal(int(f.Fd()))
}

// Size is the terminal's columns and rows; 80 and 24 when there is none.
func (t *Term) Size() (cols, rows int) {
	if f, ok := t.Out.(*os.File); ok && t.OutTTY {
		if c, r, err := xterm.GetSize(int(f.Fd())); err == nil && c > 0 && r > 0 {
			return c, r
		}
	}
	return 80, 24
}

// Columns is how wide results may be; 0 if they go to no terminal.
func (t *Term) Columns() int {
	if !t.OutTTY {
		return 0
	}
	columns, _ := t.Size()
	return columns
}

// Table is the text of a table, as wide as results may be. What had no room is said once,
// by [Term.NoteLeftOut].
func (t *Term) Table(tab *table.Table) string {
	fitted := tab.Fit(t.Columns())
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, title := range fitted.LeftOut {
		if !slices.Contains(t.leftOut, title) {
			t.leftOut = append(t.leftOut, title)
		}
	}
	return fitted.String()
}

// NoteLeftOut says which columns of the tables since the last time had no room.
func (t *Term) NoteLeftOut() {
	t.mu.Lock()
	note := table.LeftOutNote(t.leftOut, t.Columns())
	t.leftOut = nil
	t.mu.Unlock()
	if note != "" {
		t.Note("%s", note)
	}
}

// Print writes a result. A shown spinner makes room.
func (t *Term) Print(text string) { t.write(t.Out, text) }

// Println writes a line of result.
func (t *Term) Println(text string) { t.write(t.Out, text+"\n") }

// Printf writes a result.
func (t *Term) Printf(format string, args ...any) { t.write(t.Out, fmt.Sprintf(format, args...)) }

// Note writes a line for people that is no result.
func (t *Term) Note(format string, args ...any) { t.write(t.Err, fmt.Sprintf(format, args...)+"\n") }

// Warn writes a yellow line that is no result.
func (t *Term) Warn(format string, args ...any) {
	t.write(t.Err, t.errStyle(Yellow, fmt.Sprintf(format, args...))+"\n")
}

func (t *Term) write(w io.Writer, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clearSpinner()
	_, _ = io.WriteString(w, text)
}

// ErrNotInteractive means that a question had nobody to answer it.
var ErrNotInteractive = errors.New("input is not a terminal, so nobody can answer; pass -y (--yes) to go on without asking")

// ErrAborted means that the answer was no, or Ctrl-C.
var ErrAborted = errors.New("Aborted!")

// Confirm asks a yes-or-no question; an empty answer is def. It returns
// ErrAborted for no, and ErrNotInteractive when there is no terminal.
func (t *Term) Confirm(ctx context.Context, question string, def bool) error {
	choice := " [y/N]: "
	if def {
		choice = " [Y/n]: "
	}
	for {
		answer, err := t.Ask(ctx, question+choice)
		if err != nil {
			return err
		}
		switch strings.ToLower(answer) {
		case "":
			if def {
				return nil
			}
			return ErrAborted
		case "y", "yes":
			return nil
		case "n", "no":
			return ErrAborted
		}
		t.Note("Please answer y or n.")
	}
}

// Type asks the user to type word; anything else is ErrAborted.
func (t *Term) Type(ctx context.Context, question, word string) error {
	answer, err := t.Ask(ctx, question+": ")
	if err != nil {
		return err
	}
	if answer != word {
		return ErrAborted
	}
	return nil
}

// Ask shows a question and returns the answer without surrounding space.
func (t *Term) Ask(ctx context.Context, question string) (string, error) {
	if !t.InTTY {
		t.Note("%s", strings.TrimRight(question, " "))
		return "", ErrNotInteractive
	}
	to := t.Out
	if !t.OutTTY && t.ErrTTY {
		to = t.Err // results go elsewhere
	}
	t.write(to, question)
	line, err := t.readLine(ctx)
	if err != nil {
		t.write(to, "\n")
		return "", ErrAborted
	}
	return strings.TrimSpace(line), nil
}

func (t *Term) readLine(ctx context.Context) (string, error) {
	t.mu.Lock()
	if t.lines == nil {
		t.lines = bufio.NewReader(t.In)
	}
	t.mu.Unlock()
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() { // ends with the process if ctx ends first: a read of a terminal cannot be stopped
		line, err := t.lines.ReadString('\n')
		if line != "" {
			err = nil
		}
		got <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-got:
		return a.line, a.err
	}
}

// ReadSecret asks for something that is not echoed.
func (t *Term) ReadSecret(question string) (string, error) {
	f, ok := t.In.(*os.File)
	if !t.InTTY || !ok {
		return "", ErrNotInteractive
	}
	t.write(t.Err, question)
	b, err := xterm.ReadPassword(int(f.Fd()))
	t.Note("")
	return strings.TrimSpace(string(b)), err
}

// Raw hands every key to the reader until restore is called.
func (t *Term) Raw() (restore func(), err error) {
	f, ok := t.In.(*os.File)
	if !ok {
		return nil, ErrNotInteractive
	}
	state, err := xterm.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("preparing the terminal: %w", err)
	}
	return func() { _ = xterm.Restore(int(f.Fd()), state) }, nil
}
