package daemon

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// team is a whole server that people log in to through a proxy in front of it.
type team struct {
	t    *testing.T
	home string
	url  string
	d    *daemon
}

const teamConfig = `
rbac: {default_role: user}
allowed_clouds: [local]
workspaces:
  research: {private: true, allowed_users: [uma]}
`

func newTeam(t *testing.T, config string) *team {
	t.Helper()
	w := &team{t: t, home: t.TempDir()}
	dir := filepath.Join(w.home, ".sky")
	w.write("config.yaml", config)
	w.write(".server.yaml", "auth: {external_proxy: {enabled: true, header_name: X-Test}}\n")
	t.Setenv("HOME", w.home)
	t.Setenv("ENABLE_SERVICE_ACCOUNTS", "true")
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	w.d = &daemon{o: Options{Home: w.home, Host: "127.0.0.1", Logger: log, Ready: func() { close(ready) }}}
	go func() { ended <- w.d.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal("the server did not start: ", err)
	case <-time.After(time.Minute):
		t.Fatal("the server did not start")
	}
	b, err := os.ReadFile(filepath.Join(dir, "api_server", "instance.json"))
	var i instance
	if err == nil {
		err = json.Unmarshal(b, &i)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.url = i.Endpoint
	if err := w.d.store.Users().Create(t.Context(), state.User{ID: auth.UserID("ada"), Name: "ada", Role: "admin"}, ""); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *team) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.home, ".sky", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// asUser sends what somebody's proxy would.
type asUser string

func (u asUser) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Test", string(u))
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	return http.DefaultTransport.RoundTrip(r)
}

func (w *team) as(name string, workspace ...string) *sky.Client {
	w.t.Helper()
	o := sky.Options{Endpoint: w.url, HTTPClient: &http.Client{Transport: asUser(name)}, Environ: []string{"HOME=" + w.home}}
	if len(workspace) > 0 {
		o.Config = map[string]any{"active_workspace": workspace[0]}
	}
	c, err := sky.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// got is the result of a request, or its failure.
func got[T any](w *team) func(*sky.Request[T], error) (T, error) {
	return func(r *sky.Request[T], err error) (T, error) {
		if err != nil {
			var none T
			return none, err
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		return r.Get(ctx)
	}
}

func (w *team) cluster(name, owner, workspace string) {
	w.t.Helper()
	c := &state.Cluster{Name: name, Hash: name + "-hash", NameOnCloud: name, Status: api.ClusterStopped, UserHash: auth.UserID(owner), UserName: owner,
		Workspace: workspace, Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws"}}, NumNodes: 1, AutostopMinutes: -1, LaunchedAt: time.Now()}
	if err := w.d.store.Clusters().Create(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
}

func (w *team) job(name, owner, workspace string) int {
	w.t.Helper()
	j, err := w.d.store.ManagedJobs().Submit(w.t.Context(), &state.ManagedJob{
		RequestID: "r-" + name, Name: name, UserHash: auth.UserID(owner), UserName: owner, Workspace: workspace, SubmittedAt: time.Now(),
		Dag: []byte("name: x\n---\nrun: sleep 1000\nresources: {infra: local}\n"), Tasks: []*state.ManagedTask{{Name: name, NotBefore: time.Now().Add(time.Hour)}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return j.ID
}

// wants checks that a call failed with words in its message; "": that it did not.
func wants(t *testing.T, what string, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case words != "" && (err == nil || !strings.Contains(err.Error(), words)):
		t.Errorf("%s: %v, want %q", what, err, words)
	}
}

func TestWorkspacesOfATeam(t *testing.T) {
	w := newTeam(t, teamConfig)
	w.cluster("open", "otto", "default")
	w.cluster("secret", "uma", "research")
	ctx := t.Context()
	check := func(c *sky.Client) (map[string]map[string][]string, error) {
		return got[map[string]map[string][]string](w)(c.Check(ctx, api.CheckBody{Clouds: []string{"local"}}))
	}
	names := func(who string) (out []string) {
		records, err := got[[]api.StatusRecord](w)(w.as(who).Status(ctx, api.StatusBody{}))
		wants(t, "status of "+who, err, "")
		for _, r := range records {
			out = append(out, r.Name)
		}
		slices.Sort(out)
		return out
	}
	for who, want := range map[string][]string{"uma": {"open", "secret"}, "otto": {"open"}, "ada": {"open", "secret"}} {
		if have := names(who); !slices.Equal(have, want) {
			t.Errorf("%s sees %v, want %v", who, have, want)
		}
	}
	_, err := got[any](w)(w.as("otto").Autostop(ctx, api.AutostopBody{ClusterName: "secret", IdleMinutes: 5}))
	wants(t, "otto and secret", err, "workspace that you may not use")
	_, err = got[[]api.JobRecord](w)(w.as("otto").Queue(ctx, api.QueueBody{ClusterName: "secret"}))
	wants(t, "otto looks into secret", err, "workspace that you may not use")
	_, err = got[[]api.JobRecord](w)(w.as("uma").Queue(ctx, api.QueueBody{ClusterName: "secret"}))
	wants(t, "uma looks into secret", err, "to be UP")
	_, err = got[any](w)(w.as("uma").Stop(ctx, api.StopBody{ClusterName: "open"}))
	wants(t, "uma and open", err, "belongs to otto")

	_, err = check(w.as("otto", "research"))
	wants(t, "otto chooses research", err, "does not exist, or you may not use it")
	_, err = got[[]string](w)(w.as("otto").EnabledClouds(ctx, "research", false))
	wants(t, "otto asks about research", err, "does not exist, or you may not use it")
	_, err = got[map[string][]string](w)(w.as("otto").EnabledCloudsOf(ctx, []string{"default", "research"}, false))
	wants(t, "otto asks about both", err, "does not exist, or you may not use it")
	both, err := got[map[string][]string](w)(w.as("uma").EnabledCloudsOf(ctx, []string{"default", "research"}, false))
	wants(t, "uma asks about both", err, "")
	if len(both) != 2 || !slices.Contains(both["default"], "Local") || !slices.Contains(both["research"], "Local") {
		t.Errorf("uma is told %v", both)
	}
	_, err = check(w.as("uma", "research"))
	wants(t, "uma chooses research", err, "")
	_, err = check(w.as("ada", "nosuch"))
	wants(t, "ada chooses what is not there", err, "does not exist")
	_, err = got[*api.Plan](w)(w.as("otto").Optimize(ctx, api.DagBody{Dag: "name: x\n---\nrun: x\nconfig: {active_workspace: research}\nresources: {cloud: local}\n"}))
	wants(t, "a task that asks for research", err, "config.active_workspace")
	_, err = got[api.LaunchResult](w)(w.as("otto", "default").Launch(ctx, api.LaunchBody{ClusterName: "secret", Task: "run: x"}))
	wants(t, "otto launches on secret", err, "workspace that you may not use")
	_, err = got[api.LaunchResult](w)(w.as("uma", "default").Launch(ctx, api.LaunchBody{ClusterName: "secret", Task: "run: x"}))
	wants(t, "uma launches on secret from elsewhere", err, "is in the workspace")

	listed := func(who string) []string {
		all, err := got[map[string]map[string]any](w)(w.as(who).Workspaces(ctx))
		wants(t, "workspaces of "+who, err, "")
		var out []string
		for name := range all {
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	if have := listed("otto"); !slices.Equal(have, []string{"default"}) {
		t.Errorf("otto's workspaces: %v", have)
	}
	if have := listed("uma"); !slices.Equal(have, []string{"default", "research"}) {
		t.Errorf("uma's workspaces: %v", have)
	}
}

func TestRequestsStayInTheirWorkspace(t *testing.T) {
	w := newTeam(t, teamConfig)
	ctx := t.Context()
	r, err := w.as("uma", "research").Check(ctx, api.CheckBody{Clouds: []string{"local"}})
	if _, err = got[map[string]map[string][]string](w)(r, err); err != nil {
		t.Fatal(err)
	}
	_, err = w.as("otto").Payload(ctx, r.ID())
	wants(t, "otto reads uma's result", err, "workspace that you may not use")
	wants(t, "otto streams uma's log", w.as("otto").StreamRequest(ctx, r.ID(), io.Discard, sky.StreamOptions{}), "workspace that you may not use")
	for who, want := range map[string]bool{"uma": true, "otto": false, "ada": true} {
		list, err := w.as(who).Requests(ctx, sky.RequestFilter{All: true})
		wants(t, "requests of "+who, err, "")
		if has := slices.ContainsFunc(list, func(p api.RequestPayload) bool { return p.RequestID == r.ID() }); has != want {
			t.Errorf("%s sees uma's request: %v", who, has)
		}
	}
	wants(t, "otto reads the server's log", w.as("otto").StreamServerLog(ctx, "~/.sky/api_server/server.log", io.Discard, sky.StreamOptions{}), "only administrators")
}

func TestAdministratorsChangeWorkspaces(t *testing.T) {
	w := newTeam(t, "# ours\n"+strings.TrimSpace(teamConfig)+"\n")
	ctx := t.Context()
	check := func(c *sky.Client) (map[string]map[string][]string, error) {
		return got[map[string]map[string][]string](w)(c.Check(ctx, api.CheckBody{Clouds: []string{"local"}}))
	}
	ada := w.as("ada")
	change := got[map[string]map[string]any](w)
	_, err := change(w.as("uma").CreateWorkspace(ctx, "mine", nil))
	wants(t, "uma makes one", err, "Forbidden")
	_, err = change(ada.CreateWorkspace(ctx, "Bad name", nil))
	wants(t, "a bad name", err, "cannot be a workspace's name")
	_, err = change(ada.CreateWorkspace(ctx, "x", map[string]any{"privat": true}))
	wants(t, "an unknown setting", err, "privat")
	all, err := change(ada.CreateWorkspace(ctx, "lab", map[string]any{"private": true, "allowed_users": []string{auth.UserID("uma")}, "aws": map[string]any{"disabled": true}}))
	wants(t, "a good one", err, "")
	if all["lab"]["private"] != true || all["research"] == nil || all["default"] == nil {
		t.Errorf("after: %v", all)
	}
	if b, _ := os.ReadFile(filepath.Join(w.home, ".sky", "config.yaml")); !strings.Contains(string(b), "# ours") || !strings.Contains(string(b), "lab") {
		t.Errorf("the file is now:\n%s", b)
	}
	_, err = check(w.as("uma", "lab"))
	wants(t, "the new one is used at once", err, "")
	_, err = change(ada.CreateWorkspace(ctx, "lab", nil))
	wants(t, "again", err, "exists already")
	w.cluster("used", "uma", "lab")
	_, err = change(ada.DeleteWorkspace(ctx, "lab"))
	wants(t, "deleting what is used", err, "cluster used (uma)")
	_, err = change(ada.UpdateWorkspace(ctx, "lab", map[string]any{"private": true, "allowed_users": []string{"otto"}, "aws": map[string]any{"disabled": true}}))
	wants(t, "shutting uma out", err, "shut people out")
	moved, err := got[api.WorkspacesChanged](w)(ada.AddWorkspaceUsers(ctx, []string{"lab", "default"}, []string{"otto"}))
	wants(t, "adding users", err, "")
	if !slices.Equal(moved.Succeeded, []string{"lab"}) || len(moved.Failed) != 1 {
		t.Errorf("adding users: %+v", moved)
	}
	_, err = check(w.as("otto", "lab"))
	wants(t, "otto is let in at once", err, "")
	moved, err = got[api.WorkspacesChanged](w)(ada.RemoveWorkspaceUsers(ctx, []string{"lab"}, []string{auth.UserID("otto"), "otto"}))
	wants(t, "removing users", err, "")
	if len(moved.Failed) != 0 {
		t.Errorf("removing users: %+v", moved)
	}
	_, err = check(w.as("otto", "lab"))
	wants(t, "otto is out at once", err, "you may not use it")
	_, err = change(ada.DeleteWorkspace(ctx, "default"))
	wants(t, "deleting the default one", err, "always exists")

	values, err := got[map[string]any](w)(ada.ServerConfig(ctx))
	wants(t, "the whole configuration", err, "")
	values["active_workspace"] = "research"
	_, err = got[map[string]any](w)(ada.UpdateServerConfig(ctx, values))
	wants(t, "changing it", err, "")
	_, err = check(w.as("otto"))
	wants(t, "the server's workspace holds for those who name none", err, "you may not use it")
	delete(values["workspaces"].(map[string]any), "lab")
	_, err = got[map[string]any](w)(ada.UpdateServerConfig(ctx, values))
	wants(t, "dropping a workspace that is used", err, "cluster used (uma)")
	_, err = got[map[string]any](w)(ada.UpdateServerConfig(ctx, map[string]any{"nosuch": 1}))
	wants(t, "a wrong configuration", err, "nosuch")
}

// Roles and workspaces in the file are in force without a restart, and a file
// that became wrong changes nothing.
func TestRulesChangeWithoutARestart(t *testing.T) {
	w := newTeam(t, "rbac: {default_role: viewer}\n")
	ctx := t.Context()
	_, err := w.as("vic").Check(ctx, api.CheckBody{Clouds: []string{"local"}})
	wants(t, "a viewer", err, "Forbidden")
	w.write("config.yaml", "rbac: {default_role: user, roles: {viewer: {permissions: {allowlist: [{path: /check, method: POST}]}}}}\n")
	_, err = w.as("vic").Check(ctx, api.CheckBody{Clouds: []string{"local"}})
	wants(t, "a viewer who may check", err, "")
	_, err = w.as("una").Stop(ctx, api.StopBody{ClusterName: "nosuch"})
	wants(t, "a newcomer is a user now", err, "")
	w.write("config.yaml", "rbac: {default_role: emperor}\n")
	_, err = w.as("ulf").Stop(ctx, api.StopBody{ClusterName: "nosuch"})
	wants(t, "a newcomer under the last good file", err, "")
}

func TestManagedJobsOfOthers(t *testing.T) {
	w := newTeam(t, teamConfig)
	ctx := t.Context()
	open, secret := w.job("a", "otto", "default"), w.job("b", "uma", "research")
	cancel := func(who, workspace string, b api.JobsCancelBody) error {
		_, err := got[any](w)(w.as(who, workspace).CancelJobs(ctx, b))
		return err
	}
	wants(t, "uma cancels otto's", cancel("uma", "default", api.JobsCancelBody{JobIDs: []int{open}}), "belongs to otto")
	wants(t, "uma cancels everybody's", cancel("uma", "default", api.JobsCancelBody{AllUsers: true}), "Only administrators")
	wants(t, "uma cancels otto's by name", cancel("uma", "default", api.JobsCancelBody{Name: new("a")}), "")
	wants(t, "otto cancels what he cannot see", cancel("otto", "default", api.JobsCancelBody{JobIDs: []int{secret}}), "")
	for _, id := range []int{open, secret} {
		if j, err := w.d.store.ManagedJobs().Get(ctx, id); err != nil || j.CancelAsked {
			t.Errorf("job %d is being cancelled (%v)", id, err)
		}
	}
	for who, want := range map[string]int{"uma": 2, "otto": 1, "ada": 2} {
		page, err := got[api.JobsQueueResult](w)(w.as(who).JobsQueue(ctx, api.JobsQueueBody{AllUsers: true}))
		wants(t, "queue of "+who, err, "")
		if len(page.Jobs) != want {
			t.Errorf("%s sees %d jobs, want %d", who, len(page.Jobs), want)
		}
	}
	_, err := got[map[string]string](w)(w.as("otto").DownloadJobLogs(ctx, api.JobsDownloadLogsBody{JobID: &secret}))
	wants(t, "otto downloads the log of what he cannot see", err, "workspace that you may not use")
	wants(t, "otto cancels his own", cancel("otto", "default", api.JobsCancelBody{JobIDs: []int{open}}), "")
	wants(t, "ada cancels uma's", cancel("ada", "research", api.JobsCancelBody{JobIDs: []int{secret}}), "")
	for _, id := range []int{open, secret} {
		if j, err := w.d.store.ManagedJobs().Get(ctx, id); err != nil || !j.CancelAsked {
			t.Errorf("job %d is not being cancelled (%v)", id, err)
		}
	}
}

// A workspace that was taken out of the configuration by hand, while things live
// in it, shuts nobody out of those and lets nobody else in.
func TestARemovedWorkspaceHoldsForWhatIsInIt(t *testing.T) {
	w := newTeam(t, teamConfig)
	ctx := t.Context()
	w.cluster("secret", "uma", "research")
	job := w.job("b", "uma", "research")
	ended := w.job("c", "uma", "research")
	w.write("config.yaml", "rbac: {default_role: user}\nallowed_clouds: [local]\n")

	names := func(who string, workspace ...string) (out []string) {
		records, err := got[[]api.StatusRecord](w)(w.as(who, workspace...).Status(ctx, api.StatusBody{}))
		wants(t, "status of "+who, err, "")
		for _, r := range records {
			out = append(out, r.Name)
		}
		return out
	}
	for who, want := range map[string][]string{"uma": {"secret"}, "otto": nil, "ada": {"secret"}} {
		if have := names(who); !slices.Equal(have, want) {
			t.Errorf("%s sees %v, want %v", who, have, want)
		}
	}
	for _, who := range []string{"uma", "ada"} {
		// Whoever still names the workspace in their own configuration, and who does not.
		for _, workspace := range [][]string{nil, {"research"}} {
			c := w.as(who, workspace...)
			if have := names(who, workspace...); !slices.Equal(have, []string{"secret"}) {
				t.Errorf("%s in %v sees %v", who, workspace, have)
			}
			_, err := got[[]api.JobRecord](w)(c.Queue(ctx, api.QueueBody{ClusterName: "secret"}))
			wants(t, who+" looks into it", err, "to be UP")
			_, err = got[api.LaunchResult](w)(c.Exec(ctx, api.ExecBody{ClusterName: "secret", Task: "run: x"}))
			wants(t, who+" runs on it", err, "to be UP")
			_, err = got[any](w)(c.Cancel(ctx, api.CancelBody{ClusterName: "secret", JobIDs: []int{1}}))
			wants(t, who+" cancels on it", err, "to be UP")
			_, err = got[any](w)(c.Stop(ctx, api.StopBody{ClusterName: "secret"}))
			wants(t, who+" stops it", err, "aws is not set up") // as it would in any workspace
			page, err := got[api.JobsQueueResult](w)(c.JobsQueue(ctx, api.JobsQueueBody{AllUsers: true}))
			wants(t, who+" lists jobs", err, "")
			if len(page.Jobs) != 2 {
				t.Errorf("%s in %v sees %d jobs", who, workspace, len(page.Jobs))
			}
			for _, body := range []api.LaunchBody{{ClusterName: "secret", Task: "run: x"}, {ClusterName: "other", Task: "run: x\nconfig: {active_workspace: research}\nresources: {infra: local}\n"}} {
				_, err = got[api.LaunchResult](w)(c.Launch(ctx, body))
				wants(t, who+" launches "+body.ClusterName, err, "was removed from the API server's configuration")
			}
			_, err = got[api.JobsLaunchResult](w)(c.LaunchJob(ctx, api.JobsLaunchBody{Task: "run: x\nconfig: {active_workspace: research}\nresources: {infra: local}\n"}))
			wants(t, who+" submits a job", err, "was removed from the API server's configuration")
		}
		_, err := got[api.LaunchResult](w)(w.as(who, "research").Launch(ctx, api.LaunchBody{ClusterName: "other", Task: "run: x\nresources: {infra: local}\n"}))
		wants(t, who+" launches in it", err, "was removed from the API server's configuration")
	}
	for _, workspace := range [][]string{nil, {"research"}} {
		otto := w.as("otto", workspace...)
		_, err := got[any](w)(otto.Down(ctx, api.StopBody{ClusterName: "secret"}))
		wants(t, "otto ends what is not his", err, "workspace that you may not use")
		_, err = got[[]api.JobRecord](w)(otto.Queue(ctx, api.QueueBody{ClusterName: "secret"}))
		wants(t, "otto looks into it", err, "workspace that you may not use")
	}
	_, err := got[api.LaunchResult](w)(w.as("otto", "research").Launch(ctx, api.LaunchBody{ClusterName: "other", Task: "run: x"}))
	wants(t, "otto launches in it", err, "does not exist, or you may not use it")

	for who, id := range map[string]int{"uma": job, "ada": ended} {
		_, err := got[any](w)(w.as(who, "research").CancelJobs(ctx, api.JobsCancelBody{JobIDs: []int{id}}))
		wants(t, who+" cancels a job", err, "")
		if j, err := w.d.store.ManagedJobs().Get(ctx, id); err != nil || !j.CancelAsked {
			t.Errorf("job %d is not being cancelled (%v)", id, err)
		}
	}
	listed, err := got[map[string]map[string]any](w)(w.as("ada").Workspaces(ctx))
	wants(t, "the workspaces", err, "")
	if listed["research"] != nil {
		t.Errorf("it is still listed: %v", listed)
	}
	values, err := got[map[string]any](w)(w.as("ada").ServerConfig(ctx))
	wants(t, "the configuration", err, "")
	if values["workspaces"] != nil {
		t.Errorf("it is shown in the configuration: %v", values)
	}
	// Put back, now open to all, it is as any other.
	_, err = got[map[string]map[string]any](w)(w.as("ada").CreateWorkspace(ctx, "research", nil))
	wants(t, "putting it back", err, "")
	if have := names("otto"); !slices.Equal(have, []string{"secret"}) {
		t.Errorf("otto sees %v", have)
	}
	_, err = got[any](w)(w.as("uma", "research").Down(ctx, api.StopBody{ClusterName: "secret"}))
	wants(t, "uma ends it", err, "aws is not set up")
}

// The record outlives the server, and begins for what was there before it.
func TestAWorkspaceIsRemovedWhileNoServerRuns(t *testing.T) {
	dir := t.TempDir()
	open := func() *state.Store {
		s, err := state.Open(t.Context(), filepath.Join(dir, "sky.db"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	served := func(text map[string]any) map[string]config.Workspace {
		store := open()
		defer store.Close()
		c, err := config.FromMap(config.Server, config.Origin{}, text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := readRecord(t.Context(), store, c)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = r.keep(c); err != nil {
			t.Fatal(err)
		}
		out := map[string]config.Workspace{}
		for _, w := range c.Workspaces() {
			out[w.Name] = w
		}
		return out
	}
	store := open()
	w := &team{t: t, d: &daemon{store: store}}
	w.cluster("old", "uma", "forgotten")
	store.Close()
	lab := map[string]any{"workspaces": map[string]any{"lab": map[string]any{"private": true, "allowed_users": []any{"bob"}}}}
	for _, text := range []map[string]any{lab, nil, nil} {
		all := served(text)
		if l := all["lab"]; !l.Private || !slices.Equal(l.AllowedUsers, []string{"bob"}) || l.Removed != (text == nil) {
			t.Errorf("%v: lab is %+v", text, l)
		}
		if f := all["forgotten"]; !f.Removed || !f.Allows(auth.UserID("uma"), "") || f.Allows(auth.UserID("otto"), "otto") {
			t.Errorf("%v: a workspace that nobody knows any more is %+v", text, f)
		}
		if d := all["default"]; d.Removed || d.Private {
			t.Errorf("%v: default is %+v", text, d)
		}
	}
}

// What runs on the server's own machine can read all that the server knows.
func TestTheServersMachineIsForAdministrators(t *testing.T) {
	const mine = "which only administrators may use"
	for _, allowed := range []bool{false, true} {
		config := "rbac: {default_role: user}\n"
		if allowed {
			config += "allowed_clouds: [local]\n"
		}
		w := newTeam(t, config)
		plan := func(who string, config map[string]any) error {
			c, err := sky.New(sky.Options{Endpoint: w.url, HTTPClient: &http.Client{Transport: asUser(who)}, Environ: []string{"HOME=" + w.home}, Config: config})
			if err != nil {
				t.Fatal(err)
			}
			_, err = got[api.LaunchResult](w)(c.Launch(t.Context(), api.LaunchBody{ClusterName: "c", Task: "run: x\nresources: {infra: local}\n", Dryrun: true}))
			return err
		}
		says := mine
		if allowed {
			says = ""
		}
		wants(t, "an administrator", plan("ada", nil), "")
		wants(t, "a user", plan("uma", nil), says)
		wants(t, "a user whose own configuration allows it", plan("uma", map[string]any{"allowed_clouds": []any{"local"}}), says)
		clouds, err := got[[]string](w)(w.as("uma").EnabledClouds(t.Context(), "default", false))
		if err != nil || slices.Contains(clouds, "Local") != allowed {
			t.Errorf("allowed %t: a user is told %v, %v", allowed, clouds, err)
		}
		for who, want := range map[string]bool{"ada": true, "uma": false, "nobody who logged in": true} {
			if got := w.d.administers(t.Context(), state.User{ID: auth.UserID(who)}); got != want {
				t.Errorf("%s administers: %t", who, got)
			}
		}
	}
}
