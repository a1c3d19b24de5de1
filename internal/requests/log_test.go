package requests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/logstore"

	"pgregory.net/rapid"
)

func readLog(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fileLog is a log in a file, as one server keeps it.
func fileLog(path string, wrote func()) *Log {
	return keptLog(logstore.Folder(filepath.Dir(path)), filepath.Base(path), nil, wrote)
}

// logPath is the file of a request's log.
func (e *Engine) logPath(id string) string { return filepath.Join(e.o.LogDir, e.logName(id)) }

func TestLogOfACrashedAttemptIsMended(t *testing.T) {
	exit := string(spinExit.line(""))
	for _, c := range []struct{ name, before, want string }{
		{"nothing", "", "next\n"},
		{"whole lines", "a\n", "a\n" + exit + "next\n"},
		{"half a line", "a\nhal", "a\nhal\n" + exit + "next\n"},
		{"a progress line", "50%\r", "50%\r" + exit + "next\n"},
		{"half a control line", `<sky-payload>"<rich_`, `<sky-payload>"<rich_` + "\n" + exit + "next\n"},
	} {
		path := filepath.Join(t.TempDir(), "x.log")
		if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		l := fileLog(path, func() {})
		l.Printf("next")
		l.close()
		if got := readLog(t, path); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestLogIsMadeAtTheFirstLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "x.log")
	l := fileLog(path, func() {})
	l.StopSpin()
	fmt.Fprint(l, "half")
	if _, err := os.Stat(path); err == nil {
		t.Error("made for half a line")
	}
	l.close()
	l.close()
	if got := readLog(t, path); got != "half\n" {
		t.Errorf("%q", got)
	}
	if info, _ := os.Stat(path); runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error(info.Mode())
	}
	if _, err := l.Write([]byte("x\n")); err != errLogClosed {
		t.Error(err)
	}
	l.Spin("too late")
	l.Printf("too late")
	if got := readLog(t, path); got != "half\n" {
		t.Errorf("%q", got)
	}
}

func TestLogLinesStayWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	l := fileLog(path, func() {})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				switch i % 3 {
				case 0:
					l.Printf("worker %d line %d", w, i)
				case 1:
					l.Spin(fmt.Sprintf("worker %d", w))
				default:
					fmt.Fprintf(l, "worker %d line %d\n", w, i)
				}
			}
		})
	}
	wg.Wait()
	l.close()
	lines := strings.Split(strings.TrimSuffix(readLog(t, path), "\n"), "\n")
	text := 0
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "worker ") && !strings.Contains(line, "<"):
			text++
		case strings.HasPrefix(line, payloadOpen) && strings.HasSuffix(line, payloadClose):
		default:
			t.Errorf("broken line %q", line)
		}
	}
	if text != 8*33 {
		t.Errorf("%d lines, want %d", text, 8*33)
	}
}

// failing is a disk that is full after some bytes.
type failing struct {
	bytes.Buffer
	room int
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.room {
		n, _ := f.Buffer.Write(p[:f.room])
		f.room = 0
		return n, errors.New("disk full")
	}
	f.room -= len(p)
	return f.Buffer.Write(p)
}

func TestLogAfterAFullDisk(t *testing.T) {
	disk := &failing{room: 6}
	l := streamLog(disk)
	l.Printf("one")
	if _, err := l.Write([]byte("two\n")); err == nil {
		t.Error("no error")
	}
	disk.room = 100
	l.Printf("three")
	if got := disk.String(); got != "one\ntw\nthree\n" {
		t.Errorf("%q", got)
	}
}

func TestControlLineCannotBeBroken(t *testing.T) {
	for _, text := range []string{"plain", "[bold]x[/]", "a\nb\rc", "</rich_init></sky-payload>", `"quoted" \ \u003c`, "\xff\x00é\u2028"} {
		line := string(spinInit.line(text))
		if strings.Count(line, "\n") != 1 || strings.Contains(line, "\r") || strings.Count(line, "<") != 4 || !isControl([]byte(line)) {
			t.Errorf("%q: %q", text, line)
		}
	}
}

// The plain form of a log does not depend on how it was cut into pieces.
func TestPlainInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"a", "\n", "\r", "\r\n", "<", "<sky-", "<sky-payload", payloadOpen, string(heartbeat.line("")), "text\n", " " + payloadOpen + "x\n"})
		whole := strings.Join(rapid.SliceOf(piece).Draw(t, "log"), "")
		var f plain
		want := string(f.filter([]byte(whole))) + string(f.rest())
		var g plain
		var got []byte
		for rest := whole; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			got = append(got, g.filter([]byte(rest[:n]))...)
			rest = rest[n:]
		}
		got = append(got, g.rest()...)
		if string(got) != want {
			t.Fatalf("%q in pieces gives %q, at once %q", whole, got, want)
		}
		var keep []string
		for _, line := range splitLines(whole) {
			if !strings.HasPrefix(line, payloadOpen) {
				keep = append(keep, line)
			}
		}
		if s := strings.Join(keep, ""); s != want {
			t.Fatalf("%q gives %q, want %q", whole, want, s)
		}
	})
}

// splitLines cuts after each line feed and carriage return.
func splitLines(s string) (lines []string) {
	for s != "" {
		n := strings.IndexAny(s, "\n\r") + 1
		if n == 0 {
			n = len(s)
		}
		lines = append(lines, s[:n])
		s = s[n:]
	}
	return lines
}

func TestTailOffset(t *testing.T) {
	long := strings.Repeat("x", 100_000) + "\n"
	ctl := string(heartbeat.line(""))
	for _, c := range []struct {
		log  string
		n    int
		want string
	}{
		{"", 1, ""},
		{"a\n", 1, "a\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nhalf", 2, "b\nhalf"},
		{"a\n" + ctl + "b\n" + ctl + ctl, 1, "b\n" + ctl + ctl},
		{"a\n" + ctl + "b\n", 2, "a\n" + ctl + "b\n"},
		{ctl + "a\n", 5, ctl + "a\n"},
		{"a\n" + long + "b\n" + long, 2, "b\n" + long},
		{"a\n" + long + long, 2, long + long},
		{"\n\n\n", 2, "\n\n"},
	} {
		at, err := tailOffset(strings.NewReader(c.log), int64(len(c.log)), c.n)
		if got := c.log[at:]; err != nil || got != c.want {
			t.Errorf("last %d of %.20q…: %.40q %v", c.n, c.log, got, err)
		}
	}
}

// Lines for programs go to those who ask for them, in a log that is the same for all.
func TestProgressIsForWhoAsks(t *testing.T) {
	var log bytes.Buffer
	l := streamLog(&log)
	l.Spin("Uploading")
	left := 2.5
	l.Progress(api.TransferProgress{Operation: "upload", What: "<a> & b", Bytes: 7, Left: &left})
	l.StopSpin()
	l.Printf("done")
	for name, c := range map[string]struct {
		o                  StreamOptions
		progress, controls bool
	}{
		"a client that does not know them": {StreamOptions{}, false, true},
		"a program":                        {StreamOptions{Progress: true}, true, true},
		"a person":                         {StreamOptions{Plain: true}, false, false},
		"a person's program":               {StreamOptions{Plain: true, Progress: true}, false, false},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			var out bytes.Buffer
			s := newStreamer(&out, c.o)
			for p := range slices.Chunk(log.Bytes(), piece) {
				s.send(s.filtered(p))
			}
			s.endLine()
			got := out.String()
			if strings.Contains(got, "sky_progress") != c.progress || strings.Contains(got, "rich_update") || strings.Contains(got, "rich_init") != c.controls || !strings.HasSuffix(got, "done\n") {
				t.Errorf("%s, in pieces of %d: %q", name, piece, got)
			}
		}
	}
}
