package auth

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/tcpowner"
)

const (
	ownToken = api.OwnerPrefix + "TOKEN"
	ownUID   = 1000
)

var serverAt = netip.MustParseAddrPort("127.0.0.1:46580")

// of is a request that an account sends.
func of(o tcpowner.Owner, r *http.Request) *http.Request {
	p := &peer{local: serverAt, owner: o}
	p.once.Do(func() {})
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, p))
}

func uid(n int) tcpowner.Owner { return tcpowner.Owner{UID: n, Known: true} }

func owned(t *testing.T, o Options) *Gate {
	t.Helper()
	g, _ := open(t, o)
	g.o.Owner.Exposed = o.Owner.Exposed
	g.o.Owner.Token, g.o.Owner.Self = ownToken, state.User{ID: "5e1f", Name: "op"}
	g.uid = ownUID
	return g
}

func TestIsOwner(t *testing.T) {
	elsewhere := netip.MustParseAddrPort("127.0.0.1:46581")
	credential, bearer := api.OwnerCredential(ownToken, serverAt), "Bearer "+ownToken
	for _, c := range []struct {
		name         string
		r            *http.Request
		by           tcpowner.Owner
		want, opened bool // opened: with OpenLoopback
	}{
		{"the server's account", ask(here, "/"), uid(ownUID), true, true},
		{"by another loopback address", ask("127.9.9.9", "/"), uid(ownUID), true, true},
		{"by IPv6", ask("::1", "/"), uid(ownUID), true, true},
		{"by IPv4 written as IPv6", ask("::ffff:127.0.0.1", "/"), uid(ownUID), true, true},
		{"root", ask(here, "/"), uid(0), true, true},
		{"another account", ask(here, "/"), uid(ownUID + 1), false, false},
		{"an account that the system does not tell", ask(here, "/"), tcpowner.Untold, false, true},
		{"a connection that is gone", ask(here, "/"), tcpowner.Unknown, false, false},
		{"another machine", ask("10.0.0.1", "/"), tcpowner.Untold, false, false},
		{"the token", ask(here, "/", "Authorization", bearer), tcpowner.Untold, true, true},
		{"the token, from another account", ask(here, "/", "Authorization", bearer), uid(ownUID + 1), true, true},
		{"the token, from another machine", ask("10.0.0.1", "/", "Authorization", bearer), tcpowner.Unknown, false, false},
		{"the token, through a proxy", ask(here, "/", "Authorization", bearer, "X-Forwarded-For", "10.0.0.1"), uid(0), false, false},
		{"the credential", ask(here, "/", api.HeaderOwner, credential), tcpowner.Unknown, true, true},
		{"the credential for another address", ask(here, "/", api.HeaderOwner, api.OwnerCredential(ownToken, elsewhere)), tcpowner.Unknown, false, false},
		{"the credential of another start", ask(here, "/", api.HeaderOwner, api.OwnerCredential(ownToken+"x", serverAt)), tcpowner.Unknown, false, false},
		{"the credential as a token", ask(here, "/", "Authorization", "Bearer "+credential), tcpowner.Unknown, false, false},
		{"the token as a credential", ask(here, "/", api.HeaderOwner, ownToken), tcpowner.Unknown, false, false},
		{"a part of the token", ask(here, "/", "Authorization", bearer[:len(bearer)-1]), tcpowner.Unknown, false, false},
		{"a token of nothing", ask(here, "/", "Authorization", "Bearer "+api.OwnerPrefix), tcpowner.Unknown, false, false},
		{"Forwarded", ask(here, "/", "Forwarded", "for=x"), uid(ownUID), false, false},
		{"X-Real-IP", ask(here, "/", "X-Real-IP", "x"), uid(ownUID), false, false},
		{"X-Client-IP, empty", ask(here, "/", "X-Client-IP", ""), uid(ownUID), false, false},
		{"X-Forwarded-Host", ask(here, "/", "X-Forwarded-Host", "x"), uid(ownUID), false, false},
		{"X-Forwarded-Proto", ask(here, "/", "X-Forwarded-Proto", "https"), uid(ownUID), false, false},
		{"X-Forwarded-Anything", ask(here, "/", "X-Forwarded-Anything", "x"), uid(ownUID), false, false},
		{"Via", ask(here, "/", "Via", "1.1 proxy"), uid(0), false, false},
	} {
		for _, openLoopback := range []bool{false, true} {
			g := owned(t, Options{Owner: Owner{OpenLoopback: openLoopback}})
			want := c.want
			if openLoopback {
				want = c.opened
			}
			r := of(c.by, c.r)
			if got := g.IsOwner(r); got != want {
				t.Errorf("%s, open %v: %v", c.name, openLoopback, got)
			}
			if d := g.Stranger(r); (d == nil) != want || d != nil && (d.Status != http.StatusForbidden || d.Message == "") {
				t.Errorf("%s, open %v: stranger %+v", c.name, openLoopback, d)
			}
		}
	}
}

func TestWithoutATokenNoneIsRight(t *testing.T) {
	g := owned(t, Options{})
	g.o.Owner.Token = ""
	for _, r := range []*http.Request{
		ask(here, "/", "Authorization", "Bearer "+api.OwnerPrefix), ask(here, "/", "Authorization", "Bearer "),
		ask(here, "/", api.HeaderOwner, api.OwnerCredential("", serverAt)),
	} {
		if g.IsOwner(of(tcpowner.Unknown, r)) {
			t.Errorf("%v: the owner", r.Header)
		}
	}
	r := ask(here, "/", api.HeaderChallenge, "x")
	if p := g.Prove(of(uid(0), r)); p != "" {
		t.Errorf("it proves %q", p)
	}
}

// A stranger is told what can be done, in every case.
func TestWhatAStrangerIsTold(t *testing.T) {
	g := owned(t, Options{})
	for _, c := range []struct {
		r    *http.Request
		by   tcpowner.Owner
		says []string
	}{
		{ask(here, "/"), uid(77), []string{"uid 77", "uid 1000", "SKY_API_PORT", "ENABLE_BASIC_AUTH"}},
		{ask(here, "/", "X-Forwarded-For", "x"), uid(0), []string{"proxy", "ENABLE_BASIC_AUTH"}},
		{ask(here, "/"), tcpowner.Untold, []string{"owner.token", EnvOpenLoopback}},
		{ask(here, "/"), tcpowner.Unknown, []string{"closed"}},
	} {
		d := g.Stranger(of(c.by, c.r))
		if d == nil {
			t.Fatalf("%v %v: let in", c.by, c.r.Header)
		}
		for _, s := range c.says {
			if !strings.Contains(d.Message, s) {
				t.Errorf("%q does not say %q", d.Message, s)
			}
		}
	}
	if d := (*Gate)(nil).Stranger(of(uid(0), ask(here, "/"))); d == nil || d.Status != http.StatusForbidden {
		t.Errorf("without a gate: %+v", d)
	}
	if (*Gate)(nil).IsOwner(of(uid(0), ask(here, "/"))) {
		t.Error("without a gate there is an owner")
	}
}

// Where nobody logs in and the server listens beyond this machine, everybody may call;
// whose machine it is does not change.
func TestAnExposedServer(t *testing.T) {
	g := owned(t, Options{Owner: Owner{Exposed: true}})
	for _, r := range []*http.Request{of(uid(77), ask(here, "/")), of(tcpowner.Unknown, ask(there, "/"))} {
		if g.Stranger(r) != nil || g.IsOwner(r) {
			t.Errorf("%s: %+v, owner %v", r.RemoteAddr, g.Stranger(r), g.IsOwner(r))
		}
	}
	g = owned(t, Options{Basic: true, Owner: Owner{Exposed: true}})
	if d := g.Stranger(of(uid(ownUID), ask(here, "/"))); d == nil || d.Status != http.StatusUnauthorized {
		t.Errorf("with logins: %+v", d)
	}
}

func TestTheOwnersToken(t *testing.T) {
	credential, bearer := api.OwnerCredential(ownToken, serverAt), "Bearer "+ownToken
	for _, c := range []struct {
		name           string
		r              *http.Request
		by             tcpowner.Owner
		logins, served string // what is found where people log in, and where not
	}{
		{"the token", ask(here, "/status", "Authorization", bearer), uid(77), "op by owner", "nobody"},
		{"the token, where service accounts are", ask(here, "/status", "Authorization", bearer, "X-Skypilot-Auth-Mode", "token"), uid(77), "op by owner", "nobody"},
		{"the credential", ask(here, "/status", api.HeaderOwner, credential), uid(77), "op by owner", "nobody"},
		{"nothing", ask(here, "/status"), uid(ownUID), "must log in", "nobody"},
		{"nothing, as root", ask(here, "/status"), uid(0), "must log in", "nobody"},
		{"an old credential", ask(here, "/status", api.HeaderOwner, "old"), uid(77), "Forbidden", "Forbidden"},
		{"an old credential of the server's account", ask(here, "/status", api.HeaderOwner, "old"), uid(ownUID), "Forbidden", "nobody"},
		{"a wrong token", ask(here, "/status", "Authorization", bearer+"x"), uid(77), "Forbidden", "Forbidden"},
		{"through a proxy", ask(here, "/status", "Authorization", bearer, "X-Forwarded-For", "x"), uid(0), "must log in", "stranger"},
		{"from another machine", ask(there, "/status", "Authorization", bearer), tcpowner.Unknown, "must log in", "stranger"},
		{"a password beside it", ask(here, "/status", "Authorization", basic("ada", "secret"), api.HeaderOwner, credential), uid(77), "ada by basic", "nobody"},
	} {
		g := owned(t, Options{Basic: true, ServiceAccounts: true, Initial: "ada:" + secretHash})
		if got := told(t, g, of(c.by, c.r)); got != c.logins {
			t.Errorf("%s: %s, want %s", c.name, got, c.logins)
		}
		g = owned(t, Options{ServiceAccounts: true})
		if got := told(t, g, of(c.by, c.r)); got != c.served {
			t.Errorf("%s, without logins: %s, want %s", c.name, got, c.served)
		}
	}
}

// Whoever holds the token is an administrator, whatever the account was before.
func TestTheTokenStandsForAnAdministrator(t *testing.T) {
	g := owned(t, Options{Basic: true})
	self := g.o.Owner.Self
	self.Role = "viewer"
	if err := g.store.Users().Create(t.Context(), self, ""); err != nil {
		t.Fatal(err)
	}
	c, err := g.Identify(of(uid(77), ask(here, "/", "Authorization", "Bearer "+ownToken)))
	if err != nil || c == nil || c.Role != "admin" || c.ID != self.ID || c.By != ByOwner {
		t.Fatalf("%+v, %v", c, err)
	}
	if u, err := g.store.Users().Get(t.Context(), self.ID); err != nil || u.Role != "admin" {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestProof(t *testing.T) {
	g := owned(t, Options{})
	r := of(uid(77), ask(here, "/", api.HeaderChallenge, "x"))
	if got, want := g.Prove(r), api.OwnerProof(ownToken, serverAt, "x", os.Getpid()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := g.Prove(of(uid(77), ask(here, "/"))); got != "" {
		t.Errorf("without a challenge: %q", got)
	}
	all := []string{
		api.OwnerProof(ownToken, serverAt, "x", 1), api.OwnerProof(ownToken, serverAt, "x", 2), api.OwnerProof(ownToken, serverAt, "x1", 1),
		api.OwnerProof(ownToken+"x", serverAt, "x", 1), api.OwnerProof(ownToken, netip.MustParseAddrPort("127.0.0.2:46580"), "x", 1), api.OwnerCredential(ownToken, serverAt),
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 6 {
		t.Errorf("%d of 6 codes differ", n)
	}
	if api.OwnerCredential(ownToken, netip.MustParseAddrPort("[::ffff:127.0.0.1]:46580")) != api.OwnerCredential(ownToken, serverAt) {
		t.Error("IPv4 written as IPv6 is another address")
	}
}

// The header of a proxy on this machine is believed from root, the server's account
// and the accounts that are named.
func TestAHeaderFromThisMachineIsBelievedByAccount(t *testing.T) {
	trusted, err := prefixes([]string{"127.0.0.0/8", "::1", "203.0.113.9"})
	if err != nil {
		t.Fatal(err)
	}
	const h = "X-Auth-Request-Email"
	for _, c := range []struct {
		name, from string
		by         tcpowner.Owner
		open       bool
		want       string
	}{
		{"root", here, uid(0), false, "ada by proxy"},
		{"the server's account", here, uid(ownUID), false, "ada by proxy"},
		{"a named account", here, uid(33), false, "ada by proxy"},
		{"another account", here, uid(34), false, "must log in"},
		{"another account by another address", "127.0.0.9", uid(34), false, "must log in"},
		{"a connection that is gone", here, tcpowner.Unknown, false, "must log in"},
		{"a connection that is gone, loopback being open", here, tcpowner.Unknown, true, "must log in"},
		{"a system that does not tell", here, tcpowner.Untold, false, "must log in"},
		{"a system that does not tell, loopback being open", here, tcpowner.Untold, true, "ada by proxy"},
		{"another machine that is trusted", there, tcpowner.Unknown, false, "ada by proxy"},
		{"another machine", "203.0.113.10", tcpowner.Unknown, false, "must log in"},
	} {
		g := owned(t, Options{Owner: Owner{OpenLoopback: c.open}, Proxy: Proxy{Enabled: true, Explicit: true, Header: h, Trusted: trusted, Users: []int{33}}})
		if got := told(t, g, of(c.by, ask(c.from, "/", h, "ada", "X-Forwarded-For", "9.9.9.9"))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		address := c.from
		if strings.HasPrefix(c.want, "ada") {
			address = "9.9.9.9"
		}
		if got := g.Address(of(c.by, ask(c.from, "/", "X-Forwarded-For", "9.9.9.9"))); got != address {
			t.Errorf("%s: address %s, want %s", c.name, got, address)
		}
	}
}

// An address of this machine that is not loopback is this machine all the same.
func TestOnThisMachine(t *testing.T) {
	for text, want := range map[string]bool{"127.0.0.1": true, "127.1.2.3": true, "::1": true, "::ffff:127.0.0.1": true, "203.0.113.9": false, "2001:db8::1": false} {
		if got := onThisMachine(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if own, ok := netip.AddrFromSlice(a.(*net.IPNet).IP); ok && !onThisMachine(own) {
			t.Errorf("%s is not here", own)
		}
	}
}

func TestAccountsOfProxies(t *testing.T) {
	for list, want := range map[string][]int{"": nil, "root": {0}, " root , 33,": {0, 33}, "4294967295": nil, "nobodyofthisname": nil, "-1": nil} {
		got, err := accounts(list)
		if bad := want == nil && list != ""; bad != (err != nil) || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
}

// The account is asked for once a connection, over real ones.
func TestTheAccountOfAConnection(t *testing.T) {
	g, _ := open(t, Options{})
	g.o.Owner.Exposed = false
	asked := 0
	g.accountOf = func(local, remote netip.AddrPort) tcpowner.Owner {
		asked++
		return uid(g.uid)
	}
	hs := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.IsOwner(r) {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	hs.Config.ConnContext = Connected
	hs.Start()
	defer hs.Close()
	for range 3 {
		res, err := hs.Client().Get(hs.URL)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Error(res.Status)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
