package downstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/plain"
)

// long is a guard against hanging.
const long = 60 * time.Second

// start serves a handler; rest counts the requests that net/http's server got.
func start(t *testing.T, h http.HandlerFunc, idle time.Duration) (addr string, rest *atomic.Int64, s *Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rest = &atomic.Int64{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { rest.Add(1); h(w, r) }), MaxHeaderBytes: 64 << 10, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	s = New(h, srv, l, idle)
	go s.Serve()
	t.Cleanup(func() { l.Close(); s.Close() })
	return l.Addr().String(), rest, s
}

func dial(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(long))
	return c, bufio.NewReader(c)
}

// echo answers with what it has understood.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	text := fmt.Sprintf("%s %s %s %q %v %d %q %v", r.Method, r.RequestURI, r.Host, r.URL.Path, r.Header, r.ContentLength, body, err)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	io.WriteString(w, text)
}

// Whatever comes, the answers are those of net/http.
func TestRequestsMeanWhatTheyMeanToNetHTTP(t *testing.T) {
	for _, tt := range []struct {
		text  string
		plain bool
	}{
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", true},
		{"GET /a%20b?c=d%zz&e HTTP/1.1\r\nhOST: x:80\r\nx-y: 1\r\nX-Y:\t2 \r\nEmpty:\r\n\r\n", true},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", true},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", true},
		{"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nabGET /2 HTTP/1.1\r\nHost: y\r\n\r\nGET /3 HTTP/1.1\r\nHost: z\r\nConnection: close\r\n\r\n", true},
		{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", true},
		{"GET / HTTP/1.0\r\n\r\n", false},
		{"GET / HTTP/1.1\nHost: x\n\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n", false},
		{"GET / HTTP/1.1\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x y\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost : x\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\nA(: 1\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\n: 1\r\n\r\n", false},
		{"GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"get / HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nhello", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\nhello", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab", false},
		{"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, X-A\r\nX-A: 1\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\nLong: " + strings.Repeat("a", 10_000) + "\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 150) + "\r\n", false},
		{"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03 hello", false},
	} {
		addr, rest, _ := start(t, echo, time.Minute)
		both := [2]string{}
		for i := range both {
			at := addr
			if i == 1 {
				other := httptest.NewServer(http.HandlerFunc(echo))
				defer other.Close()
				at = other.Listener.Addr().String()
			}
			c, _ := dial(t, at)
			io.WriteString(c, tt.text)
			c.(*net.TCPConn).CloseWrite()
			got, _ := io.ReadAll(c)
			lines := strings.Split(string(got), "\r\n")
			kept := lines[:0]
			for _, l := range lines { // what is the same but for its words
				if !strings.HasPrefix(l, "Date: ") && !strings.HasPrefix(l, "Content-Type: text/plain") {
					kept = append(kept, l)
				}
			}
			both[i] = strings.Join(kept, "\r\n")
		}
		if both[0] != both[1] {
			t.Errorf("%q:\n%s\nnet/http says\n%s", tt.text[:min(len(tt.text), 100)], both[0], both[1])
		}
		if (rest.Load() == 0 && strings.Contains(both[1], "200 OK")) != tt.plain {
			t.Errorf("%q: net/http served %d requests", tt.text[:min(len(tt.text), 100)], rest.Load())
		}
	}
}

// What is accepted as plain is what net/http reads from the same bytes.
func FuzzParse(f *testing.F) {
	f.Add([]byte("GET /a?b HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nContent-Length: 12\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: [::1]:80\r\nX: \t y z \r\nConnection: close\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\nA: b\n c\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		n := plain.HeadEnd(text)
		if n < 0 {
			return
		}
		got, closes, ok := parse(t.Context(), text[:n], http.Header{})
		if !ok {
			return
		}
		want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text[:n])))
		if err != nil {
			t.Fatalf("%q: net/http says %v", text[:n], err)
		}
		if got.Method != want.Method || got.RequestURI != want.RequestURI || got.Host != want.Host || got.ContentLength != want.ContentLength ||
			!reflect.DeepEqual(got.URL, want.URL) || closes != want.Close || want.TransferEncoding != nil {
			t.Fatalf("%q:\n%+v\nnet/http says\n%+v", text[:n], got, want)
		}
		if !closes { // net/http takes some out
			want.Header.Del("Connection")
			got.Header.Del("Connection")
		}
		if !reflect.DeepEqual(got.Header, want.Header) {
			t.Fatalf("%q: %v, net/http says %v", text[:n], got.Header, want.Header)
		}
	})
}

func TestAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		h    http.HandlerFunc
		head bool
		body string
		want func(r *http.Response) bool
	}{
		"empty": {func(w http.ResponseWriter, r *http.Request) {}, false, "", func(r *http.Response) bool { return r.ContentLength == 0 && r.StatusCode == 200 }},
		"short": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404); io.WriteString(w, "no") }, false, "no", func(r *http.Response) bool { return r.StatusCode == 404 }},
		"flushed": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			io.WriteString(w, "b")
		}, false, "ab", func(r *http.Response) bool { return r.TransferEncoding != nil }},
		"long": {func(w http.ResponseWriter, r *http.Request) {
			for range 100 {
				w.Write(bytes.Repeat([]byte("x"), 1000))
			}
			w.Write(bytes.Repeat([]byte("y"), 100_000))
		}, false, strings.Repeat("x", 100_000) + strings.Repeat("y", 100_000), nil},
		"known": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "4")
			io.WriteString(w, "ab")
			w.(http.Flusher).Flush()
			io.WriteString(w, "cd")
		}, false, "abcd", func(r *http.Response) bool { return r.ContentLength == 4 }},
		"head": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "9")
			io.WriteString(w, "not sent")
		}, true, "", func(r *http.Response) bool { return r.ContentLength == 9 }},
		"not modified": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(304)
		}, false, "", func(r *http.Response) bool { return r.StatusCode == 304 }},
		"trailers": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-A")
			io.WriteString(w, "t")
			w.(http.Flusher).Flush()
			w.Header().Set("X-A", "1")
			w.Header().Set(http.TrailerPrefix+"X-B", "2")
		}, false, "t", func(r *http.Response) bool { return r.Trailer.Get("X-A") == "1" && r.Trailer.Get("X-B") == "2" }},
		"line ends": {func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-A", "1\r\nX-B: 2") }, false, "", func(r *http.Response) bool { return r.Header.Get("X-B") == "" && r.Header.Get("X-A") == "1  X-B: 2" }},
	} {
		addr, rest, _ := start(t, tt.h, time.Minute)
		c, r := dial(t, addr)
		for range 3 { // the connection goes on
			method := map[bool]string{true: "HEAD", false: "GET"}[tt.head]
			io.WriteString(c, method+" / HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(r, &http.Request{Method: method})
			if err != nil {
				t.Fatal(name, err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || string(body) != tt.body || tt.want != nil && !tt.want(resp) || resp.Header.Get("Date") == "" {
				t.Errorf("%s: %+v, %d bytes, %v", name, resp, len(body), err)
			}
		}
		if rest.Load() != 0 {
			t.Errorf("%s: served by net/http", name)
		}
	}
}

func TestInformationalAnswers(t *testing.T) {
	addr, _, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		io.WriteString(w, "x")
	}, time.Minute)
	c, r := dial(t, addr)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	for _, want := range []int{103, 200} {
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != want || resp.Header.Get("Link") != "</a>" {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
}

// An answer that is given up half way does not look whole, nor does the next.
func TestBrokenAnswers(t *testing.T) {
	for _, length := range []string{"", "10"} {
		addr, _, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, time.Minute)
		c, r := dial(t, addr)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("length %q: %q, %v", length, body, err)
		}
	}
}

func TestClientThatLeavesIsNoticed(t *testing.T) {
	began, left := make(chan struct{}, 1), make(chan struct{}, 1)
	addr, rest, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		began <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}, time.Minute)
	for _, body := range []string{"", "hello"} {
		c, _ := dial(t, addr)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body))
		time.Sleep(2 * watchAfter) // the body is read, and not taken for the client's end
		io.WriteString(c, body)
		<-began
		time.Sleep(2 * watchAfter) // whether it is watched already or not
		c.Close()
		select {
		case <-left:
		case <-time.After(long):
			t.Fatalf("body %q: not noticed", body)
		}
	}
	if rest.Load() != 0 {
		t.Error("served by net/http")
	}
}

// A long request that was watched leaves the connection as it was.
func TestWatchedConnectionsGoOn(t *testing.T) {
	addr, rest, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(3 * watchAfter)
		}
		io.WriteString(w, r.URL.Path)
	}, time.Minute)
	c, r := dial(t, addr)
	io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	for i, path := range []string{"/slow", "/a", "/slow", "/b"} {
		if i == 2 { // the next one comes while this one is answered
			io.WriteString(c, "GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); string(body) != path {
			t.Fatalf("%q, want %q", body, path)
		}
		switch i {
		case 0:
			io.WriteString(c, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		case 1:
			io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
		}
	}
	if rest.Load() != 0 {
		t.Error("served by net/http")
	}
}

func TestSilentConnectionsAreClosed(t *testing.T) {
	addr, _, _ := start(t, echo, 10*time.Millisecond)
	for _, text := range []string{"", "GET / HT"} {
		c, _ := dial(t, addr)
		io.WriteString(c, text)
		if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
			t.Errorf("after %q: %q, %v", text, got, err)
		}
	}
}

func TestShutdown(t *testing.T) {
	came, goOn := make(chan struct{}), make(chan struct{})
	addr, _, s := start(t, func(w http.ResponseWriter, r *http.Request) {
		close(came)
		<-goOn
		io.WriteString(w, "whole")
	}, time.Minute)
	idle, _ := dial(t, addr)
	busy, r := dial(t, addr)
	io.WriteString(busy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-came
	s.listener.Close()
	ended := make(chan error)
	go func() { ended <- s.Shutdown(context.Background()) }()
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("an idle connection: %v", err)
	}
	close(goOn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "whole" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
