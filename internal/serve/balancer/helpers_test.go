package balancer

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// long is a guard against hanging.
const long = 60 * time.Second

func newBalancer(t *testing.T, o Options) *Balancer {
	t.Helper()
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // ends what a test has left
		b.Shutdown(ctx)
	})
	return b
}

// backend is a replica of a handler, ready.
func backend(t *testing.T, id int, h http.HandlerFunc) balancerapi.Replica {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return balancerapi.Replica{ID: id, Address: s.Listener.Addr().String(), State: balancerapi.Ready}
}

// versions counts tables in tests.
func apply(t *testing.T, b *Balancer, s balancerapi.Service, replicas ...balancerapi.Replica) {
	t.Helper()
	s.Name, s.Host, s.Replicas = "chat", "127.0.0.1", replicas
	if err := b.Apply(balancerapi.Table{Version: b.Table().Version + 1, Services: []balancerapi.Service{s}}); err != nil {
		t.Fatal(err)
	}
}

func url(b *Balancer) string { return "http://" + b.Addr("chat").String() }

// client is one of a test's own, with connections of its own.
func client(t *testing.T) *http.Client {
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: long}
}

func h2client(t *testing.T) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: long}
}

func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// eventually waits for a state that comes without an event to wait for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(long); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}

// upgradeEcho agrees to an upgrade and sends back what comes.
func upgradeEcho(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		http.Error(w, "no upgrade", http.StatusBadRequest)
		return
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\nhello\n")
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		io.WriteString(c, "echo "+line)
	}
}

// rawUpgrade opens an upgraded connection.
func rawUpgrade(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(long))
	io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\nSec-WebSocket-Key: "+base64.StdEncoding.EncodeToString([]byte("0123456789abcdef"))+"\r\n\r\nearly\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer to the upgrade: %v, %v", resp, err)
	}
	return c, r
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// serviceOf is the live service, for what no interface shows.
func serviceOf(b *Balancer) *service {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.services["chat"]
}

func inFlight(b *Balancer) int {
	n := 0
	for _, s := range b.Report(nil).Services {
		n += s.InFlight
	}
	return n
}
