package balancer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

func TestEveryMethodGoesThrough(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Got", fmt.Sprintf("%s %s %d", r.Method, r.RequestURI, len(body)))
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "body")
	}))
	for name, c := range map[string]*http.Client{"HTTP/1.1": client(t), "h2c": h2client(t)} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
			for _, size := range []int{0, 5, 100_000} {
				if size > 0 && (method == "GET" || method == "HEAD") {
					continue
				}
				req, _ := http.NewRequest(method, url(b)+"/a%2Fb?q=1%20", bytes.NewReader(make([]byte, size)))
				resp, err := c.Do(req)
				if err != nil {
					t.Fatalf("%s %s %d: %v", name, method, size, err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if got, want := resp.Header.Get("X-Got"), fmt.Sprintf("%s /a%%2Fb?q=1%%20 %d", method, size); got != want || resp.StatusCode != http.StatusAccepted {
					t.Errorf("%s: replica got %q, want %q; status %d", name, got, want, resp.StatusCode)
				}
				if want := map[bool]string{true: "", false: "body"}[method == "HEAD"]; string(body) != want {
					t.Errorf("%s %s: body %q", name, method, body)
				}
			}
		}
	}
}

func TestHeadersOfTheConnectionStayThere(t *testing.T) {
	b := newBalancer(t, Options{})
	seen := make(chan http.Header, 1)
	replica := backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		h := r.Header.Clone()
		h.Set("Host", r.Host)
		seen <- h
		w.Header().Set("Connection", "X-Private")
		w.Header().Set("X-Private", "1")
		w.Header().Add("X-Many", "a")
		w.Header().Add("X-Many", "b")
	})
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, trust := range []bool{false, true} {
		apply(t, b, balancerapi.Service{TrustForwarded: trust}, replica)
		req, _ := http.NewRequest("GET", url(b), nil)
		req.Host = "chat.example.com"
		for k, v := range map[string]string{"Connection": "X-Secret, keep-alive", "X-Secret": "1", "Proxy-Authorization": "x", "Te": "gzip",
			"X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "other", "Traceparent": trace, "User-Agent": ""} {
			req.Header.Set(k, v)
		}
		resp, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := <-seen
		for _, k := range []string{"X-Secret", "Proxy-Authorization", "Te", "User-Agent", "Connection"} {
			if h.Get(k) != "" {
				t.Errorf("the replica got %s: %s", k, h.Get(k))
			}
		}
		want := map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "chat.example.com"}
		if trust {
			want = map[string]string{"X-Forwarded-For": "1.2.3.4, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "other"}
		}
		want["Traceparent"], want["Host"] = trace, "chat.example.com"
		for k, v := range want {
			if got := h.Values(k); len(got) != 1 || got[0] != v {
				t.Errorf("trust %v: %s: %q, want %q", trust, k, got, v)
			}
		}
		if resp.Header.Get("X-Private") != "" || !slices.Equal(resp.Header.Values("X-Many"), []string{"a", "b"}) {
			t.Errorf("the client got %v", resp.Header)
		}
		if resp.Header["Content-Type"] != nil {
			t.Errorf("a Content-Type was made up: %v", resp.Header)
		}
	}
	req, _ := http.NewRequest("GET", url(b), nil)
	req.Header.Set("Traceparent", "00-xyz")
	if resp, err := client(t).Do(req); err != nil {
		t.Fatal(err)
	} else {
		resp.Body.Close()
	}
	if got := (<-seen).Get("Traceparent"); !validTrace(got) {
		t.Errorf("made up the traceparent %q", got)
	}
}

// Both directions of a request flow at the same time, byte by byte.
func TestStreamsFlowBothWays(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		rc.Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			io.WriteString(w, "got "+lines.Text()+"\n")
			rc.Flush()
		}
		w.Header().Set(http.TrailerPrefix+"X-End", "1")
	}))
	for name, c := range map[string]*http.Client{"HTTP/1.1": client(t), "h2c": h2client(t)} {
		in, out := io.Pipe()
		req, _ := http.NewRequest("POST", url(b), in)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(name, err)
		}
		r := bufio.NewReader(resp.Body)
		for i := range 20 {
			fmt.Fprintf(out, "line %d\n", i)
			if got, want := readLine(t, r), fmt.Sprintf("got line %d", i); got != want {
				t.Fatalf("%s: %q, want %q", name, got, want)
			}
		}
		out.Close()
		if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
			t.Errorf("%s: end of the stream: %q, %v", name, rest, err)
		}
		resp.Body.Close()
	}
}

func TestEventsComeOneByOne(t *testing.T) {
	b := newBalancer(t, Options{})
	next, left := make(chan string), make(chan struct{}, 1)
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		defer func() { left <- struct{}{} }()
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		for {
			select {
			case e := <-next:
				io.WriteString(w, "data: "+e+"\n\n")
				http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	for name, c := range map[string]*http.Client{"HTTP/1.1": client(t), "h2c": h2client(t)} {
		resp, err := c.Get(url(b)) // the headers come before the first event
		if err != nil {
			t.Fatal(name, err)
		}
		r := bufio.NewReader(resp.Body)
		for i := range 10 {
			next <- fmt.Sprint(i)
			if got := readLine(t, r); got != fmt.Sprint("data: ", i) {
				t.Fatalf("%s: %q", name, got)
			}
			readLine(t, r)
		}
		resp.Body.Close()
		<-left // the client's leaving ends the request
		eventually(t, "it is over here, too", func() bool { return inFlight(b) == 0 })
	}
}

func TestWebSocketEcho(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(-1)
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, append([]byte("echo "), data...)); err != nil {
				return
			}
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	c, _, err := websocket.Dial(ctx, url(b), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(-1)
	for _, size := range []int{1, 1000, 300_000} {
		text := strings.Repeat("a", size)
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || string(got) != "echo "+text {
			t.Fatalf("echo of %d bytes: %d bytes, %v", size, len(got), err)
		}
	}
	if n := b.Report(nil).Services[0].Replicas[0].InFlight; n != 1 {
		t.Errorf("%d requests in flight while a WebSocket is open", n)
	}
	if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Errorf("closing: %v", err)
	}
	eventually(t, "the replica is free again", func() bool { return b.Report(nil).Services[0].Replicas[0].InFlight == 0 })
}

// What either side sends together with its head is not lost.
func TestUpgradeKeepsEarlyBytes(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, upgradeEcho))
	c, r := rawUpgrade(t, b.Addr("chat").String())
	for _, want := range []string{"hello", "echo early"} {
		if got := readLine(t, r); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

// A call of gRPC is a POST over HTTP/2 whose status is in the trailers.
func TestGRPCCallsGoThrough(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" {
			t.Errorf("the replica got %s, TE %q", r.Proto, r.Header.Get("Te"))
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		for { // streams both ways
			var head [5]byte
			if _, err := io.ReadFull(r.Body, head[:]); err != nil {
				break
			}
			msg := make([]byte, head[4])
			io.ReadFull(r.Body, msg)
			w.Write(append(head[:], bytes.ToUpper(msg)...))
			http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "fine")
	}))
	c := h2client(t)
	in, out := io.Pipe()
	req, _ := http.NewRequest("POST", url(b)+"/echo.Echo/Chat", in)
	req.Header.Set("Content-Type", "application/grpc+proto")
	req.Header.Set("Te", "trailers")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, word := range []string{"one", "two", "three"} {
		out.Write(append([]byte{0, 0, 0, 0, byte(len(word))}, word...))
		got := make([]byte, 5+len(word))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got[5:]) != strings.ToUpper(word) {
			t.Fatalf("%q: %q, %v", word, got, err)
		}
	}
	out.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "fine" {
		t.Errorf("trailers %v", resp.Trailer)
	}
	// Without a replica the answer is one that clients of gRPC understand.
	apply(t, b, balancerapi.Service{})
	req, _ = http.NewRequest("POST", url(b)+"/echo.Echo/Chat", nil)
	req.Header.Set("Content-Type", "application/grpc")
	resp, err = c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Header.Get("Grpc-Status") != "14" || !strings.Contains(resp.Header.Get("Grpc-Message"), "no replica of service chat is ready") {
		t.Errorf("status %s, headers %v", resp.Status, resp.Header)
	}
}

func TestTrailersGoThrough(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "body")
		w.Header().Set("X-Sum", "sum of "+r.Trailer.Get("X-In"))
	}))
	for name, c := range map[string]*http.Client{"HTTP/1.1": client(t), "h2c": h2client(t)} {
		req, _ := http.NewRequest("POST", url(b), io.MultiReader(strings.NewReader("in")))
		req.Trailer = http.Header{"X-In": {"42"}}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(name, err)
		}
		io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := resp.Trailer.Get("X-Sum"); got != "sum of 42" {
			t.Errorf("%s: trailer %q", name, got)
		}
	}
}

// An upload is streamed: the replica has its beginning before its end exists.
func TestUploadsAreNotBuffered(t *testing.T) {
	b := newBalancer(t, Options{})
	began := make(chan struct{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		io.CopyN(h, r.Body, 1)
		close(began)
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v", n+1, h.Sum(nil), err)
	}))
	const size = 20 << 20
	in, out := io.Pipe()
	h := sha256.New()
	go func() {
		chunk := bytes.Repeat([]byte("0123456789abcdef"), 4096)
		for n := 0; n < size; n += len(chunk) {
			io.MultiWriter(out, h).Write(chunk)
			if n == 0 {
				<-began
			}
		}
		out.Close()
	}()
	req, _ := http.NewRequest("PUT", url(b), in)
	req.ContentLength = size
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if want := fmt.Sprintf("%d %x <nil>", size, h.Sum(nil)); string(body) != want {
		t.Errorf("%s, want %s", body, want)
	}
}

// A replica that answers before it has read the body is heard.
func TestEarlyAnswerToAnUpload(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		http.Error(w, "no", http.StatusForbidden)
		http.NewResponseController(w).Flush()
	}))
	in, out := io.Pipe()
	defer out.Close()
	go out.Write(make([]byte, 100))
	req, _ := http.NewRequest("POST", url(b), in)
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %s", resp.Status)
	}
	eventually(t, "the request ends", func() bool { return inFlight(b) == 0 })
}

func TestClientThatLeavesEndsTheRequest(t *testing.T) {
	b := newBalancer(t, Options{})
	came, left := make(chan struct{}, 1), make(chan struct{}, 1)
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	for name, c := range map[string]*http.Client{"HTTP/1.1": client(t), "h2c": h2client(t)} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-came; cancel() }()
		req, _ := http.NewRequestWithContext(ctx, "GET", url(b), nil)
		if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
			t.Fatal(name, err)
		}
		select {
		case <-left:
		case <-time.After(long):
			t.Fatalf("%s: the replica never learned of it", name)
		}
	}
	eventually(t, "both are counted", func() bool { return b.Report(nil).Services[0].Replicas[0].Statuses["499"] == 2 })
}

func TestLimits(t *testing.T) {
	b := newBalancer(t, Options{})
	var served atomic.Int64
	limits := balancerapi.Limits{HeaderBytes: 8 << 10, BodyBytes: 1000}
	replica := backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
	})
	apply(t, b, balancerapi.Service{Limits: limits}, replica)
	c := client(t)
	post := func(path string, body io.Reader) int {
		resp, err := c.Post(url(b)+path, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := post("/", strings.NewReader(strings.Repeat("a", 1000))); got != 200 {
		t.Errorf("a body of the limit: %d", got)
	}
	if got := post("/", strings.NewReader(strings.Repeat("a", 1001))); got != http.StatusRequestEntityTooLarge || served.Load() != 1 {
		t.Errorf("a longer one: %d, served %d", got, served.Load())
	}
	if got := post("/", io.MultiReader(strings.NewReader(strings.Repeat("a", 5000)))); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a longer one in chunks: %d", got)
	}
	limits.RequestTimeout = 0.02
	apply(t, b, balancerapi.Service{Limits: limits}, replica)
	if got := post("/slow", strings.NewReader("x")); got != http.StatusGatewayTimeout {
		t.Errorf("an answer that does not come: %d", got)
	}
	limits.RequestTimeout = 0
	apply(t, b, balancerapi.Service{Limits: limits}, replica)
	req, _ := http.NewRequest("GET", url(b), nil)
	req.Header.Set("X-Long", strings.Repeat("a", 20<<10))
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("long headers: %s", resp.Status)
	}
}

// rawReplica answers each connection with a text, once it has got something.
func rawReplica(t *testing.T, text string) balancerapi.Replica {
	t.Helper()
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
				if _, err := c.Read(make([]byte, 4096)); err == nil {
					io.WriteString(c, text)
				}
			}()
		}
	}()
	return balancerapi.Replica{ID: 1, Address: l.Addr().String(), State: balancerapi.Ready}
}

// What a replica sends is not trusted with the balancer's memory, nor with the next
// request's connection.
// A connection without requests is kept for as long as the service says.
func TestIdleConnectionsOfClientsEnd(t *testing.T) {
	for name, keep := range map[string]balancerapi.Seconds{"soon": 0.01, "by default not at once": 0} {
		t.Run(name, func(t *testing.T) {
			b := newBalancer(t, Options{})
			apply(t, b, balancerapi.Service{Limits: balancerapi.Limits{ClientKeepAlive: keep}}, named(t, 1))
			c, err := net.Dial("tcp", b.Addr("chat").String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			if keep == 0 {
				c.SetReadDeadline(time.Now().Add(3 * time.Second))
			} else {
				c.SetReadDeadline(time.Now().Add(long))
			}
			_, err = r.ReadByte()
			if over := errors.Is(err, io.EOF); over != (keep > 0) {
				t.Errorf("the connection says %v", err)
			}
		})
	}
}

func TestAnswersThatAreWrong(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":              "",
		"no HTTP":              "hello\r\n\r\n",
		"half a head":          "HTTP/1.1 200 OK\r\nA: b\r\n",
		"a head without end":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 2000) + "\r\n",
		"two lengths":          "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"a switch":             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"nothing but hints":    strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100),
		"an unknown transfer":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
		"a length of nonsense": "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc",
	} {
		b := newBalancer(t, Options{})
		apply(t, b, balancerapi.Service{}, rawReplica(t, text))
		resp, err := client(t).Post(url(b), "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(name, err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s", name, resp.Status)
		}
		if n := b.Report(nil).Services[0].Replicas[0].Errors; n != 1 {
			t.Errorf("%s: %d errors counted", name, n)
		}
	}
	b := newBalancer(t, Options{}) // more than was asked for belongs to nobody
	apply(t, b, balancerapi.Service{}, rawReplica(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"))
	for range 3 {
		if _, body := get(t, client(t), url(b)); body != "ok" {
			t.Errorf("got %q", body)
		}
	}
	c, err := net.Dial("tcp", b.Addr("chat").String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a tunnel: %v, %v", resp, err)
	}
}
