//go:build linux

package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
	"github.com/skypilot-go/sky/internal/state"
)

// pods are an API server that knows one thing, how to run commands in pods. A pod
// is a folder: a command runs as a process of this machine that finds there what
// belongs into a pod's folder for agents.
type pods struct {
	t    *testing.T
	url  string
	root string // pods by name

	mu     sync.Mutex
	path   string                                // PATH of the pods' image
	before func(w http.ResponseWriter) (ok bool) // may answer instead
}

func startPods(t *testing.T) *pods {
	t.Helper()
	p := &pods{t: t, root: t.TempDir(), path: os.Getenv("PATH")}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/namespaces/team/pods/{name}/exec", p.exec)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"pods: %s","code":%d}`, reason, reason, code)
}

// The streams of a command: each message begins with one of them.
const (
	streamIn, streamOut, streamErr, streamEnd, streamClose = 0, 1, 2, 3, 255
)

func (p *pods) exec(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	before, path := p.before, p.path
	p.mu.Unlock()
	if before != nil && !before(w) {
		return
	}
	root := filepath.Join(p.root, r.PathValue("name"))
	if _, err := os.Stat(root); err != nil {
		refuse(w, 404, "NotFound")
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"v5.channel.k8s.io"}})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ws.SetReadLimit(-1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var command []string
	for _, word := range r.URL.Query()["command"] {
		command = append(command, strings.ReplaceAll(word, kubernetes.AgentDir, root+kubernetes.AgentDir))
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = []string{"HOME=" + filepath.Join(root, "home"), "PATH=" + path}
	var mu sync.Mutex
	cmd.Stdout, cmd.Stderr = channel{ctx, &mu, ws, streamOut}, channel{ctx, &mu, ws, streamErr}
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	if r.URL.Query().Get("stdin") == "" {
		in.Close()
	}
	go func() {
		defer cancel() // the other end is gone
		for {
			_, b, err := ws.Read(ctx)
			switch {
			case err != nil:
				return
			case b[0] == streamClose:
				in.Close()
			case b[0] == streamIn:
				in.Write(b[1:])
			}
		}
	}()
	end := `{"status":"Success"}`
	if err := cmd.Run(); err != nil {
		end = fmt.Sprintf(`{"status":"Failure","reason":"NonZeroExitCode","message":"it failed","details":{"causes":[{"reason":"ExitCode","message":"%d"}]}}`, cmd.ProcessState.ExitCode())
	}
	channel{ctx, &mu, ws, streamEnd}.Write([]byte(end))
	ws.Close(websocket.StatusNormalClosure, "")
}

type channel struct {
	ctx    context.Context
	mu     *sync.Mutex
	ws     *websocket.Conn
	stream byte
}

func (c channel) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(p), c.ws.Write(c.ctx, websocket.MessageBinary, append([]byte{c.stream}, p...))
}

// cluster is one of n pods.
func (p *pods) cluster(n int) *state.Cluster {
	c := newCluster(p.t, "kubernetes", n)
	for i := range c.Nodes {
		name := fmt.Sprint("pod", i)
		c.Nodes[i].Reach.Host = "here/team/" + name
		home := filepath.Join(p.root, name, "home")
		if err := os.MkdirAll(home, 0o755); err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { endAgent(home) })
	}
	return c
}

func (p *pods) connector() *Connector {
	home := p.t.TempDir()
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"here",
"clusters":[{"name":"k","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}],
"contexts":[{"name":"here","context":{"cluster":"k","user":"u"}}]}`, p.url)
	file := filepath.Join(home, "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.t.Setenv("KUBECONFIG", file)
	r := connectorOf(p.t, func(o *Options) { o.Kubernetes = kubernetes.NewContexts(home) })
	p.t.Cleanup(func() { r.Forget("hash") })
	return r
}

// program is where the agent's program is in a pod.
func (p *pods) program(name string) string {
	return filepath.Join(p.root, name, kubernetes.AgentDir, buildid.ID(), "sky")
}

// image gives the pods an image with these tools alone, and a few of its own.
func (p *pods) image(own map[string]string, tools ...string) {
	p.t.Helper()
	p.path = p.t.TempDir()
	for _, tool := range tools {
		link(p.t, p.path, tool)
	}
	for name, text := range own {
		if err := os.WriteFile(filepath.Join(p.path, name), []byte(text), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
}

func link(t *testing.T, dir, tool string) {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err == nil {
		err = os.Symlink(path, filepath.Join(dir, tool))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAgentsAreBroughtIntoPods(t *testing.T) {
	p := startPods(t)
	c := p.cluster(2)
	r := p.connector()
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	first := agent(t, r, c, 0)
	if first.Home != filepath.Join(p.root, "pod0", "home") || agent(t, r, c, 1).PID == first.PID {
		t.Errorf("%+v", first)
	}
	sent, err := os.Stat(p.program("pod0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Ensure(t.Context(), c); err != nil || agent(t, r, c, 0).PID != first.PID {
		t.Errorf("one that runs was started anew: %v", err)
	}

	// One that died is started again, and its program is not sent again.
	endAgent(first.Home)
	r = p.connector()
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if agent(t, r, c, 0).PID == first.PID {
		t.Error("the dead one answers")
	}
	if st, err := os.Stat(p.program("pod0")); err != nil || !os.SameFile(st, sent) {
		t.Errorf("the program was sent again: %v", err)
	}
}

func TestPodsWithoutToolsToUnpack(t *testing.T) {
	p := startPods(t)
	p.image(nil, "cat", "chmod", "mkdir", "mv", "rm", "uname")
	c := p.cluster(1)
	r := p.connector()
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	agent(t, r, c, 0)
}

// The pod's shell and tools are beside the agent's program, where nobody looks for
// them.
func TestPodsWhoseImageHasNoToolsAtAll(t *testing.T) {
	p := startPods(t)
	p.path = ""
	c := p.cluster(1)
	tools := kubernetes.AgentDir + "/bin"
	dir := filepath.Join(p.root, "pod0", tools)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"sh", "cat", "chmod", "gzip", "mkdir", "mv", "rm", "uname"} {
		link(t, dir, tool)
	}
	c.Nodes[0].Reach.Shell = tools + "/sh"
	r := p.connector()
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	agent(t, r, c, 0)
}

func TestAnAPIServerThatRefusesForAMomentIsAskedAgain(t *testing.T) {
	p := startPods(t)
	c := p.cluster(1)
	asked := 0
	p.before = func(w http.ResponseWriter) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if asked++; asked <= 4 {
			refuse(w, 500, "InternalError")
			return false
		}
		return true
	}
	if err := p.connector().Ensure(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestAPodThatIsGoneIsNotAskedAgain(t *testing.T) {
	p := startPods(t)
	c := p.cluster(1)
	if err := os.RemoveAll(p.root); err != nil {
		t.Fatal(err)
	}
	asked := 0
	p.before = func(http.ResponseWriter) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		asked++
		return true
	}
	err := p.connector().Ensure(t.Context(), c)
	var node *NodeError
	if !errors.As(err, &node) || !strings.Contains(err.Error(), "looking at pod n0: ") || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("%v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// A hostile image prints for ever.
func TestTheOutputOfAPodIsBounded(t *testing.T) {
	p := startPods(t)
	c := p.cluster(1)
	r := p.connector()
	_, err := r.o.Kubernetes.Exec(t.Context(), c.Nodes[0].Reach.Host, []string{"/bin/sh", "-c", "head -c 5000000 /dev/zero"}, nil)
	if err == nil || !strings.Contains(err.Error(), "longer than 4 MiB") {
		t.Errorf("%v", err)
	}
}

func TestWhatCanBeWrongWithAPod(t *testing.T) {
	tools := []string{"cat", "chmod", "mkdir", "mv", "rm"}
	for _, tt := range []struct {
		name  string
		wrong func(*pods, *state.Cluster)
		says  string
	}{
		{"no shell", func(p *pods, c *state.Cluster) { c.Nodes[0].Reach.Shell = "/bin/false" }, "its shell does not say what machine it runs on"},
		{"another processor", func(p *pods, _ *state.Cluster) {
			p.image(map[string]string{"uname": "#!/bin/sh\n[ $1 = -m ] && echo riscv64 || echo Linux\n"}, tools...)
		}, "this one is riscv64"},
		{"damage on the way", func(p *pods, _ *state.Cluster) {
			p.image(map[string]string{"gzip": "#!/bin/sh\ncat >/dev/null; echo 'unexpected end of file' >&2; exit 1\n"}, append(tools, "uname")...)
		}, "bringing the agent into pod n0: exit code 1: unexpected end of file"},
		{"another program", func(p *pods, _ *state.Cluster) {
			p.image(map[string]string{"gzip": "#!/bin/sh\ncat >/dev/null; echo '#!/bin/sh'; echo 'echo 0123'\n"}, append(tools, "uname")...)
		}, "what arrived there is not what was sent"},
		{"an agent that cannot listen", func(_ *pods, c *state.Cluster) { c.Nodes[0].InternalIP = "192.0.2.1" }, "it ended at once"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPods(t)
			c := p.cluster(1)
			r := p.connector()
			tt.wrong(p, c)
			err := r.Ensure(t.Context(), c)
			var node *NodeError
			if !errors.As(err, &node) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A server that began to bring it there may have died.
func TestHalfAProgramInAPodIsReplaced(t *testing.T) {
	p := startPods(t)
	c := p.cluster(1)
	half := p.program("pod0")
	if err := errors.Join(os.MkdirAll(filepath.Dir(half), 0o755), os.WriteFile(half, []byte("\x7fELF"), 0o755)); err != nil {
		t.Fatal(err)
	}
	r := p.connector()
	if err := r.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	agent(t, r, c, 0)
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(half), ".up-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestNobodyWaitsForMoreThanAFewUploadsAtOnce(t *testing.T) {
	p := startPods(t)
	c := p.cluster(1)
	r := p.connector()
	for range uploadsAtOnce {
		r.uploads <- struct{}{}
	}
	busy := errors.New("the request was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(busy)
	err := (*kubernetesTransport)(r).upload(ctx, c.Nodes[0], "/opt/sky/x/sky", &binary{}, podProbe{})
	if !errors.Is(err, busy) {
		t.Errorf("%v", err)
	}
}
