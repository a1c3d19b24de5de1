package server

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/feed"
)

// A balancer that does not reach a replica does so through the server.
func TestBalancersConnectThroughTheServer(t *testing.T) {
	replica, near := net.Pipe()
	env := newTestEnv(t, func(d *Deps) {
		d.Replica = func(_ context.Context, service string, id int) (net.Conn, error) {
			if service != "chat" || id != 3 {
				return nil, errors.New("no such replica")
			}
			return near, nil
		}
	})
	_ = replica.SetDeadline(time.Now().Add(time.Minute))
	client := feed.Client{Endpoint: env.url, HTTP: &http.Client{}}
	if _, err := client.Connect(t.Context(), "chat", 4); err == nil || !bytes.Contains([]byte(err.Error()), []byte("no such replica")) {
		t.Errorf("another replica: %v", err)
	}
	connecting, connected := context.WithCancel(t.Context())
	conn, err := client.Connect(connecting, "chat", 3)
	if err != nil {
		t.Fatal(err)
	}
	connected() // bounds connecting, and not what follows
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go conn.Write([]byte("GET"))
	hears(t, replica, "GET")
	go replica.Write([]byte("200"))
	hears(t, conn, "200")
	conn.Close()
	if _, err := replica.Read(make([]byte, 1)); err == nil {
		t.Error("the replica's side outlives the balancer's")
	}
	for query, want := range map[string]int{"": 422, "?service=chat": 422, "?service=chat&replica=x": 422, "?service=chat&replica=3": 426} {
		if got := env.call(http.MethodGet, balancerapi.ConnectPath+query, ""); got.status != want {
			t.Errorf("%q: %d %s, want %d", query, got.status, got.body, want)
		}
	}
	if _, _, err := websocket.Dial(t.Context(), env.url+balancerapi.ConnectPath+"?service=chat&replica=5", nil); err == nil {
		t.Error("there is no replica 5")
	}
}
