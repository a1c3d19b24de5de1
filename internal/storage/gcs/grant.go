package gcs

import (
	"cmp"
	"context"

	"github.com/skypilot-go/sky/internal/storage"
)

var _ storage.Granter = (*Bucket)(nil)

// Grant hands on a token, which runs out within the hour.
func (b *Bucket) Grant(ctx context.Context) (storage.Grant, error) {
	g := storage.GrantTo(b.At, b.Endpoint)
	if g.Endpoint == standardEndpoint {
		g.Endpoint = ""
	}
	if b.tokens == nil {
		return g, nil
	}
	t, err := b.tokens.Current(ctx)
	if err != nil {
		return g, err
	}
	g.Token, g.Expires, g.Whose = t.Value, t.Expires, "a token of "+cmp.Or(t.Account, "the server's account")
	return g, nil
}
