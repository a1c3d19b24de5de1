package daemon

import (
	"net/http"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/trace/tracetest"
)

func TestARequestIsTracedDownToTheClouds(t *testing.T) {
	r := tracetest.New(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	w := newTeam(t, teamConfig+"\ntracing: {endpoint: "+r.URL+", headers: {x-key: k1}, sample: 1}\n")
	c := w.as("ada")
	req, err := c.Check(t.Context(), api.CheckBody{Clouds: []string{"local"}})
	if _, err = got[map[string]map[string][]string](w)(req, err); err != nil {
		t.Fatal(err)
	}
	call := r.Await("POST /check", "")
	run := r.Await("sky.check", call.ID)
	cloud := r.Await("local Check", run.ID)
	if cloud.Trace != call.Trace || run.Attributes["sky.request.id"] != req.ID() || call.Attributes["sky.request.id"] != req.ID() || call.Service != "sky" {
		t.Errorf("the spans do not belong together: %+v %+v %+v", call, run, cloud)
	}
	if r.Header().Get("X-Key") != "k1" {
		t.Errorf("the configured headers were not sent: %v", r.Header())
	}

	// A client that is traced itself sees the server's work below its own.
	hr, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/users/role", nil)
	hr.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	res, err := (&http.Client{Transport: asUser("ada")}).Do(hr)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	role := r.Await("GET /users/role", "00f067aa0ba902b7")
	if want := "00-" + role.Trace + "-" + role.ID + "-01"; res.Header.Get("Traceparent") != want {
		t.Errorf("the server says %q, not %q", res.Header.Get("Traceparent"), want)
	}
}
