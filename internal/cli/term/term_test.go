package term

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/table"
)

func noEnv(string) string { return "" }

// fake is a terminal whose user types the given lines.
func fake(typed string) (t *Term, out, err *bytes.Buffer) {
	out, err = &bytes.Buffer{}, &bytes.Buffer{}
	t = New(strings.NewReader(typed), out, err, noEnv)
	t.InTTY = true
	return t, out, err
}

func TestConfirm(t *testing.T) {
	tests := []struct {
		typed string
		def   bool
		want  error
	}{
		{"y\n", false, nil}, {"YES\n", false, nil}, {"n\n", true, ErrAborted}, {"no\n", true, ErrAborted},
		{"\n", true, nil}, {"\n", false, ErrAborted}, {"maybe\ny\n", false, nil}, {"", true, ErrAborted}, {"y", false, nil},
	}
	for _, tt := range tests {
		term, out, _ := fake(tt.typed)
		if err := term.Confirm(t.Context(), "Sure?", tt.def); !errors.Is(err, tt.want) {
			t.Errorf("typed %q, default %v: %v, want %v", tt.typed, tt.def, err, tt.want)
		}
		if want := map[bool]string{true: "Sure? [Y/n]: ", false: "Sure? [y/N]: "}[tt.def]; !strings.HasPrefix(out.String(), want) {
			t.Errorf("asked %q", out.String())
		}
	}
}

func TestQuestionsNeedATerminal(t *testing.T) {
	term, _, errs := fake("y\n")
	term.InTTY = false
	if err := term.Confirm(t.Context(), "Sure?", true); !errors.Is(err, ErrNotInteractive) || !strings.Contains(err.Error(), "-y") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(errs.String(), "Sure?") {
		t.Error("the question was not shown")
	}
}

func TestType(t *testing.T) {
	for typed, want := range map[string]error{"delete\n": nil, "Delete\n": ErrAborted, "\n": ErrAborted} {
		term, _, _ := fake(typed)
		if err := term.Type(t.Context(), "Type it", "delete"); !errors.Is(err, want) {
			t.Errorf("%q: %v", typed, err)
		}
	}
}

func TestQuestionsEndWithCtrlC(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	term := New(r, &bytes.Buffer{}, &bytes.Buffer{}, noEnv)
	term.InTTY = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := term.Confirm(ctx, "Sure?", true); !errors.Is(err, ErrAborted) {
		t.Errorf("got %v", err)
	}
}

func TestMarkup(t *testing.T) {
	tests := []struct{ in, plain, color string }{
		{"text", "text", "text"},
		{"[bold cyan]Launching[/]", "Launching", "\x1b[1;36mLaunching\x1b[0m"},
		{"[bold cyan]Launching[/] x", "Launching x", "\x1b[1;36mLaunching\x1b[0m x"},
		{"[dim]a[/dim]", "a", "\x1b[2ma\x1b[0m"},
		{"[green]never closed", "never closed", "\x1b[32mnever closed\x1b[0m"},
		{"list [1, 2] and [x]", "list [1, 2] and [x]", "list [1, 2] and [x]"},
		{`\[bold] is a tag`, "[bold] is a tag", "[bold] is a tag"},
		{"open [", "open [", "open ["},
		{"[/]", "", ""},
	}
	for _, tt := range tests {
		if got := Markup(tt.in, false); got != tt.plain {
			t.Errorf("plain %q: %q, want %q", tt.in, got, tt.plain)
		}
		if got := Markup(tt.in, true); got != tt.color {
			t.Errorf("color %q: %q, want %q", tt.in, got, tt.color)
		}
	}
}

func FuzzMarkup(f *testing.F) {
	f.Add(`[bold]x[/] \[y] [[z]`)
	f.Fuzz(func(t *testing.T, s string) {
		if plain := Markup(s, false); len(plain) > len(s) {
			t.Errorf("%q grew to %q", s, plain)
		}
		Markup(s, true)
	})
}

func TestColorsAreForTerminals(t *testing.T) {
	term, out, errs := fake("")
	term.Println(term.Style(Green, "ok"))
	term.Warn("careful")
	if out.String() != "ok\n" || errs.String() != "careful\n" {
		t.Errorf("got %q and %q", out, errs)
	}
	term.OutColor, term.ErrColor = true, true
	out.Reset()
	errs.Reset()
	term.Println(term.Style(Green, "ok"))
	term.Warn("careful")
	if out.String() != "\x1b[32mok\x1b[0m\n" || errs.String() != "\x1b[33mcareful\x1b[0m\n" {
		t.Errorf("got %q and %q", out, errs)
	}
}

func TestLogDropsColoursOfRequestsOnly(t *testing.T) {
	term, out, _ := fake("")
	io.WriteString(term.Log(), "\x1b[1mbold\x1b[0m\n")
	io.WriteString(term.RawLog(), "\x1b[1mjob\x1b[0m\n")
	if out.String() != "bold\n\x1b[1mjob\x1b[0m\n" {
		t.Errorf("got %q", out)
	}
}

// screen is a terminal's output that may be looked at while it is written.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// take returns what was written since the last call.
func (s *screen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

func TestSpinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var both screen
		term := New(strings.NewReader(""), &both, &both, noEnv)
		term.ErrTTY = true
		log := term.Log()
		log.Control(sky.Control{Code: sky.SpinUpdate, Text: "before start"})
		time.Sleep(time.Second)
		if got := both.take(); got != "" {
			t.Errorf("shown before it was started: %q", got)
		}
		log.Control(sky.Control{Code: sky.SpinInit, Text: "[bold]Launching[/]"})
		log.Control(sky.Control{Code: sky.SpinStart})
		time.Sleep(10 * time.Millisecond)
		if got := both.take(); !strings.Contains(got, "⠋ Launching") {
			t.Errorf("got %q", got)
		}
		io.WriteString(log, "a line\n")
		if got := both.take(); got != "\r\x1b[Ka line\n" {
			t.Errorf("a line of text beside a spinner: %q", got)
		}
		log.Control(sky.Control{Code: sky.SpinUpdate, Text: "Still launching"})
		time.Sleep(spinInterval)
		if got := both.take(); !strings.Contains(got, "Still launching") {
			t.Errorf("after an update: %q", got)
		}
		log.Control(sky.Control{Code: sky.SpinExit})
		log.Close()
		both.take()
		io.WriteString(log, "end\n")
		if got := both.take(); got != "end\n" {
			t.Errorf("after the end: %q", got)
		}
	})
}

func TestClip(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 5, "abc"}, {"abcdef", 3, "abc\x1b[0m"}, {"\x1b[1mabc\x1b[0m", 3, "\x1b[1mabc\x1b[0m"}, {"abc", 0, ""}} {
		if got := clip(tt.in, tt.n); got != tt.want {
			t.Errorf("clip(%q, %d) = %q, want %q", tt.in, tt.n, got, tt.want)
		}
	}
}

// What had no room in tables is said once, after them, and only where something is cut.
func TestColumnsWithoutRoomAreSaidOnce(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out, errs bytes.Buffer
		tm := New(strings.NewReader(""), &out, &errs, func(string) string { return "" })
		tm.OutTTY = terminal
		for range 2 {
			tab := table.New("NAME", "A", "B").Optional("B", "A")
			tab.Add(strings.Repeat("n", 40), strings.Repeat("a", 40), strings.Repeat("b", 100))
			tab.Add(strings.Repeat("n", 60), strings.Repeat("a", 70), strings.Repeat("b", 100))
			tab.Header = append(tab.Header, "STATUS", "ENDPOINT", "ZONE", "REGION")
			tab.Rows[0] = append(tab.Rows[0], "RUNNING_NOW", "127.0.0.1:80", "zone-1", "region-1")
			tm.Print(tm.Table(tab))
		}
		tm.NoteLeftOut()
		tm.NoteLeftOut()
		want := ""
		if terminal {
			want = "No room for A, B; all of them: | cat\n"
		}
		if got := errs.String(); got != want {
			t.Errorf("terminal %v: %q, want %q", terminal, got, want)
		}
		if cut := !strings.Contains(out.String(), strings.Repeat("a", 70)); cut != terminal {
			t.Errorf("terminal %v:\n%s", terminal, out.String())
		}
	}
}
