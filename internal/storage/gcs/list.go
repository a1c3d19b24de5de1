package gcs

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// List lists objects.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return b.list(ctx, o, false)
}

// Versions lists all versions.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return b.list(ctx, o, true)
}

func (b *Bucket) list(ctx context.Context, o storage.ListOptions, versions bool) (storage.Page, error) {
	q := url.Values{"fields": {"nextPageToken,prefixes,items(" + objectFields + ")"}}
	for name, value := range map[string]string{"prefix": o.Prefix, "delimiter": o.Delimiter, "pageToken": o.Token, "startOffset": o.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.Max > 0 {
		q.Set("maxResults", strconv.Itoa(o.Max))
	}
	if versions {
		q.Set("versions", "true")
	}
	var out struct {
		NextPageToken string
		Prefixes      []string
		Items         []objectResource
	}
	if err := b.JSON(ctx, rest.Call{Method: http.MethodGet, Path: b.jsonPath("") + "/o", Query: q, Permission: "storage.objects.list"}, nil, &out); err != nil {
		return storage.Page{}, err
	}
	p := storage.Page{Prefixes: out.Prefixes, Next: out.NextPageToken, Objects: make([]storage.Object, len(out.Items))}
	for i := range out.Items {
		p.Objects[i] = out.Items[i].object()
	}
	if o.After != "" && len(p.Objects) > 0 && p.Objects[0].Key == o.After { // where the store begins
		p.Objects = p.Objects[1:]
	}
	return p, nil
}
