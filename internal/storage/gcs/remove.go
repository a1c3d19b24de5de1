package gcs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Remove deletes objects: one by its own request, more by one of the batch API.
func (b *Bucket) Remove(ctx context.Context, ids []storage.ID) error {
	if len(ids) > b.Caps().MaxRemove {
		return &storage.InvalidError{Bucket: b.At, Err: fmt.Errorf("%d objects are deleted at once, at most %d can be", len(ids), b.Caps().MaxRemove)}
	}
	switch len(ids) {
	case 0:
		return nil
	case 1:
		return rest.Removed(ids, []error{b.JSON(ctx, b.deletion(ids[0]), nil, nil)})
	}
	calls := make([]rest.Call, len(ids))
	for i, id := range ids {
		calls[i] = b.deletion(id)
	}
	errs, err := b.Batch(ctx, rest.Call{Path: "/batch/storage/v1", Permission: "storage.objects.delete"}, calls, nil)
	if err != nil {
		return err
	}
	return rest.Removed(ids, errs)
}

func (b *Bucket) deletion(id storage.ID) rest.Call {
	c := rest.Call{Method: http.MethodDelete, Path: b.jsonPath(id.Key), Key: id.Key, Permission: "storage.objects.delete"}
	if id.Version != "" {
		c.Query = url.Values{"generation": {id.Version}}
	}
	return c
}
