package azure

import (
	"context"

	"github.com/skypilot-go/sky/internal/storage"
)

var _ storage.Granter = (*Bucket)(nil)

// Grant hands on the account's key, its signature, or a token.
func (b *Bucket) Grant(ctx context.Context) (storage.Grant, error) {
	g := storage.GrantTo(b.At, b.Endpoint)
	switch {
	case b.key != "":
		g.Key, g.Lasting, g.Whose = b.key, true, "the key of account "+b.At.Account
	case b.signature != "":
		g.SAS, g.Lasting, g.Whose = b.signature, true, "a shared access signature of account "+b.At.Account
	case b.tokens != nil:
		t, err := b.tokens.Current(ctx)
		if err != nil {
			return g, err
		}
		g.Token, g.Expires, g.Whose = t.Value, t.Expires, "a token of "+t.Account
	}
	return g, nil
}
