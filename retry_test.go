package sky

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
)

var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
)

func TestRetry(t *testing.T) {
	unreached, cut := &ConnectError{"http://x", errRefused}, &ConnectError{"http://x", io.ErrUnexpectedEOF}
	for _, c := range []struct {
		name       string
		err        error
		attempt    int
		elapsed    time.Duration
		idempotent bool
		again      bool
	}{
		{"an unreached server is tried again", unreached, 1, 0, true, true},
		{"also for a call that must not arrive twice", unreached, 1, 0, false, true},
		{"until the patience is over", unreached, 30, 29500 * time.Millisecond, true, false},
		{"a lost answer is asked for again", cut, 1, 0, true, true},
		{"but not where a call must not arrive twice", cut, 1, 0, false, false},
		{"a reset is a lost answer", &ConnectError{"http://x", errReset}, 1, 0, true, true},
		{"502 may have arrived", &StatusError{Code: 502}, 1, 0, false, false},
		{"502 of an idempotent call", &StatusError{Code: 502}, 1, 0, true, true},
		{"504 of an idempotent call", &StatusError{Code: 504}, 1, 0, true, true},
		{"503 of a proxy did not arrive", &StatusError{Code: 503}, 1, 0, false, true},
		{"503 of a proxy is an outage", &StatusError{Code: 503}, 30, 30 * time.Second, true, false},
		{"503 of the server did not arrive", &StatusError{503, "busy"}, 1, 0, false, true},
		{"503 of the server is waited for longer", &StatusError{503, "busy"}, 9, 5 * time.Minute, true, true},
		{"but not for ever", &StatusError{503, "busy"}, 90, 10 * time.Minute, true, false},
		{"500 may pass", &StatusError{Code: 500}, 1, 0, true, true},
		{"500 again and again does not", &StatusError{Code: 500}, serverFailures, 0, true, false},
		{"500 of a call that must not arrive twice", &StatusError{Code: 500}, 1, 0, false, false},
		{"404 is an answer", &StatusError{Code: 404}, 1, 0, true, false},
		{"so is a failure of the request", &api.Error{Type: "ValueError"}, 1, 0, true, false},
		{"and a login", &AuthError{}, 1, 0, true, false},
		{"and our own mistake", errors.New("a bug"), 1, 0, true, false},
	} {
		if pause, again := retry(c.err, c.attempt, c.elapsed, outagePatience, c.idempotent); again != c.again || again && pause <= 0 {
			t.Errorf("%s: %v after %v", c.name, again, pause)
		}
	}
}

// away is a server that is not there for a while, in virtual time.
type away struct {
	from, until time.Duration // since the start
	start       time.Time
	err         error         // what calls get meanwhile; nil: silence
	slow        time.Duration // before each answer
	handler     http.Handler
	mu          sync.Mutex
	calls       []string
}

func (a *away) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.calls = append(a.calls, r.Method+" "+r.URL.Path)
	a.mu.Unlock()
	if since := time.Since(a.start); since >= a.from && since < a.until {
		if a.err != nil {
			return nil, a.err
		}
		select {
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		case <-time.After(a.until - since):
		}
	}
	time.Sleep(a.slow)
	return answerOf(a.handler, r)
}

func (a *away) count(call string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if c == call {
			n++
		}
	}
	return n
}

// answerOf lets a handler answer without a network.
func answerOf(h http.Handler, r *http.Request) (*http.Response, error) {
	w := &recorder{header: http.Header{}, code: 200}
	h.ServeHTTP(w, r)
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	return &http.Response{
		StatusCode: w.code, Status: fmt.Sprint(w.code), Header: w.header, Request: r,
		Body: io.NopCloser(bytes.NewReader(w.body.Bytes())),
	}, nil
}

type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(code int)        { w.code = code }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

func goodServer() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/health", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"healthy","api_version":"53","version":"1","commit":"x"}`)
	})
	mux.HandleFunc("POST /status", accepted("id-1"))
	mux.HandleFunc("GET /api/get", func(w http.ResponseWriter, r *http.Request) {
		select { // a request that takes long
		case <-r.Context().Done():
			return
		case <-time.After(time.Minute):
		}
		finished(api.RequestPayload{RequestID: "id-1", ReturnValue: `[]`, Error: "null"})(w, r)
	})
	mux.HandleFunc("POST /users/create", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "null") })
	return mux
}

// through makes a client whose calls go through a, and collects what it reports.
func through(t *testing.T, a *away, o Options) (*Client, *[]string) {
	a.start = time.Now()
	if a.handler == nil {
		a.handler = goodServer()
	}
	var told []string
	o.Endpoint, o.HTTPClient = "http://sky:1", &http.Client{Transport: a}
	o.Environ = []string{"HOME=" + t.TempDir(), "SKYPILOT_USER_ID=abcd1234", "SKYPILOT_USER=me"}
	o.Waiting = func(w Wait) {
		text := w.String()
		if w.Over {
			text = "over"
		}
		told = append(told, text)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, &told
}

func TestCallsWaitForAServerThatIsAway(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		away  time.Duration
		told  int // reports, the last one that it is over
		fails string
	}{
		{"gone for a second", errRefused, time.Second, 0, ""},
		{"gone for ten", errRefused, 10 * time.Second, 9, ""},
		{"breaks connections for ten", errReset, 10 * time.Second, 9, ""},
		{"does not answer for ten", nil, 10 * time.Second, 9, ""},
		{"gone for ever", errRefused, time.Hour, 29, "cannot reach the API server at http://sky:1: "},
		{"silent for ever", nil, time.Hour, 29, "no answer for 30s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, told := through(t, &away{until: c.away, err: c.err}, Options{})
				began := time.Now()
				_, err := k.Status(t.Context(), api.StatusBody{})
				took := time.Since(began)
				if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
					t.Errorf("error %v, want %q", err, c.fails)
				}
				if c.fails == "" && took > c.away+2500*time.Millisecond || c.fails != "" && (took < 27*time.Second || took > 31*time.Second) {
					t.Errorf("it took %v", took)
				}
				if n := len(*told); n < c.told-2 || n > c.told+2 {
					t.Errorf("told %q", *told)
				} else if n > 0 {
					if !strings.HasSuffix((*told)[0], ", 2s") || (*told)[n-1] != "over" {
						t.Errorf("told %q", *told)
					}
				}
				synctest.Wait()
			})
		})
	}
}

func TestALongRequestIsNotTakenForASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &away{slow: 200 * time.Millisecond}
		k, told := through(t, a, Options{})
		if _, err := RequestOf[[]string](k, "id-1").Get(t.Context()); err != nil || len(*told) > 0 {
			t.Errorf("%v, told %q", err, *told)
		}
		if n := a.count("GET /api/health"); n < 2 || n > 6 {
			t.Errorf("asked for its health %d times in a minute", n)
		}
	})
}

func TestAServerThatHangsUnderALongRequestIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, told := through(t, &away{from: 10 * time.Second, until: time.Hour}, Options{})
		began := time.Now()
		_, err := RequestOf[[]string](k, "id-1").Get(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no answer for 30s") || time.Since(began) > 70*time.Second || len(*told) == 0 {
			t.Errorf("%v after %v, told %q", err, time.Since(began), *told)
		}
	})
}

func TestACallThatMustNotArriveTwiceIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &away{until: time.Hour, err: errReset}
		k, _ := through(t, a, Options{})
		err := k.CreateUser(t.Context(), api.UserCreateBody{})
		if n := a.count("POST /users/create"); n != 1 || err == nil || !strings.Contains(err.Error(), "may have been carried out") {
			t.Errorf("sent %d times: %v", n, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		k, _ := through(t, &away{until: 5 * time.Second, err: errRefused}, Options{})
		if err := k.CreateUser(t.Context(), api.UserCreateBody{}); err != nil {
			t.Errorf("one that did not arrive is sent again: %v", err)
		}
	})
}

func TestBusyIsNotForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := through(t, &away{handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"detail":"full"}`)
		})}, Options{})
		began := time.Now()
		if _, err := k.Down(t.Context(), api.StopBody{}); err == nil || err.Error() != "full" || time.Since(began) < 9*time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestCtrlCEndsAWaitAtOnce(t *testing.T) {
	for name, trouble := range map[string]error{"refused": errRefused, "silent": nil} {
		synctest.Test(t, func(t *testing.T) {
			k, told := through(t, &away{until: time.Hour, err: trouble}, Options{})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			_, err := k.Status(ctx, api.StatusBody{})
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second || len(*told) == 0 || (*told)[len(*told)-1] != "over" {
				t.Errorf("%s: %v after %v, told %q", name, err, time.Since(began), *told)
			}
		})
	}
}

func TestADeadServerIsStartedOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		back  bool
		err   error
		fails string
	}{
		{"it comes back", true, nil, ""},
		{"it dies again", false, nil, "cannot reach"},
		{"it cannot be started", false, errors.New("the disk is full"), "the disk is full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := 0
				a := &away{until: time.Hour, err: errRefused}
				k, _ := through(t, a, Options{Revive: func(context.Context) error {
					starts++
					if c.back {
						a.until = 0
					}
					return c.err
				}})
				_, err := k.Status(t.Context(), api.StatusBody{})
				if starts != 1 || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%d starts, %v", starts, err)
				}
			})
		})
	}
}

// halfAnswers sends the first half of its first answers and breaks off.
type halfAnswers struct {
	next   http.Handler
	broken int
}

func (h *halfAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := answerOf(h.next, r)
	if err != nil || h.broken == 0 {
		return res, err
	}
	h.broken--
	whole, _ := io.ReadAll(res.Body)
	res.Body = io.NopCloser(io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), failingReader{}))
	return res, nil
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errReset }

func TestAnAnswerThatBreaksOffIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := goodServer()
		mux.HandleFunc("GET /users", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"id":"a"},{"id":"b"}]`) })
		k, _ := through(t, &away{}, Options{})
		k.http = &http.Client{Transport: &halfAnswers{next: mux, broken: 3}}
		list, err := k.Users(t.Context())
		if err != nil || len(list) != 2 {
			t.Errorf("%v, %v", list, err)
		}
	})
}

func TestWaitsAreReportedAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, told := through(t, &away{until: 4 * time.Second, err: errRefused}, Options{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := k.Status(t.Context(), api.StatusBody{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(*told); n < 2 || n > 8 || (*told)[n-1] != "over" || slices.Index(*told, "over") != n-1 {
			t.Errorf("told %q", *told)
		}
	})
}
