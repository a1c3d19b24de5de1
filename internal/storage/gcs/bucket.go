package gcs

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// bucketResource is the part of a bucket's description that is used.
type bucketResource struct {
	Name         string            `json:"name,omitempty"`
	Location     string            `json:"location,omitempty"`
	StorageClass string            `json:"storageClass,omitempty"`
	TimeCreated  time.Time         `json:"timeCreated,omitzero"`
	Labels       map[string]string `json:"labels,omitempty"`
}

func (b *Bucket) describe(ctx context.Context) (r bucketResource, err error) {
	err = b.JSON(ctx, rest.Call{Method: http.MethodGet, Path: b.jsonPath(""), Permission: "storage.buckets.get", Query: url.Values{"fields": {"location,timeCreated,labels"}}}, nil, &r)
	return r, err
}

// Head describes the bucket. Who may not describe it but list it, learns that it is
// there.
func (b *Bucket) Head(ctx context.Context) (storage.BucketInfo, error) {
	r, err := b.describe(ctx)
	if _, denied := errors.AsType[*storage.DeniedError](err); denied {
		if _, listed := b.List(ctx, storage.ListOptions{Max: 1}); listed == nil {
			return storage.BucketInfo{}, nil
		}
	}
	return storage.BucketInfo{Region: strings.ToLower(r.Location), Created: r.TimeCreated}, err
}

// Create makes the bucket.
func (b *Bucket) Create(ctx context.Context, tags map[string]string) error {
	project, err := b.project()
	if err != nil {
		return err
	}
	if project == "" && b.Endpoint == standardEndpoint {
		return &storage.CredentialsError{Store: storage.GCS, Err: errors.New("it is not known in which project to make a bucket"), Fix: "run: gcloud config set project PROJECT  (or set GOOGLE_CLOUD_PROJECT)"}
	}
	err = b.JSON(ctx, rest.Call{Method: http.MethodPost, Path: "/storage/v1/b", Query: url.Values{"project": {project}}, Permission: "storage.buckets.create"},
		bucketResource{Name: b.At.Bucket, Location: b.At.Region, StorageClass: "STANDARD", Labels: tags}, nil)
	taken, ok := errors.AsType[*storage.BucketExistsError](err)
	if !ok {
		return err
	}
	// Whose is it? Strangers may read what is public, but not describe the bucket.
	r, described := b.describe(ctx)
	if described != nil {
		if !strings.Contains(taken.Err.Error(), "already own") {
			return err
		}
		return nil
	}
	if len(r.Labels) == 0 && len(tags) > 0 {
		return b.SetTags(ctx, tags)
	}
	return nil
}

// Delete deletes the bucket.
func (b *Bucket) Delete(ctx context.Context) error {
	err := b.JSON(ctx, rest.Call{Method: http.MethodDelete, Path: b.jsonPath(""), Permission: "storage.buckets.delete"}, nil, nil)
	if _, gone := errors.AsType[*storage.NotFoundError](err); gone {
		return nil
	}
	return err
}

// Tags are the labels.
func (b *Bucket) Tags(ctx context.Context) (map[string]string, error) {
	r, err := b.describe(ctx)
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	return r.Labels, err
}

// SetTags replaces the labels.
func (b *Bucket) SetTags(ctx context.Context, tags map[string]string) error {
	have, err := b.Tags(ctx)
	if err != nil {
		return err
	}
	change := map[string]any{}
	for k := range maps.Keys(have) {
		change[k] = nil // removes it
	}
	for k, v := range tags {
		change[k] = v
	}
	return b.JSON(ctx, rest.Call{Method: http.MethodPatch, Path: b.jsonPath(""), Permission: "storage.buckets.update"}, map[string]any{"labels": change}, nil)
}
