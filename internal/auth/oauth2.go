package auth

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// OAuth2Prefix is the part of the server that belongs to the OAuth2 proxy.
const OAuth2Prefix = "/oauth2/"

// proxyTime bounds how long the OAuth2 proxy may take to know a caller.
const proxyTime = 10 * time.Second

// newProxyClient does not follow redirects: they are meant for the browser.
func newProxyClient() *http.Client {
	return &http.Client{Timeout: proxyTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// byOAuth2 asks the OAuth2 proxy whose cookies these are.
func (g *Gate) byOAuth2(r *http.Request) (*Caller, error) {
	anonymous := r.URL.Path == HealthPath || r.URL.Path == PollPath
	if anonymous && len(r.Cookies()) == 0 {
		return nil, nil
	}
	if err := g.Lookup(r); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), proxyTime)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, g.o.OAuth2.String()+OAuth2Prefix+"auth", nil)
	if err != nil {
		return nil, err
	}
	ask.Header["Cookie"] = r.Header["Cookie"]
	ask.Header.Set("X-Forwarded-Uri", r.URL.RequestURI())
	ask.Header.Set("X-Forwarded-Method", r.Method)
	res, err := g.client.Do(ask)
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
		res.Body.Close()
	}
	switch {
	case err == nil && res.StatusCode == http.StatusAccepted && res.Header.Get("X-Auth-Request-Email") != "":
		return g.named(r.Context(), res.Header.Get("X-Auth-Request-Email"), ByOAuth2)
	case err == nil && res.StatusCode == http.StatusUnauthorized && len(r.Cookies()) > 0:
		g.LookupFailed(r)
	}
	switch {
	case anonymous:
		return nil, nil
	case err == nil && res.StatusCode == http.StatusUnauthorized:
		d := unauthorized("Log in first: sky api login.")
		d.Redirect = OAuth2Prefix + "start?rd=" + url.QueryEscape(r.URL.RequestURI())
		return nil, d
	}
	return nil, &Denial{Status: http.StatusBadGateway, Message: "The OAuth2 proxy that knows this server's users cannot be reached."}
}

// Forward passes what is under [OAuth2Prefix] on to the OAuth2 proxy; nil if
// there is none. A client that comes back with logins that were never begun is refused in
// the end, like one that asks for others' logins.
func (g *Gate) Forward() http.Handler {
	if g == nil || g.o.OAuth2 == nil {
		return nil
	}
	proxy := g.oauth2Proxy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := errors.AsType[*Denial](g.Lookup(r)); ok {
			maps.Copy(w.Header(), d.Header)
			http.Error(w, d.Message, d.Status)
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, r)))
	})
}

// forwardedKey is for the request as it came.
type forwardedKey struct{}

func (g *Gate) oauth2Proxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		ModifyResponse: func(res *http.Response) error {
			if r, ok := res.Request.Context().Value(forwardedKey{}).(*http.Request); ok && res.StatusCode >= 400 && r.URL.Path == OAuth2Prefix+"callback" {
				g.LookupFailed(r)
			}
			return nil
		},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(g.o.OAuth2)
			p.SetXForwarded()
			p.Out.Host = p.In.Host
			for _, h := range []string{"X-Forwarded-Proto", "X-Forwarded-Host"} { // of a proxy in front of us
				if v := p.In.Header.Get(h); v != "" && !strings.ContainsAny(v, "\r\n") {
					p.Out.Header.Set(h, v)
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "The OAuth2 proxy cannot be reached.", http.StatusBadGateway)
		},
	}
}
