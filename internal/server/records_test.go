package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/server/pickle"
	"github.com/skypilot-go/sky/internal/state"
)

type typedBody struct {
	api.Envelope
	Name   string            `json:"name"`
	Count  int               `json:"count"`
	Big    int64             `json:"big"`
	Share  float64           `json:"share"`
	Down   bool              `json:"down"`
	Names  []string          `json:"names"`
	Labels map[string]string `json:"labels"`
	Maybe  *int              `json:"maybe"`
	Inner  struct {
		Deep int `json:"deep"`
	} `json:"inner"`
}

func TestWhatIsWrongWithABody(t *testing.T) {
	s := body[typedBody]("name", "count")
	const good = `"name":"n","count":1`
	for text, want := range map[string]string{ // type, place and message of each problem
		`{` + good + `}`:                       "",
		` {` + good + `,"more":1} `:            "",
		``:                                     "missing [body] a JSON object is required as the request's body",
		`  `:                                   "missing [body] a JSON object is required as the request's body",
		`[]`:                                   "model_attributes_type [body] the body must be a JSON object",
		`7`:                                    "model_attributes_type [body] the body must be a JSON object",
		`[`:                                    "json_invalid [body 1] the body is not valid JSON",
		`{"name"`:                              "json_invalid [body 7] the body is not valid JSON",
		`{}`:                                   "missing [body name] name is required; missing [body count] count is required",
		`{"name":null,"count":1}`:              "missing [body name] name is required",
		`{"name":1,"count":1}`:                 "string_type [body name] must be a text, not number",
		`{"name":"n","count":"x"}`:             "int_type [body count] must be a whole number, not string",
		`{"name":"n","count":1.5}`:             "int_type [body count] must be a whole number, not number 1.5",
		`{` + good + `,"big":"x"}`:             "int_type [body big] must be a whole number, not string",
		`{` + good + `,"share":"x"}`:           "float_type [body share] must be a number, not string",
		`{` + good + `,"down":"x"}`:            "bool_type [body down] must be true or false, not string",
		`{` + good + `,"names":"x"}`:           "list_type [body names] must be a list, not string",
		`{` + good + `,"labels":[]}`:           "dict_type [body labels] must be an object, not array",
		`{` + good + `,"maybe":"x"}`:           "int_type [body maybe] must be a whole number, not string",
		`{` + good + `,"inner":{"deep":"x"}}`:  "int_type [body inner deep] must be a whole number, not string",
		`{` + good + `,"inner":[]}`:            "dict_type [body inner] must be an object, not array",
		`{` + good + `,"Name":"m"}`:            "value_error [body name] the body has “Name” and “name”",
		`{` + good + `,"NAME":"m","Name":"o"}`: "value_error [body Name] the body has “NAME” and “Name”",
		`{` + good + `,"env_vars":{"A":1}}`:    "string_type [body env_vars] must be a text, not number",
	} {
		var got []string
		for _, p := range s.check([]byte(text)) {
			got = append(got, fmt.Sprint(p.Type, " ", p.Loc, " ", p.Message))
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s:\n got %s\nwant %s", text, strings.Join(got, "; "), want)
		}
	}
	for name, want := range map[string]bool{"name": true, "count": true, "Name": false, "env_vars": true, "x": false} {
		if s.has(name) != want {
			t.Errorf("the body has %s: %v", name, !want)
		}
	}
}

func TestWhichBodiesAreJSON(t *testing.T) {
	for kind, want := range map[string]bool{"": true, "application/json": true, "application/json; charset=utf-8": true, "application/problem+json": true,
		"text/plain": false, "application/x-www-form-urlencoded": false, "application/json;": true, ";": false, "json": false} {
		r := httptest.NewRequest(post, "/status", nil)
		r.Header.Set("Content-Type", kind)
		if isJSON(r) != want {
			t.Errorf("%q: %v", kind, !want)
		}
	}
}

func TestWhatIsKeptOfABody(t *testing.T) {
	u := state.User{ID: "ab12", Name: "eve"}
	for _, c := range []struct {
		name, body        string
		version           clientVersions
		workspace, parent string
		want              string // "": refused
	}{
		{"nothing was sent", ``, clientVersions{}, "", "", `{"env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"}}`},
		{"variables stay", `{"env_vars":{"A":"b","SKYPILOT_USER_ID":"cd34"}}`, clientVersions{}, "", "", `{"env_vars":{"A":"b","SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"}}`},
		{"none", `{"env_vars":null}`, clientVersions{}, "", "", `{"env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"}}`},
		{"in other spellings", `{"ENV_VARS":{"SKYPILOT_USER_ID":"cd34"},"Client_API_Version":1,"Client_Version":"x","TraceParent":"x"}`, clientVersions{}, "", "",
			`{"env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"}}`},
		{"the client's versions", `{"client_api_version":1,"client_version":"x"}`, clientVersions{53, "0.12.0"}, "", "", `{"client_api_version":53,"client_version":"0.12.0","env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"}}`},
		{"the span", `{"traceparent":"x"}`, clientVersions{}, "", "y", `{"env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"},"traceparent":"y"}`},
		{"the workspace", `{"override_skypilot_config":{"a":1,"active_workspace":"x"}}`, clientVersions{}, "lab", "",
			`{"env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"},"override_skypilot_config":{"a":1,"active_workspace":"lab"}}`},
		{"the workspace of no configuration", `{"override_skypilot_config":null}`, clientVersions{}, "lab", "",
			`{"env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"},"override_skypilot_config":{"active_workspace":"lab"}}`},
		{"the workspace, in another spelling", `{"Override_Skypilot_Config":{"active_workspace":"x"}}`, clientVersions{}, "lab", "",
			`{"env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"},"override_skypilot_config":{"active_workspace":"lab"}}`},
		{"no workspace", `{"override_skypilot_config":{"a":1}}`, clientVersions{}, "", "",
			`{"env_vars":{"SKYPILOT_USER":"eve","SKYPILOT_USER_ID":"ab12"},"override_skypilot_config":{"a":1}}`},
		{"no object", `[]`, clientVersions{}, "", "", ``},
		{"variables that are none", `{"env_vars":[]}`, clientVersions{}, "", "", ``},
		{"a configuration that is none", `{"override_skypilot_config":[]}`, clientVersions{}, "lab", "", ``},
	} {
		got, err := stampIdentity([]byte(c.body), u, c.version, c.workspace, c.parent)
		if string(got) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %s %v, want %s", c.name, got, err, c.want)
		}
	}
}

func TestFieldsOfABodyAreReplacedInEverySpelling(t *testing.T) {
	for body, want := range map[string]string{
		``: `{"user_id":"u"}`, `{}`: `{"user_id":"u"}`, `{"user_id":"x","a":1}`: `{"a":1,"user_id":"u"}`, `{"USER_ID":"x","refresh":"F","Refresh":"G"}`: `{"user_id":"u"}`,
	} {
		if got, err := overridden([]byte(body), map[string]any{"user_id": "u", "refresh": nil}); string(got) != want || err != nil {
			t.Errorf("%s: %s %v", body, got, err)
		}
	}
	if got, err := overridden([]byte(`[]`), nil); err == nil {
		t.Errorf("a list becomes %s", got)
	}
	if got, err := overridden(nil, map[string]any{"x": func() {}}); err == nil {
		t.Errorf("what is no JSON becomes %s", got)
	}
}

func TestResultsAtTheVersionsThatChangedThem(t *testing.T) {
	const null, none = `{"handle":null}`, `{"handle":"` + pickle.None + `"}`
	for _, c := range []struct {
		request      string
		below        int // the first version that gets the result as it is stored
		stored, then string
	}{
		{"exec", 49, null, none}, {"launch", 49, null, none}, {"jobs.launch", 49, null, none},
		{"start", 49, `{"x":1}`, ""},
		{"cost_report", 49, `[{"resources":null}]`, `[{"resources":"` + pickle.None + `"}]`},
		{"serve.status", 49, `[{"replica_info":[` + null + `,7]},8]`, `[{"replica_info":[` + none + `,7]},8]`},
		{"jobs.pool_status", 49, `[{"replica_info":[` + null + `]}]`, `[{"replica_info":[` + none + `]}]`},
		{"status", 29, `[{"status":"AUTOSTOPPING"}]`, `[{"status":"INIT"}]`},
		{"kubernetes_node_info", 28, `{"node_info_dict":{"n":{"is_cordoned":true,"taints":[]},"m":7}}`, `{"node_info_dict":{"m":7,"n":{}}}`},
		{"kubernetes_node_info", 26, `{"node_info_dict":{"n":{"cpu_count":1,"memory_gb":1,"cpu_free":1,"memory_free_gb":1}}}`, `{"node_info_dict":{"n":{}}}`},
		{"kubernetes_node_info", 25, `{"node_info_dict":{"n":{"is_ready":true}}}`, `{"node_info_dict":{"n":{}}}`},
		{"realtime_slurm_gpu_availability", 36, `[["a",[],"e"],["b",[]],["c"],7]`, `[["a",[]],["b",[]],["c"],7]`},
		{"launch", 49, `7`, `7`},
		{"status", 29, `{"status":"AUTOSTOPPING"}`, `{"status":"AUTOSTOPPING"}`},
	} {
		if got, err := resultFor(c.request, c.below, []byte(c.stored)); err != nil || strings.ReplaceAll(got, " ", "") != reorder(t, c.stored) && got != c.stored {
			t.Errorf("%s at %d: %s %v, want %s", c.request, c.below, got, err, c.stored)
		}
		got, err := resultFor(c.request, c.below-1, []byte(c.stored))
		if err != nil || got != c.then && c.then != "" || c.then == "" && (got == c.stored || !strings.HasPrefix(got, `"gAR`)) {
			t.Errorf("%s at %d: %s %v, want %s", c.request, c.below-1, got, err, c.then)
		}
		if got, err := resultFor(c.request, 0, []byte(c.stored)); err != nil || got != c.stored {
			t.Errorf("%s for a caller without a version: %s %v", c.request, got, err)
		}
	}
	for name, want := range empties() {
		for _, stored := range []string{"", "null"} {
			if got, err := resultFor(name, 53, []byte(stored)); err != nil || got != want {
				t.Errorf("%s without a result: %s %v", name, got, err)
			}
		}
	}
	if got, err := resultFor("status", 24, []byte(`[`)); err == nil {
		t.Errorf("a result that is no JSON is %s", got)
	}
}

// reorder is JSON with its keys in order.
func reorder(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// What a handle lacks is filled in: old clients ask for all of it.
func TestHandlesOfOldClientsAreWhole(t *testing.T) {
	least, err := pickledHandle(map[string]any{"cluster_name": "c"})
	if err != nil {
		t.Fatal(err)
	}
	filled, err := pickledHandle(map[string]any{"cluster_name": "c", "cluster_name_on_cloud": "c", "launched_nodes": 0})
	if err != nil || least != filled {
		t.Errorf("%s is not %s, %v", least, filled, err)
	}
	for _, other := range []map[string]any{
		{"cluster_name": "c", "cluster_name_on_cloud": "c-1"}, {"cluster_name": "c", "launched_nodes": 1},
		{"cluster_name": "c", "stable_internal_external_ips": []any{[]any{"a", "b"}}}, {"cluster_name": "c", "launched_resources": map[string]any{}},
	} {
		if got, err := pickledHandle(other); err != nil || got == least {
			t.Errorf("%v is lost (%v)", other, err)
		}
	}
	for _, no := range []any{nil, "x", 7, []any{}} {
		if got, err := pickledHandle(no); err != nil || got != pickle.None {
			t.Errorf("%v: %s %v", no, got, err)
		}
	}
}

// What clients build their exceptions from, when nobody says more than the message.
func TestExceptionsThatSayNoMoreThanTheirMessage(t *testing.T) {
	for kind, want := range map[string]string{
		"ResourcesUnavailableError": `{"args":["m"],"attributes":{"failover_history":[],"no_failover":false}`,
		"KubeAPIUnreachableError":   `{"args":["m"],"attributes":{"failover_history":[],"no_failover":false}`,
		"ClusterNotUpError":         `{"args":["m"],"attributes":{"cluster_status":null,"handle":null}`,
		"CommandError":              `{"args":[],"attributes":{"command":"","detailed_reason":null,"error_msg":"m","failure":null,"returncode":1}`,
		"CommandFailureException":   `{"args":[],"attributes":{"command":"","detailed_reason":null,"error_msg":"m","failure":""}`,
		"CloudError":                `{"args":["m"],"attributes":{"cloud_provider":"","error_type":""}`,
		"ExecutionRetryableError":   `{"args":["m"],"attributes":{"hint":"","retry_wait_seconds":0}`,
		"WorkspaceAmbiguousError":   `{"args":[],"attributes":{"accessible":[],"note":null}`,
		"KubernetesValidationError": `{"args":[],"attributes":{"message":"m","path":[]}`,
		"ProvisionPrechecksError":   `{"args":[],"attributes":{"reasons":[]}`,
		"FetchClusterInfoError":     `{"args":[],"attributes":{"reason":null}`,
		"ValueError":                `{"args":["m"],"attributes":{}`,
	} {
		got, err := json.Marshal(exceptionJSON(api.ErrorRecord{Type: kind, Message: "m"}))
		if full := want + `,"message":"m","stacktrace":null,"type":"` + kind + `"}`; err != nil || string(got) != full {
			t.Errorf("got  %s\nwant %s (%v)", got, full, err)
		}
	}
	unknown := exceptionJSON(api.ErrorRecord{Type: "Odd", Message: "m", Hint: "h", Attributes: map[string]any{"cloud_provider": "x"}})
	if got, _ := json.Marshal(unknown); string(got) != `{"args":["m\nh"],"attributes":{"cloud_provider":"","error_type":"Odd"},"message":"m\nh","stacktrace":null,"type":"CloudError"}` {
		t.Errorf("%s", got)
	}
}

func TestFailuresWithoutWords(t *testing.T) {
	cause := errors.New("the cause")
	for _, c := range []struct {
		err  error
		want api.ErrorRecord
	}{
		{&api.Error{Type: "ValueError", Err: cause}, api.ErrorRecord{Type: "ValueError", Message: (&api.Error{Type: "ValueError", Err: cause}).Error()}},
		{&api.Error{Message: "m", Attributes: map[string]any{"a": 1}}, api.ErrorRecord{Type: "RuntimeError", Message: "m", Attributes: map[string]any{"a": json.Number("1")}}},
		{&api.Error{Message: "m", Attributes: map[string]any{"a": func() {}}}, api.ErrorRecord{Type: "RuntimeError", Message: "m"}},
		{&api.Error{Message: "m", Attributes: map[string]any{}}, api.ErrorRecord{Type: "RuntimeError", Message: "m"}},
	} {
		if got := errorRecord(c.err); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %+v, want %+v", c.err, got, c.want)
		}
	}
	text, err := failure(nil)
	var e api.ErrorRecord
	if err != nil || json.Unmarshal([]byte(text), &e) != nil || e.Type != api.ErrRuntime || e.Message == "" || e.Object == "" {
		t.Errorf("nobody said why: %s %v", text, err)
	}
	if text, err := failure([]byte(`{`)); err == nil {
		t.Errorf("what is no JSON: %s", text)
	}
	if r, err := fullPayload(&state.Request{Name: "sky.status", Status: api.RequestSucceeded, ReturnValue: []byte(`[`)}, 24); err == nil {
		t.Errorf("a result that is no JSON: %+v", r)
	}
	for s, known := range map[api.ClusterStatus]bool{api.ClusterInit: true, api.ClusterUp: true, api.ClusterStopped: true, api.ClusterAutostopping: true, api.ClusterPending: true, "ODD": false} {
		if got := clusterStatusEnum(s); (got != nil) != known {
			t.Errorf("%s: %v", s, got)
		}
	}
}

func TestWhatIsNotSupportedSaysSo(t *testing.T) {
	for path, want := range map[string]struct {
		command string
		hint    bool
	}{"/jobs/pool_apply": {"`sky jobs pool apply`", true}, "/serve/up": {"`sky serve up`", false}, "/local_up": {"`sky local up`", false}} {
		e, ok := errors.AsType[*api.Error](notSupported(path))
		if !ok || e.Type != api.ErrNotSupported || !strings.Contains(e.Message, want.command) || !strings.Contains(e.Message, "("+path+")") || (e.Hint != "") != want.hint {
			t.Errorf("%s: %+v", path, e)
		}
	}
}

func TestPathsAreKeptBelowTheHomeFolder(t *testing.T) {
	w := &Server{Deps: Deps{Home: "/home/sky/"}}
	for path, want := range map[string]string{ // "": refused
		"~/a/b": "a/b", "/home/sky/a": "a", "~/a/../b/": "b", "~/./a": "a", "/home/sky/./a//b": "a/b",
		"~": "", "/home/sky": "", "/home/skylark/a": "", "/etc/passwd": "", "a": "", "": "", "~/..": "", "~/../x": "", "~/a/../../x": "", "~/a\x00b": "",
	} {
		got, err := w.inHome(path)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q %v, want %q", path, got, err, want)
		}
	}
}
