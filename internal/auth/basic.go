package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"net/http"
	"runtime"
	"sync"

	"github.com/skypilot-go/sky/internal/state"
)

const realm = `Basic realm="SkyPilot"`

// seed makes the first administrator, as SKYPILOT_INITIAL_BASIC_AUTH says.
func (g *Gate) seed(ctx context.Context) error {
	if g.o.Initial == "" {
		return nil
	}
	name, hash, err := parseInitial(g.o.Initial)
	if err != nil {
		return err
	}
	return g.store.Users().SeedAdmin(ctx, state.User{ID: UserID(name), Name: name, Type: "basic"}, hash)
}

// byBasic knows users by their passwords. From this machine, and to ask for the
// server's health, a password that does not fit is as good as none.
func (g *Gate) byBasic(r *http.Request) (*Caller, error) {
	name, password, ok := r.BasicAuth()
	if !ok {
		return nil, nil
	}
	c, err := g.store.Users().Credential(r.Context(), UserID(name))
	known := err == nil && c.Name == name && c.Hash != ""
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	if !known {
		c.Hash = decoy
	}
	good, err := g.guesses.fits(r.Context(), c.Hash, password)
	switch {
	case err != nil:
		return nil, err
	case known && good:
		return &Caller{User: c.User, By: ByBasic}, nil
	case Loopback(r) || r.URL.Path == HealthPath:
		return nil, nil
	}
	d := unauthorized("The user's name or password is wrong.")
	d.Header.Set("WWW-Authenticate", realm)
	return nil, d
}

// guesses compares passwords with hashes, which is slow on purpose: a pair that
// fitted is remembered, and only so many are compared at once.
type guesses struct {
	key   []byte // of this process: what is remembered is worth nothing elsewhere
	turns chan struct{}

	mu   sync.Mutex
	good map[[sha256.Size]byte]bool
}

const maxRemembered = 4096

func newGuesses() *guesses {
	return &guesses{key: random(32), turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), good: map[[sha256.Size]byte]bool{}}
}

func (g *guesses) fits(ctx context.Context, hash, password string) (bool, error) {
	mac := hmac.New(sha256.New, g.key)
	mac.Write([]byte(hash))
	mac.Write([]byte{0})
	mac.Write([]byte(password))
	mark := [sha256.Size]byte(mac.Sum(nil))
	g.mu.Lock()
	known := g.good[mark]
	g.mu.Unlock()
	if known {
		return true, nil
	}
	select {
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if !fits(hash, password) {
		return false, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.good) >= maxRemembered {
		clear(g.good)
	}
	g.good[mark] = true
	return true, nil
}
