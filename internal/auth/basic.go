package auth

import (
	"context"
	"net/http"

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

// byBasic knows users by their passwords. To ask for the server's health, a password
// that does not fit is as good as none; but it counts as a guess, and may be put off,
// like everywhere else.
func (g *Gate) byBasic(r *http.Request) (*Caller, error) {
	name, password, ok := r.BasicAuth()
	if !ok {
		return nil, nil
	}
	decoy, err := g.decoys.of(r.Context(), g.store, name, g.now())
	if err != nil {
		return nil, err
	}
	c, err := g.store.Users().Credential(r.Context(), UserID(name))
	known := err == nil && c.Name == name && c.Hash != ""
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	t := try{account: UserID(name), from: sourceOf(g.address(r)), known: known, hash: c.Hash, password: password}
	if !known {
		t.hash, c.User = decoy, state.User{}
	}
	v, err := g.guesses.judge(r.Context(), t)
	switch {
	case err != nil:
		return nil, err
	case v.good:
		return &Caller{User: c.User, By: ByBasic}, nil
	case v.wait > 0:
		return nil, putOff("Too many wrong passwords for this user or from this address.", v.wait)
	}
	g.noteGuess(r, c.User, v)
	if r.URL.Path == HealthPath {
		return nil, nil
	}
	d := unauthorized("The user's name or password is wrong.")
	d.Header.Set("WWW-Authenticate", realm)
	return nil, d
}
