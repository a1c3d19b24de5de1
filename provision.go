package sky

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

// Sweep lists machines that carry the installation's tags and belong to no
// cluster on record, and ends them if b says so.
func (c *Client) Sweep(ctx context.Context, b api.SweepBody) (*Request[api.SweepReport], error) {
	b.Envelope = c.envelope()
	return post[api.SweepReport](ctx, c, "/sweep", b)
}

// Availability lists what past attempts tell of room, the likeliest place first.
func (c *Client) Availability(ctx context.Context, b api.AvailabilityBody) (*Request[[]api.Availability], error) {
	b.Envelope = c.envelope()
	return post[[]api.Availability](ctx, c, "/availability", b)
}
