package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// TokenPrefix begins every token of a service account.
const TokenPrefix = "sky_"

// Kinds of what the server signs: one cannot stand for the other.
const (
	kindAccount = "sa"
	kindSession = "session"
)

// claims are what a signed text says. The names of a service account's are
// those of the protocol.
type claims struct {
	Issuer  string `json:"i"`
	At      int64  `json:"t"` // Unix seconds
	User    string `json:"u"`
	Token   string `json:"k,omitempty"`
	Kind    string `json:"y"`
	End     int64  `json:"e,omitempty"`
	Expires int64  `json:"exp,omitempty"`
	Mark    string `json:"m,omitempty"` // of a session: the password it came from
	Nonce   string `json:"n"`           // no two are equal
}

const issuer = "sky"

// What the library asks of claims; all else is checked in parse.

func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) {
	if c.Expires == 0 {
		return nil, nil
	}
	return jwt.NewNumericDate(time.Unix(c.Expires, 0)), nil
}
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error)  { return nil, nil }
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return nil, nil }
func (c *claims) GetIssuer() (string, error)              { return c.Issuer, nil }
func (c *claims) GetSubject() (string, error)             { return c.User, nil }
func (c *claims) GetAudience() (jwt.ClaimStrings, error)  { return nil, nil }
func (c *claims) ended(now time.Time) bool                { return c.End != 0 && now.Unix() >= c.End }
func (c *claims) valid(kind string, now time.Time) bool {
	return c.Issuer == issuer && c.Kind == kind && !c.ended(now)
}

// signer signs with the secret that all servers of an installation share.
type signer struct{ secret []byte }

// secretName is where the secret is kept.
const secretName = "jwt_secret"

func newSigner(ctx context.Context, store *state.Store) (*signer, error) {
	fresh := []byte(hex.EncodeToString(random(32)))
	secret, err := store.Settings().SetIfAbsent(ctx, secretName, fresh)
	return &signer{secret}, err
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func (s *signer) sign(c claims) (string, error) {
	c.Issuer, c.Nonce = issuer, hex.EncodeToString(random(8))
	return jwt.NewWithClaims(jwt.SigningMethodHS256, &c).SignedString(s.secret)
}

// errSignature means that a text was not signed by this installation, errEnded
// that it was, but does not hold now or for this purpose.
var (
	errSignature = errors.New("the token is not valid")
	errEnded     = errors.New("the token is not valid any more")
)

// parse returns what a signed text of one kind says, if it holds now.
func (s *signer) parse(text, kind string, now time.Time) (*claims, error) {
	var c claims
	_, err := jwt.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return s.secret, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithTimeFunc(func() time.Time { return now }))
	switch {
	case err == nil && c.valid(kind, now):
		return &c, nil
	case err == nil || errors.Is(err, jwt.ErrTokenExpired): // the library looks at the signature first
		return nil, errEnded
	}
	return nil, errSignature
}

// TokenHash is what is kept of a token.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// ErrNoTokens means that service accounts are switched off.
var ErrNoTokens = errors.New("service accounts are switched off on this server; its administrator can start it with ENABLE_SERVICE_ACCOUNTS=true")

// NewAccountID is the id of a service account that nobody has.
func NewAccountID() string { return "sa-" + hex.EncodeToString(random(8)) }

// IsAccount reports whether a user's id is that of a service account.
func IsAccount(id string) bool { return strings.HasPrefix(id, "sa-") }

// MintToken writes the token with the given id for a service account. A zero
// end is never. The text is told once and not kept.
func (g *Gate) MintToken(account, token string, end time.Time) (string, error) {
	if g == nil || !g.o.ServiceAccounts {
		return "", ErrNoTokens
	}
	c := claims{At: g.now().Unix(), User: account, Token: token, Kind: kindAccount}
	if !end.IsZero() {
		c.End, c.Expires = end.Unix(), end.Unix()
	}
	text, err := g.signer.sign(c)
	return TokenPrefix + text, err
}

// usedEvery bounds how often the last use of a token is written.
const usedEvery = time.Minute

// byToken knows service accounts. Bearers that are no token of ours are left to
// others, unless the caller says that it is one.
func (g *Gate) byToken(r *http.Request) (*Caller, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	isOurs := strings.EqualFold(scheme, "bearer") && strings.HasPrefix(text, TokenPrefix)
	if strings.HasPrefix(text, api.OwnerPrefix) {
		return nil, nil // see byOwner
	}
	if !isOurs && r.Header.Get("X-Skypilot-Auth-Mode") != "token" {
		return nil, nil
	}
	refused := unauthorized("The service account's token is not valid: it is mistyped, expired or revoked.")
	if !isOurs {
		return nil, refused
	}
	now := g.now()
	c, err := g.signer.parse(strings.TrimPrefix(text, TokenPrefix), kindAccount, now)
	if errors.Is(err, errSignature) {
		return nil, g.forged(r, ByToken, refused)
	}
	if err != nil {
		return nil, refused
	}
	k, err := g.store.Tokens().ByHash(r.Context(), TokenHash(text))
	switch {
	case isNotFound(err) || err == nil && (k.Expired(now) || k.AccountID != c.User || k.ID != c.Token):
		return nil, refused
	case err != nil:
		return nil, err
	}
	if now.Sub(k.UsedAt) >= usedEvery {
		// Not worth failing a call for.
		_ = g.store.Tokens().Used(r.Context(), k.ID, now)
	}
	return &Caller{User: k.Account, By: ByToken}, nil
}

func isNotFound(err error) bool { return errors.Is(err, state.ErrNotFound) }
