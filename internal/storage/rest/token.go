package rest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// A Token is a credential that runs out.
type Token struct {
	Value   string
	Account string    // whose it is, for messages
	Expires time.Time // zero: never
}

// Tokens keep a token until it runs out.
type Tokens struct {
	Get   func(context.Context) (Token, error)
	Store storage.Store
	Fix   string // what to do when there is none

	mu   sync.Mutex
	have Token
}

// early is how long before its end a token is renewed, as requests take time.
const early = time.Minute

// Authorize puts the token on a request.
func (t *Tokens) Authorize(ctx context.Context, r *http.Request) (again func(), err error) {
	token, err := t.Current(ctx)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token.Value)
	return func() { t.forget(token.Value) }, nil
}

// Current is a token that does not run out soon.
func (t *Tokens) Current(ctx context.Context) (Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.have.Value == "" || !t.have.Expires.IsZero() && time.Until(t.have.Expires) < early {
		got, err := t.Get(ctx)
		if err == nil && got.Value == "" {
			err = errors.New("the token is empty")
		}
		if err != nil {
			if ctx.Err() != nil {
				return Token{}, context.Cause(ctx)
			}
			return Token{}, &storage.CredentialsError{Store: t.Store, Err: err, Fix: t.Fix}
		}
		t.have = got
	}
	return t.have, nil
}

// forget drops a token that the store does not take.
func (t *Tokens) forget(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.have.Value == value {
		t.have = Token{}
	}
}

// Account is whose token was used last, as far as it is known.
func (t *Tokens) Account() string {
	if t == nil {
		return "anybody without credentials"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.have.Account
}
