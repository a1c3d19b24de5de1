package sky

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

// Benchmark is one task on several resources.
type Benchmark = api.Benchmark

// BenchCreate records a benchmark. Its clusters are launched afterwards, each with
// [Client.Launch].
func (c *Client) BenchCreate(ctx context.Context, b api.BenchCreateBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/bench/create", b)
}

// Benchmarks lists benchmarks as they were read last.
func (c *Client) Benchmarks(ctx context.Context) (*Request[[]Benchmark], error) {
	return post[[]Benchmark](ctx, c, "/bench/list", api.BenchListBody{Envelope: c.envelope()})
}

// BenchShow is a benchmark as its clusters tell now.
func (c *Client) BenchShow(ctx context.Context, name string) (*Request[Benchmark], error) {
	return post[Benchmark](ctx, c, "/bench/show", api.BenchShowBody{Envelope: c.envelope(), Name: name})
}

// BenchDelete forgets benchmarks whose clusters have ended.
func (c *Client) BenchDelete(ctx context.Context, names []string) (*Request[any], error) {
	return post[any](ctx, c, "/bench/delete", api.BenchDeleteBody{Envelope: c.envelope(), Names: names})
}
