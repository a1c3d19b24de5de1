//go:build unix

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

func TestIdleness(t *testing.T) {
	begin := time.Unix(1e9, 0)
	at := func(minutes float64) time.Time { return begin.Add(time.Duration(minutes * float64(time.Minute))) }
	for _, test := range []struct {
		name     string
		set      *agentapi.Autostop
		sessions int
		act      activity
		at       float64 // minutes since the last activity
		fire     bool
		again    time.Duration
		reset    bool // the clock starts again
	}{
		{"never set", nil, 0, activity{}, 100, false, 0, false},
		{"off", &agentapi.Autostop{IdleMinutes: -1}, 0, activity{}, 100, false, 0, false},
		{"too early", &agentapi.Autostop{IdleMinutes: 10, WaitFor: api.WaitForJobs}, 0, activity{}, 9.5, false, 30 * time.Second, false},
		{"time", &agentapi.Autostop{IdleMinutes: 10}, 0, activity{}, 10, true, 0, false},
		{"late", &agentapi.Autostop{IdleMinutes: 10}, 0, activity{}, 11, true, 0, false},
		{"at once", &agentapi.Autostop{}, 0, activity{}, 0, true, 0, false},
		{"looks for terminals meanwhile", &agentapi.Autostop{IdleMinutes: 10}, 0, activity{}, 0, false, time.Minute, false},
		{"a job", &agentapi.Autostop{IdleMinutes: 10}, 0, activity{jobs: 1}, 11, false, 0, true},
		{"a terminal", &agentapi.Autostop{IdleMinutes: 10}, 0, activity{ssh: true}, 11, false, time.Minute, true},
		{"a shell of ours", &agentapi.Autostop{IdleMinutes: 10}, 1, activity{}, 11, false, 0, true},
		{"jobs: terminals do not count", &agentapi.Autostop{IdleMinutes: 10, WaitFor: api.WaitForJobs}, 1, activity{ssh: true}, 11, true, 0, false},
		{"jobs: a job", &agentapi.Autostop{IdleMinutes: 10, WaitFor: api.WaitForJobs}, 0, activity{jobs: 1}, 11, false, 0, true},
		{"none: nothing counts", &agentapi.Autostop{IdleMinutes: 10, WaitFor: api.WaitForNone}, 1, activity{1, true}, 11, true, 0, false},
		{"none: too early", &agentapi.Autostop{IdleMinutes: 10, WaitFor: api.WaitForNone}, 1, activity{1, true}, 4, false, 6 * time.Minute, false},
	} {
		i := idleness{set: test.set, since: begin, sessions: test.sessions}
		fire, again := i.look(test.act, at(test.at))
		if fire != test.fire || again != test.again || test.reset != i.since.Equal(at(test.at)) && test.at > 0 {
			t.Errorf("%s: fire %v, again in %v, since %v", test.name, fire, again, i.since.Sub(begin))
		}
	}
}

func TestAutostopSettingChanges(t *testing.T) {
	hooks := &[]agentapi.Hook{{Run: "x"}}
	begin := time.Unix(1e9, 0)
	i := idleness{since: begin}
	i.change(agentapi.Autostop{IdleMinutes: 5, Hooks: hooks}, begin.Add(time.Minute))
	if !i.since.Equal(begin.Add(time.Minute)) {
		t.Error("the first setting does not start the clock")
	}
	i.change(agentapi.Autostop{IdleMinutes: 7}, begin.Add(2*time.Minute))
	if !i.since.Equal(begin.Add(2 * time.Minute)) {
		t.Error("another setting does not start the clock again")
	}
	if i.set.Hooks != hooks {
		t.Error("hooks are gone although the setting leaves them")
	}
	i.change(agentapi.Autostop{IdleMinutes: -1, Hooks: &[]agentapi.Hook{}}, begin)
	if len(*i.set.Hooks) != 0 {
		t.Error("hooks are not cleared")
	}
	i.change(agentapi.Autostop{IdleMinutes: 7}, begin.Add(time.Hour))
	if !i.since.Equal(begin.Add(time.Hour)) {
		t.Error("a setting after \"off\" does not start the clock")
	}
}

// A cluster that was idle for longer than a new setting allows is not stopped at
// once: the time counts from the setting.
func TestAutostopCountsFromItsSetting(t *testing.T) {
	idleFor := func(i *idleness, now time.Time) bool {
		fire, _ := i.look(activity{}, now)
		return fire
	}
	begin := time.Unix(1e9, 0)
	i := idleness{since: begin}
	i.change(agentapi.Autostop{IdleMinutes: 60}, begin)
	set := begin.Add(75 * time.Second)
	i.change(agentapi.Autostop{IdleMinutes: 1}, set)
	if idleFor(&i, set) || idleFor(&i, set.Add(59*time.Second)) {
		t.Error("idle time before the setting counts")
	}
	if !idleFor(&i, set.Add(time.Minute)) {
		t.Error("it does not stop after the time that was set")
	}
}

func TestAutostopCountsFromTheLastJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		a := &Agent{
			ctx: ctx, now: time.Now, looked: make(chan struct{}, 1), state: agentapi.AgentRunning,
			spec: &agentapi.ClusterSpec{}, counts: map[api.JobStatus]int{api.JobRunning: 1},
		}
		a.idle.change(agentapi.Autostop{IdleMinutes: 10, WaitFor: api.WaitForJobs}, time.Now())
		start, fired, ended := time.Now(), make(chan time.Duration, 1), make(chan struct{})
		go func() {
			defer close(ended)
			a.autostopper(func() {
				a.mu.Lock()
				a.state = agentapi.AgentAutostopping
				a.mu.Unlock()
				fired <- time.Since(start)
			})
		}()
		time.Sleep(9 * time.Minute)
		a.mu.Lock()
		a.counts[api.JobRunning]--
		a.jobEndedLocked()
		a.mu.Unlock()
		time.Sleep(4 * time.Minute)
		a.activity() // a submission
		if took := <-fired; took != 23*time.Minute {
			t.Errorf("fired after %v, want 23m", took)
		}
		cancel()
		<-ended
	})
}

func readFile(t testing.TB, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

func awaitFile(t testing.TB, want string, elem ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if strings.HasPrefix(readFile(t, elem...), want) {
			return
		}
	}
	t.Fatalf("%s does not become %q but %q", filepath.Join(elem...), want, readFile(t, elem...))
}

func machineTime(t *testing.T, n *testNode, what string) (at int64) {
	t.Helper()
	awaitFile(t, what, n.home, "machine")
	var word string
	if _, err := fmt.Sscan(readFile(t, n.home, "machine"), &word, &at); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestAutostopGivesTheClusterBack(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		event := map[bool]string{false: "stop", true: "down"}[down]
		act := map[bool]string{false: "stop", true: "terminate"}[down]
		t.Run(event, func(t *testing.T) {
			c := newCluster(t, 2, twoCPUs, true)
			hooks := &[]agentapi.Hook{
				{Run: `echo first $SKYPILOT_HOOK_EVENT; echo x >>~/hooked`},
				{Run: "exit 3", Events: []string{event}},
				{Run: "echo never >>~/hooked", Events: []string{"preemption"}},
				{Run: "echo late; sleep 1000", Timeout: 1},
			}
			job := c.submit(agentapi.JobSpec{Run: "sleep 0.3"})
			// Zero minutes: as soon as the job has ended.
			if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 0, Down: down, WaitFor: api.WaitForJobs, Hooks: hooks}); err != nil {
				t.Fatal(err)
			}
			worker := machineTime(t, c.nodes[1], act)
			head := machineTime(t, c.nodes[0], act)
			if head < worker {
				t.Error("the head stopped before its worker")
			}
			if log := readFile(t, c.nodes[0].home, ".sky", "hooks", event+".log"); log != "first "+event+"\nlate\n" {
				t.Errorf("hook log %q", log)
			}
			if got := readFile(t, c.nodes[0].home, "hooked"); got != "x\n" {
				t.Errorf("hooks ran: %q", got)
			}
			for _, n := range c.nodes {
				n.stop() // has ended already
			}
			// The machine is started again: it is wanted, and has no autostop.
			for _, n := range c.nodes {
				n.runHere()
			}
			if down {
				return
			}
			if info, err := c.head.Info(t.Context()); err != nil || info.State != agentapi.AgentAutostopping {
				t.Errorf("before it is configured: %+v, %v", info, err)
			}
			c.spec.Epoch++
			c.configure()
			info, err := c.head.Info(t.Context())
			if err != nil || info.State != agentapi.AgentRunning || info.Autostop != nil {
				t.Errorf("after it is configured: %+v, %v", info, err)
			}
			if j := c.job(job); j.Status != api.JobSucceeded {
				t.Errorf("job: %s", mustJSON(j))
			}
			if next := c.submit(agentapi.JobSpec{NumNodes: 2, Run: "true"}); c.awaitEnd(next).Status != api.JobSucceeded {
				t.Error("the cluster is not usable")
			}
		})
	}
}

// A teardown goes on when the agent is killed in the middle of it, and hooks run once.
func TestKilledWhileAutostopping(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, twoCPUs, false)
	hooks := &[]agentapi.Hook{{Run: `echo a >>~/hooked; until [ -e ~/go ]; do sleep 0.05; done; echo b >>~/hooked`}, {Run: "echo c >>~/hooked"}}
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 0, Hooks: hooks}); err != nil {
		t.Fatal(err)
	}
	n := c.nodes[0]
	awaitFile(t, "a", n.home, "hooked")
	for range 3 {
		n.kill()
		n.spawn()
		if info, err := n.client.Info(t.Context()); err != nil || info.State != agentapi.AgentAutostopping {
			t.Errorf("state after a restart: %+v, %v", info, err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	machineTime(t, c.nodes[1], "stop")
	machineTime(t, n, "stop")
	if got := readFile(t, n.home, "hooked"); got != "a\nb\nc\n" {
		t.Errorf("hooks ran: %q", got)
	}
}

func TestAutostopSurvivesRestart(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 33, Down: true, WaitFor: api.WaitForNone}); err != nil {
		t.Fatal(err)
	}
	c.nodes[0].stop()
	c.nodes[0].runHere()
	info, err := c.head.Info(t.Context())
	if err != nil || info.Autostop == nil || info.Autostop.IdleMinutes != 33 || !info.Autostop.Down || info.Autostop.WaitFor != api.WaitForNone {
		t.Errorf("info %+v, %v", info, err)
	}
}

func TestShutdownEndsEverything(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	running := c.submit(agentapi.JobSpec{Run: "(setsid sleep 1000 &) ; sleep 1000", CPUs: 2})
	queued := c.submit(agentapi.JobSpec{Run: "true", CPUs: 2})
	c.awaitStatus(running, api.JobRunning)
	hooks := &[]agentapi.Hook{{Run: "echo bye $SKYPILOT_HOOK_EVENT"}}
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 60, Hooks: hooks}); err != nil {
		t.Fatal(err)
	}
	info, err := c.head.Shutdown(t.Context(), agentapi.ShutdownRequest{Event: "stop", GraceSeconds: 1})
	if err != nil || info.State != agentapi.AgentShuttingDown || info.Jobs[string(api.JobCancelled)] != 2 {
		t.Fatalf("info %+v, %v", info, err)
	}
	n := c.nodes[0]
	n.stop() // waits until Run has returned
	if log := readFile(t, n.home, ".sky", "hooks", "stop.log"); log != "bye stop\n" {
		t.Errorf("hook log %q", log)
	}
	if m := readFile(t, n.home, "machine"); m != "" {
		t.Errorf("the machine was touched: %q", m)
	}
	n.runHere()
	for _, id := range []int{running, queued} {
		if job := c.job(id); job.Status != api.JobCancelled {
			t.Errorf("job: %s", mustJSON(job))
		}
	}
	rc, err := c.head.HookLog(t.Context(), "stop")
	if err != nil {
		t.Fatal(err)
	}
	rc.Close()
	if _, err := c.head.HookLog(t.Context(), "down"); !isCode(err, agentapi.CodeNotFound) {
		t.Errorf("hook log that is not there: %v", err)
	}
	if _, err := c.head.HookLog(t.Context(), "..%2fx"); !isCode(err, agentapi.CodeInvalid) {
		t.Errorf("hook log of nonsense: %v", err)
	}
}

func TestHooksFor(t *testing.T) {
	set := &agentapi.Autostop{Hooks: &[]agentapi.Hook{{Run: "all"}, {Run: "stop", Events: []string{"stop"}}, {Run: "two", Events: []string{"down", "preemption"}}, {}}}
	for event, want := range map[string][]string{"stop": {"all", "stop"}, "down": {"all", "two"}, "preemption": {"all", "two"}} {
		var got []string
		for _, h := range hooksFor(set, event) {
			got = append(got, h.Run)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", event, got, want)
		}
	}
	if hooksFor(nil, "stop") != nil || hooksFor(&agentapi.Autostop{}, "stop") != nil {
		t.Error("hooks out of nothing")
	}
}
