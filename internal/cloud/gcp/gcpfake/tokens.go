package gcpfake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// The credentials that are good: a user's of "gcloud auth application-default login",
// and those of any account for which a key was made with [Fake.AddKey].
const (
	User         = "ada@example.com"
	ClientID     = "764086051850-fake.apps.googleusercontent.com"
	ClientSecret = "d-FAKE-secret"
	RefreshToken = "1//fake-refresh-token"
	// Machine is the service account of machines, as the metadata server has it.
	Machine = Number + "-compute@developer.gserviceaccount.com"
)

// mint makes a token of somebody.
func (f *Fake) mint(who string) string {
	return f.tokens.Mint(who, func(n int) string { return fmt.Sprintf("ya29.fake-%d", n) })
}

// open reports that a path is where credentials are made, and none are asked for.
func open(path string) bool {
	return path == "/token" || path == "/v1/token" || path == "/tokeninfo" || strings.HasPrefix(path, "/computeMetadata/")
}

const life = fakehttp.TokenLife

func deny(code, why string) *fakehttp.Reply {
	return &fakehttp.Reply{Status: 400, Body: dict{"error": code, "error_description": why}}
}

func (f *Fake) tokenRoutes() {
	// https://developers.google.com/identity/protocols/oauth2/web-server#offline and
	// https://developers.google.com/identity/protocols/oauth2/service-account#httprest
	f.Route("POST", "/token", "token", nil, func(r *http.Request, _ dict) (any, error) { return f.grant(r) })
	// https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token
	f.Route("POST", "/v1/token", "token", nil, func(r *http.Request, _ dict) (any, error) { return f.exchange(r) })
	// https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken
	f.Route("POST", "/v1/projects/-/serviceAccounts/{call}", "token.impersonate", fakehttp.Schema{"!scope": fakehttp.List(fakehttp.String), "lifetime": `"\d+s"`}, func(r *http.Request, _ dict) (any, error) {
		email, ok := strings.CutSuffix(r.PathValue("call"), ":generateAccessToken")
		switch {
		case !ok:
			return nil, fakehttp.Missing(r.URL.Path)
		case f.items["projects/"+Project+"/serviceAccounts/"+email] == nil:
			return nil, rpc(404, nil, "Not found; Gaia id not found for email %s", email)
		case f.denied["iam.serviceAccounts.getAccessToken"]:
			return nil, rpc(403, []any{dict{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "IAM_PERMISSION_DENIED", "domain": "iam.googleapis.com", "metadata": dict{"permission": "iam.serviceAccounts.getAccessToken"}}},
				"Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).")
		}
		return dict{"accessToken": f.mint(email), "expireTime": time.Now().Add(life).UTC().Format(time.RFC3339)}, nil
	})
	// https://cloud.google.com/compute/docs/metadata/querying-metadata
	f.Route("GET", "/computeMetadata/v1/{rest...}", "metadata", nil, func(r *http.Request, _ dict) (any, error) { return f.metadata(r) })
	// https://developers.google.com/identity/protocols/oauth2/openid-connect#obtaininguserprofileinformation
	f.Route("GET", "/oauth2/{version}/userinfo", "userinfo", nil, func(r *http.Request, _ dict) (any, error) {
		return dict{"email": f.tokens.Bearer(r), "email_verified": true, "sub": "110169484474386276334"}, nil
	})
	f.Route("GET", "/tokeninfo", "userinfo", nil, func(r *http.Request, _ dict) (any, error) {
		r.Header.Set("Authorization", "Bearer "+r.URL.Query().Get("access_token"))
		who := f.tokens.Bearer(r)
		if who == "" {
			return nil, deny("invalid_token", "Invalid Value")
		}
		return dict{"email": who, "email_verified": "true", "scope": "https://www.googleapis.com/auth/cloud-platform", "expires_in": "3599"}, nil
	})
}

func (f *Fake) form(r *http.Request) (get func(string) string) {
	var in dict
	text, _ := io.ReadAll(r.Body)
	if json.Unmarshal(text, &in) == nil { // the token service of workload identity takes JSON, too
		return func(name string) string { s, _ := in[name].(string); return s }
	}
	values, _ := url.ParseQuery(string(text))
	return values.Get
}

// grant answers for a refresh token or a signed assertion.
func (f *Fake) grant(r *http.Request) (any, error) {
	get := f.form(r)
	f.tokens.Granting(get("grant_type"))
	who := ""
	switch get("grant_type") {
	case "refresh_token":
		if get("client_id") != ClientID || get("client_secret") != ClientSecret {
			return nil, &fakehttp.Reply{Status: 401, Body: dict{"error": "invalid_client", "error_description": "The OAuth client was not found."}}
		}
		if get("refresh_token") != RefreshToken || f.tokens.Revoked() {
			return nil, deny("invalid_grant", "Token has been expired or revoked.")
		}
		who = User
	case "urn:ietf:params:oauth:grant-type:jwt-bearer":
		email, no := f.assertion(get("assertion"))
		if no != nil {
			return nil, no
		}
		who = email
	default:
		return nil, deny("unsupported_grant_type", "Invalid grant_type: "+get("grant_type"))
	}
	return fakehttp.TokenReply(f.mint(who), int(life.Seconds())-1, dict{"scope": "https://www.googleapis.com/auth/cloud-platform"}), nil
}

// assertion checks a JSON web token that a service account's key signed.
func (f *Fake) assertion(token string) (email string, no *fakehttp.Reply) {
	var claims struct {
		Iss, Aud, Scope string
		Iat, Exp        int64
	}
	verify, err := fakehttp.JWT(token, &struct{}{}, &claims)
	if err != nil {
		return "", deny("invalid_grant", "Bad JWT")
	}
	key := f.keys[claims.Iss]
	if key == nil {
		return "", deny("invalid_grant", "Invalid grant: account not found")
	}
	if verify(key) != nil {
		return "", deny("invalid_grant", "Invalid JWT Signature.")
	}
	now := time.Now().Unix()
	switch {
	case !strings.HasSuffix(claims.Aud, "/token"):
		return "", deny("invalid_grant", "Invalid JWT: Failed audience check.")
	case claims.Iat > now+300 || claims.Exp < now || claims.Exp-claims.Iat > 3600+600:
		return "", deny("invalid_grant", "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim.")
	case claims.Scope == "":
		return "", deny("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
	}
	return claims.Iss, nil
}

// exchange answers for another issuer's token.
func (f *Fake) exchange(r *http.Request) (any, error) {
	get := f.form(r)
	audience := get("audience")
	switch {
	case get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange" && get("grantType") != "urn:ietf:params:oauth:grant-type:token-exchange":
		return nil, deny("invalid_request", "Invalid value for \"grant_type\".")
	case !strings.HasPrefix(audience, "//iam.googleapis.com/projects/"+Number+"/locations/global/workloadIdentityPools/"):
		return nil, deny("invalid_target", "The target service indicated by the \"audience\" parameters is invalid. This might either be because the pool or provider is disabled or deleted or because it doesn't exist.")
	case !f.tokens.Federated(get("subject_token")) && !f.tokens.Federated(get("subjectToken")):
		return nil, deny("invalid_grant", "The given credential is rejected by the attribute condition.")
	}
	return fakehttp.TokenReply(f.mint("principal:"+audience), int(life.Seconds()), dict{"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}), nil
}

// metadata is that of a machine in the project.
func (f *Fake) metadata(r *http.Request) (any, error) {
	if r.Header.Get("Metadata-Flavor") != "Google" {
		return nil, &fakehttp.Reply{Status: 403, Body: "Missing Metadata-Flavor:Google header."}
	}
	text := map[string]string{
		"project/project-id": Project, "project/numeric-project-id": Number, "instance/service-accounts/default/email": Machine,
		"instance/service-accounts/default/scopes": "https://www.googleapis.com/auth/cloud-platform\n",
	}
	at := r.PathValue("rest")
	if at == "instance/service-accounts/default/token" {
		return fakehttp.TokenReply(f.mint(Machine), int(life.Seconds()), nil), nil
	}
	if text[at] == "" {
		return nil, &fakehttp.Reply{Status: 404, Header: map[string]string{"Metadata-Flavor": "Google"}}
	}
	return &fakehttp.Reply{Status: 200, Header: map[string]string{"Metadata-Flavor": "Google", "Content-Type": "application/text"}, Body: fakehttp.Text(text[at])}, nil
}

// AddKey makes a service account that signs with a key, a PEM's public half.
func (f *Fake) AddKey(email string, public []byte) error {
	key, err := fakehttp.PublicKey(public)
	if err != nil {
		return err
	}
	f.Locked(func() {
		f.keys[email] = key
		f.serviceAccount(email)
	})
	return nil
}

// Token is one that is good for an hour, as a tool prints it.
func (f *Fake) Token() string { return f.mint(User) }

// Federate makes subject a token that is exchanged for one of the project's pools.
func (f *Fake) Federate(subject string) { f.tokens.Federate(subject) }

// Revoke ends the user's refresh token, and all tokens.
func (f *Fake) Revoke() { f.tokens.Revoke() }

// Grants is how often tokens were asked for in a way.
func (f *Fake) Grants(grantType string) int { return f.tokens.Grants(grantType) }
