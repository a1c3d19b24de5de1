package fakehttp

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Tokens are those that a fake has handed out for credentials. The zero value is ready.
type Tokens struct {
	mu      sync.Mutex
	serial  int
	given   map[string]token
	grants  map[string]int
	subject string
	revoked bool
}

type token struct {
	whose string
	until time.Time
}

// TokenLife is how long they are good, unless Mint is told otherwise.
const TokenLife = time.Hour

// Mint makes a token of somebody, with the text that its number gives it.
func (t *Tokens) Mint(whose string, text func(n int) string) string {
	return t.MintFor(TokenLife, whose, text)
}

// MintFor is Mint of a token that is good for so long.
func (t *Tokens) MintFor(life time.Duration, whose string, text func(n int) string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serial++
	made := text(t.serial)
	if t.given == nil {
		t.given = map[string]token{}
	}
	t.given[made] = token{whose, time.Now().Add(life)}
	return made
}

// Good reports that a call carries a token that is not over.
func (t *Tokens) Good(r *http.Request) bool {
	_, ok := t.bearer(r)
	return ok
}

// Bearer is whose token a call carries; "": nobody's.
func (t *Tokens) Bearer(r *http.Request) string {
	whose, _ := t.bearer(r)
	return whose
}

func (t *Tokens) bearer(r *http.Request) (whose string, ok bool) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.given[text]
	if !ok || !time.Now().Before(of.until) {
		return "", false
	}
	return of.whose, true
}

// Granting counts that tokens are asked for in a way.
func (t *Tokens) Granting(grantType string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grants == nil {
		t.grants = map[string]int{}
	}
	t.grants[grantType]++
}

// Grants is how often tokens were asked for in a way.
func (t *Tokens) Grants(grantType string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grants[grantType]
}

// Federate lets a token of another issuer stand for credentials.
func (t *Tokens) Federate(subject string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subject = subject
}

// Federated reports that a token of another issuer does.
func (t *Tokens) Federated(subject string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return subject != "" && subject == t.subject
}

// Revoke ends all tokens, and the login that refreshes them.
func (t *Tokens) Revoke() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revoked = true
	clear(t.given)
}

// Revoked reports that Revoke was called.
func (t *Tokens) Revoked() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.revoked
}

// JWT reads a JSON web token into its header and claims. verify checks its signature, which
// is RS256 or PS256.
func JWT(text string, header, claims any) (verify func(*rsa.PublicKey) error, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, errors.New("a token has three parts")
	}
	var head struct{ Alg string }
	for n, into := range [][]any{{&head, header}, {claims}} {
		plain, err := base64.RawURLEncoding.DecodeString(parts[n])
		if err != nil {
			return nil, err
		}
		for _, v := range into {
			if err := json.Unmarshal(plain, v); err != nil {
				return nil, err
			}
		}
	}
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	return func(key *rsa.PublicKey) error {
		switch {
		case key == nil:
		case head.Alg == "RS256":
			return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature)
		case head.Alg == "PS256":
			return rsa.VerifyPSS(key, crypto.SHA256, sum[:], signature, nil)
		}
		return rsa.ErrVerification
	}, nil
}

// PublicKey is the RSA key of a PEM, which is the key or a certificate of it.
func PublicKey(text []byte) (*rsa.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("there is no PEM block")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		key = c.PublicKey
	}
	of, ok := key.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T", key)
	}
	return of, nil
}

// TokenReply is how a token is handed out (RFC 6749, 5.1), with more fields.
func TokenReply(text string, seconds int, more Dict) Dict {
	out := Dict{"access_token": text, "token_type": "Bearer", "expires_in": seconds}
	maps.Copy(out, more)
	return out
}
