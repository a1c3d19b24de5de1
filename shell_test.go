package sky

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

func TestShell(t *testing.T) {
	query := ""
	c := serve(t, map[string]http.HandlerFunc{"GET /shell": func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		conn := websocket.NetConn(r.Context(), ws, websocket.MessageBinary)
		b := make([]byte, 5)
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Error(err)
		}
		_, _ = conn.Write([]byte("got " + string(b)))
		conn.Close()
	}})
	conn, err := c.Shell(t.Context(), ShellOptions{Cluster: "dev", Node: 1, Command: "echo hi", TTY: true, Rows: 40, Cols: 120, Term: "xterm"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "hello")
	if b, err := io.ReadAll(conn); string(b) != "got hello" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	if query != "cluster_name=dev&cols=120&command=echo+hi&node=1&rows=40&term=xterm&tty=true" {
		t.Errorf("query %s", query)
	}
}

func TestShellRefused(t *testing.T) {
	c := serve(t, map[string]http.HandlerFunc{"GET /shell": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"Cluster 'dev' does not exist."}`)
	}})
	_, err := c.Shell(t.Context(), ShellOptions{Cluster: "dev"})
	if err == nil || !strings.Contains(err.Error(), "Cluster 'dev' does not exist.") {
		t.Errorf("got %v", err)
	}
	c = client(t, "http://127.0.0.1:1")
	if _, err := c.Shell(t.Context(), ShellOptions{Cluster: "dev"}); !errors.As(err, new(*ConnectError)) {
		t.Errorf("got %v", err)
	}
}
