package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// envTimeline names the file for the timeline of a command, as --timeline does.
const envTimeline = "SKYPILOT_TIMELINE_FILE_PATH"

// timeline gathers where the time of a command goes: its calls to the server, and what
// the server did for the requests that they made. Nil gathers nothing.
type timeline struct {
	file  string
	typed string
	began time.Time

	mu       sync.Mutex
	calls    []sky.HTTPCall
	requests []string // ids, in the order in which they were first heard of
}

// beginTimeline begins the timeline that file, or else the environment, asks for.
func (a *app) beginTimeline(file string) {
	if file = cmp.Or(file, a.env(envTimeline)); file != "" {
		a.timeline = &timeline{file: expandHome(file, a.home), typed: a.typed, began: time.Now()}
	}
}

// writeTimeline writes the timeline, if there is one and the command called a server.
func (a *app) writeTimeline() error {
	if a.timeline == nil || a.client == nil {
		return nil
	}
	return a.timeline.write(a.client)
}

func (t *timeline) call(c sky.HTTPCall) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c)
	if c.Method == http.MethodPost && c.RequestID != "" && !slices.Contains(t.requests, c.RequestID) {
		t.requests = append(t.requests, c.RequestID)
	}
}

// collectFor is how long the server is asked for its part after the command.
const collectFor = 5 * time.Second

// write writes the file. What the server cannot say any more is left out.
func (t *timeline) write(c *sky.Client) error {
	t.mu.Lock()
	calls, ids := slices.Clone(t.calls), slices.Clone(t.requests)
	t.mu.Unlock()
	command := lane{title: "sky", spans: []api.Span{{Name: t.typed, Start: unix(t.began), Took: time.Since(t.began).Seconds()}}}
	for _, k := range calls {
		s := api.Span{Name: k.Method + " " + k.Path, Start: unix(k.Began), Took: k.Took.Seconds(), About: map[string]string{}}
		if k.Status != 0 {
			s.About["status"] = fmt.Sprint(k.Status)
		} else {
			s.Failed = "no answer"
		}
		if k.RequestID != "" {
			s.About["request"] = k.RequestID
		}
		command.spans = append(command.spans, s)
	}
	lanes := []lane{command}
	ctx, cancel := context.WithTimeout(context.Background(), collectFor) // the command's own may be cancelled
	defer cancel()
	for _, id := range ids {
		if spans := spansOf(ctx, c, id); len(spans) > 0 {
			lanes = append(lanes, lane{"request " + id, spans})
		}
	}
	b, err := json.Marshal(traceFile(lanes))
	if err == nil {
		err = wholefile.Write(t.file, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the timeline %s: %w", t.file, err)
	}
	return nil
}

// spansOf are the parts of a request's work so far, as its log has them.
func spansOf(ctx context.Context, c *sky.Client, id string) (spans []api.Span) {
	_ = c.StreamRequest(ctx, id, io.Discard, sky.StreamOptions{Control: func(l sky.Control) {
		var s api.Span
		if l.Code == sky.SpanEnd && json.Unmarshal([]byte(l.Text), &s) == nil {
			spans = append(spans, s)
		}
	}})
	return spans
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// lane is a process of the trace file: the command, or a request.
type lane struct {
	title string
	spans []api.Span
}

// traceEvent is an event of the trace event format that Chrome and Perfetto read; times
// are in microseconds.
type traceEvent struct {
	Name     string            `json:"name"`
	Category string            `json:"cat,omitempty"`
	Phase    string            `json:"ph"`
	Time     int64             `json:"ts"`
	Duration *int64            `json:"dur,omitempty"`
	Process  int               `json:"pid"`
	Thread   int               `json:"tid"`
	Args     map[string]string `json:"args,omitempty"`
}

type traceEvents struct {
	Events []traceEvent `json:"traceEvents"`
	Unit   string       `json:"displayTimeUnit"`
}

// traceFile is the content of the file. Viewers nest the spans of a thread by their times,
// so spans that overlap without one holding the other are put on threads of their own.
// It is pure.
func traceFile(lanes []lane) traceEvents {
	out := traceEvents{Events: []traceEvent{}, Unit: "ms"}
	for i, l := range lanes {
		pid := i + 1
		out.Events = append(out.Events, traceEvent{Name: "process_name", Phase: "M", Process: pid, Args: map[string]string{"name": l.title}})
		type span struct {
			api.Span
			start, end int64
		}
		var all []span
		for _, s := range l.spans {
			start := int64(s.Start * 1e6)
			all = append(all, span{s, start, start + int64(s.Took*1e6)})
		}
		slices.SortStableFunc(all, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
		var threads [][]int64 // of each, the ends of the spans that are open
		for _, s := range all {
			tid := slices.IndexFunc(threads, func(open []int64) bool {
				open = slices.DeleteFunc(slices.Clone(open), func(end int64) bool { return end <= s.start })
				return len(open) == 0 || s.end <= open[len(open)-1]
			})
			if tid < 0 {
				tid, threads = len(threads), append(threads, nil)
			}
			threads[tid] = append(slices.DeleteFunc(threads[tid], func(end int64) bool { return end <= s.start }), s.end)
			args := map[string]string{}
			for k, v := range s.About {
				args[strings.TrimPrefix(k, "sky.")] = v
			}
			if s.Failed != "" {
				args["failed"] = s.Failed
			}
			took := s.end - s.start
			out.Events = append(out.Events, traceEvent{Name: s.Name, Category: "sky", Phase: "X", Time: s.start, Duration: &took, Process: pid, Thread: tid + 1, Args: args})
		}
	}
	return out
}
