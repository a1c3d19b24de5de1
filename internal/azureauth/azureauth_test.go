package azureauth

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const scope = "https://management.azure.com/.default"

// service answers calls for tokens; asked is what was asked last.
type service struct {
	answer func(r *http.Request) (status int, body string)
	calls  int
	url    string
	form   url.Values
	header http.Header
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.calls++
	s.url, s.header, s.form = r.URL.String(), r.Header, nil
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		s.form, _ = url.ParseQuery(string(text))
	}
	status, body := 200, `{"access_token":"T","expires_in":3600}`
	if s.answer != nil {
		status, body = s.answer(r)
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// find looks in a home with the files, and an environment.
func find(t *testing.T, s *service, files, env map[string]string) (*Credentials, string, error) {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		path := filepath.Join(home, ".azure", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Find(Options{Home: home, Getenv: func(name string) string { return env[name] }, Transport: s, OnAzure: func() bool { return env["ON_AZURE"] != "" }})
	return c, home, err
}

const (
	// As the Azure CLI writes them, with the mark of the byte order.
	userProfile = "\xef\xbb\xbf" + `{"installationId":"x","subscriptions":[
		{"id":"sub-a","name":"A","state":"Enabled","user":{"name":"Ann@example.com","type":"user"},"isDefault":false,"tenantId":"tenant-a","environmentName":"AzureCloud"},
		{"id":"sub-b","name":"B","state":"Enabled","user":{"name":"ann@example.com","type":"user"},"isDefault":true,"tenantId":"tenant-b","environmentName":"AzureUSGovernment"}]}`
	userCache = `{"AccessToken":{},"Account":{"k1":{"home_account_id":"bob.t","username":"bob@example.com"},"k2":{"home_account_id":"ann.t","username":"ANN@example.com"}},
		"RefreshToken":{"r1":{"home_account_id":"bob.t","client_id":"04b07795-8ddb-461a-bbee-02f9e1bf7b46","secret":"bobs"},
		"r2":{"home_account_id":"ann.t","client_id":"04b07795-8ddb-461a-bbee-02f9e1bf7b46","family_id":"1","secret":"anns"}}}`
	principalProfile = `{"subscriptions":[{"id":"sub-a","isDefault":true,"tenantId":"tenant-a","environmentName":"AzureCloud","user":{"name":"app-1","type":"servicePrincipal"}}]}`
)

func TestWhereCredentialsComeFrom(t *testing.T) {
	pemFile := filepath.Join(t.TempDir(), "sp.pem")
	if err := os.WriteFile(pemFile, certificatePEM(t), 0o600); err != nil {
		t.Fatal(err)
	}
	federated := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(federated, []byte("outer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	app := map[string]string{"AZURE_TENANT_ID": "tenant-e", "AZURE_CLIENT_ID": "app-e", "AZURE_SUBSCRIPTION_ID": "sub-e"}
	with := func(more ...string) map[string]string {
		env := map[string]string{}
		for k, v := range app {
			env[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			env[more[i]] = more[i+1]
		}
		return env
	}
	login := map[string]string{profileFile: userProfile, "msal_token_cache.json": userCache}
	for _, tt := range []struct {
		name       string
		files, env map[string]string
		who        string // kind, account, tenant, subscription
		url        string
		form       string // of what is sent, "key=value" with commas
	}{
		{"a secret", login, with("AZURE_CLIENT_SECRET", "s3"), "service principal app-e tenant-e sub-e",
			"https://login.microsoftonline.com/tenant-e/oauth2/v2.0/token", "grant_type=client_credentials,client_secret=s3,client_id=app-e,scope=" + scope},
		{"a certificate", nil, with("AZURE_CLIENT_CERTIFICATE_PATH", pemFile), "service principal app-e tenant-e sub-e",
			"https://login.microsoftonline.com/tenant-e/oauth2/v2.0/token", "client_assertion_type=" + assertionType},
		{"a workload", nil, with("AZURE_FEDERATED_TOKEN_FILE", federated, "AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/"), "workload identity app-e tenant-e sub-e",
			"https://login.microsoftonline.us/tenant-e/oauth2/v2.0/token", "client_assertion=outer"},
		{"App Service", login, map[string]string{"IDENTITY_ENDPOINT": "http://localhost:42356/msi/token", "IDENTITY_HEADER": "h", "AZURE_CLIENT_ID": "user-assigned"}, "managed identity user-assigned  ",
			"http://localhost:42356/msi/token?api-version=2019-08-01&client_id=user-assigned&resource=https%3A%2F%2Fmanagement.azure.com", ""},
		{"a machine", nil, map[string]string{"ON_AZURE": "1", "AZURE_SUBSCRIPTION_ID": "s"}, "managed identity   s",
			"http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com", ""},
		{"az login", login, map[string]string{"ON_AZURE": "1"}, "az login ann@example.com tenant-b sub-b",
			"https://login.microsoftonline.us/tenant-b/oauth2/v2.0/token", "grant_type=refresh_token,refresh_token=anns,client_id=" + cliID},
		{"az login, another subscription", login, map[string]string{"AZURE_SUBSCRIPTION_ID": "SUB-A"}, "az login Ann@example.com tenant-a SUB-A",
			"https://login.microsoftonline.com/tenant-a/oauth2/v2.0/token", "refresh_token=anns"},
		{"az login of a service principal", map[string]string{profileFile: principalProfile, principalFile + ".json": `[{"tenant":"other","client_id":"app-1","client_secret":"no"},{"tenant":"tenant-a","client_id":"app-1","client_secret":"s1"}]`}, nil,
			"service principal app-1 tenant-a sub-a", "https://login.microsoftonline.com/tenant-a/oauth2/v2.0/token", "client_secret=s1"},
		{"az login with the machine's identity", map[string]string{profileFile: strings.Replace(principalProfile, `"app-1"`, `"userAssignedIdentity","assignedIdentityInfo":"MSIClient-id-1-2"`, 1)}, nil,
			"managed identity id-1-2 tenant-a sub-a", "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&client_id=id-1-2&resource=https%3A%2F%2Fmanagement.azure.com", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &service{}
			c, _, err := find(t, s, tt.files, tt.env)
			if err != nil {
				t.Fatal(err)
			}
			if who := strings.Join([]string{c.Kind, c.Account, c.Tenant, c.Subscription}, " "); who != tt.who || s.calls != 0 {
				t.Errorf("%q after %d calls, want %q", who, s.calls, tt.who)
			}
			got, err := c.Token(t.Context(), scope)
			if err != nil || got.Value != "T" || s.url != tt.url {
				t.Errorf("%v, %v of %s, want %s", got, err, s.url, tt.url)
			}
			for pair := range strings.SplitSeq(tt.form, ",") {
				if k, v, _ := strings.Cut(pair, "="); s.form.Get(k) != v {
					t.Errorf("%s is %q, want %q", k, s.form.Get(k), v)
				}
			}
			if tt.name == "a machine" && s.header.Get("Metadata") != "true" || tt.name == "App Service" && s.header.Get("X-IDENTITY-HEADER") != "h" {
				t.Errorf("headers: %v", s.header)
			}
		})
	}
}

func TestCredentialsThatCannotBeUsed(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // without az
	for _, tt := range []struct {
		name       string
		files, env map[string]string
		says, fix  string
	}{
		{"none", nil, nil, "there are no credentials", "az login"},
		{"half a service principal", nil, map[string]string{"AZURE_CLIENT_SECRET": "s", "AZURE_TENANT_ID": "t"}, "AZURE_CLIENT_ID is not", "AZURE_CLIENT_ID"},
		{"a certificate that is not there", nil, map[string]string{"AZURE_CLIENT_CERTIFICATE_PATH": "/nowhere", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c"}, "/nowhere", ""},
		{"encrypted by Windows", map[string]string{profileFile: userProfile, "msal_token_cache.bin": "x"}, nil, "encrypted", "core.encrypt_token_cache=false"},
		{"encrypted by a key ring", map[string]string{profileFile: userProfile, "msal_token_cache.sig": "x"}, nil, "encrypted", "core.encrypt_token_cache=false"},
		{"a principal that is encrypted", map[string]string{profileFile: principalProfile}, nil, "encrypted, or gone", "AZURE_CLIENT_SECRET"},
		{"logged out", map[string]string{profileFile: userProfile}, nil, "left no tokens", "az login"},
		{"nobody of that name", map[string]string{profileFile: userProfile, "msal_token_cache.json": `{}`}, nil, "no refresh token for ann@example.com", "az login"},
		{"a broken file", map[string]string{profileFile: "{"}, nil, "azureProfile.json", "az login"},
	} {
		_, _, err := find(t, &service{}, tt.files, tt.env)
		var missing *MissingError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(missing.Fix, tt.fix) {
			t.Errorf("%s: %v, fix %+v", tt.name, err, missing)
		}
	}
	if c, _, err := find(t, &service{}, map[string]string{profileFile: `{"subscriptions":[]}`}, map[string]string{"ON_AZURE": "1"}); err != nil || c.Kind != "managed identity" {
		t.Errorf("after az logout on a machine of Azure: %v, %v", c, err)
	}
}

// Where az has encrypted its tokens it is asked for them.
func TestSealedTokensAreAskedOfTheCLI(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell script")
	}
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$4\" = bad ] && { echo 'please log in' >&2; exit 1; }\necho '{\"accessToken\":\"'\"$2-$4-$6\"'\",\"expires_on\":4102444800}'\n"
	if err := os.WriteFile(filepath.Join(bin, "az"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	c, _, err := find(t, &service{}, map[string]string{profileFile: userProfile, "msal_token_cache.sig": "x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Token(t.Context(), "S"); err != nil || got.Value != "get-access-token-S-tenant-b" || got.Expires.Unix() != 4102444800 {
		t.Errorf("%v, %v", got, err)
	}
	var refused *RefusedError
	if _, err := c.Token(t.Context(), "bad"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "please log in") || refused.Fix != "run: az login --tenant tenant-b" {
		t.Error(err)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	secret := map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}
	login := map[string]string{profileFile: userProfile, "msal_token_cache.json": userCache}
	for _, tt := range []struct {
		files, env map[string]string
		status     int
		body       string
		says, fix  string // fix "": nobody said no
	}{
		{login, nil, 400, `{"error":"invalid_grant","error_description":"AADSTS70043: The refresh token has expired. Trace ID: 1\r\nCorrelation ID: 2"}`, "invalid_grant: AADSTS70043", "az login --tenant tenant-b"},
		{nil, secret, 401, `{"error":"invalid_client","error_description":"AADSTS7000222: The provided client secret keys are expired."}`, "AADSTS7000222", "az ad app credential reset --id c"},
		{nil, secret, 401, `{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret provided."}`, "AADSTS7000215", "AZURE_CLIENT_SECRET"},
		{nil, secret, 429, `{"error":"slow"}`, "status 429", ""},
		{nil, secret, 503, `busy`, "status 503", ""},
		{nil, secret, 200, `{}`, "status 200", ""},
	} {
		c, _, err := find(t, &service{answer: func(*http.Request) (int, string) { return tt.status, tt.body }}, tt.files, tt.env)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Token(t.Context(), scope)
		var refused *RefusedError
		if no := errors.As(err, &refused); err == nil || no != (tt.fix != "") || !strings.Contains(err.Error(), tt.says) || no && !strings.Contains(refused.Fix, tt.fix) || strings.Contains(err.Error(), "Correlation") {
			t.Errorf("%d %s: %v, %+v", tt.status, tt.body, err, refused)
		}
	}
}

func TestTokensAreKeptUntilTheyRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := false
		s := &service{}
		s.answer = func(*http.Request) (int, string) {
			if fail {
				return 503, ""
			}
			return 200, fmt.Sprintf(`{"access_token":"T%d","expires_in":"3600"}`, s.calls)
		}
		c, _, err := find(t, s, nil, map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"})
		if err != nil {
			t.Fatal(err)
		}
		want := func(after time.Duration, value string) {
			t.Helper()
			time.Sleep(after)
			if got, _ := c.Token(t.Context(), scope); got.Value != value {
				t.Errorf("%q, want %q", got.Value, value)
			}
		}
		want(0, "T1")
		want(54*time.Minute, "T1")
		want(2*time.Minute, "T2") // it would have run out soon
		fail = true
		want(56*time.Minute, "T2") // no new one is to be had, and it is good still
		want(5*time.Minute, "")
		fail = false
		want(0, fmt.Sprintf("T%d", s.calls+1))
		c.Forget(scope)
		want(0, fmt.Sprintf("T%d", s.calls+1))
	})
}

// Secrets go to a login service by https, or by http to this machine.
func TestTheLoginServiceIsNotReachedInTheClear(t *testing.T) {
	for host, good := range map[string]bool{
		"": true, "login.microsoftonline.us": true, "https://login.example.com/": true, "127.0.0.1:8080": true, "http://127.0.0.1:8080": true, "http://localhost:1": true, "http://[::1]:1": true,
		"http://login.example.com": false, "http://10.0.0.1:8080": false, "HTTP://login.example.com": false,
	} {
		_, _, err := find(t, &service{}, nil, map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s", "AZURE_AUTHORITY_HOST": host})
		var missing *MissingError
		if good != (err == nil) || !good && (!errors.As(err, &missing) || missing.None) {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// The metadata service is asked again when it is not ready.
func TestTheMetadataServiceIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.answer = func(*http.Request) (int, string) {
			if s.calls < 3 {
				return 404, `{"error":"not_found"}`
			}
			return 200, `{"access_token":"T","expires_on":"4102444800"}`
		}
		c, _, err := find(t, s, nil, map[string]string{"ON_AZURE": "1"})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Token(t.Context(), scope); err != nil || got.Expires.Unix() != 4102444800 || s.calls != 3 {
			t.Errorf("%v, %v after %d calls", got, err, s.calls)
		}
		s.answer = func(*http.Request) (int, string) {
			return 400, `{"error":"invalid_request","error_description":"Identity not found"}`
		}
		var refused *RefusedError
		if _, err := c.Token(t.Context(), "other"); !errors.As(err, &refused) || s.calls != 4 {
			t.Errorf("%v after %d calls", err, s.calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Token(ctx, "left"); err == nil {
			t.Error("a caller that has left got a token")
		}
	})
}

func certificatePEM(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []*rsa.PrivateKey{other, key} { // the issuer's comes first
		about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sky"}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, about, about, &k.PublicKey, k)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
}

func TestAnAssertionIsSignedWithTheCertificate(t *testing.T) {
	c, err := readCertificate(certificatePEM(t), "")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	text, err := c.assertion("https://aud", "app", true, now)
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(text, ".")
	var header struct {
		Alg, Typ string
		X5t      string   `json:"x5t#S256"`
		X5c      [][]byte `json:"x5c"`
	}
	var claims map[string]any
	for i, into := range []any{&header, &claims} {
		raw, err := base64.RawURLEncoding.DecodeString(part[i])
		if err != nil || json.Unmarshal(raw, into) != nil {
			t.Fatal(string(raw), err)
		}
	}
	signature, err := base64.RawURLEncoding.DecodeString(part[2])
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(header.X5c[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(part[0] + "." + part[1]))
	if err := rsa.VerifyPSS(cert.PublicKey.(*rsa.PublicKey), crypto.SHA256, sum[:], signature, nil); err != nil {
		t.Error(err)
	}
	thumb := sha256.Sum256(cert.Raw)
	if header.Alg != "PS256" || len(header.X5c) != 2 || header.X5t != base64.RawURLEncoding.EncodeToString(thumb[:]) {
		t.Errorf("%+v", header)
	}
	if claims["aud"] != "https://aud" || claims["iss"] != "app" || claims["sub"] != "app" || claims["exp"] != float64(now.Unix()+600) || claims["jti"] == "" {
		t.Errorf("%v", claims)
	}
	for text, says := range map[string]string{
		"x": "neither PEM nor PKCS #12", "-----BEGIN ENCRYPTED PRIVATE KEY-----\neA==\n-----END ENCRYPTED PRIVATE KEY-----\n": "encrypted",
		"-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n": "its private key",
	} {
		if _, err := readCertificate([]byte(text), ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is carried to another machine is found there, and is the same account.
func TestCredentialsCanBeCarried(t *testing.T) {
	for name, from := range map[string]struct{ files, env map[string]string }{
		"a secret": {nil, map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s", "AZURE_SUBSCRIPTION_ID": "sub", "AZURE_AUTHORITY_HOST": "login.microsoftonline.us"}},
		"az login": {map[string]string{profileFile: userProfile, "msal_token_cache.json": userCache}, nil},
	} {
		c, _, err := find(t, &service{}, from.files, from.env)
		if err != nil {
			t.Fatal(err)
		}
		files, err := c.Carry()
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]string{}
		for path, text := range files {
			there[strings.TrimPrefix(path, ".azure/")] = string(text)
		}
		other, _, err := find(t, &service{}, there, nil)
		if err != nil || other.Stamp() != c.Stamp() {
			t.Errorf("%s: %+v, %v", name, other, err)
		}
	}
	c, _, _ := find(t, &service{}, nil, map[string]string{"ON_AZURE": "1"})
	if _, err := c.Carry(); err == nil {
		t.Error("the identity of a machine was carried away")
	}
}

func TestStampsTellCredentialsApart(t *testing.T) {
	seen := map[string]bool{}
	for _, env := range []map[string]string{
		{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"},
		{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s2"},
		{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s", "AZURE_SUBSCRIPTION_ID": "x"},
	} {
		c, _, err := find(t, &service{}, nil, env)
		if err != nil || seen[c.Stamp()] || strings.Contains(c.Stamp(), "s2") {
			t.Errorf("%v: %v, %v", env, c, err)
		}
		seen[c.Stamp()] = true
	}
}

func TestClaims(t *testing.T) {
	token := Token{Value: "h." + base64.RawURLEncoding.EncodeToString([]byte(`{"tid":"t","oid":"o","upn":"u"}`)) + ".s"}
	if c := token.Claims(); c.Tenant != "t" || c.Object != "o" || c.User != "u" {
		t.Errorf("%+v", c)
	}
	if c := (Token{Value: "opaque"}).Claims(); c != (Claims{}) {
		t.Errorf("%+v", c)
	}
}
