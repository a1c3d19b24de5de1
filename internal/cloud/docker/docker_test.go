//go:build unix

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
)

var offer = cloud.Offer{Place: cloud.Place{Cloud: Name}, InstanceType: InstanceType, CPUs: 4, MemoryGiB: 16}

func TestConformance(t *testing.T) {
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness {
		f := startFake(t)
		creating := func(r *http.Request) bool { return r.URL.Path == "/containers/create" }
		return cloudtest.Harness{
			Provider: New(NewEngine(f.socket)),
			Spec:     cloud.LaunchSpec{Offer: offer},
			Another:  func(testing.TB) cloud.Provider { return New(NewEngine(f.socket)) },
			Many:     50,
			Restore:  func(testing.TB) { f.set(nil) },
			Cut: func(testing.TB) {
				f.set(func(w http.ResponseWriter, _ *http.Request) bool { panic(http.ErrAbortHandler) })
			},
			Hang: func(testing.TB) {
				f.set(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
			},
			LoseAnswers: func(t testing.TB, to cloudtest.Effect, times int) {
				var n atomic.Int64
				f.set(func(w http.ResponseWriter, r *http.Request) bool {
					hit := to == cloudtest.Creating && creating(r) || to == cloudtest.Terminating && r.Method == "DELETE" ||
						to == cloudtest.Starting && strings.HasSuffix(r.URL.Path, "/start") || to == cloudtest.Stopping && strings.HasSuffix(r.URL.Path, "/stop")
					if !hit || n.Add(1) > int64(times) {
						return false
					}
					if creating(r) {
						f.mu.Lock()
						f.create(&bodyless{}, r)
						f.mu.Unlock()
					}
					panic(http.ErrAbortHandler)
				})
			},
			Odd: func(testing.TB, cloudtest.Effect) {
				f.set(func(w http.ResponseWriter, r *http.Request) bool {
					if creating(r) {
						answer(w, 418, map[string]string{"message": cloudtest.OddCode})
					}
					return creating(r)
				})
			},
			Kill: func(t testing.TB, n cloud.Node) {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.containers, f.find(n.ID).id)
			},
			Halt: func(t testing.TB, n cloud.Node) {
				f.mu.Lock()
				defer f.mu.Unlock()
				c := f.find(n.ID)
				c.state, c.status = "exited", "Exited (0) just now"
			},
			Lie: func(t testing.TB, n cloud.Node, word string) {
				f.set(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != "/containers/json" {
						return false
					}
					f.mu.Lock()
					defer f.mu.Unlock()
					c := f.find(n.ID)
					answer(w, 200, []map[string]any{{"Id": c.id, "State": word, "Labels": c.labels}})
					return true
				})
			},
			Seed: func(t testing.TB, id cloud.ClusterID) {
				body, _ := json.Marshal(map[string]any{"Labels": cloud.LaunchSpec{ID: id}.NodeTags(0), "HostConfig": map[string]any{"NetworkMode": "x"}})
				f.mu.Lock()
				defer f.mu.Unlock()
				f.create(&bodyless{}, &http.Request{Form: url.Values{"name": {id.Name}}, Body: io.NopCloser(bytes.NewReader(body))})
			},
			Inventory: func(testing.TB) []string {
				f.mu.Lock()
				defer f.mu.Unlock()
				out := slices.Sorted(maps.Keys(f.networks))
				for _, c := range f.containers {
					out = append(out, c.name)
				}
				slices.Sort(out)
				return out
			},
		}
	})
}

// bodyless is an answer that nobody gets.
type bodyless struct{}

func (bodyless) Header() http.Header         { return http.Header{} }
func (bodyless) Write(b []byte) (int, error) { return len(b), nil }
func (bodyless) WriteHeader(int)             {}

func spec(image string) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, Nodes: 1, Offer: offer, ImageID: image}
}

func TestImages(t *testing.T) {
	f := startFake(t)
	p := New(NewEngine(f.socket))
	for _, tt := range []struct {
		image string
		is    func(error) bool
	}{
		{"", none}, {"docker:fresh", none}, {"docker:localhost:5000/x/fresh:2", none},
		{"docker:absent", is[*cloud.InvalidError]}, {"docker:broken", is[*cloud.UnreachableError]}, {"docker:shell-less", is[*cloud.InvalidError]},
	} {
		_, err := p.Launch(t.Context(), spec(tt.image))
		if !tt.is(err) {
			t.Errorf("%q: %T: %v", tt.image, err, err)
		}
		if err := p.Terminate(t.Context(), spec("").ID); err != nil {
			t.Fatal(err)
		}
	}
	if !f.images["fresh"] || !f.images["localhost:5000/x/fresh:2"] {
		t.Errorf("pulled: %v", f.images)
	}
}

func none(err error) bool { return err == nil }

func is[T error](err error) bool {
	var want T
	return errors.As(err, &want)
}

func TestAContainerThatGaveItselfBackIsGoneAndMadeAgain(t *testing.T) {
	f := startFake(t)
	p := New(NewEngine(f.socket))
	first, err := p.Launch(t.Context(), spec(""))
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	c := f.find(first[0].ID)
	c.state, c.status = "exited", "Exited (77) 2 seconds ago"
	f.mu.Unlock()
	nodes, err := p.Nodes(t.Context(), spec("").ID)
	if err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeGone || nodes[0].Reason == "" {
		t.Errorf("%+v, %v", nodes, err)
	}
	again, err := p.Launch(t.Context(), spec(""))
	if err != nil || len(again) != 1 || again[0].State != cloud.NodeRunning || again[0].ID == first[0].ID {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestGPUsAreAskedFor(t *testing.T) {
	f := startFake(t)
	p := New(NewEngine(f.socket))
	s := spec("")
	s.Offer.Accelerators = map[string]float64{"H100": 2}
	nodes, err := p.Launch(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	host := f.find(nodes[0].ID).spec["HostConfig"].(map[string]any)
	if got := fmt.Sprint(host["DeviceRequests"]); got != "[map[Capabilities:[[gpu]] Count:2 Driver:nvidia]]" {
		t.Error(got)
	}
}

func TestNoEngine(t *testing.T) {
	p := New(NewEngine(filepath.Join(t.TempDir(), "absent")))
	_, err := p.Check(t.Context())
	var auth *cloud.AuthError
	if !errors.As(err, &auth) || auth.Fix == "" {
		t.Error(err)
	}
	if nodes, err := p.Nodes(t.Context(), cloud.ClusterID{Installation: "i"}); err != nil || len(nodes) > 0 {
		t.Errorf("%v, %v", nodes, err)
	}
	if _, err := p.Nodes(t.Context(), spec("").ID); !is[*cloud.UnreachableError](err) {
		t.Errorf("a cluster's nodes: %v", err)
	}
}

func TestHostnames(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"web", "web-3"}, {"a_b.c", "a-b-c-3"}, {strings.Repeat("x", 80), strings.Repeat("x", 61) + "-3"},
	} {
		if got := hostname(tt.name, 3); got != tt.want {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

// The engine's exec protocol, with an engine that says what it is told.
func TestExecFrames(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /containers/c/exec", func(w http.ResponseWriter, r *http.Request) { answer(w, 201, map[string]string{"Id": "e"}) })
	mux.HandleFunc("POST /exec/e/start", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
		in, _ := io.ReadAll(rw)
		frame := func(stream byte, text string) {
			conn.Write(append([]byte{stream, 0, 0, 0, 0, 0, byte(len(text) >> 8), byte(len(text))}, text...))
		}
		frame(1, "you said ")
		frame(2, "oops")
		frame(1, string(in))
	})
	mux.HandleFunc("GET /exec/e/json", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, map[string]int{"ExitCode": 3}) })
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	defer srv.Close()
	e := NewEngine(socket)
	r, err := e.Exec(t.Context(), "c", []string{"x"}, strings.NewReader("hello"))
	if err != nil || r.Code != 3 || string(r.Stdout) != "you said hello" || string(r.Stderr) != "oops" {
		t.Errorf("%+v, %v", r, err)
	}
	conn, err := e.Pipe(t.Context(), "c", []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "pipe")
	conn.(interface{ CloseWrite() error }).CloseWrite()
	if out, err := io.ReadAll(conn); err != nil || string(out) != "you said pipe" {
		t.Errorf("%q, %v", out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r2, w2 := io.Pipe() // input that never comes
	defer w2.Close()
	if _, err := e.Exec(ctx, "c", []string{"x"}, r2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if _, err := NewEngine(os.DevNull).Exec(ctx, "c", []string{"x"}, nil); err == nil {
		t.Error("a device is no engine")
	}
}

// The engine goes on stopping when its client leaves, and lists the container as
// running meanwhile.
func TestALaunchWaitsForAStopWhoseCallerLeft(t *testing.T) {
	f := startFake(t)
	p := New(NewEngine(f.socket))
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 1, Offer: offer}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	stopping, end := make(chan struct{}), make(chan struct{})
	f.stopped = make(chan struct{})
	f.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/stop") {
			close(stopping)
			<-end
		}
		return false
	})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- p.Stop(ctx, spec.ID) }()
	<-stopping
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("Stop says %v", err)
	}
	launched := make(chan error, 1)
	go func() {
		_, err := p.Launch(t.Context(), spec)
		launched <- err
	}()
	time.Sleep(50 * time.Millisecond) // enough for a launch that waits for nothing
	close(end)
	if err := <-launched; err != nil {
		t.Fatal(err)
	}
	<-f.stopped
	if nodes, err := p.Nodes(t.Context(), spec.ID); err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeRunning {
		t.Errorf("after the launch there are %+v, %v", nodes, err)
	}
}
