package sky

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
)

// OwnerFile is where the server of a home folder writes the token of its owner,
// anew at each start; see [api.HeaderOwner].
func OwnerFile(home string) string {
	return filepath.Join(home, ".sky", "api_server", "owner.token")
}

// owner shows a server on this machine that the caller can read its token.
type owner struct {
	home  string
	at    netip.AddrPort // of the server; invalid: nothing is shown
	vouch func(netip.AddrPort) bool

	mu         sync.Mutex
	read       bool
	credential string // "": none is shown
}

// token is the token in the home folder; "" if there is none.
func (o *owner) token() string {
	if !o.at.IsValid() {
		return ""
	}
	b, _ := os.ReadFile(OwnerFile(o.home))
	return strings.TrimSpace(string(b))
}

// show adds the credential to a call.
func (o *owner) show(h http.Header) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.read {
		o.read, o.credential = true, o.fresh()
	}
	if o.credential != "" {
		h.Set(api.HeaderOwner, o.credential)
	}
}

func (o *owner) fresh() string {
	token := o.token()
	if token == "" || o.vouch != nil && !o.vouch(o.at) {
		return ""
	}
	return api.OwnerCredential(token, o.at)
}

// forget makes the next call look again who listens, and for which token.
func (o *owner) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read = false
}

// renew reports whether a call that was answered with the status is to be sent
// again: the server was started anew, so there is another credential than that of
// the call, which takes its place.
func (o *owner) renew(status int, h http.Header) bool {
	if !o.at.IsValid() || status != http.StatusUnauthorized && status != http.StatusForbidden {
		return false
	}
	shown := h.Get(api.HeaderOwner)
	h.Del(api.HeaderOwner)
	o.forget()
	o.show(h)
	return h.Get(api.HeaderOwner) != shown
}

// serverAt is the address of a server on this machine; invalid if it is elsewhere
// or a proxy is before it.
func (c *Client) serverAt() netip.AddrPort {
	if c.base.Scheme != "http" {
		return netip.AddrPort{}
	}
	at, err := netip.ParseAddrPort(c.dialed().Host)
	if err != nil || !at.Addr().Unmap().IsLoopback() {
		return netip.AddrPort{}
	}
	return at
}

// Prove asks a server on this machine for its health once, and whether it is the one
// of this home folder: ours says that it has proved to know the folder's token, and
// then it runs as the process that it tells.
func (c *Client) Prove(ctx context.Context, timeout time.Duration) (h *api.Health, ours bool, err error) {
	token, challenge := c.owner.token(), rand.Text()
	h, header, err := c.ask(ctx, timeout, http.Header{api.HeaderChallenge: {challenge}})
	if err != nil || token == "" {
		return h, false, err
	}
	proof := api.OwnerProof(token, c.owner.at, challenge, h.PID)
	return h, hmac.Equal([]byte(proof), []byte(header.Get(api.HeaderProof))), nil
}
