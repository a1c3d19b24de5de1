//go:build e2e && linux

// Package e2e runs the real binary as a user does: a home folder of its own, a
// real API server, real agents, real processes.
//
//	go test -tags e2e ./test/e2e
//
// Workstations know nothing of each other, and most tests wait most of the time: they run
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

// workstation is a [harness.Workstation], one user's machine: home folder, server, clusters.
type workstation struct {
	t    testing.TB
	home string
	port int
	env  []string
}

// newWorkstation makes a workstation and, when the test ends, checks that taking it down
// leaves neither a process nor a node's folder.
func newWorkstation(t testing.TB) *workstation {
	t.Helper()
	return of(harness.New(t))
}

func of(w *harness.Workstation) *workstation { return &workstation{w.T, w.Home, w.Port, w.Env} }

func (w *workstation) of() *harness.Workstation {
	return &harness.Workstation{T: w.t, Home: w.home, Port: w.port, Env: w.env}
}

func (w *workstation) folders() []string                { return w.of().Folders() }
func (w *workstation) processes() map[int]string        { return w.of().Processes() }
func (w *workstation) command(args ...string) *exec.Cmd { return w.of().Command(args...) }
func (w *workstation) serverPID() int                   { return w.of().ServerPID() }
func (w *workstation) killServer()                      { w.of().KillServer() }
func (w *workstation) agents() []int                    { return w.of().Agents() }
func (w *workstation) with(env ...string) *workstation  { return of(w.of().With(env...)) }
func tailOf(path string, n int) string                  { return harness.TailOf(path, n) }

func (w *workstation) run(args ...string) (string, int) {
	w.t.Helper()
	return w.of().Run(args...)
}

func (w *workstation) sky(args ...string) string {
	w.t.Helper()
	return w.of().Sky(args...)
}

func (w *workstation) fails(code int, says []string, args ...string) string {
	w.t.Helper()
	return w.of().Fails(code, says, args...)
}

func (w *workstation) stdout(args ...string) string {
	w.t.Helper()
	return w.of().Stdout(args...)
}

func (w *workstation) write(name, text string) string {
	w.t.Helper()
	return w.of().Write(name, text)
}

func (w *workstation) node(cluster string, rank int) string {
	w.t.Helper()
	return w.of().Node(cluster, rank)
}

func (w *workstation) status(cluster string) string {
	w.t.Helper()
	return w.of().Status(cluster)
}

func (w *workstation) requestsOf(name string) map[string]string {
	w.t.Helper()
	return w.of().Requests(name)
}

func (w *workstation) preempt(cluster string) {
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
