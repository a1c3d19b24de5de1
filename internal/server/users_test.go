package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/state"
)

func team(t *testing.T) *testEnv {
	return newTestEnv(t, people(t, map[string]string{"vic": "viewer", "uma": "user", "otto": "user", "ada": "admin"}))
}

func read[T any](t *testing.T, r reply) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || r.status != 200 {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	return v
}

func TestUsersAreManaged(t *testing.T) {
	env := team(t)
	env.ownCluster("umas", "uma")
	id := auth.UserID
	for _, c := range []struct {
		as, path, body string
		want           int
	}{
		{"ada", "/users/create", `{"username":"bob","password":"pw","role":"user"}`, 200},
		{"ada", "/users/create", `{"username":"bob","password":"pw"}`, 400},
		{"ada", "/users/create", `{"username":"eve","password":"pw","role":"king"}`, 400},
		{"ada", "/users/create", `{"username":"e:e","password":"pw"}`, 400},
		{"ada", "/users/create", `{"username":"eve","password":""}`, 400},
		{"ada", "/users/create", `{"username":"eve"}`, 422},
		{"ada", "/users/update", `{"user_id":"` + id("bob") + `","role":"viewer"}`, 200},
		{"ada", "/users/update", `{"user_id":"` + id("ada") + `","role":"user"}`, 400},
		{"ada", "/users/update", `{"user_id":"nobody","role":"user"}`, 400},
		{"ada", "/users/update", `{"user_id":"` + id("bob") + `"}`, 400},
		{"uma", "/users/update", `{"user_id":"` + id("uma") + `","password":"new"}`, 200},
		{"uma", "/users/update", `{"user_id":"` + id("uma") + `","role":"admin"}`, 403},
		{"uma", "/users/update", `{"user_id":"` + id("ada") + `","password":"mine"}`, 403},
		{"ada", "/users/delete", `{"user_id":"` + id("uma") + `"}`, 400}, // has a cluster
		{"ada", "/users/delete", `{"user_id":"` + id("ada") + `"}`, 400},
		{"ada", "/users/delete", `{"user_id":"5e1f"}`, 400},
		{"ada", "/users/delete", `{"user_id":"` + id("otto") + `"}`, 200},
		{"ada", "/users/delete", `{"user_id":"` + id("otto") + `"}`, 400},
	} {
		env.as = c.as
		if r := env.call(post, c.path, c.body); r.status != c.want {
			t.Errorf("%s as %s, %s: %d %s, want %d", c.path, c.as, c.body, r.status, r.body, c.want)
		}
	}
	moved := read[api.UsersUpdated](t, env.call(post, "/users/batch_update", fmt.Sprintf(`{"user_ids":[%q,%q,"no"],"role":"user"}`, id("bob"), id("ada"))))
	if len(moved.Succeeded) != 1 || len(moved.Failed) != 2 {
		t.Errorf("%+v", moved)
	}
	table := "username,password,role\ncy,$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/,viewer\ndee,plain,\n,x,user\nbob,again,user\nfay,pw,boss\n"
	b, _ := json.Marshal(api.UsersImportBody{CSVContent: table})
	in := read[api.UsersImported](t, env.call(post, "/users/import", string(b)))
	if in.SuccessCount != 2 || in.ErrorCount != 3 || in.TotalProcessed != 5 || len(in.ParseErrors) != 1 || len(in.CreationErrors) != 2 {
		t.Errorf("%+v", in)
	}
	out := read[api.UsersExport](t, env.call(get, "/users/export", ""))
	if out.UserCount != 4 || !strings.Contains(out.CSVContent, "cy,$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/,viewer\n") || strings.Contains(out.CSVContent, "plain") {
		t.Errorf("%+v", out)
	}
	for _, bad := range []string{``, `name,role\nx,y`} {
		b, _ := json.Marshal(api.UsersImportBody{CSVContent: bad})
		if r := env.call(post, "/users/import", string(b)); r.status != 400 {
			t.Errorf("%q: %d", bad, r.status)
		}
	}
	users := read[[]api.UserRecord](t, env.call(get, "/users", ""))
	if len(users) != 6 {
		t.Errorf("%+v", users)
	}
}

func TestTokensOfServiceAccounts(t *testing.T) {
	env := team(t)
	const tokens = "/users/service-account-tokens"
	env.as = "uma"
	made := read[api.NewToken](t, env.call(post, tokens, `{"token_name":"ci","expires_in_days":7}`))
	if !strings.HasPrefix(made.Token, "sky_") || !strings.HasPrefix(made.ServiceAccountUserID, "sa-") || len(made.ServiceAccountUserID) != 19 || made.CreatorUserID != auth.UserID("uma") {
		t.Fatalf("%+v", made)
	}
	if left := time.Until(time.Unix(*made.ExpiresAt, 0)); left < 6*day || left > 7*day+time.Minute {
		t.Errorf("ends in %v", left)
	}
	account := func(token string) api.UserRole {
		t.Helper()
		env.as = ""
		r := env.call(get, "/users/role", "", "Authorization", "Bearer "+token)
		if r.status == 401 {
			return api.UserRole{}
		}
		return read[api.UserRole](t, r)
	}
	if a := account(made.Token); a.ID != made.ServiceAccountUserID || a.Role != "user" || a.Name != "ci" {
		t.Errorf("%+v", a)
	}
	body := `{"token_id":"` + made.TokenID + `"}`
	for _, c := range []struct {
		as, path, body string
		want           int
	}{
		{"otto", "/get-role", body, 403}, {"otto", "/rotate", body, 403}, {"otto", "/delete", body, 403},
		{"otto", "/update-role", `{"token_id":"` + made.TokenID + `","role":"viewer"}`, 403},
		{"vic", "/get-role", body, 403}, {"uma", "/get-role", `{"token_id":"none"}`, 404}, {"ada", "/get-role", body, 200}, {"uma", "/get-role", body, 200},
		{"uma", "/update-role", `{"token_id":"` + made.TokenID + `","role":"admin"}`, 403},
		{"uma", "/update-role", `{"token_id":"` + made.TokenID + `","role":"boss"}`, 400},
		{"uma", "/update-role", `{"token_id":"` + made.TokenID + `","role":"viewer"}`, 200},
		{"uma", "", `{"token_name":" "}`, 400}, {"uma", "", `{"token_name":"x","expires_in_days":-1}`, 400}, {"vic", "", `{"token_name":"x"}`, 403},
	} {
		env.as = c.as
		if r := env.call(post, tokens+c.path, c.body); r.status != c.want {
			t.Errorf("%s as %s: %d %s, want %d", c.path, c.as, r.status, r.body, c.want)
		}
	}
	for who, want := range map[string]int{"uma": 1, "otto": 0, "vic": 0, "ada": 1} {
		env.as = who
		list := read[[]api.ServiceToken](t, env.call(get, tokens, ""))
		if len(list) != want {
			t.Errorf("%s sees %+v", who, list)
		}
		if want > 0 && (list[0].LastUsedAt == nil || list[0].CreatorName != "uma" || list[0].ServiceAccountRoles[0] != "viewer") {
			t.Errorf("%s sees %+v", who, list)
		}
		if text, _ := json.Marshal(list); strings.Contains(string(text), made.Token[20:]) {
			t.Error("a list tells a token")
		}
	}
	env.as = "uma"
	fresh := read[api.NewToken](t, env.call(post, tokens+"/rotate", body))
	if fresh.Token == made.Token || *fresh.ExpiresAt != *made.ExpiresAt || account(made.Token).ID != "" || account(fresh.Token).ID == "" {
		t.Errorf("%+v", fresh)
	}
	// A token that has ended lives again, for 30 days unless told otherwise.
	endsNow := func(hash string) {
		t.Helper()
		if err := env.store.Tokens().Rotate(t.Context(), made.TokenID, hash, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	endsNow("none")
	for ask, days := range map[string]int{body: 30, `{"token_id":"` + made.TokenID + `","expires_in_days":2}`: 2} {
		env.as = "uma"
		fresh = read[api.NewToken](t, env.call(post, tokens+"/rotate", ask))
		if left := time.Until(time.Unix(*fresh.ExpiresAt, 0)).Round(time.Hour); left != time.Duration(days)*day || account(fresh.Token).ID == "" {
			t.Errorf("%s: lives %v, %+v", ask, left, account(fresh.Token))
		}
		k, err := env.store.Tokens().Get(t.Context(), made.TokenID)
		if err != nil {
			t.Fatal(err)
		}
		endsNow(k.Hash)
		if id := account(fresh.Token).ID; id != "" {
			t.Errorf("a token that has ended is %s", id)
		}
	}
	env.as = "uma"
	if r := env.call(post, tokens+"/delete", body); r.status != 200 || account(fresh.Token).ID != "" {
		t.Errorf("revoked: %d %s", r.status, r.body)
	}
	env.as = ""
	if r := env.call(get, "/api/status", "", "Authorization", "Bearer sky_x"); r.status != 401 || r.header.Get("Cache-Control") != "no-store" || r.header.Get(api.HeaderAPIVersion) != "" {
		t.Errorf("a bad token: %d %v", r.status, r.header)
	}
}

// On a server without logins nobody can own a token.
func TestTokensNeedSomebody(t *testing.T) {
	env := newTestEnv(t)
	for path, want := range map[string]int{"": 400, "/delete": 400, "/rotate": 400} {
		if r := env.call(post, "/users/service-account-tokens"+path, `{"token_name":"x","token_id":"y"}`); r.status != want || !strings.Contains(string(r.body), "has no logins") { // 401 would make clients say: log in
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}

func TestBrowserLogin(t *testing.T) {
	env := newTestEnv(t, func(d *Deps) {
		gate, err := auth.New(t.Context(), d.Store, auth.Options{DefaultRole: func() string { return "user" }, Basic: true, Initial: "ada:abNANd1rDfiNc"})
		if err != nil {
			t.Fatal(err)
		}
		d.Gate = gate
	})
	password := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:secret"))}
	const verifier, challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
	page := "/auth/authorize?code_challenge=" + challenge
	if r := env.call(get, page, ""); r.status != 401 || r.header.Get("WWW-Authenticate") != `Basic realm="SkyPilot"` {
		t.Errorf("the page of nobody: %d %v", r.status, r.header)
	}
	if r := env.call(get, page, "", password...); r.status != 200 || !strings.Contains(r.body, challenge) || !strings.Contains(r.body, "ada") {
		t.Errorf("the page: %d %s", r.status, r.body)
	}
	if r := env.call(get, "/auth/authorize?code_challenge=</script><script>alert(1)", "", password...); strings.Contains(r.body, "<script>alert") {
		t.Errorf("a script in the address: %s", r.body)
	}
	poll := "/api/v1/auth/token?code_verifier=" + verifier
	if r := env.call(get, poll, ""); r.status != 404 {
		t.Errorf("before: %d %s", r.status, r.body)
	}
	if r := env.call(post, authorizePath, `{"code_challenge":"`+challenge+`"}`); r.status != 401 {
		t.Errorf("nobody agrees: %d", r.status)
	}
	if r := env.call(post, authorizePath, `{"code_challenge":"short"}`, password...); r.status != 400 {
		t.Errorf("a code that is none: %d", r.status)
	}
	if r := env.call(post, authorizePath, `{"code_challenge":"`+challenge+`"}`, append(password, "Sec-Fetch-Site", "cross-site")...); r.status != 403 {
		t.Errorf("another site agrees: %d", r.status)
	}
	if r := env.call(post, authorizePath, `{"code_challenge":"`+challenge+`"}`, password...); r.body != `{"status":"authorized"}` {
		t.Errorf("agreed: %d %s", r.status, r.body)
	}
	answer := read[map[string]string](t, env.call(get, poll, ""))
	if r := env.call(get, poll, ""); r.status != 404 {
		t.Errorf("again: %d %s", r.status, r.body)
	}
	raw, err := base64.StdEncoding.DecodeString(answer["token"])
	var token struct{ Cookies map[string]string }
	if err != nil || json.Unmarshal(raw, &token) != nil {
		t.Fatal(err, answer)
	}
	if r := env.call(get, "/users/role", "", "Cookie", auth.SessionCookie+"="+token.Cookies[auth.SessionCookie]); r.status != 200 || !strings.Contains(r.body, `"ada"`) {
		t.Errorf("with the login: %d %s", r.status, r.body)
	}
	if r := env.call(get, "/token?local_port=4242", "", password...); r.status != 200 || !strings.Contains(r.header.Get("Content-Security-Policy"), "http://localhost:4242") {
		t.Errorf("%d %v", r.status, r.header)
	}
	if r := env.call(get, "/token?local_port=x", "", password...); r.status != 400 {
		t.Errorf("a port that is none: %d", r.status)
	}
	if h := env.call(get, "/api/health", "").json(t).(map[string]any); h["status"] != "needs_auth" || h["basic_auth_enabled"] != true {
		t.Errorf("health: %v", h)
	}
}

// cutting is a response whose request ends as it is written.
type cutting struct {
	http.ResponseWriter
	cut context.CancelFunc
}

func (c cutting) Write(p []byte) (int, error) {
	c.cut()
	return c.ResponseWriter.Write(p)
}

// An export that cannot be read to its end breaks its connection: a file that ends
// well would be taken for all there is.
func TestAnAuditExportThatIsCutDoesNotLookWhole(t *testing.T) {
	env := newTestEnv(t)
	var wg sync.WaitGroup
	for i := range auditPage {
		wg.Go(func() {
			if err := env.store.Audit().Add(t.Context(), state.AuditEntry{ID: strconv.Itoa(i), Action: "sky.down"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	answer := httptest.NewRecorder()
	defer func() {
		if got := recover(); got != http.ErrAbortHandler || answer.Body.Len() == 0 {
			t.Errorf("the connection goes on: %v after %d bytes", got, answer.Body.Len())
		}
	}()
	ctx, cut := context.WithCancel(t.Context())
	env.server.auditLines(cutting{answer, cut}, httptest.NewRequestWithContext(ctx, "GET", "/audit", nil), state.AuditFilter{}, 0)
}

func TestAuditTrail(t *testing.T) {
	env := team(t)
	env.ownCluster("umas", "uma")
	env.as = "uma"
	down := env.ask("/down", `{"cluster_name":"umas","entrypoint_command":"sky down umas"}`)
	env.payload(down)
	env.ask("/status", `{}`) // changes nothing
	env.as = "otto"
	env.call(post, "/stop", `{"cluster_name":"umas"}`)
	env.call(post, "/users/create", `{"username":"x","password":"topsecret"}`)
	env.as = "ada"
	env.call(post, "/users/create", `{"username":"x","password":"topsecret"}`)
	env.call(post, "/start", `{}`)
	list := read[[]api.AuditRecord](t, env.call(get, "/audit", ""))
	var got []string
	for _, e := range list {
		got = append(got, strings.Join([]string{e.UserName, e.Action, e.Cluster, e.Command, e.Result}, " "))
		if e.Address != "203.0.113.9" || e.Login != auth.ByProxy || e.Role == "" || e.At == 0 || e.EndedAt == nil {
			t.Errorf("%+v", e)
		}
	}
	want := []string{"ada sky.start   FAILED", "ada /users/create   SUCCEEDED", "otto /users/create   DENIED", "otto sky.stop   DENIED", "uma sky.down umas sky down umas FAILED"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log tells\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if list[len(list)-1].ID != down {
		t.Errorf("the entry of request %s has the id %s", down, list[len(list)-1].ID)
	}
	for query, want := range map[string]int{"?user=uma": 1, "?cluster=um*": 1, "?since=0": 5, "?since=2199-01-01T00:00:00Z": 0, "?limit=2": 2, "?action=sky.down": 1} {
		if n := len(read[[]api.AuditRecord](t, env.call(get, "/audit"+query, ""))); n != want {
			t.Errorf("%s: %d entries, want %d", query, n, want)
		}
	}
	lines := env.call(get, "/audit?format=jsonl&limit=4", "")
	if n := strings.Count(lines.body, "\n"); n != 4 || strings.Contains(lines.body, "topsecret") {
		t.Errorf("%d lines: %s", n, lines.body)
	}
	if r := env.call(get, "/audit?since=yesterday", ""); r.status != 422 {
		t.Errorf("%d %s", r.status, r.body)
	}
	env.server.AuditKept = time.Nanosecond
	if err := env.server.keepAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := read[[]api.AuditRecord](t, env.call(get, "/audit", "")); len(left) != 0 {
		t.Errorf("kept: %+v", left)
	}
}

// A call that cannot be written down is not made.
func TestNoTrailNoChange(t *testing.T) {
	env := newTestEnv(t)
	r := env.call(post, "/users/create", `{"username":"x","password":"y"}`)
	if err := env.store.Audit().Add(t.Context(), state.AuditEntry{ID: "taken"}); err != nil || r.status != 200 {
		t.Fatal(err, r)
	}
	req, err := http.NewRequestWithContext(t.Context(), post, "/down", strings.NewReader(`{"cluster_name":"c"}`))
	if err != nil {
		t.Fatal(err)
	}
	tr := &auditTrail{entry: state.AuditEntry{ID: "taken"}}
	if err := env.server.note(req.WithContext(contextWithTrail(req, tr)), state.User{}, about{}); err == nil || tr.written {
		t.Error("two calls share an entry")
	}
}

func TestProxiesAreNotBelievedFromAnywhere(t *testing.T) {
	env := newTestEnv(t, func(d *Deps) {
		gate, err := auth.New(t.Context(), d.Store, auth.Options{DefaultRole: func() string { return "admin" },
			Proxy: auth.Proxy{Enabled: true, Explicit: true, Header: "X-Test", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}})
		if err != nil {
			t.Fatal(err)
		}
		d.Gate = gate
	})
	env.as = "ada"
	if r := env.call(get, "/users", ""); r.status != 401 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func contextWithTrail(r *http.Request, t *auditTrail) context.Context {
	return context.WithValue(r.Context(), trailKey{}, t)
}
