// Package stores opens buckets of every store by their locations, with the credentials
// that are found on this machine. Whoever has credentials of their own opens buckets by
// the drivers themselves: those link less.
package stores

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/azure"
	"github.com/skypilot-go/sky/internal/storage/gcs"
	"github.com/skypilot-go/sky/internal/storage/hf"
	"github.com/skypilot-go/sky/internal/storage/s3"
)

// Options are what may be said about a store. The zero value takes what the user's own
// files and environment say.
type Options struct {
	Endpoint string // another server in place of the store's own
	Profile  string // of ~/.aws, for S3
	Project  string // of Google Cloud, for buckets that are made
	Account  string // of Azure, for locations without one
	// Transport makes the connections; nil: one of its own for each bucket.
	Transport http.RoundTripper
}

// Open makes a bucket of its location, without any request to the store. It fails with a
// [*storage.CredentialsError] where there are no credentials.
func Open(ctx context.Context, at storage.Location, o Options) (storage.Bucket, error) {
	switch at.Store {
	case storage.GCS:
		return gcs.Open(ctx, at, gcs.Options{Endpoint: o.Endpoint, Project: o.Project, Transport: o.Transport})
	case storage.Azure:
		return openAzure(at, o)
	case storage.HF:
		return hf.Open(at, hf.Options{Endpoint: o.Endpoint, Transport: o.Transport})
	}
	if slices.Contains(s3.Stores(), at.Store) {
		return s3.Open(ctx, at, s3.Options{Endpoint: o.Endpoint, Profile: o.Profile, Transport: o.Transport})
	}
	return nil, &storage.UnsupportedError{Store: at.Store, Op: "be reached: it is no store that is known"}
}

// openAnonymously is Open without credentials; nil: the store has no such way.
func openAnonymously(ctx context.Context, at storage.Location, o Options) (storage.Bucket, error) {
	switch at.Store {
	case storage.GCS:
		return gcs.Open(ctx, at, gcs.Options{Endpoint: o.Endpoint, Transport: o.Transport, Anonymous: true})
	case storage.Azure:
		return azure.Open(at, azure.Options{Endpoint: o.Endpoint, Transport: o.Transport, Anonymous: true})
	}
	return nil, nil
}

// Find opens a bucket that exists, in the region that it is in, and describes it. A bucket
// that the user's credentials do not open, or for whose store there are none, is tried
// without any, as it may be public.
func Find(ctx context.Context, at storage.Location, o Options) (storage.Bucket, storage.BucketInfo, error) {
	b, info, err := find(ctx, at, o)
	_, denied := errors.AsType[*storage.DeniedError](err)
	_, none := errors.AsType[*storage.CredentialsError](err)
	if !denied && !none {
		return b, info, err
	}
	public, failed := openAnonymously(ctx, at, o)
	if failed != nil || public == nil {
		return nil, info, err
	}
	// Anybody may list what is public, and describe nothing.
	if _, failed = public.List(ctx, storage.ListOptions{Max: 1}); failed != nil {
		return nil, info, err
	}
	return public, storage.BucketInfo{}, nil
}

func find(ctx context.Context, at storage.Location, o Options) (storage.Bucket, storage.BucketInfo, error) {
	if at.Store == storage.IBM && at.Region == "" {
		return findIBM(ctx, at, o)
	}
	b, err := Open(ctx, at, o)
	if err != nil {
		return nil, storage.BucketInfo{}, err
	}
	info, err := b.Head(ctx)
	wrong, ok := errors.AsType[*storage.WrongRegionError](err)
	if !ok || wrong.Region == "" || wrong.Region == b.Location().Region {
		return b, info, err
	}
	at.Region = wrong.Region
	if b, err = Open(ctx, at, o); err != nil {
		return nil, info, err
	}
	info, err = b.Head(ctx)
	return b, info, err
}

// ibmRegions are those in which a name is looked for.
var ibmRegions = []string{"us-east", "us-south", "eu-de", "eu-gb", "eu-es", "ca-tor", "au-syd", "br-sao", "jp-osa", "jp-tok"}

// findIBM asks all regions at the same time: the store does not say where a bucket is.
func findIBM(ctx context.Context, at storage.Location, o Options) (storage.Bucket, storage.BucketInfo, error) {
	type answer struct {
		b    storage.Bucket
		info storage.BucketInfo
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(ibmRegions))
	for _, region := range ibmRegions {
		go func() {
			there := at
			there.Region = region
			b, info, err := find(ctx, there, o)
			answers <- answer{b, info, err}
		}()
	}
	var missing, other error
	for range ibmRegions {
		a := <-answers
		if a.err == nil {
			return a.b, a.info, nil
		}
		if _, not := errors.AsType[*storage.NotFoundError](a.err); not {
			missing = a.err
		} else {
			other = a.err
		}
	}
	// Trouble in one region leaves open whether the bucket is there.
	return nil, storage.BucketInfo{}, cmp.Or(other, missing)
}

// Check tries the credentials that are found for a store, by asking for a bucket that
// nobody has. The error is a [*storage.CredentialsError] where there are none, or the store
// does not take them; found says whether there are any.
func Check(ctx context.Context, s storage.Store, o Options) (found bool, err error) {
	at := storage.Location{Store: s, Bucket: "sky-check-" + strings.ToLower(rand.Text())}
	switch s {
	case storage.HF:
		if !hf.HasToken() {
			return false, &storage.CredentialsError{Store: s, Fix: hf.Fix}
		}
		at.Bucket = "datasets/sky-check/" + at.Bucket
	case storage.IBM:
		at.Region = ibmRegions[0]
	}
	b, err := Open(ctx, at, o)
	if err != nil {
		return false, err
	}
	_, err = b.List(ctx, storage.ListOptions{Max: 1})
	if refused, ok := errors.AsType[*storage.CredentialsError](err); ok {
		return true, refused
	}
	// Every other answer is that of a store that knows whom it answers.
	if storage.Temporary(err) || ctx.Err() != nil {
		return true, err
	}
	return true, nil
}
