package auth

import (
	"net/http"

	"github.com/golang-jwt/jwt/v5"
)

// byProxy knows users by the header that a proxy in front of the server sets.
// From anywhere but the addresses and accounts that are trusted the header is not
// looked at: everybody can write one.
func (g *Gate) byProxy(r *http.Request) (*Caller, error) {
	p := g.o.Proxy
	value := r.Header.Get(p.Header)
	if value == "" {
		return nil, nil
	}
	if !g.trusted(r) {
		return nil, nil
	}
	if p.JWT {
		var ok bool
		if value, ok = claimOf(value, p.Claim); !ok {
			return nil, unauthorized("The proxy in front of this server sent a token without the claim " + p.Claim + ".")
		}
	}
	return g.named(r.Context(), value, ByProxy)
}

// trusted reports whether a request comes from a proxy that is trusted: from its
// address and, if that is one of this machine's, from an account that runs one.
func (g *Gate) trusted(r *http.Request) bool {
	from, ok := peerOf(r)
	if !ok || !g.o.Proxy.trusts(from) {
		return false
	}
	return !onThisMachine(from) || g.own(r, g.o.Proxy.Users)
}

// claimOf is a claim of a JWT whose signature somebody else has checked.
func claimOf(token, claim string) (string, bool) {
	all := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(token, all); err != nil {
		return "", false
	}
	v, ok := all[claim].(string)
	return v, ok && v != ""
}
