// Package trace ties what a server does to the request that it does it for: the
// request's id goes along in the context, and a log handler writes it into every
// line; spans tell an OpenTelemetry receiver how long each step took.
package trace

import (
	"context"
	"log/slog"
)

type requestKey struct{}

// WithRequest is ctx of what is done for the request of that id.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// Request is the id of the request that something is done for; "" if none.
func Request(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// logKey is what a line calls the request's id.
const logKey = "request"

// Handler writes to h, with the request's id in every line whose context has
// one.
func Handler(h slog.Handler) slog.Handler { return &handler{h, h, nil} }

// handler keeps the id out of groups: lines are found by it, wherever they come
// from.
type handler struct {
	slog.Handler              // with what opened after the first group
	outer        slog.Handler // before it
	after        []func(slog.Handler) slog.Handler
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	id := Request(ctx)
	if id == "" {
		return h.Handler.Handle(ctx, r)
	}
	out := h.outer.WithAttrs([]slog.Attr{slog.String(logKey, id)})
	for _, open := range h.after {
		out = open(out)
	}
	return out.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	return h.with(len(h.after) > 0, func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(true, func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (h *handler) with(grouped bool, open func(slog.Handler) slog.Handler) slog.Handler {
	n := &handler{open(h.Handler), h.outer, h.after}
	if grouped {
		n.after = append(h.after[:len(h.after):len(h.after)], open)
	} else {
		n.outer = n.Handler
	}
	return n
}
