//go:build e2e && linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/porttest"
)

// programOfAService is the argument with which this test binary is the program of a
// service's replica.
const programOfAService = "program-of-a-service"

// servedTask is a service whose replicas run the program of this binary. Machines
// share this one's disk.
func servedTask(t testing.TB, infra, version, policy string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
name: chat
service:
  readiness_probe: {path: /health, endpoint_probe_interval_seconds: 1, initial_delay_seconds: 120}
  drain_seconds: 30
  update: {min_requests: 20}
  %s
  ports: 8080
resources: {infra: %s, cpus: 1, ports: 8080}
envs: {VERSION: %q}
run: exec %s %s $SKYPILOT_NODE_IPS:8080
`, policy, infra, version, self, programOfAService)
}

// service is the service chat; nil: there is none.
func (w *workstation) service() *api.Service {
	w.t.Helper()
	list := w.services()
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (w *workstation) services() []api.Service {
	w.t.Helper()
	var list []api.Service
	out, code := w.run("serve", "status", "-o", "json")
	if i := strings.IndexByte(out, '['); code == 0 && i >= 0 {
		if err := json.Unmarshal([]byte(out[i:]), &list); err == nil {
			return list
		}
	}
	w.t.Fatalf("sky serve status: exit %d\n%s", code, out)
	return nil
}

// serves waits until the service has that many replicas and all of them are ready.
func (w *workstation) serves(what string, n int, also func(*api.Service) bool) *api.Service {
	w.t.Helper()
	var last *api.Service
	deadline := time.Now().Add(4 * time.Minute)
	for time.Now().Before(deadline) {
		last = w.service()
		ready, others := 0, 0
		if last != nil {
			for _, r := range last.Replicas {
				switch {
				case r.Status == string(api.ReplicaReady):
					ready++
				case !strings.HasPrefix(r.Status, "FAILED"):
					others++
				}
			}
			if ready == n && others == 0 && (also == nil || also(last)) {
				return last
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	log, _ := w.run("serve", "logs", "--controller", "--no-follow", "chat")
	w.t.Fatalf("%s: the service is %+v; its controller says:\n%s", what, last, log)
	return nil
}

// ofVersion reports whether all ready replicas have a version.
func ofVersion(v int) func(*api.Service) bool {
	return func(s *api.Service) bool {
		for _, r := range s.Replicas {
			if r.Status == string(api.ReplicaReady) && r.Version != v {
				return false
			}
		}
		return true
	}
}

// endpoint is where the service is.
func (w *workstation) endpoint() string {
	w.t.Helper()
	return strings.TrimSpace(w.stdout("serve", "status", "--endpoint", "chat"))
}

// requests are clients who ask a service one thing after another.
type requests struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	answers map[string]int // by their first word, the version
	failed  []string
	n       atomic.Int64
}

// ask makes people ask a service, each over a connection of its own, until stop. An
// answer other than one of a replica has failed; after a refusal nobody sees whether
// that was the last one, so all of them are counted.
func (w *workstation) ask(people int, urls ...string) *requests {
	ctx, cancel := context.WithCancel(context.Background())
	q := &requests{stop: cancel, answers: map[string]int{}}
	w.t.Cleanup(func() { cancel(); q.done.Wait() })
	for p := range people {
		q.done.Go(func() {
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			c := &http.Client{Transport: tr, Timeout: time.Minute}
			for ctx.Err() == nil {
				version, err := askOnce(ctx, c, urls[p%len(urls)])
				if ctx.Err() != nil {
					return
				}
				q.n.Add(1)
				q.mu.Lock()
				if err != nil {
					q.failed = append(q.failed, time.Now().Format("15:04:05.000 ")+err.Error())
				} else {
					q.answers[version]++
				}
				q.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	return q
}

func askOnce(ctx context.Context, c *http.Client, url string) (version string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	version, id, ok := strings.Cut(string(text), " ")
	if err != nil || !ok || id == "" || version == "" || resp.StatusCode != http.StatusOK && !strings.HasPrefix(version, "bad") {
		return "", fmt.Errorf("%s %q %v", resp.Status, text, err)
	}
	return version, nil
}

// seen waits for answers of a version.
func (q *requests) seen(t testing.TB, version string) {
	t.Helper()
	eventually(t, "answers of "+version, time.Minute, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.answers[version] > 0
	})
}

// more waits for more requests than there have been.
func (q *requests) more(t testing.TB, n int64) {
	t.Helper()
	want := q.n.Load() + n
	eventually(t, "more requests", time.Minute, func() bool { return q.n.Load() >= want })
}

// end stops them; none may have failed.
func (q *requests) end(t testing.TB) {
	t.Helper()
	q.stop()
	q.done.Wait()
	t.Logf("%d requests: %v", q.n.Load(), q.answers)
	if len(q.failed) > 0 {
		t.Errorf("%d requests failed, such as\n%s", len(q.failed), strings.Join(q.failed[:min(len(q.failed), 20)], "\n"))
	}
}

// everywhere runs a test on this machine and on FluffyCloud.
func everywhere(t *testing.T, f func(t *testing.T, w *workstation, infra string)) {
	t.Parallel()
	t.Run("local", func(t *testing.T) { t.Parallel(); f(t, newWorkstation(t), "local") })
	t.Run("fluffycloud", func(t *testing.T) {
		t.Parallel()
		fl := newFluffy(t, 50*time.Millisecond)
		f(t, fl.workstation, "fluffycloud")
		fl.nothingLeft()
	})
}

// up starts the service chat.
func (w *workstation) up(task string) {
	w.t.Helper()
	w.t.Cleanup(func() { w.run("serve", "down", "-y", "chat") })
	w.sky("serve", "up", "-y", "-n", "chat", w.write("chat.yaml", task))
}

// TestAServiceScalesWithItsLoad: one replica, five under load, one again.
func TestAServiceScalesWithItsLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, w *workstation, infra string) {
		w.up(servedTask(t, infra, "v1", "replica_policy: {min_replicas: 1, max_replicas: 5, target_in_flight_per_replica: 2, upscale_delay_seconds: 0, downscale_delay_seconds: 0}"))
		w.serves("one replica", 1, nil)
		q := w.ask(12, w.endpoint()+"/?ms=200")
		five := w.serves("five replicas under load", 5, nil)
		q.more(t, 100)
		q.end(t)
		w.serves("one replica again", 1, nil)
		wants(t, w.sky("serve", "logs", "--load-balancer", "--no-follow", "chat"), "takes requests")
		_, dir, _ := strings.Cut(w.sky("serve", "logs", "-s", "chat"), "Service chat logs: ~/")
		names := []string{"controller.log", "load_balancer.log"}
		for _, r := range five.Replicas {
			names = append(names, fmt.Sprintf("replica_%d.log", r.ID))
		}
		for _, name := range names {
			if text, err := os.ReadFile(filepath.Join(w.home, strings.TrimSpace(dir), name)); err != nil || len(text) == 0 {
				t.Errorf("the downloaded %s: %q %v", name, text, err)
			}
		}
		w.sky("serve", "down", "-y", "chat")
		if s := w.service(); s != nil {
			t.Errorf("left: %+v", s)
		}
	})
}

// TestUpdatesUnderLoad moves a service from version to version in each way while
// people use it.
func TestUpdatesUnderLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, w *workstation, infra string) {
		task := func(version string) string { return servedTask(t, infra, version, "replicas: 2") }
		update := func(version string, how ...string) {
			t.Helper()
			w.sky(append([]string{"serve", "update", "-y", "chat", w.write("chat.yaml", task(version)), "--mode"}, how...)...)
		}
		w.up(task("v1"))
		w.serves("two replicas", 2, nil)
		q := w.ask(8, w.endpoint())
		q.seen(t, "v1")
		update("v2", "rolling")
		w.serves("rolling", 2, ofVersion(2))
		q.seen(t, "v2")
		update("v3", "blue_green")
		w.serves("blue-green", 2, ofVersion(3))
		q.seen(t, "v3")

		update("v4", "canary", "--weight", "20")
		q.seen(t, "v4")
		w.sky("serve", "promote", "chat")
		w.serves("promoted", 2, ofVersion(4))

		update("v5", "canary", "--weight", "20")
		q.seen(t, "v5")
		w.sky("serve", "rollback", "chat")
		w.serves("rolled back", 2, ofVersion(4))

		update("bad6", "canary", "--weight", "50")
		q.seen(t, "bad6")
		s := w.serves("rolled back by itself", 2, ofVersion(4))
		if s.Version == nil || *s.Version != 6 {
			t.Errorf("the latest version is %v", s.Version)
		}
		update("never7", "rolling")
		eventually(t, "its replica runs", time.Minute, func() bool {
			for _, r := range w.service().Replicas {
				if r.Version == 7 && r.Status == string(api.ReplicaStarting) {
					return true
				}
			}
			return false
		})
		update("v8", "rolling")
		w.serves("after a version that is never ready", 2, ofVersion(8))
		q.seen(t, "v8")
		q.end(t)
		if q.answers["never7"] > 0 {
			t.Error("a version that was never ready got requests")
		}
		w.sky("serve", "down", "-y", "chat")
	})
}

// TestExamplesOfServices runs those that need nothing but Python.
func TestExamplesOfServices(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the examples serve with python3")
	}
	w := newWorkstation(t)
	for name, check := range map[string]func(t *testing.T, url string){
		"service": func(t *testing.T, url string) {
			if status, _, _ := fetch(t, url+"/health", ""); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		},
		"service-cookies": func(t *testing.T, url string) {
			if _, text, h := fetch(t, url, ""); !strings.HasPrefix(text, "hello from replica ") || !strings.HasPrefix(h.Get("Set-Cookie"), "session=") {
				t.Errorf("%q, %v", text, h)
			}
		},
		"service-workers": func(t *testing.T, url string) {
			if _, text, _ := fetch(t, url, "ping"); text != "ping" {
				t.Errorf("the echo is %q", text)
			}
		},
	} {
		file, err := filepath.Abs(filepath.Join("..", "..", "examples", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		w.sky("serve", "up", "-y", "-n", "chat", file, "--infra", "local")
		n := 2
		if name != "service" {
			n = 3
		}
		w.serves(name, n, nil)
		check(t, w.endpoint())
		w.sky("serve", "down", "-y", "chat")
	}
}

// fetch is one GET, or the POST of a text.
func fetch(t *testing.T, url, post string) (status int, text string, h http.Header) {
	t.Helper()
	method := http.MethodGet
	if post != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(post))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// TestAServiceOverTLS: a certificate comes with the task, and with the next version
// another one, for which no replica is replaced.
func TestAServiceOverTLS(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	task := servedTask(t, "local", "v1", "replicas: 1\n  tls: {keyfile: ~/keys/key, certfile: ~/keys/cert}")
	w.certify("one")
	w.up(task)
	w.serves("a replica", 1, nil)
	url := w.endpoint()
	served := func() string {
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get(url)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		return resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	eventually(t, "the certificate is served", time.Minute, func() bool { return served() == "one" })
	w.certify("two")
	w.sky("serve", "update", "-y", "chat", w.write("chat.yaml", task))
	eventually(t, "the next one is served", time.Minute, func() bool { return served() == "two" })
	if s := w.serves("the same replica", 1, nil); s.Replicas[0].ID != 1 {
		t.Errorf("replica %d serves", s.Replicas[0].ID)
	}
	w.write("keys/key", "none")
	w.fails(1, []string{"certificate"}, "serve", "update", "-y", "chat", w.write("chat.yaml", task))
	w.sky("serve", "down", "-y", "chat")
}

// certify writes a certificate of a name, with its key, to ~/keys.
func (w *workstation) certify(name string) {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		w.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("keys/cert", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	w.write("keys/key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
}

// TestASpotReplicaIsTakenAway: with a notice, and without one while others take its
// requests.
func TestASpotReplicaIsTakenAway(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 50*time.Millisecond)
	task := strings.Replace(servedTask(t, "fluffycloud", "v1", "replicas: 2"), "cpus: 1,", "cpus: 1, use_spot: true,", 1)
	f.up(task)
	f.serves("two replicas", 2, nil)
	q := f.ask(8, f.endpoint())
	q.more(t, 100)
	for round, how := range []func(id string){
		func(id string) { f.operate("POST", "instances/"+id+"/preempt", map[string]any{"after": 5}) },
		func(id string) { f.operate("POST", "instances/"+id+"/kill", nil) },
		func(id string) { f.operate("POST", "instances/"+id+"/preempt", map[string]any{"after": 0}) },
	} {
		for _, m := range f.machines() {
			if m.State == fluffyapi.Running {
				how(m.ID)
				break
			}
		}
		f.serves("replaced", 2, func(s *api.Service) bool {
			news := 0
			for _, r := range s.Replicas {
				news = max(news, r.ID)
			}
			return news == 3+round
		})
		q.more(t, 100)
	}
	q.end(t)
	f.sky("serve", "down", "-y", "chat")
	f.nothingLeft()
}

// balancer runs a load balancer beside the server, at an address, until the test ends.
func (w *workstation) balancer(endpoint, address string) {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "sky-balancer-")
	if err != nil {
		w.t.Fatal(err)
	}
	port := porttest.Free(w.t)
	c := exec.Command(binary, "serve", "balancer", "--server", endpoint, "--host", address, "--state-dir", dir, "--metrics-port", fmt.Sprint(port), "--drain-seconds", "1")
	c.Env, c.Dir = w.env, w.home
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		w.t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
		log.Close()
		if w.t.Failed() {
			w.t.Logf("a balancer says:\n%s", tailOf(log.Name(), 4000))
		}
		os.RemoveAll(dir)
	})
	eventually(w.t, "the balancer has a table", time.Minute, func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// TestServicesGoOnWithoutTheServer kills the server twenty times while a service
// starts, is updated, loses a replica and scales. A balancer beside the server goes on
// all the time, and in the end the service is what was asked for.
func TestServicesGoOnWithoutTheServer(t *testing.T) {
	everywhere(t, func(t *testing.T, w *workstation, infra string) {
		r := seed(t)
		w.write(".sky/config.yaml", "serve: {balancer: beside}\n")
		w.sky("api", "start")
		w.balancer(fmt.Sprint("http://127.0.0.1:", w.port), "127.0.0.1")
		w.up(servedTask(t, infra, "v1", "replicas: 2"))
		w.serves("two replicas", 2, nil)
		q := w.ask(6, w.endpoint())
		q.seen(t, "v1")
		killed := 0
		kill := func(n int) {
			for range n {
				time.Sleep(time.Duration(r.IntN(1200)) * time.Millisecond)
				w.killServer()
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
				w.sky("api", "start")
				killed++
			}
		}
		change := func(version, policy, mode string) {
			t.Helper()
			w.sky("serve", "update", "-y", "chat", w.write("chat.yaml", servedTask(t, infra, version, policy)), "--mode", mode)
		}
		kill(2)
		change("v2", "replicas: 3", "rolling")
		kill(6)
		w.serves("after the first update", 3, ofVersion(2))
		change("v3", "replicas: 2", "blue_green")
		kill(6)
		w.serves("after the second one", 2, ofVersion(3))
		ids := w.service().Replicas
		w.sky("serve", "down", "-y", "chat", "--replica-id", fmt.Sprint(ids[len(ids)-1].ID))
		kill(3)
		change("v4", "replicas: 1", "rolling")
		kill(3)
		w.serves("in the end", 1, ofVersion(4))
		q.seen(t, "v4")
		q.end(t)
		t.Logf("%d kills", killed)
		down := w.command("serve", "down", "-y", "chat")
		if err := down.Start(); err != nil {
			t.Fatal(err)
		}
		kill(1)
		down.Wait()
		eventually(t, "the service is gone", 2*time.Minute, func() bool { return w.service() == nil })
	})
}

// TestLongExchangesOutliveAnUpdate: whatever is under way when a service moves to
// another version comes to its end with the old one.
func TestLongExchangesOutliveAnUpdate(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.up(servedTask(t, "local", "v1", "replicas: 1"))
	w.serves("a replica", 1, nil)
	url := w.endpoint()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	socket, _, err := websocket.Dial(ctx, url+"/websocket", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	say := func(word, want string) {
		t.Helper()
		if err := socket.Write(ctx, websocket.MessageText, []byte(word)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := socket.Read(ctx); err != nil || string(got) != want {
			t.Fatalf("the socket says %q %v, not %q", got, err, want)
		}
	}
	say("hello", "v1 hello")

	length := 15 * time.Second
	if d, err := time.ParseDuration(os.Getenv("SKY_E2E_STREAM")); err == nil {
		length = min(d, 10*time.Minute)
	}
	n := int(length / (50 * time.Millisecond))
	streamed := make(chan error, 1)
	begun := make(chan struct{})
	go func() { streamed <- stream(ctx, fmt.Sprint(url, "/stream?n=", n), n, begun) }()
	<-begun

	uploaded := make(chan error, 1)
	half := make(chan struct{})
	on := make(chan struct{})
	go func() { uploaded <- upload(ctx, url+"/upload", 200<<20, half, on) }()
	<-half

	call := func() {
		t.Helper()
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		defer tr.CloseIdleConnections()
		msg := append([]byte{0, 0, 0, 0, 5}, "hello"...)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/echo.Echo/Say", bytes.NewReader(msg))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, msg) || resp.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("the call of gRPC: %q %v %v", got, err, resp.Trailer)
		}
	}
	call()
	task := strings.Replace(servedTask(t, "local", "v2", "replicas: 1"), "drain_seconds: 30", "drain_seconds: 1200", 1)
	w.sky("serve", "update", "-y", "chat", w.write("chat.yaml", task))
	eventually(t, "the new version answers", time.Minute, func() bool {
		version, err := askOnce(ctx, http.DefaultClient, url)
		return err == nil && version == "v2"
	})
	say("still there", "v1 still there")
	call()
	close(on)
	if err := <-uploaded; err != nil {
		t.Errorf("the upload: %v", err)
	}
	if err := <-streamed; err != nil {
		t.Errorf("the stream: %v", err)
	}
	say("and now", "v1 and now")
	socket.Close(websocket.StatusNormalClosure, "")
	w.serves("the old replica has gone", 1, ofVersion(2))
	w.sky("serve", "down", "-y", "chat")
}

// stream reads a stream of n events to its end, which the version v1 must have sent.
func stream(ctx context.Context, url string, n int, begun chan<- struct{}) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	last := ""
	for i := 0; lines.Scan(); {
		if lines.Text() == "" {
			continue
		}
		if i == 1 {
			close(begun)
		}
		if last = lines.Text(); i < n && last != fmt.Sprint("data: ", i) {
			return fmt.Errorf("event %d is %q", i, last)
		}
		i++
	}
	if last != "data: done by v1" {
		return fmt.Errorf("the last event is %q: %w", last, errors.Join(lines.Err(), io.ErrUnexpectedEOF))
	}
	return nil
}

// upload sends size bytes, of which the second half waits for on.
func upload(ctx context.Context, url string, size int64, half chan<- struct{}, on <-chan struct{}) error {
	in, out := io.Pipe()
	sum := sha256.New()
	go func() {
		block := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB
		for sent := int64(0); sent < size; sent += int64(len(block)) {
			if sent == size/2 {
				close(half)
				<-on
			}
			sum.Write(block)
			if _, err := out.Write(block); err != nil {
				return
			}
		}
		out.Close()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, in)
	if err != nil {
		return err
	}
	req.ContentLength = size
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if want := hex.EncodeToString(sum.Sum(nil)); err != nil || string(got) != want {
		return fmt.Errorf("%s %q %w", resp.Status, got, err)
	}
	return nil
}
