package auth

import (
	"net/http"
	"net/netip"
	"strings"
)

// peerOf is the address at the other end of the connection.
func peerOf(r *http.Request) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr().Unmap().WithZone(""), err == nil
}

// Address is where a request comes from: the other end of the connection, or
// what a proxy that is trusted says about it.
func (g *Gate) Address(r *http.Request) string {
	peer, ok := peerOf(r)
	if !ok {
		return ""
	}
	if _, there := r.Header["X-Forwarded-For"]; there && g != nil && g.trusted(r) {
		// The last one was written by the proxy itself, the others by anybody.
		list := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		if a, err := netip.ParseAddr(strings.TrimSpace(list[len(list)-1])); err == nil {
			return a.Unmap().String()
		}
	}
	return peer.String()
}
