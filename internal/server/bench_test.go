package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
)

func benchCall(b *testing.B, env *testEnv, method, path, body string) *httptest.ResponseRecorder {
	b.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(api.HeaderAPIVersion, "53")
	a := httptest.NewRecorder()
	env.server.ServeHTTP(a, r)
	if a.Code != http.StatusOK {
		b.Fatal(a.Code, a.Body)
	}
	return a
}

func BenchmarkHealth(b *testing.B) {
	env := newTestEnv(b)
	b.ReportAllocs()
	for b.Loop() {
		benchCall(b, env, get, "/api/health", "")
	}
}

// What "sky status" costs the server, but for the verb.
func BenchmarkSubmitAndGet(b *testing.B) {
	env := newTestEnv(b)
	b.ReportAllocs()
	for b.Loop() {
		id := benchCall(b, env, post, "/status", `{"cluster_names":["a"],"env_vars":{"SKYPILOT_USER_ID":"ab12","SKYPILOT_USER":"eve"}}`).Header().Get(api.HeaderRequestID)
		benchCall(b, env, get, "/api/get?request_id="+id, "")
	}
}

func BenchmarkThousandClustersForOldClient(b *testing.B) {
	var records []api.StatusRecord
	for range 1000 {
		records = append(records, api.StatusRecord{Name: "c", Status: api.ClusterUp, Handle: handle()})
	}
	stored, err := json.Marshal(records)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(stored)))
	for b.Loop() {
		if _, err := resultFor("status", 42, stored); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStreamThousandLines(b *testing.B) {
	env := newTestEnv(b)
	names := strings.Repeat(`"nosuch",`, 1000)
	id := benchCall(b, env, post, "/status", `{"cluster_names":[`+strings.TrimSuffix(names, ",")+`]}`).Header().Get(api.HeaderRequestID)
	benchCall(b, env, get, "/api/get?request_id="+id, "")
	for b.Loop() {
		a := benchCall(b, env, get, "/api/stream?format=console&request_id="+id, "")
		b.SetBytes(int64(a.Body.Len()))
	}
}
