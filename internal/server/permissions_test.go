package server

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

var update = flag.Bool("update", false, "write the pages of the manual that are made from the route table")

// page compares a page of the manual with what it is made from.
func page(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || string(have) != want {
		t.Errorf("%s is not what the route table says (%v); write it with: go test ./internal/server -run %s -update", file, err, t.Name())
	}
}

func TestPermissionsPage(t *testing.T) { page(t, "../../docs/permissions.md", Permissions()) }

// The lists are those of the protocol: what a viewer may do, and what a user may
// not.
func TestEveryRouteHasAPermission(t *testing.T) {
	viewer := setOf(`GET/users GET/users/role GET/users/me/workspace GET/users/service-account-tokens GET/workspaces GET/volumes GET/recipes
		GET/ssh_node_pools GET/ssh_node_pools/{pool}/status GET/enabled_clouds GET/enabled_clouds/batch GET/slurm_node_info
		GET/status_kubernetes GET/all_contexts GET/storage/ls GET/upload_v2/blob GET/dashboard_config GET/dashboard GET/dashboard/{path...}
		GET/token GET/auth/authorize
		POST/status POST/endpoints POST/cost_report POST/cluster_events POST/queue POST/job_status POST/logs POST/download_logs POST/download
		POST/provision_logs POST/hook_logs POST/autostop_logs POST/jobs/queue POST/jobs/queue/v2 POST/jobs/wait POST/jobs/logs POST/jobs/download_logs
		POST/jobs/pool_status POST/jobs/pool_logs POST/jobs/pool_sync-down-logs POST/jobs/events POST/jobs/schedules POST/serve/status POST/serve/logs
		POST/serve/sync-down-logs POST/volumes/validate POST/recipes/list POST/recipes/get POST/realtime_kubernetes_gpu_availability
		POST/kubernetes_node_info POST/slurm_gpu_availability POST/slurm_node_info POST/list_accelerators POST/list_accelerator_counts GET/catalog/status POST/availability
		POST/bench/list POST/bench/show
		POST/validate POST/optimize GET/metrics`)()
	admin := setOf(`GET/serve/balancer/table GET/serve/balancer/connect POST/serve/balancer/report GET/workspaces/config POST/workspaces/config POST/workspaces/update POST/workspaces/create POST/workspaces/delete POST/workspaces/batch_add_users
		POST/workspaces/batch_remove_users POST/users/delete POST/users/create POST/users/batch_update POST/users/import POST/debug/dump_create POST/debug/dump POST/backup
		GET/users/export GET/debug/dump_download/{name} GET/audit POST/sweep
		POST/ssh_node_pools DELETE/ssh_node_pools/{pool} GET/ssh_node_pools/keys POST/ssh_node_pools/keys POST/local_up POST/local_down`)() // see [OwnMachines]; of the server's own machine
	anyone := setOf(`GET/api/health GET/{$} GET/api/v1/auth/token GET/api/openapi.json GET/api/docs`)()
	seen := map[string]bool{}
	for _, r := range Routes() {
		key := r.Method + r.Path
		if seen[key] {
			t.Errorf("%s is in the table twice", key)
		}
		seen[key] = true
		want := User
		switch {
		case anyone[key]:
			want = Anyone
		case viewer[key] || strings.HasPrefix(r.Path, "/api/"):
			want = Viewer
		case admin[key]:
			want = Admin
		}
		if r.Role != want {
			t.Errorf("%s: role %d, want %d", key, r.Role, want)
		}
		if r.Kind == 0 {
			t.Errorf("%s has no kind", key)
		}
		if isRequest := r.Kind == Async || r.Kind == Log; isRequest != (r.Name != "") || isRequest == (r.handle != nil) {
			t.Errorf("%s: a request has a name and nothing else has one; the others have a handler", key)
		}
		if r.Method == post && r.Body == nil && r.Kind != Direct && !strings.Contains(r.Path, "{pool}") {
			t.Errorf("%s checks no body", key)
		}
		if r.Empty != "" && !json.Valid([]byte(r.Empty)) {
			t.Errorf("%s: its empty result is not JSON", key)
		}
	}
	for _, list := range []map[string]bool{viewer, admin, anyone} {
		for key := range list {
			if !seen[key] {
				t.Errorf("%s is not in the table", key)
			}
		}
	}
}

// ownCluster stores a cluster of somebody's.
func (env *testEnv) ownCluster(name, owner string, workspace ...string) {
	env.t.Helper()
	workspace = append(workspace, "default")
	c := &state.Cluster{Name: name, Hash: name + "-hash", NameOnCloud: name, Status: api.ClusterUp, UserHash: auth.UserID(owner), UserName: owner,
		Workspace: workspace[0], Offer: cloud.Offer{}, NumNodes: 1, AutostopMinutes: -1}
	if err := env.store.Clusters().Create(env.t.Context(), c); err != nil {
		env.t.Fatal(err)
	}
}

// sample is a body that a route accepts, about the caller's own things or, for
// the others, about what is not theirs.
func (env *testEnv) sample(r Route) string {
	if r.Body == nil {
		return ""
	}
	if r.Body.of.Kind() != reflect.Struct {
		return "{}"
	}
	fields := map[string]any{}
	for _, f := range reflect.VisibleFields(r.Body.of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch kind := f.Type.Kind(); {
		case name == "cluster_name" || name == "cluster":
			fields[name] = "umas"
		case name == "user_id" && r.Path == "/users/update":
			fields[name] = auth.UserID("uma")
		case name == "password" && r.Path == "/users/update":
			fields[name] = "new"
		case !containsWord(r.Body.required, name):
		case kind == reflect.String:
			fields[name] = "x"
		case kind == reflect.Int:
			fields[name] = 1
		case kind == reflect.Slice:
			fields[name] = []string{}
		case kind == reflect.Bool, kind == reflect.Pointer && f.Type.Elem().Kind() == reflect.Bool:
			fields[name] = true
		case kind == reflect.Map:
			fields[name] = map[string]any{}
		}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		env.t.Fatal(err)
	}
	return string(b)
}

func containsWord(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// Every route is called by everybody; the table says who gets through. A
// workspace that was removed opens and closes for what is in it as before.
func TestPermissionMatrix(t *testing.T) {
	t.Run("workspace", func(t *testing.T) { permissionMatrix(t, false) })
	t.Run("removed workspace", func(t *testing.T) { permissionMatrix(t, true) })
}

func permissionMatrix(t *testing.T, removed bool) {
	env := newTestEnvOf(t, func(*testEnv) {}, people(t, map[string]string{"vic": "viewer", "uma": "user", "otto": "user", "wes": "user", "ada": "admin"}), func(d *Deps) {
		d.Rules = func() Rules {
			return Rules{Workspaces: []config.Workspace{{Name: "default"}, {Name: "lab", Private: true, AllowedUsers: []string{"uma", "otto", "vic"}, Removed: removed}}}
		}
	})
	env.ownCluster("umas", "uma", "lab")
	for _, r := range Routes() {
		nobody, viewer, user, admin := r.Access()
		other := user
		if r.ownerOnly() && !strings.HasPrefix(r.Path, "/users/service-account-tokens/") { // those tokens do not exist: TestTokens has some
			other = Closed
		}
		if r.Path == "/kubernetes-pod-ssh-proxy" || r.Path == "/slurm-job-ssh-proxy" || r.Path == "/ssh-interactive-auth" {
			other = Closed // asked about the same cluster
		}
		elsewhere := r.Elsewhere()
		if other == Closed { // whatever it is about belongs to uma
			elsewhere = Closed
		}
		for _, c := range []struct {
			who  string
			want Access
		}{{"", nobody}, {"vic", viewer}, {"uma", user}, {"otto", other}, {"wes", elsewhere}, {"ada", admin}} {
			env.as = c.who
			path := strings.NewReplacer("{pool}", "p", "{name}", "n", "{path...}", "", "{$}", "").Replace(r.Path)
			if r.Kind == Socket {
				path += "?cluster_name=umas"
			}
			got := env.call(r.Method, path, env.sample(r))
			want := map[Access]int{Login: http.StatusUnauthorized, Closed: http.StatusForbidden}[c.want]
			refused := got.status == http.StatusUnauthorized || got.status == http.StatusForbidden
			if want != 0 && got.status != want || want == 0 && refused {
				t.Errorf("%s %s as %q: %d %s, want %s", r.Method, r.Path, c.who, got.status, got.body, c.want)
			}
			if removed && r.Path == "/launch" && (c.who == "uma" || c.who == "ada") && got.status != http.StatusBadRequest {
				t.Errorf("%s launches in a removed workspace: %d %s", c.who, got.status, got.body)
			}
			if versioned := got.header.Get(api.HeaderAPIVersion) != ""; refused && r.Kind != Socket && c.who != "otto" && c.who != "wes" && versioned {
				t.Errorf("%s %s as %q: a refusal with a version", r.Method, r.Path, c.who)
			}
		}
	}
}

func TestPolicyOfAnInstallation(t *testing.T) {
	env := newTestEnvOf(t, func(*testEnv) {}, people(t, map[string]string{"vic": "viewer", "uma": "user"}), func(d *Deps) {
		d.Rules = func() Rules {
			return Rules{Policy: auth.Policy{
				Blocked: map[string][]auth.Rule{"user": {{Method: "POST", Path: "/check"}, {Method: "DELETE", Path: "/ssh_node_pools/:pool"}}},
				Allowed: []auth.Rule{{Method: "POST", Path: "/check"}},
			}}
		}
	})
	open := newTestEnvOf(t, func(*testEnv) {}, people(t, map[string]string{"vic": "viewer", "uma": "user"}), func(d *Deps) {
		d.Rules = func() Rules {
			return Rules{Policy: auth.Policy{Opened: []auth.Rule{{Method: "GET", Path: "/workspaces/config"}}}, Links: []any{map[string]any{"label": "runs"}}}
		}
	})
	for who, want := range map[string]int{"vic": 403, "uma": 200} {
		if open.as = who; open.call(get, "/workspaces/config", "").status != want {
			t.Errorf("%s reads the configuration, or not", who)
		}
	}
	if got := open.call(get, "/dashboard_config", "").body; !strings.Contains(got, `{"external_links":[{"label":"runs"}]}`) {
		t.Errorf("links of the dashboard: %s", got)
	}
	for _, c := range []struct {
		who, method, path, body string
		want                    int
	}{
		{"uma", post, "/check", `{}`, 403}, {"vic", post, "/check", `{}`, 200},
		{"uma", get, "/users/export", ``, 200}, {"uma", get, "/workspaces/config", ``, 200}, {"vic", get, "/users/export", ``, 403},
		{"uma", del, "/ssh_node_pools/x", ``, 403}, {"vic", post, "/status", `{}`, 200},
	} {
		env.as = c.who
		if r := env.call(c.method, c.path, c.body); r.status != c.want {
			t.Errorf("%s %s as %s: %d %s, want %d", c.method, c.path, c.who, r.status, r.body, c.want)
		}
	}
}

func TestViewersMakeNoWorkAndGetNoKeys(t *testing.T) {
	env := newTestEnv(t, people(t, map[string]string{"vic": "viewer", "uma": "user"}))
	for _, body := range []string{
		`{"cluster_names":["c"],"refresh":"FORCE","include_credentials":true}`, `{"cluster_names":["c"],"REFRESH":"AUTO","Include_Credentials":true}`,
	} {
		for who, want := range map[string]string{"vic": `"include_credentials":false`, "uma": `"include_credentials":true`} {
			env.as = who
			req, err := env.store.Requests().Get(t.Context(), env.ask("/status", body))
			if err != nil {
				t.Fatal(err)
			}
			kept := strings.ToLower(string(req.Body))
			asks := strings.Contains(kept, "refresh") || strings.Contains(kept, `credentials":true`)
			if !strings.Contains(kept, want) || asks == (who == "vic") {
				t.Errorf("%s asks for %s", who, req.Body)
			}
		}
	}
}

func TestRequestsOfOthers(t *testing.T) {
	env := newTestEnv(t, people(t, map[string]string{"vic": "viewer", "uma": "user", "otto": "user", "ada": "admin"}))
	env.as = "uma"
	env.ownCluster("umas", "uma")
	id := env.ask("/stop", `{"cluster_name":"umas"}`)
	cancelled := func(who, body string, want int) string {
		t.Helper()
		env.as = who
		r := env.call(post, "/api/cancel", body)
		if r.status != want {
			t.Fatalf("%s cancels %s: %d %s, want %d", who, body, r.status, r.body, want)
		}
		if want != 200 {
			return ""
		}
		_, p := env.payload(r.id())
		return p.ReturnValue
	}
	one := `{"request_ids":["` + id + `"]}`
	cancelled("vic", one, 403)
	cancelled("otto", one, 403)
	if got := cancelled("otto", `{"request_ids":null}`, 200); got != "[]" {
		t.Errorf("cancelling all of one's own ended %s", got)
	}
	for _, field := range []string{"user_id", "USER_ID"} {
		if got := cancelled("otto", `{"`+field+`":"`+auth.UserID("uma")+`"}`, 200); got != "[]" {
			t.Errorf("cancelling somebody else's ended %s", got)
		}
	}
	env.as = "vic"
	if r := env.call(get, "/api/get?request_id="+id, ""); r.status != 403 {
		t.Errorf("a viewer reads a result: %d", r.status)
	}
	if got := cancelled("ada", one, 200); got != `["`+id+`"]` {
		t.Errorf("an administrator's cancel ended %s", got)
	}
}

func TestAllUsersAreForAdministrators(t *testing.T) {
	env := newTestEnv(t, people(t, map[string]string{"uma": "user", "ada": "admin"}))
	env.ownCluster("umas", "uma")
	for who, want := range map[string]int{"uma": 403, "ada": 200} {
		env.as = who
		if r := env.call(post, "/cancel", `{"cluster_name":"umas","all_users":true}`); r.status != want {
			t.Errorf("%s: %d %s", who, r.status, r.body)
		}
		if r := env.call(post, "/queue", `{"cluster_name":"umas","all_users":true}`); r.status != 200 {
			t.Errorf("%s looks: %d %s", who, r.status, r.body)
		}
	}
	env.ownCluster("adas", "ada")
	env.as = "uma"
	if r := env.call(post, "/stop", `{"cluster_name":"*s"}`); r.status != 403 {
		t.Errorf("a pattern that matches another's cluster: %d %s", r.status, r.body)
	}
}
