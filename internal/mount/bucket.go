//go:build linux

package mount

import (
	"context"
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/azure"
	"github.com/skypilot-go/sky/internal/storage/gcs"
	"github.com/skypilot-go/sky/internal/storage/hf"
	"github.com/skypilot-go/sky/internal/storage/rest"
	"github.com/skypilot-go/sky/internal/storage/s3"
	"github.com/skypilot-go/sky/internal/storage/stores"
)

// location is the bucket of a spec; the key is the prefix that is shown.
func location(s mountapi.Spec) (storage.Location, error) {
	at, err := storage.Parse(s.URL)
	if err != nil {
		return at, err
	}
	if at.Region == "" {
		at.Region = s.Region
	}
	return at, nil
}

// open opens the bucket of a spec with the given credentials, or with those of this
// machine if none are given.
func open(ctx context.Context, s mountapi.Spec, c mountapi.Credentials) (storage.Bucket, error) {
	at, err := location(s)
	if err != nil {
		return nil, err
	}
	token := func(context.Context) (rest.Token, error) {
		return rest.Token{Value: c.Token, Account: c.Account, Expires: c.Expires}, nil
	}
	switch {
	case c.AccessKey != "":
		keys := s3.Keys{AccessKey: c.AccessKey, SecretKey: c.SecretKey, SessionToken: c.SessionToken, Account: c.Account, Expires: c.Expires}
		return s3.Open(ctx, at, s3.Options{Endpoint: s.Endpoint, Keys: func(context.Context) (s3.Keys, error) { return keys, nil }})
	case at.Store == storage.GCS && c.Token != "":
		return gcs.Open(ctx, at, gcs.Options{Endpoint: s.Endpoint, Token: token})
	case at.Store == storage.Azure && c.Token != "":
		return azure.Open(at, azure.Options{Endpoint: s.Endpoint, Token: token})
	case at.Store == storage.Azure && (c.AccountKey != "" || c.SAS != ""):
		return azure.Open(at, azure.Options{Endpoint: s.Endpoint, Key: c.AccountKey, SAS: c.SAS})
	case at.Store == storage.HF:
		return hf.Open(at, hf.Options{Endpoint: s.Endpoint, Token: c.Token})
	case at.Store == storage.GCS && c.Anonymous:
		return gcs.Open(ctx, at, gcs.Options{Endpoint: s.Endpoint, Anonymous: true})
	case at.Store == storage.Azure && c.Anonymous:
		return azure.Open(at, azure.Options{Endpoint: s.Endpoint, Anonymous: true})
	case c.Anonymous:
		return nil, &storage.CredentialsError{Store: at.Store, Err: errors.New("the store has no access without any"), Fix: "give credentials"}
	case c != mountapi.Credentials{}:
		return nil, &storage.CredentialsError{Store: at.Store, Err: errors.New("they are those of another store"), Fix: "give credentials of this store"}
	}
	return stores.Open(ctx, at, stores.Options{Endpoint: s.Endpoint})
}

// codeOf is what an error of a store means to whoever asked for the mount.
func codeOf(err error) mountapi.Code {
	if e, ok := errors.AsType[*storage.NotFoundError](err); ok && e.Key == "" && e.Upload == "" {
		return mountapi.NoBucket
	}
	if _, ok := errors.AsType[*storage.DeniedError](err); ok {
		return mountapi.Denied
	}
	if _, ok := errors.AsType[*storage.CredentialsError](err); ok {
		return mountapi.Denied
	}
	if storage.Temporary(err) {
		return mountapi.Unavailable
	}
	if _, ok := errors.AsType[*storage.WrongRegionError](err); ok {
		return mountapi.Invalid
	}
	return mountapi.Internal
}

func failf(code mountapi.Code, format string, args ...any) error {
	return &mountapi.Error{Code: code, Message: fmt.Errorf(format, args...).Error()}
}
