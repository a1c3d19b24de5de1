package gcs

import (
	"context"
	"errors"
	"net/http"

	"github.com/skypilot-go/sky/internal/googleauth"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

const (
	fix   = "run: " + googleauth.Fix
	scope = "https://www.googleapis.com/auth/devstorage.full_control"
)

type found struct {
	token   func(context.Context) (rest.Token, error)
	project string
}

// find looks where users of Google Cloud have credentials.
func find(ctx context.Context, transport http.RoundTripper) (found, error) {
	c, err := googleauth.Find(ctx, transport, scope)
	if errors.Is(err, googleauth.ErrNone) {
		err = errors.New("there are none on this machine")
	}
	if err != nil {
		return found{}, &storage.CredentialsError{Store: storage.GCS, Err: err, Fix: fix}
	}
	return found{project: c.Project, token: func(ctx context.Context) (rest.Token, error) {
		t, err := c.Token(ctx)
		if err != nil {
			return rest.Token{}, err
		}
		return rest.Token{Value: t.AccessToken, Expires: t.Expiry}, nil
	}}, nil
}
