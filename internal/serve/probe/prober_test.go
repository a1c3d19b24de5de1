package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

const patient = time.Minute

func TestHTTPProbes(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/get":
			if r.Method != "GET" || r.Header.Get("Authorization") != "Bearer x" || r.Host != "example.com" || len(body) > 0 {
				w.WriteHeader(400)
			}
		case "/post":
			if r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" || string(body) != `{"a":1}` {
				w.WriteHeader(400)
			}
		case "/created":
			w.WriteHeader(201)
		case "/moved":
			http.Redirect(w, r, "/other", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/cut":
			panic(http.ErrAbortHandler)
		case "/other":
		default:
			w.WriteHeader(503)
		}
	})
	for _, c := range []struct {
		path, body string
		headers    map[string]string
		fails      string
	}{
		{"/get", "", map[string]string{"Authorization": "Bearer x", "Host": "example.com"}, ""},
		{"/get", "", nil, "GET /get answered 400"},
		{"/post", `{"a":1}`, nil, ""},
		{"/created", "", nil, "GET /created answered 201"},
		{"/busy", `{}`, nil, "POST /busy answered 503"},
		{"/moved", "", nil, ""},
		{"/away", "", nil, "GET /away answered 302"},
		{"/round", "", nil, "GET /round answered 302"},
		{"/cut", "", nil, "EOF"},
		{"/get", "", map[string]string{"a b": "c"}, "invalid header field name"},
	} {
		r := Prober{}.Probe(t.Context(), address, Settings{Path: c.path, Body: c.body, Headers: c.headers, Timeout: patient})
		if r.OK != (c.fails == "") || !strings.Contains(r.Reason, c.fails) || r.Timeout {
			t.Errorf("%s: %+v, want %q", c.path, r, c.fails)
		}
	}
}

// health answers as the standard health service does.
func health(frame []byte, status, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want := append([]byte{0, 0, 0, 0, 5, 0x0a, 3}, "a.B"...)
		if r.ProtoMajor != 2 || r.Method != "POST" || r.URL.Path != "/grpc.health.v1.Health/Check" || r.Header.Get("Te") != "trailers" ||
			r.Header.Get("Content-Type") != "application/grpc+proto" || string(body) != string(want) || r.Header.Get("X-Key") != "k" {
			status, message = "3", fmt.Sprintf("asked with %s %s %v %q", r.Proto, r.URL.Path, r.Header, body)
		}
		w.Header().Set("Content-Type", "application/grpc+proto")
		if frame != nil {
			w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
			w.Write(frame)
		}
		w.Header().Set("Grpc-Status", status)
		w.Header().Set("Grpc-Message", message)
	}
}

func framed(message ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

func TestGRPCProbes(t *testing.T) {
	for _, c := range []struct {
		name  string
		h     http.HandlerFunc
		fails string
	}{
		{"serving", health(framed(8, 1), "0", ""), ""},
		{"serving, with a field of later versions", health(framed(0x12, 1, 'x', 8, 1), "0", ""), ""},
		{"not serving", health(framed(8, 2), "0", ""), "says NOT_SERVING"},
		{"unknown is the default value", health(framed(), "0", ""), "says UNKNOWN"},
		{"a status of later versions", health(framed(8, 9), "0", ""), "says 9"},
		{"no health service", health(nil, "12", "unknown service"), "no gRPC health service"},
		{"no such service", health(nil, "5", "unknown service a.B"), `status "5" unknown service a.B`},
		{"compressed", health([]byte{1, 0, 0, 0, 0}, "0", ""), "compressed"},
		{"cut off", health([]byte{0, 0, 0, 0, 9, 8}, "0", ""), "unexpected EOF"},
		{"nothing", health([]byte{}, "0", ""), "unexpected EOF"},
		{"garbage", health(framed(0xff, 0xff), "0", ""), "broken"},
		{"no gRPC at all", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "HTTP status 404"},
	} {
		r := Prober{}.Probe(t.Context(), serve(t, c.h), Settings{Protocol: GRPC, GRPCService: "a.B", Headers: map[string]string{"X-Key": "k"}, Timeout: patient})
		if r.OK != (c.fails == "") || !strings.Contains(r.Reason, c.fails) {
			t.Errorf("%s: %+v, want %q", c.name, r, c.fails)
		}
	}
}

func TestTCPProbes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if r := (Prober{}).Probe(t.Context(), address, Settings{Protocol: TCP, Timeout: patient}); !r.OK {
		t.Errorf("%+v", r)
	}
	l.Close()
	for _, p := range []Protocol{TCP, HTTP, GRPC} {
		r := Prober{}.Probe(t.Context(), address, Settings{Protocol: p, Path: "/", Timeout: patient})
		if r.OK || r.Timeout || r.Reason != "connection refused" {
			t.Errorf("%s: %+v", p, r)
		}
	}
}

// A program that accepts and never answers is a time-out in every protocol but TCP.
func TestSilenceIsATimeout(t *testing.T) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		here, there := net.Pipe()
		go io.Copy(io.Discard, there)
		t.Cleanup(func() { there.Close() })
		return here, nil
	}
	for _, p := range []Protocol{HTTP, GRPC} {
		r := Prober{Dial: dial}.Probe(t.Context(), "replica:80", Settings{Protocol: p, Path: "/", Timeout: 50 * time.Millisecond})
		if r.OK || !r.Timeout || r.Reason != "no answer within 50ms" {
			t.Errorf("%s: %+v", p, r)
		}
	}
	never := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	if r := (Prober{Dial: never}).Probe(t.Context(), "replica:80", Settings{Protocol: TCP, Timeout: time.Millisecond}); !r.Timeout {
		t.Errorf("%+v", r)
	}
	broken := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
	if r := (Prober{Dial: broken}).Probe(t.Context(), "replica:80", Settings{Protocol: TCP, Timeout: patient}); r.Timeout || r.Reason != "no route" {
		t.Errorf("%+v", r)
	}
}

func FuzzHealthAnswer(f *testing.F) {
	f.Add(framed(8, 1))
	f.Add(framed(0x12, 1, 'x', 8, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := healthOf(b); err == nil && len(b) < 5 {
			t.Error("read from nothing")
		}
	})
}
