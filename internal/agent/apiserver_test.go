//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// TestTheServerOnANodeIsReached asks an HTTP server on the head through its agent.
func TestTheServerOnANodeIsReached(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer web.Close()
	const home = "far/home"
	refused := func(what, home string, code agentapi.ErrorCode) {
		t.Helper()
		_, err := c.head.Server(t.Context(), home)
		if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != code {
			t.Errorf("%s: %v", what, err)
		}
	}
	instance := func(pid int, endpoint string) {
		t.Helper()
		start, err := proc.StartTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(c.nodes[0].home, home, ".sky", "api_server", "instance.json")
		b, err := json.Marshal(map[string]any{"pid": pid, "start": start, "endpoint": endpoint})
		if err == nil {
			err = os.MkdirAll(filepath.Dir(file), 0o700)
		}
		if err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	refused("none runs", home, agentapi.CodeNotFound)
	refused("another home", "../other", agentapi.CodeInvalid)
	instance(os.Getpid(), "http://192.0.2.1:80")
	refused("it is on another machine", home, agentapi.CodeNotFound)
	instance(1, web.URL)
	refused("it has ended", home, agentapi.CodeNotFound)

	instance(os.Getpid(), web.URL)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return c.head.Server(context.WithoutCancel(ctx), home)
	}}}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://127.0.0.1/")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusTeapot {
		t.Error(res.Status)
	}
}

// Ports that ssh forwards are reached from the node.
func TestAnAddressIsReachedFromTheNode(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return c.head.Dial(context.WithoutCancel(ctx), address)
	}}}
	res, err := client.Get(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusTeapot {
		t.Error(res.Status)
	}
	client.CloseIdleConnections()
	web.Close()
	_, err = c.head.Dial(t.Context(), web.Listener.Addr().String())
	if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeNotFound {
		t.Errorf("nobody listens: %v", err)
	}
}
