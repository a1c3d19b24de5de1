package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/skypilot-go/sky/internal/state"
)

const secretHash = "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/" // of "secret"

func open(t *testing.T, o Options) (*Gate, *state.Store) {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	o.Owner.Exposed = true // requests here have no connection whose account could be known
	if o.DefaultRole == nil {
		o.DefaultRole = func() string { return "user" }
	}
	g, err := New(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return g, s
}

// ask is a request from an address, with headers in pairs.
func ask(from, path string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(net.TCPAddrFromAddrPort(serverAt))))
	r.RemoteAddr = from + ":1234"
	if strings.Contains(from, ":") {
		r.RemoteAddr = "[" + from + "]:1234"
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// told is who a gate finds: a name and how, "nobody", or the status of a refusal.
func told(t *testing.T, g *Gate, r *http.Request) string {
	t.Helper()
	c, err := g.Identify(r)
	d, denied := errors.AsType[*Denial](err)
	switch {
	case denied:
		return http.StatusText(d.Status)
	case err != nil:
		t.Fatal(err)
	case c == nil:
		if d := g.Stranger(r); d != nil {
			return map[int]string{http.StatusUnauthorized: "must log in", http.StatusForbidden: "stranger"}[d.Status]
		}
		return "nobody"
	}
	return c.Name + " by " + c.By
}

const here, there = "127.0.0.1", "203.0.113.9"

func TestBasic(t *testing.T) {
	g, s := open(t, Options{Basic: true, Initial: "ada:" + secretHash})
	if _, err := s.Users().Touch(t.Context(), state.User{ID: UserID("eve"), Name: "eve", Role: "user"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"a good password", ask(there, "/status", "Authorization", basic("ada", "secret")), "ada by basic"},
		{"the same again, remembered", ask(there, "/status", "Authorization", basic("ada", "secret")), "ada by basic"},
		{"a wrong one", ask(there, "/status", "Authorization", basic("ada", "Secret")), "Unauthorized"},
		{"somebody unknown", ask(there, "/status", "Authorization", basic("bob", "secret")), "Unauthorized"},
		{"somebody without a password", ask(there, "/status", "Authorization", basic("eve", "")), "Unauthorized"},
		{"nothing", ask(there, "/status"), "must log in"},
		{"another kind of credentials", ask(there, "/status", "Authorization", "Bearer x"), "must log in"},
		{"nothing, from here", ask(here, "/status"), "must log in"},
		{"a wrong one, from here", ask(here, "/status", "Authorization", basic("ada", "no")), "Unauthorized"},
		{"a good one, from here", ask(here, "/status", "Authorization", basic("ada", "secret")), "ada by basic"},
		{"here, but for somebody else", ask(here, "/status", "X-Forwarded-For", there), "must log in"},
		{"a probe with a wrong one", ask(there, "/api/health", "Authorization", basic("ada", "no")), "must log in"},
		{"a header that is not asked for", ask(here, "/status", "X-Auth-Request-Email", "ada"), "must log in"},
	} {
		if got := told(t, g, c.r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if err := s.Users().SetPassword(t.Context(), UserID("ada"), "abNANd1rDfiNc"); err != nil { // the same password
		t.Fatal(err)
	}
	if err := s.Users().SetPassword(t.Context(), UserID("ada"), "./Una9Fi.seRo"); err != nil {
		t.Fatal(err)
	}
	if got := told(t, g, ask(there, "/", "Authorization", basic("ada", "secret"))); got != "Unauthorized" {
		t.Errorf("with the password of before: %s", got)
	}
	for _, bad := range []string{"ada", "ada:secret", ":" + secretHash} {
		if _, err := New(t.Context(), s, Options{Basic: true, Initial: bad}); err == nil {
			t.Errorf("started with %q", bad)
		}
	}
}

func TestTokens(t *testing.T) {
	g, s := open(t, Options{ServiceAccounts: true})
	now := time.Now()
	g.now = func() time.Time { return now }
	mint := func(id string, end time.Time) string {
		t.Helper()
		token, err := g.MintToken("sa-"+id, id, end)
		if err != nil {
			t.Fatal(err)
		}
		k := state.Token{ID: id, Name: id, Hash: TokenHash(token), AccountID: "sa-" + id, CreatedAt: now, ExpiresAt: end}
		if err := s.Tokens().Create(t.Context(), k, state.User{ID: "sa-" + id, Name: id, Type: "sa", Role: "user"}); err != nil {
			t.Fatal(err)
		}
		return token
	}
	forever, short, revoked := mint("f", time.Time{}), mint("s", now.Add(time.Hour)), mint("r", time.Time{})
	if err := s.Tokens().Delete(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	stranger, err := (&signer{[]byte("another secret")}).sign(claims{User: "sa-f", Token: "f", Kind: kindAccount})
	if err != nil {
		t.Fatal(err)
	}
	unstored, err := g.MintToken("sa-f", "f", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, &claims{Issuer: issuer, User: "sa-f", Token: "f", Kind: kindAccount}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name, header, want string, more ...string) {
		t.Helper()
		if got := told(t, g, ask(there, "/status", append(more, "Authorization", header)...)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	check("good", "Bearer "+forever, "f by token")
	check("the scheme in any case", "bearer "+forever, "f by token")
	check("not yet expired", "Bearer "+short, "s by token")
	check("revoked", "Bearer "+revoked, "Unauthorized")
	check("signed by a stranger", "Bearer sky_"+stranger, "Unauthorized")
	check("signed by us but never handed out", "Bearer "+unstored, "Unauthorized")
	check("not signed", "Bearer sky_"+none, "Unauthorized")
	check("cut off", "Bearer "+forever[:len(forever)-2], "Unauthorized")
	check("nonsense", "Bearer sky_", "Unauthorized")
	check("somebody else's bearer", "Bearer abc", "nobody")
	check("that says it is ours", "Bearer abc", "Unauthorized", "X-Skypilot-Auth-Mode", "token")
	if k, err := s.Tokens().Get(t.Context(), "f"); err != nil || k.UsedAt.IsZero() {
		t.Errorf("the last use is not noted: %+v, %v", k, err)
	}
	now = now.Add(2 * time.Hour)
	check("expired", "Bearer "+short, "Unauthorized")
	check("never expires", "Bearer "+forever, "f by token")

	// What the protocol says is in it.
	var c map[string]any
	part := strings.Split(strings.TrimPrefix(short, "sky_"), ".")[1]
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil || json.Unmarshal(raw, &c) != nil {
		t.Fatal(err)
	}
	if c["i"] != "sky" || c["y"] != "sa" || c["u"] != "sa-s" || c["k"] != "s" || c["t"] == nil || c["e"] != c["exp"] || c["e"] == nil {
		t.Errorf("claims: %v", c)
	}
	if _, err := (*Gate)(nil).MintToken("a", "b", time.Time{}); !errors.Is(err, ErrNoTokens) {
		t.Errorf("switched off: %v", err)
	}
}

func TestProxyIsBelievedFromItsAddressOnly(t *testing.T) {
	trusted, err := prefixes([]string{"10.0.0.0/24", "::1"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"email": "ada@x", "sub": 7}).SignedString([]byte("the proxy's"))
	if err != nil {
		t.Fatal(err)
	}
	const h = "X-Auth-Request-Email"
	for _, c := range []struct {
		name string
		p    Proxy
		r    *http.Request
		want string
	}{
		{"from the proxy", Proxy{}, ask("10.0.0.7", "/", h, "ada@x"), "ada@x by proxy"},
		{"from a neighbour", Proxy{}, ask("10.0.1.7", "/", h, "ada@x"), "nobody"},
		{"from a neighbour, with a login demanded", Proxy{Explicit: true}, ask("10.0.1.7", "/", h, "ada@x"), "must log in"},
		{"without the header", Proxy{Explicit: true}, ask("10.0.0.7", "/"), "must log in"},
		{"a name that cannot be", Proxy{}, ask("10.0.0.7", "/", h, strings.Repeat("x", 300)), "Unauthorized"},
		{"a JWT", Proxy{JWT: true, Claim: "email"}, ask("10.0.0.7", "/", h, token), "ada@x by proxy"},
		{"a JWT without the claim", Proxy{JWT: true, Claim: "name"}, ask("10.0.0.7", "/", h, token), "Unauthorized"},
		{"a claim that is no name", Proxy{JWT: true, Claim: "sub"}, ask("10.0.0.7", "/", h, token), "Unauthorized"},
		{"no JWT", Proxy{JWT: true, Claim: "email"}, ask("10.0.0.7", "/", h, "ada@x"), "Unauthorized"},
	} {
		c.p.Enabled, c.p.Header, c.p.Trusted = true, h, trusted
		g, s := open(t, Options{Proxy: c.p, DefaultRole: func() string { return "viewer" }})
		if got := told(t, g, c.r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if u, err := s.Users().Get(t.Context(), UserID("ada@x")); strings.HasPrefix(c.want, "ada") && (err != nil || u.Role != "viewer" || len(u.ID) != 8) {
			t.Errorf("%s: known as %+v, %v", c.name, u, err)
		}
	}
	g, _ := open(t, Options{Proxy: Proxy{Trusted: trusted}})
	for want, r := range map[string]*http.Request{
		"10.0.1.7": ask("10.0.1.7", "/", "X-Forwarded-For", "1.2.3.4"), "1.2.3.4": ask("10.0.0.7", "/", "X-Forwarded-For", "9.9.9.9, 1.2.3.4"),
		"10.0.0.8": ask("10.0.0.8", "/"),
	} {
		if got := g.Address(r); got != want {
			t.Errorf("address %s, want %s", got, want)
		}
	}
}

func TestOAuth2(t *testing.T) {
	var asked *http.Request
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		switch c, _ := r.Cookie("_oauth2_proxy"); {
		case r.URL.Path == "/oauth2/start":
			w.Write([]byte("login page"))
		case c == nil:
			w.WriteHeader(http.StatusUnauthorized)
		case c.Value == "ada":
			w.Header().Set("X-Auth-Request-Email", "ada@x")
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer proxy.Close()
	base, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := open(t, Options{OAuth2: base})
	const ada, odd = "_oauth2_proxy=ada", "_oauth2_proxy=odd"
	for _, c := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"logged in", ask(there, "/status?x=1", "Cookie", ada), "ada@x by oauth2"},
		{"not logged in", ask(there, "/status?x=1"), "Unauthorized"},
		{"not logged in, from here", ask(here, "/status"), "Unauthorized"},
		{"health", ask(there, "/api/health"), "must log in"},
		{"health of somebody", ask(there, "/api/health", "Cookie", ada), "ada@x by oauth2"},
		{"the poll of a login", ask(there, "/api/v1/auth/token"), "must log in"},
		{"a proxy that is ill", ask(there, "/status", "Cookie", odd), "Bad Gateway"},
	} {
		if got := told(t, g, c.r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	_, err = g.Identify(ask(there, "/status?x=1"))
	if d, ok := errors.AsType[*Denial](err); !ok || d.Redirect != "/oauth2/start?rd=%2Fstatus%3Fx%3D1" {
		t.Errorf("%+v", err)
	}
	if asked.Header.Get("X-Forwarded-Uri") != "/status?x=1" {
		t.Errorf("asked with %v", asked.Header)
	}
	w := httptest.NewRecorder()
	g.Forward().ServeHTTP(w, ask(there, "/oauth2/start"))
	if w.Body.String() != "login page" {
		t.Errorf("forwarded: %d %s", w.Code, w.Body)
	}
	proxy.Close()
	if got := told(t, g, ask(there, "/status", "Cookie", ada)); got != "Bad Gateway" {
		t.Errorf("a proxy that is gone: %s", got)
	}
}

func TestBrowserLogin(t *testing.T) {
	g, s := open(t, Options{Basic: true, Initial: "ada:" + secretHash})
	browser := ask(there, "/auth/authorize", "Authorization", basic("ada", "secret"), "Cookie", "theme=dark")
	c, err := g.Identify(browser)
	if err != nil {
		t.Fatal(err)
	}
	token, err := g.LoginToken(browser, c)
	if err != nil {
		t.Fatal(err)
	}
	const verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	const challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" // both from RFC 7636
	if _, err := Poll(t.Context(), s, verifier); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("before anybody agreed: %v", err)
	}
	if err := Authorize(t.Context(), s, "short", token); !errors.Is(err, ErrChallenge) {
		t.Errorf("a challenge that is none: %v", err)
	}
	if err := Authorize(t.Context(), s, challenge, token); err != nil {
		t.Fatal(err)
	}
	got, err := Poll(t.Context(), s, verifier)
	if err != nil || got != token {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := Poll(t.Context(), s, verifier); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("handed out twice: %v", err)
	}
	raw, err := base64.StdEncoding.DecodeString(got)
	var login struct {
		V       int
		User    string
		Cookies map[string]string
	}
	if err != nil || json.Unmarshal(raw, &login) != nil || login.V != 1 || login.User != UserID("ada") || login.Cookies["theme"] != "dark" {
		t.Fatalf("%s, %v", raw, err)
	}
	session := ask(there, "/status", "Cookie", SessionCookie+"="+login.Cookies[SessionCookie])
	if got := told(t, g, session); got != "ada by session" {
		t.Errorf("with the session: %s", got)
	}
	if got := told(t, g, ask(there, "/status", "Authorization", "Bearer sky_"+login.Cookies[SessionCookie])); got != "must log in" {
		t.Errorf("a session as a token: %s", got)
	}
	if err := s.Users().SetPassword(t.Context(), UserID("ada"), "abNANd1rDfiNc"); err != nil {
		t.Fatal(err)
	}
	if got := told(t, g, session); got != "must log in" {
		t.Errorf("after a change of the password: %s", got)
	}
}
