package hf

import (
	"context"

	"github.com/skypilot-go/sky/internal/storage"
)

var _ storage.Granter = (*Bucket)(nil)

// Grant hands on the token.
func (b *Bucket) Grant(context.Context) (storage.Grant, error) {
	g := storage.GrantTo(b.At, b.Endpoint)
	if b.token != "" {
		g.Token, g.Lasting, g.Whose = b.token, true, "the server's token"
	}
	return g, nil
}
