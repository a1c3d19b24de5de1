package trace_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/internal/trace/tracetest"
)

func env(vars map[string]string) func(string) string {
	return func(k string) string { return vars[k] }
}

const (
	callersTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan   = "00f067aa0ba902b7"
	callersParent = "00-" + callersTrace + "-" + callersSpan + "-01"
)

func TestSpansArrive(t *testing.T) {
	r := tracetest.New(t)
	for name, vars := range map[string]map[string]string{
		"endpoint": {"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL + "/", "OTEL_SERVICE_NAME": "endpoint", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b,other=1"},
		"traces":   {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": r.URL + "/v1/traces", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://192.0.2.1:1", "OTEL_SERVICE_NAME": "traces", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := trace.New(trace.Options{Getenv: env(vars)})
			if err != nil || tr == nil {
				t.Fatal(tr, err)
			}
			if name == "endpoint" {
				r.Refuse(1)
			}
			ctx, root := tr.Root(t.Context(), "GET", http.Header{"Traceparent": {callersParent}})
			root.Rename("call " + name)
			parent := trace.Parent(ctx)
			boom := trace.Do(ctx, "step "+name, func(ctx context.Context) error { return errors.New("secret") })
			root.End(nil)
			_, later := tr.Later(context.Background(), "work "+name, parent)
			later.Set("sky.cluster", "c1")
			later.End(boom)
			if err := tr.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			call := r.Await("call "+name, callersSpan)
			step, work := r.Await("step "+name, call.ID), r.Await("work "+name, call.ID)
			if call.Trace != callersTrace || step.Trace != callersTrace || work.Trace != callersTrace || call.Service != name {
				t.Errorf("spans are not of the caller's trace: %+v %+v %+v", call, step, work)
			}
			if call.Failed || !step.Failed || !work.Failed || work.Attributes["sky.cluster"] != "c1" {
				t.Errorf("spans tell wrongly how they ended: %+v %+v %+v", call, step, work)
			}
			if name == "endpoint" && r.Header().Get("X-Key") != "a b" {
				t.Errorf("headers were not sent: %v", r.Header())
			}
		})
	}
}

func TestNothingIsTracedUnlessAsked(t *testing.T) {
	for name, vars := range map[string]map[string]string{
		"by default": {},
		"disabled":   {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		"no traces":  {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		tr, err := trace.New(trace.Options{Getenv: env(vars)})
		if tr != nil || err != nil {
			t.Errorf("%s: %v, %v", name, tr, err)
		}
	}
	for _, vars := range []map[string]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:1", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nonexistent"},
	} {
		if _, err := trace.New(trace.Options{Getenv: env(vars)}); err == nil {
			t.Errorf("%v is accepted", vars)
		}
	}
	var off *trace.Tracer
	allocs := testing.AllocsPerRun(100, func() {
		ctx, root := off.Root(t.Context(), "GET", nil)
		ctx, s := trace.Start(ctx, "step")
		s.Set("a", "b")
		s.End(nil)
		root.End(nil)
		if trace.Parent(ctx) != "" {
			t.Error("there is a span")
		}
	})
	if allocs != 0 {
		t.Errorf("what is not traced costs %v allocations", allocs)
	}
}
