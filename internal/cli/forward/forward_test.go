package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Spec{
		"8888":                     {"", 8888, "", 8888},
		"18888:8888":               {"", 18888, "", 8888},
		"0:80":                     {"", 0, "", 80},
		"8080:db.internal:80":      {"", 8080, "db.internal", 80},
		"0.0.0.0:8080:10.0.0.7:80": {"0.0.0.0", 8080, "10.0.0.7", 80},
		"*:8080:localhost:80":      {"0.0.0.0", 8080, "localhost", 80},
		":8080:localhost:80":       {"0.0.0.0", 8080, "localhost", 80},
		"[::1]:8080:[fe80::2]:80":  {"::1", 8080, "fe80::2", 80},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "0", "65536", "-1", "80:", ":80", "x:80", "70000:80", "80::80", "a:b:80", "1:2:3:4:5", "[::1:80", "[x]:1:h:2", "[::1]80", "8080:80:host"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("[::1]:8080:localhost:80")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err == nil && (s.Port < 1 || s.Port > 65535 || s.Local < 0 || s.Local > 65535) {
			t.Errorf("%q: %+v", text, s)
		}
	})
}

// echo is a server that answers when its caller has said all.
func echo(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, err := io.ReadAll(c)
				if err == nil {
					fmt.Fprintf(c, "got %s", all)
				}
			}()
		}
	}()
	return l
}

// forwarding serves one port in front of dial until stop, which waits.
func forwarding(t *testing.T, dial func(context.Context, Spec) (Conn, error), report func(error)) (address string, stop func()) {
	ports, err := Listen(t.Context(), []Spec{{Local: 0, Port: 7}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ports.Serve(ctx, dial, report)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return ports.all[0].Addr().String(), stop
}

func connect(t *testing.T, address string) *net.TCPConn {
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

func TestConnectionsAreJoined(t *testing.T) {
	far := echo(t)
	address, stop := forwarding(t, func(ctx context.Context, s Spec) (Conn, error) {
		if s.Port != 7 {
			return nil, errors.New("another port")
		}
		c, err := net.Dial("tcp", far.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}, func(err error) { t.Error(err) })
	for i := range 3 {
		c := connect(t, address)
		fmt.Fprintf(c, "%d", i)
		_ = c.CloseWrite()
		if all, err := io.ReadAll(c); err != nil || string(all) != fmt.Sprintf("got %d", i) {
			t.Errorf("%q %v", all, err)
		}
	}
	open := connect(t, address)
	fmt.Fprint(open, "x")
	stop()
	if n, err := open.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a connection that has ended", n)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("the port is still open")
	}
}

// A port that nothing answers at is reported once, and anew after it has answered.
func TestFailuresAreReportedOnce(t *testing.T) {
	var up atomic.Bool
	far := echo(t)
	reports := make(chan error, 10)
	address, stop := forwarding(t, func(context.Context, Spec) (Conn, error) {
		if !up.Load() {
			return nil, errors.New("connection refused")
		}
		c, err := net.Dial("tcp", far.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}, func(err error) { reports <- err })
	try := func() string {
		c := connect(t, address)
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		return string(all)
	}
	for _, on := range []bool{false, false, true, false} {
		up.Store(on)
		if got, want := try(), map[bool]string{true: "got "}[on]; got != want {
			t.Errorf("up %v: %q, want %q", on, got, want)
		}
	}
	stop()
	if close(reports); len(reports) != 2 {
		t.Errorf("%d reports, want 2", len(reports))
	}
	for err := range reports {
		if !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "connection refused") {
			t.Error(err)
		}
	}
}

// broken is a connection that is asked something, and breaks in its answer.
type broken struct {
	net.Conn
	asked chan struct{}
	begun bool
}

func (b *broken) Write(p []byte) (int, error) {
	close(b.asked)
	return len(p), nil
}

func (b *broken) Read(p []byte) (int, error) {
	if b.begun {
		return 0, errors.New("the server is gone")
	}
	b.begun = true
	<-b.asked
	return copy(p, "half"), nil
}
func (b *broken) CloseWrite() error { return nil }

// What a broken connection has brought is not taken for all there is.
func TestABrokenConnectionIsReset(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	address, _ := forwarding(t, func(context.Context, Spec) (Conn, error) { return &broken{Conn: far, asked: make(chan struct{})}, nil }, func(err error) { t.Error(err) })
	c := connect(t, address)
	fmt.Fprint(c, "x")
	if all, err := io.ReadAll(c); err == nil {
		t.Errorf("%q ends as if it were whole", all)
	}
}

func TestAPortInUseSaysWhatToDo(t *testing.T) {
	l := echo(t)
	port := l.Addr().(*net.TCPAddr).Port
	ports, err := Listen(t.Context(), []Spec{{Local: 0, Port: 80}, {Local: port, Host: "db", Port: 5432}})
	if err == nil {
		ports.Close()
		t.Fatal("a port is listened to twice")
	}
	for _, want := range []string{fmt.Sprintf("port %d of this machine", port), "in use", ":db:5432"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}
