package fluffycloud

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestCredentials(t *testing.T) {
	const good = "# mine\n[default]\nendpoint = http://127.0.0.1:1\ntoken = secret-word\n"
	for _, tt := range []struct {
		name, file, endpoint, token string
		want                        map[string]string
		err                         string
	}{
		{"none", "", "", "", nil, "is not there"},
		{"from the file", good, "", "", map[string]string{"endpoint": "http://127.0.0.1:1", "token": "secret-word"}, ""},
		{"the environment wins", good, "http://[::1]:2", "other", map[string]string{"endpoint": "http://[::1]:2", "token": "other"}, ""},
		{"half of them", good, "http://[::1]:2", "", nil, EnvToken + " is not"},
		{"a file without a token", "endpoint = http://127.0.0.1:1\n", "", "", nil, "no line \"token"},
		{"a line that says nothing", "endpoint\n", "", "", nil, "no line \"endpoint"},
		{"no address", "endpoint = 127.0.0.1:1\ntoken = secret-word\n", "", "", nil, "not an address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			t.Setenv(EnvEndpoint, tt.endpoint)
			t.Setenv(EnvToken, tt.token)
			if tt.file != "" {
				if err := os.MkdirAll(filepath.Join(home, ".fluffycloud"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(home, ".fluffycloud", "credentials"), []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := keys.Read()
			if err == nil {
				_, err = New(Options{}).api()
			}
			if tt.err == "" && (err != nil || !maps.Equal(got, tt.want)) {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
			if tt.err == "" {
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret-word") {
				t.Errorf("error %v, want one with %q and without the token", err, tt.err)
			}
			_, err = New(Options{}).Check(t.Context())
			var auth *cloud.AuthError
			if !errors.As(err, &auth) || auth.Fix == "" {
				t.Errorf("check: %v", err)
			}
		})
	}
}
