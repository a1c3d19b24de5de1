package gcpfake_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

const form = "application/x-www-form-urlencoded"

func refresh(more ...string) string {
	v := url.Values{"grant_type": {"refresh_token"}, "client_id": {gcpfake.ClientID}, "client_secret": {gcpfake.ClientSecret}, "refresh_token": {gcpfake.RefreshToken}}
	for n := 0; n < len(more); n += 2 {
		v.Set(more[n], more[n+1])
	}
	return v.Encode()
}

// signed is an assertion as Google's libraries make it.
func signed(t *testing.T, key *rsa.PrivateKey, claims dict) string {
	part := func(v any) string {
		b, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(dict{"alg": "RS256", "typ": "JWT", "kid": "1"}) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func TestTokens(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	virtual(t, func(c client) {
		const robot = "robot@" + gcpfake.Project + ".iam.gserviceaccount.com"
		if err := c.AddKey(robot, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})); err != nil {
			t.Fatal(err)
		}
		c.token = ""
		token := func(url, contentType, body, want string) string {
			t.Helper()
			status, out, _ := c.send("POST", url, contentType, body)
			if want != "" {
				if status != 400 && status != 401 || out["error"] != want {
					t.Errorf("%s: %d %v, not %s", body, status, out, want)
				}
				return ""
			}
			if status != 200 || out["token_type"] != "Bearer" {
				t.Fatalf("%s: %d %v", body, status, out)
			}
			return out["access_token"].(string)
		}
		const oauth = "https://oauth2.googleapis.com/token"
		c.no("GET", zone+"/instances", nil, 401, "authError", "invalid authentication credentials")
		token(oauth, form, refresh("refresh_token", "x"), "invalid_grant")
		token(oauth, form, refresh("client_secret", "x"), "invalid_client")
		token(oauth, form, refresh("grant_type", "password"), "unsupported_grant_type")
		c.token = token(oauth, form, refresh(), "")
		if who := c.ok("GET", "https://www.googleapis.com/oauth2/v3/userinfo", nil); who["email"] != gcpfake.User {
			t.Errorf("the user is %v", who)
		}
		c.ok("GET", zone+"/instances", nil)
		time.Sleep(time.Hour)
		c.no("GET", zone+"/instances", nil, 401, "authError", "invalid authentication credentials")

		now := time.Now().Unix()
		claims := dict{"iss": robot, "aud": oauth, "scope": "https://www.googleapis.com/auth/cloud-platform", "iat": now, "exp": now + 3600}
		jwt := func(field string, value any) string {
			copied := dict{}
			for k, v := range claims {
				copied[k] = v
			}
			if field != "" {
				copied[field] = value
			}
			return url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {signed(t, key, copied)}}.Encode()
		}
		for field, value := range map[string]any{"iss": "x@y", "aud": "elsewhere", "exp": now + 7200, "iat": now + 1000} {
			token(oauth, form, jwt(field, value), "invalid_grant")
		}
		token(oauth, form, jwt("scope", ""), "invalid_scope")
		tampered := strings.Replace(jwt("", nil), "assertion=", "assertion=e", 1)
		token(oauth, form, tampered, "invalid_grant")
		c.token = token(oauth, form, jwt("", nil), "")
		if who := c.ok("GET", "https://www.googleapis.com/oauth2/v3/userinfo", nil); who["email"] != robot {
			t.Errorf("the account is %v", who)
		}
		status, out := c.call("POST", "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+robot+":generateAccessToken", dict{"scope": []any{"https://www.googleapis.com/auth/cloud-platform"}, "lifetime": "3600s"})
		if status != 200 || out["accessToken"] == nil || out["expireTime"] == nil {
			t.Errorf("impersonating: %d %v", status, out)
		}
		c.no("POST", "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/nobody@x:generateAccessToken", dict{"scope": []any{"s"}}, 404, "NOT_FOUND", "nobody@x")

		c.Federate("their-token")
		exchange := url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {"//iam.googleapis.com/projects/" + gcpfake.Number + "/locations/global/workloadIdentityPools/p/providers/q"},
			"subject_token": {"their-token"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}, "scope": {"https://www.googleapis.com/auth/cloud-platform"}, "requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		}
		c.token = token("https://sts.googleapis.com/v1/token", form, exchange.Encode(), "")
		c.ok("GET", zone+"/instances", nil)
		exchange.Set("subject_token", "x")
		token("https://sts.googleapis.com/v1/token", form, exchange.Encode(), "invalid_grant")

		meta := func(path, flavor string) (int, dict, http.Header) {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://metadata.google.internal/computeMetadata/v1/"+path, nil)
			if flavor != "" {
				req.Header.Set("Metadata-Flavor", flavor)
			}
			resp, err := c.Fake.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var out dict
			_ = json.NewDecoder(resp.Body).Decode(&out)
			return resp.StatusCode, out, resp.Header
		}
		if status, _, _ := meta("project/project-id", ""); status != 403 {
			t.Errorf("without its header the metadata server answers %d", status)
		}
		if status, _, h := meta("project/project-id", "Google"); status != 200 || h.Get("Metadata-Flavor") != "Google" {
			t.Errorf("the metadata server: %d %v", status, h)
		}
		_, out, _ = meta("instance/service-accounts/default/token", "Google")
		c.token = out["access_token"].(string)
		c.ok("GET", zone+"/instances", nil)
		c.Revoke()
		token(oauth, form, refresh(), "invalid_grant")
		if n := c.Grants("refresh_token"); n != 4 {
			t.Errorf("%d refreshs", n)
		}
	})
}

func TestProjectAndServices(t *testing.T) {
	virtual(t, func(c client) {
		const manager = "https://cloudresourcemanager.googleapis.com/v1/projects/" + gcpfake.Project
		if p := c.ok("GET", manager, nil); p["lifecycleState"] != "ACTIVE" || p["projectNumber"] != gcpfake.Number {
			t.Errorf("the project is %v", p)
		}
		c.no("GET", "https://cloudresourcemanager.googleapis.com/v1/projects/other", nil, 403, "PERMISSION_DENIED", "permission")
		ask := dict{"permissions": []any{"compute.instances.create", "compute.disks.create", "compute.instances.list"}}
		if got := c.ok("POST", manager+":testIamPermissions", ask)["permissions"].([]any); len(got) != 3 {
			t.Errorf("the owner has %v", got)
		}
		c.Deny("compute.disks.create")
		if got := fmt.Sprint(c.ok("POST", manager+":testIamPermissions", ask)["permissions"]); got != "[compute.instances.create compute.instances.list]" {
			t.Errorf("without one there are %v", got)
		}
		c.Forbid()
		if got := fmt.Sprint(c.ok("POST", manager+":testIamPermissions", ask)["permissions"]); got != "[compute.instances.list]" {
			t.Errorf("a viewer has %v", got)
		}
		c.Restore()
		services := "https://serviceusage.googleapis.com/v1/projects/" + gcpfake.Project + "/services"
		c.Disable("tpu.googleapis.com")
		if s := c.ok("GET", services+"/tpu.googleapis.com", nil); s["state"] != "DISABLED" {
			t.Errorf("disabled: %v", s)
		}
		if s := c.ok("GET", services+":batchGet?names=projects/p/services/tpu.googleapis.com&names=projects/p/services/compute.googleapis.com", nil); len(s["services"].([]any)) != 2 {
			t.Errorf("two: %v", s)
		}
		if op := c.ok("POST", services+"/tpu.googleapis.com:enable", dict{}); op["done"] != true {
			t.Errorf("enabling: %v", op)
		}
		if s := c.ok("GET", services+"/tpu.googleapis.com", nil); s["state"] != "ENABLED" {
			t.Errorf("enabled: %v", s)
		}
		accounts := "https://iam.googleapis.com/v1/projects/" + gcpfake.Project + "/serviceAccounts"
		c.no("POST", accounts, dict{"accountId": "x"}, 400, "INVALID_ARGUMENT", "between 6 and 30")
		email := c.ok("POST", accounts, dict{"accountId": "skypilot-v1", "serviceAccount": dict{"displayName": "SkyPilot"}})["email"].(string)
		c.no("POST", accounts, dict{"accountId": "skypilot-v1"}, 409, "ALREADY_EXISTS", "already exists")
		c.ok("GET", accounts+"/"+email, nil)
		c.no("GET", accounts+"/nobody@x", nil, 404, "NOT_FOUND", "Unknown service account")
		policy := c.ok("POST", manager+":getIamPolicy", dict{})
		policy["bindings"] = append(policy["bindings"].([]any), dict{"role": "roles/compute.admin", "members": []any{"serviceAccount:" + email}})
		c.ok("POST", manager+":setIamPolicy", dict{"policy": policy})
		c.no("POST", manager+":setIamPolicy", dict{"policy": policy}, 409, "ABORTED", "concurrent policy changes")
		policy = c.ok("POST", manager+":getIamPolicy", dict{})
		policy["bindings"] = []any{dict{"role": "roles/editor", "members": []any{"serviceAccount:nobody@x"}}}
		c.no("POST", manager+":setIamPolicy", dict{"policy": policy}, 400, "INVALID_ARGUMENT", "does not exist")
	})
}
