//go:build unix

package agent

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/proc"
)

func TestOneJob(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{Name: "hello", Run: "echo hi; echo there >&2"})
	log := c.follow(id)
	if got := output(log); !slices.Equal(got, []string{"hi", "there"}) {
		t.Errorf("output %q of log:\n%s", got, log)
	}
	job := c.awaitEnd(id)
	if job.Status != api.JobSucceeded || !slices.Equal(job.ExitCodes, []int{0}) {
		t.Errorf("job: %s", mustJSON(job))
	}
	if job.StartedAt < job.SubmittedAt || job.EndedAt < job.StartedAt {
		t.Errorf("times: %s", mustJSON(job))
	}
	if !strings.Contains(log, "Waiting for task resources on 1 node.") {
		t.Errorf("log:\n%s", log)
	}
}

// endings are jobs on a cluster of two nodes and how they must end.
var endings = []struct {
	name   string
	spec   agentapi.JobSpec
	status api.JobStatus
	codes  []int
	log    string // a part of the log
}{
	{"all zero", agentapi.JobSpec{NumNodes: 2, Run: "echo ok"}, api.JobSucceeded, []int{0, 0}, "(worker1, rank=1, pid="},
	{"setup only", agentapi.JobSpec{NumNodes: 2, Setup: "echo preparing"}, api.JobSucceeded, nil, ", ip=10.0.0.1) preparing"},
	{"nothing to do", agentapi.JobSpec{}, api.JobSucceeded, nil, ""},
	{"exit code", agentapi.JobSpec{Run: "exit 3"}, api.JobFailed, []int{3}, "Return codes by rank: [3]"},
	{"a rank fails, the other is ended", agentapi.JobSpec{NumNodes: 2, Run: `[ $SKYPILOT_NODE_RANK = 1 ] && exit 7; sleep 300`}, api.JobFailed, []int{137, 7}, "Return codes by rank: [137, 7]"},
	{"setup fails on one node", agentapi.JobSpec{NumNodes: 2, Setup: `[ $SKYPILOT_SETUP_NODE_RANK = 0 ] || exit 5; sleep 300`, Run: "echo never"}, api.JobFailedSetup, []int{137, 5}, "Setup of job"},
	{"segmentation fault", agentapi.JobSpec{Run: "kill -SEGV $$"}, api.JobFailed, []int{139}, "segmentation fault"},
	{"no such command", agentapi.JobSpec{Run: "no-such-command"}, api.JobFailed, []int{127}, "line 1: no-such-command: command not found"},
	{"ends its own group", agentapi.JobSpec{Run: "trap 'exit 4' TERM; kill 0; sleep 1"}, api.JobFailed, []int{4}, ""},
	{"workdir is missing", agentapi.JobSpec{Run: "true", Workdir: "nowhere"}, api.JobFailed, []int{126}, "nowhere does not exist on this node"},
	{"environment is too long", agentapi.JobSpec{Run: "true", Envs: map[string]string{"BIG": strings.Repeat("x", 200<<10)}}, api.JobFailed, []int{126}, "put big values into a file"},
	{"setup, then run", agentapi.JobSpec{Setup: "echo a >~/made", Run: "cat ~/made"}, api.JobSucceeded, []int{0}, ") a\n"},
	{"name of the task", agentapi.JobSpec{TaskName: "train", Run: "echo x"}, api.JobSucceeded, []int{0}, "(train, pid="},
	{"last line without an end", agentapi.JobSpec{Run: "printf abc; exit 1"}, api.JobFailed, []int{1}, ") abc\nERROR: Job"},
}

func TestEndings(t *testing.T) {
	c := newCluster(t, 2, twoCPUs, true)
	for _, test := range endings {
		t.Run(test.name, func(t *testing.T) {
			id := c.submit(test.spec)
			log := c.follow(id)
			job := c.job(id)
			if job.Status != test.status || !slices.Equal(job.ExitCodes, test.codes) {
				t.Errorf("job: %s", mustJSON(job))
			}
			if job.EndedAt == 0 {
				t.Error("no time of its end")
			}
			if !strings.Contains(log, test.log) {
				t.Errorf("no %q in the log:\n%s", test.log, log)
			}
			if strings.Contains(log, "job control") || strings.Contains(log, "terminal process group") {
				t.Errorf("the shell complains:\n%s", log)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	capacity := twoCPUs
	capacity.Accelerators = map[string]float64{"A100": 4}
	c := newCluster(t, 2, capacity, true)
	show := `for v in ${!SKYPILOT_@} CUDA_VISIBLE_DEVICES PYTHONUNBUFFERED HOME SKY_CLUSTER_NAME A B; do printf '%s=%s\n' "$v" "${!v//$'\n'/,}"; done`
	id := c.submit(agentapi.JobSpec{
		Name: "e", User: "ann", NumNodes: 2, Setup: "echo in setup; " + show, Run: "echo in run; " + show,
		Envs: map[string]string{"A": "a b\"'$x", "SKYPILOT_NODE_RANK": "user's"}, Secrets: map[string]string{"B": "hush"},
		Accelerators: map[string]float64{"a100": 2},
	})
	log := c.follow(id)
	job := c.job(id)
	want := func(prefix string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !strings.Contains(log, prefix) || !containsLine(log, prefix, line) {
				t.Errorf("no %q of %q", line, prefix)
			}
		}
	}
	want("(worker1, rank=1,", "SKYPILOT_NODE_RANK=1", "SKYPILOT_NUM_NODES=2", "SKYPILOT_NODE_IPS=10.0.0.0,10.0.0.1",
		"SKYPILOT_NUM_GPUS_PER_NODE=2", "SKYPILOT_TASK_ID="+job.TaskID, fmt.Sprintf("SKYPILOT_INTERNAL_JOB_ID=%d", id),
		`SKYPILOT_CLUSTER_INFO={"cluster_name":"c1","cloud":"local","region":"here","zone":"a"}`, "SKYPILOT_USER=ann",
		"CUDA_VISIBLE_DEVICES=0,1", "PYTHONUNBUFFERED=1", "A=a b\"'$x", "B=hush", "HOME="+c.nodes[1].home, "SKY_CLUSTER_NAME=c1-0000")
	want("(head, rank=0,", "SKYPILOT_NODE_RANK=0")
	want("(setup pid=", "SKYPILOT_SETUP_NODE_RANK=0", "SKYPILOT_SETUP_NODE_RANK=1", "SKYPILOT_SETUP_NODE_IPS=10.0.0.0,10.0.0.1",
		"SKYPILOT_SETUP_NUM_GPUS_PER_NODE=2", "SKYPILOT_NUM_NODES=2", "SKYPILOT_TASK_ID="+job.TaskID, "B=hush")
	if t.Failed() {
		t.Log(log)
	}
}

func containsLine(log, prefix, line string) bool {
	for l := range strings.Lines(log) {
		if strings.HasPrefix(l, prefix) && strings.HasSuffix(l, ") "+line+"\n") {
			return true
		}
	}
	return false
}

// What people put into .bashrc must be there although no shell is interactive.
func TestBashrc(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	rc := "case $- in *i*) ;; *) return;; esac\n[ -z \"$PS1\" ] && return\necho noise; echo noise >&2\nexport FROM_RC=yes\ndeclare -x ALSO=yes\nf() { echo f-$1; }\ncd /\nexec true\nexit 3\nfalse\n"
	if err := os.WriteFile(filepath.Join(c.nodes[0].home, ".bashrc"), []byte(rc), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.nodes[0].home, "sky_workdir"), 0o700); err != nil {
		t.Fatal(err)
	}
	id := c.submit(agentapi.JobSpec{Run: "echo $FROM_RC $ALSO $PWD; f x; type -t exec; bash -c 'echo child=$BASH_ENV'; echo $0 | wc -l"})
	log := c.follow(id)
	want := []string{"yes yes " + c.nodes[0].home + "/sky_workdir", "f-x", "builtin", "child=", "1"}
	if got := output(log); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q\n%s", got, want, log)
	}
}

func TestCancelEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, twoCPUs, true)
	// Daemons in other sessions, one that ignores TERM, on both nodes.
	id := c.submit(agentapi.JobSpec{NumNodes: 2, Run: `
(setsid bash -c 'sleep 1000; :' &)
(setsid bash -c 'trap "" TERM HUP INT; while :; do sleep 1; done' &) &
nohup sleep 1001 >/dev/null 2>&1 &
(setsid env -i bash -c 'trap "" TERM; echo $$ >>'$HOME'/away; sleep 1003; :' &) # found by its cgroup
sleep 0.2
echo ready
sleep 1002`})
	c.await(id, "ready", func(*agentapi.Job) bool { return strings.Count(c.logNow(id), ") ready\n") == 2 })
	marked := func() (pids []int) {
		for rank := range 2 {
			pids = append(pids, proc.Marked(markerEnv, fmt.Sprintf("%s-%d-run-%d", c.spec.Hash, id, rank))...)
		}
		return pids
	}
	if n := len(marked()); n < 12 {
		t.Fatalf("only %d processes", n)
	}
	resp, err := c.head.Cancel(t.Context(), agentapi.CancelRequest{IDs: []int{id, id, 99}})
	if err != nil || !slices.Equal(resp.Cancelled, []int{id}) {
		t.Fatalf("cancelled %v, %v", resp, err)
	}
	if left := marked(); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if path, err := proc.NewCgroup("probe"); err == nil {
		proc.RemoveCgroup(path)
		for _, n := range c.nodes {
			var pid int
			if _, err := fmt.Sscan(readFile(t, n.home, "away"), &pid); err != nil || proc.Alive(pid, "") {
				t.Errorf("process %d with an environment of its own is left (%v)", pid, err)
			}
		}
	}
	if job := c.job(id); job.Status != api.JobCancelled || job.EndedAt == 0 {
		t.Errorf("job: %s", mustJSON(job))
	}
	if resp, err := c.head.Cancel(t.Context(), agentapi.CancelRequest{IDs: []int{id}}); err != nil || len(resp.Cancelled) != 0 {
		t.Errorf("again: %v, %v", resp, err)
	}
	c.follow(id) // ends
}

func TestFinishedJobLeavesNothingBehind(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{Run: "(setsid sleep 1000 >/dev/null 2>&1 &); sleep 1000 & echo done"})
	if log := c.follow(id); !strings.HasSuffix(log, "Ended 2 background processes that the job left running.\n") {
		t.Errorf("its log:\n%s", log)
	}
	if job := c.awaitEnd(id); job.Status != api.JobSucceeded {
		t.Errorf("job: %s", mustJSON(job))
	}
	if left := proc.Marked(markerEnv, fmt.Sprintf("%s-%d-run-0", c.spec.Hash, id)); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// A job with a grace time of its own ends by itself, and whoever cancelled it does
// not wait for that.
func TestACancelledJobEndsByItself(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{Run: `
trap 'echo saving; until [ -e ~/go ]; do sleep 0.05; done; echo saved; exit' TERM
echo ready
while :; do sleep 0.05; done`})
	c.await(id, "ready", func(*agentapi.Job) bool { return strings.Contains(c.logNow(id), ") ready\n") })
	resp, err := c.head.Cancel(t.Context(), agentapi.CancelRequest{IDs: []int{id}, GraceSeconds: 600})
	if err != nil || !slices.Equal(resp.Cancelled, []int{id}) {
		t.Fatalf("cancelled %v, %v", resp, err)
	}
	if job := c.job(id); job.Status != api.JobCancelled {
		t.Errorf("job: %s", mustJSON(job))
	}
	c.await(id, "saving", func(*agentapi.Job) bool { return strings.Contains(c.logNow(id), ") saving\n") })
	time.Sleep(2 * testGrace) // it would have been killed by now
	if resp, err := c.head.Cancel(t.Context(), agentapi.CancelRequest{IDs: []int{id}, GraceSeconds: 600}); err != nil || len(resp.Cancelled) != 0 {
		t.Errorf("again: %v, %v", resp, err)
	}
	if err := os.WriteFile(filepath.Join(c.nodes[0].home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if log := c.follow(id); !strings.Contains(log, ") saved\n") {
		t.Errorf("its log:\n%s", log)
	}
}

func TestCancelSelectors(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	var ids []int
	for i := range 6 {
		ids = append(ids, c.submit(agentapi.JobSpec{Run: "sleep 1000", CPUs: 1, UserHash: []string{"a", "b"}[i%2]}))
	}
	c.awaitStatus(ids[0], api.JobRunning)
	c.awaitStatus(ids[1], api.JobRunning)
	if job := c.job(ids[2]); job.Reason != "waits for 1 CPU" {
		t.Errorf("a waiting job's reason is %q", job.Reason)
	}
	for _, test := range []struct {
		name string
		req  agentapi.CancelRequest
		want []int
	}{
		{"a waiting one", agentapi.CancelRequest{IDs: []int{ids[5]}}, []int{ids[5]}},
		{"the latest running one of b", agentapi.CancelRequest{UserHash: "b"}, []int{ids[1]}},
		{"nobody's", agentapi.CancelRequest{UserHash: "x"}, []int{}},
		{"all of a", agentapi.CancelRequest{All: true, UserHash: "a"}, []int{ids[0], ids[2], ids[4]}},
		{"all", agentapi.CancelRequest{All: true}, []int{ids[3]}},
	} {
		resp, err := c.head.Cancel(t.Context(), test.req)
		if err != nil || !slices.Equal(resp.Cancelled, test.want) {
			t.Errorf("%s: %v, %v; want %v", test.name, resp, err, test.want)
		}
	}
}

func TestSubmitRefusals(t *testing.T) {
	capacity := twoCPUs
	capacity.Accelerators = map[string]float64{"A100": 2}
	c := newCluster(t, 1, capacity, true)
	for _, test := range []struct {
		name string
		req  agentapi.SubmitRequest
		code agentapi.ErrorCode
		says string
	}{
		{"no key", agentapi.SubmitRequest{Epoch: 1}, agentapi.CodeInvalid, "key"},
		{"old epoch", agentapi.SubmitRequest{Key: "x", Epoch: 0}, agentapi.CodeStaleEpoch, "epoch"},
		{"too many nodes", agentapi.SubmitRequest{Key: "x", Epoch: 1, Spec: agentapi.JobSpec{NumNodes: 2, Run: "x"}}, agentapi.CodeInvalid, "needs 2 nodes, but the cluster has 1"},
		{"too many CPUs", agentapi.SubmitRequest{Key: "x", Epoch: 1, Spec: agentapi.JobSpec{CPUs: 2.5, Run: "x"}}, agentapi.CodeInvalid, "2.5 CPUs"},
		{"too much memory", agentapi.SubmitRequest{Key: "x", Epoch: 1, Spec: agentapi.JobSpec{MemoryGiB: 9, Run: "x"}}, agentapi.CodeInvalid, "9 GiB"},
		{"too many GPUs", agentapi.SubmitRequest{Key: "x", Epoch: 1, Spec: agentapi.JobSpec{Accelerators: map[string]float64{"A100": 3}, Run: "x"}}, agentapi.CodeInvalid, "A100:3"},
		{"other GPUs", agentapi.SubmitRequest{Key: "x", Epoch: 1, Spec: agentapi.JobSpec{Accelerators: map[string]float64{"H100": 1}, Run: "x"}}, agentapi.CodeInvalid, "H100:1"},
	} {
		_, err := c.head.Submit(t.Context(), test.req)
		e, ok := errors.AsType[*agentapi.Error](err)
		if !ok || e.Code != test.code || !strings.Contains(e.Message, test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if jobs, err := c.head.Jobs(t.Context()); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

func TestSameKeyIsSameJob(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	req := agentapi.SubmitRequest{Key: "once", Epoch: 1, Spec: agentapi.JobSpec{Run: "echo x >>~/ran"}}
	first, err := c.head.Submit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	c.follow(first.JobID)
	c.nodes[0].stop()
	c.nodes[0].runHere()
	again, err := c.head.Submit(t.Context(), req)
	if err != nil || again.JobID != first.JobID || !again.Duplicate || first.Duplicate {
		t.Errorf("first %+v, again %+v, %v", first, again, err)
	}
	if ran, _ := os.ReadFile(filepath.Join(c.nodes[0].home, "ran")); string(ran) != "x\n" {
		t.Errorf("ran: %q", ran)
	}
}

func TestQueueAndLatest(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	if _, err := c.head.Job(t.Context(), 0); !isCode(err, agentapi.CodeNotFound) {
		t.Errorf("latest of none: %v", err)
	}
	a, b := c.submit(agentapi.JobSpec{Run: "true"}), c.submit(agentapi.JobSpec{Name: "we/ird na\nme", Run: "true"})
	c.follow(a)
	c.follow(b)
	jobs, err := c.head.Jobs(t.Context())
	if err != nil || len(jobs) != 2 || jobs[0].ID != b || jobs[1].ID != a || jobs[1].Name != "-" {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
	if jobs[0].LogDir != fmt.Sprintf("~/sky_logs/%d-we-ird-na-me", b) {
		t.Errorf("log dir %q", jobs[0].LogDir)
	}
	if job, err := c.head.Job(t.Context(), 0); err != nil || job.ID != b {
		t.Errorf("latest %+v, %v", job, err)
	}
	if _, err := c.head.Job(t.Context(), 77); !isCode(err, agentapi.CodeNotFound) {
		t.Errorf("unknown: %v", err)
	}
}

func isCode(err error, code agentapi.ErrorCode) bool {
	e, ok := errors.AsType[*agentapi.Error](err)
	return ok && e.Code == code
}

func TestEpochsAndRoles(t *testing.T) {
	c := newCluster(t, 2, twoCPUs, true)
	c.spec.Epoch = 5
	c.configure()
	old := c.spec
	old.Epoch = 4
	if _, err := c.head.Configure(t.Context(), old); !isCode(err, agentapi.CodeStaleEpoch) {
		t.Errorf("smaller epoch: %v", err)
	}
	before, err := c.head.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.configure() // the same again
	if after, err := c.head.Info(t.Context()); err != nil || after.IdleSince != before.IdleSince {
		t.Errorf("idle since %v, then %v (%v)", before.IdleSince, after.IdleSince, err)
	}
	if _, err := c.nodes[1].client.Jobs(t.Context()); !isCode(err, agentapi.CodeNotHead) {
		t.Errorf("jobs of a worker: %v", err)
	}
	info, err := c.nodes[1].client.Info(t.Context())
	if err != nil || info.NodeID != "n1" || info.Epoch != 5 || info.Home != c.nodes[1].home {
		t.Errorf("info %+v, %v", info, err)
	}
}

// A node may be driven by its head, and by no other node.
func TestWhoMayCall(t *testing.T) {
	c := newCluster(t, 3, twoCPUs, true)
	as := func(caller *testNode, callee *testNode) *agentclient.Client {
		_, dial, err := pki.NodeConfigs(filepath.Join(caller.home, ".sky", "agent"))
		if err != nil {
			t.Fatal(err)
		}
		return agentclient.New(callee.address, dial, nil)
	}
	start := func(cl *agentclient.Client) error {
		return cl.Call(t.Context(), pathRankPrepare, &rankSpec{Epoch: 1}, nil, "x-1-run-0")
	}
	for _, test := range []struct {
		name           string
		caller, callee int
		call           func(*agentclient.Client) error
		ok             bool
	}{
		{"the head starts a rank", 0, 1, start, true},
		{"a worker does not", 2, 1, start, false},
		{"and not on the head", 1, 0, start, false},
		{"a worker asks who is there", 2, 0, func(cl *agentclient.Client) error { _, err := cl.Info(t.Context()); return err }, true},
		{"a worker submits", 1, 0, func(cl *agentclient.Client) error {
			_, err := cl.Submit(t.Context(), agentapi.SubmitRequest{Key: "k", Epoch: 1, Spec: agentapi.JobSpec{Run: "true"}})
			return err
		}, false},
		{"a worker shuts the head down", 1, 0, func(cl *agentclient.Client) error {
			_, err := cl.Shutdown(t.Context(), agentapi.ShutdownRequest{})
			return err
		}, false},
		{"the head configures a worker", 0, 1, func(cl *agentclient.Client) error {
			_, err := cl.Configure(t.Context(), c.spec)
			return err
		}, false},
	} {
		err := test.call(as(c.nodes[test.caller], c.nodes[test.callee]))
		if test.ok != (err == nil) || err != nil && !isCode(err, agentapi.CodeInvalid) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	other, err := pki.NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	tlsc, err := pki.ClientConfig(other)
	if err != nil {
		t.Fatal(err)
	}
	_, err = agentclient.New(c.nodes[0].address, tlsc, nil).Info(t.Context())
	if _, ok := errors.AsType[*agentclient.UnreachableError](err); !ok {
		t.Errorf("a stranger: %v", err)
	}
}

// What a rank printed is in run.log byte for byte, whatever the bytes are.
func TestBinaryOutput(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	for name, run := range map[string]string{
		"random bytes":     "head -c 3000000 /dev/urandom",
		"one endless line": "head -c 20000000 /dev/zero",
		"short lines":      "yes | head -c 1000000",
		"nothing":          "true",
	} {
		t.Run(name, func(t *testing.T) {
			id := c.submit(agentapi.JobSpec{Name: "b", Run: run})
			log := c.follow(id)
			raw := readFile(t, c.nodes[0].home, "sky_logs", fmt.Sprintf("%d-b", id), "tasks", "run.log")
			_, body, _ := strings.Cut(log, "Job started.\n")
			prefix, _, _ := strings.Cut(body, ") ")
			if want := string(piece{prefix: true, back: true}.render(nil, []byte(raw), prefix+") ")); body != want {
				t.Errorf("%d bytes in the log for %d raw ones, want %d", len(body), len(raw), len(want))
			}
		})
	}
}

func TestLogFiles(t *testing.T) {
	c := newCluster(t, 2, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{Name: "many", NumNodes: 2, Setup: "echo s", Run: "echo r $SKYPILOT_NODE_RANK"})
	whole := c.follow(id)
	rc, err := c.head.LogFiles(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	got := map[string]string{}
	for tr := tar.NewReader(rc); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(data)
	}
	dir := fmt.Sprintf("%d-many/", id)
	want := map[string]string{
		dir + "run.log": whole, dir + "tasks/0-head.log": "r 0\n", dir + "tasks/1-worker1.log": "r 1\n",
		dir + "tasks/setup-head.log": "s\n", dir + "tasks/setup-worker1.log": "s\n",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLogOffsetsAndTail(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{Run: "for i in {1..2000}; do echo line $i; done; printf end"})
	whole := c.follow(id)
	read := func(o agentclient.LogOptions) (string, int64) {
		t.Helper()
		rc, start, err := c.head.Log(t.Context(), id, o)
		if err != nil {
			t.Fatal(err)
		}
		defer rc.Close()
		data, err := io.ReadAll(rc)
		if err != nil {
			t.Fatal(err)
		}
		return string(data), start
	}
	lines := strings.SplitAfter(whole, "\n")
	for _, n := range []int{1, 2, 3, 1000, len(lines) - 1, len(lines), 1e6} {
		want := strings.Join(lines[max(len(lines)-n, 0):], "")
		if got, start := read(agentclient.LogOptions{Tail: n}); got != want || int(start) != len(whole)-len(want) {
			t.Errorf("tail %d: %d bytes from %d, want %d", n, len(got), start, len(want))
		}
	}
	for _, off := range []int64{0, 1, 777, int64(len(whole)) - 1, int64(len(whole)), int64(len(whole)) + 100} {
		want := whole[min(int(off), len(whole)):]
		if got, start := read(agentclient.LogOptions{Offset: off, Follow: true}); got != want || start != min(off, int64(len(whole))) {
			t.Errorf("offset %d: %d bytes from %d", off, len(got), start)
		}
	}
}

func TestFollowSeesPartialLinesSoon(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{Run: `printf 'progress 1%%\rprogress 2%%'; while [ ! -e ~/go ]; do sleep 0.05; done; printf '\rprogress 100%%\n'`})
	c.await(id, "showing progress", func(*agentapi.Job) bool { return strings.HasSuffix(c.logNow(id), ") progress 2%") })
	if err := os.WriteFile(filepath.Join(c.nodes[0].home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := c.follow(id) // each step of the bar has the prefix, which it would overwrite otherwise
	prefix, _, _ := strings.Cut(log[strings.LastIndexByte(strings.TrimSuffix(log, "\n"), '\n')+1:], "progress")
	if want := prefix + "progress 1%\r" + prefix + "progress 2%\r" + prefix + "progress 100%\n"; prefix == "" || !strings.HasSuffix(log, want) {
		t.Errorf("log %q, want %q at its end", log, want)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true)
	running := c.submit(agentapi.JobSpec{Run: "sleep 1000"})
	c.awaitStatus(running, api.JobRunning)
	events := make(chan agentapi.Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.head.Events(ctx, func(e agentapi.Event) error {
			events <- e
			return nil
		})
	}()
	next := func() agentapi.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(time.Minute):
			t.Fatal("no event")
			return agentapi.Event{}
		}
	}
	hello := next()
	if hello.Kind != agentapi.EventHello || hello.Info == nil || len(hello.Jobs) != 1 || hello.Jobs[0].ID != running {
		t.Fatalf("hello: %s", mustJSON(hello))
	}
	id := c.submit(agentapi.JobSpec{Setup: "true", Run: "true"})
	var seen []api.JobStatus
	for len(seen) == 0 || !seen[len(seen)-1].Terminal() {
		if e := next(); e.Kind == agentapi.EventJobChanged && e.Job.ID == id {
			seen = append(seen, e.Job.Status)
		}
	}
	if want := []api.JobStatus{api.JobPending, api.JobSettingUp, api.JobRunning, api.JobSucceeded}; !slices.Equal(seen, want) {
		t.Errorf("statuses %v, want %v", seen, want)
	}
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 10}); err != nil {
		t.Fatal(err)
	}
	for e := next(); e.Kind != agentapi.EventState; e = next() {
	}
	for e := next(); e.Kind != agentapi.EventBeat; e = next() { // within 15 s
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("events ended with %v", err)
	}
}

// A job's outcome is known when its program has exited: what the program left
// behind, and does not end when asked to, is ended afterwards.
func TestAnOutcomeDoesNotWaitForWhatTheProgramLeftBehind(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 2} {
		c := newCluster(t, nodes, agentapi.Capacity{}, true, time.Hour)
		id := c.submit(agentapi.JobSpec{NumNodes: nodes, Run: `(trap "" TERM; until [ -e ~/end ]; do sleep 0.05; done) & :`})
		left := func(rank int) []int {
			return proc.Marked(markerEnv, fmt.Sprintf("%s-%d-%s-%d", c.spec.Hash, id, phaseRun, rank))
		}
		if job := c.awaitEnd(id); job.Status != api.JobSucceeded {
			t.Errorf("%d nodes: %s", nodes, job.Status)
		}
		for rank, n := range c.nodes {
			if len(left(rank)) == 0 {
				t.Errorf("%d nodes: nothing is left on node %d when the outcome is known", nodes, rank)
			}
			if err := os.WriteFile(filepath.Join(n.home, "end"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.follow(id) // ends with what was left behind
		for rank := range nodes {
			if pids := left(rank); len(pids) > 0 {
				t.Errorf("processes are left: %v", pids)
			}
		}
	}
}
