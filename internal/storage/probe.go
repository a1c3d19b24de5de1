package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"
)

// ProbeWrite finds out whether objects can be written below a prefix, by writing one, which
// it deletes again if it may.
func ProbeWrite(ctx context.Context, b Bucket, prefix string) error {
	key := ".sky-probe-" + rand.Text()
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		key = prefix + "/" + key
	}
	if _, err := b.Put(ctx, key, bytes.NewReader(nil), PutOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err := b.Remove(ctx, []ID{{Key: key}})
	if _, denied := errors.AsType[*DeniedError](err); denied {
		err = nil // to write, nothing needs to be deleted
	}
	return err
}
