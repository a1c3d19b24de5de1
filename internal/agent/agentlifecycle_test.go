//go:build unix

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
)

// What an agent keeps of jobs, hooks and callbacks (scripts, output, secrets) is for its
// user alone.
func TestNobodyElseReadsWhatAnAgentKeeps(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, twoCPUs, true)
	home := c.nodes[0].home
	hooks := []agentapi.Hook{{Run: "echo bye", Events: []string{"stop"}}}
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: -1, Hooks: &hooks}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.head.Callback(t.Context(), "1", agentapi.CallbackRequest{Script: "echo called", Log: "cb.log", TimeoutSeconds: 30}); err != nil {
		t.Fatal(err)
	}
	id := c.submit(agentapi.JobSpec{NumNodes: 2, Setup: "echo s", Run: "echo r; sleep 300", Secrets: map[string]string{"A": "hush"}})
	c.await(id, "running with output", func(*agentapi.Job) bool { return strings.Count(c.logNow(id), ") r\n") == 2 })
	seen := map[string]bool{}
	for _, dir := range []string{home, c.nodes[1].home} {
		for _, below := range []string{".sky", "sky_logs"} {
			err := filepath.WalkDir(filepath.Join(dir, below), func(path string, e fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil // of a rank that has ended, or a node without logs
				}
				if err != nil {
					return err
				}
				st, err := e.Info()
				if err != nil {
					return nil
				}
				seen[e.Name()] = true
				if mode := st.Mode().Perm(); mode&0o077 != 0 && e.Name() != "pid" && path != filepath.Join(dir, ".sky") { // the wrapper's, in a folder of ours
					t.Errorf("%s: %v", path, mode)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range []string{"script", "exit", "jobs.db", "agent.json", "run.log", "setup-head.log", "0-head.log", "1-worker1.log", "output", "cb.log", "wrapper.sh"} {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// A rank that ended while its head's agent was away counts as it ended: with 0 the job
// goes on, else the others are ended.
func TestARankThatEndsWhileItsHeadIsAway(t *testing.T) {
	for code, want := range map[int]api.JobStatus{0: api.JobSucceeded, 3: api.JobFailed} {
		c := newCluster(t, 2, twoCPUs, true)
		away, back := filepath.Join(c.nodes[0].home, "away"), filepath.Join(c.nodes[0].home, "back")
		wait := fmt.Sprintf("while [ ! -e %s ]; do sleep 0.02; done", away)
		if code == 0 {
			wait = fmt.Sprintf("if [ $SKYPILOT_NODE_RANK = 0 ]; then %s; else while [ ! -e %s ]; do sleep 0.02; done; exit 0; fi", wait, back)
		} else {
			wait = fmt.Sprintf("if [ $SKYPILOT_NODE_RANK = 0 ]; then %s; else sleep 300; fi", wait)
		}
		id := c.submit(agentapi.JobSpec{NumNodes: 2, Run: fmt.Sprintf("echo ready; %s; touch $HOME/over; exit %d", wait, code)})
		c.await(id, "ready", func(*agentapi.Job) bool { return strings.Count(c.logNow(id), ") ready\n") == 2 })
		head := c.nodes[0]
		head.stop()
		if err := os.WriteFile(away, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			exits, _ := filepath.Glob(filepath.Join(head.home, ".sky", "agent", "ranks", "*-run-0", "exit"))
			if len(exits) == 1 {
				if b, err := os.ReadFile(exits[0]); err == nil && bytes.ContainsRune(b, '\n') {
					break
				}
			}
			if time.Now().After(end) {
				t.Fatal("the rank does not end")
			}
		}
		head.runHere()
		if code == 0 {
			c.await(id, "running", func(j *agentapi.Job) bool { return j.Status == api.JobRunning })
			if err := os.WriteFile(back, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		job := c.awaitEnd(id)
		if job.Status != want || len(job.ExitCodes) != 2 || job.ExitCodes[0] != code || (job.ExitCodes[1] == 0) != (code == 0) {
			t.Errorf("exit %d: %s", code, mustJSON(job))
		}
	}
}

// A job whose nodes cannot be made ready fails before any of it runs, and says why.
func TestAJobWhoseNodeIsRefusedForGoodDoesNotBegin(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true)
	// Somebody has ended its rank already.
	if _, err := (remotePeer{c.head}).end(t.Context(), c.spec.Hash+"-1-run-0", 0); err != nil {
		t.Fatal(err)
	}
	id := c.submit(agentapi.JobSpec{Run: "echo ran"})
	log := c.follow(id)
	job := c.awaitEnd(id)
	if job.Status != api.JobFailed || job.StartedAt != 0 || !strings.Contains(log, "Return codes by rank: [255]") || strings.Contains(log, "ran\n") || !strings.Contains(job.Reason, "rank 0 on head: ") {
		t.Errorf("%s\n%s", mustJSON(job), log)
	}
}

// What a callback cannot be run for is said, and a node that goes runs none.
func TestACallbackThatCannotRunSaysWhy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true)
	call := func(key string) error {
		_, err := c.head.Callback(t.Context(), key, agentapi.CallbackRequest{Script: "true", Log: "cb.log"})
		return err
	}
	logs := filepath.Join(c.nodes[0].home, "sky_logs")
	if err := os.WriteFile(logs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := call("1"); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("its log cannot be: %v", err)
	}
	if err := os.Remove(logs); err != nil {
		t.Fatal(err)
	}
	if err := call("a b"); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("a bad key: %v", err)
	}
	if err := call("1"); err != nil {
		t.Errorf("once it can: %v", err)
	}
	if err := os.WriteFile(filepath.Join(c.nodes[0].home, "stays-on"), []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.head.Shutdown(t.Context(), agentapi.ShutdownRequest{Machine: "stop"}); err != nil {
		t.Fatal(err)
	}
	e, ok := errors.AsType[*agentapi.Error](call("2"))
	if !ok || e.Code != agentapi.CodeStopping {
		t.Errorf("the node goes: %v", e)
	}
	if err := os.Remove(filepath.Join(c.nodes[0].home, "stays-on")); err != nil {
		t.Fatal(err)
	}
	machineTime(t, c.nodes[0], "stop")
}

// Whoever follows a log of an agent that ends is cut off, and does not take that for
// the job's end.
func TestAFollowerOfAnAgentThatEndsIsCutOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{NumNodes: 2, Run: "echo ready; sleep 300"})
	c.await(id, "ready", func(*agentapi.Job) bool { return strings.Count(c.logNow(id), ") ready\n") == 2 })
	rc, _, err := c.head.Log(t.Context(), id, agentclient.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	a := remotePeer{c.nodes[1].client}
	raw, err := a.output(t.Context(), fmt.Sprintf("%s-%d-run-1", c.spec.Hash, id), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	began := make([]byte, 4)
	if _, err := io.ReadFull(raw, began); err != nil || string(began) != "ady\n" {
		t.Errorf("from the third byte on: %q, %v", began, err)
	}
	for i, r := range []io.Reader{rc, raw} {
		c.nodes[i].stop()
		if _, err := io.ReadAll(r); err == nil {
			t.Errorf("the log of node %d ends as if all were there", i)
		}
	}
}

// Processes have as long as the call that ends them says, if it says anything.
func TestAShutdownGivesTheTimeThatItIsAskedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true, time.Minute)
	id := c.submit(agentapi.JobSpec{Run: "trap '' TERM; echo ready; while :; do sleep 0.1; done"})
	c.await(id, "ready", func(*agentapi.Job) bool { return strings.Contains(c.logNow(id), ") ready\n") })
	for event, machine := range map[string]string{"lunch": "", "": "explode"} {
		_, err := c.head.Shutdown(t.Context(), agentapi.ShutdownRequest{Event: event, Machine: machine})
		if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeInvalid {
			t.Errorf("%q, %q: %v", event, machine, err)
		}
	}
	if info, err := c.head.Info(t.Context()); err != nil || info.State != agentapi.AgentRunning {
		t.Errorf("what is refused changes nothing: %+v, %v", info, err)
	}
	began := time.Now()
	if _, err := c.head.Shutdown(t.Context(), agentapi.ShutdownRequest{GraceSeconds: 1}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Second || took > 40*time.Second {
		t.Errorf("it took %v", took)
	}
}
