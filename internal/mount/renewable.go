//go:build linux

package mount

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/skypilot-go/sky/internal/storage"
)

// renewable is a bucket whose credentials can be replaced while it is used.
type renewable struct {
	now atomic.Pointer[storage.Bucket]
}

var _ storage.Bucket = (*renewable)(nil)

func newRenewable(b storage.Bucket) *renewable {
	r := &renewable{}
	r.replace(b)
	return r
}

func (r *renewable) replace(b storage.Bucket) { r.now.Store(&b) }

func (r *renewable) b() storage.Bucket { return *r.now.Load() }

// Unwrap is the driver, with the latest credentials.
func (r *renewable) Unwrap() storage.Bucket { return r.b() }

func (r *renewable) Location() storage.Location { return r.b().Location() }
func (r *renewable) Caps() storage.Caps         { return r.b().Caps() }
func (r *renewable) Head(ctx context.Context) (storage.BucketInfo, error) {
	return r.b().Head(ctx)
}
func (r *renewable) Create(ctx context.Context, tags map[string]string) error {
	return r.b().Create(ctx, tags)
}
func (r *renewable) Delete(ctx context.Context) error { return r.b().Delete(ctx) }
func (r *renewable) Tags(ctx context.Context) (map[string]string, error) {
	return r.b().Tags(ctx)
}
func (r *renewable) SetTags(ctx context.Context, tags map[string]string) error {
	return r.b().SetTags(ctx, tags)
}
func (r *renewable) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return r.b().List(ctx, o)
}
func (r *renewable) Stat(ctx context.Context, key string) (storage.Object, error) {
	return r.b().Stat(ctx, key)
}
func (r *renewable) Get(ctx context.Context, key string, o storage.GetOptions) (storage.Reader, error) {
	return r.b().Get(ctx, key, o)
}
func (r *renewable) Put(ctx context.Context, key string, body io.ReadSeeker, o storage.PutOptions) (storage.Object, error) {
	return r.b().Put(ctx, key, body, o)
}
func (r *renewable) CopiesFrom(other storage.Bucket) bool { return r.b().CopiesFrom(other) }
func (r *renewable) Copy(ctx context.Context, key string, from storage.Source, o storage.PutOptions) (storage.Object, error) {
	return r.b().Copy(ctx, key, from, o)
}
func (r *renewable) Remove(ctx context.Context, ids []storage.ID) error {
	return r.b().Remove(ctx, ids)
}
func (r *renewable) Start(ctx context.Context, key string, o storage.PutOptions) (storage.Upload, error) {
	return r.b().Start(ctx, key, o)
}
func (r *renewable) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	return r.b().PutPart(ctx, u, n, body)
}
func (r *renewable) CopyPart(ctx context.Context, u storage.Upload, n int, from storage.Source, offset, length int64) (storage.Part, error) {
	return r.b().CopyPart(ctx, u, n, from, offset, length)
}
func (r *renewable) Parts(ctx context.Context, u storage.Upload) ([]storage.Part, error) {
	return r.b().Parts(ctx, u)
}
func (r *renewable) Complete(ctx context.Context, u storage.Upload, parts []storage.Part, o storage.PutOptions) (storage.Object, error) {
	return r.b().Complete(ctx, u, parts, o)
}
func (r *renewable) Abort(ctx context.Context, u storage.Upload) error {
	return r.b().Abort(ctx, u)
}
func (r *renewable) Uploads(ctx context.Context, o storage.ListOptions) (storage.UploadPage, error) {
	return r.b().Uploads(ctx, o)
}
func (r *renewable) Versions(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return r.b().Versions(ctx, o)
}
