// Package wrap is what any provider can wear: retries, a limit of its rate,
// deadlines, measurements. A [Layer] sees every call of a provider that does
// I/O; [With] puts layers around one.
//
//	p := wrap.With(lambda.New(o),
//		wrap.Metrics(record),                    // outermost: sees what callers see
//		wrap.Retry(wrap.RetryOptions{}),
//		wrap.Deadlines(wrap.DefaultDeadlines()), // of each try
//		wrap.Rate(10, 20),                       // innermost: every try counts
//	)
//
// Optional interfaces other than [cloud.Stopper], and the [cloud.OffSwitch] of one,
// are found behind the layers by [cloud.As], and called without them.
package wrap

import (
	"context"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Method is a provider's method that does I/O.
type Method string

const (
	Check     Method = "Check"
	Offers    Method = "Offers"
	Prepare   Method = "Prepare"
	Launch    Method = "Launch"
	Nodes     Method = "Nodes"
	Stop      Method = "Stop"
	Terminate Method = "Terminate"
	WhenOff   Method = "WhenOff"
)

// Layer does something around a call. By the contract every method may be
// repeated, so a layer may call next more than once.
type Layer func(ctx context.Context, m Method, next func(context.Context) error) error

// With puts layers around a provider, the first one outermost. The result is a
// Stopper if the provider is one, and an OffSwitch if it is both.
func With(p cloud.Provider, layers ...Layer) cloud.Provider {
	w := wrapped{Provider: p, layers: layers}
	if s, ok := cloud.As[cloud.Stopper](p); ok {
		if o, ok := cloud.As[cloud.OffSwitch](p); ok {
			return &offSwitch{stopper{w, s}, o}
		}
		return &stopper{w, s}
	}
	return &w
}

type wrapped struct {
	cloud.Provider
	layers []Layer
}

// Unwrap lets cloud.As look behind the layers.
func (w *wrapped) Unwrap() cloud.Provider { return w.Provider }

func (w *wrapped) do(ctx context.Context, m Method, f func(context.Context) error) error {
	return through(ctx, w.layers, m, f)
}

func through(ctx context.Context, layers []Layer, m Method, f func(context.Context) error) error {
	if len(layers) == 0 {
		return f(ctx)
	}
	return layers[0](ctx, m, func(ctx context.Context) error { return through(ctx, layers[1:], m, f) })
}

func (w *wrapped) Check(ctx context.Context) (id cloud.Identity, err error) {
	err = w.do(ctx, Check, func(ctx context.Context) (err error) { id, err = w.Provider.Check(ctx); return err })
	return id, err
}

func (w *wrapped) Offers(ctx context.Context) (o []cloud.Offer, err error) {
	err = w.do(ctx, Offers, func(ctx context.Context) (err error) { o, err = w.Provider.Offers(ctx); return err })
	return o, err
}

func (w *wrapped) Prepare(ctx context.Context, spec cloud.LaunchSpec) error {
	return w.do(ctx, Prepare, func(ctx context.Context) error { return w.Provider.Prepare(ctx, spec) })
}

func (w *wrapped) Launch(ctx context.Context, spec cloud.LaunchSpec) (n []cloud.Node, err error) {
	err = w.do(ctx, Launch, func(ctx context.Context) (err error) { n, err = w.Provider.Launch(ctx, spec); return err })
	return n, err
}

func (w *wrapped) Nodes(ctx context.Context, id cloud.ClusterID) (n []cloud.Node, err error) {
	err = w.do(ctx, Nodes, func(ctx context.Context) (err error) { n, err = w.Provider.Nodes(ctx, id); return err })
	return n, err
}

func (w *wrapped) Terminate(ctx context.Context, id cloud.ClusterID) error {
	return w.do(ctx, Terminate, func(ctx context.Context) error { return w.Provider.Terminate(ctx, id) })
}

type stopper struct {
	wrapped
	inner cloud.Stopper
}

func (s *stopper) Stop(ctx context.Context, id cloud.ClusterID) error {
	return s.do(ctx, Stop, func(ctx context.Context) error { return s.inner.Stop(ctx, id) })
}

// offSwitch is a stopper that machines switch off by themselves: were they not told
// to end then, for one call that was throttled, they would only stop.
type offSwitch struct {
	stopper
	off cloud.OffSwitch
}

func (o *offSwitch) WhenOff(ctx context.Context, id cloud.ClusterID, ends bool) error {
	return o.do(ctx, WhenOff, func(ctx context.Context) error { return o.off.WhenOff(ctx, id, ends) })
}
