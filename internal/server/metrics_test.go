package server

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

func TestMetrics(t *testing.T) {
	env := newTestEnv(t)
	env.ownCluster("one", "uma")
	env.ask("/status", `{}`)
	env.call(get, "/no/such/route", "")
	at := time.Unix(100, 0)
	env.server.Metrics.RequestEnded(&state.Request{Name: "sky.launch", Status: api.RequestSucceeded, CreatedAt: at, StartedAt: at.Add(time.Second), FinishedAt: at.Add(8 * time.Second)})
	env.server.Metrics.RequestEnded(&state.Request{Name: "sky.down", Status: api.RequestCancelled, CreatedAt: at, FinishedAt: at}) // never started
	r := env.call(get, "/metrics", "")
	if !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("sent as %s", r.header.Get("Content-Type"))
	}
	for _, line := range []string{
		`sky_clusters{status="UP"} 1`, `sky_cluster_nodes{status="UP"} 1`, `sky_requests{state="waiting"} 0`,
		`sky_http_request_duration_seconds_count{route="POST /status"} 1`,
		`sky_request_duration_seconds_sum{name="sky.launch",status="SUCCEEDED"} 7`, `sky_request_wait_seconds_bucket{name="sky.launch",le="1"} 1`,
	} {
		if !strings.Contains(r.body, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, r.body)
		}
	}
	for _, no := range []string{"/no/such/route", "sky.down"} {
		if strings.Contains(r.body, no) {
			t.Errorf("%s is counted", no)
		}
	}
}
