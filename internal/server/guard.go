package server

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// knownHost reports whether the request was meant for this server: a name that
// somebody pointed at our address (DNS rebinding) is refused, so that no web
// page can read answers as if it were ours.
func (s *Server) knownHost(r *http.Request) bool {
	host := hostname(r.Host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if slices.ContainsFunc(s.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if addr = addr.Unmap(); addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	// The very address that the connection came in on; nobody can rebind that.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().WithZone("") == addr.WithZone("")
}

// hostname is a Host header without port and brackets, in lower case.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
}

var errOtherSite = errors.New("This server takes no requests from other web sites.")

// sameSite refuses what a browser sends on behalf of another site. Clients that
// are no browsers send neither header. Pages may be reached by a link.
func sameSite(r *http.Request, page bool) error {
	if page && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return nil
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return errOtherSite
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return errOtherSite
	}
	return nil
}
