package requests

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/trace"
)

// lines are log lines by message, with the request they name.
type lines struct {
	mu sync.Mutex
	by map[string]string
}

func (l *lines) Write(p []byte) (int, error) {
	var line struct{ Msg, Request string }
	err := json.Unmarshal(p, &line)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by[line.Msg] = line.Request
	return len(p), err
}

func (l *lines) of(msg string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[msg]
}

func TestLogLinesNameTheirRequest(t *testing.T) {
	env := newTestEnv(t)
	out := &lines{by: map[string]string{}}
	log := slog.New(trace.Handler(slog.NewJSONHandler(out, nil)))
	e := env.server("a", func(o *Options) { o.Logger = log })
	below := func(ctx context.Context, msg string) { log.InfoContext(context.WithoutCancel(ctx), msg) }
	for name, schedule := range map[string]api.ScheduleType{"short": api.ScheduleShort, "long": api.ScheduleLong} {
		e.Handle(name, schedule, func(ctx context.Context, c *Call) (any, error) {
			below(ctx, "work of "+c.Name)
			panic("crash")
		})
	}
	e.HandleLog("log", func(ctx context.Context, _ *Call, _ io.Writer) (any, error) {
		below(ctx, "work of log")
		return nil, nil
	})
	env.start(e)
	for _, name := range []string{"short", "long"} {
		r := wait(t, e, submit(t, e, name, "{}").ID)
		for _, msg := range []string{"work of " + name, "request crashed"} {
			if got := out.of(msg); got != r.ID {
				t.Errorf("%s: the line %q names %q, not %s", name, msg, got, r.ID)
			}
		}
	}
	var id string
	if err := e.RunLog(t.Context(), Submission{Name: "log", User: alice}, io.Discard, func(got string) { id = got }); err != nil {
		t.Fatal(err)
	}
	if got := out.of("work of log"); got != id || id == "" {
		t.Errorf("the log's line names %q, not %q", got, id)
	}
}
