//go:build unix

package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/notify"
)

// A log is merged from sources that grow at random, by agents that crash at
// random points of a write. Every byte must be there once and in order, and
// every line must say whose it is.
func TestLogSurvivesCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "joblog")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		m := &merging{t: t, ctx: ctx, dir: filepath.Join(dir, "1-x"), index: filepath.Join(dir, "index"), watch: newWatcher(ctx)}
		m.open()
		n := rapid.IntRange(1, 3).Draw(t, "sources")
		raws := make([][]byte, n)
		for i := range n {
			if err := m.log.declare(ctx, source0(i), fmt.Sprintf("<%d> ", i)); err != nil {
				t.Fatal(err)
			}
			m.grow(i, nil)
		}
		chunk := rapid.StringMatching(`[a-c\n\r]{0,12}`)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				i := rapid.IntRange(0, n-1).Draw(t, "source")
				text := []byte(chunk.Draw(t, "text"))
				raws[i] = append(raws[i], text...)
				m.grow(i, text)
			case 2:
				m.pass()
			case 3:
				m.patience() // open lines are shown now
				m.pass()
			case 4:
				m.crash()
			case 5:
				key := fmt.Sprintf("k%d", rapid.IntRange(0, 2).Draw(t, "key"))
				if err := m.log.say(ctx, key, "== "+key); err != nil {
					t.Fatal(err)
				}
			}
		}
		m.log.finishAll()
		for range 1000 {
			m.pass()
		}
		if !m.log.isDrained() {
			t.Fatal("not drained")
		}
		m.log.close()
		m.check(raws)
	})
}

func source0(i int) string { return fmt.Sprintf("tasks/%d.log", i) }

// merging is a jobLog whose merger is moved by hand.
type merging struct {
	t          *rapid.T
	ctx        context.Context
	dir, index string
	watch      *watcher
	log        *jobLog
}

func (m *merging) open() {
	var err error
	if m.log, err = openJobLog(m.dir, m.index, slog.New(slog.DiscardHandler), m.watch, &notify.Broadcast{}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *merging) grow(i int, text []byte) {
	f, err := os.OpenFile(filepath.Join(m.dir, source0(i)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		m.t.Fatal(err)
	}
}

func (m *merging) pass() { m.log.pass(m.ctx, make([]byte, 8), nil) }

func (m *merging) patience() {
	for _, s := range m.log.sources {
		s.partial = time.Now().Add(-time.Hour)
	}
}

// crash leaves the files as an agent does that dies during a write: with a part
// of the index's last line and nothing of its piece, or with that line and a
// part of the piece.
func (m *merging) crash() {
	m.log.close()
	index, err := os.ReadFile(m.index)
	if err != nil {
		m.t.Fatal(err)
	}
	begin := bytes.LastIndexByte(bytes.TrimSuffix(index, []byte("\n")), '\n') + 1
	var off, length int64
	if _, err := fmt.Sscanf(string(index[begin:]), "B %d %d", &off, &length); err != nil {
		if _, err := fmt.Sscanf(string(index[begin:]), "N %d %d", &off, &length); err != nil {
			m.open() // it died at another place
			return
		}
	}
	size := off + rapid.Int64Range(0, length).Draw(m.t, "written")
	if rapid.Bool().Draw(m.t, "torn index") {
		size = off
		err = os.Truncate(m.index, int64(begin+rapid.IntRange(0, len(index)-begin-1).Draw(m.t, "torn")))
	}
	if err == nil {
		err = os.Truncate(filepath.Join(m.dir, "run.log"), size)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.open()
}

// check compares the log with what the sources hold. Where sources take turns
// in the middle of a line, the log has more line ends than they have.
func (m *merging) check(raws [][]byte) {
	log, err := os.ReadFile(filepath.Join(m.dir, "run.log"))
	if err != nil {
		m.t.Fatal(err)
	}
	got := make([][]byte, len(raws))
	notes := map[string]int{}
	breaks := 0
	for line := range bytes.Lines(log) {
		if key, ok := bytes.CutPrefix(line, []byte("== ")); ok {
			notes[string(key)]++
			breaks++
			continue
		}
		var i int
		if _, err := fmt.Sscanf(string(line), "<%d>", &i); err != nil || i >= len(raws) || len(line) < 4 {
			m.t.Fatalf("line %q belongs to nobody in\n%q", line, log)
		}
		got[i] = append(got[i], bytes.ReplaceAll(line[4:], fmt.Appendf(nil, "\r<%d> ", i), []byte("\r"))...)
	}
	for key, n := range notes {
		if n != 1 {
			m.t.Errorf("%q is there %d times", key, n)
		}
	}
	for i, raw := range raws {
		if len(raws) == 1 && breaks == 0 && !bytes.Equal(got[i], raw) {
			m.t.Errorf("got %q, want %q", got[i], raw)
		}
		if a, b := bytes.ReplaceAll(got[i], []byte("\n"), nil), bytes.ReplaceAll(raw, []byte("\n"), nil); !bytes.Equal(a, b) {
			m.t.Errorf("source %d: got %q, want %q, log %q", i, got[i], raw, log)
		}
		if bytes.Count(got[i], []byte("\n")) < bytes.Count(raw, []byte("\n")) {
			m.t.Errorf("source %d: line ends are lost: got %q, want %q", i, got[i], raw)
		}
	}
}

// Whatever a crash of the machine made of an index, the log can be continued.
func FuzzDamagedIndex(f *testing.F) {
	f.Add("S \"tasks/0.log\" \"<0> \"\nB 0 8 0 0 4 p\n", "<0> abc\n")
	f.Add("N 0 6 k \"== k\\n\"\nB 6 3 9 0 4 bps\n", "== k\n")
	f.Add("\x00\x00\x00\nB 1 2\n", "x")
	f.Add("B 0 99999999999 0 0 4 p\nS x\n", "")
	f.Fuzz(func(t *testing.T, index, log string) {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		tasks := filepath.Join(dir, "1-x", "tasks")
		err := os.MkdirAll(tasks, 0o700)
		for name, data := range map[string]string{filepath.Join(tasks, "0.log"): "abc\ndef\n", filepath.Join(dir, "1-x", "run.log"): log, filepath.Join(dir, "index"): index} {
			if err == nil {
				err = os.WriteFile(name, []byte(data), 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := openJobLog(filepath.Join(dir, "1-x"), filepath.Join(dir, "index"), slog.New(slog.DiscardHandler), newWatcher(ctx), &notify.Broadcast{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		if err := l.say(ctx, "last", "the last line"); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(l.path())
		if err != nil || !strings.HasPrefix(string(data), log) {
			t.Errorf("the log was rewritten: %q, %v", data, err)
		}
	})
}

func TestRender(t *testing.T) {
	for _, test := range []struct {
		name            string
		logOpen, inLine bool // the log, the source end within a line
		mine            bool
		data, want      string
	}{
		{"lines", false, false, false, "a\nb\n", "<p>a\n<p>b\n"},
		{"open end", false, false, true, "a\nb", "<p>a\n<p>b"},
		{"goes on with its own line", true, true, true, "c\nd\n", "c\n<p>d\n"},
		{"another's open line is ended", true, false, false, "a\n", "\n<p>a\n"},
		{"its own line was ended by another", false, true, false, "c\n", "<p>c\n"},
		{"and its end comes now", false, true, false, "\nd\n", "<p>d\n"},
		{"and there is nothing else", true, true, false, "\n", "\n"},
		{"empty lines", false, false, true, "\n\n", "<p>\n<p>\n"},
		{"a progress bar keeps the prefix", false, false, true, "1%\r2%\r", "<p>1%\r<p>2%\r<p>"},
		{"a progress bar that goes on", true, true, true, "3%\r4%\n5\n", "3%\r<p>4%\n<p>5\n"},
		{"a progress bar that begins with it", true, true, true, "\r5%", "\r<p>5%"},
		{"a progress bar whose line another has ended", true, true, false, "\r5%", "\n<p>\r<p>5%"},
		{"lines of Windows", false, false, true, "a\r\nb\r\r\n", "<p>a\r\n<p>b\r\r\n"},
		{"any bytes", false, false, true, "\x00\xff\n", "<p>\x00\xff\n"},
	} {
		p := pieceFor(test.logOpen, test.inLine, test.mine, test.data[0])
		if got := string(p.render(nil, []byte(test.data), "<p>")); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
		if p != parsePiece(p.String()) {
			t.Errorf("%s: %v is not read back", test.name, p)
		}
	}
}

func TestTailOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([ab]{0,3}\n?){0,20}`).Draw(t, "text")
		if rapid.Bool().Draw(t, "long") {
			text = strings.Repeat("x", tailBlock-2) + "\n" + text + strings.Repeat("y", tailBlock)
		}
		n := rapid.IntRange(1, 6).Draw(t, "lines")
		lines := strings.SplitAfter(text, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		want := len(text) - len(strings.Join(lines[max(len(lines)-n, 0):], ""))
		got, err := tailOffset(strings.NewReader(text), int64(len(text)), n)
		if err != nil || int(got) != want {
			t.Errorf("the last %d lines of %q begin at %d (%v), want %d", n, text, got, err, want)
		}
	})
}
