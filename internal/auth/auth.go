// Package auth finds out who sends a request to the API server.
//
// A [Gate] asks its schemes one after the other: the token of a service account,
// the session of a browser login, a password, the header of a proxy in front, the
// token of the server's owner, an OAuth2 proxy. The first that knows the caller wins; a scheme that is shown
// credentials which are not good refuses with a [Denial]. What a known caller
// may do is decided elsewhere: see [Policy] for the part that is configured.
package auth

import (
	"context"
	"crypto/md5" //nolint:gosec // ids, not secrets
	"encoding/hex"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/tcpowner"
)

// Names of the schemes, as the audit log tells them.
const (
	ByToken   = "token"
	BySession = "session"
	ByBasic   = "basic"
	ByProxy   = "proxy"
	ByOAuth2  = "oauth2"
	ByOwner   = "owner"
)

// Paths that callers need before they can log in.
const (
	HealthPath = "/api/health"
	PollPath   = "/api/v1/auth/token"
)

// A Caller is a user who is known, and how.
type Caller struct {
	state.User
	By string
}

// A Denial refuses a request: an answer, not a failure of ours.
type Denial struct {
	Status   int
	Message  string
	Header   http.Header // further headers; may be nil
	Redirect string      // where browsers log in; "" for none
}

func (d *Denial) Error() string { return d.Message }

func unauthorized(message string) *Denial {
	return &Denial{Status: http.StatusUnauthorized, Message: message, Header: http.Header{"Cache-Control": {"no-store"}}}
}

// scheme knows the caller, refuses, or leaves the request to the next one with
// two nils.
type scheme func(*http.Request) (*Caller, error)

// Gate finds callers. Its methods may be called concurrently.
type Gate struct {
	o       Options
	store   *state.Store
	schemes []scheme
	signer  *signer // nil: nothing is signed
	guesses *guesses
	decoys  decoys
	secrets *attempts // of forged tokens and sessions
	lookups *attempts // of logins that nobody has agreed to
	notes   *notes
	client  *http.Client // of the OAuth2 proxy
	now     func() time.Time
	// What this process is, and how accounts of this machine are told apart.
	uid       int
	accountOf func(local, remote netip.AddrPort) tcpowner.Owner
}

// New prepares the schemes that the options switch on. It makes the secret that
// tokens are signed with, and the first administrator, if they are wanted and
// missing.
func New(ctx context.Context, store *state.Store, o Options) (*Gate, error) {
	g := &Gate{
		o: o, store: store, guesses: newGuesses(), secrets: newAttempts(secretPace), lookups: newAttempts(lookupPace), notes: newNotes(),
		client: newProxyClient(), now: time.Now, uid: os.Getuid(), accountOf: tcpowner.Peer,
	}
	g.guesses.now = func() time.Time { return g.now() }
	if o.ServiceAccounts || o.Basic {
		var err error
		if g.signer, err = newSigner(ctx, store); err != nil {
			return nil, err
		}
	}
	if o.ServiceAccounts {
		g.schemes = append(g.schemes, g.byToken)
	}
	if o.Basic {
		g.schemes = append(g.schemes, g.bySession, g.byBasic)
		if err := g.seed(ctx); err != nil {
			return nil, err
		}
	}
	if o.Proxy.Enabled {
		g.schemes = append(g.schemes, g.byProxy)
	}
	g.schemes = append(g.schemes, g.byOwner)
	if o.OAuth2 != nil {
		g.schemes = append(g.schemes, g.byOAuth2)
	}
	return g, nil
}

// Options are what the gate was made with.
func (g *Gate) Options() Options {
	if g == nil {
		return Options{}
	}
	return g.o
}

// Identify returns who sends a request; nil if the request does not tell. Any
// error that is not a [*Denial] is a failure of the server's.
func (g *Gate) Identify(r *http.Request) (*Caller, error) {
	if g == nil {
		return nil, nil
	}
	for _, s := range g.schemes {
		if c, err := s(r); c != nil || err != nil {
			return c, err
		}
	}
	return nil, g.forgedSession(r)
}

// challenge is what a caller who has to log in is told.
func (g *Gate) challenge() *Denial {
	d := unauthorized("Log in first: sky api login.")
	if g.o.Basic {
		d.Header.Set("WWW-Authenticate", realm)
	}
	return d
}

// UserID is the id of a user who is known by name only: people keep it whichever
// way they log in.
func UserID(name string) string {
	sum := md5.Sum([]byte(name)) //nolint:gosec // the protocol's rule
	return hex.EncodeToString(sum[:])[:8]
}

// named makes a user whom somebody else has authenticated known.
func (g *Gate) named(ctx context.Context, name, by string) (*Caller, error) {
	if name == "" || len(name) > 254 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, unauthorized("The proxy in front of this server tells a user's name that cannot be one.")
	}
	u, err := g.store.Users().Touch(ctx, state.User{ID: UserID(name), Name: name, Type: "sso", Role: g.o.defaultRole()})
	if err != nil {
		return nil, err
	}
	return &Caller{User: u, By: by}, nil
}
