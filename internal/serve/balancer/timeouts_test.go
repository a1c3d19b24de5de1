package balancer

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// deadline is the last one that was set.
type deadline struct{ due time.Time }

func (d *deadline) SetDeadline(due time.Time) error { d.due = due; return nil }

func TestTimeouts(t *testing.T) {
	stream := http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}
	for _, c := range []struct {
		name          string
		request, idle time.Duration
		steps         func(x *timeouts)
		want          time.Duration // from the begin; 0: never
	}{
		{"an answer may take its time", 0, time.Minute, func(x *timeouts) {}, 0},
		{"unless there is a limit", time.Hour, time.Minute, func(x *timeouts) {}, time.Hour},
		{"uploads must move", 0, time.Minute, func(x *timeouts) { x.enter(uploading); time.Sleep(30 * time.Second); x.moved() }, 90 * time.Second},
		{"the time of an upload counts", 80 * time.Second, time.Minute, func(x *timeouts) { x.enter(uploading); time.Sleep(30 * time.Second); x.moved() }, 80 * time.Second},
		{"after an upload the answer may take its time", 0, time.Minute, func(x *timeouts) { x.enter(uploading); time.Sleep(30 * time.Second); x.uploaded() }, 0},
		{"unless there is a limit, again", time.Hour, time.Minute, func(x *timeouts) { x.enter(uploading); time.Sleep(30 * time.Second); x.uploaded() }, time.Hour},
		{"answers must move", time.Hour, time.Minute, func(x *timeouts) { x.answer(nil, nil); time.Sleep(30 * time.Second); x.moved() }, 90 * time.Second},
		{"and so they must while an upload goes on", 0, time.Minute, func(x *timeouts) { x.enter(uploading); x.answer(nil, nil); time.Sleep(30 * time.Second); x.uploaded() }, time.Minute},
		{"streams need not", time.Hour, time.Minute, func(x *timeouts) { x.answer(stream, nil); x.moved() }, 0},
		{"nor those that answer an upload", 0, time.Minute, func(x *timeouts) { x.enter(uploading); x.answer(stream, nil); x.moved(); x.uploaded() }, 0},
		{"nor messages of gRPC", 0, time.Minute, func(x *timeouts) { x.answer(http.Header{"Content-Type": {"application/grpc+proto"}}, nil) }, 0},
		{"without a limit nothing is", 0, 0, func(x *timeouts) { x.enter(uploading); x.moved(); x.answer(nil, nil); x.moved() }, 0},
		{"it is taken back", time.Hour, time.Minute, func(x *timeouts) { x.answer(nil, nil); x.end(); x.moved() }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var x timeouts
				var d deadline
				begin := time.Now()
				by := time.Time{}
				if c.request > 0 {
					by = begin.Add(c.request)
				}
				x.begin(&d, by, c.idle)
				c.steps(&x)
				if c.want == 0 && !d.due.IsZero() || c.want > 0 && d.due.Sub(begin) != c.want {
					t.Errorf("it ends at %v, want %v", d.due.Sub(begin), c.want)
				}
			})
		})
	}
}

// pipes is a listener whose connections are in memory, so that their time is virtual.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inMemory is a service whose only replica is h.
func inMemory(t *testing.T, row balancerapi.Service, h http.HandlerFunc) *service {
	l := make(pipes)
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	go srv.Serve(l)
	dial := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		l <- far
		return near, nil
	}
	s := newService(&Balancer{opt: Options{Dial: dial, Logger: slog.New(slog.DiscardHandler)}}, "chat")
	row.Replicas[0].ID, row.Replicas[0].Address, row.Replicas[0].State = 1, "replica:80", balancerapi.Ready
	s.apply(row, time.Now())
	t.Cleanup(func() {
		srv.Close()
		for _, r := range s.replicas {
			r.end()
		}
	})
	return s
}

// cutting is a writer for a client whose sending can be ended.
type cutting struct {
	*httptest.ResponseRecorder
	cut func()
}

func (c cutting) SetReadDeadline(time.Time) error { c.cut(); return nil }

// Beside a long prompt, whose answer may come late and be a stream that is silent for
// longer than answers may be, time goes on virtually.
func TestSilence(t *testing.T) {
	for _, protocol := range []string{balancerapi.HTTP1, balancerapi.H2C} {
		for _, c := range []struct {
			name, path, body string
			status           int
			text             string
		}{
			{"a late answer", "/late", strings.Repeat("x", 1<<20), 200, "done"},
			{"a silent stream of events", "/events", strings.Repeat("x", 1<<20), 200, "begun done"},
			{"messages of gRPC", "/messages", strings.Repeat("x", 1<<20), 200, "begun done"},
			{"an answer that stops", "/stops", "", 200, "begun "},
			{"an upload that stops", "/late", "", 504, "nothing of the body"},
		} {
			t.Run(protocol+" "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					row := balancerapi.Service{Limits: balancerapi.Limits{IdleTimeout: 60}, Replicas: []balancerapi.Replica{{Protocol: protocol}}}
					s := inMemory(t, row, func(w http.ResponseWriter, r *http.Request) {
						io.Copy(io.Discard, r.Body)
						flush := func(mime string) {
							w.Header().Set("Content-Type", mime)
							io.WriteString(w, "begun ")
							http.NewResponseController(w).Flush()
						}
						switch r.URL.Path {
						case "/events":
							flush("text/event-stream")
						case "/messages":
							flush("application/grpc")
						case "/stops":
							flush("text/plain")
						}
						select {
						case <-time.After(10 * time.Minute):
							io.WriteString(w, "done")
						case <-r.Context().Done():
						}
					})
					w := cutting{httptest.NewRecorder(), func() {}}
					var body io.Reader = struct{ io.Reader }{strings.NewReader(c.body)}
					if c.status == 504 {
						in, out := io.Pipe()
						w.cut = func() { out.Close() }
						go io.WriteString(out, "begun")
						body = in
					}
					func() {
						defer func() {
							if p := recover(); p != nil && p != http.ErrAbortHandler { // how an answer is broken off
								panic(p)
							}
						}()
						s.ServeHTTP(w, httptest.NewRequest("POST", c.path, body))
					}()
					if w.Code != c.status || !strings.HasPrefix(w.Body.String(), c.text) || c.status == 200 && w.Body.String() != c.text {
						t.Errorf("%d %q", w.Code, w.Body)
					}
				})
			})
		}
	}
}

// taking is a writer for a client that takes as much as somebody reads of the pipe.
type taking struct {
	*httptest.ResponseRecorder
	c net.Conn
}

func (w taking) Write(p []byte) (int, error)          { return w.c.Write(p) }
func (w taking) SetWriteDeadline(due time.Time) error { return w.c.SetWriteDeadline(due) }

// A client that does not take its answer does not hold its replica for ever, and the
// deadline is not that of the connection's next answer.
func TestAClientThatTakesNothing(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			row := balancerapi.Service{Limits: balancerapi.Limits{IdleTimeout: 60}, Replicas: []balancerapi.Replica{{}}}
			s := inMemory(t, row, func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 1<<20)) })
			near, far := net.Pipe()
			defer far.Close()
			defer near.Close()
			if reads {
				go io.Copy(io.Discard, far)
			}
			begun := time.Now()
			func() {
				defer func() { recover() }() // how an answer is broken off
				s.ServeHTTP(taking{httptest.NewRecorder(), near}, httptest.NewRequest("GET", "/", nil))
			}()
			if took := time.Since(begun); reads && took > 0 || !reads && took != time.Minute {
				t.Errorf("a client that reads (%v) is answered in %v", reads, took)
			}
			s.mu.Lock()
			n := s.inFlight
			s.mu.Unlock()
			if n != 0 {
				t.Errorf("%d requests are in flight", n)
			}
			time.Sleep(10 * time.Minute)
			if reads {
				if _, err := near.Write([]byte("next")); err != nil {
					t.Errorf("the next answer: %v", err)
				}
			}
		})
	}
}
