package auth

import (
	"crypto/hmac"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// Owner says whose a server is, and who may call it where nobody logs in.
type Owner struct {
	// Self is whom the owner's token stands for where people log in.
	Self state.User
	// Token is known to those who read the files of the server's account; "": there
	// is none.
	Token string
	// OpenLoopback lets all accounts of this machine in where the system does not tell
	// which one sends a request (EnvOpenLoopback).
	OpenLoopback bool
	// Exposed says that the server takes connections from other machines: where
	// nobody logs in, whoever reaches it may call it then.
	Exposed bool
}

// EnvOpenLoopback switches [Owner.OpenLoopback] on.
const EnvOpenLoopback = "SKY_OPEN_LOOPBACK"

// forwarded are headers by which proxies tell that a request comes from elsewhere;
// so do all that begin with forwardedPrefix.
var forwarded = [...]string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Original-Forwarded-For", "True-Client-Ip", "Cf-Connecting-Ip"}

const forwardedPrefix = "X-Forwarded-"

// direct reports whether a request was made on this machine: its connection comes
// from a loopback address, and no proxy says that it passes on somebody else's.
func direct(r *http.Request) bool {
	from, ok := peerOf(r)
	if !ok || !from.IsLoopback() {
		return false
	}
	for h := range r.Header {
		if strings.HasPrefix(h, forwardedPrefix) || slices.Contains(forwarded[:], h) {
			return false
		}
	}
	return true
}

// IsOwner reports whether a request comes from the owner of the server's machine: it
// was made on this machine, by the server's own account or by root, or it shows the
// owner's token.
func (g *Gate) IsOwner(r *http.Request) bool {
	if g == nil || !direct(r) {
		return false
	}
	_, good := g.ownerToken(r)
	return good || g.own(r, nil)
}

// own reports whether root, the server's own account or one of others sends a
// request. Of an account that is not known that is taken for granted with
// [Owner.OpenLoopback].
func (g *Gate) own(r *http.Request, others []int) bool {
	a := g.account(r)
	if a.Untold {
		return g.o.Owner.OpenLoopback
	}
	return a.Known && (a.UID == 0 || a.UID == g.uid || slices.Contains(others, a.UID))
}

// ownerToken reports whether a request that was made on this machine shows the token of
// the server's owner, or the credential that command lines make from it, and whether
// it is the right one.
func (g *Gate) ownerToken(r *http.Request) (shown, good bool) {
	token, text := g.o.Owner.Token, r.Header.Get(api.HeaderOwner)
	want := token
	if shown = text != ""; shown {
		want = api.OwnerCredential(token, localOf(r))
	} else {
		var scheme string
		scheme, text, _ = strings.Cut(r.Header.Get("Authorization"), " ")
		shown = strings.EqualFold(scheme, "bearer") && strings.HasPrefix(text, api.OwnerPrefix)
	}
	shown = shown && direct(r)
	return shown, shown && token != "" && hmac.Equal([]byte(text), []byte(want))
}

// byOwner knows the owner of the machine by the token: an administrator, where people
// log in. Elsewhere it names nobody.
func (g *Gate) byOwner(r *http.Request) (*Caller, error) {
	shown, good := g.ownerToken(r)
	switch {
	case !shown || !g.o.Demanded() && (good || g.IsOwner(r)):
		return nil, nil
	case !good:
		return nil, &Denial{Status: http.StatusForbidden, Message: "The token of the server's owner is not valid: it is of another server, or of one that has ended. " +
			"The server writes it to " + ownerFile + " at each start."}
	}
	self := g.o.Owner.Self
	self.Role = "admin"
	users := g.store.Users()
	u, err := users.Touch(r.Context(), self)
	if err == nil && u.Role != self.Role {
		err = users.SetRole(r.Context(), u.ID, self.Role)
		u.Role = self.Role
	}
	if err != nil {
		return nil, err
	}
	return &Caller{User: u, By: ByOwner}, nil
}

// Prove answers the challenge of a request by the proof that this server knows its
// owner's token; "" if there is no challenge.
func (g *Gate) Prove(r *http.Request) string {
	challenge := r.Header.Get(api.HeaderChallenge)
	if g == nil || g.o.Owner.Token == "" || challenge == "" {
		return ""
	}
	return api.OwnerProof(g.o.Owner.Token, localOf(r), challenge, os.Getpid())
}

const ownerFile = "~/.sky/api_server/owner.token"

// Stranger says why a request that names nobody is refused; nil if it is let in. Where
// people log in they have to. Elsewhere the owner of the machine may call, and others
// only if the server takes connections from other machines. A nil gate lets nobody in.
func (g *Gate) Stranger(r *http.Request) *Denial {
	switch {
	case g == nil:
		return &Denial{Status: http.StatusForbidden, Message: "This server lets nobody in."}
	case g.o.Demanded():
		return g.challenge()
	case g.o.Owner.Exposed || g.IsOwner(r):
		return nil
	}
	return &Denial{Status: http.StatusForbidden, Message: g.notOwner(r)}
}

func (g *Gate) notOwner(r *http.Request) string {
	const logins = "To serve others, its owner lets people log in: ENABLE_BASIC_AUTH=true."
	if !direct(r) {
		return "This API server is for its owner's calls on this machine alone, and this one came through a proxy. " + logins
	}
	if a := g.account(r); a.Known {
		return fmt.Sprintf("This API server belongs to another account of this machine (uid %d; the call is of uid %d). "+
			"Use a server of your own on another port: export SKY_API_PORT=PORT. %s", g.uid, a.UID, logins)
	}
	if !g.account(r).Untold {
		return "This API server is for its owner alone, and the connection of this call was closed before it was known whose it is."
	}
	return "This API server is for its owner alone, and the system does not tell which account of this machine sends the call. Show the token in " + ownerFile +
		" as a bearer token, or start the server with " + EnvOpenLoopback + "=1, which lets all accounts of this machine in."
}
