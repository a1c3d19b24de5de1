package gcp

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
	"github.com/skypilot-go/sky/internal/googleauth"
)

// Every kind of credentials opens the project, and says whose it is.
func TestEveryLogin(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	private := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	const robot = "robot@" + gcpfake.Project + ".iam.gserviceaccount.com"
	audience := "//iam.googleapis.com/projects/" + gcpfake.Number + "/locations/global/workloadIdentityPools/p/providers/q"
	impersonation := "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + robot + ":generateAccessToken"
	subject := filepath.Join(t.TempDir(), "subject")
	if err := os.WriteFile(subject, []byte("outer"), 0o600); err != nil {
		t.Fatal(err)
	}
	user := map[string]any{"type": googleauth.User, "client_id": gcpfake.ClientID, "client_secret": gcpfake.ClientSecret, "refresh_token": gcpfake.RefreshToken}
	account := map[string]any{"type": googleauth.KeyOfAccount, "client_email": robot, "private_key": private, "private_key_id": "1", "project_id": gcpfake.Project, "token_uri": "https://oauth2.googleapis.com/token"}
	federated := func(impersonated string) map[string]any {
		return map[string]any{"type": googleauth.Federated, "audience": audience, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "https://sts.googleapis.com/v1/token",
			"credential_source": map[string]any{"file": subject}, "service_account_impersonation_url": impersonated}
	}
	for _, tt := range []struct {
		name    string
		file    any // nil: none
		project string
		who     string
	}{
		{"a user", user, gcpfake.Project, gcpfake.User},
		{"a service account's key, which names the project", account, "", robot},
		{"a federated identity", federated(""), gcpfake.Project, audience},
		{"a federated identity that impersonates", federated(impersonation), gcpfake.Project, robot},
		{"a user who impersonates", map[string]any{"type": googleauth.Impersonated, "service_account_impersonation_url": impersonation, "source_credentials": user}, gcpfake.Project, robot},
		{"the machine's service account and project", nil, "", gcpfake.Machine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home(t, t.Setenv)
			fake := gcpfake.New()
			fake.Federate("outer")
			if err := fake.AddKey(robot, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOOGLE_CLOUD_PROJECT", tt.project)
			if tt.file == nil {
				server := httptest.NewServer(fake)
				t.Cleanup(server.Close)
				t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
				t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
			} else {
				text, err := json.Marshal(tt.file)
				if err == nil {
					err = os.WriteFile(os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"), text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			who, err := over(fake, quick).Check(t.Context())
			if want := tt.who + " [project_id=" + gcpfake.Project + "]"; err != nil || who[0] != want {
				t.Errorf("%v, %v, want %s", who, err, want)
			}
		})
	}
}

// away are the hosts that calls go to, none of which answers.
type away struct{ hosts map[string]bool }

func (a away) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/token") {
		a.hosts[r.URL.Scheme+"://"+r.URL.Host+"/"+strings.Split(r.URL.Path, "/")[1]] = true
		return &http.Response{StatusCode: 404, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{}`))}, nil
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(`{"access_token":"T","expires_in":3600,"token_type":"Bearer"}`))}, nil
}

// SKY_GCP_ENDPOINT takes the place of all of Google's services.
func TestAnotherEndpoint(t *testing.T) {
	home(t, t.Setenv)
	for variable, want := range map[string]string{
		"": "https://compute.googleapis.com/compute", "https://gateway.example/google": "https://gateway.example/google", "http://127.0.0.1:9/x": "http://127.0.0.1:9/x", "http://gateway.example": "",
	} {
		t.Setenv("SKY_GCP_ENDPOINT", variable)
		o, calls := quick, away{map[string]bool{}}
		o.Transport = calls
		p := New(o)
		_, err := p.Check(t.Context())
		_, _ = p.Nodes(t.Context(), cloud.ClusterID{Installation: "i", Name: "c"})
		_, _ = p.Quotas(t.Context(), here.Region)
		if err == nil {
			t.Errorf("%q: nobody answered, and the check passed", variable)
		}
		if (want == "") != (len(calls.hosts) == 0) || want != "" && !calls.hosts[want] || strings.Contains(variable, "/x") && len(calls.hosts) != 1 {
			t.Errorf("%q: called %v, want %s", variable, calls.hosts, want)
		}
	}
}
