package requests

import (
	"context"
	"encoding/json"

	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
)

// TraceField is the field of a request's body that names the span of the call
// which asked for it: the request may run much later, and on another server.
const TraceField = "traceparent"

// span begins the span of one run of a request.
func (e *Engine) span(ctx context.Context, row *state.Request) (context.Context, trace.Span) {
	if e.o.Tracer == nil {
		return ctx, trace.Span{}
	}
	var asked struct {
		Parent string `json:"traceparent"`
	}
	_ = json.Unmarshal(row.Body, &asked) // a body without it belongs to no trace
	ctx, span := e.o.Tracer.Later(ctx, row.Name, asked.Parent)
	span.Set("sky.request.id", row.ID)
	span.Set("sky.user", row.UserID)
	span.Set("sky.cluster", row.ClusterName)
	span.Set("sky.attempt", row.Attempt)
	return ctx, span
}
