package requests

import (
	"context"
	"encoding/json"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
)

// TraceField is the field of a request's body that names the span of the call
// which asked for it: the request may run much later, and on another server.
const TraceField = "traceparent"

// span begins the span of one run of a request.
func (e *Engine) span(ctx context.Context, row *state.Request, log *Log) (context.Context, trace.Span) {
	var asked struct {
		Parent   string `json:"traceparent"`
		Timeline bool   `json:"timeline"`
	}
	_ = json.Unmarshal(row.Body, &asked) // a body without them belongs to no trace
	if asked.Timeline {
		ctx = trace.Record(ctx, log.span)
	}
	ctx, span := e.o.Tracer.Later(ctx, row.Name, asked.Parent)
	span.Set("sky.request.id", row.ID)
	span.Set("sky.user", row.UserID)
	span.Set("sky.cluster", row.ClusterName)
	span.Set("sky.attempt", row.Attempt)
	return ctx, span
}

// span writes a part of a timeline.
func (l *Log) span(s trace.Recorded) {
	text, err := json.Marshal(api.Span{
		Name: s.Name, Start: float64(s.Start.UnixMicro()) / 1e6, Took: s.Took.Seconds(), Failed: s.Failed, About: s.Attributes,
	})
	if err != nil {
		return // texts and numbers always marshal
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.put(span.line(string(text)))
	}
}
