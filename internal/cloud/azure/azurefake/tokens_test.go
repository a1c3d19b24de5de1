package azurefake_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/azure/azurefake"
)

const login = "https://login.microsoftonline.com/" + azurefake.Tenant + "/oauth2/v2.0/token"

func form(pairs ...string) string {
	v := url.Values{"grant_type": {"client_credentials"}, "client_id": {azurefake.Client}, "scope": {"https://management.azure.com/.default"}}
	for n := 0; n < len(pairs); n += 2 {
		if v.Set(pairs[n], pairs[n+1]); pairs[n+1] == "" {
			v.Del(pairs[n])
		}
	}
	return v.Encode()
}

func TestTokens(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sky"}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(100, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(claims dict) string {
		part := func(v any) string {
			b, _ := json.Marshal(v)
			return base64.RawURLEncoding.EncodeToString(b)
		}
		text := part(dict{"alg": "PS256", "typ": "JWT", "x5t#S256": "x"}) + "." + part(claims)
		sum := sha256.Sum256([]byte(text))
		sig, err := rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], nil)
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + base64.RawURLEncoding.EncodeToString(sig)
	}
	const bearer = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	virtual(t, func(c client) {
		c.makeGroup()
		c.token = ""
		c.no("GET", group, nil, 401, "AuthenticationFailed", "'Authorization' header is missing")
		ask := func(link, body string) (int, dict) {
			status, out, _ := c.send("POST", link, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, body)
			return status, out
		}
		refused := func(link, body string, status int, code, words string) {
			t.Helper()
			if got, out := ask(link, body); got != status || out["error"] != code || !strings.Contains(fmt.Sprint(out["error_description"]), words) {
				t.Errorf("%s: %d %v, not %d %s %s", body, got, out, status, code, words)
			}
		}
		good := func(body string) dict {
			t.Helper()
			status, out := ask(login, body)
			if status != 200 || out["token_type"] != "Bearer" {
				t.Fatalf("%s: %d %v", body, status, out)
			}
			c.token = out["access_token"].(string)
			c.get(group)
			text, err := base64.RawURLEncoding.DecodeString(strings.Split(c.token, ".")[1])
			var claims dict
			if err != nil || json.Unmarshal(text, &claims) != nil || claims["tid"] != azurefake.Tenant || claims["oid"] == nil {
				t.Errorf("the token says %s", text)
			}
			c.token = ""
			return out
		}
		good(form("client_secret", azurefake.Secret))
		refused(login, form("client_secret", "x"), 401, "invalid_client", "AADSTS7000215")
		refused(login, form("client_secret", azurefake.Secret, "client_id", azurefake.CLI), 400, "unauthorized_client", "AADSTS700016")
		refused(login, form("client_secret", azurefake.Secret, "scope", ""), 400, "invalid_request", "AADSTS900144")
		refused(login, form("client_secret", azurefake.Secret, "scope", "https://management.azure.com/user"), 400, "invalid_scope", "AADSTS1002012")
		refused(strings.Replace(login, azurefake.Tenant, "nobody", 1), form("client_secret", azurefake.Secret), 400, "invalid_request", "AADSTS90002")

		now := time.Now().Unix()
		claims := dict{"aud": login, "iss": azurefake.Client, "sub": azurefake.Client, "jti": "1", "nbf": now, "exp": now + 600}
		refused(login, form("client_assertion_type", bearer, "client_assertion", sign(claims)), 401, "invalid_client", "AADSTS700027")
		if err := c.SetCertificate(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
			t.Fatal(err)
		}
		good(form("client_assertion_type", bearer, "client_assertion", sign(claims)))
		for field, want := range map[string]string{"aud": "AADSTS700023", "iss": "AADSTS700021", "sub": "AADSTS700021", "exp": "AADSTS700024"} {
			changed := dict{}
			for k, v := range claims {
				changed[k] = v
			}
			if changed[field] = "x"; field == "exp" {
				changed[field] = now - 1
			}
			refused(login, form("client_assertion_type", bearer, "client_assertion", sign(changed)), 401, "invalid_client", want)
		}
		c.Federate("a token of a cluster")
		good(form("client_assertion_type", bearer, "client_assertion", "a token of a cluster"))
		refused(login, form("client_assertion_type", bearer, "client_assertion", "another"), 401, "invalid_client", "AADSTS50027")

		user := form("grant_type", "refresh_token", "client_id", azurefake.CLI, "refresh_token", azurefake.RefreshToken)
		if out := good(user); out["refresh_token"] == nil {
			t.Errorf("a refresh gives %v", out)
		}
		c.Revoke()
		refused(login, user, 400, "invalid_grant", "AADSTS70043")

		meta := func(query string, header map[string]string) (int, dict) {
			status, out, _ := c.send("GET", "http://169.254.169.254/metadata/identity/oauth2/token?"+query, header, "")
			return status, out
		}
		const query = "api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F"
		if status, _ := meta(query, nil); status != 400 {
			t.Errorf("without its header the metadata service answers %d", status)
		}
		if status, _ := meta(query+"&client_id=x", map[string]string{"Metadata": "true"}); status != 400 {
			t.Errorf("for another identity the metadata service answers %d", status)
		}
		status, out := meta(query, map[string]string{"Metadata": "true"})
		if status != http.StatusOK || out["expires_on"] == nil {
			t.Fatalf("the metadata service: %d %v", status, out)
		}
		c.token = out["access_token"].(string)
		c.get(group)
		time.Sleep(time.Hour)
		c.no("GET", group, nil, 401, "InvalidAuthenticationToken", "access token is invalid")
	})
}
