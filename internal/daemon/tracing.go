package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/trace"
)

// newTracer is what the configuration and the environment say about traces; nil:
// nothing is traced.
func newTracer(c *config.Config, log *slog.Logger) (*trace.Tracer, error) {
	o := trace.Options{Endpoint: c.Text("tracing", "endpoint"), Headers: map[string]string{}, Version: api.ProductVersion, Logger: log}
	headers, _ := c.Get("tracing", "headers")
	if m, ok := headers.(map[string]any); ok {
		for k, v := range m {
			o.Headers[k] = fmt.Sprint(v)
		}
	}
	if v, ok := c.Get("tracing", "sample"); ok && v != nil {
		part := c.Float("tracing", "sample")
		o.Sample = &part
	}
	t, err := trace.New(o)
	if err != nil {
		return nil, fmt.Errorf("setting up traces (tracing in the configuration, and OTEL_… variables): %w", err)
	}
	return t, nil
}

// endTraces sends what is not sent yet.
func (d *daemon) endTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := d.tracer.Close(ctx); err != nil {
		d.log.WarnContext(ctx, "the last traces were not sent", "err", err)
	}
}
