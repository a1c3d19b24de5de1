package balancer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// elsewhere is a network that the balancer of a test is not in: the server connects.
type elsewhere struct {
	mu     sync.Mutex
	at     map[int]string // addresses of replicas
	opened []net.Conn
}

// bare is a connection that has neither a file descriptor nor deadlines, as a channel of
// ssh.
type bare struct{ net.Conn }

func (bare) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (bare) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (bare) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

func (e *elsewhere) connect(ctx context.Context, service string, id int) (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if service != "chat" || e.at[id] == "" {
		return nil, errors.New("no such replica")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", e.at[id])
	if err != nil {
		return nil, err
	}
	e.opened = append(e.opened, c)
	return bare{c}, nil
}

func (e *elsewhere) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.opened)
}

// there puts a replica into that network, under an address that nothing here answers at.
func (e *elsewhere) there(r balancerapi.Replica) balancerapi.Replica {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == nil {
		e.at = map[int]string{}
	}
	e.at[r.ID] = r.Address
	r.Address, r.Network = "192.0.2.1:80", balancerapi.KubernetesNetwork("prod")
	return r
}

// A replica in a network that the balancer is not in is reached through the server, for
// everything that goes through a balancer.
func TestReplicasAreReachedThroughTheServer(t *testing.T) {
	other := &elsewhere{}
	b := newBalancer(t, Options{Connect: other.connect})
	apply(t, b, balancerapi.Service{}, other.there(backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			upgradeEcho(w, r)
			return
		}
		all, _ := io.ReadAll(r.Body)
		w.Write(all)
	})))
	c := client(t)
	for range 3 {
		body := strings.Repeat("x", 100<<10)
		resp, err := c.Post(url(b), "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || string(got) != body {
			t.Fatalf("%d bytes came back, %v", len(got), err)
		}
	}
	if n := other.count(); n != 1 {
		t.Errorf("%d connections for three requests, one after another", n)
	}
	conn, lines := rawUpgrade(t, b.Addr("chat").String())
	if got := readLine(t, lines); got != "hello" {
		t.Errorf("the upgraded connection says %q", got)
	}
	if got := readLine(t, lines); got != "echo early" {
		t.Errorf("the upgraded connection says %q", got)
	}
	io.WriteString(conn, "late\n")
	if got := readLine(t, lines); got != "echo late" {
		t.Errorf("the upgraded connection says %q", got)
	}
	conn.Close()
	eventually(t, "nothing is in flight", func() bool { return inFlight(b) == 0 })
}

func TestReplicasOverHTTP2AreReachedThroughTheServer(t *testing.T) {
	other := &elsewhere{}
	b := newBalancer(t, Options{Connect: other.connect})
	r := backend(t, 1, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	r.Protocol = balancerapi.H2C
	apply(t, b, balancerapi.Service{}, other.there(r))
	if _, got := get(t, client(t), url(b)); got != "HTTP/2.0" || other.count() != 1 {
		t.Errorf("%q over %d connections", got, other.count())
	}
}

// A client that leaves ends what carries its request.
func TestAClientThatLeavesEndsItsTunnel(t *testing.T) {
	other := &elsewhere{}
	b := newBalancer(t, Options{Connect: other.connect})
	began, over := make(chan struct{}), make(chan struct{})
	apply(t, b, balancerapi.Service{}, other.there(backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		close(began)
		<-r.Context().Done()
		close(over)
	})))
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url(b), nil)
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-began
	leave()
	<-over
}

// An unused connection whose replica has closed it is not used again: a request that may
// not be sent twice would be lost with it.
func TestATunnelThatEndedIsNotUsedAgain(t *testing.T) {
	other := &elsewhere{}
	b := newBalancer(t, Options{Connect: other.connect})
	var served atomic.Int64
	apply(t, b, balancerapi.Service{}, other.there(backend(t, 1, func(w http.ResponseWriter, r *http.Request) { served.Add(1) })))
	c := client(t)
	get(t, c, url(b))
	s := serviceOf(b)
	s.mu.Lock()
	pool := s.replicas[1].pool
	s.mu.Unlock()
	eventually(t, "the connection is unused", func() bool { return pool.Idle() == 1 })
	other.opened[0].Close()
	conn, err := pool.Get(t.Context(), false)
	for err == nil && conn.Reused { // within a moment of its use nobody asks whether it is open
		conn.Put()
		time.Sleep(60 * time.Millisecond)
		conn, err = pool.Get(t.Context(), false)
	}
	if err != nil || other.count() != 2 {
		t.Fatalf("%v after %d connections", err, other.count())
	}
	conn.Close()
}

func TestABalancerInTheNetworkDialsReplicas(t *testing.T) {
	other := &elsewhere{}
	b := newBalancer(t, Options{Connect: other.connect, Networks: []string{balancerapi.KubernetesNetwork("prod")}})
	r := backend(t, 1, func(w http.ResponseWriter, r *http.Request) {})
	r.Network = balancerapi.KubernetesNetwork("prod")
	apply(t, b, balancerapi.Service{}, r)
	if resp, _ := get(t, client(t), url(b)); resp.StatusCode != http.StatusOK || other.count() != 0 {
		t.Errorf("%s over %d connections of the server", resp.Status, other.count())
	}
	// Another cluster has the same addresses.
	r.Network = balancerapi.KubernetesNetwork("staging")
	apply(t, b, balancerapi.Service{}, r)
	if resp, _ := get(t, client(t), url(b)); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s of a replica that cannot be reached", resp.Status)
	}
}

// What was written arrives although nothing more is, and the answer still comes.
func TestATunnelIsClosedHalf(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c)
		c.Write(all)
	}()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := newTunnel(far)
	defer c.Close()
	io.WriteString(c, "whole")
	c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "whole" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// Where the balancer listens is its own affair, if it is told so.
func TestABalancerListensWhereItIsTold(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one loopback address")
	}
	b := newBalancer(t, Options{Host: "127.0.0.3"})
	apply(t, b, balancerapi.Service{}) // whose table says 127.0.0.1
	if host, _, err := net.SplitHostPort(b.Addr("chat").String()); err != nil || host != "127.0.0.3" {
		t.Errorf("it listens on %s, %v", b.Addr("chat"), err)
	}
}
