package rest

import (
	"context"
	"net/http"
	"sync"

	"github.com/skypilot-go/sky/internal/httpcall"
	"github.com/skypilot-go/sky/internal/storage"
)

// A Token is a credential that ends.
type Token = httpcall.Token

// Tokens keep a token until it ends.
type Tokens struct {
	Get   func(context.Context) (Token, error)
	Store storage.Store
	Fix   string // what to do when there is none

	once   sync.Once
	tokens *httpcall.Tokens
}

func (t *Tokens) kept() *httpcall.Tokens {
	t.once.Do(func() { t.tokens = httpcall.NewTokens(t.Get) })
	return t.tokens
}

// Authorize puts the token on a request.
func (t *Tokens) Authorize(ctx context.Context, r *http.Request) (again func(), err error) {
	token, err := t.Current(ctx)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token.Value)
	return func() { t.kept().Forget(token.Value) }, nil
}

// Current is a token that does not end soon.
func (t *Tokens) Current(ctx context.Context) (Token, error) {
	token, err := t.kept().Current(ctx)
	switch {
	case err == nil:
		return token, nil
	case ctx.Err() != nil:
		return Token{}, context.Cause(ctx)
	}
	return Token{}, &storage.CredentialsError{Store: t.Store, Err: err, Fix: t.Fix}
}

// Account is whose token was used last, as far as it is known.
func (t *Tokens) Account() string {
	if t == nil {
		return "anybody without credentials"
	}
	return t.kept().Last().Account
}
