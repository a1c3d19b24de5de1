package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

// Whatever bytes come to whatever route, the answer is well formed and never the
// server's own failure.
func FuzzRoutes(f *testing.F) {
	env := newTestEnv(f)
	close(env.block)
	routes := Routes()
	for i, r := range routes {
		f.Add(uint16(i), "", "expand=True&refresh=1", "Origin", "x", []byte(`{}`))
		if r.Body != nil {
			f.Add(uint16(i), "", "", api.HeaderAPIVersion, "53",
				[]byte(`{"task":"run: x","dag":"run: x","cluster_name":"c","cluster":"c","idle_minutes":1,"job_ids":[1],"env_vars":{"SKYPILOT_USER_ID":"ab12"}}`))
		}
	}
	f.Add(uint16(1), "", "request_id=0", "", "", []byte(nil))
	f.Add(uint16(2), "", "log_path=~/sky_logs/../x&follow=False", "User-Agent", "Mozilla", []byte(nil))
	f.Add(uint16(2), "/x", "compress=gz&download=\x00", "", "", []byte(`[`))
	f.Add(uint16(40), "", "user_hash=a&upload_id="+testBlob+"&chunk_index=0&total_chunks=1", "Content-Type", "application/octet-stream", []byte("PK\x03\x04"))
	f.Fuzz(func(t *testing.T, which uint16, suffix, query, header, value string, body []byte) {
		rt := routes[int(which)%len(routes)]
		path := strings.NewReplacer("{$}", "", "{pool}", "p", "{name}", "n", "{path...}", "").Replace(rt.Path)
		raw := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", rt.Method, (&url.URL{Path: path + suffix, RawQuery: query}).RequestURI())
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		r.Body = http.NoBody
		if len(body) > 0 {
			r.Body = readCloser{strings.NewReader(string(body))}
		}
		if header != "" {
			r.Header.Set(header, value)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // for what follows a log
		defer cancel()
		a := httptest.NewRecorder()
		if cut := serveUncut(env.server, a, r.WithContext(ctx)); cut {
			if ctx.Err() == nil {
				t.Fatalf("%s %s was cut off", rt.Method, r.URL)
			}
			return
		}
		wellFormed(t, r, a)
	})
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// serveUncut reports whether the handler cut the connection in place of an answer.
func serveUncut(s *Server, w http.ResponseWriter, r *http.Request) (cut bool) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			cut = true
		default:
			panic(v)
		}
	}()
	s.ServeHTTP(w, r)
	return false
}

func wellFormed(t *testing.T, r *http.Request, a *httptest.ResponseRecorder) {
	t.Helper()
	at := fmt.Sprintf("%s %q: %d %s", r.Method, r.URL, a.Code, a.Body)
	if a.Header().Get(api.HeaderRequestID) == "" {
		t.Fatal("no request id:", at)
	}
	failedRequest := a.Code == http.StatusInternalServerError && r.URL.Path == "/api/get" && strings.Contains(a.Body.String(), `"request_id"`)
	if a.Code >= 500 && !failedRequest {
		t.Fatal("the server failed:", at)
	}
	if a.Header().Get("Content-Type") == "application/json" || a.Code >= 400 && r.Method != http.MethodHead {
		var v any
		if err := json.Unmarshal(a.Body.Bytes(), &v); err != nil {
			t.Fatal("not JSON:", at)
		}
		if m, ok := v.(map[string]any); a.Code >= 400 && (!ok || m["detail"] == nil && m["error"] == nil) {
			t.Fatal("no detail:", at)
		}
	}
}

// However a log is asked for, what comes is a part of it, or a refusal that says
// why.
func FuzzStreamParameters(f *testing.F) {
	env := newTestEnv(f)
	close(env.block)
	id := env.call(post, "/logs", `{"cluster_name":"c"}`).id()
	env.payload(id) // it has ended
	env.file("sky_logs/run.log", "one\ntwo\nthree\n")
	for _, seed := range [][4]string{
		{"", "true", "auto", ""}, {"2", "False", "console", ""}, {"0", "True", "plain", "gz"}, {"-1", "1", "html", "zip"},
		{"9999999999999999999", "no", "raw", "GZ"}, {"1e3", "", "", ""}, {" 1", "TRUE", "Plain", "gz"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], "", "", uint8(0))
		f.Add(seed[0], seed[1], seed[2], seed[3], "my log.txt", "Mozilla/5.0", uint8(1))
	}
	f.Add("1", "false", "plain", "gz", "../../x\r\nSet-Cookie: a=b", "curl", uint8(2))
	f.Fuzz(func(t *testing.T, tail, follow, format, compress, download, agent string, what uint8) {
		q := url.Values{}
		for name, v := range map[string]string{"tail": tail, "follow": follow, "format": format, "compress": compress, "download": download} {
			if v != "" {
				q.Set(name, v)
			}
		}
		switch what % 3 {
		case 0:
			q.Set("request_id", id)
		case 1:
			q.Set("log_path", "~/sky_logs/run.log")
		}
		r := httptest.NewRequest(http.MethodGet, "http://localhost/api/stream?"+q.Encode(), nil)
		r.Header.Set("User-Agent", agent)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // for a file that is followed
		defer cancel()
		a := httptest.NewRecorder()
		if serveUncut(env.server, a, r.WithContext(ctx)) {
			if ctx.Err() == nil {
				t.Fatalf("%s was cut off", r.URL)
			}
			return
		}
		wellFormed(t, r, a)
		for name, values := range a.Header() {
			for _, v := range values {
				if strings.ContainsAny(v, "\r\n\x00") {
					t.Fatalf("%s: the header %s is %q", r.URL, name, v)
				}
			}
		}
		if a.Code == http.StatusOK && what%3 == 1 && a.Header().Get("Content-Type") == "text/plain; charset=utf-8" &&
			!strings.HasSuffix("one\ntwo\nthree\n", a.Body.String()) && !strings.Contains(a.Body.String(), "<sky-payload>") {
			t.Fatalf("%s: %q is no end of the file", r.URL, a.Body)
		}
	})
}
