package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// A call may be repeated under its id for a while: the same call, by the same user,
// about the same thing.
func TestWhichCallsMayShareAnID(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	for _, c := range []struct {
		name   string
		change func(e *state.AuditEntry)
		age    time.Duration
		good   bool
	}{
		{"the same call", func(*state.AuditEntry) {}, 0, true},
		{"the same call later", func(*state.AuditEntry) {}, repeatWithin - time.Minute, true},
		{"the same call much later", func(*state.AuditEntry) {}, repeatWithin + time.Minute, false},
		{"by another user", func(e *state.AuditEntry) { e.UserID = "cd34" }, 0, false},
		{"another request", func(e *state.AuditEntry) { e.Action = "sky.stop" }, 0, false},
		{"another path", func(e *state.AuditEntry) { e.Path = "/other" }, 0, false},
		{"about another cluster", func(e *state.AuditEntry) { e.Cluster = "d" }, 0, false},
		{"by another name of the user", func(e *state.AuditEntry) { e.UserName = "eve" }, 0, true},
	} {
		e := state.AuditEntry{ID: uuid.NewString(), UserID: "ab12", Action: "sky.down", Path: "/down", Cluster: "c", Queued: true, At: time.Now().Add(-c.age)}
		if err := env.store.Audit().Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		c.change(&e)
		if err := env.server.noted(t.Context(), e); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		} else if err != nil && statusOf(err) != http.StatusConflict {
			t.Errorf("%s: %d %v", c.name, statusOf(err), err)
		}
	}
	if err := env.server.noted(t.Context(), state.AuditEntry{ID: "none"}); err == nil {
		t.Error("a call that was not noted may be repeated")
	}
}

func TestTheAuditLogTellsWhoCalledAndHowItEnded(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	const vars = `"env_vars":{"SKYPILOT_USER_ID":"ab12","SKYPILOT_USER":"eve"}`
	for _, c := range []struct {
		path, body string
		want       string // action, user, name, cluster, result, detail
	}{
		{"/users/create", `{"username":"a","password":"b",` + vars + `}`, "/users/create ab12 eve  SUCCEEDED "},
		{"/users/create", `{"username":"a","password":"b"}`, "/users/create 5e1f server  FAILED Bad Request"},
		{"/users/create", `{"username":"a","password":"b","env_vars":{"SKYPILOT_USER_ID":"../x"}}`, "/users/create 5e1f server  FAILED Bad Request"},
		{"/upload_v2?cluster_name=c", ``, "/upload_v2 5e1f server c FAILED Bad Request"},
		{"/users/create", `{`, "/users/create 5e1f server  FAILED Unprocessable Entity"},
		{"/exec", `{"task":"x","cluster_name":"nosuch",` + vars + `}`, "sky.exec ab12 eve nosuch FAILED "},
		{"/launch", `{"cluster_name":"c"}`, "sky.launch 5e1f server  FAILED Unprocessable Entity"},
	} {
		r := env.call(post, c.path, c.body)
		if strings.HasPrefix(c.want, "sky.exec") {
			env.payload(r.id())
		}
		if err := env.server.keepAudit(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := env.store.Audit().List(t.Context(), state.AuditFilter{})
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		e := list[0]
		if got := strings.Join([]string{e.Action, e.UserID, e.UserName, e.Cluster, e.Result, e.Detail}, " "); got != c.want || e.ID != r.id() || e.Method != post || e.Address == "" {
			t.Errorf("%s %s: %q (%+v), want %q", c.path, c.body, got, e, c.want)
		}
	}
	before, err := env.store.Audit().List(t.Context(), state.AuditFilter{})
	if err != nil {
		t.Fatal(err)
	}
	env.payload(env.ask("/status", `{}`))
	env.call(get, "/users", "")
	if after, err := env.store.Audit().List(t.Context(), state.AuditFilter{}); err != nil || len(after) != len(before) {
		t.Errorf("reads leave a trail: %+v %v", after, err)
	}
	for kept, want := range map[time.Duration]bool{0: true, time.Hour: true} { // 0 is for ever
		env.server.AuditKept = kept
		if err := env.server.keepAudit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after, err := env.store.Audit().List(t.Context(), state.AuditFilter{}); err != nil || (len(after) == len(before)) != want {
			t.Errorf("kept for %v: %d of %d, %v", kept, len(after), len(before), err)
		}
	}
}

// A handler that panics is in the log as one that failed.
func TestAPanicIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	routes := Routes()
	rt := routes[slices.IndexFunc(routes, func(rt Route) bool { return rt.Path == "/users/create" })]
	rt.handle = func(*Server, http.ResponseWriter, *http.Request) { panic("oops") }
	r := httptest.NewRequestWithContext(t.Context(), post, "http://localhost/users/create", strings.NewReader(`{"username":"a","password":"b"}`))
	a, r := env.server.accept(httptest.NewRecorder(), r)
	func() {
		defer env.server.finish(a, r)
		env.server.route(rt).ServeHTTP(a, r)
	}()
	list, err := env.store.Audit().List(t.Context(), state.AuditFilter{})
	if err != nil || len(list) != 1 || list[0].Result != "FAILED" || list[0].Detail != "Internal Server Error" || a.status != 500 {
		t.Errorf("%+v %v, answered %d", list, err, a.status)
	}
}

// No call is answered as done when the database refused a change of it.
func TestNothingIsDoneThatTheDatabaseRefused(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	id := auth.UserID
	env := newTestEnv(t, people(t, map[string]string{"uma": "user", "ada": "admin"}))
	env.as = "ada"
	made := read[api.NewToken](t, env.call(post, "/users/service-account-tokens", `{"token_name":"ci"}`))
	store := env.store
	for _, c := range []struct{ path, body string }{
		{"/users/create", `{"username":"new","password":"pw"}`},
		{"/users/update", `{"user_id":"` + id("uma") + `","role":"viewer"}`},
		{"/users/update", `{"user_id":"` + id("uma") + `","password":"new"}`},
		{"/users/update", `{"user_id":"` + id("uma") + `","role":"viewer","password":"new"}`},
		{"/users/me/workspace", `{"preferred":"default"}`},
		{"/users/service-account-tokens", `{"token_name":"x"}`},
		{"/users/service-account-tokens/rotate", `{"token_id":"` + made.TokenID + `"}`},
		{"/users/service-account-tokens/update-role", `{"token_id":"` + made.TokenID + `","role":"viewer"}`},
		{"/users/service-account-tokens/delete", `{"token_id":"` + made.TokenID + `"}`},
		{"/users/delete", `{"user_id":"` + id("uma") + `"}`},
		{authorizePath, `{"code_challenge":"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"}`},
	} {
		changes := 0
		for fail := 1; ; fail++ {
			changes = 0
			env.server.Store = store.Gated(func(change func() error) error {
				if changes++; changes == fail {
					return refused
				}
				return change()
			})
			r := env.call(post, c.path, c.body)
			if changes <= fail { // the last one reports how the call ended
				if r.status != 200 {
					t.Errorf("%s %s: %d %s", c.path, c.body, r.status, r.body)
				}
				break
			}
			if r.status < 400 {
				t.Errorf("%s %s: change %d was refused, and the answer is %d %s", c.path, c.body, fail, r.status, r.body)
			}
		}
		if changes < 3 {
			t.Errorf("%s %s made %d changes", c.path, c.body, changes)
		}
	}
}

// What the database cannot tell is not answered as if there were nothing.
func TestNothingIsToldThatTheDatabaseCannotRead(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	broken, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	broken.Close()
	env.server.Store = broken
	for _, path := range []string{"/users", "/users/export", "/users/service-account-tokens", "/audit", "/audit?format=jsonl", "/metrics",
		"/api/completion/cluster_name", "/debug/dump_download/x.zip", auth.PollPath + "?code_verifier=dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"} {
		if r := env.call(get, path, ""); r.status != 500 || !strings.HasPrefix(r.body, `{"detail":`) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	for path, body := range map[string]string{"/stop": `{"cluster_name":"c"}`, "/status": `{}`, "/users/create": `{"username":"a","password":"b"}`, "/queue": `{"cluster_name":"c"}`} {
		if r := env.call(post, path, body); r.status < 500 {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	// A dump is wanted most when something is broken.
	r := env.call(post, "/debug/dump", `{"request_ids":["a"]}`)
	if r.status != 500 { // nobody could note who asked
		t.Errorf("a dump that is not noted: %d", r.status)
	}
	a := &memoryArchive{}
	if err := env.server.writeDump(t.Context(), api.DebugDumpBody{RequestIDs: []string{"a"}}, a); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"requests.json", "managed_jobs.json", "clusters.json", "attempts.json", "metrics.txt", "server.log"} {
		if !strings.Contains(a.files["problems.txt"], part+": ") {
			t.Errorf("no problem with %s:\n%s", part, a.files["problems.txt"])
		}
	}
	if n := strings.Count(a.files["problems.txt"], "requests.json: "); n != 2 || a.files["about.json"] == "" || a.files["requests.json"] != "[]\n" {
		t.Errorf("%q", a.files)
	}
	// An archive that cannot be written is another matter.
	a.err = errors.New("the client is gone")
	if err := env.server.writeDump(t.Context(), api.DebugDumpBody{}, a); !errors.Is(err, a.err) {
		t.Error(err)
	}
}

// memoryArchive keeps what is added.
type memoryArchive struct {
	files map[string]string
	err   error
}

func (m *memoryArchive) add(name string, _ time.Time, text []byte) error {
	if m.files == nil {
		m.files = map[string]string{}
	}
	m.files[name] = string(text)
	return m.err
}

func (m *memoryArchive) Close() error { return nil }

func TestWhoMayBeChangedAndDeleted(t *testing.T) {
	t.Parallel()
	env := team(t)
	env.as = "ada"
	id := auth.UserID
	if err := env.store.Volumes().Create(t.Context(), &state.Volume{Name: "data", Hash: "h", UserHash: id("otto")}); err != nil {
		t.Fatal(err)
	}
	made := read[api.NewToken](t, env.call(post, "/users/service-account-tokens", `{"token_name":"ci"}`))
	for _, c := range []struct {
		as, path, body string
		want           int
		says           string
	}{
		{"ada", "/users/delete", `{"user_id":"` + id("otto") + `"}`, 400, "volumes"},
		{"ada", "/users/delete", `{"user_id":"nobody"}`, 400, "no user"},
		{"ada", "/users/update", `{"user_id":"` + made.ServiceAccountUserID + `","password":"x"}`, 400, "tokens"},
		{"ada", "/users/update", `{"user_id":"` + id("uma") + `","password":""}`, 400, ""},
		{"ada", "/users/update", `{"user_id":"` + id("uma") + `","role":"king"}`, 400, "no role"},
		{"ada", "/users/update", `{"user_id":"` + id("ada") + `","role":"admin"}`, 200, ""},
		{"ada", "/users/update", `{"user_id":"nobody","password":"x"}`, 400, "no user"},
		{"uma", "/users/update", `{"user_id":"` + id("uma") + `","role":"user","password":"x"}`, 200, ""},
		{"ada", "/users/batch_update", `{"user_ids":["` + id("uma") + `"],"role":"king"}`, 400, "no role"},
		{"ada", "/users/create", `{"username":"bob","password":"x","role":""}`, 200, ""},
		{"ada", "/users/service-account-tokens", `{"token_name":" spaced ","expires_in_days":0}`, 200, `"token_name":"spaced"`},
		{"ada", "/users/service-account-tokens", `{"token_name":"` + strings.Repeat("x", 254) + `","expires_in_days":36500}`, 200, ""},
		{"ada", "/users/service-account-tokens", `{"token_name":"` + strings.Repeat("x", 255) + `"}`, 400, "name"},
		{"ada", "/users/service-account-tokens", `{"token_name":"x","expires_in_days":36501}`, 400, "expires_in_days"},
		{"ada", "/users/service-account-tokens/rotate", `{"token_id":"` + made.TokenID + `","expires_in_days":-1}`, 400, "expires_in_days"},
		{"ada", "/users/service-account-tokens/rotate", `{"token_id":"none"}`, 404, "no token"},
		{"ada", "/users/service-account-tokens/update-role", `{"token_id":"` + made.TokenID + `","role":"admin"}`, 200, `"new_role":"admin"`},
	} {
		env.as = c.as
		if r := env.call(post, c.path, c.body); r.status != c.want || !strings.Contains(r.body, c.says) {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, r.status, r.body, c.want, c.says)
		}
	}
	env.as = "ada"
	for _, u := range read[[]api.UserRecord](t, env.call(get, "/users", "")) {
		if auth.IsAccount(u.ID) {
			t.Errorf("a service account is among the people: %+v", u)
		}
		if u.Name == "bob" && u.Role != "admin" {
			t.Errorf("a user without a role is %s", u.Role)
		}
	}
	never := read[[]api.ServiceToken](t, env.call(get, "/users/service-account-tokens", ""))
	ends := map[string]bool{}
	for _, k := range never {
		ends[k.TokenName] = k.ExpiresAt != nil
	}
	if len(never) != 3 || ends["ci"] || ends["spaced"] || !ends[strings.Repeat("x", 254)] {
		t.Errorf("which tokens end: %v", ends)
	}
	// A server that takes no tokens makes none.
	none := newTestEnv(t, func(d *Deps) {
		gate, err := auth.New(t.Context(), d.Store, auth.Options{Basic: true, Initial: "ada:abNANd1rDfiNc"})
		if err != nil {
			t.Fatal(err)
		}
		d.Gate = gate
	})
	if r := none.call(post, "/users/service-account-tokens", `{"token_name":"x"}`, "Authorization", "Basic YWRhOnNlY3JldA=="); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestImportedUsersGetTheRoleOfNewOnes(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, func(d *Deps) { d.Rules = func() Rules { return Rules{DefaultRole: "viewer"} } })
	b, _ := json.Marshal(api.UsersImportBody{CSVContent: "username,password,role\nann,pw,\nbob,pw,user\nbob,pw,user\ncy,,user\nd\"e,pw,\n"})
	in := read[api.UsersImported](t, env.call(post, "/users/import", string(b)))
	if in.SuccessCount != 2 || in.ErrorCount != 3 || in.TotalProcessed != 5 || len(in.ParseErrors) != 2 || len(in.CreationErrors) != 1 || !strings.HasPrefix(in.CreationErrors[0], "bob: ") {
		t.Errorf("%+v", in)
	}
	env.call(post, "/users/create", `{"username":"eve","password":"pw"}`)
	roles := map[string]string{}
	for _, u := range read[[]api.UserRecord](t, env.call(get, "/users", "")) {
		roles[u.Name] = u.Role
	}
	if want := map[string]string{"ann": "viewer", "bob": "user", "eve": "viewer", "server": "viewer"}; fmt.Sprint(roles) != fmt.Sprint(want) {
		t.Errorf("%v", roles)
	}
}

func TestWhichWorkspaceACallBelongsTo(t *testing.T) {
	t.Parallel()
	active := ""
	env := newTestEnvOf(t, func(*testEnv) {}, people(t, map[string]string{"uma": "user", "otto": "user", "wes": "user", "vic": "viewer", "ada": "admin"}), func(d *Deps) {
		d.Rules = func() Rules {
			return Rules{Active: active, Workspaces: []config.Workspace{
				{Name: "default", Private: true, AllowedUsers: []string{"otto", "vic"}},
				{Name: "lab", Private: true, AllowedUsers: []string{"uma", "otto"}},
				{Name: "web", Private: true, AllowedUsers: []string{"uma"}},
				{Name: "old", Private: true, AllowedUsers: []string{"uma", "otto"}, Removed: true},
			}}
		}
	})
	env.ownCluster("inlab", "otto", "lab")
	env.ownCluster("inold", "otto", "old")
	for _, c := range []struct {
		name, as, api, path, body string
		active, prefers           string
		want                      string // the workspace, or the status of a refusal and a word of it
	}{
		{"the default one", "otto", "53", "/jobs/launch", `{"task":"x"}`, "", "", ""},
		{"the default one, asked for", "otto", "53", "/jobs/launch", `{"task":"x","override_skypilot_config":{"active_workspace":"default"}}`, "", "", "default"},
		{"one that is asked for", "otto", "53", "/jobs/launch", `{"task":"x","override_skypilot_config":{"active_workspace":"lab"}}`, "", "", "lab"},
		{"what the installation says", "otto", "53", "/jobs/launch", `{"task":"x"}`, "lab", "", "lab"},
		{"what the call says before the installation", "otto", "53", "/jobs/launch", `{"task":"x","override_skypilot_config":{"active_workspace":"default"}}`, "lab", "", "default"},
		{"what the user prefers", "otto", "53", "/jobs/launch", `{"task":"x"}`, "", "lab", "lab"},
		{"what the user prefers, and an old client", "otto", "52", "/jobs/launch", `{"task":"x"}`, "", "lab", ""},
		{"one that is closed", "otto", "53", "/jobs/launch", `{"task":"x","override_skypilot_config":{"active_workspace":"web"}}`, "", "", "403 may use"},
		{"one that there is not", "otto", "53", "/jobs/launch", `{"task":"x","override_skypilot_config":{"active_workspace":"none"}}`, "", "", "403 may use"},
		{"one that there is not, by an administrator", "ada", "53", "/jobs/launch", `{"task":"x","override_skypilot_config":{"active_workspace":"none"}}`, "", "", "none"},
		{"none to choose from", "wes", "53", "/jobs/launch", `{"task":"x"}`, "", "", "400 no workspace"},
		{"none, and only a look", "wes", "53", "/status", `{}`, "", "", ""},
		{"several to choose from", "uma", "53", "/jobs/launch", `{"task":"x"}`, "", "", "400 several"},
		{"several, and only a look", "uma", "53", "/status", `{}`, "", "", ""},
		{"one that was removed", "uma", "53", "/jobs/launch", `{"task":"x","override_skypilot_config":{"active_workspace":"old"}}`, "", "", "400 removed"},
		{"one that was removed, and nothing new", "uma", "53", "/jobs/cancel", `{"override_skypilot_config":{"active_workspace":"old"}}`, "", "", "old"},
		{"a removed one of others", "vic", "53", "/status", `{"override_skypilot_config":{"active_workspace":"old"}}`, "", "", "403 may use"},
		{"that of the cluster", "otto", "53", "/stop", `{"cluster_name":"inlab"}`, "", "", "lab"},
		{"that of the cluster, whatever is asked", "otto", "53", "/stop", `{"cluster_name":"inlab","override_skypilot_config":{"active_workspace":"default"}}`, "", "", "lab"},
		{"another than the cluster's, to launch", "otto", "53", "/launch", `{"task":"x","cluster_name":"inlab","override_skypilot_config":{"active_workspace":"default"}}`, "", "", "400 Choose another"},
		{"another than the cluster's, to exec", "otto", "53", "/exec", `{"task":"x","cluster_name":"inlab","override_skypilot_config":{"active_workspace":"default"}}`, "", "", "400 Choose another"},
		{"the cluster's, to launch", "otto", "53", "/launch", `{"task":"x","cluster_name":"inlab","override_skypilot_config":{"active_workspace":"lab"}}`, "", "", "lab"},
		{"the cluster's, unasked", "otto", "53", "/launch", `{"task":"x","cluster_name":"inlab"}`, "", "", "lab"},
		{"a removed one's cluster, to launch", "otto", "53", "/launch", `{"task":"x","cluster_name":"inold"}`, "", "", "400 removed"},
		{"a removed one's cluster, to exec", "otto", "53", "/exec", `{"task":"x","cluster_name":"inold"}`, "", "", "old"},
		{"a question about one that is closed", "otto", "53", "/status", `{"workspace":"web"}`, "", "", "403 may not use"},
		{"a question about some, of which one is closed", "otto", "53", "/status", `{"workspaces":["lab","web"]}`, "", "", "403 may not use"},
		{"a question about one that is open", "otto", "53", "/status", `{"workspace":"lab"}`, "", "", ""},
		{"calls about workspaces", "uma", "53", "/api/cancel", `{"request_ids":[]}`, "lab", "", ""},
	} {
		active, env.as, env.api = c.active, c.as, c.api
		if err := env.store.Users().Prefer(t.Context(), auth.UserID(c.as), c.prefers); err != nil {
			t.Fatal(err)
		}
		r := env.call(post, c.path, c.body)
		if status, word, refused := strings.Cut(c.want, " "); refused {
			if fmt.Sprint(r.status) != status || !strings.Contains(r.body, word) {
				t.Errorf("%s: %d %s, want %s", c.name, r.status, r.body, c.want)
			}
			continue
		}
		q, err := env.store.Requests().Get(t.Context(), r.id())
		if err != nil {
			t.Errorf("%s: %d %s %v", c.name, r.status, r.body, err)
			continue
		}
		kept := headOf(q.Body).Config.Active
		if q.Workspace != c.want || c.want != "" && kept != c.want {
			t.Errorf("%s: in %q, and the body says %q, want %q", c.name, q.Workspace, kept, c.want)
		}
	}
	// What is told about it.
	active, env.as = "", "otto"
	for prefers, want := range map[string]bool{"": false, "lab": false, "web": true} {
		if err := env.store.Users().Prefer(t.Context(), auth.UserID("otto"), prefers); err != nil {
			t.Fatal(err)
		}
		choice := read[api.WorkspaceChoice](t, env.call(get, "/users/me/workspace", ""))
		if (choice.Note != nil) != want || (choice.Preferred == nil) != (prefers == "") || len(choice.Accessible) != 2 {
			t.Errorf("prefers %q: %+v", prefers, choice)
		}
	}
	for name, want := range map[string]int{"lab": 200, "web": 403, "old": 404, "none": 404} {
		if r := env.call(post, "/users/me/workspace", `{"preferred":"`+name+`"}`); r.status != want {
			t.Errorf("preferring %s: %d %s", name, r.status, r.body)
		}
	}
}
