//go:build unix

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// saves is a script whose shell is gone at once when it is asked to end, as most
// are, and whose program then saves until a file says that it may go.
const saves = `
sh -c 'trap "echo asked >>~/asked" TERM; echo ready; until [ -e ~/go ]; do sleep 0.05; done; date +%s.%N >~/saved; echo saved'
true`

// Each process is asked once and has the grace that belongs to how it is ended.
func TestProgramsHaveTheirWholeGrace(t *testing.T) {
	for _, tt := range []struct {
		name   string
		grace  time.Duration // of the cluster
		script string
		end    func(c *testCluster, id int) error
		want   api.JobStatus
	}{
		{"cancel", testGrace, saves, func(c *testCluster, id int) error {
			_, err := c.head.Cancel(t.Context(), agentapi.CancelRequest{IDs: []int{id}, GraceSeconds: 600})
			return err
		}, api.JobCancelled},
		{"shutdown", testGrace, saves, func(c *testCluster, id int) error {
			_, err := c.head.Shutdown(t.Context(), agentapi.ShutdownRequest{Event: "down", GraceSeconds: 600})
			return err
		}, api.JobCancelled},
		{"usual grace", time.Hour, saves, func(c *testCluster, id int) error {
			_, err := c.head.Shutdown(t.Context(), agentapi.ShutdownRequest{Event: "stop"})
			return err
		}, api.JobCancelled},
		{"another rank fails", time.Hour, `if [ $SKYPILOT_NODE_RANK = 1 ]; then until [ -e ~/fail ]; do sleep 0.05; done; exit 9; fi` + saves, func(c *testCluster, id int) error {
			return os.WriteFile(filepath.Join(c.nodes[1].home, "fail"), nil, 0o600)
		}, api.JobFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			nodes := 1
			if tt.want == api.JobFailed {
				nodes = 2
			}
			c := newCluster(t, nodes, twoCPUs, true, tt.grace)
			home := c.nodes[0].home
			id := c.submit(agentapi.JobSpec{Run: tt.script, NumNodes: nodes})
			c.await(id, "ready", func(*agentapi.Job) bool { return strings.Contains(c.logNow(id), ") ready\n") })
			ended := make(chan error, 1)
			go func() { ended <- tt.end(c, id) }()
			c.await(id, "asked", func(*agentapi.Job) bool { return readFile(t, home, "asked") != "" })
			time.Sleep(2 * testGrace) // it would have been asked again, or killed, by now
			if err := os.WriteFile(filepath.Join(home, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if tt.name == "shutdown" || tt.name == "usual grace" {
				c.nodes[0].stop()
				c.nodes[0].runHere()
			}
			if job := c.awaitEnd(id); job.Status != tt.want {
				t.Errorf("job: %s", mustJSON(job))
			}
			if log := c.follow(id); !strings.Contains(log, ") saved\n") {
				t.Errorf("it was killed:\n%s", log)
			}
			if asked := readFile(t, home, "asked"); asked != "asked\n" {
				t.Errorf("it was asked %d times", strings.Count(asked, "\n"))
			}
		})
	}
}

// A cancelled job ends with its processes, not with the call that asked for that.
func TestACancelledJobEndsWithItsProcesses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{Run: saves})
	c.await(id, "ready", func(*agentapi.Job) bool { return strings.Contains(c.logNow(id), ") ready\n") })
	if _, err := c.head.Cancel(t.Context(), agentapi.CancelRequest{IDs: []int{id}, GraceSeconds: 600}); err != nil {
		t.Fatal(err)
	}
	c.await(id, "asked", func(*agentapi.Job) bool { return readFile(t, c.nodes[0].home, "asked") != "" })
	if err := os.WriteFile(filepath.Join(c.nodes[0].home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.follow(id)
	saved, err := strconv.ParseFloat(strings.TrimSpace(readFile(t, c.nodes[0].home, "saved")), 64)
	if err != nil {
		t.Fatal(err)
	}
	c.await(id, "known to have ended after its program", func(j *agentapi.Job) bool { return j.EndedAt >= saved })
}

// What setup starts in the background serves the jobs of the cluster: it runs until
// the next setup, or until the cluster stops.
func TestWhatSetupStartsRunsOn(t *testing.T) {
	t.Parallel()
	const nodes = 2
	c := newCluster(t, nodes, twoCPUs, true)
	// In the wrapper's session, and in one of its own.
	setup := `sleep 1000 & echo $! >~/services; (setsid sh -c 'echo $$ >>~/services; exec sleep 1000' &); until [ $(wc -l <~/services) = 2 ]; do sleep 0.05; done`
	const run = `for p in $(cat ~/services); do kill -0 $p && echo serves; done`
	services := func() (pids []int) {
		for _, n := range c.nodes {
			for word := range strings.FieldsSeq(readFile(t, n.home, "services")) {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
		}
		return pids
	}
	living := func(pids []int) int {
		return len(slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return !proc.Alive(pid, "") }))
	}
	exists := func(elem ...string) bool {
		_, err := os.Stat(filepath.Join(elem...))
		return err == nil
	}
	work := func(name string, spec agentapi.JobSpec, want int) {
		t.Helper()
		spec.NumNodes = nodes
		id := c.submit(spec)
		log := c.follow(id)
		if got := strings.Count(log, ") serves\n"); got != want || strings.Contains(log, "background process") {
			t.Errorf("%s: %d services seen, want %d:\n%s", name, got, want, log)
		}
		// Ranks are forgotten side by side; only then what setup left counts as kept.
		c.await(id, "settled", func(*agentapi.Job) bool {
			for i, n := range c.nodes {
				rank := func(phase string) string {
					return filepath.Join(n.home, ".sky", "agent", "ranks", fmt.Sprintf("%s-%d-%s-%d", c.spec.Hash, id, phase, i))
				}
				if exists(rank("run")) || exists(rank("setup")) && !exists(rank("setup"), "kept") {
					return false
				}
			}
			return true
		})
	}
	work("the job that set them up", agentapi.JobSpec{Setup: setup, Run: run}, 4)
	first := services()
	work("a job without setup", agentapi.JobSpec{Run: run}, 4)
	c.nodes[0].stop()
	c.nodes[0].runHere()
	if living(first) != 4 {
		t.Errorf("%d of 4 services live after the agent was started again", living(first))
	}
	work("the next setup", agentapi.JobSpec{Setup: setup, Run: run}, 4)
	if living(first) != 0 {
		t.Errorf("%d services of an earlier setup live", living(first))
	}
	second := services()
	failed := c.submit(agentapi.JobSpec{NumNodes: nodes, Setup: "sleep 1000 & echo $! >~/services; exit 3", Run: run})
	if job := c.awaitEnd(failed); job.Status != api.JobFailedSetup {
		t.Errorf("job: %s", mustJSON(job))
	}
	if log := c.follow(failed); !strings.Contains(log, "Ended 2 background processes that the job left running (head: 1, worker1: 1).") {
		t.Errorf("its log:\n%s", log)
	}
	if living(second) != 0 || living(services()) != 0 {
		t.Errorf("a setup that failed leaves something")
	}
	work("after that", agentapi.JobSpec{Setup: setup, Run: run}, 4)
	for _, n := range c.nodes {
		if _, err := n.client.Shutdown(t.Context(), agentapi.ShutdownRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if living(services()) != 0 {
		t.Errorf("services live on after the cluster was stopped")
	}
}
