package sky

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skypilot-go/sky/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEndpoints(t *testing.T) {
	env := func(port string) func(string) string {
		return func(k string) string {
			if k == "SKY_API_PORT" {
				return port
			}
			return ""
		}
	}
	for endpoint, local := range map[string]bool{
		"http://127.0.0.1:46580": true, "http://localhost:46580/": true, "http://0.0.0.0:46580": true,
		"http://127.0.0.1:46581": false, "https://127.0.0.1:46580": false, "http://sky.example.com:46580": false,
	} {
		if got := IsLocal(endpoint, env("")); got != local {
			t.Errorf("IsLocal(%s) = %v", endpoint, got)
		}
	}
	if !IsLocal("http://127.0.0.1:5000", env("5000")) || IsLocal("http://127.0.0.1:46580", env("5000")) {
		t.Error("SKY_API_PORT moves the local server")
	}
	if DefaultEndpoint(env("5000")) != "http://127.0.0.1:5000" {
		t.Error(DefaultEndpoint(env("5000")))
	}
	for _, bad := range []string{"", "localhost:46580", "ftp://x", "http://", "http://u:secret@ bad"} {
		if _, err := ParseEndpoint(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseEndpoint(%q): %v", bad, err)
		}
	}
}

func TestHealth(t *testing.T) {
	tests := []struct {
		name, version string
		code          int
		body          string
		want          any // a pointer to the error's type; nil: healthy
	}{
		{"healthy", "53", 200, `{"status":"healthy","version":"1","api_version":"53","commit":"x"}`, nil},
		{"newer", "99", 200, `{"status":"healthy","version":"9","api_version":"99","commit":"x"}`, nil},
		{"version in the body only", "", 200, `{"status":"healthy","version":"1","api_version":"53","commit":"x"}`, nil},
		{"too old", "20", 200, `{"status":"healthy","version":"0.1","api_version":"20","commit":"x"}`, new(*VersionError)},
		{"we are too old", "80", 400, `{"error":"version_mismatch","message":"upgrade"}`, new(*VersionError)},
		{"login", "53", 401, `{"detail":"x"}`, new(*AuthError)},
		{"login by status", "53", 200, `{"status":"needs_auth","version":"1","api_version":"53","commit":"x"}`, new(*AuthError)},
		{"too many wrong passwords", "", 429, `{"detail":"Too many wrong passwords. Try again in 8 seconds."}`, new(*StatusError)},
		{"another server", "", 404, "<html>", new(*NotSkyError)},
		{"another server that is fine", "", 200, "<html>", new(*NotSkyError)},
		{"no version at all", "", 200, `{"status":"healthy"}`, new(*NotSkyError)},
		{"ill", "53", 200, `{"status":"unhealthy","version":"1","api_version":"53","commit":"x"}`, new(*NotSkyError)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, map[string]http.HandlerFunc{"GET /api/health": func(w http.ResponseWriter, _ *http.Request) {
				if tt.version != "" {
					w.Header().Set(api.HeaderAPIVersion, tt.version)
				}
				w.WriteHeader(tt.code)
				fmt.Fprint(w, tt.body)
			}})
			_, err := c.Health(t.Context())
			if tt.want == nil && err != nil || tt.want != nil && !errors.As(err, tt.want) {
				t.Errorf("got %T: %v", err, err)
			}
		})
	}
	srv := httptest.NewServer(nil)
	srv.Close()
	if _, err := client(t, srv.URL).Health(t.Context()); !errors.As(err, new(*ConnectError)) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestHealthIsAskedOnce(t *testing.T) {
	calls := 0
	c := serve(t, map[string]http.HandlerFunc{"GET /api/health": func(w http.ResponseWriter, _ *http.Request) {
		calls++
		fmt.Fprint(w, `{"status":"healthy","version":"1","api_version":"53","commit":"x"}`)
	}})
	for range 3 {
		if _, err := c.Health(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

func TestCallCarriesWhoAsks(t *testing.T) {
	var body map[string]any
	var header http.Header
	c := serve(t, map[string]http.HandlerFunc{"POST /status": func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		_ = json.NewDecoder(r.Body).Decode(&body)
		accepted("id-1")(w, r)
	}})
	req, err := c.Status(t.Context(), api.StatusBody{ClusterNames: []string{"a*"}})
	if err != nil || req.ID() != "id-1" {
		t.Fatal(req, err)
	}
	if header.Get(api.HeaderAPIVersion) != "53" || header.Get(api.HeaderVersion) != api.ProductVersion {
		t.Errorf("headers %v", header)
	}
	vars := body["env_vars"].(map[string]any)
	delete(vars, "SKYPILOT_USAGE_RUN_ID")
	want := map[string]any{"SKYPILOT_USER_ID": "abcd1234", "SKYPILOT_USER": "me", "SKYPILOT_X": "1"}
	if d := cmp.Diff(want, vars); d != "" {
		t.Errorf("env_vars of a remote server: %s", d)
	}
	if body["entrypoint_command"] != "sky test" || body["using_remote_api_server"] != true || body["refresh"] != "NONE" {
		t.Errorf("body %v", body)
	}
}

func TestGet(t *testing.T) {
	failure := `{"object":"gASV...","type":"ClusterDoesNotExist","message":"Cluster 'x' does not exist.","attributes":{"a":1},"hint":"See sky status."}`
	tests := []struct {
		name    string
		payload api.RequestPayload
		want    []string
		err     string // type of the error
	}{
		{"result", api.RequestPayload{RequestID: "1", ReturnValue: `["a","b"]`, Error: "null", Status: api.RequestSucceeded}, []string{"a", "b"}, ""},
		{"nothing", api.RequestPayload{RequestID: "1", ReturnValue: "null", Error: "null", Status: api.RequestSucceeded}, nil, ""},
		{"failure", api.RequestPayload{RequestID: "1", ReturnValue: "null", Error: failure, Status: api.RequestFailed}, nil, "ClusterDoesNotExist"},
		{"cancelled", api.RequestPayload{RequestID: "1", ReturnValue: "null", Error: "null", Status: api.RequestCancelled}, nil, api.ErrRequestCancelled},
		{"failure without a reason counts as success", api.RequestPayload{RequestID: "1", ReturnValue: "null", Error: "null", Status: api.RequestFailed}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, map[string]http.HandlerFunc{"GET /api/get": finished(tt.payload)})
			got, err := RequestOf[[]string](c, "1").Get(t.Context())
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			e, _ := errors.AsType[*api.Error](err)
			switch {
			case tt.err == "" && err != nil:
				t.Error(err)
			case tt.err != "" && (e == nil || e.Type != tt.err):
				t.Errorf("got %v, want %s", err, tt.err)
			case tt.name == "failure" && (e.Hint != "See sky status." || e.Attributes["a"] != 1.0):
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestGetTakesBothShapesOfFailure(t *testing.T) {
	c := serve(t, map[string]http.HandlerFunc{"GET /api/get": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		fmt.Fprint(w, `{"detail":{"request_id":"1","name":"sky.down","status":"FAILED","return_value":"null","error":"{\"type\":\"ValueError\",\"message\":\"no\",\"object\":\"x\"}"},"request_id":"1"}`)
	}})
	_, err := RequestOf[any](c, "1").Get(t.Context())
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Type != "ValueError" || e.Message != "no" {
		t.Errorf("got %v", err)
	}
}

func TestLater(t *testing.T) {
	calls := 0
	c := serve(t, map[string]http.HandlerFunc{"POST /down": func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"detail":"The server restarts."}`)
			return
		}
		accepted("id")(w, r)
	}})
	var told []string
	c.notify = func(s string) { told = append(told, s) }
	if _, err := c.Down(t.Context(), api.StopBody{ClusterName: "x"}); err != nil || calls != 3 || len(told) != 2 {
		t.Errorf("%v after %d calls, told %q", err, calls, told)
	}
}

func TestBackoff(t *testing.T) {
	for n, want := range []time.Duration{5 * time.Second, 8 * time.Second, 12800 * time.Millisecond, 20480 * time.Millisecond, 25 * time.Second, 25 * time.Second} {
		if got := laterBackoff.wait(n, 0.5); got.Round(time.Millisecond) != want {
			t.Errorf("wait %d is %v, want %v", n, got, want)
		}
	}
	if low, high := laterBackoff.wait(0, 0), laterBackoff.wait(0, 1); low != 3*time.Second || high != 7*time.Second {
		t.Errorf("jitter from %v to %v", low, high)
	}
}

func TestValidate(t *testing.T) {
	c := serve(t, map[string]http.HandlerFunc{"POST /validate": func(w http.ResponseWriter, r *http.Request) {
		var b api.DagBody
		_ = json.NewDecoder(r.Body).Decode(&b)
		if b.Dag == "good" {
			fmt.Fprint(w, "null")
			return
		}
		w.WriteHeader(400)
		fmt.Fprint(w, `{"detail":{"type":"ValueError","message":"bad dag","args":["bad dag"],"attributes":{},"stacktrace":null}}`)
	}})
	if err := c.Validate(t.Context(), api.DagBody{Dag: "good"}); err != nil {
		t.Error(err)
	}
	err := c.Validate(t.Context(), api.DagBody{Dag: "bad"})
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Message != "bad dag" {
		t.Errorf("got %v", err)
	}
}

func TestDetails(t *testing.T) {
	for body, want := range map[string]string{
		`{"detail":"text"}`: "text",
		`{"detail":[{"loc":["body","tail"],"msg":"not a number"}]}`: "the API server does not accept the request: body tail: not a number",
		`{"error":"x","message":"words"}`:                           "words",
		`<html>`:                                                    "otherwise",
		`{}`:                                                        "otherwise",
	} {
		if got := detailText([]byte(body), "otherwise"); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func TestUserID(t *testing.T) {
	home := t.TempDir()
	env := environ{"HOME=" + home, "USER=ann"}
	first, err := identity(env, api.User{})
	if err != nil || first.Name != "ann" || len(first.ID) != 8 {
		t.Fatal(first, err)
	}
	if again, err := identity(env, api.User{}); err != nil || again != first {
		t.Errorf("again: %v, %v", again, err)
	}
	if _, err := identity(environ{"HOME=" + home, "SKYPILOT_USER_ID=no spaces"}, api.User{}); err == nil {
		t.Error("a bad id was taken")
	}
	if got, err := StoredUserID(home); err != nil || got != first.ID {
		t.Errorf("the server's id is %s, %v", got, err)
	}
}

// Another id in its place would hide every cluster.
func TestAUserIDThatCannotBeReadIsKept(t *testing.T) {
	for text, want := range map[string]string{"bad id!": `holds "bad id!", which is no user id`, "": "is empty", " \n": "is empty", "a\nb": `holds "a\nb", which`} {
		home := t.TempDir()
		file := filepath.Join(home, ".sky", "user_hash")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err := identity(environ{"HOME=" + home, "USER=ann"}, api.User{})
		if err == nil || !strings.Contains(err.Error(), file+" "+want) || !strings.Contains(err.Error(), "rm "+file) {
			t.Errorf("%q: %v", text, err)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != text {
			t.Errorf("%q became %q, %v", text, b, err)
		}
		if who, err := identity(environ{"HOME=" + home, "SKYPILOT_USER_ID=0123abcd"}, api.User{}); err != nil || who.ID != "0123abcd" {
			t.Errorf("the way out is closed: %v, %v", who, err)
		}
	}
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".sky", "user_hash"), 0o700); err != nil {
		t.Fatal(err)
	}
	if id, err := StoredUserID(home); err == nil {
		t.Errorf("a folder is the id %s", id)
	}
}

func TestUserIDIsOneForAll(t *testing.T) {
	env := environ{"HOME=" + t.TempDir(), "USER=ann"}
	ids := make([]string, 20)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			who, err := identity(env, api.User{})
			if err != nil {
				t.Error(err)
			}
			ids[i] = who.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("ids differ: %v", ids)
		}
	}
}

func TestCookies(t *testing.T) {
	env := environ{"HOME=" + t.TempDir()}
	if err := WriteCookies(env.Get, "https://sky.example.com", map[string]string{"session": "s3cret"}); err != nil {
		t.Fatal(err)
	}
	for endpoint, want := range map[string]int{
		"https://sky.example.com": 1, "https://other.example.com": 0, "http://sky.example.com": 0, "https://x.sky.example.com": 1,
	} {
		u, _ := ParseEndpoint(endpoint)
		if got := readCookies(env, u); len(got) != want {
			t.Errorf("%s gets %v", endpoint, got)
		}
	}
}

func TestCredentials(t *testing.T) {
	seen := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	defer srv.Close()
	ask := func(o Options) http.Header {
		o.Environ = []string{"HOME=" + t.TempDir(), "USER=me"}
		o.HTTPClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Requests(t.Context(), RequestFilter{}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(c.Endpoint(), "pass") {
			t.Errorf("Endpoint shows the password: %s", c.Endpoint())
		}
		return <-seen
	}
	if h := ask(Options{Endpoint: srv.URL, Token: "sky_abc"}); h.Get("Authorization") != "Bearer sky_abc" {
		t.Errorf("token: %v", h)
	}
	if h := ask(Options{Endpoint: strings.Replace(srv.URL, "http://", "http://user:pass@", 1)}); !strings.HasPrefix(h.Get("Authorization"), "Basic ") {
		t.Errorf("password: %v", h)
	}
	if _, err := New(Options{Token: "wrong", Environ: []string{"HOME=" + t.TempDir()}}); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a bad token: %v", err)
	}
}

func TestSharesFiles(t *testing.T) {
	c := serve(t, nil)
	home := c.env.home()
	for content, want := range map[string]bool{`{"instance_id":"inst-1"}`: true, `{"instance_id":"other"}`: false, `{}`: false, `broken`: false} {
		if err := os.MkdirAll(filepath.Dir(InstanceFile(home)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(InstanceFile(home), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.SharesFiles(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v", content, got, err)
		}
	}
}

func TestOffersAndLists(t *testing.T) {
	var o api.AcceleratorOffer
	if err := json.Unmarshal([]byte(`["AWS","p4d",  "A100",8.0,96.0,null,1152.0,32.77,null,"us-east-1"]`), &o); err != nil {
		t.Fatal(err)
	}
	if o.Cloud != "AWS" || *o.InstanceType != "p4d" || o.AcceleratorCount != 8 || o.DeviceMemory != nil || *o.Region != "us-east-1" {
		t.Errorf("got %+v", o)
	}
	if json.Unmarshal([]byte(`["AWS"]`), &o) == nil {
		t.Error("a short offer was taken")
	}
	for in, want := range map[string]int{"null": 0, "3": 1, "[1,2]": 2} {
		var l IntList
		if err := json.Unmarshal([]byte(in), &l); err != nil || len(l) != want {
			t.Errorf("%s: %v, %v", in, l, err)
		}
	}
}

// Servers of the reference implementation answer with pickles in a few places.
func TestPicklesAreLeftOut(t *testing.T) {
	var list []api.StatusRecord
	err := decodeResult([]byte(`[{"name":"a","handle":"gASV","status":"UP","credentials":null},{"name":"b","handle":{"cluster_name":"b"}}]`), &list)
	if err != nil || len(list) != 2 || list[0].Handle != nil || list[0].Status != api.ClusterUp || list[1].Handle == nil {
		t.Errorf("status: %+v, %v", list, err)
	}
	var started *api.Handle
	if err := decodeResult([]byte(`"gASV"`), &started); err != nil || started != nil {
		t.Errorf("start: %+v, %v", started, err)
	}
	var launched api.LaunchResult
	if err := decodeResult([]byte(`{"job_id":3,"handle":"gASV"}`), &launched); err != nil || *launched.JobID != 3 {
		t.Errorf("launch: %+v, %v", launched, err)
	}
	var costs []api.CostRecord
	if err := decodeResult([]byte(`[{"name":"a","resources":"gASV","total_cost":1.5}]`), &costs); err != nil || costs[0].TotalCost != 1.5 {
		t.Errorf("cost: %+v, %v", costs, err)
	}
	if decodeResult([]byte(`[{"name":7}]`), &list) == nil {
		t.Error("nonsense was taken")
	}
}

func Example() {
	c, err := New(Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	req, err := c.Launch(ctx, api.LaunchBody{Task: "run: nvidia-smi\nresources: {accelerators: A100}\n", ClusterName: "dev"})
	if err != nil {
		panic(err)
	}
	res, err := req.Wait(ctx, os.Stdout, StreamOptions{})
	if failure, ok := errors.AsType[*api.Error](err); ok && failure.Type == api.ErrResourcesUnavailable {
		fmt.Println("nothing is free:", failure.Message, failure.Hint)
		return
	}
	if err != nil {
		panic(err)
	}
	logs, err := c.Logs(api.LogsBody{ClusterName: "dev", JobID: res.JobID})
	if err != nil {
		panic(err)
	}
	if err := logs.Stream(ctx, os.Stdout, StreamOptions{}); err != nil {
		panic(err)
	}
}
