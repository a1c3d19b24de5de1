package azure

import (
	"context"
	"fmt"
	"net/http"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Remove deletes blobs: one by its own request, more by a batch, in which every one is
// signed for itself.
func (b *Bucket) Remove(ctx context.Context, ids []storage.ID) error {
	if len(ids) > b.Caps().MaxRemove {
		return &storage.InvalidError{Bucket: b.At, Err: fmt.Errorf("%d objects are deleted at once, at most %d can be", len(ids), b.Caps().MaxRemove)}
	}
	errs := make([]error, len(ids))
	var calls []rest.Call
	var at []int // in ids
	for i, id := range ids {
		if errs[i] = b.checkKey(id.Key); errs[i] == nil {
			calls, at = append(calls, b.deletion(id)), append(at, i)
		}
	}
	switch len(calls) {
	case 0:
	case 1:
		_, errs[at[0]] = b.do(ctx, calls[0])
	default:
		got, err := b.Batch(ctx, b.container("", contributor, "comp", "batch"), calls, func(r *http.Request) error {
			r.Header["X-Ms-Version"] = nil
			if _, err := b.Authorize(ctx, r); err != nil {
				return err
			}
			r.Header.Set("Content-Length", "0")
			return nil
		})
		if err != nil {
			return err
		}
		for i, err := range got {
			errs[at[i]] = err
		}
	}
	return rest.Removed(ids, errs)
}

func (b *Bucket) deletion(id storage.ID) rest.Call {
	c := b.blob(http.MethodDelete, id.Key, contributor)
	if id.Version != "" {
		c.Query.Set("versionid", id.Version)
	} else {
		c.Header.Set("X-Ms-Delete-Snapshots", "include")
	}
	return c
}
