package azurefake

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// The credentials that are good.
const (
	Client       = "11111111-2222-4333-8444-555555555555" // of the application
	Object       = "99999999-8888-4777-8666-555555555555" // that it is in the directory
	Secret       = "fake~client~secret"
	CLI          = "04b07795-8ddb-461a-bbee-02f9e1bf7b46" // Azure's own command line tool
	RefreshToken = "0.fake-refresh-token"
	User         = "ada@example.com"
	ManagedID    = "22222222-3333-4444-8555-666666666666" // of the identity of machines
)

const life = fakehttp.TokenLife

// mint makes an access token, in which tools read whose it is.
func (f *Fake) mint(name, object, app string) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return f.tokens.Mint(object, func(n int) string {
		claims := dict{
			"aud": "https://management.azure.com", "iss": "https://sts.windows.net/" + Tenant + "/", "tid": Tenant, "oid": object, "appid": app, "iat": time.Now().Unix(), "exp": time.Now().Add(life).Unix(), "uti": fmt.Sprint(n), "ver": "1.0",
		}
		if name != "" {
			claims["upn"], claims["unique_name"], claims["idtyp"] = name, name, "user"
		} else {
			claims["idtyp"] = "app"
		}
		return part(dict{"typ": "JWT", "alg": "RS256", "kid": "fake"}) + "." + part(claims) + "." + part("signed")
	})
}

// open reports that a path is where credentials are made, and none are asked for.
func open(path string) bool {
	return strings.HasPrefix(path, "/metadata/") || strings.HasSuffix(path, "/oauth2/v2.0/token") || strings.HasSuffix(path, "/oauth2/token") || strings.HasSuffix(path, "/.well-known/openid-configuration") || path == "/common/discovery/instance"
}

// aad is the body of the errors of Microsoft Entra ID:
// https://learn.microsoft.com/entra/identity-platform/reference-error-codes.
func aad(status int, code string, number int, format string, args ...any) *fakehttp.Reply {
	return &fakehttp.Reply{Status: status, Body: dict{
		"error": code, "error_description": fmt.Sprintf("AADSTS%d: ", number) + fmt.Sprintf(format, args...) + " Trace ID: 0000 Correlation ID: 0000 Timestamp: 2026-06-01 00:00:00Z", "error_codes": []int{number}, "error_uri": fmt.Sprintf("https://login.microsoftonline.com/error?code=%d", number),
	}}
}

func (f *Fake) tokenRoutes() {
	// https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow and
	// …/v2-oauth2-auth-code-flow#refresh-the-access-token
	for _, path := range []string{"/{tenant}/oauth2/v2.0/token", "/{tenant}/oauth2/token"} {
		f.Route("POST", path, "token", nil, func(r *http.Request, _ dict) (any, error) { return f.grant(r) })
	}
	f.Route("GET", "/{tenant}/v2.0/.well-known/openid-configuration", "token", nil, func(r *http.Request, _ dict) (any, error) {
		base := "https://login.microsoftonline.com/" + Tenant
		return dict{"token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize", "issuer": base + "/v2.0"}, nil
	})
	f.Route("GET", "/common/discovery/instance", "token", nil, func(r *http.Request, _ dict) (any, error) {
		return dict{
			"tenant_discovery_endpoint": "https://login.microsoftonline.com/" + Tenant + "/v2.0/.well-known/openid-configuration", "api-version": "1.1",
			"metadata": []any{dict{"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.windows.net", "aliases": []any{"login.microsoftonline.com", "login.windows.net", "login.microsoft.com", "sts.windows.net"}}},
		}, nil
	})
	// https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token#get-a-token-using-http
	f.Route("GET", "/metadata/identity/oauth2/token", "token", nil, func(r *http.Request, _ dict) (any, error) {
		q := r.URL.Query()
		switch {
		case r.Header.Get("Metadata") != "true":
			return nil, &fakehttp.Reply{Status: 400, Body: dict{"error": "invalid_request", "error_description": "Required metadata header not specified"}}
		case q.Get("api-version") == "" || q.Get("resource") == "":
			return nil, &fakehttp.Reply{Status: 400, Body: dict{"error": "invalid_request", "error_description": "Required query variable 'resource' is missing"}}
		case q.Get("client_id") != "" && q.Get("client_id") != ManagedID:
			return nil, &fakehttp.Reply{Status: 400, Body: dict{"error": "invalid_request", "error_description": "Identity not found"}}
		}
		expires := time.Now().Add(life).Unix()
		return dict{"access_token": f.mint("", Object, ManagedID), "client_id": ManagedID, "expires_in": "3599", "expires_on": fmt.Sprint(expires), "not_before": fmt.Sprint(expires - 3600), "resource": q.Get("resource"), "token_type": "Bearer"}, nil
	})
}

func (f *Fake) grant(r *http.Request) (any, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		return nil, aad(400, "invalid_request", 900144, "The request body is malformed.")
	}
	f.tokens.Granting(form.Get("grant_type"))
	if t := r.PathValue("tenant"); t != Tenant && t != "organizations" && t != "common" {
		return nil, aad(400, "invalid_request", 90002, "Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud.", t)
	}
	if form.Get("scope") == "" && form.Get("resource") == "" {
		return nil, aad(400, "invalid_request", 900144, "The request body must contain the following parameter: 'scope'.")
	}
	name, object, app := "", Object, form.Get("client_id")
	switch form.Get("grant_type") {
	case "client_credentials":
		if app != Client {
			return nil, aad(400, "unauthorized_client", 700016, "Application with identifier '%s' was not found in the directory 'Fake'.", app)
		}
		if scope := form.Get("scope"); scope != "" && !strings.HasSuffix(strings.Fields(scope)[0], "/.default") {
			return nil, aad(400, "invalid_scope", 1002012, "The provided value for scope %s is not valid. Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI).", scope)
		}
		assertion := form.Get("client_assertion")
		switch {
		case assertion != "":
			if form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
				return nil, aad(400, "invalid_request", 900144, "The request body must contain the following parameter: 'client_assertion_type'.")
			}
			if !f.tokens.Federated(assertion) {
				if no := f.assertion(assertion); no != nil {
					return nil, no
				}
			}
		case form.Get("client_secret") != Secret:
			return nil, aad(401, "invalid_client", 7000215, "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '%s'.", Client)
		}
	case "refresh_token":
		if form.Get("refresh_token") != RefreshToken || f.tokens.Revoked() {
			return nil, aad(400, "invalid_grant", 70043, "The refresh token has expired or is invalid due to sign-in frequency checks by conditional access.")
		}
		name = User
	default:
		return nil, aad(400, "unsupported_grant_type", 70003, "The app requested an unsupported grant type '%s'.", form.Get("grant_type"))
	}
	out := fakehttp.TokenReply(f.mint(name, object, app), int(life.Seconds())-1, dict{"ext_expires_in": int(life.Seconds()) - 1})
	if name != "" {
		out["refresh_token"], out["scope"] = RefreshToken, "https://management.azure.com/user_impersonation https://management.azure.com/.default"
	}
	return out, nil
}

// assertion checks what a certificate's key signed:
// https://learn.microsoft.com/entra/identity-platform/certificate-credentials.
func (f *Fake) assertion(token string) error {
	var claims struct {
		Aud, Iss, Sub, Jti string
		Exp, Nbf           int64
	}
	verify, err := fakehttp.JWT(token, &struct{}{}, &claims)
	if err != nil {
		return aad(401, "invalid_client", 50027, "JWT token is invalid or malformed.")
	}
	err = verify(f.key)
	now := time.Now().Unix()
	switch {
	case err != nil:
		return aad(401, "invalid_client", 700027, "The certificate with identifier used to sign the client assertion is not registered on application.")
	case claims.Iss != Client || claims.Sub != Client || claims.Jti == "":
		return aad(401, "invalid_client", 700021, "Client assertion application identifier doesn't match 'client_id' parameter.")
	case !strings.HasPrefix(claims.Aud, "https://login.microsoftonline.com/"+Tenant):
		return aad(401, "invalid_client", 700023, "Client assertion audience claim does not match Realm issuer.")
	case claims.Exp < now || claims.Nbf > now+300:
		return aad(401, "invalid_client", 700024, "Client assertion is not within its valid time range.")
	}
	return nil
}

// SetCertificate lets the application sign with a certificate, a PEM.
func (f *Fake) SetCertificate(certificate []byte) error {
	key, err := fakehttp.PublicKey(certificate)
	if err == nil {
		f.Locked(func() { f.key = key })
	}
	return err
}

// Token is one of the application's that is good for an hour.
func (f *Fake) Token() string { return f.mint("", Object, Client) }

// Federate lets a token of another issuer stand for the application.
func (f *Fake) Federate(token string) { f.tokens.Federate(token) }

// Revoke ends the refresh token and all tokens.
func (f *Fake) Revoke() { f.tokens.Revoke() }

// Grants is how often tokens were asked for in a way.
func (f *Fake) Grants(grantType string) int { return f.tokens.Grants(grantType) }
