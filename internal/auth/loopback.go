package auth

import (
	"net/http"
	"net/netip"
	"strings"
)

// forwarded are headers by which proxies tell that a request comes from
// elsewhere.
var forwarded = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Client-Ip", "X-Forwarded-Host", "X-Forwarded-Proto"}

// Loopback reports whether a request was made on this machine: its connection
// comes from here, and no proxy says that it passes on somebody else's.
func Loopback(r *http.Request) bool {
	peer, ok := peerOf(r)
	if !ok || !peer.IsLoopback() {
		return false
	}
	for _, h := range forwarded {
		if _, there := r.Header[h]; there {
			return false
		}
	}
	return true
}

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
	if g.o.Proxy.trusts(peer) {
		// The last one was written by the proxy itself, the others by anybody.
		list := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		if a, err := netip.ParseAddr(strings.TrimSpace(list[len(list)-1])); err == nil {
			return a.Unmap().String()
		}
	}
	return peer.String()
}
