package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// serve answers one route with h and returns a client for it.
func serve(t *testing.T, route string, h http.HandlerFunc) *Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc(route, h)
	srv := httptest.NewTLSServer(mux)
	t.Cleanup(srv.Close)
	tlsc := srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	tlsc.ServerName = "example.com"
	c := New(strings.TrimPrefix(srv.URL, "https://"), tlsc, nil)
	t.Cleanup(c.Close)
	return c
}

func TestFill(t *testing.T) {
	for _, test := range []struct {
		route  string
		params []string
		want   string
	}{
		{agentapi.PathInfo, nil, "GET /v1/info"},
		{agentapi.PathLog, []string{"latest"}, "GET /v1/jobs/latest/log"},
		{agentapi.PathHookLogs, []string{"stop"}, "GET /v1/hooks/stop/log"},
	} {
		method, path := fill(test.route, test.params)
		if got := method + " " + path; got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestRefusalIsTheAgentsError(t *testing.T) {
	c := serve(t, agentapi.PathJob, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"not_found","message":"no job `+r.PathValue("id")+`"}`)
	})
	_, err := c.Job(t.Context(), 7)
	e, ok := errors.AsType[*agentapi.Error](err)
	if !ok || e.Code != agentapi.CodeNotFound || e.Message != "no job 7" {
		t.Errorf("got %v", err)
	}
	_, err = c.Jobs(t.Context()) // not an agent's answer at all
	if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeInternal {
		t.Errorf("got %v", err)
	}
}

func TestSilenceIsUnreachable(t *testing.T) {
	c := serve(t, agentapi.PathEvents, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"kind":"hello"}`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	seen := 0
	err := c.Events(t.Context(), func(agentapi.Event) error { seen++; return nil })
	if u, ok := errors.AsType[*UnreachableError](err); !ok || u.Address != c.address || seen != 1 {
		t.Errorf("a stream that breaks off: %v after %d events", err, seen)
	}
	gone := New("127.0.0.1:1", c.tlsc, nil)
	_, err = gone.Info(t.Context())
	if _, ok := errors.AsType[*UnreachableError](err); !ok {
		t.Errorf("nobody listens: %v", err)
	}
	_, err = gone.Sync(t.Context())
	if _, ok := errors.AsType[*UnreachableError](err); !ok {
		t.Errorf("nobody listens to an upgrade: %v", err)
	}
}

func TestBrokenLogIsNotItsEnd(t *testing.T) {
	c := serve(t, agentapi.PathLog, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(agentapi.HeaderLogOffset, "5")
		fmt.Fprint(w, r.URL.RawQuery)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	rc, start, err := c.Log(t.Context(), 0, LogOptions{Offset: 5, Follow: true})
	if err != nil || start != 5 {
		t.Fatal(start, err)
	}
	defer rc.Close()
	data, err := io.ReadAll(rc)
	if _, ok := errors.AsType[*UnreachableError](err); !ok || string(data) != "follow=1&offset=5" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestContextEndsEverything(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, call := range map[string]func(context.Context, *Client) error{
		"call":    func(ctx context.Context, c *Client) error { _, err := c.Jobs(ctx); return err },
		"upgrade": func(ctx context.Context, c *Client) error { _, err := c.Shell(ctx, agentapi.ShellQuery{}); return err },
	} {
		c := serve(t, "/", hang)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
