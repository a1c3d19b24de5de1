package trace

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	otel "go.opentelemetry.io/otel/trace"
)

// Tracer begins traces. Spans below one need no tracer: they find theirs in the
// context. A nil tracer begins none.
type Tracer struct {
	tracer otel.Tracer
	stop   func(context.Context) error
}

const scope = "github.com/skypilot-go/sky"

// Close sends what is not sent yet.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.stop(ctx)
}

// Root begins the span of a request that arrived with the headers, below the
// caller's own if they tell of one.
func (t *Tracer) Root(ctx context.Context, name string, h http.Header) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h))
	ctx, s := t.tracer.Start(ctx, name, otel.WithSpanKind(otel.SpanKindServer))
	return ctx, Span{span: s}
}

// Later begins the span of work that was asked for under another span, perhaps by
// another process; parent is what [Parent] told there.
func (t *Tracer) Later(ctx context.Context, name, parent string) (context.Context, Span) {
	recorded := record(ctx, name)
	if t == nil {
		return ctx, Span{recorded: recorded}
	}
	if !otel.SpanContextFromContext(ctx).IsValid() {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{parentKey: parent})
	}
	ctx, s := t.tracer.Start(ctx, name)
	return ctx, Span{s, recorded}
}

const parentKey = "traceparent"

// Parent is what names the span of ctx in other processes; "": there is none.
func Parent(ctx context.Context) string {
	if !otel.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	m := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, m)
	return m[parentKey]
}

// Span is a part of a trace, of a recording (see [Record]), or of both. The zero value is
// none, and costs nothing.
type Span struct {
	span     otel.Span
	recorded *recorded
}

// Start begins a span below that of ctx; without one it does nothing.
func Start(ctx context.Context, name string) (context.Context, Span) {
	recorded := record(ctx, name)
	above := otel.SpanFromContext(ctx)
	if !above.SpanContext().IsValid() || !above.IsRecording() {
		return ctx, Span{recorded: recorded}
	}
	ctx, s := above.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, Span{s, recorded}
}

// Do is f in a span of its own.
func Do(ctx context.Context, name string, f func(context.Context) error) error {
	ctx, s := Start(ctx, name)
	err := f(ctx)
	s.End(err)
	return err
}

// Set adds what there is to know about the span: text, whole numbers, truths.
func (s Span) Set(key string, v any) {
	s.recorded.set(key, v)
	if s.span == nil {
		return
	}
	switch v := v.(type) {
	case string:
		if v != "" {
			s.span.SetAttributes(attribute.String(key, v))
		}
	case int:
		s.span.SetAttributes(attribute.Int(key, v))
	case bool:
		s.span.SetAttributes(attribute.Bool(key, v))
	default:
		s.span.SetAttributes(attribute.String(key, fmt.Sprint(v)))
	}
}

// Rename gives the span the name that is known by now.
func (s Span) Rename(name string) {
	if s.span != nil {
		s.span.SetName(name)
	}
}

// End ends the span, with the error if there is one. Its text may be what a user
// typed, so only its class is told.
func (s Span) End(err error) {
	s.recorded.end(err)
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, fmt.Sprintf("%T", err))
	}
	s.span.End()
}
