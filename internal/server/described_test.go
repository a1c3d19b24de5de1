package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/state"
)

func TestHowRoutesAreDescribed(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(description(), &doc); err != nil {
		t.Fatal(err)
	}
	const failure = `"default":{"content":{"application/json":{"schema":{"anyOf":[{"$ref":"#/components/schemas/Failure"},{"required":["error","message"],"type":"object"}]}}},"description":"It was not done."}`
	for path, want := range map[string]string{
		"/paths/~1ssh_node_pools~1{pool}/delete": `{"operationId":"delete_ssh_node_pools_pool","parameters":[{"in":"path","name":"pool","required":true,"schema":{"type":"string"}}],` +
			`"responses":{"200":{"content":{"application/json":{"schema":{"additionalProperties":{"type":"string"},"type":["object","null"]}}},"description":"Done.","headers":ID},` + failure + `},` +
			`"tags":["ssh node pools"],"x-access":{"admin":"yes","no login":"log in","user":"no","viewer":"no"}}`,
		"/paths/~1jobs~1cancel/post/requestBody/required":                       `true`,
		"/paths/~1volumes/get/parameters":                                       `[{"in":"query","name":"refresh","schema":{"type":"boolean"}}]`,
		"/paths/~1token/get/parameters":                                         `[{"in":"query","name":"local_port","schema":{"type":"integer"}}]`,
		"/paths/~1recipes/get/parameters":                                       `[{"in":"query","name":"my_recipes_only","schema":{"type":"boolean"}},{"in":"query","name":"pinned_only","schema":{"type":"boolean"}},{"in":"query","name":"recipe_type","schema":{"type":"string"}}]`,
		"/paths/~1stop/post/x-request":                                          `"sky.stop"`,
		"/paths/~1stop/post/x-result":                                           `{"type":"null"}`,
		"/paths/~1recipes~1delete/post/x-result":                                `{"type":"boolean"}`,
		"/paths/~1status_kubernetes/get/x-result":                               `{}`,
		"/paths/~1stop/post/responses/200/content":                              `{"application/json":{"schema":{"type":["null","object"]}}}`,
		"/paths/~1logs/post/responses/200/content":                              `{"text/plain":{}}`,
		"/paths/~1logs/post/responses/200/description":                          `"The log, as it is written; the result is told by /api/get."`,
		"/paths/~1stop/post/responses/200/description":                          `"Accepted; the result is told by /api/get."`,
		"/paths/~1dashboard/get/responses":                                      `{"307":{"description":"The page is elsewhere."},` + failure + `}`,
		"/paths/~1/get/responses":                                               `{"307":{"description":"The page is elsewhere."},` + failure + `}`,
		"/paths/~1dashboard~1path/get/responses/200/content":                    `{"text/html":{}}`,
		"/paths/~1shell/get/responses":                                          `{"101":{"description":"A websocket begins."},` + failure + `}`,
		"/paths/~1users/get/tags":                                               `["users"]`,
		"/paths/~1launch/post/tags":                                             `["clusters and infrastructure"]`,
		"/paths/~1jobs~1queue/post/tags":                                        `["jobs"]`,
		"/paths/~1volumes/get/tags":                                             `["volumes"]`,
		"/paths/~1ssh_node_pools/get/tags":                                      `["clusters and infrastructure"]`,
		"/paths/~1upload_v2~1blob/get/operationId":                              `"get_upload_v2_blob"`,
		"/paths/~1kubernetes-pod-ssh-proxy/get/operationId":                     `"get_kubernetes_pod_ssh_proxy"`,
		"/paths/~1api~1openapi.json/get/responses/200/content":                  `{"application/json":{"schema":{}}}`,
		"/paths/~1users~1service-account-tokens~1rotate/post/x-access/no login": `"log in"`,
		"/components/schemas/Failure/required":                                  `["detail"]`,
		"/components/securitySchemes/password":                                  `{"scheme":"basic","type":"http"}`,
		"/security":                                                             `[{},{"token":[]},{"password":[]}]`,
		"/info/version":                                                         `"` + api.ProductVersion + `"`,
	} {
		var at any = doc
		for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			m, _ := at.(map[string]any)
			at = m[strings.ReplaceAll(part, "~1", "/")]
		}
		b, _ := json.Marshal(at)
		got := string(b)
		want = strings.ReplaceAll(want, `:ID}`, `:{"X-Skypilot-Request-ID":{"description":"The request's id.","schema":{"type":"string"}}}}`)
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", path, got, want)
		}
	}
}

// TestResultsAreTyped: what a route answers has a type in api, but for what sky does
// not have and what balancers of services exchange with the server (package balancerapi).
func TestResultsAreTyped(t *testing.T) {
	untyped := []string{"/status_kubernetes", "/slurm_gpu_availability", "/slurm_node_info",
		"/dashboard_config", "/api/openapi.json", "/serve/balancer/table", "/serve/balancer/connect", "/serve/balancer/report"}
	for _, r := range Routes() {
		_, typed := outcomes()[r.Method+" "+r.Path]
		if (r.Kind == Async || r.Kind == Direct) && typed == slices.Contains(untyped, r.Path) {
			t.Errorf("%s %s: typed %v", r.Method, r.Path, typed)
		}
	}
}

// A server that goes down does not wait for those who follow a log for ever.
func TestFollowersDoNotHoldAServerThatGoesDown(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.file("sky_logs/x.log", "line\n")
	stop := env.serving(10 * time.Minute)
	resp := env.send(t.Context(), get, "/api/stream?format=console&log_path=~/sky_logs/x.log", "")
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Minute {
		t.Errorf("it took %v of ten minutes' grace", took)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
}

func TestAServerWithoutItsListenerEnds(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := env.server.Serve(t.Context(), l, time.Minute); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	if !env.server.draining.Load() {
		t.Error("it takes new work")
	}
}

func TestAServerNeedsLittleToStandOn(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	s := New(Deps{Engine: env.engine, Store: env.store})
	defer s.Close()
	if s.Home != home || s.Rules == nil || s.Uploads.Home != home || s.Downloads.home != home || s.Metrics == nil || s.log == nil {
		t.Errorf("%+v", s.Deps)
	}
	given := New(Deps{Engine: env.engine, Store: env.store, Home: env.home, Logger: env.server.log, Metrics: env.server.Metrics, Uploads: env.server.Uploads, Downloads: env.server.Downloads})
	defer given.Close()
	if given.Home != env.home || given.log != env.server.log || given.Metrics != env.server.Metrics || given.Uploads != env.server.Uploads || given.Downloads != env.server.Downloads {
		t.Errorf("%+v", given.Deps)
	}
	// Without a gate nobody is let in.
	a := httptest.NewRecorder()
	s.ServeHTTP(a, httptest.NewRequestWithContext(t.Context(), get, "http://localhost/api/status", nil))
	if a.Code != http.StatusForbidden {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

// What is read for a caller fails as a whole if the database does.
func TestNothingIsMadeOfADatabaseThatIsGone(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	s := env.server
	s.Store = db
	caller := withCaller(httptest.NewRequestWithContext(t.Context(), get, "/", nil), &auth.Caller{User: state.User{ID: "ab12", Role: "admin"}})
	u := &Uploads{Home: env.home, Store: db.AsShared()}
	env.file(BlobDir("ab12", testBlob)+".parts/part0", "x")
	for name, call := range map[string]func() error{
		"a token":              func() error { _, _, err := s.ownToken(caller, "x"); return err },
		"a cluster":            func() error { _, err := s.mayTouch(t.Context(), nil, "c", true); return err },
		"room for uploads":     func() error { return u.sharedRoom(t.Context(), "ab12") },
		"whether one is there": func() error { _, err := u.exists(t.Context(), "ab12", testBlob); return err },
		"missing parts":        func() error { _, err := u.missing(t.Context(), "ab12", testBlob, 2); return err },
		"keeping a part":       func() error { return u.share(t.Context(), "ab12", testBlob, u.at("ab12", testBlob, 1), 0) },
		"fetching an upload":   func() error { return u.Fetch(t.Context(), "ab12", testBlob) },
		"fetching its parts":   func() error { return u.unpack(t.Context(), "ab12", testBlob, 2) },
		"completing it":        func() error { return u.complete(t.Context(), "ab12", testBlob, 1) },
		"removing it":          func() error { return u.discard(t.Context(), "ab12", testBlob) },
		"sweeping":             func() error { return u.sweep(t.Context(), nil) },
		"files of a request":   func() error { _, err := u.Files(t.Context(), "ab12", state.RequestFiles{Upload: testBlob}); return err },
		"metrics":              func() error { return s.writeMetrics(t.Context(), io.Discard) },
		"the audit log":        func() error { s.AuditKept = time.Hour; return s.keepAudit(t.Context()) },
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no failure", name)
		}
	}
	shared := New(Deps{Engine: env.engine, Store: db.AsShared(), Home: env.home, Gate: s.Gate, Logger: s.log})
	defer shared.Close()
	for _, url := range []string{"/upload_v2/blob?user_hash=ab12&blob_id=" + testBlob} {
		a := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), get, "http://localhost"+url, nil)
		r.RemoteAddr = "127.0.0.1:1"
		shared.ServeHTTP(a, r)
		if a.Code != 500 {
			t.Errorf("%s: %d %s", url, a.Code, a.Body)
		}
	}
	for _, total := range []int{1, 2} {
		a := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), post, fmt.Sprintf("http://localhost/upload_v2?chunk_index=0&total_chunks=%d", total), strings.NewReader("x"))
		shared.takeShared(a, r, "ab12", testBlob, shared.Uploads.at("ab12", testBlob, 0))
		if a.Code != 500 || strings.Contains(a.Body.String(), "completed") {
			t.Errorf("a chunk of %d: %d %s", total, a.Code, a.Body)
		}
	}
	a := httptest.NewRecorder()
	shared.takeShared(a, httptest.NewRequestWithContext(t.Context(), post, "/upload_v2?chunk_index=5&total_chunks=1", nil), "ab12", testBlob, unpacking{})
	if a.Code != 422 {
		t.Errorf("a chunk that is none: %d %s", a.Code, a.Body)
	}
}

func TestALogThatCannotBeReadIsAFailure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := copyLog(t.Context(), f, view{}, brokenWriter{}); err == nil {
		t.Error("a reader that is gone was told everything")
	}
	f.Close()
	for _, tail := range []int{0, 1} {
		if err := copyLog(t.Context(), f, view{tail: tail}, io.Discard); err == nil {
			t.Errorf("the last %d lines of a closed file were read", tail)
		}
	}
	if at, err := tailOffset(f, 1); err == nil {
		t.Errorf("they begin at %d", at)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A log that breaks off must not look whole.
func TestALogThatBreaksOffCutsItsConnection(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	for _, gzip := range []bool{true, false} {
		for _, failure := range []error{nil, errors.New("the file is gone")} {
			a := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), get, "/api/stream", nil)
			cut := func() (cut bool) {
				defer func() { cut = recover() == http.ErrAbortHandler }()
				env.server.sendLog(a, r, view{gzip: gzip}, func(_ context.Context, out io.Writer) error {
					_, _ = io.WriteString(out, "line\n")
					return failure
				})
				return false
			}()
			if cut != (failure != nil) || a.Body.Len() == 0 {
				t.Errorf("compressed: %v, failed: %v: cut %v after %d bytes", gzip, failure, cut, a.Body.Len())
			}
		}
	}
	// Whose reader is gone, or who is closing, has nobody to tell.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	env.server.sendLog(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, get, "/api/stream", nil), view{}, func(ctx context.Context, _ io.Writer) error { return ctx.Err() })
}

func TestWhatOtherSitesMaySend(t *testing.T) {
	for _, c := range []struct {
		method, site, origin string
		page                 bool
		good                 bool
	}{
		{get, "cross-site", "https://evil.example", true, true},
		{http.MethodHead, "cross-site", "", true, true},
		{post, "cross-site", "", true, false},
		{get, "cross-site", "", false, false},
		{post, "", "", false, true},
		{post, "none", "", false, true},
		{post, "same-origin", "http://sky.example:80", false, true},
		{post, "same-origin", "http://SKY.example:80", false, true},
		{post, "same-origin", "https://sky.example:80", false, true}, // a proxy speaks TLS
		{post, "", "http://sky.example", false, false},
		{post, "", "http://sky.example:81", false, false},
		{post, "", "null", false, false},
		{post, "", "http://%zz", false, false},
		{post, "same-site", "http://sky.example:80", false, false},
	} {
		r := httptest.NewRequest(c.method, "http://sky.example:80/x", nil)
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if err := sameSite(r, c.page); (err == nil) != c.good {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestProvisionLogsAreSentAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	var asked []ProvisionLogs
	env := newTestEnv(t, people(t, map[string]string{"uma": "user", "ada": "admin"}), func(d *Deps) {
		d.ProvisionLogs = func(ctx context.Context, q ProvisionLogs, out io.Writer) error {
			asked = append(asked, q)
			for range 2 {
				_, _ = io.WriteString(out, "line\n")
				select {
				case <-next:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}
	})
	env.as = "uma"
	resp := env.send(t.Context(), post, "/provision_logs", `{"cluster_name":"c"}`)
	for range 2 {
		line := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != "line\n" {
			t.Fatalf("%q %v", line, err)
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 || resp.Header.Get("Content-Type") != textPlain {
		t.Errorf("%q %v %v", rest, err, resp.Header)
	}
	resp.Body.Close()
	if q := asked[0]; q.Scope == nil || q.Scope.User != auth.UserID("uma") || !q.Follow || q.Tail != 0 || q.Worker != nil {
		t.Errorf("%+v", q)
	}
	for query, want := range map[string]int{"tail=x": 422, "follow=perhaps": 422} {
		if r := env.call(post, "/provision_logs?"+query, `{"cluster_name":"c"}`); r.status != want {
			t.Errorf("%s: %d %s", query, r.status, r.body)
		}
	}
	// They end with the server.
	resp = env.send(t.Context(), post, "/provision_logs", `{"cluster_name":"c"}`)
	env.server.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "line\n" {
		t.Errorf("%q %v", text, err)
	}
	resp.Body.Close()
	if r := newTestEnv(t).call(post, "/provision_logs", `{"cluster_name":"c"}`); r.status != 400 {
		t.Errorf("a server that has none: %d %s", r.status, r.body)
	}
}
