//go:build e2e && linux

// Package e2e runs the real binary as a user does: a home folder of its own, a
// real API server, real agents, real processes.
//
//	go test -tags e2e ./test/e2e
//
// Worlds know nothing of each other, and most tests wait most of the time: they run
// at the same time, those apart that share a database server and restart it.
package e2e

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
	"github.com/skypilot-go/sky/test/harness/served"
)

// binary is sky as it is released, with an agent for nodes.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == tunnelTo {
		os.Exit(tunnel(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == programOfAService {
		os.Exit(served.Run(os.Args[2]))
	}
	harness.Main(m, func() { binary = harness.Sky() })
}

// world is a [harness.World], one user's machine: home folder, server, clusters.
type world struct {
	t    testing.TB
	home string
	port int
	env  []string
}

// newWorld makes a world and, when the test ends, checks that taking it down
// leaves neither a process nor a node's folder.
func newWorld(t testing.TB) *world {
	t.Helper()
	return of(harness.New(t))
}

func of(w *harness.World) *world { return &world{w.T, w.Home, w.Port, w.Env} }

func (w *world) of() *harness.World {
	return &harness.World{T: w.t, Home: w.home, Port: w.port, Env: w.env}
}

func (w *world) folders() []string                { return w.of().Folders() }
func (w *world) processes() map[int]string        { return w.of().Processes() }
func (w *world) command(args ...string) *exec.Cmd { return w.of().Command(args...) }
func (w *world) serverPID() int                   { return w.of().ServerPID() }
func (w *world) killServer()                      { w.of().KillServer() }
func (w *world) agents() []int                    { return w.of().Agents() }
func (w *world) with(env ...string) *world        { return of(w.of().With(env...)) }
func tailOf(path string, n int) string            { return harness.TailOf(path, n) }

func (w *world) run(args ...string) (string, int) {
	w.t.Helper()
	return w.of().Run(args...)
}

func (w *world) sky(args ...string) string {
	w.t.Helper()
	return w.of().Sky(args...)
}

func (w *world) fails(code int, says []string, args ...string) string {
	w.t.Helper()
	return w.of().Fails(code, says, args...)
}

func (w *world) stdout(args ...string) string {
	w.t.Helper()
	return w.of().Stdout(args...)
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	return w.of().Write(name, text)
}

func (w *world) node(cluster string, rank int) string {
	w.t.Helper()
	return w.of().Node(cluster, rank)
}

func (w *world) status(cluster string) string {
	w.t.Helper()
	return w.of().Status(cluster)
}

func (w *world) requestsOf(name string) map[string]string {
	w.t.Helper()
	return w.of().Requests(name)
}

func (w *world) preempt(cluster string) {
	w.t.Helper()
	if !w.of().Preempt(cluster) {
		w.t.Fatalf("no machine of %s", cluster)
	}
}

func wants(t testing.TB, out string, texts ...string) {
	t.Helper()
	harness.Wants(t, out, texts...)
}

func eventually(t testing.TB, what string, limit time.Duration, f func() bool) {
	t.Helper()
	harness.Eventually(t, what, limit, f)
}
