package sky

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/api"
)

// A lockedServer lets in who shows the credential of its token, which changes with each
// start.
type lockedServer struct {
	*httptest.Server
	t    *testing.T
	home string
	at   netip.AddrPort

	mu     sync.Mutex
	token  string
	shown  []string // credentials, with each call
	bodies []string
}

func newLockedServer(t *testing.T) *lockedServer {
	s := &lockedServer{t: t, home: t.TempDir()}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.at = netip.MustParseAddrPort(u.Host)
	s.start("sky_owner_one")
	return s
}

func (s *lockedServer) start(token string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
	file := OwnerFile(s.home)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *lockedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := r.Header.Get(api.HeaderOwner)
	s.shown, s.bodies = append(s.shown, shown), append(s.bodies, string(body))
	good := shown == api.OwnerCredential(s.token, s.at)
	w.Header().Set(api.HeaderAPIVersion, "53")
	if r.URL.Path == "/api/health" {
		status := "needs_auth"
		if good {
			status = "healthy"
			w.Header().Set(api.HeaderProof, api.OwnerProof(s.token, s.at, r.Header.Get(api.HeaderChallenge), 7))
		}
		io.WriteString(w, `{"status":"`+status+`","api_version":"53","version":"1","commit":"x","server_pid":7}`)
		return
	}
	if !good {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.URL.Path == "/shell" {
		if c, err := websocket.Accept(w, r, nil); err == nil {
			c.Close(websocket.StatusNormalClosure, "")
		}
		return
	}
	io.WriteString(w, `{}`)
}

// seen are the credentials of the calls since the last time.
func (s *lockedServer) seen() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, s.shown, s.bodies = s.shown, nil, nil
	return out
}

func (s *lockedServer) client(o Options, environ ...string) *Client {
	s.t.Helper()
	if o.Endpoint == "" {
		o.Endpoint = s.URL
	}
	o.Environ, o.Patience = append([]string{"HOME=" + s.home, "USER=me"}, environ...), -1
	c, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func TestACredentialForOneAddressIsShown(t *testing.T) {
	s := newLockedServer(t)
	c := s.client(Options{})
	if _, err := callJSON[map[string]any](t.Context(), c, "GET", "/x", nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Health(t.Context()); err != nil {
		t.Error(err)
	}
	for _, shown := range s.seen() {
		if shown == "" || strings.Contains(shown, "sky_owner") {
			t.Errorf("shown: %q", shown)
		}
	}
}

func TestNoCredentialIsShown(t *testing.T) {
	s := newLockedServer(t)
	for name, c := range map[string]*Client{
		"to what is not vouched for": s.client(Options{Vouch: func(netip.AddrPort) bool { return false }}),
		"beside a token":             s.client(Options{Token: "sky_mine"}),
		"beside a password":          s.client(Options{Endpoint: strings.Replace(s.URL, "http://", "http://me:x@", 1)}),
		"from another home":          s.client(Options{}, "HOME="+t.TempDir()),
	} {
		_, err := callJSON[map[string]any](t.Context(), c, "GET", "/x", nil, nil)
		if seen := s.seen(); err == nil || len(seen) != 1 || seen[0] != "" {
			t.Errorf("%s: shown %q, %v", name, seen, err)
		}
	}
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:46580": "127.0.0.1:46580", "http://localhost:46580": "127.0.0.1:46580", "http://0.0.0.0:46580": "127.0.0.1:46580",
		"http://127.0.0.2:46580": "127.0.0.2:46580", "http://[::1]:46590": "[::1]:46590",
		"https://127.0.0.1:46580": "", "http://192.0.2.1:46580": "", "http://sky.example.com:46580": "", "http://localhost:46590": "", "http://127.0.0.1": "",
	} {
		c := s.client(Options{Endpoint: endpoint})
		if got := c.owner.at; got.IsValid() != (want != "") || got.IsValid() && got.String() != want {
			t.Errorf("%s: credential for %v, want %q", endpoint, got, want)
		}
	}
}

// A server that was started anew has another token: the call is sent again, whole.
func TestACredentialIsRenewed(t *testing.T) {
	s := newLockedServer(t)
	c := s.client(Options{})
	streamed := call{method: "POST", path: "/x", stream: func() (io.Reader, error) { return strings.NewReader("streamed"), nil }}
	for n, do := range []func() error{
		func() error {
			_, err := callJSON[map[string]any](t.Context(), c, "POST", "/x", nil, map[string]string{"a": "b"})
			return err
		},
		func() error {
			return c.exchange(t.Context(), streamed, func(*http.Response) error { return nil })
		},
		func() error { _, err := c.Ping(t.Context(), time.Minute); return err },
		func() error { _, _, err := c.Prove(t.Context(), time.Minute); return err },
		func() error {
			conn, err := c.Shell(t.Context(), ShellOptions{Cluster: "c"})
			if err == nil {
				conn.Close()
			}
			return err
		},
	} {
		if err := do(); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
		s.start("sky_owner_" + strings.Repeat("x", n+1))
		s.seen()
		if err := do(); err != nil {
			t.Errorf("call %d after a start: %v", n, err)
		}
		s.mu.Lock()
		if len(s.bodies) != 2 || s.bodies[0] != s.bodies[1] || s.shown[0] == s.shown[1] {
			t.Errorf("call %d: bodies %q, shown %q", n, s.bodies, s.shown)
		}
		s.mu.Unlock()
	}
	// What is refused with the right credential is not sent again.
	s.mu.Lock()
	s.token = "sky_owner_that_nobody_knows"
	s.mu.Unlock()
	s.seen()
	if _, err := callJSON[map[string]any](t.Context(), c, "POST", "/x", nil, nil); err == nil || len(s.seen()) != 1 {
		t.Errorf("refused: %v", err)
	}
}

// A client that was made before the server's first start shows the token all the same.
func TestACredentialOfAServerThatStartsLater(t *testing.T) {
	s := newLockedServer(t)
	if err := os.Remove(OwnerFile(s.home)); err != nil {
		t.Fatal(err)
	}
	c := s.client(Options{})
	if _, err := c.Ping(t.Context(), time.Minute); err == nil {
		t.Error("let in without a token")
	}
	s.start("sky_owner_later")
	if _, err := c.Ping(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestProve(t *testing.T) {
	s := newLockedServer(t)
	if h, ours, err := s.client(Options{}).Prove(t.Context(), time.Minute); err != nil || !ours || h.PID != 7 {
		t.Errorf("ours: %v %v %v", h, ours, err)
	}
	// What passes on everything to the server of this home is not that server.
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, s.URL+r.URL.Path, r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header = r.Header.Clone()
		out.Header.Set(api.HeaderOwner, api.OwnerCredential("sky_owner_one", s.at)) // as if somebody were let in
		res, err := http.DefaultClient.Do(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		for k, v := range res.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(res.StatusCode)
		io.Copy(w, res.Body)
	}))
	defer relay.Close()
	if h, ours, err := s.client(Options{Endpoint: relay.URL}).Prove(t.Context(), time.Minute); err != nil || ours || h == nil {
		t.Errorf("a relay: %v %v %v", h, ours, err)
	}
	if bytes.Contains([]byte(strings.Join(s.seen(), " ")), []byte("sky_owner")) {
		t.Error("a token was shown")
	}
}
