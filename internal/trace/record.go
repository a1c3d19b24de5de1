package trace

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Recorded is a span that has ended, for those who asked for a recording.
type Recorded struct {
	Name       string
	Start      time.Time
	Took       time.Duration
	Attributes map[string]string
	Failed     string // the error's class; "": none
}

type recorderKey struct{}

// Record makes spans below ctx known to sink when they end, whether or not there is a
// trace. sink may be called concurrently.
func Record(ctx context.Context, sink func(Recorded)) context.Context {
	return context.WithValue(ctx, recorderKey{}, sink)
}

// recorded is a span that is being recorded; nil: nobody asked for that.
type recorded struct {
	sink func(Recorded)
	mu   sync.Mutex
	span Recorded
}

func record(ctx context.Context, name string) *recorded {
	sink, _ := ctx.Value(recorderKey{}).(func(Recorded))
	if sink == nil {
		return nil
	}
	return &recorded{sink: sink, span: Recorded{Name: name, Start: time.Now(), Attributes: map[string]string{}}}
}

func (r *recorded) set(key string, v any) {
	if r == nil {
		return
	}
	if text := fmt.Sprint(v); text != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.span.Attributes[key] = text
	}
}

func (r *recorded) end(err error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	span := r.span
	span.Attributes = maps.Clone(span.Attributes)
	r.mu.Unlock()
	span.Took = time.Since(span.Start)
	if err != nil {
		span.Failed = fmt.Sprintf("%T", err)
	}
	r.sink(span)
}
