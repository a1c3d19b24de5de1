//go:build linux

package remote

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/cloud/docker"
	"github.com/skypilot-go/sky/internal/state"
)

// engine is a container engine whose containers are folders: a command runs as a
// process of this machine.
type engine struct {
	t       *testing.T
	socket  string
	root    string // containers by name, each with its files
	machine string // as uname has it

	mu    sync.Mutex
	ends  map[string]int // exit codes of commands by id
	specs map[string]*exec.Cmd
	spoil func(*tar.Header, []byte) []byte // changes files that are uploaded
}

func startEngine(t *testing.T) *engine {
	t.Helper()
	e := &engine{t: t, socket: filepath.Join(t.TempDir(), "s"), root: t.TempDir(), machine: runtime.GOARCH, ends: map[string]int{}, specs: map[string]*exec.Cmd{}}
	l, err := net.Listen("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(docker.Info{OSType: "linux", Architecture: e.machine})
	})
	mux.HandleFunc("PUT /containers/{name}/archive", e.unpack)
	mux.HandleFunc("POST /containers/{name}/exec", func(w http.ResponseWriter, r *http.Request) {
		root := filepath.Join(e.root, r.PathValue("name"))
		if _, err := os.Stat(root); err != nil {
			http.Error(w, `{"message":"No such container"}`, 404)
			return
		}
		var in struct{ Cmd []string }
		json.NewDecoder(r.Body).Decode(&in)
		cmd := exec.Command(filepath.Join(root, in.Cmd[0]), in.Cmd[1:]...)
		cmd.Env = []string{"HOME=" + filepath.Join(root, "home"), "IMAGE=says", "PATH=" + os.Getenv("PATH")}
		e.mu.Lock()
		defer e.mu.Unlock()
		id := fmt.Sprint("e", len(e.specs))
		e.specs[id] = cmd
		json.NewEncoder(w).Encode(map[string]string{"Id": id})
	})
	mux.HandleFunc("POST /exec/{id}/start", e.start)
	mux.HandleFunc("GET /exec/{id}/json", func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		json.NewEncoder(w).Encode(map[string]int{"ExitCode": e.ends[r.PathValue("id")]})
	})
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return e
}

func (e *engine) unpack(w http.ResponseWriter, r *http.Request) {
	root := filepath.Join(e.root, r.PathValue("name"))
	if _, err := os.Stat(root); err != nil {
		http.Error(w, `{"message":"No such container"}`, 404)
		return
	}
	for tr := tar.NewReader(r.Body); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return
		}
		var b []byte
		if err == nil {
			b, err = io.ReadAll(tr)
		}
		if err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
		e.mu.Lock()
		if e.spoil != nil {
			b = e.spoil(h, b)
		}
		e.mu.Unlock()
		path := filepath.Join(root, h.Name)
		// A process that is forked now would hold the program open for writing.
		syscall.ForkLock.RLock()
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.WriteFile(path, b, h.FileInfo().Mode()))
		syscall.ForkLock.RUnlock()
		if err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
	}
}

// start runs a command; its streams travel in frames.
func (e *engine) start(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	id := r.PathValue("id")
	e.mu.Lock()
	cmd := e.specs[id]
	e.mu.Unlock()
	var mu sync.Mutex
	cmd.Stdin, cmd.Stdout, cmd.Stderr = rw.Reader, frames{&mu, conn, 1}, frames{&mu, conn, 2}
	code := 0
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(cmd.Stderr, err)
		if code = cmd.ProcessState.ExitCode(); code < 1 {
			code = 127
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends[id] = code
}

type frames struct {
	mu     *sync.Mutex
	w      io.Writer
	stream byte
}

func (f frames) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(p)
	head := []byte{f.stream, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	if _, err := f.w.Write(append(head, p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// containers is a cluster of n containers.
func (e *engine) containers(n int) *state.Cluster {
	c := newCluster(e.t, "docker", n)
	for i := range c.Nodes {
		name := fmt.Sprint("box", i)
		c.Nodes[i].Reach.Host = name
		home := filepath.Join(e.root, name, "home")
		if err := os.MkdirAll(home, 0o755); err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { endAgent(home) })
	}
	return c
}

func (e *engine) connector() *Connector {
	return connectorOf(e.t, func(o *Options) { o.Docker = docker.NewEngine(e.socket) })
}

// program is where the agent's program is in a container.
func (e *engine) program(name string) string {
	return filepath.Join(e.root, name, inContainer, buildid.ID(), "sky")
}

func TestAgentsAreBroughtIntoContainers(t *testing.T) {
	e := startEngine(t)
	c := e.containers(2)
	r := e.connector()
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	first := agent(t, r, c, 0)
	if first.Home != filepath.Join(e.root, "box0", "home") || agent(t, r, c, 1).PID == first.PID {
		t.Errorf("%+v", first)
	}
	sent, err := os.Stat(e.program("box0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Ensure(t.Context(), c); err != nil || agent(t, r, c, 0).PID != first.PID {
		t.Errorf("one that runs was started anew: %v", err)
	}

	// One that died is started again, and its program is not sent again.
	endAgent(first.Home)
	if err := e.connector().Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if agent(t, r, c, 0).PID == first.PID {
		t.Error("the dead one answers")
	}
	if st, err := os.Stat(e.program("box0")); err != nil || !os.SameFile(st, sent) {
		t.Errorf("the program was sent again: %v", err)
	}
}

// An upload that was cut off leaves half a program under the right name.
func TestHalfAProgramInAContainerIsReplaced(t *testing.T) {
	e := startEngine(t)
	c := e.containers(1)
	half := e.program("box0")
	if err := errors.Join(os.MkdirAll(filepath.Dir(half), 0o755), os.WriteFile(half, []byte("\x7fELF"), 0o755)); err != nil {
		t.Fatal(err)
	}
	r := e.connector()
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	agent(t, r, c, 0)
}

func TestWhatCanBeWrongWithAContainer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		wrong func(*engine, *state.Cluster)
		says  string
	}{
		{"no engine", func(e *engine, _ *state.Cluster) { os.Remove(e.socket) }, "asking the container engine: "},
		{"another processor", func(e *engine, _ *state.Cluster) { e.machine = "riscv64" }, "this one is riscv64"},
		{"it is gone", func(e *engine, _ *state.Cluster) { os.RemoveAll(e.root) }, "No such container"},
		{"damage on the way", func(e *engine, _ *state.Cluster) {
			e.spoil = func(_ *tar.Header, b []byte) []byte { return b[:len(b)/2] }
		}, "bringing the agent into the container: what arrived there does not run or is not what was sent"},
		{"another program", func(e *engine, _ *state.Cluster) {
			e.spoil = func(*tar.Header, []byte) []byte { return []byte("#!/bin/sh\necho 0123\n") }
		}, "what arrived there does not run or is not what was sent"},
		{"an agent that cannot listen", func(_ *engine, c *state.Cluster) { c.Nodes[0].InternalIP = "192.0.2.1" }, "it ended at once"},
		{"damaged certificates", func(_ *engine, c *state.Cluster) { c.Certs = state.Seal([]byte("x")) }, "certificate bundle is damaged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := startEngine(t)
			c := e.containers(1)
			r := e.connector()
			tt.wrong(e, c)
			err := r.Ensure(t.Context(), c)
			var node *NodeError
			if !errors.As(err, &node) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// What the image sets is meant for the jobs.
func TestJobsInAContainerHaveTheImagesEnvironment(t *testing.T) {
	e := startEngine(t)
	c := e.containers(1)
	r := e.connector()
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", agent(t, r, c, 0).PID))
	if err != nil || !bytes.Contains(env, []byte("IMAGE=says\x00")) {
		t.Errorf("%q, %v", env, err)
	}
}
