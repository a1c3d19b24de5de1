// Package gcs reaches Google Cloud Storage: its JSON API, and where that has no
// counterpart its XML API (content with metadata in one answer, multipart uploads).
package gcs

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"strings"

	"github.com/skypilot-go/sky/internal/googleauth"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Options say how the store is reached. The zero value takes what the user's own files
// and environment say.
type Options struct {
	// Endpoint is another server, as "http://127.0.0.1:4443". It comes before
	// STORAGE_EMULATOR_HOST. Neither is shown the user's own credentials: only Token's.
	Endpoint string
	// Project is where buckets are made; "": the one of the credentials.
	Project string
	// Token comes before what is found on this machine. It is asked again when the token
	// has run out.
	Token func(ctx context.Context) (rest.Token, error)
	// Anonymous uses no credentials, for public buckets.
	Anonymous bool
	// Transport makes the connections; nil: storage.NewTransport.
	Transport http.RoundTripper
}

const (
	standardEndpoint = "https://storage.googleapis.com"
	standardRegion   = "us-central1"
)

// Bucket is a bucket of Google Cloud Storage.
type Bucket struct {
	rest.Client
	project func() (string, error)
	tokens  *rest.Tokens // nil: none are used
}

var _ storage.Bucket = (*Bucket)(nil)

// Open makes a bucket of its location, without any request. It fails with a
// [*storage.CredentialsError] where there are no credentials.
func Open(ctx context.Context, at storage.Location, o Options) (*Bucket, error) {
	at.Key = ""
	at.Region = cmp.Or(at.Region, standardRegion)
	b := &Bucket{Client: rest.Client{At: at, Endpoint: standardEndpoint, Transport: o.Transport, BatchID: "<%d>"}}
	b.Refused = b.classify
	if b.Transport == nil {
		b.Transport = storage.NewTransport()
	}
	elsewhere := cmp.Or(o.Endpoint, os.Getenv("STORAGE_EMULATOR_HOST"))
	if elsewhere != "" {
		if !strings.Contains(elsewhere, "://") {
			elsewhere = "http://" + elsewhere
		}
		b.Endpoint = strings.TrimSuffix(elsewhere, "/")
	}
	b.project = func() (string, error) { return cmp.Or(o.Project, googleauth.EnvironmentProject()), nil }
	switch {
	case o.Anonymous:
	case o.Token != nil:
		b.use(o.Token)
	case elsewhere == "":
		found, err := find(ctx, b.Transport)
		if err != nil {
			return nil, err
		}
		b.use(found.token)
		b.project = func() (string, error) {
			if p := cmp.Or(o.Project, googleauth.EnvironmentProject(), found.project); p != "" {
				return p, nil
			}
			return googleauth.Active("project"), nil
		}
	}
	return b, nil
}

func (b *Bucket) use(token func(context.Context) (rest.Token, error)) {
	b.tokens = &rest.Tokens{Get: token, Store: storage.GCS, Fix: fix}
	b.Authorize = b.tokens.Authorize
}

// Location names the bucket.
func (b *Bucket) Location() storage.Location { return b.At }

// Caps says what the store can do. Conditions are by generation, which is what ETags
// are here.
func (b *Bucket) Caps() storage.Caps {
	return storage.Caps{
		Create: true, Tags: true, Multipart: true, Uploads: true, Versions: true, Conditional: true, Metadata: true, ListsMetadata: true, After: true, Ordered: true,
		MinPart: 5 << 20, MaxPart: 5 << 30, MaxParts: 10_000, MaxPut: 5 << 40, MaxCopy: 5 << 40, MaxRemove: 100, MaxKey: 1024, MaxMetadata: 8 << 10,
	}
}

// CopiesFrom reports whether the store can copy objects of the other bucket.
func (b *Bucket) CopiesFrom(other storage.Bucket) bool {
	from, ok := storage.Driver(other).(*Bucket)
	return ok && from.Endpoint == b.Endpoint && (from.tokens == nil) == (b.tokens == nil)
}
