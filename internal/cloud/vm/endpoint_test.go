package vm

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

func TestAnotherEndpoint(t *testing.T) {
	const standard = "https://api.a-b.example/v1"
	for address, good := range map[string]bool{
		"https://gateway.example/cloud": true, "https://10.0.0.1:8443": true, "http://127.0.0.1:8080": true, "http://127.9.8.7:1": true, "http://[::1]:80": true, "http://localhost:7": true,
		"http://gateway.example": false, "http://10.0.0.1": false, "http://127.evil.example": false, "http://localhost.evil.example": false, "ftp://127.0.0.1": false, "127.0.0.1:80": false,
		"https://user:secret@gateway.example": false, "https://": false, "https://gateway.example?x=1": false, "nonsense": false,
	} {
		t.Setenv("SKY_A_B_ENDPOINT", address+"/")
		got, err := Endpoint("a-b", standard)
		var auth *cloud.AuthError
		switch {
		case good && (err != nil || got != address):
			t.Errorf("%s: %q, %v", address, got, err)
		case !good && (!errors.As(err, &auth) || !strings.Contains(auth.Fix, "SKY_A_B_ENDPOINT") || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
	t.Setenv("SKY_A_B_ENDPOINT", "")
	if got, err := Endpoint("a-b", standard); err != nil || got != standard {
		t.Errorf("no variable: %q, %v", got, err)
	}
}

// TestAnAccountGoesToTheEndpoint sends a call to the server that the environment names, and
// sends none where that is refused.
func TestAnAccountGoesToTheEndpoint(t *testing.T) {
	home, called := t.TempDir(), ""
	if err := os.WriteFile(filepath.Join(home, "key"), []byte("key = secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := Account{
		File:      keyfile.File{Cloud: "puff", Path: "key", Names: []string{"key"}, Home: home},
		Tuning:    Tuning{Endpoint: "https://api.puff.example", Transport: transport(func(r *http.Request) { called = r.URL.String() })},
		Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["key"]) },
	}
	for _, c := range []struct{ variable, want string }{
		{"", "https://api.puff.example/machines"}, {"http://127.0.0.1:9/x", "http://127.0.0.1:9/x/machines"}, {"http://elsewhere.example", ""},
	} {
		t.Setenv("SKY_PUFF_ENDPOINT", c.variable)
		called = ""
		if c, _, err := a.API(); err == nil {
			_, _ = rest.Do[any](t.Context(), c, "GET", "/machines", nil)
		}
		if called != c.want {
			t.Errorf("%q: called %q, want %q", c.variable, called, c.want)
		}
	}
}

type transport func(*http.Request)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return nil, http.ErrServerClosed
}
