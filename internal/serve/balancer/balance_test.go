package balancer

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/metrics"
	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// named answers with the replica's id.
func named(t *testing.T, id int) balancerapi.Replica {
	return backend(t, id, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, strconv.Itoa(id))
	})
}

// refusing is a replica where nothing listens.
func refusing(t *testing.T, id int) balancerapi.Replica {
	return balancerapi.Replica{ID: id, Address: fmt.Sprint("127.0.0.1:", porttest.Free(t)), State: balancerapi.Ready}
}

// dying accepts requests and breaks off without an answer.
func dying(t *testing.T, id int, came *atomic.Int64) balancerapi.Replica {
	return backend(t, id, func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		panic(http.ErrAbortHandler)
	})
}

func spread(t *testing.T, b *Balancer, n int) map[string]int {
	t.Helper()
	out := map[string]int{}
	c := client(t)
	for range n {
		_, body := get(t, c, url(b))
		out[body]++
	}
	return out
}

func TestNothingReady(t *testing.T) {
	b := newBalancer(t, Options{})
	starting := named(t, 1)
	starting.State = balancerapi.Starting
	apply(t, b, balancerapi.Service{RetryAfter: 7}, starting)
	resp, body := get(t, client(t), url(b))
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "7" || body != "no replica of service chat is ready; try again in 7 s\n" {
		t.Errorf("%s, Retry-After %q: %q", resp.Status, resp.Header.Get("Retry-After"), body)
	}
	if n := b.Report(nil).Services[0].Refused["no_replica"]; n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestUnreachableReplicasAreSkipped(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{Policy: balancerapi.Policy{Name: balancerapi.RoundRobin}}, refusing(t, 1), named(t, 2))
	for range 10 { // a POST, which must not be sent twice; it is sent once
		resp, err := client(t).Post(url(b), "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || string(body) != "2" {
			t.Fatalf("%s: %q", resp.Status, body)
		}
	}
	if !b.Report(nil).Services[0].Replicas[0].Ejected {
		t.Error("the unreachable replica is not ejected")
	}
}

func TestRequestsAreSentAgainOnlyIfThatIsSafe(t *testing.T) {
	var came atomic.Int64
	for _, tt := range []struct {
		name, method, key string
		size              int
		chunked           bool
		again             bool
	}{
		{"a read", "GET", "", 0, false, true},
		{"an idempotent write", "PUT", "", 10, false, true},
		{"a write", "POST", "", 10, false, false},
		{"a write with a key", "POST", "k", 10, false, true},
		{"a long body", "PUT", "", maxReplay + 1, false, false},
		{"a stream", "PUT", "", 10, true, false},
	} {
		b := newBalancer(t, Options{})
		came.Store(0)
		apply(t, b, balancerapi.Service{Eject: balancerapi.Eject{Failures: -1}, Limits: balancerapi.Limits{Attempts: 3}}, dying(t, 1, &came), dying(t, 2, &came), dying(t, 3, &came), dying(t, 4, &came))
		var body io.Reader
		if tt.size > 0 {
			body = bytes.NewReader(make([]byte, tt.size))
		}
		if tt.chunked {
			body = io.MultiReader(body)
		}
		req, _ := http.NewRequest(tt.method, url(b), body)
		if tt.key != "" {
			req.Header.Set("Idempotency-Key", tt.key)
		}
		resp, err := client(t).Do(req)
		if err != nil {
			t.Fatal(tt.name, err)
		}
		resp.Body.Close()
		if want := map[bool]int64{true: 3, false: 1}[tt.again]; came.Load() != want || resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: sent %d times, want %d; %s", tt.name, came.Load(), want, resp.Status)
		}
	}
}

// A replica that closes unused connections makes no request fail.
func TestStaleConnectionsAreNoticed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := make(chan struct{}, 100)
	go func() { // answers one request of each connection, and closes it a while later
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { c.Close(); closed <- struct{}{} }()
				buf := make([]byte, 4096)
				c.Read(buf)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				time.Sleep(60 * time.Millisecond)
			}()
		}
	}()
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, balancerapi.Replica{ID: 1, Address: l.Addr().String(), State: balancerapi.Ready})
	c := client(t)
	for range 3 {
		resp, err := c.Post(url(b), "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		<-closed
	}
}

func TestBrokenAnswersAreNotWhole(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	resp, err := client(t).Get(url(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("half an answer came without an error: %q", body)
	}
}

func TestRoundRobinAndWeights(t *testing.T) {
	b := newBalancer(t, Options{})
	r1, r2, r3 := named(t, 1), named(t, 2), named(t, 3)
	apply(t, b, balancerapi.Service{Policy: balancerapi.Policy{Name: balancerapi.RoundRobin}}, r1, r2, r3)
	if got := spread(t, b, 30); got["1"] != 10 || got["2"] != 10 || got["3"] != 10 {
		t.Errorf("round robin: %v", got)
	}
	r2.Version, r3.Version = 2, 3
	versions := []balancerapi.Version{{Version: 0, Weight: 9}, {Version: 2, Weight: 1}, {Version: 3, Weight: 0}}
	apply(t, b, balancerapi.Service{Versions: versions}, r1, r2, r3)
	if got := spread(t, b, 100); got["1"] < 88 || got["1"] > 92 || got["3"] != 0 {
		t.Errorf("canary of a tenth: %v", got)
	}
	r1.State = balancerapi.Draining // a version without ready replicas leaves its share to the others
	apply(t, b, balancerapi.Service{Versions: versions}, r1, r2, r3)
	if got := spread(t, b, 10); got["2"] != 10 {
		t.Errorf("only the canary is ready: %v", got)
	}
	r2.State = balancerapi.Draining
	apply(t, b, balancerapi.Service{Versions: versions}, r1, r2, r3)
	if resp, _ := get(t, client(t), url(b)); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a version of weight 0 got a request: %s", resp.Status)
	}
}

func TestSessionsStayOnTheirReplica(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{Policy: balancerapi.Policy{Name: balancerapi.SessionAffinity, Cookie: "session"}}, named(t, 1), named(t, 2), named(t, 3))
	resp, first := get(t, client(t), url(b))
	set := resp.Cookies()
	if len(set) != 1 || set[0].Name != "session" || !set[0].HttpOnly {
		t.Fatalf("cookies %v", set)
	}
	for range 10 {
		req, _ := http.NewRequest("GET", url(b), nil)
		req.AddCookie(set[0])
		resp, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != first || len(resp.Cookies()) != 0 {
			t.Fatalf("replica %s, before %s; cookies %v", body, first, resp.Cookies())
		}
	}
}

func TestPromptsGoWhereTheirPrefixIs(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{Policy: balancerapi.Policy{Name: balancerapi.PrefixAware}}, named(t, 1), named(t, 2), named(t, 3), named(t, 4))
	ask := func(system string, turns int, pad int) string {
		messages := []map[string]string{{"role": "system", "content": strings.Repeat(system, 2000)}}
		for i := range turns {
			messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprint("turn ", i, strings.Repeat("z", pad))})
		}
		body, _ := json.Marshal(map[string]any{"model": "m", "messages": messages})
		resp, err := client(t).Post(url(b)+"/v1/chat/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, _ := io.ReadAll(resp.Body)
		return string(got)
	}
	for _, system := range []string{"a", "b", "c", "d", "e"} {
		want := ask(system, 1, 0)
		for turns := 2; turns < 6; turns++ {
			if got := ask(system, turns, 0); got != want {
				t.Errorf("conversation %s went to %s and then to %s", system, want, got)
			}
		}
		if got := ask(system, 3, 100_000); got != want { // longer than what is looked at
			t.Errorf("a long prompt of conversation %s went to %s, want %s", system, got, want)
		}
	}
}

func TestRequestsWaitForTheFirstReplica(t *testing.T) {
	b := newBalancer(t, Options{})
	row := balancerapi.Service{Queue: balancerapi.Queue{Wait: true, Requests: 3, Timeout: 60}}
	apply(t, b, row)
	answers := make(chan string, 10)
	var order []string
	var mu sync.Mutex
	replica := backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		order = append(order, r.URL.Path)
		mu.Unlock()
		io.WriteString(w, r.URL.Path)
	})
	for i := range 3 {
		go func() {
			resp, err := client(t).Get(url(b) + fmt.Sprint("/", i))
			if err != nil {
				answers <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			answers <- string(body)
		}()
		if i == 0 {
			<-b.Waiting() // the controller learns of it at once
		}
		eventually(t, "it waits", func() bool { return b.Report(nil).Services[0].Waiting == i+1 })
	}
	if resp, body := get(t, client(t), url(b)); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %s %q", resp.Status, body)
	}
	row.Limits.ReplicaRequests = 1 // so that their order can be seen
	apply(t, b, row, replica)
	for range 3 {
		if got := <-answers; !strings.HasPrefix(got, "/") {
			t.Errorf("answer %q", got)
		}
	}
	if fmt.Sprint(order) != "[/0 /1 /2]" {
		t.Errorf("they went in the order %v", order)
	}
	apply(t, b, balancerapi.Service{Queue: balancerapi.Queue{Wait: true, Timeout: 0.02}})
	if resp, body := get(t, client(t), url(b)); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "within 20ms") {
		t.Errorf("one that waited: %s %q", resp.Status, body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	apply(t, b, balancerapi.Service{Queue: balancerapi.Queue{Wait: true}})
	gone := make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "GET", url(b), nil)
		_, err := client(t).Do(req)
		gone <- err
	}()
	eventually(t, "it waits", func() bool { return b.Report(nil).Services[0].Waiting == 1 })
	cancel()
	<-gone
	eventually(t, "one whose client left waits no more", func() bool { return b.Report(nil).Services[0].Waiting == 0 })
}

func TestReplicaLimitQueues(t *testing.T) {
	b := newBalancer(t, Options{})
	var now, most atomic.Int64
	apply(t, b, balancerapi.Service{Limits: balancerapi.Limits{ReplicaRequests: 2}}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
	}))
	var g sync.WaitGroup
	for range 20 {
		g.Go(func() {
			if resp, err := client(t).Get(url(b)); err != nil || resp.StatusCode != 200 {
				t.Error(resp, err)
			} else {
				resp.Body.Close()
			}
		})
	}
	g.Wait()
	if most.Load() > 2 {
		t.Errorf("%d requests at once, limit 2", most.Load())
	}
}

// Removing a replica lets its requests end, up to a limit, and sends it no others.
func TestRemovedReplicasDrain(t *testing.T) {
	b := newBalancer(t, Options{})
	old := backend(t, 1, upgradeEcho)
	row := balancerapi.Service{Drain: 60}
	apply(t, b, row, old)
	c, r := rawUpgrade(t, b.Addr("chat").String())
	readLine(t, r)
	readLine(t, r)
	apply(t, b, row, named(t, 2))
	if got := spread(t, b, 10); got["2"] != 10 {
		t.Errorf("new requests went to %v", got)
	}
	io.WriteString(c, "still\n")
	if got := readLine(t, r); got != "echo still" {
		t.Errorf("%q", got)
	}
	c.Close()
	// With a short time its end comes.
	row.Drain = 0.02
	apply(t, b, row, old)
	_, r = rawUpgrade(t, b.Addr("chat").String())
	readLine(t, r)
	readLine(t, r)
	apply(t, b, row)
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("after the end: %q", rest)
	}
}

func TestTablesOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	b := newBalancer(t, Options{StateDir: dir})
	port := porttest.Free(t)
	apply(t, b, balancerapi.Service{Port: port}, named(t, 1))
	id := b.Report(nil).Balancer
	apply(t, b, balancerapi.Service{Port: port}, named(t, 2))
	if err := b.Apply(balancerapi.Table{Version: 1}); err != nil || b.Table().Version != 2 {
		t.Errorf("an older table: %v, version %d", err, b.Table().Version)
	}
	if err := b.Apply(balancerapi.Table{Version: 9, Services: []balancerapi.Service{{Name: "x", Policy: balancerapi.Policy{Name: "LEAST"}}}}); err == nil || !strings.Contains(err.Error(), "unknown load balancing policy") {
		t.Errorf("a bad table: %v", err)
	}
	if err := b.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Apply(balancerapi.Table{Version: 10}); err != ErrStopped {
		t.Errorf("after the end: %v", err)
	}
	again := newBalancer(t, Options{StateDir: dir})
	if got := spread(t, again, 3); got["2"] != 3 {
		t.Errorf("after a restart: %v", got)
	}
	if rep := again.Report(nil); rep.Balancer != id || rep.Epoch == b.epoch || rep.Table != 2 {
		t.Errorf("report %+v", rep)
	}
	if err := again.Apply(balancerapi.Table{Epoch: "new", Version: 1}); err != nil || again.Table().Version != 1 {
		t.Errorf("a table of another epoch: %v", err)
	}
	if again.Addr("chat") != nil {
		t.Error("a service that is not in the table is served")
	}
}

func TestShutdownLetsRequestsEnd(t *testing.T) {
	b := newBalancer(t, Options{})
	came, goOn := make(chan struct{}), make(chan struct{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		close(came)
		<-goOn
		io.WriteString(w, "whole")
	}))
	answer := make(chan string)
	go func() {
		resp, err := client(t).Get(url(b))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- string(body)
	}()
	<-came
	ended := make(chan error)
	addr := b.Addr("chat").String()
	go func() { ended <- b.Shutdown(t.Context()) }()
	eventually(t, "nobody listens any more", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(goOn)
	if got := <-answer; got != "whole" {
		t.Errorf("answer %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func certify(t *testing.T, dir, name string) balancerapi.TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := x509.MarshalPKCS8PrivateKey(key)
	files := balancerapi.TLS{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	for file, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: der}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	b := newBalancer(t, Options{})
	files := certify(t, dir, "one")
	apply(t, b, balancerapi.Service{TLS: &files}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
	}))
	served := func() (name, proto string) {
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		resp, body := get(t, &http.Client{Transport: tr, Timeout: long}, "https://"+b.Addr("chat").String())
		if body != "https" {
			t.Errorf("X-Forwarded-Proto %q", body)
		}
		return resp.TLS.PeerCertificates[0].Subject.CommonName, resp.Proto
	}
	if name, proto := served(); name != "one" || proto != "HTTP/2.0" {
		t.Errorf("certificate %s over %s", name, proto)
	}
	if err := os.WriteFile(files.CertFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	ep := serviceOf(b).ep.cert
	ep.mu.Lock()
	ep.looked = time.Time{}
	ep.mu.Unlock()
	if name, _ := served(); name != "one" {
		t.Errorf("half way through a renewal: %s", name)
	}
	certify(t, dir, "two")
	eventually(t, "the new certificate is served", func() bool { name, _ := served(); return name == "two" })
	// One that is in the table takes its place, and is replaced by the next.
	for _, name := range []string{"three", "four"} {
		files := certify(t, dir, name)
		text := func(file string) string {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		apply(t, b, balancerapi.Service{TLS: &balancerapi.TLS{Cert: text(files.CertFile), Key: text(files.KeyFile)}}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
		}))
		if got, _ := served(); got != name {
			t.Errorf("the certificate is %s, not %s of the table", got, name)
		}
	}
	broken := balancerapi.Table{Version: b.Table().Version + 1, Services: []balancerapi.Service{{Name: "chat", Host: "127.0.0.1", TLS: &balancerapi.TLS{Cert: "x", Key: "y"}}}}
	if err := b.Apply(broken); err != nil {
		t.Errorf("a certificate that cannot be used: %v", err)
	}
	ep = serviceOf(b).ep.cert
	if ep.mu.Lock(); ep.err == nil || ep.cert == nil {
		t.Errorf("the old certificate does not stay: %v", ep.err)
	}
	ep.mu.Unlock()
}

func TestLogAndMetrics(t *testing.T) {
	var log bytes.Buffer
	b := newBalancer(t, Options{AccessLog: &log})
	apply(t, b, balancerapi.Service{}, backend(t, 7, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "gone", http.StatusGone) }))
	req, _ := http.NewRequest("POST", url(b)+"/a%22\xff?secret=1", strings.NewReader("12345"))
	req.Header.Set("User-Agent", "curl \"x\"")
	if resp, err := client(t).Do(req); err != nil {
		t.Fatal(err)
	} else {
		resp.Body.Close()
	}
	var text bytes.Buffer
	w := metrics.NewWriter(&text)
	b.WriteMetrics(w)
	w.Flush()
	for _, want := range []string{
		`sky_balancer_requests_total{service="chat"} 1`,
		`sky_balancer_replica_answers_total{service="chat",replica="7",version="0",status="4xx"} 1`,
		`sky_balancer_first_byte_seconds_count{service="chat",replica="7",version="0"} 1`,
		`sky_balancer_request_seconds_bucket{service="chat",replica="7",version="0",le="+Inf"} 1`,
		`sky_balancer_replica_received_bytes_total{service="chat",replica="7",version="0"} 5`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("metrics lack %s:\n%s", want, text.String())
		}
	}
	b.access.flush()
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	for k, want := range map[string]any{"service": "chat", "replica": 7.0, "method": "POST", "path": "/a\"\ufffd", "status": 410.0, "bytes_in": 5.0, "bytes_out": 5.0, "attempts": 1.0, "user_agent": `curl "x"`} {
		if line[k] != want {
			t.Errorf("%s is %v, want %v", k, line[k], want)
		}
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("the query is in the log")
	}
}

func TestMetricsOfReplicasAreLoad(t *testing.T) {
	got, err := reported(strings.NewReader("# TYPE x gauge\nvllm:num_requests_running{model_name=\"m\"} 3.0\nvllm:num_requests_waiting{a=\"b c\"} 2 1700000000\nvllm:kv_cache_usage_perc 0.95\nother 9\nvllm:num_requests_running NaN\n"))
	if err != nil || got.Requests != 5 || got.Waiting != 2 || got.Cache != 0.95 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := reported(strings.NewReader("other 9\n")); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	b := newBalancer(t, Options{})
	busy := backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			io.WriteString(w, "sglang:num_running_reqs{x=\"y\"} 40\nsglang:num_queue_reqs 10\nsglang:token_usage 0.5\n")
			return
		}
		io.WriteString(w, "1")
	})
	apply(t, b, balancerapi.Service{Policy: balancerapi.Policy{Metrics: "/metrics"}}, busy, named(t, 2))
	eventually(t, "the metrics are read", func() bool {
		s := serviceOf(b)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.replicas[1].reported != nil
	})
	if got := spread(t, b, 20); got["2"] != 20 {
		t.Errorf("a busy replica got requests: %v", got)
	}
}

func TestMetricsAreReadFromTheReplicaAlone(t *testing.T) {
	var elsewhere atomic.Int64
	other := backend(t, 2, func(w http.ResponseWriter, r *http.Request) { elsewhere.Add(1) })
	r := backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+other.Address+"/metrics", http.StatusFound)
	})
	if got, err := scrape(t.Context(), (&net.Dialer{}).DialContext, "http://"+r.Address+"/metrics"); err == nil || got != nil || elsewhere.Load() != 0 {
		t.Errorf("%v, %v; %d requests elsewhere", got, err, elsewhere.Load())
	}
}
