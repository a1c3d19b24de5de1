package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
)

// serving runs Serve on a port of its own.
func (env *testEnv) serving(grace time.Duration) (stop func() error) {
	env.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		env.t.Fatal(err)
	}
	env.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	env.listener = &readsListener{Listener: l, read: map[string]chan struct{}{}}
	go func() { done <- env.server.Serve(ctx, env.listener, grace) }()
	return func() error { cancel(); return <-done }
}

// readsListener reports which requests were read from its connections.
type readsListener struct {
	net.Listener
	mu   sync.Mutex
	read map[string]chan struct{} // by the beginning of a request
}

func (l *readsListener) of(begin string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.read[begin] == nil {
		l.read[begin] = make(chan struct{})
	}
	return l.read[begin]
}

func (l *readsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &readsConn{Conn: c, l: l}, nil
}

type readsConn struct {
	net.Conn
	l *readsListener
}

func (c *readsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	for begin, read := range c.l.read {
		if strings.HasPrefix(string(p[:n]), begin) {
			close(read)
			delete(c.l.read, begin)
		}
	}
	return n, err
}

func TestGoingDown(t *testing.T) {
	env := newTestEnv(t)
	stop := env.serving(time.Minute)
	// A long poll, a followed stream and a log that would go on for ever, and a
	// short request that ends by itself.
	short := env.ask("/stop", `{"cluster_name":"c"}`)
	polled, read := make(chan reply, 1), env.listener.of("GET /api/get?")
	go func() { polled <- env.call(get, "/api/get?request_id="+short, "") }()
	<-read
	streamed := env.send(t.Context(), get, "/api/stream?format=console&request_id="+short, "")
	defer streamed.Body.Close()
	logged := env.send(t.Context(), post, "/logs", `{"cluster_name":"slow"}`)
	defer logged.Body.Close()

	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for !env.server.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	b, _ := io.ReadAll(logged.Body)
	if !strings.HasSuffix(string(b), "<sky-payload>\"<retry></retry>\"</sky-payload>\n") {
		t.Errorf("the log ended with %q", b)
	}
	close(env.block)
	if r := <-polled; r.status != 200 || !strings.Contains(r.body, `"status":"SUCCEEDED"`) {
		t.Errorf("the short request: %d %s", r.status, r.body)
	}
	if b, err := io.ReadAll(streamed.Body); err != nil || !strings.Contains(string(b), "stopping") {
		t.Errorf("its stream: %q, %v", b, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestDrainingRefusesNewWork(t *testing.T) {
	env := newTestEnv(t)
	env.server.Drain()
	if r := env.call(post, "/status", "{}"); r.status != 503 || r.json(t).(map[string]any)["detail"] == nil {
		t.Errorf("new work: %d %s", r.status, r.body)
	}
	if r := env.call(get, "/api/status", ""); r.status != 200 {
		t.Errorf("what is under way: %d %s", r.status, r.body)
	}
	if r := env.call(get, "/api/health", ""); r.status != 200 {
		t.Errorf("health: %d", r.status)
	}
}

// A server that closes cuts long polls, so that clients ask its next life.
func TestClosingCutsLongPolls(t *testing.T) {
	env := newTestEnv(t)
	id := env.ask("/stop", `{"cluster_name":"c"}`)
	cut := make(chan error, 1)
	go func() {
		req, _ := http.NewRequest(get, env.url+"/api/get?request_id="+id, nil)
		req.Header.Set(api.HeaderAPIVersion, "53")
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err == nil {
			resp.Body.Close()
			err = fmt.Errorf("answered %d", resp.StatusCode)
		}
		cut <- err
	}()
	time.Sleep(50 * time.Millisecond)
	env.server.Close()
	if err := <-cut; !errors.Is(err, io.EOF) {
		t.Errorf("the poll ended with %v", err)
	}
	close(env.block)
}

// Headers must come soon; a stream may take as long as it likes.
func TestSlowHeadersAreCut(t *testing.T) {
	env := newTestEnv(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hs := env.server.httpServer()
	if hs.ReadHeaderTimeout == 0 || hs.IdleTimeout == 0 || hs.MaxHeaderBytes == 0 || hs.ReadTimeout != 0 || hs.WriteTimeout != 0 {
		t.Errorf("limits: %+v", hs)
	}
	hs.ReadHeaderTimeout = 50 * time.Millisecond
	go hs.Serve(l)
	defer hs.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-")
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if b, err := io.ReadAll(c); err != nil {
		t.Errorf("still open: %q %v", b, err)
	}
	synctest.Test(t, func(t *testing.T) {
		hs := env.server.httpServer()
		hs.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "one\n")
			time.Sleep(24 * time.Hour)
			io.WriteString(w, "two\n")
		})
		client := servedOverPipes(t, hs)
		go io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if b, err := io.ReadAll(client); err != nil || !strings.Contains(string(b), "two\n") {
			t.Errorf("the stream was cut: %q, %v", b, err)
		}
	})
}

// A body that never comes holds a connection no longer than a body may take,
// whether anybody reads it or not.
func TestMissingBodiesAreCut(t *testing.T) {
	env := newTestEnv(t)
	env.server.bodyTime = 50 * time.Millisecond
	for _, start := range []string{"GET /api/health", "POST /status", "POST /nope"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(env.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{", start)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 ") {
			t.Errorf("%s: %q %v", start, b, err)
		}
		c.Close()
	}
}
