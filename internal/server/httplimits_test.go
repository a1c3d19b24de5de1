package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/internal/trace/tracetest"
)

// lines is a log that goroutines write.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestTheServersLogTellsOfEveryCall(t *testing.T) {
	t.Parallel()
	log := &lines{}
	env := newTestEnv(t, func(d *Deps) {
		d.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		d.Backup = func(_ context.Context, _ BackupOptions, begin func() io.Writer) error {
			begin()
			return errors.New("broken")
		}
	})
	env.call(get, "/api/health", "")
	env.call(get, "/api/health?secret=hush", "", "Host", "evil.example")
	env.call(get, "/dashboard_config", "")
	if resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(must(http.NewRequestWithContext(t.Context(), post, env.url+"/backup", strings.NewReader(`{}`)))); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	for _, want := range []string{
		`level=DEBUG msg="request served" method=GET path=/api/health status=200`,
		`level=INFO msg="request served" method=GET path=/api/health status=403`,
		fmt.Sprintf(`level=INFO msg="request served" method=GET path=/dashboard_config status=200 bytes=%d`, len(`{"external_links":[]}`)),
		`level=INFO msg="request served" method=POST path=/backup status=200`,
		`client_api=53`,
	} {
		for range 500 { // a call is told after its answer
			if strings.Contains(log.String(), want) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !strings.Contains(log.String(), want) {
			t.Errorf("no line %s in\n%s", want, log)
		}
	}
	if strings.Contains(log.String(), "hush") {
		t.Errorf("a query is told: %s", log)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCallsAreTraced(t *testing.T) {
	t.Parallel()
	const traceID, spanID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	spans := tracetest.New(t)
	tracer, err := trace.New(trace.Options{Getenv: func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": spans.URL + "/"}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	env := newTestEnv(t, func(d *Deps) {
		d.Tracer = tracer
		d.StorageNames = func(context.Context, *state.Scope, string) ([]string, error) { return nil, errors.New("broken") }
	})
	good := env.call(post, "/status", `{}`, "Traceparent", "00-"+traceID+"-"+spanID+"-01")
	env.call(get, "/api/completion/storage_name", "", "Traceparent", "00-"+traceID+"-00f067aa0ba902b8-01")
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	call := spans.Await("POST /status", spanID)
	if call.Trace != traceID || call.Failed || !strings.Contains(good.header.Get("Traceparent"), traceID+"-"+call.ID) {
		t.Errorf("%+v, told as %q", call, good.header.Get("Traceparent"))
	}
	for name, want := range map[string]string{"http.request.method": "POST", "http.route": "POST /status", "sky.request.id": good.id()} {
		if got := fmt.Sprint(call.Attributes[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if broken := spans.Await("GET /api/completion/storage_name", "00f067aa0ba902b8"); !broken.Failed {
		t.Errorf("an answer of 500 is no failure: %+v", broken)
	}
	req, err := env.store.Requests().Get(t.Context(), good.id())
	if err != nil || !strings.Contains(string(req.Body), `"traceparent":"`) {
		t.Errorf("the request does not belong to the trace: %s %v", req.Body, err)
	}
}

// pipeListener accepts connections that are pipes in memory, so that virtual time
// rules them.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { l.once.Do(func() { close(l.done) }); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// overPipes is a client of handler in virtual time; it returns the client's side of
// a connection.
func overPipes(t *testing.T, handler http.Handler) net.Conn {
	return servedOverPipes(t, &http.Server{Handler: handler})
}

// servedOverPipes is a connection to a server that is over with the test.
func servedOverPipes(t *testing.T, hs *http.Server) net.Conn {
	l := &pipeListener{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	served := make(chan struct{})
	go func() { defer close(served); _ = hs.Serve(l) }()
	client, server := net.Pipe()
	l.conns <- server
	t.Cleanup(func() { client.Close(); hs.Close(); <-served })
	return client
}

func TestAReaderThatTakesNothingIsCutOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		pause time.Duration // between two looks of the reader
		cut   bool
	}{
		{"a reader that is slow", stalledAfter - time.Minute, false},
		{"a reader that stalls", stalledAfter + time.Minute, true},
	} {
		for _, flush := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				result := make(chan error, 1)
				client := overPipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					s := newStream(w)
					s.begin(textPlain)
					for range 8 {
						_, _ = s.Write(bytes.Repeat([]byte("x"), 3<<10))
						if flush {
							s.Flush()
						}
					}
					s.Close()
					result <- s.err
				}))
				if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				for buf := make([]byte, 16<<10); ; {
					time.Sleep(c.pause)
					_ = client.SetReadDeadline(time.Now().Add(time.Second))
					if _, err := client.Read(buf); err != nil {
						break
					}
				}
				if err := <-result; (err != nil) != c.cut {
					t.Errorf("%s (flushed: %v): %v", c.name, flush, err)
				}
			})
		}
	}
}

// A stream that was idle for long is not late.
func TestAStreamMayBeIdleForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		result := make(chan error, 1)
		client := overPipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			s := newStream(w)
			s.begin(textPlain)
			for range 3 {
				time.Sleep(2 * stalledAfter)
				_, _ = s.Write([]byte("x"))
				s.Flush()
			}
			s.Close()
			time.Sleep(2 * stalledAfter)
			_, err := w.Write(bytes.Repeat([]byte("x"), 10<<10))
			result <- errors.Join(s.err, err)
		}))
		go func() { _, _ = io.Copy(io.Discard, client) }()
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
		client.Close()
	})
}

// A chunk of an upload may take as long as something comes.
func TestAChunkIsCutWhenNothingComes(t *testing.T) {
	t.Parallel()
	for pause, good := range map[time.Duration]bool{chunkTime - time.Second: true, chunkTime + time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan error, 1)
			client := overPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, &timedBody{w: w, r: r})
				if err == nil { // the deadline of the body is not that of what follows
					time.Sleep(2 * chunkTime)
					err = r.Context().Err()
				}
				got <- err
			}))
			go func() { _, _ = io.Copy(io.Discard, client) }()
			if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				time.Sleep(pause)
				_, _ = io.WriteString(client, "x")
			}
			if err := <-got; (err == nil) != good {
				t.Errorf("with %v between two bytes: %v", pause, err)
			}
			client.Close()
		})
	}
}

func TestAChunkMayHave100MB(t *testing.T) {
	t.Parallel()
	for n, good := range map[int64]bool{maxChunk: true, maxChunk + 1: false} {
		r := httptest.NewRequest(post, "/upload_v2", io.LimitReader(zeroReader{}, n))
		_, err := io.Copy(io.Discard, &timedBody{w: httptest.NewRecorder(), r: r})
		if (err == nil) != good {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err == nil {
			continue
		}
		a := httptest.NewRecorder()
		new(Server).uploadFailed(a, r, err)
		if a.Code != http.StatusRequestEntityTooLarge || !strings.Contains(a.Body.String(), "100 MB") {
			t.Errorf("%d bytes: %d %s", n, a.Code, a.Body)
		}
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { return len(p), nil }

func TestWhichHostsAreThisServer(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	for _, c := range []struct {
		host  string
		local net.Addr
		want  bool
	}{
		{"192.0.2.5:80", &net.TCPAddr{IP: net.ParseIP("192.0.2.5"), Port: 1}, true},
		{"192.0.2.6:80", &net.TCPAddr{IP: net.ParseIP("192.0.2.5"), Port: 1}, false},
		{"[2001:db8::1]:80", &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 1}, true},
		{"[fe80::1]:80", &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 1, Zone: "eth0"}, true},
		{"[::ffff:192.0.2.5]:80", &net.TCPAddr{IP: net.ParseIP("192.0.2.5"), Port: 1}, true},
		{"192.0.2.5", nil, false},
		{"192.0.2.5", &net.UnixAddr{Name: "socket"}, false},
		{"127.0.0.2", nil, true},
		{"name", &net.TCPAddr{IP: net.ParseIP("192.0.2.5"), Port: 1}, false},
	} {
		r := httptest.NewRequest(get, "http://x/", nil)
		r.Host = c.host
		if c.local != nil {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, c.local))
		}
		if got := env.server.knownHost(r); got != c.want {
			t.Errorf("%s on %v: %v", c.host, c.local, got)
		}
	}
}

// Which bodies wait for their turn. It may not run beside other tests, whose bodies
// would wait, too.
func TestBodiesOfMoreThanAMegabyteWait(t *testing.T) {
	if !largeBodies.TryAcquire(bodiesAtOnce) {
		t.Fatal("a body is still being read")
	}
	defer largeBodies.Release(bodiesAtOnce)
	was := bodyWait
	bodyWait = time.Millisecond
	defer func() { bodyWait = was }()
	for size, waits := range map[int64]bool{0: false, 1: false, smallBody: false, smallBody + 1: true, maxBody: true, maxBody + 1: true, -1: true} {
		r := httptest.NewRequestWithContext(t.Context(), post, "/status", nil)
		r.ContentLength = size
		a := httptest.NewRecorder()
		if got := roomForBody(a, r); got == waits || waits != (a.Code == http.StatusServiceUnavailable && a.Header().Get("Retry-After") == "1") {
			t.Errorf("%d bytes: %v, %d %s", size, got, a.Code, a.Body)
		}
	}
}

func TestClientsThatFrameNothingGetWhatTheySent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ query, send, want string }{
		{"&client_version=21", "\x00abc", "\x00abc"},
		{"&client_version=22", "\x00abc", "abc"},
		{"&client_version=22", "SSH-", "SSH-"},
		{"", "\x00abc", "\x00abc"},
	} {
		env, sshd := sshEnv(t)
		conn := env.socket(proxyPath + c.query)
		if err := conn.Write(t.Context(), websocket.MessageBinary, []byte(c.send)); err != nil {
			t.Fatal(err)
		}
		hears(t, sshd, c.want)
	}
}

func TestCompletionsAreOfWhatACallerSees(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, people(t, map[string]string{"uma": "user", "ada": "admin"}), func(d *Deps) {
		d.VolumeNames = func(_ context.Context, scope *state.Scope, prefix string) ([]string, error) {
			if scope == nil {
				return []string{prefix + "z", prefix + "a"}, nil
			}
			return []string{prefix + scope.User}, nil
		}
		d.StorageNames = func(context.Context, *state.Scope, string) ([]string, error) { return nil, errors.New("no answer") }
	})
	env.ownCluster("hers", "uma")
	env.ownCluster("hidden", "ada", "lab")
	for _, c := range []struct{ as, kind, want string }{
		{"uma", "cluster_name?incomplete=h", `["hers"]`}, {"ada", "cluster_name?incomplete=h", `["hers","hidden"]`},
		{"uma", "volume_name?incomplete=v", `["v` + auth.UserID("uma") + `"]`}, {"ada", "volume_name?incomplete=v", `["va","vz"]`},
	} {
		env.as = c.as
		if r := env.call(get, "/api/completion/"+c.kind, ""); r.body != c.want {
			t.Errorf("%s as %s: %d %s, want %s", c.kind, c.as, r.status, r.body, c.want)
		}
	}
	if r := env.call(get, "/api/completion/storage_name", ""); r.status != 500 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestCancellingByABeginningThatStandsForSeveral(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	seen := map[byte]string{}
	prefix := ""
	for prefix == "" {
		id := env.ask("/stop", `{"cluster_name":"c"}`)
		if seen[id[0]] != "" {
			prefix = id[:1]
		}
		seen[id[0]] = id
	}
	ask := env.ask("/api/cancel", `{"request_ids":["`+prefix+`"]}`)
	if status, p := env.payload(ask); status != 500 || !strings.Contains(p.Error, api.ErrValue) {
		t.Errorf("%d %+v", status, p)
	}
	one := seen[prefix[0]]
	twice := env.ask("/api/cancel", `{"request_ids":["`+one+`","`+one+`","none"]}`)
	if _, p := env.payload(twice); p.ReturnValue != `["`+one+`"]` {
		t.Errorf("cancelled %s", p.ReturnValue)
	}
	if _, p := env.payload(env.ask("/api/cancel", `{"request_ids":[]}`)); p.ReturnValue != `[]` {
		t.Errorf("of none: %s", p.ReturnValue)
	}
	close(env.block)
}

func TestKeysOfOwnMachinesMayHave64KiB(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	form := func(n int) string {
		return "--b\r\nContent-Disposition: form-data; name=\"key_name\"\r\n\r\nk\r\n--b\r\nContent-Disposition: form-data; name=\"key_file\"; filename=\"k\"\r\n\r\n" +
			strings.Repeat("x", n) + "\r\n--b--\r\n"
	}
	for n, want := range map[int]int{1: 200, 64 << 10: 200, 64<<10 + 1: 400, 128 << 10: 400} {
		if r := env.call(post, "/ssh_node_pools/keys", form(n), "Content-Type", "multipart/form-data; boundary=b"); r.status != want {
			t.Errorf("%d bytes: %d %s", n, r.status, r.body)
		}
	}
	if r := env.call(post, "/ssh_node_pools/lab/deploy", ""); r.status != 200 || !strings.Contains(r.body, `"status":"accepted"`) || !strings.Contains(r.body, r.id()) {
		t.Errorf("%d %s", r.status, r.body)
	} else if q, err := env.store.Requests().Get(t.Context(), r.id()); err != nil || !strings.Contains(string(q.Body), `"infra":"lab"`) {
		t.Errorf("%s %v", q.Body, err)
	}
	for _, path := range []string{"/ssh_node_pools/deploy", "/ssh_node_pools/down"} {
		if r := env.call(post, path, `{}`); !strings.Contains(r.body, `"status":"accepted"`) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}

func TestDownloadsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	ask := func(path string) reply {
		return env.call(post, "/download", `{"folder_paths":["`+path+`"],"env_vars":{"SKYPILOT_USER_ID":"ab12"}}`)
	}
	if r := ask("~/" + LogsDir("ab12") + "/x"); r.status != 404 {
		t.Errorf("nothing was gathered: %d %s", r.status, r.body)
	}
	env.file(LogsDir("ab12")+"/x/log", "1")
	for path, want := range map[string]int{"~/" + LogsDir("ab12"): 200, "~/" + LogsDir("ab12") + "/x/log": 200, "~/" + LogsDir("ab12") + "x": 400,
		"~/" + LogsDir("ab12") + "/../../cd34": 400, "x": 400} {
		if r := ask(path); r.status != want {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	r := env.call(post, "/download?relative=items", `{"folder_paths":["~/`+LogsDir("ab12")+`"],"env_vars":{"SKYPILOT_USER_ID":"ab12"}}`)
	if got := unzipped(t, r.body); len(got) != 2 || got["x/log"] != "1" {
		t.Errorf("all that was gathered: %v", got)
	}
	if r.header.Get("Content-Type") != "application/zip" || r.header.Get("Content-Disposition") != `attachment; filename="logs.zip"` {
		t.Errorf("%v", r.header)
	}
	dir := filepath.Join(env.home, LogsDir("ab12"))
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if r := ask("~/" + LogsDir("ab12") + "/x"); r.status != 500 {
		t.Errorf("a folder that is none: %d %s", r.status, r.body)
	}
	broken, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	broken.Close()
	env.server.Downloads = NewDownloads(t.TempDir(), broken.AsShared())
	if r := ask("~/" + LogsDir("ab12") + "/x"); r.status != 500 {
		t.Errorf("from a database that is gone: %d %s", r.status, r.body)
	}
	d := env.server.Downloads
	for _, gathered := range []string{filepath.Join(d.Dir("ab12"), "x"), "not/absolute"} {
		if got, err := d.Offer(t.Context(), "ab12", map[string]string{"1": gathered}); err == nil {
			t.Errorf("%s is offered: %v", gathered, got)
		}
	}
	if err := d.sweep(t.Context(), time.Now()); err == nil {
		t.Error("a sweep that could not read the database went well")
	}
	env.server.Uploads = &Uploads{Home: env.home, Store: broken.AsShared()}
	if err := env.server.collectUploads(t.Context(), time.Now()); err == nil {
		t.Error("uploads that could not be listed were collected")
	}
}

func TestHousekeepingIsDoneEveryHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		home := t.TempDir()
		db, err := state.Open(t.Context(), filepath.Join(home, "x.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		log := &lines{}
		quiet := slog.New(slog.NewTextHandler(log, nil))
		s := New(Deps{Engine: requests.New(db, requests.Options{LogDir: home, Logger: quiet}), Store: db, Logger: quiet, Home: home})
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Housekeep(ctx); close(done) }()
		old := func() string {
			dir := filepath.Join(home, BlobDir("ab12", testBlob))
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chtimes(dir, time.Now(), time.Now().Add(-2*uploadKept))); err != nil {
				t.Fatal(err)
			}
			return dir
		}
		synctest.Wait()
		for range 3 {
			dir := old()
			time.Sleep(housekeepEvery - time.Minute)
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("removed before its time: %v", err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if _, err := os.Stat(dir); err == nil {
				t.Error("not removed an hour later")
			}
		}
		if text := log.String(); text != "" {
			t.Errorf("told: %s", text)
		}
		s.Store = must(state.Open(t.Context(), filepath.Join(home, "broken.db")))
		s.Store.Close()
		time.Sleep(housekeepEvery)
		synctest.Wait()
		if text := log.String(); strings.Count(text, "audit log was not brought up to date") != 1 {
			t.Errorf("told: %s", text)
		}
		cancel()
		<-done
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("the end is told as a failure: %s", log)
		}
	})
}
