package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/state"
)

// A command line logs in through a browser: it shows the browser a challenge,
// the user, who is logged in there, agrees, and the command line fetches what
// the browser has, its cookies, with the secret behind the challenge.

// SessionCookie is the cookie of users who log in with a password: a browser's
// password itself is never handed on.
const SessionCookie = "sky_session"

const (
	sessionTime = 30 * 24 * time.Hour
	loginTime   = 5 * time.Minute // how long the command line waits
)

// challengeForm is the base64url of 32 bytes.
var challengeForm = lazyregexp.New(`^[A-Za-z0-9_-]{43}$`)

// ErrChallenge means that a challenge or verifier cannot be one.
var ErrChallenge = errors.New("the login's code is not valid: start again with sky api login")

// LoginToken is what a login is worth: text that command lines understand.
func (g *Gate) LoginToken(r *http.Request, c *Caller) (string, error) {
	t := struct {
		Version int               `json:"v"`
		User    *string           `json:"user"`
		Cookies map[string]string `json:"cookies"`
	}{Version: 1, Cookies: map[string]string{}}
	for _, k := range r.Cookies() {
		t.Cookies[k.Name] = k.Value
	}
	if c != nil {
		t.User = &c.ID
	}
	if c != nil && c.By == ByBasic {
		session, err := g.newSession(r.Context(), c.ID)
		if err != nil {
			return "", err
		}
		t.Cookies[SessionCookie] = session
	}
	b, err := json.Marshal(t)
	return base64.StdEncoding.EncodeToString(b), err
}

// Authorize keeps a login for the command line that knows the challenge's
// secret.
func Authorize(ctx context.Context, store *state.Store, challenge, token string) error {
	if !challengeForm.MatchString(challenge) {
		return ErrChallenge
	}
	return store.Logins().Put(ctx, challenge, token, store.Now().Add(loginTime))
}

// Poll hands a login out, once, to whoever knows the secret behind its
// challenge; [state.ErrNotFound] while nobody has agreed.
func Poll(ctx context.Context, store *state.Store, verifier string) (string, error) {
	if len(verifier) < 43 || len(verifier) > 128 {
		return "", ErrChallenge
	}
	sum := sha256.Sum256([]byte(verifier))
	return store.Logins().Take(ctx, base64.RawURLEncoding.EncodeToString(sum[:]))
}

// newSession writes the cookie of a user who gave the password. It ends with
// the password.
func (g *Gate) newSession(ctx context.Context, id string) (string, error) {
	c, err := g.store.Users().Credential(ctx, id)
	if err != nil {
		return "", err
	}
	now := g.now()
	return g.signer.sign(claims{At: now.Unix(), User: id, Kind: kindSession, Expires: now.Add(sessionTime).Unix(), Mark: mark(c.Hash)})
}

// mark tells one password's hash from the next without telling it.
func mark(hash string) string { return TokenHash(hash)[:16] }

// bySession knows users by the cookie of a browser login. One that is worth
// nothing any more is passed over, so that its owner can log in again.
func (g *Gate) bySession(r *http.Request) (*Caller, error) {
	cookie, err := r.Cookie(SessionCookie)
	if err != nil {
		return nil, nil
	}
	s, err := g.signer.parse(cookie.Value, kindSession, g.now())
	if err != nil {
		return nil, nil
	}
	c, err := g.store.Users().Credential(r.Context(), s.User)
	if isNotFound(err) || err == nil && (c.Hash == "" || mark(c.Hash) != s.Mark) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g.guesses.familiar(c.ID, sourceOf(g.address(r)))
	return &Caller{User: c.User, By: BySession}, nil
}
