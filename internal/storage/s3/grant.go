package s3

import (
	"context"

	"github.com/skypilot-go/sky/internal/storage"
)

var _ storage.Granter = (*Bucket)(nil)

// Grant hands on the keys that are used now.
func (b *Bucket) Grant(ctx context.Context) (storage.Grant, error) {
	keys, err := b.keys.Retrieve(ctx)
	if err != nil {
		return storage.Grant{}, err
	}
	g := storage.GrantTo(b.at, b.endpoint)
	g.AccessKey, g.SecretKey, g.SessionToken = keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken
	g.Whose, g.Lasting = b.keys.account(), keys.SessionToken == ""
	b.keys.mu.Lock()
	defer b.keys.mu.Unlock()
	if b.keys.keys.AccessKey == g.AccessKey {
		g.Expires = b.keys.keys.Expires
	}
	return g, nil
}
