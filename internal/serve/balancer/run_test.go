package balancer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/feed"
)

// A balancer beside the server serves what it is given, reports it, and goes on
// without the server, also after a restart.
func TestRunBesideTheServer(t *testing.T) {
	var tally feed.Tally
	source := feed.NewSource(func(r balancerapi.Report) balancerapi.Receipt { return tally.Add(r, time.Now()) }, nil)
	srv := httptest.NewServer(source)
	port, metrics := porttest.Free(t), porttest.Free(t)
	endpoint, health := fmt.Sprint("http://127.0.0.1:", port), fmt.Sprint("http://127.0.0.1:", metrics, "/healthz")
	row := balancerapi.Service{Name: "chat", Host: "127.0.0.1", Port: port, Replicas: []balancerapi.Replica{named(t, 1)}}
	dir := t.TempDir()
	start := func() (stop func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, RunOptions{Options: Options{StateDir: dir}, Endpoint: srv.URL, HTTP: &http.Client{}, Metrics: fmt.Sprint("127.0.0.1:", metrics), Drain: long})
		}()
		return func() error { cancel(); return <-ended }
	}
	status := func(url string) (code int, body string) {
		resp, err := client(t).Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	serves := func(what, id string) {
		t.Helper()
		eventually(t, what, func() bool { _, body := status(endpoint); return body == id })
	}
	stop := start()
	eventually(t, "it says that it has no table", func() bool { code, _ := status(health); return code == http.StatusServiceUnavailable })
	source.Publish(balancerapi.Table{Version: 1, Services: []balancerapi.Service{row}})
	serves("the first table is served", "1")
	eventually(t, "it says that it serves", func() bool { code, _ := status(health); return code == http.StatusOK })
	row.Replicas = []balancerapi.Replica{named(t, 2)}
	source.Publish(balancerapi.Table{Version: 2, Services: []balancerapi.Service{row}})
	serves("the next one is served", "2")
	eventually(t, "requests are reported", func() bool { return tally.Arrivals("chat", time.Unix(0, 0)) >= 2 })
	if _, text := status(strings.TrimSuffix(health, "healthz") + "metrics"); !strings.Contains(text, "sky_balancer_table_version 2\n") {
		t.Errorf("metrics:\n%s", text)
	}
	srv.CloseClientConnections()
	srv.Close()
	serves("the server is away", "2")
	if err := stop(); err != nil {
		t.Error(err)
	}
	stop = start()
	serves("it starts without the server", "2")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if code, text := status(endpoint); code != 0 {
		t.Errorf("after the end: %d %s", code, text)
	}
}
