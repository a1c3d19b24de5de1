package server

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

func TestShellCarriesBytesBothWays(t *testing.T) {
	agent, remote := net.Pipe()
	var cluster string
	var asked agentapi.ShellQuery
	env := newTestEnv(t, func(d *Deps) {
		d.Shell = func(_ context.Context, c string, q agentapi.ShellQuery) (io.ReadWriteCloser, error) {
			cluster, asked = c, q
			return remote, nil
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, env.url+"/shell?cluster_name=c&node=1&tty=True&rows=40&cols=100&term=xterm&command=top%20-b", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if want := (agentapi.ShellQuery{Command: "top -b", TTY: true, Term: "xterm", Rows: 40, Cols: 100, Node: 1}); cluster != "c" || asked != want {
		t.Errorf("asked for %s %+v", cluster, asked)
	}
	if err := c.Write(ctx, websocket.MessageBinary, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(agent, got); err != nil || string(got) != "hello" {
		t.Fatalf("the agent read %q, %v", got, err)
	}
	go func() { io.WriteString(agent, strings.Repeat("x", 100<<10)); agent.Close() }()
	n := 0
	for {
		kind, b, err := c.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
				t.Errorf("ended with %v", err)
			}
			break
		}
		if kind != websocket.MessageBinary {
			t.Error("a text message")
		}
		n += len(b)
	}
	if n != 100<<10 {
		t.Errorf("%d bytes arrived", n)
	}
}

func TestShellEndsWithItsClient(t *testing.T) {
	agent, remote := net.Pipe()
	env := newTestEnv(t, func(d *Deps) {
		d.Shell = func(context.Context, string, agentapi.ShellQuery) (io.ReadWriteCloser, error) { return remote, nil }
	})
	c, _, err := websocket.Dial(t.Context(), env.url+"/shell?cluster_name=c", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.CloseNow()
	_ = agent.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := agent.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the agent's side: %v", err)
	}
}

func TestShellRefusals(t *testing.T) {
	env := newTestEnv(t, func(d *Deps) {
		d.Shell = func(_ context.Context, c string, _ agentapi.ShellQuery) (io.ReadWriteCloser, error) {
			return nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "no such cluster"}
		}
	})
	socket := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AQIDBAUGBwgJCgsMDQ4PEA=="}
	for _, c := range []struct {
		path    string
		headers []string
		want    int
	}{
		{"/shell?cluster_name=c", nil, 426},
		{"/shell?cluster_name=c", socket, 404},
		{"/shell", socket, 422},
		{"/shell?cluster_name=c&node=-1", socket, 422},
		{"/shell?cluster_name=c&rows=70000", socket, 422},
		{"/shell?cluster_name=c&tty=perhaps", socket, 422},
	} {
		if r := env.call(get, c.path, "", c.headers...); r.status != c.want {
			t.Errorf("%s: %d %s, want %d", c.path, r.status, r.body, c.want)
		}
	}
}
