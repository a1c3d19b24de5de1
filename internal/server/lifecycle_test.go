package server

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/server/pickle"
)

func TestSubmitStreamGet(t *testing.T) {
	env := newTestEnv(t)
	id := env.ask("/launch", `{"task":"run: x","cluster_name":"c","env_vars":{"SKYPILOT_USER_ID":"ab12","SKYPILOT_USER":"eve"}}`)

	s := env.call(get, "/api/stream?request_id="+id[:8]+"&follow=True&format=console", "")
	if !strings.Contains(s.body, "as ab12 (eve)\n") || !strings.Contains(s.body, `rich_init`) {
		t.Errorf("stream: %q", s.body)
	}
	if got := s.header.Get(api.HeaderStreamRequestID); got != id[:8] {
		t.Errorf("the stream's id is %q, not what was asked for", got)
	}
	for h, want := range map[string]string{"Content-Type": textPlain, "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
		if got := s.header.Get(h); got != want {
			t.Errorf("%s: %q", h, got)
		}
	}
	plain := env.call(get, "/api/stream?request_id="+id+"&format=plain", "")
	if plain.body != "as ab12 (eve)\n" {
		t.Errorf("plain stream: %q", plain.body)
	}

	status, p := env.payload(id)
	if status != 200 || p.Status != api.RequestSucceeded || p.UserID != "ab12" || *p.ClusterName != "c" || p.ScheduleType != api.ScheduleLong {
		t.Errorf("%d %+v", status, p)
	}
	if p.Entrypoint != pickle.None || p.RequestBody != pickle.None || p.Error != "null" || p.FinishedAt == nil {
		t.Errorf("%+v", p)
	}
	var result api.LaunchResult
	if err := json.Unmarshal([]byte(p.ReturnValue), &result); err != nil || *result.JobID != 1 || result.Handle.ClusterName != "c" {
		t.Errorf("result %s", p.ReturnValue)
	}
}

// One SDK reads the failed record as the whole body, the other under "detail".
func TestFailureIsReadableBothWays(t *testing.T) {
	env := newTestEnv(t)
	id := env.ask("/exec", `{"task":"run: x","cluster_name":"nosuch"}`)
	r := env.call(get, "/api/get?request_id="+id, "")
	if r.status != http.StatusInternalServerError {
		t.Fatalf("%d %s", r.status, r.body)
	}
	var both struct {
		api.RequestPayload
		Detail api.RequestPayload `json:"detail"`
	}
	if err := json.Unmarshal([]byte(r.body), &both); err != nil {
		t.Fatal(err)
	}
	if both.Status != api.RequestFailed || both.Detail.Status != api.RequestFailed || both.Error != both.Detail.Error {
		t.Errorf("%s", r.body)
	}
	var e api.ErrorRecord
	if err := json.Unmarshal([]byte(both.Error), &e); err != nil {
		t.Fatal(err)
	}
	if e.Type != api.ErrClusterDoesNotExist || e.Message != "Cluster nosuch does not exist." || e.Hint == "" || e.Object == "" {
		t.Errorf("%+v", e)
	}
}

func TestGetRefusals(t *testing.T) {
	env := newTestEnv(t)
	env.ask("/status", `{}`)
	for range 20 { // two of 21 ids begin with the same digit
		env.ask("/status", `{}`)
	}
	var ambiguous string
	seen := map[byte]bool{}
	list := env.call(get, "/api/status?all_status=True", "").json(t).([]any)
	for _, e := range list {
		id := e.(map[string]any)["request_id"].(string)
		if seen[id[0]] {
			ambiguous = id[:1]
		}
		seen[id[0]] = true
	}
	for _, c := range []struct {
		path string
		want int
	}{
		{"/api/get", 422},
		{"/api/get?request_id=", 422},
		{"/api/get?request_id=zzzz", 404},
		{"/api/get?request_id=00000000-0000-0000-0000-000000000000", 404},
		{"/api/get?request_id=" + ambiguous, 400},
		{"/api/stream?request_id=zzzz", 404},
		{"/api/stream?request_id=" + ambiguous, 400},
	} {
		r := env.call(get, c.path, "")
		if d, _ := r.json(t).(map[string]any); r.status != c.want || d["detail"] == nil {
			t.Errorf("%s: %d %s, want %d with a detail", c.path, r.status, r.body, c.want)
		}
	}
}

func TestCancel(t *testing.T) {
	env := newTestEnv(t)
	id := env.ask("/stop", `{"cluster_name":"c"}`)
	cancel := env.ask("/api/cancel", `{"request_ids":["`+id[:10]+`","zzzz"]}`)
	if _, p := env.payload(cancel); p.ReturnValue != `["`+id+`"]` {
		t.Errorf("cancelled %s, want %s", p.ReturnValue, id)
	}
	status, p := env.payload(id)
	if status != 200 || p.Status != api.RequestCancelled || p.Error != "null" {
		t.Errorf("%d %+v", status, p)
	}
	again := env.ask("/api/cancel", `{"request_ids":["`+id+`"]}`)
	if _, p := env.payload(again); p.ReturnValue != `[]` {
		t.Errorf("a request that has ended was cancelled again: %s", p.ReturnValue)
	}
	other := env.ask("/stop", `{"cluster_name":"c","env_vars":{"SKYPILOT_USER_ID":"ab12"}}`)
	mine := env.ask("/stop", `{"cluster_name":"c","env_vars":{"SKYPILOT_USER_ID":"cd34"}}`)
	all := env.ask("/api/cancel", `{"user_id":"cd34"}`)
	if _, p := env.payload(all); p.ReturnValue != `["`+mine+`"]` {
		t.Errorf("all of one user: %s", p.ReturnValue)
	}
	all = env.ask("/api/cancel", `{"request_ids":null}`)
	if _, p := env.payload(all); p.ReturnValue != `["`+other+`"]` {
		t.Errorf("all: %s, want %s", p.ReturnValue, other)
	}
}

func TestStatusListsWithoutSecrets(t *testing.T) {
	env := newTestEnv(t)
	env.ask("/status", `{}`)
	id := env.ask("/stop", `{"cluster_name":"c","env_vars":{"AWS_SECRET_ACCESS_KEY":"hush"},"entrypoint_command":"sky launch --secret k=hush"}`)
	r := env.call(get, "/api/status", "")
	if strings.Contains(r.body, "hush") {
		t.Errorf("a secret is listed: %s", r.body)
	}
	list := r.json(t).([]any)
	if len(list) != 1 {
		t.Fatalf("active: %s", r.body)
	}
	e := list[0].(map[string]any)
	if e["request_id"] != id || e["request_body"] != `{"cluster_name":"c"}` || e["pid"] != nil {
		t.Errorf("%v", e)
	}
	for _, key := range []string{"request_id", "name", "entrypoint", "request_body", "status", "created_at", "user_id", "return_value",
		"error", "pid", "schedule_type"} {
		if _, ok := e[key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}
	for query, want := range map[string]int{"?all_status=True": 2, "?all_status=true&limit=1": 1, "?request_ids=" + id: 1,
		"?cluster_name=other": 0, "?request_ids=zzzz": 0, "?fields=name&fields=status": 1} {
		if got := env.call(get, "/api/status"+query, "").json(t).([]any); len(got) != want {
			t.Errorf("%s: %d requests, want %d", query, len(got), want)
		}
	}
	close(env.block)
}

func TestLogRouteStreamsAndReplays(t *testing.T) {
	env := newTestEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := env.send(ctx, post, "/logs", `{"cluster_name":"slow"}`)
	defer resp.Body.Close()
	id := resp.Header.Get(api.HeaderRequestID)
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"line one", "line two"} { // before the function has ended
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
	}
	close(env.block)
	if !lines.Scan() || lines.Text() != "line three" || lines.Scan() {
		t.Errorf("the end: %q", lines.Text())
	}
	if _, p := env.payload(id); p.ReturnValue != "100" || p.Name != "sky.logs" {
		t.Errorf("%+v", p)
	}
	if again := env.call(get, "/api/stream?request_id="+id, ""); again.body != "line one\nline two\nline three\n" {
		t.Errorf("replay: %q", again.body)
	}
}

func TestLogRouteFailsInItsRecord(t *testing.T) {
	env := newTestEnv(t)
	r := env.call(post, "/logs", `{"cluster_name":"nosuch"}`)
	if r.status != 200 || r.body != "" || r.header.Get("Content-Type") != textPlain {
		t.Errorf("%d %q", r.status, r.body)
	}
	if status, p := env.payload(r.id()); status != 500 || !strings.Contains(p.Error, "no such cluster") {
		t.Errorf("%d %+v", status, p)
	}
}

func TestGoneReaderEndsItsLog(t *testing.T) {
	env := newTestEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	resp := env.send(ctx, post, "/logs", `{"cluster_name":"slow"}`)
	id := resp.Header.Get(api.HeaderRequestID)
	cancel()
	resp.Body.Close()
	if status, p := env.payload(id); status != 200 || p.Status != api.RequestCancelled {
		t.Errorf("%d %+v", status, p)
	}
}

func TestUnsupportedIsAcceptedAndFails(t *testing.T) {
	env := newTestEnv(t)
	for _, r := range Routes() {
		if r.Kind != Async && r.Kind != Log || r.Name != "jobs.launch" && r.Name != "recipes.get" && r.Name != "serve.logs" {
			continue
		}
		a := env.call(r.Method, r.Path, `{"task":"run: x","recipe_name":"r","service_name":"s"}`)
		status, p := env.payload(a.id())
		if a.status != 200 || status != 500 || !strings.Contains(p.Error, api.ErrNotSupported) {
			t.Errorf("%s: %d, then %d %s", r.Path, a.status, status, p.Error)
		}
	}
}

func TestWhatStatusOfClientsNeeds(t *testing.T) {
	env := newTestEnv(t)
	for _, c := range []struct{ method, path, want string }{
		{post, "/jobs/queue/v2", `{"jobs":[],"total":0,"total_no_filter":0,"status_counts":{}}`},
		{post, "/serve/status", `[]`},
		{post, "/jobs/pool_status", `[]`},
		{get, "/workspaces", `{"default":{}}`},
		{get, "/enabled_clouds?expand=True", `[]`},
		{get, "/storage/ls", `[]`},
		{get, "/volumes?refresh=True", `[]`},
	} {
		body := ""
		if c.method == post {
			body = "{}"
		}
		r := env.call(c.method, c.path, body)
		if status, p := env.payload(r.id()); r.status != 200 || status != 200 || p.ReturnValue != c.want {
			t.Errorf("%s: %d, then %d %s", c.path, r.status, status, p.ReturnValue)
		}
	}
	if r := env.call(get, "/users/me/workspace", ""); r.status != 401 {
		t.Errorf("a caller without a login has the workspace %d %s", r.status, r.body)
	}
}
