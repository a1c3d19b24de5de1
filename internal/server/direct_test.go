package server

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

func TestValidateFailsAtOnceAs400(t *testing.T) {
	var asked api.DagBody
	var by state.User
	env := newTestEnv(t, func(d *Deps) {
		d.Validate = func(_ context.Context, b api.DagBody, u state.User) error {
			asked, by = b, u
			if b.Dag == "good" {
				return nil
			}
			return &api.Error{Type: api.ErrClusterNotUp, Message: "not up", Attributes: map[string]any{"cluster_status": api.ClusterStopped}}
		}
		d.ValidateVolume = func(context.Context, api.VolumeValidateBody, state.User) error { return nil }
	})
	vars := `,"request_options":{"cluster_name":"c","dryrun":true},"env_vars":{"SKYPILOT_USER_ID":"ab12"}}`
	if r := env.call(post, "/validate", `{"dag":"good"`+vars); r.status != 200 || r.body != "null" {
		t.Errorf("a good one: %d %s", r.status, r.body)
	}
	if asked.RequestOptions == nil || !asked.RequestOptions.Dryrun || by.ID != "ab12" || asked.ClientAPIVersion == nil || *asked.ClientAPIVersion != 53 {
		t.Errorf("asked %+v by %+v", asked, by)
	}
	r := env.call(post, "/validate", `{"dag":"bad"`+vars)
	want := `{"detail":{"args":["not up"],"attributes":{"cluster_status":"STOPPED","handle":null},"message":"not up","stacktrace":null,"type":"ClusterNotUpError"}}`
	if r.status != 400 || r.body != want {
		t.Errorf("a bad one: %d %s", r.status, r.body)
	}
	if r := env.call(post, "/volumes/validate", `{"name":"v","size":"10"}`); r.status != 200 {
		t.Errorf("a volume: %d %s", r.status, r.body)
	}
}

func TestCompletion(t *testing.T) {
	env := newTestEnv(t, func(d *Deps) {
		d.StorageNames = func(_ context.Context, _ *state.Scope, prefix string) ([]string, error) {
			return []string{prefix + "-bucket"}, nil
		}
	})
	for _, name := range []string{"train-1", "train-2", "serve"} {
		if err := env.store.Clusters().Create(t.Context(), &state.Cluster{Name: name, Hash: name, Status: api.ClusterUp, LaunchedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	id := env.ask("/status", `{}`)
	for _, c := range []struct{ kind, prefix, want string }{
		{"cluster_name", "tr", `["train-1","train-2"]`},
		{"cluster_name", "x", `[]`},
		{"cluster_name", "", `["serve","train-1","train-2"]`},
		{"storage_name", "my", `["my-bucket"]`},
		{"volume_name", "my", `[]`},
		{"api_request", id[:8], `["` + id + `"]`},
		{"api_request", "", `["` + id + `"]`},
	} {
		r := env.call(get, "/api/completion/"+c.kind+"?incomplete="+c.prefix, "")
		if r.status != 200 || r.body != c.want {
			t.Errorf("%s %q: %d %s, want %s", c.kind, c.prefix, r.status, r.body, c.want)
		}
	}
}

func TestWorkspaceOfWhoeverIsLoggedIn(t *testing.T) {
	spaces := func(d *Deps) {
		d.Rules = func() Rules {
			return Rules{Workspaces: []config.Workspace{{Name: "default"}, {Name: "team", Private: true, AllowedUsers: []string{"uma"}}}}
		}
	}
	env := newTestEnv(t, people(t, map[string]string{"uma": "user", "otto": "user"}), spaces)
	env.as = "uma"
	for query, want := range map[string]string{
		"":                   `"workspace":"default","source":"default-fallback"`,
		"?requested=default": `"workspace":"default","source":"explicit"`,
		"?requested=team":    `"workspace":"team","source":"explicit"`,
		"?requested=other":   `"workspace":null,"source":"permission-denied"`,
	} {
		if r := env.call(get, "/users/me/workspace"+query, ""); r.status != 200 || !strings.Contains(r.body, want) {
			t.Errorf("%s: %d %s", query, r.status, r.body)
		}
	}
	for body, want := range map[string]int{`{"preferred":"default"}`: 200, `{"preferred":null}`: 200, `{"preferred":"other"}`: 404, `{"preferred":7}`: 422} {
		if r := env.call(post, "/users/me/workspace", body); r.status != want {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	if r := env.call(post, "/users/me/workspace", `{"preferred":"team"}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := env.call(get, "/users/me/workspace", ""); !strings.Contains(r.body, `"workspace":"team","source":"preferred"`) {
		t.Errorf("preferred: %s", r.body)
	}
	env.as = "otto"
	if r := env.call(post, "/users/me/workspace", `{"preferred":"team"}`); r.status != 403 {
		t.Errorf("a private workspace of others: %d %s", r.status, r.body)
	}
}

// What a GET asks in its query reaches the verb as its body.
func TestQueriesBecomeBodies(t *testing.T) {
	env := newTestEnv(t)
	for path, want := range map[string]string{
		"/enabled_clouds?workspace=w&expand=True":          `"expand":true,"workspace":"w"`,
		"/enabled_clouds/batch?workspaces=a,%20b&expand=0": `"expand":false,"workspaces":["a","b"]`,
		"/volumes?refresh=yes":                             `"refresh":true`,
	} {
		r := env.call(get, path, "")
		req, err := env.store.Requests().Get(t.Context(), r.id())
		if err != nil {
			t.Fatal(path, r.body, err)
		}
		if !strings.Contains(string(req.Body), want) || req.UserID != "5e1f" {
			t.Errorf("%s: body %s of %s", path, req.Body, req.UserID)
		}
	}
}

func TestHousekeepingStopsWithItsContext(t *testing.T) {
	env := newTestEnv(t)
	path := env.file(BlobDir("ab12", testBlob)+"/x", "")
	old := time.Now().Add(-2 * uploadKept)
	if err := os.Chtimes(strings.TrimSuffix(path, "/x"), old, old); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { env.server.Housekeep(ctx); close(done) }()
	for {
		if _, err := os.Stat(path); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
}

// A service account that somebody named after another user is not let in where
// that user is.
func TestNamesOfServiceAccountsOpenNothing(t *testing.T) {
	r := Rules{Workspaces: []config.Workspace{{Name: "team", Private: true, AllowedUsers: []string{"uma", "sa-2"}}}}
	for _, c := range []struct {
		u    state.User
		want int
	}{
		{state.User{ID: "5e1f", Name: "uma", Role: "user"}, 1},
		{state.User{ID: "sa-1", Name: "uma", Role: "user"}, 0},
		{state.User{ID: "sa-2", Name: "ci", Role: "user"}, 1},
		{state.User{ID: "sa-3", Name: "ci", Role: "admin"}, 1},
	} {
		if got := r.accessible(c.u); len(got) != c.want {
			t.Errorf("%+v may use %v", c.u, got)
		}
	}
}
