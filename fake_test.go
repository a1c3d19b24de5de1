package sky

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

// quick makes pauses between tries short for a test.
func quick(t *testing.T) {
	t.Helper()
	old, oldBroken, oldLater := outageBackoff, brokenBackoff, laterBackoff
	brokenBackoff = backoff{first: time.Millisecond, max: time.Millisecond, factor: 1}
	outageBackoff = backoff{first: time.Millisecond, max: time.Millisecond, factor: 1}
	laterBackoff = backoff{first: time.Millisecond, max: time.Millisecond, factor: 1}
	t.Cleanup(func() { outageBackoff, brokenBackoff, laterBackoff = old, oldBroken, oldLater })
}

// serve starts a server for handlers by "METHOD /path"; /api/health answers by
// itself.
func serve(t *testing.T, handlers map[string]http.HandlerFunc) *Client {
	t.Helper()
	quick(t)
	mux := http.NewServeMux()
	if handlers["GET /api/health"] == nil {
		mux.HandleFunc("GET /api/health", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.HeaderAPIVersion, "53")
			fmt.Fprint(w, `{"status":"healthy","api_version":"53","version":"1.0.0-dev0","commit":"abc","instance_id":"inst-1"}`)
		})
	}
	for pattern, h := range handlers {
		mux.HandleFunc(pattern, h)
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return client(t, srv.URL)
}

// client talks to endpoint as the user "me".
func client(t *testing.T, endpoint string) *Client {
	t.Helper()
	c, err := New(Options{
		Endpoint: endpoint, Command: "sky test", Patience: 200 * time.Millisecond, HTTPClient: &http.Client{Transport: &http.Transport{}},
		Environ: []string{"HOME=" + t.TempDir(), "SKYPILOT_USER_ID=abcd1234", "SKYPILOT_USER=me", "AWS_PROFILE=work", "SKYPILOT_X=1", "SKYPILOT_SERVER_Y=2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// accepted answers a call with a request id.
func accepted(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.HeaderRequestID, id)
		fmt.Fprint(w, "null")
	}
}

// finished answers /api/get.
func finished(p api.RequestPayload) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if p.Error != "null" {
			w.WriteHeader(http.StatusInternalServerError)
			_ = json.NewEncoder(w).Encode(map[string]any{"detail": p})
			return
		}
		_ = json.NewEncoder(w).Encode(p)
	}
}

// breaking answers with a script of connections: each is the text it sends;
// "!" at the end breaks it off there.
func breaking(t *testing.T, connections ...string) http.HandlerFunc {
	n := 0
	return func(w http.ResponseWriter, _ *http.Request) {
		if n >= len(connections) {
			t.Errorf("connection %d was not expected", n+1)
			return
		}
		text, broken := strings.CutSuffix(connections[n], "!")
		n++
		w.Header().Set(api.HeaderRequestID, fmt.Sprintf("req-%d", n))
		fmt.Fprint(w, text)
		if broken {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}
