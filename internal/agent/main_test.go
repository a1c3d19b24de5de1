//go:build unix

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/internal/proc"
)

// agentHome makes the test binary an agent: tests that kill one need a process
// of its own.
const agentHome = "SKY_TEST_AGENT_HOME"

// mountMain makes this binary hold the mounts of a folder; nil: not on this system.
var mountMain func(dir string) int

func TestMain(m *testing.M) {
	if mountMain != nil && len(os.Args) == 3 && os.Args[1] == "mount" {
		os.Exit(mountMain(os.Args[2]))
	}
	if home := os.Getenv(agentHome); home != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		level := slog.LevelWarn
		err := Run(ctx, Options{
			Home: home, Listen: os.Getenv("SKY_TEST_AGENT_LISTEN"), Version: "test", BuildID: "test",
			Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
			Machine: fileMachine(home), endGrace: testGrace, waitPoll: time.Second,
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		f.Value.Set("6") // agents mostly wait
	}
	goleak.VerifyTestMain(m)
}

// testGrace is what processes get between TERM and KILL in tests.
const testGrace = 500 * time.Millisecond

// hanging is how long tests wait for what comes by itself, so that one that hangs ends: on a
// busy machine some take most of a minute.
const hanging = 5 * time.Minute

// fileMachine notes what is done to the machine.
type fileMachine string

func (m fileMachine) note(what string) error {
	if why, err := os.ReadFile(filepath.Join(string(m), "stays-on")); err == nil {
		return errors.New(string(why))
	}
	f, err := os.OpenFile(filepath.Join(string(m), "machine"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %d\n", what, time.Now().UnixNano())
	return errors.Join(err, f.Close())
}

func (m fileMachine) Stop(context.Context) error      { return m.note("stop") }
func (m fileMachine) Terminate(context.Context) error { return m.note("terminate") }

// testCluster is a cluster of agents on this machine.
type testCluster struct {
	t      testing.TB
	bundle []byte
	spec   agentapi.ClusterSpec
	nodes  []*testNode
	head   *agentclient.Client
}

type testNode struct {
	t       testing.TB
	id      string
	home    string
	address string
	client  *agentclient.Client
	grace   time.Duration

	stop  func() // ends the agent and leaves its jobs
	cmd   *exec.Cmd
	extra []*os.File // that a process inherits
}

// twoCPUs is what nodes have unless a test says otherwise.
var twoCPUs = agentapi.Capacity{CPUs: 2, MemoryGiB: 8}

// newCluster starts a cluster of n agents. inProcess ones are goroutines of the
// test; others can be killed. grace, if given, is what processes in the former get
// between TERM and KILL in place of testGrace.
func newCluster(t testing.TB, n int, capacity agentapi.Capacity, inProcess bool, grace ...time.Duration) *testCluster {
	t.Helper()
	bundle, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	c := &testCluster{t: t, bundle: bundle}
	hash := strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())
	c.spec = agentapi.ClusterSpec{
		Name: "c1", NameOnCloud: "c1-0000", Hash: fmt.Sprintf("%.25s-%d", hash, time.Now().UnixNano()%1e9), Epoch: 1,
		Cloud: "local", Region: "here", Zone: "a", User: "me", Capacity: capacity,
	}
	for i := range n {
		node := c.addNode(i)
		for _, g := range grace {
			node.grace = g
		}
		c.nodes = append(c.nodes, node)
		c.spec.Nodes = append(c.spec.Nodes, agentapi.Node{ID: node.id, IP: fmt.Sprintf("10.0.0.%d", i), Address: node.address})
	}
	for _, node := range c.nodes {
		if inProcess {
			node.runHere()
		} else {
			node.spawn()
		}
	}
	t.Cleanup(c.clear)
	c.configure()
	c.head = c.nodes[0].client
	return c
}

func (c *testCluster) addNode(i int) *testNode {
	c.t.Helper()
	node := &testNode{t: c.t, grace: testGrace, id: fmt.Sprintf("n%d", i), home: c.t.TempDir(), address: fmt.Sprint("127.0.0.1:", porttest.Free(c.t))}
	files, err := pki.IssueNode(c.bundle, node.id)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := files.Write(filepath.Join(node.home, ".sky", "agent")); err != nil {
		c.t.Fatal(err)
	}
	tlsc, err := pki.ClientConfig(c.bundle)
	if err != nil {
		c.t.Fatal(err)
	}
	node.client = agentclient.New(node.address, tlsc, nil)
	return node
}

func (n *testNode) runHere() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	o := Options{Home: n.home, Listen: n.address, Version: "test", BuildID: "test", Machine: fileMachine(n.home), endGrace: n.grace, waitPoll: time.Second, mountsGone: 2 * time.Second, noticeEvery: 20 * time.Millisecond, endingDir: filepath.Join(n.home, "orchestrator")}
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	go func() { done <- Run(ctx, o) }()
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("agent: %v", err)
		}
		done <- nil
	}
	n.awaitUp(func() error {
		select {
		case err := <-done:
			return fmt.Errorf("agent ended: %v", err)
		default:
			return nil
		}
	})
}

// spawn starts the agent as a process.
func (n *testNode) spawn() {
	n.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), agentHome+"="+n.home, "SKY_TEST_AGENT_LISTEN="+n.address)
	out, err := os.OpenFile(filepath.Join(n.home, "agent.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, n.extra
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.cmd = cmd
	n.stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	n.awaitUp(nil)
}

// kill ends the agent as a crash would.
func (n *testNode) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

func (n *testNode) awaitUp(check func() error) {
	n.t.Helper()
	var last error
	for end := time.Now().Add(hanging); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		_, last = n.client.Info(context.Background())
		if last == nil {
			return
		}
		if check != nil {
			if err := check(); err != nil {
				n.t.Fatal(err)
			}
		}
	}
	log, _ := os.ReadFile(filepath.Join(n.home, "agent.log"))
	n.t.Fatalf("agent did not come up: %v\n%s", last, log)
}

func (c *testCluster) configure() {
	c.t.Helper()
	for i, n := range c.nodes {
		spec := c.spec
		spec.Self = i
		if _, err := n.client.Configure(context.Background(), spec); err != nil {
			c.t.Fatalf("configuring node %d: %v", i, err)
		}
	}
}

// clear ends agents and whatever jobs a failed test left behind.
func (c *testCluster) clear() {
	for _, n := range c.nodes {
		n.stop()
		n.client.Close()
		if c.t.Failed() {
			if log, _ := os.ReadFile(filepath.Join(n.home, "agent.log")); len(log) > 0 {
				c.t.Logf("agent of %s:\n%s", n.address, log)
			}
		}
		dirs, _ := os.ReadDir(filepath.Join(n.home, ".sky", "agent", "ranks"))
		for _, d := range dirs {
			ctx, cancel := context.WithTimeout(context.Background(), hanging)
			_ = proc.End(ctx, func() []int { return proc.Marked(markerEnv, d.Name()) }, 0)
			cancel()
		}
	}
}

// jobCounter makes keys.
var jobCounter atomic.Int64

// submit queues a job with a new key and returns its id.
func (c *testCluster) submit(spec agentapi.JobSpec) int {
	c.t.Helper()
	resp, err := c.head.Submit(context.Background(), agentapi.SubmitRequest{Key: fmt.Sprintf("key-%d", jobCounter.Add(1)), Epoch: c.spec.Epoch, Spec: spec})
	if err != nil {
		c.t.Fatalf("submit: %v", err)
	}
	return resp.JobID
}

func (c *testCluster) job(id int) *agentapi.Job {
	c.t.Helper()
	job, err := c.head.Job(context.Background(), id)
	if err != nil {
		c.t.Fatalf("job %d: %v", id, err)
	}
	return job
}

// await waits until a job has a status that ok accepts.
func (c *testCluster) await(id int, what string, ok func(*agentapi.Job) bool) *agentapi.Job {
	c.t.Helper()
	var job *agentapi.Job
	for end := time.Now().Add(hanging); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if job, err = c.head.Job(context.Background(), id); err == nil && ok(job) {
			return job
		}
	}
	c.t.Fatalf("job %d is not %s within 30 s: %+v\n%s", id, what, job, c.logNow(id))
	return nil
}

func (c *testCluster) awaitStatus(id int, s api.JobStatus) *agentapi.Job {
	c.t.Helper()
	return c.await(id, string(s), func(j *agentapi.Job) bool { return j.Status == s || j.Status.Terminal() })
}

func (c *testCluster) awaitEnd(id int) *agentapi.Job {
	c.t.Helper()
	return c.await(id, "ended", func(j *agentapi.Job) bool { return j.Status.Terminal() })
}

// follow reads a job's log until the agent says that it is complete.
func (c *testCluster) follow(id int) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hanging)
	defer cancel()
	rc, _, err := c.head.Log(ctx, id, agentclient.LogOptions{Follow: true})
	if err != nil {
		c.t.Fatalf("log of job %d: %v", id, err)
	}
	defer rc.Close()
	data, err := io.ReadAll(rc)
	if err != nil {
		c.t.Fatalf("following job %d: %v\n%s", id, err, data)
	}
	return string(data)
}

func (c *testCluster) logNow(id int) string {
	rc, _, err := c.head.Log(context.Background(), id, agentclient.LogOptions{})
	if err != nil {
		return err.Error()
	}
	defer rc.Close()
	data, _ := io.ReadAll(rc)
	return string(data)
}

// output is the job's own lines in a log, without prefixes.
func output(log string) []string {
	var lines []string
	sc := bufio.NewScanner(strings.NewReader(log))
	sc.Buffer(nil, 1<<30)
	for sc.Scan() {
		if _, rest, ok := strings.Cut(sc.Text(), ") "); ok && strings.HasPrefix(sc.Text(), "(") {
			lines = append(lines, rest)
		}
	}
	return lines
}

func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
