package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/state"
)

func TestLoginDecidesWhoItIs(t *testing.T) {
	env := newTestEnv(t, people(t, map[string]string{"ada": "admin"}))
	env.as = "ada"
	for _, field := range []string{"env_vars", "ENV_VARS"} {
		id := env.ask("/launch", `{"task":"run: x","cluster_name":"c","`+field+`":{"SKYPILOT_USER_ID":"eve1"}}`)
		if _, p := env.payload(id); p.UserID != auth.UserID("ada") {
			t.Errorf("ran as %s", p.UserID)
		}
		req, err := env.store.Requests().Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(req.Body), "eve") || req.ClientAPI != 53 || !strings.Contains(string(req.Body), `"client_api_version":53`) {
			t.Errorf("kept body: %s", req.Body)
		}
	}
}

func TestHealthWithALogin(t *testing.T) {
	env := newTestEnv(t, people(t, map[string]string{"ada": "admin"}))
	if h := env.call(get, "/api/health", "").json(t).(map[string]any); h["status"] != "needs_auth" || h["commit"] == "" {
		t.Errorf("anonymous client: %v", h)
	}
	if h := env.call(get, "/api/health", "", "X-Test", "ada").json(t).(map[string]any); h["status"] != "healthy" || h["user"].(map[string]any)["id"] != auth.UserID("ada") {
		t.Errorf("ada: %v", h)
	}
	env.api = ""
	if r := env.call(get, "/api/health", ""); strings.TrimSpace(r.body) != `{"status":"healthy"}` {
		t.Errorf("probe: %s", r.body)
	}
}

func TestHosts(t *testing.T) {
	env := newTestEnv(t, func(d *Deps) { d.Hosts = []string{"sky.example.org", "192.0.2.7"} })
	for host, want := range map[string]int{
		"127.0.0.1:46580": 200, "localhost:46580": 200, "LOCALHOST": 200, "[::1]:46580": 200, "127.9.9.9": 200, "x.localhost": 200,
		"0.0.0.0:46580": 200, "sky.example.org": 200, "SKY.example.org:443": 200, "192.0.2.7": 200,
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "evillocalhost": 403, "evil-localhost:80": 403, "192.0.2.8": 403, "10.0.0.1:80": 403,
	} {
		if r := env.call(get, "/api/health", "", "Host", host); r.status != want {
			t.Errorf("Host %s: %d, want %d", host, r.status, want)
		}
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	env := newTestEnv(t)
	own := strings.TrimPrefix(env.url, "http://")
	for _, c := range []struct {
		name, method, path string
		headers            []string
		want               int
	}{
		{"a client that is no browser", post, "/status", nil, 200},
		{"our own page", post, "/status", []string{"Origin", "http://" + own, "Sec-Fetch-Site", "same-origin"}, 200},
		{"a form elsewhere", post, "/status", []string{"Origin", "https://evil.example"}, 403},
		{"a sandboxed page", post, "/status", []string{"Origin", "null"}, 403},
		{"another port of this machine", post, "/status", []string{"Origin", "http://localhost:1"}, 403},
		{"what the browser says", post, "/status", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a sibling domain", post, "/status", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"an image elsewhere that starts a request", get, "/workspaces", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a script elsewhere that reads", get, "/api/status", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a link to the dashboard", get, "/dashboard/", []string{"Sec-Fetch-Site", "cross-site"}, 200},
		{"the address bar", get, "/api/status", []string{"Sec-Fetch-Site", "none"}, 200},
		{"a socket from elsewhere", get, "/shell?cluster_name=c", []string{"Origin", "https://evil.example", "Connection", "Upgrade", "Upgrade", "websocket"}, 403},
	} {
		body := ""
		if c.method == post {
			body = "{}"
		}
		if r := env.call(c.method, c.path, body, c.headers...); r.status != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, r.status, r.body, c.want)
		}
	}
	if r := env.call(post, "/status", "{}", "Content-Type", "text/plain"); r.status != 422 {
		t.Errorf("a body that browsers may send anywhere: %d", r.status)
	}
}

func TestIdentityWithoutLogin(t *testing.T) {
	env := newTestEnv(t)
	for _, c := range []struct{ body, id, name string }{
		{`{"env_vars":{"SKYPILOT_USER_ID":"ab12","SKYPILOT_USER":"eve"}}`, "ab12", "eve"},
		{`{"env_vars":{"SKYPILOT_USER_ID":"ab12"}}`, "ab12", "eve"},
		{`{"env_vars":{}}`, "5e1f", "server"},
		{`{}`, "5e1f", "server"},
	} {
		if _, p := env.payload(env.ask("/status", c.body)); p.UserID != c.id || *p.UserName != c.name {
			t.Errorf("%s ran as %s (%s)", c.body, p.UserID, *p.UserName)
		}
	}
	for _, bad := range []string{"../etc", "a/b", "-a", "a b", strings.Repeat("a", 200)} {
		body, _ := json.Marshal(map[string]any{"env_vars": map[string]string{"SKYPILOT_USER_ID": bad}})
		if r := env.call(post, "/status", string(body)); r.status != 400 {
			t.Errorf("user id %q: %d", bad, r.status)
		}
	}
	users := env.call(get, "/users", "").json(t).([]any)
	if len(users) != 2 || users[0].(map[string]any)["id"] != "ab12" || users[0].(map[string]any)["role"] != "admin" {
		t.Errorf("users: %v", users)
	}
	if r := env.call(get, "/users/role", ""); r.body != `{"id":"","name":"","role":"admin"}` {
		t.Errorf("role: %s", r.body)
	}
}

func TestVersions(t *testing.T) {
	env := newTestEnv(t)
	for _, c := range []struct {
		told    string
		status  int
		headers bool
	}{
		{"", 200, false}, {"53", 200, true}, {"24", 200, true}, {"99", 200, true}, {"23", 400, true}, {"x", 400, true},
	} {
		env.api = c.told
		r := env.call(get, "/api/health", "")
		if r.status != c.status || (r.header.Get(api.HeaderAPIVersion) == "53") != c.headers || (r.header.Get(api.HeaderVersion) != "") != c.headers {
			t.Errorf("version %q: %d %v", c.told, r.status, r.header)
		}
		if c.status == 400 && r.json(t).(map[string]any)["error"] != "version_mismatch" {
			t.Errorf("version %q: %s", c.told, r.body)
		}
		if r.id() == "" {
			t.Errorf("version %q: no request id", c.told)
		}
	}
}

func TestPanicsAnswer500(t *testing.T) {
	env := newTestEnv(t, func(d *Deps) {
		d.StorageNames = func(context.Context, *state.Scope, string) ([]string, error) { panic("oops") }
	})
	r := env.call(get, "/api/completion/storage_name", "")
	if r.status != 500 || r.json(t).(map[string]any)["detail"] == nil || strings.Contains(r.body, "oops") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestSizeLimit(t *testing.T) {
	env := newTestEnv(t)
	body := `{"cluster_names":["` + strings.Repeat("a", maxBody) + `"]}`
	if r := env.call(post, "/status", body); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", r.status, r.body)
	}
}
