//go:build linux

package mount

import (
	"context"
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/granted"
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

// open opens the bucket of a spec with the given credentials, and never with those of this
// machine.
func open(ctx context.Context, s mountapi.Spec, c mountapi.Credentials) (storage.Bucket, error) {
	at, err := location(s)
	if err != nil {
		return nil, err
	}
	g := storage.GrantTo(at, s.Endpoint)
	g.AccessKey, g.SecretKey, g.SessionToken = c.AccessKey, c.SecretKey, c.SessionToken
	g.Token, g.Key, g.SAS, g.Expires, g.Whose = c.Token, c.AccountKey, c.SAS, c.Expires, c.Account
	return granted.Open(ctx, granted.Hold(g), nil)
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
