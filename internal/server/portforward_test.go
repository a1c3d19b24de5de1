package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// forwardEnv is a server whose clusters reach one address.
func forwardEnv(t *testing.T) (env *testEnv, far net.Listener, asked *string) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	asked = new(string)
	env = newTestEnv(t, func(d *Deps) {
		d.Forward = func(_ context.Context, cluster string, node int, host string, port int) (net.Conn, error) {
			if cluster != "c" {
				return nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "no such cluster"}
			}
			*asked = fmt.Sprintf("node %d: %s:%d", node, host, port)
			return net.Dial("tcp", far.Addr().String())
		}
	})
	return env, far, asked
}

// The Go client's connection to a port carries bytes both ways, and the end of what
// the client sends before the answer.
func TestForwardCarriesAConnection(t *testing.T) {
	env, far, asked := forwardEnv(t)
	client, err := sky.New(sky.Options{Endpoint: env.url})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := client.Forward(ctx, "c", 1, "", 8888)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if want := "node 1: localhost:8888"; *asked != want {
		t.Errorf("asked for %s, want %s", *asked, want)
	}
	served, err := far.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	_ = served.SetDeadline(time.Now().Add(time.Minute))
	big := bytes.Repeat([]byte("x"), 3<<20)
	go func() {
		_, _ = conn.Write(big)
		_ = conn.CloseWrite()
	}()
	if all, err := io.ReadAll(served); err != nil || !bytes.Equal(all, big) {
		t.Fatalf("%d bytes arrive: %v", len(all), err)
	}
	go func() {
		_, _ = served.Write(big)
		served.Close()
	}()
	if all, err := io.ReadAll(conn); err != nil || !bytes.Equal(all, big) {
		t.Errorf("%d bytes are answered: %v", len(all), err)
	}
}

// Nothing is left on the server when the client goes.
func TestForwardEndsWithItsClient(t *testing.T) {
	env, far, _ := forwardEnv(t)
	c := env.socket("/port-forward?cluster_name=c&port=80&host=db")
	served, err := far.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	_ = served.SetDeadline(time.Now().Add(time.Minute))
	c.CloseNow()
	if _, err := served.Read(make([]byte, 1)); err == nil {
		t.Error("the node's side outlives the client")
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error("the node's side outlives the client: ", err)
	}
}

func TestForwardRefusals(t *testing.T) {
	env, _, _ := forwardEnv(t)
	upgrade := []string{"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	for query, want := range map[string]int{
		"":                                   422,
		"?port=80":                           422,
		"?cluster_name=c":                    422,
		"?cluster_name=c&port=0":             422,
		"?cluster_name=c&port=65536":         422,
		"?cluster_name=c&port=x":             422,
		"?cluster_name=c&port=80&node=-1":    422,
		"?cluster_name=nosuch&port=80":       404,
		"?cluster_name=nosuch&port=80&node=": 404,
	} {
		if r := env.call(get, "/port-forward"+query, "", upgrade...); r.status != want {
			t.Errorf("%s: %d %s, want %d", query, r.status, r.body, want)
		}
	}
	if r := env.call(get, "/port-forward?cluster_name=c&port=80", ""); r.status != 426 {
		t.Errorf("without a websocket: %d %s", r.status, r.body)
	}
}
