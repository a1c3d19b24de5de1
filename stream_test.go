package sky

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
)

const (
	heartbeat = `<sky-payload>"<heartbeat></heartbeat>"</sky-payload>` + "\n"
	askAgain  = `<sky-payload>"<retry></retry>"</sky-payload>` + "\n"
	spin      = `<sky-payload>"<rich_start>[cyan]busy[/]</rich_start>"</sky-payload>` + "\n"
)

func TestStreamResumes(t *testing.T) {
	tests := []struct {
		name        string
		connections []string
		want        string
		controls    int
	}{
		{"one piece", []string{"a\nb\n"}, "a\nb\n", 0},
		{"a broken connection repeats nothing", []string{"a\nb\n!", "a\nb\nc\n"}, "a\nb\nc\n", 0},
		{"broken in the middle of a line", []string{"a\nhal!", "a\nhalf\n"}, "a\nhalf\n", 0},
		{"control lines do not count", []string{spin + "a\n!", spin + "a\n" + spin + "b\n"}, "a\nb\n", 2},
		{"progress lines count", []string{"1%\r2%\rx\n!", "1%\r2%\rx\ny\n"}, "1%\r2%\rx\ny\n", 0},
		{"the server asks to try again", []string{"a\n" + askAgain, "a\nb\n"}, "a\nb\n", 0},
		{"progress forgives failures", []string{"a\n!", "a\nb\n!", "a\nb\nc\n!", "a\nb\nc\nd\n!", "a\nb\nc\nd\ne\n"}, "a\nb\nc\nd\ne\n", 0},
		{"heartbeats are progress", []string{heartbeat + "!", heartbeat + "!", heartbeat + "!", heartbeat + "!", "a\n"}, "a\n", 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, map[string]http.HandlerFunc{"GET /api/stream": breaking(t, tt.connections...)})
			var out bytes.Buffer
			controls := 0
			err := c.StreamRequest(t.Context(), "x", &out, StreamOptions{Follow: true, Control: func(Control) { controls++ }})
			if err != nil || out.String() != tt.want || controls != tt.controls {
				t.Errorf("got %q, %d controls, error %v; want %q, %d controls", out.String(), controls, err, tt.want, tt.controls)
			}
		})
	}
}

func TestStreamTellsProgress(t *testing.T) {
	line := func(n int) string {
		return fmt.Sprintf(`<sky-payload>"<sky_progress>{\"operation\":\"upload\",\"what\":\"x\",\"bytes\":%d,\"seconds_left\":1.5}</sky_progress>"</sky-payload>`+"\n", n)
	}
	asked := ""
	answer := breaking(t, "a\n"+line(1)+"!", "a\n"+line(1)+line(2)+"b\n")
	c := serve(t, map[string]http.HandlerFunc{"GET /api/stream": func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Get("progress")
		answer(w, r)
	}})
	var out bytes.Buffer
	var seen []int64
	err := c.StreamRequest(t.Context(), "x", &out, StreamOptions{Follow: true, Control: func(k Control) { t.Errorf("a spinner: %+v", k) }, Progress: func(p api.TransferProgress) {
		if p.Operation != "upload" || p.Left == nil || *p.Left != 1.5 {
			t.Errorf("%+v", p)
		}
		seen = append(seen, p.Bytes)
	}})
	if err != nil || asked != "true" || out.String() != "a\nb\n" || !slices.Contains(seen, 1) || seen[len(seen)-1] != 2 {
		t.Errorf("asked %q, got %q, %v, %v", asked, out.String(), seen, err)
	}
}

func TestStreamGivesUp(t *testing.T) {
	c := serve(t, map[string]http.HandlerFunc{"GET /api/stream": breaking(t, slices.Repeat([]string{"a\n!"}, 1000)...)})
	var out bytes.Buffer
	err := c.StreamRequest(t.Context(), "x", &out, StreamOptions{Follow: true})
	if _, lost := errors.AsType[*ConnectError](err); !lost || out.String() != "a\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestStreamRefusals(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusBadRequest, http.StatusConflict} {
		calls := 0
		c := serve(t, map[string]http.HandlerFunc{"GET /api/stream": func(w http.ResponseWriter, r *http.Request) {
			calls++
			if r.URL.Query().Get("request_id") != "abc" || r.URL.Query().Get("tail") != "5" || r.URL.Query().Get("format") != "console" {
				t.Errorf("query %s", r.URL.RawQuery)
			}
			w.WriteHeader(code)
			w.Write([]byte(`{"detail":"no such thing"}`))
		}})
		err := c.StreamRequest(t.Context(), "abc", &bytes.Buffer{}, StreamOptions{Tail: 5})
		if s, ok := errors.AsType[*StatusError](err); !ok || s.Code != code || s.Error() != "no such thing" || calls != 1 {
			t.Errorf("%d: got %v after %d calls", code, err, calls)
		}
	}
}

func TestStreamEndsWithItsContext(t *testing.T) {
	entered := make(chan struct{})
	c := serve(t, map[string]http.HandlerFunc{"GET /api/stream": func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("a\n"))
		w.(http.Flusher).Flush()
		close(entered)
		<-r.Context().Done()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if err := c.StreamRequest(ctx, "x", &bytes.Buffer{}, StreamOptions{Follow: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestStreamEndsWhenNobodyReads(t *testing.T) {
	c := serve(t, map[string]http.HandlerFunc{"GET /api/stream": breaking(t, "a\nb\n")})
	if err := c.StreamRequest(t.Context(), "x", brokenPipe{}, StreamOptions{Follow: true}); err == nil || err.Error() != "nobody reads" {
		t.Errorf("got %v", err)
	}
}

func TestLogStream(t *testing.T) {
	c := serve(t, map[string]http.HandlerFunc{
		"POST /logs":   breaking(t, "1\n2\n!", "1\n2\n3\n"),
		"GET /api/get": finished(api.RequestPayload{RequestID: "req-2", ReturnValue: "100", Error: "null"}),
	})
	l, err := c.Logs(api.LogsBody{ClusterName: "dev"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.Stream(t.Context(), &out, StreamOptions{}); err != nil || out.String() != "1\n2\n3\n" {
		t.Fatalf("got %q, %v", out.String(), err)
	}
	if code, err := l.ExitCode(t.Context()); code != 100 || err != nil || l.ID() != "req-2" {
		t.Errorf("exit code %d, %v, of %s", code, err, l.ID())
	}
}

func TestLogTailResumes(t *testing.T) {
	tests := []struct {
		name        string
		tail        int
		connections []string
		want        string
	}{
		{"nothing new", 2, []string{"8\n9\n!", "8\n9\n"}, "8\n9\n"},
		{"one new line", 2, []string{"8\n9\n!", "9\n10\n"}, "8\n9\n10\n"},
		{"many new lines", 2, []string{"8\n9\n!", "20\n21\n22\n"}, "8\n9\n20\n21\n22\n"},
		{"a short log", 9, []string{"1\n2\n!", "1\n2\n3\n"}, "1\n2\n3\n"},
		{"more was followed", 2, []string{"1\n2\n3\n4\n!", "3\n4\n5\n"}, "1\n2\n3\n4\n5\n"},
		{"the same line again and again", 3, []string{"x\nx\nx\n!", "x\nx\nx\ny\n"}, "x\nx\nx\ny\n"},
		{"twice broken", 2, []string{"1\n2\n!", "2\n3\n!", "3\n4\n"}, "1\n2\n3\n4\n"},
		{"a heartbeat ends the wait", 3, []string{"1\n2\n3\n!", "3\n4\n" + heartbeat + "5\n"}, "1\n2\n3\n4\n5\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, map[string]http.HandlerFunc{"POST /logs": breaking(t, tt.connections...)})
			l, err := c.Logs(api.LogsBody{ClusterName: "dev", Tail: tt.tail})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := l.Stream(t.Context(), &out, StreamOptions{}); err != nil || out.String() != tt.want {
				t.Errorf("got %q, %v; want %q", out.String(), err, tt.want)
			}
		})
	}
}

// Wherever a stream breaks, however often, what is shown is the stream.
func TestStreamsSurviveAnyBreaks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\r", "\n"}), 1, 30).Draw(rt, "lines")
		whole := strings.Join(lines, "")
		var out bytes.Buffer
		p := &playback{w: &out}
		breaks := rapid.SliceOfN(rapid.IntRange(0, len(whole)), 0, 5).Draw(rt, "breaks")
		for _, at := range append(breaks, len(whole)) {
			p.begin()
			d := &decoder{emit: p.line, control: func(Control) error { return nil }}
			if _, err := d.Write([]byte(whole[:at])); err != nil {
				rt.Fatal(err)
			}
		}
		if want := strings.Join(decode(t, strings.NewReader(whole)), ""); out.String() != want {
			rt.Fatalf("got %q, want %q", out.String(), want)
		}
	})
}
