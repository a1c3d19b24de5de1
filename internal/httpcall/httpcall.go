// Package httpcall has what every client of an HTTP API needs, whether that rents
// machines or stores files: how long a server wants to be left alone, and tokens that are
// renewed before they end.
package httpcall

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// RetryAfter is how long a server asks not to be called: Retry-After-Ms and
// X-Ms-Retry-After-Ms in milliseconds, Retry-After in seconds or as a date. 0: it does not
// say.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	for _, unit := range []struct {
		header string
		of     time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"X-Ms-Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, err := strconv.ParseFloat(strings.TrimSpace(h.Get(unit.header)), 64); err == nil && n >= 0 && n < 1e6 {
			return time.Duration(n * float64(unit.of))
		}
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// Token is a credential that ends.
type Token struct {
	Value   string
	Account string    // whose it is, for messages
	Expires time.Time // zero: never
}

// early is how long before its end a token is renewed, since calls take time.
const early = time.Minute

func (t Token) good(now time.Time) bool {
	return t.Value != "" && (t.Expires.IsZero() || t.Expires.Sub(now) >= early)
}

// Tokens keep a token until it ends. Concurrent calls wait for the same new one.
type Tokens struct {
	get  func(context.Context) (Token, error)
	turn chan struct{} // unlike a mutex, it lets callers leave

	mu   sync.Mutex
	have Token
}

// NewTokens keeps the tokens that get asks for.
func NewTokens(get func(context.Context) (Token, error)) *Tokens {
	return &Tokens{get: get, turn: make(chan struct{}, 1)}
}

// Current is a token that does not end soon. An error is get's, or why ctx ended.
func (t *Tokens) Current(ctx context.Context) (Token, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return Token{}, context.Cause(ctx)
	}
	if have := t.Last(); have.good(time.Now()) {
		return have, nil
	}
	got, err := t.get(ctx)
	if err == nil && got.Value == "" {
		err = errors.New("the token is empty")
	}
	if err != nil {
		return Token{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.have = got
	return got, nil
}

// Last is the token that was used last.
func (t *Tokens) Last() Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.have
}

// Forget drops a token that the server does not take.
func (t *Tokens) Forget(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.have.Value == value {
		t.have = Token{}
	}
}
