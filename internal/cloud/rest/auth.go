package rest

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/httpcall"
)

// Bearer authorizes calls with a token.
func Bearer(token string) func(*http.Request) error { return Header("Authorization", "Bearer "+token) }

// Header authorizes calls with a header such as "X-API-KEY".
func Header(name, value string) func(*http.Request) error {
	return func(r *http.Request) error {
		r.Header.Set(name, value)
		return nil
	}
}

// Sign authorizes calls with a signature over what is sent.
func Sign(sign func(r *http.Request, body []byte) error) func(*http.Request) error {
	return func(r *http.Request) error {
		var body []byte
		if r.GetBody != nil {
			content, err := r.GetBody()
			if err != nil {
				return err
			}
			if body, err = io.ReadAll(content); err != nil {
				return err
			}
		}
		return sign(r, body)
	}
}

// Clients keep a client for each key that is used, so that a key has one pace
// however often another one is used in between. The zero value is ready.
type Clients struct {
	mu sync.Mutex
	of map[string]*Client
}

// mostClients is how many keys are remembered: of more than one user has.
const mostClients = 64

// For returns the client of a key, made by the options if it is new.
func (c *Clients) For(key string, options func() Options) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.of[key]; have != nil {
		return have
	}
	if c.of == nil || len(c.of) == mostClients {
		for _, old := range c.of {
			old.Close()
		}
		c.of = map[string]*Client{}
	}
	c.of[key] = New(options())
	return c.of[key]
}

// Tokens authorizes calls with tokens that end: get asks for one, which reports until when
// it is good. Calls at once wait for the same one.
func Tokens(get func(ctx context.Context) (token string, until time.Time, err error)) func(*http.Request) error {
	tokens := httpcall.NewTokens(func(ctx context.Context) (httpcall.Token, error) {
		value, until, err := get(ctx)
		return httpcall.Token{Value: value, Expires: until}, err
	})
	return func(r *http.Request) error {
		token, err := tokens.Current(r.Context())
		if err != nil {
			return err
		}
		return Bearer(token.Value)(r)
	}
}
