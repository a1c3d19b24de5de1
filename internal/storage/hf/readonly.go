package hf

import (
	"context"
	"io"

	"github.com/skypilot-go/sky/internal/storage"
)

// Everything that changes something is refused.

func readOnly(op string) error { return &storage.UnsupportedError{Store: storage.HF, Op: op} }

// Create is not possible.
func (b *Bucket) Create(context.Context, map[string]string) error { return readOnly("create buckets") }

// Delete is not possible.
func (b *Bucket) Delete(context.Context) error { return readOnly("delete buckets") }

// Tags are none that can be read.
func (b *Bucket) Tags(context.Context) (map[string]string, error) {
	return nil, readOnly("keep tags of buckets")
}

// SetTags is not possible.
func (b *Bucket) SetTags(context.Context, map[string]string) error {
	return readOnly("keep tags of buckets")
}

// Put is not possible.
func (b *Bucket) Put(context.Context, string, io.ReadSeeker, storage.PutOptions) (storage.Object, error) {
	return storage.Object{}, readOnly("be written to")
}

// Copy is not possible.
func (b *Bucket) Copy(context.Context, string, storage.Source, storage.PutOptions) (storage.Object, error) {
	return storage.Object{}, readOnly("be written to")
}

// Remove is not possible.
func (b *Bucket) Remove(context.Context, []storage.ID) error { return readOnly("be written to") }

// Start is not possible.
func (b *Bucket) Start(context.Context, string, storage.PutOptions) (storage.Upload, error) {
	return storage.Upload{}, readOnly("be written to")
}

// PutPart is not possible.
func (b *Bucket) PutPart(context.Context, storage.Upload, int, io.ReadSeeker) (storage.Part, error) {
	return storage.Part{}, readOnly("be written to")
}

// CopyPart is not possible.
func (b *Bucket) CopyPart(context.Context, storage.Upload, int, storage.Source, int64, int64) (storage.Part, error) {
	return storage.Part{}, readOnly("be written to")
}

// Parts are none.
func (b *Bucket) Parts(context.Context, storage.Upload) ([]storage.Part, error) {
	return nil, readOnly("be written to")
}

// Complete is not possible.
func (b *Bucket) Complete(context.Context, storage.Upload, []storage.Part, storage.PutOptions) (storage.Object, error) {
	return storage.Object{}, readOnly("be written to")
}

// Abort is not possible.
func (b *Bucket) Abort(context.Context, storage.Upload) error { return readOnly("be written to") }

// Uploads are none.
func (b *Bucket) Uploads(context.Context, storage.ListOptions) (storage.UploadPage, error) {
	return storage.UploadPage{}, readOnly("be written to")
}
