package auth

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/skypilot-go/sky/internal/tcpowner"
)

// peer is the other end of a connection, whose account is looked for once.
type peer struct {
	local, remote netip.AddrPort
	once          sync.Once
	owner         tcpowner.Owner
}

type peerKey struct{}

// Connected keeps what is known of a connection for all its requests: the
// ConnContext of an [http.Server]. Without it, each request looks anew.
func Connected(ctx context.Context, c net.Conn) context.Context {
	p := &peer{}
	if local, ok := c.LocalAddr().(*net.TCPAddr); ok {
		p.local = local.AddrPort()
	}
	if remote, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		p.remote = remote.AddrPort()
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// account is the account of this machine that sends a request; unknown if the
// request comes from elsewhere.
func (g *Gate) account(r *http.Request) tcpowner.Owner {
	p, ok := r.Context().Value(peerKey{}).(*peer)
	if !ok {
		p = &peer{local: localOf(r)}
		p.remote, _ = netip.ParseAddrPort(r.RemoteAddr)
	}
	p.once.Do(func() {
		if p.local.IsValid() && p.remote.IsValid() && onThisMachine(p.remote.Addr()) {
			p.owner = g.accountOf(p.local, p.remote)
		}
	})
	return p.owner
}

// localOf is the server's end of the connection; invalid if it is not known.
func localOf(r *http.Request) netip.AddrPort {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.AddrPort{}
	}
	at, _ := netip.ParseAddrPort(a.String())
	return at
}

// onThisMachine reports whether an address is one of this machine's.
func onThisMachine(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	for _, i := range all {
		if n, ok := i.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == a {
				return true
			}
		}
	}
	return err != nil // then nobody is believed for the address
}
