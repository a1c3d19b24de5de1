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
	w := newWorld(f)
	close(w.block)
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
		if cut := serveUncut(w.server, a, r.WithContext(ctx)); cut {
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
