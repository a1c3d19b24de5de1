package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

func TestPagesRunNoScriptButTheirOwn(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.file("sky_logs/x.log", "")
	id := env.ask("/status", `{}`)
	for _, path := range []string{"/dashboard/", "/dashboard/index.html", "/token", "/token?local_port=4242", "/auth/authorize", "/api/docs",
		"/api/stream?format=html&request_id=" + id, "/api/stream?format=html&log_path=~/sky_logs/x.log"} {
		r := env.call(get, path, "")
		h := r.header
		policy := h.Get("Content-Security-Policy")
		if r.status != 200 || h.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "connect-src 'self'") ||
			!strings.Contains(policy, "frame-ancestors 'none'") || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "same-origin" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, r.status, h)
		}
		if port := strings.Contains(policy, "localhost"); port != strings.HasSuffix(path, "4242") {
			t.Errorf("%s: may connect to %s", path, policy)
		}
		if kept := h.Get("Cache-Control") != "no-store"; kept == strings.HasPrefix(path, "/token") {
			t.Errorf("%s: Cache-Control %q", path, h.Get("Cache-Control"))
		}
		if strings.Contains(r.body, dataHere) || len(r.body) < 200 {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	for _, path := range []string{"/dashboard/jobs", "/dashboard/jobs/3", "/dashboard/clusters/dev", "/dashboard/clusters",
		"/dashboard/users", "/dashboard/infra", "/dashboard/infra/aws", "/dashboard/other.html"} { // other clients open them
		if r := env.call(get, path, ""); r.status != http.StatusTemporaryRedirect || r.header.Get("Location") != "/dashboard/" {
			t.Errorf("%s: %d %s", path, r.status, r.header.Get("Location"))
		}
	}
	if r := env.call(get, "/dashboard/_next/static/a.js", ""); r.status != 404 || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("a page that is not there: %d", r.status)
	}
	for _, path := range []string{"/", "/dashboard"} {
		if r := env.call(get, path, ""); r.status != http.StatusTemporaryRedirect || r.header.Get("Location") != "/dashboard/" {
			t.Errorf("%s: %d %v", path, r.status, r.header)
		}
	}
}

func TestPagesAnswerHEADAndOthersTellTheirMethods(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	for _, c := range []struct {
		method, path string
		want         int
		allow        string
	}{
		{http.MethodHead, "/dashboard/", 200, ""},
		{http.MethodHead, "/api/docs", 200, ""},
		{http.MethodPost, "/dashboard/", 405, "GET"},
		{http.MethodPut, "/slurm_node_info", 405, "GET, POST"},
		{http.MethodGet, "/launch", 405, "POST"},
		{http.MethodHead, "/api/health", 405, "GET"},
		{http.MethodPut, "/nothing/here", 404, ""},
	} {
		r := env.call(c.method, c.path, "")
		if r.status != c.want || r.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, allowed are %q", c.method, c.path, r.status, r.header.Get("Allow"))
		}
		if r.header.Get(api.HeaderAPIVersion) != "53" || r.id() == "" {
			t.Errorf("%s %s: %v", c.method, c.path, r.header)
		}
	}
}

// A client may choose the id of its call, if it is one that nobody can guess.
func TestAnswersCarryTheIDOfTheCall(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	chosen := uuid.NewString()
	if got := env.call(get, "/api/health", "", api.HeaderRequestID, chosen).id(); got != chosen {
		t.Errorf("%s, want %s", got, chosen)
	}
	for _, bad := range []string{"", "x", uuid.NewMD5(uuid.NameSpaceURL, []byte("x")).String(), uuid.Nil.String()} {
		got, err := uuid.Parse(env.call(get, "/api/health", "", api.HeaderRequestID, bad).id())
		if err != nil || got.Version() != 4 || got.String() == bad {
			t.Errorf("for %q: %v %v", bad, got, err)
		}
	}
}

func TestTheLoginPageTakesPortsOnly(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	for port, want := range map[string]int{"": 200, "1": 200, "65535": 200, "0": 400, "65536": 400, "-1": 400, "x": 400} {
		if r := env.call(get, "/token?local_port="+port, ""); r.status != want {
			t.Errorf("%q: %d %s", port, r.status, r.body)
		}
	}
}

func TestLoginPagesSayWhoOneIs(t *testing.T) {
	t.Parallel()
	env := team(t)
	for _, path := range []string{"/token", "/auth/authorize?code_challenge=x"} {
		env.as = "uma"
		if r := env.call(get, path, ""); r.status != 200 || !strings.Contains(r.body, `"user":"uma"`) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := newTestEnv(t).call(get, "/token", ""); !strings.Contains(r.body, `"user":""`) || !strings.Contains(r.body, `"port":0`) {
		t.Errorf("without a login: %s", r.body)
	}
	poll := env.call(get, auth.PollPath+"?code_verifier=short", "")
	if poll.status != 400 || poll.header.Get("Cache-Control") != "no-store" {
		t.Errorf("polling with a code that is none: %d %v", poll.status, poll.header)
	}
}

// A client that asks again and again for logins that nobody has agreed to has to wait.
func TestGuessingLoginsIsSlowedDown(t *testing.T) {
	t.Parallel()
	env := team(t)
	env.as = ""
	const poll = auth.PollPath + "?code_verifier=dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	for range 2000 {
		a := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), get, "http://localhost"+poll, nil)
		r.RemoteAddr = "203.0.113.9:1"
		env.server.ServeHTTP(a, r)
		if a.Code == http.StatusTooManyRequests {
			return
		}
		if a.Code != http.StatusNotFound {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
	}
	t.Error("2000 guesses were answered")
}

func TestHealthTellsWhatTheServerIs(t *testing.T) {
	t.Parallel()
	const token = api.OwnerPrefix + "0123456789abcdef"
	degraded := ""
	env := newTestEnv(t, func(d *Deps) {
		gate, err := auth.New(t.Context(), d.Store, auth.Options{Owner: auth.Owner{Exposed: true, OpenLoopback: true, Token: token}})
		if err != nil {
			t.Fatal(err)
		}
		d.Gate = gate
		d.Degraded = func() string { return degraded }
	})
	for _, why := range []string{"", "the disk is full"} {
		degraded = why
		if h := read[api.Health](t, env.call(get, "/api/health", "")); h.Degraded != why || h.Status != "healthy" || h.UploadFiles || h.BuildID != "build" ||
			h.InstanceID != "instance" || h.PID != os.Getpid() || time.Since(time.Unix(h.StartedAt, 0)) > time.Hour {
			t.Errorf("%+v", h)
		}
	}
	if h := read[api.Health](t, env.call(get, "/api/health", "", "X-Forwarded-For", "10.0.0.1")); !h.UploadFiles {
		t.Errorf("to a caller elsewhere: %+v", h)
	}
	// Without a challenge there is no proof.
	if p := env.call(get, "/api/health", "").header.Get(api.HeaderProof); p != "" {
		t.Errorf("proof %q", p)
	}
	one := env.call(get, "/api/health", "", api.HeaderChallenge, "one").header.Get(api.HeaderProof)
	two := env.call(get, "/api/health", "", api.HeaderChallenge, "two").header.Get(api.HeaderProof)
	if one == "" || one == two {
		t.Errorf("proofs %q and %q", one, two)
	}
}

// Nothing that the server keeps for its users can be read by other accounts of its
// machine.
func TestUsersFilesAreTheServersAlone(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	data := zipOf(t, zipEntry{"wd/sub/", "", 0}, zipEntry{"wd/a", "x", 0o666}, zipEntry{"deep/er/run.sh", "#!", 0o777}, zipEntry{"links/l", "../wd/a", fs.ModeSymlink | 0o777})
	other := strings.Repeat("f", 64)
	for _, path := range []string{uploadTo, "/upload_v2?user_hash=ab12&upload_id=" + other, "/upload?user_hash=ab12&upload_id=sky-2026-01-02-03-04-05-678901-00000000"} {
		total := "1"
		if strings.Contains(path, other) {
			total = "2" // its first part stays
		}
		if r := env.call(post, path+"&chunk_index=0&total_chunks="+total, string(data), "Content-Type", "application/octet-stream"); r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	shared := NewDownloads(env.home, env.store.AsShared())
	if _, err := shared.Offer(t.Context(), "ab12", map[string]string{"1": filepath.Join(shared.Dir("ab12"), "c", "1")}); err != nil {
		t.Fatal(err)
	}
	runs := map[string]bool{}
	closed := map[string]bool{} // folders that nobody else gets into; files in them keep the modes that they came with
	err := filepath.WalkDir(filepath.Join(env.home, clientsDir), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() == fs.ModeSymlink {
			return err
		}
		info, err := d.Info()
		open := err == nil && info.Mode().Perm()&0o077 != 0
		if open && !closed[filepath.Dir(p)] {
			t.Errorf("%s: %v", p, info.Mode())
		}
		closed[p] = !open || closed[filepath.Dir(p)]
		if err == nil && !d.IsDir() && info.Mode()&0o100 != 0 {
			runs[filepath.Base(p)] = true
		}
		return err
	})
	if err != nil || len(runs) != 1 || !runs["run.sh"] {
		t.Errorf("what can be run: %v, %v", runs, err)
	}
}

func TestBackups(t *testing.T) {
	t.Parallel()
	var keys bool
	var early, late error
	env := newTestEnv(t, func(d *Deps) {
		d.Backup = func(_ context.Context, o BackupOptions, begin func() io.Writer) error {
			keys = o.WithKeys
			if early != nil {
				return early
			}
			if _, err := io.WriteString(begin(), "archive"); err != nil {
				return err
			}
			return late
		}
	})
	for _, with := range []bool{true, false} {
		r := env.call(post, "/backup", fmt.Sprintf(`{"with_keys":%v}`, with))
		if r.status != 200 || r.body != "archive" || r.header.Get("Content-Type") != mediaBackup || r.header.Get("Content-Disposition") != `attachment; filename="sky-backup.tar.gz"` || keys != with {
			t.Errorf("%d %q %v, with keys: %v", r.status, r.body, r.header, keys)
		}
	}
	late = errors.New("a table is gone")
	resp := env.send(t.Context(), post, "/backup", `{}`)
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a backup that broke off looks whole: %q", b)
	}
	early = &api.Error{Type: api.ErrValue, Message: "no"}
	if r := env.call(post, "/backup", `{}`); r.status != 400 || r.body != `{"detail":"no"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := newTestEnv(t).call(post, "/backup", `{}`); r.status != 400 {
		t.Errorf("a server that makes none: %d %s", r.status, r.body)
	}
}

func TestWhoReadsWhichRequest(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, people(t, map[string]string{"vic": "viewer", "uma": "user", "otto": "user", "wes": "user", "ada": "admin"}), func(d *Deps) {
		d.Rules = func() Rules {
			return Rules{Workspaces: []config.Workspace{{Name: "default"}, {Name: "lab", Private: true, AllowedUsers: []string{"uma", "otto", "vic"}}}}
		}
	})
	env.file("sky_logs/x.log", "line\n")
	env.ownCluster("umas", "uma", "lab")
	env.as = "uma"
	id := env.ask("/exec", `{"task":"run: x","cluster_name":"umas"}`)
	env.payload(id)
	for who, want := range map[string]struct{ result, log, file int }{
		"uma": {500, 200, 403}, "otto": {500, 200, 403}, "wes": {403, 403, 403}, "vic": {403, 200, 403}, "ada": {500, 200, 200},
	} {
		env.as = who
		if r := env.call(get, "/api/get?request_id="+id, ""); r.status != want.result {
			t.Errorf("%s reads the result: %d %s", who, r.status, r.body)
		}
		if r := env.call(get, "/api/stream?request_id="+id, ""); r.status != want.log {
			t.Errorf("%s reads the log: %d %s", who, r.status, r.body)
		}
		if r := env.call(get, "/api/stream?follow=False&log_path=~/sky_logs/x.log", ""); r.status != want.file {
			t.Errorf("%s reads the server's file: %d %s", who, r.status, r.body)
		}
	}
	// A viewer reads the results of their own.
	env.as = "vic"
	if status, _ := env.payload(env.ask("/status", `{}`)); status != 200 {
		t.Errorf("a viewer's own: %d", status)
	}
	// The latest that one may see; others have asked since.
	env.as = "ada"
	env.payload(env.ask("/status", `{"workspace":"lab"}`))
	env.as = "wes"
	mine := env.ask("/status", `{"cluster_names":["nosuch"]}`)
	env.payload(mine)
	env.as = "uma"
	last := env.ask("/exec", `{"task":"run: x","cluster_name":"umas"}`)
	env.payload(last)
	for who, want := range map[string]string{"wes": mine, "uma": last, "ada": last} {
		env.as = who
		if got := env.call(get, "/api/stream?follow=False", "").header.Get(api.HeaderStreamRequestID); got != want {
			t.Errorf("the latest of %s is %s, want %s", who, got, want)
		}
	}
}

func TestNothingWasAskedYet(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	if r := env.call(get, "/api/stream", ""); r.status != 404 || !strings.Contains(r.body, "No request was made yet") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := env.call(get, "/api/stream?request_id=a&log_path=b", ""); r.status != 400 {
		t.Errorf("both: %d %s", r.status, r.body)
	}
	for _, query := range []string{"limit=-1", "all_status=perhaps"} {
		if r := env.call(get, "/api/status?"+query, ""); r.status != 422 {
			t.Errorf("%s: %d %s", query, r.status, r.body)
		}
	}
}

func TestAListOfRequestsHasTheBodyWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.ask("/stop", `{"cluster_name":"c"}`)
	for query, want := range map[string]string{"": `{"cluster_name":"c"}`, "?fields=name": "null", "?fields=request_body": `{"cluster_name":"c"}`,
		"?fields=request_body&fields=name": `{"cluster_name":"c"}`, "?fields=name&fields=status": "null"} {
		list := read[[]api.RequestPayload](t, env.call(get, "/api/status"+query, ""))
		if len(list) != 1 || list[0].RequestBody != want {
			t.Errorf("%s: %+v", query, list)
		}
	}
	close(env.block)
}

func TestLogsAreSavedUnderTheNameThatWasAsked(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.file("sky_logs/x.log", "line\n")
	r := env.call(get, "/api/stream?follow=False&download=my%20log&log_path=~/sky_logs/x.log", "")
	if r.body != "line\n" || r.header.Get("Content-Disposition") != `attachment; filename="my_log"` {
		t.Errorf("%q %v", r.body, r.header)
	}
	if r := env.call(get, "/api/stream?follow=False&log_path=~/sky_logs/x.log", ""); r.header.Get("Content-Disposition") != "" {
		t.Errorf("a log that is shown is saved: %v", r.header)
	}
	if r := env.call(get, "/api/stream?format=html&log_path=~/sky_logs/x.log", ""); !strings.Contains(r.body, "sky_logs%2Fx.log") {
		t.Errorf("a page that shows it: %s", r.body)
	}
}

// Requests that begin or wait for machines queue up behind each other; everything
// else is done beside them.
func TestWhichRequestsAreLong(t *testing.T) {
	long := setOf(`launch exec start jobs.launch jobs.wait jobs.pool_apply serve.up serve.update sweep kubernetes_label_gpus local_up local_down
		ssh_node_pools.up ssh_node_pools.down`)()
	for _, r := range Routes() {
		if r.Long != long[r.Name] || r.Long && r.schedule() != api.ScheduleLong || !r.Long && r.schedule() != api.ScheduleShort {
			t.Errorf("%s %s (%s): long %v", r.Method, r.Path, r.Name, r.Long)
		}
	}
}

func TestEveryEntryOfTheAuditLogIsExported(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	var wg sync.WaitGroup
	for i := range auditPage + 2 {
		e := state.AuditEntry{ID: fmt.Sprintf("%05d", i), Action: "sky.down", At: at.Add(time.Duration(i) * time.Millisecond)}
		wg.Go(func() {
			if err := env.store.Audit().Add(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := env.store.Audit().Add(t.Context(), state.AuditEntry{ID: "later", At: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	all := read[[]api.AuditRecord](t, env.call(get, "/audit", ""))
	if len(all) != auditPage || all[0].ID != "later" || all[1].ID != "01001" {
		t.Errorf("a list of %d from %s", len(all), all[0].ID)
	}
	for limit, want := range map[string]int{"1": 1, "999": 999, "1000": 1000, "1001": 1000} {
		if got := len(read[[]api.AuditRecord](t, env.call(get, "/audit?limit="+limit, ""))); got != want {
			t.Errorf("a list of at most %s has %d entries", limit, got)
		}
	}
	for limit, want := range map[string]int{"0": 1002, "1": 1, "1000": 1000, "1001": 1001, "5000": 1002} {
		r := env.call(get, "/audit?format=jsonl&limit="+limit, "")
		lines := strings.Split(strings.TrimSuffix(r.body, "\n"), "\n")
		if len(lines) != want || r.header.Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("an export of at most %s has %d entries, as %s", limit, len(lines), r.header.Get("Content-Type"))
		}
		if slices.Sort(lines); len(slices.Compact(lines)) != want {
			t.Errorf("an export of at most %s tells an entry twice", limit)
		}
	}
	until := fmt.Sprintf("%d", at.Add(time.Second).Unix())
	if n := strings.Count(env.call(get, "/audit?format=jsonl&until="+until, "").body, "\n"); n != 1000 {
		t.Errorf("%d entries of the first second", n)
	}
	for query, want := range map[string]int{"format=json": 200, "format=jsonl": 200, "format=": 200, "format=csv": 422, "limit=x": 422, "until=x": 422, "format=csv&since=0": 422} {
		if r := env.call(get, "/audit?user=nobody&"+query, ""); r.status != want {
			t.Errorf("%s: %d %s", query, r.status, r.body)
		}
	}
}
