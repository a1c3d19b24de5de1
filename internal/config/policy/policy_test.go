package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
)

func load(t *testing.T, text string) *config.Config {
	t.Helper()
	home := t.TempDir()
	file := filepath.Join(home, "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Options{Home: home, Dir: home, Env: func(name string) (string, bool) {
		return "~/config.yaml", name == config.EnvGlobalConfig
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newPolicy(t *testing.T, c *config.Config) *Policy {
	t.Helper()
	p, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answering is a policy service that hands the decoded question to f and
// answers with what f returns, encoded as the protocol wants it.
func answering(t *testing.T, f func(q map[string]any) (status int, answer string)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var inner string
		var q map[string]any
		if err := json.Unmarshal(body, &inner); err != nil {
			t.Errorf("the body is no JSON text: %s", body)
		}
		if err := json.Unmarshal([]byte(inner), &q); err != nil {
			t.Errorf("the text holds no JSON object: %s", inner)
		}
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s", r.Method, r.Header.Get("Content-Type"))
		}
		status, answer := f(q)
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// twice encodes an answer the way the protocol does.
func twice(task, values string) string {
	inner, _ := json.Marshal(map[string]string{"task": task, "skypilot_config": values})
	outer, _ := json.Marshal(string(inner))
	return string(outer)
}

func ptr[T any](v T) *T { return &v }

func TestNoPolicy(t *testing.T) {
	if p, err := New(load(t, ""), nil); p != nil || err != nil {
		t.Error(p, err)
	}
}

func TestClassesAreExplained(t *testing.T) {
	_, err := New(load(t, "admin_policy: my.module.Policy"), nil)
	if err == nil || !strings.Contains(err.Error(), `~/config.yaml:1:15: admin_policy: "my.module.Policy" names a Python class`) || !strings.Contains(err.Error(), "admin_policy.cel") {
		t.Error(err)
	}
}

func TestQuestion(t *testing.T) {
	var got map[string]any
	url := answering(t, func(q map[string]any) (int, string) { got = q; return 200, twice("run: x\n", "{}") })
	c := load(t, "admin_policy: "+url+"\naws: {vpc_name: a}\napi_server: {endpoint: http://e, service_account_token: sky_hunter2}\n")
	r := Request{Name: Launch, Tasks: []string{"run: echo\n"}, AtClientSide: true,
		Options: &Options{ClusterName: ptr("c"), IdleMinutesToAutostop: ptr(5), Down: true}}
	if _, _, err := newPolicy(t, c).Apply(t.Context(), c, r); err != nil {
		t.Fatal(err)
	}
	values, _ := config.DecodeYAML([]byte(got["skypilot_config"].(string)), "")
	if want := map[string]any{"vpc_name": "a"}; !reflect.DeepEqual(values.(map[string]any)["aws"], want) {
		t.Error("configuration", got["skypilot_config"])
	}
	if strings.Contains(fmt.Sprint(got), "hunter2") {
		t.Error("the policy reads secrets:", got)
	}
	delete(got, "skypilot_config")
	want := map[string]any{"task": "run: echo\n", "request_name": "launch", "at_client_side": true, "user": "", "client_api_version": nil, "client_version": nil,
		"request_options": map[string]any{"cluster_name": "c", "idle_minutes_to_autostop": 5.0, "down": true, "dryrun": false}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("asks %v\nwant %v", got, want)
	}

	r = Request{Name: JobsLaunch, Tasks: []string{"run: echo\n"}, User: &User{"12ab", "ann"}, ClientAPIVersion: ptr(53), ClientVersion: ptr("1.0")}
	if _, _, err := newPolicy(t, c).Apply(t.Context(), c, r); err != nil {
		t.Fatal(err)
	}
	delete(got, "skypilot_config")
	want = map[string]any{"task": "run: echo\n", "request_name": "jobs.launch", "at_client_side": false, "user": "id: 12ab\nname: ann\n",
		"client_api_version": 53.0, "client_version": "1.0", "request_options": nil}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("asks %v\nwant %v", got, want)
	}
}

func TestAnswers(t *testing.T) {
	const own = "aws: {vpc_name: a}\napi_server: {service_account_token: sky_t}\n"
	for _, test := range []struct {
		name   string
		status int
		answer string
		vpc    string // or
		want   string // an error with these words …
		class  string // … of this class
	}{
		{"changed", 200, twice("run: new\n", "aws: {vpc_name: b}\n"), "b", "", ""},
		{"other success", 201, twice("run: new\n", "aws: {vpc_name: b}\n"), "b", "", ""},
		{"encoded once", 200, `{"task": "run: new\n", "skypilot_config": "aws: {vpc_name: b}"}`, "b", "", ""},
		{"an empty configuration", 200, twice("run: new\n", ""), "", "", ""},
		{"refused", 400, "Use spot instances.\n", "", "rejected by the admin policy URL: Use spot instances.", "UserRequestRejectedByPolicy"},
		{"failing", 500, "boom\nat line 5", "", "HTTP status 500 Internal Server Error: boom", "RestfulPolicyError"},
		{"not there", 404, "", "", "HTTP status 404", "RestfulPolicyError"},
		{"no JSON", 200, "ok", "", "its answer cannot be read", "RestfulPolicyError"},
		{"no object", 200, `"5"`, "", "its answer cannot be read", "RestfulPolicyError"},
		{"no task", 200, `"{\"skypilot_config\": \"\"}"`, "", "task or skypilot_config is missing", "RestfulPolicyError"},
		{"null", 200, "null", "", "its answer cannot be read", "RestfulPolicyError"},
		{"a broken configuration", 200, twice("x", "a: ["), "", "skypilot_config:1:4: not valid YAML", "RestfulPolicyError"},
		{"no section", 200, twice("x", "5"), "", "skypilot_config is not a section", "RestfulPolicyError"},
		{"an invalid configuration", 200, twice("x", "awz: {}"), "", "its configuration is not valid: URL: unknown field \"awz\"", "RestfulPolicyError"},
	} {
		url := answering(t, func(map[string]any) (int, string) { return test.status, test.answer })
		c := load(t, own+"admin_policy: "+url)
		tasks, changed, err := newPolicy(t, c).Apply(t.Context(), c, Request{Name: Launch, Tasks: []string{"run: old\n"}})
		if test.want != "" {
			var e *api.Error
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), url, "URL"), test.want) || !errors.As(err, &e) || e.Type != test.class {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if tasks[0] != "run: new\n" || changed.Text("aws", "vpc_name") != test.vpc || changed.Token() != "sky_t" {
			t.Errorf("%s: %q %v", test.name, tasks, changed.Map())
		}
	}
}

func TestEveryTaskIsAsked(t *testing.T) {
	asked := 0
	url := answering(t, func(q map[string]any) (int, string) {
		asked++
		return 200, twice(q["task"].(string)+"num_nodes: 2\n", "aws: {vpc_name: b}\n")
	})
	c := load(t, "admin_policy: "+url)
	tasks, changed, err := newPolicy(t, c).Apply(t.Context(), c, Request{Name: Launch, Tasks: []string{"run: a\n", "run: b\n"}})
	if err != nil || asked != 2 || tasks[1] != "run: b\nnum_nodes: 2\n" || changed.Text("aws", "vpc_name") != "b" {
		t.Error(asked, tasks, err)
	}

	url = answering(t, func(q map[string]any) (int, string) { return 200, twice("", "aws: {vpc_name: "+q["task"].(string)+"}") })
	c = load(t, "admin_policy: "+url)
	_, _, err = newPolicy(t, c).Apply(t.Context(), c, Request{Tasks: []string{"a", "b"}})
	if err == nil || !strings.Contains(err.Error(), "different configurations") {
		t.Error(err)
	}
}

func TestUnchangedConfigurationStaysTheSame(t *testing.T) {
	url := answering(t, func(q map[string]any) (int, string) { return 200, twice("x", q["skypilot_config"].(string)) })
	c := load(t, "admin_policy: "+url+"\naws: {labels: {a: 'yes'}}\n")
	if _, changed, err := newPolicy(t, c).Apply(t.Context(), c, Request{Tasks: []string{"x"}}); err != nil || changed != c {
		t.Error(err)
	}
}

func TestUnreachable(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	c := load(t, "admin_policy: "+strings.Replace(s.URL, "://", "://ann:hunter2@", 1)+"/p?token=hunter2")
	_, _, err := newPolicy(t, c).Apply(t.Context(), c, Request{Tasks: []string{"x"}})
	var e *CallError
	if !errors.As(err, &e) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "connect") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := newPolicy(t, c).Apply(ctx, c, Request{Tasks: []string{"x"}}); !errors.Is(err, context.Canceled) {
		t.Error("cancelling:", err)
	}
}

// silent is a policy service that never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestSilenceEnds(t *testing.T) {
	c := load(t, "admin_policy: http://policy")
	synctest.Test(t, func(t *testing.T) {
		p, err := New(c, &http.Client{Transport: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, _, err = p.Apply(t.Context(), c, Request{Tasks: []string{"x"}})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
