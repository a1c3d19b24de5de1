package googleauth

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clear takes the environment's credentials away and returns a home folder.
func clear(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	for _, name := range []string{"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GCE_METADATA_HOST", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT", "CLOUDSDK_ACTIVE_CONFIG_NAME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	return home
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tokens answers what Google's services for tokens do.
type tokens struct{ asked []string }

func (g *tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	g.asked = append(g.asked, r.URL.Host+r.URL.Path)
	answer := map[string]any{"access_token": "token-of-" + r.URL.Host, "token_type": "Bearer", "expires_in": 3600, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
	if r.URL.Host == "iamcredentials.googleapis.com" {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer token-of-") {
			return nil, errors.New("who asks?")
		}
		answer = map[string]any{"accessToken": "impersonated", "expireTime": "2099-01-01T00:00:00Z"}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text)))}, nil
}

func TestForms(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	account := map[string]any{"type": KeyOfAccount, "client_email": "robot@mine.iam.gserviceaccount.com", "private_key": string(private), "private_key_id": "1",
		"project_id": "mine", "token_uri": "https://oauth2.googleapis.com/token"}
	user := map[string]any{"type": User, "client_id": "c", "client_secret": "s", "refresh_token": "r", "quota_project_id": "billed"}
	impersonation := "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/robot@mine.iam.gserviceaccount.com:generateAccessToken"
	subject := filepath.Join(t.TempDir(), "subject")
	write(t, subject, "proof")
	federated := map[string]any{"type": Federated, "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "https://sts.googleapis.com/v1/token", "credential_source": map[string]any{"file": subject}}
	with := func(m map[string]any, key string, value any) map[string]any {
		out := map[string]any{key: value}
		for k, v := range m {
			out[k] = v
		}
		return out
	}
	for name, c := range map[string]struct {
		file           any
		token, email   string
		project, quota string
		portable       bool
	}{
		"a user":                  {user, "token-of-oauth2.googleapis.com", "", "", "billed", true},
		"a service account's key": {account, "token-of-oauth2.googleapis.com", "robot@mine.iam.gserviceaccount.com", "mine", "", true},
		"a federated identity":    {federated, "token-of-sts.googleapis.com", federated["audience"].(string), "", "", false},
		"a federated identity that impersonates": {with(federated, "service_account_impersonation_url", impersonation), "impersonated",
			"robot@mine.iam.gserviceaccount.com", "", "", false},
		"a user who impersonates": {map[string]any{"type": Impersonated, "service_account_impersonation_url": impersonation, "source_credentials": user}, "impersonated",
			"robot@mine.iam.gserviceaccount.com", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			home := clear(t)
			text, err := json.Marshal(c.file)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(home, WellKnown), string(text))
			before := Stamp()
			found, err := Find(t.Context(), &tokens{}, Scope)
			if err != nil {
				t.Fatal(err)
			}
			token, err := found.Token(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if token.AccessToken != c.token || found.Email != c.email || found.Project != c.project || found.QuotaProject != c.quota {
				t.Errorf("token %q of %q, project %q, quota project %q", token.AccessToken, found.Email, found.Project, found.QuotaProject)
			}
			if err := found.Portable(); (err == nil) != c.portable {
				t.Errorf("portable: %v", err)
			}
			write(t, filepath.Join(home, WellKnown), string(text)+"\n")
			if Stamp() == before {
				t.Error("another file has the same stamp")
			}
		})
	}
}

func TestNone(t *testing.T) {
	clear(t)
	if onGoogle() {
		t.Skip("this is a machine of Google's")
	}
	g := &tokens{}
	if _, err := Find(t.Context(), g, Scope); !errors.Is(err, ErrNone) || len(g.asked) > 0 {
		t.Errorf("error %v, asked %v", err, g.asked)
	}
	for text, want := range map[string]string{"{": "no file of credentials", `{"type": "odd"}`: "odd", `{"installed": {"client_id": "x", "redirect_uris": ["http://localhost"]}}`: ""} {
		path := filepath.Join(t.TempDir(), "key.json")
		write(t, path, text)
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
		if _, err := Find(t.Context(), g, Scope); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "missing"))
	if _, err := Find(t.Context(), g, Scope); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
}

func TestProjects(t *testing.T) {
	clear(t)
	dir := t.TempDir()
	t.Setenv("CLOUDSDK_CONFIG", dir)
	if p := Active("project"); p != "" {
		t.Errorf("no configuration: %q", p)
	}
	write(t, filepath.Join(dir, "active_config"), "work\n")
	write(t, filepath.Join(dir, "configurations/config_work"), "[compute]\nproject = wrong\n[core]\naccount = me\nproject = mine\n")
	write(t, filepath.Join(dir, "configurations/config_default"), "[core]\nproject = default\n")
	if p, a := Active("project"), Active("account"); p != "mine" || a != "me" {
		t.Errorf("active configuration: %q of %q", p, a)
	}
	t.Setenv("CLOUDSDK_ACTIVE_CONFIG_NAME", "default")
	if p := Active("project"); p != "default" {
		t.Errorf("named configuration: %q", p)
	}
	if p := EnvironmentProject(); p != "" {
		t.Errorf("environment: %q", p)
	}
	t.Setenv("GOOGLE_CLOUD_PROJECT", "env")
	if p := EnvironmentProject(); p != "env" {
		t.Errorf("environment: %q", p)
	}
}
