//go:build unix

package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// clock is a time that tests set.
type clock struct{ time.Time }

// opened is an agent that serves nobody, with the state that is in its folder. It is
// closed at the end of the test.
func opened(t *testing.T, home string, now *clock) *Agent {
	t.Helper()
	a, err := tryOpen(t, home, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.close() })
	return a
}

func tryOpen(t *testing.T, home string, now *clock) (*Agent, error) {
	t.Helper()
	o := Options{Home: home, Dir: filepath.Join(home, ".sky", "agent"), Logger: slog.New(slog.DiscardHandler), Now: time.Now, endGrace: testGrace}
	if now != nil {
		o.Now = func() time.Time { return now.Time }
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	return open(t.Context(), o, nil)
}

// memberOf is a cluster as its i-th node of two has it.
func memberOf(i int, epoch int64) *agentapi.ClusterSpec {
	return &agentapi.ClusterSpec{Name: "c", NameOnCloud: "c-0", Hash: "h", Epoch: epoch, Self: i, Capacity: twoCPUs,
		Nodes: []agentapi.Node{{ID: "n0", IP: "10.0.0.0", Address: "127.0.0.1:1"}, {ID: "n1", IP: "10.0.0.1", Address: "127.0.0.1:1"}}}
}

// The time that a cluster may be idle begins when autostop is set, not when it was last
// used; each setting begins it anew.
func TestIdleTimeBeginsWithTheSetting(t *testing.T) {
	began := time.Unix(1e9, 0)
	now := &clock{began}
	a := opened(t, t.TempDir(), now)
	a.spec = memberOf(0, 1)
	a.activity()
	for _, step := range []struct {
		name  string
		after time.Duration
		set   *agentapi.Autostop
		since time.Duration
	}{
		{"set after an hour", time.Hour, &agentapi.Autostop{IdleMinutes: 10, WaitFor: api.WaitForJobs}, time.Hour},
		{"set again", time.Hour + 5*time.Minute, &agentapi.Autostop{IdleMinutes: 12, WaitFor: api.WaitForJobs}, time.Hour + 5*time.Minute},
		{"set to less than has passed", time.Hour + 15*time.Minute, &agentapi.Autostop{IdleMinutes: 6, WaitFor: api.WaitForJobs}, time.Hour + 15*time.Minute},
		{"called off", 2 * time.Hour, nil, time.Hour + 15*time.Minute},
		{"set once more", 3 * time.Hour, &agentapi.Autostop{IdleMinutes: 10}, 3 * time.Hour},
	} {
		now.Time = began.Add(step.after)
		if err := a.setAutostop(step.set); err != nil {
			t.Fatal(err)
		}
		if got := a.info().IdleSince; got != seconds(began.Add(step.since)) {
			t.Errorf("%s: idle since %v, want %v", step.name, got, seconds(began.Add(step.since)))
		}
		if fire, _ := a.lookIdle(); fire {
			t.Errorf("%s: it goes at once", step.name)
		}
	}
}

// What was set holds for the next agent of the same boot, and is forgotten by the next
// boot: a machine that was started again is wanted.
func TestAnAutostopIsOfItsBoot(t *testing.T) {
	for name, boot := range map[string]string{"the same": proc.BootID(), "another": "another boot"} {
		home := t.TempDir()
		a := opened(t, home, nil)
		set := agentapi.Autostop{IdleMinutes: 10, Down: true}
		if err := errors.Join(a.queue.put("cluster", memberOf(0, 1)), a.queue.put("autostop", storedAutostop{boot, &set}), a.close()); err != nil {
			t.Fatal(err)
		}
		now := &clock{time.Unix(2e9, 0)}
		got := opened(t, home, now).info()
		if (got.Autostop != nil) != (name == "the same") || got.IdleSince != 2e9 || got.NodeID != "n0" || got.Epoch != 1 {
			t.Errorf("%s boot: %+v", name, got)
		}
	}
}

// An agent goes on with a teardown of its own boot and cluster only, and only as the
// head. Anything else is over: hooks may run again.
func TestATeardownIsContinuedOnlyWhereItBegan(t *testing.T) {
	for _, tt := range []struct {
		name string
		self int
		t    storedTeardown
		want agentapi.AgentState
	}{
		{"its own", 0, storedTeardown{Boot: proc.BootID(), Run: "r", Event: "stop", Last: true, Epoch: 3}, agentapi.AgentAutostopping},
		{"none", 0, storedTeardown{}, agentapi.AgentRunning},
		{"of another boot", 0, storedTeardown{Boot: "b", Run: "r", Event: "stop", Last: true, Epoch: 3}, agentapi.AgentRunning},
		{"of another epoch", 0, storedTeardown{Boot: proc.BootID(), Run: "r", Event: "stop", Last: true, Epoch: 2}, agentapi.AgentRunning},
		{"of a worker", 1, storedTeardown{Boot: proc.BootID(), Run: "r", Event: "stop", Last: true, Epoch: 3}, agentapi.AgentRunning},
	} {
		home := t.TempDir()
		a := opened(t, home, nil)
		if mine, err := a.claim("stop", "r"); !mine || err != nil {
			t.Fatal(mine, err)
		}
		if err := errors.Join(a.queue.put("cluster", memberOf(tt.self, 3)), a.queue.put("teardown", tt.t), a.close()); err != nil {
			t.Fatal(err)
		}
		a = opened(t, home, nil)
		_, err := os.Stat(a.claimFile())
		if a.state != tt.want || (err == nil) != (tt.want == agentapi.AgentAutostopping) {
			t.Errorf("%s: %s, the claim: %v", tt.name, a.state, err)
		}
	}
}

// A machine that is about to be stopped is kept when its cluster is configured anew; as
// long as others are being stopped it is too late for that.
func TestWhoConfiguresAClusterThatGoesKeepsIt(t *testing.T) {
	for _, tt := range []struct {
		name  string
		state agentapi.AgentState
		last  bool
		epoch int64
		want  agentapi.AgentState
		again bool // hooks may run again
	}{
		{"only this machine is left", agentapi.AgentAutostopping, true, 4, agentapi.AgentRunning, true},
		{"workers are being stopped", agentapi.AgentAutostopping, false, 4, agentapi.AgentAutostopping, false},
		{"the same epoch", agentapi.AgentAutostopping, true, 3, agentapi.AgentAutostopping, false},
		{"it is shut down", agentapi.AgentShuttingDown, true, 4, agentapi.AgentShuttingDown, false},
		{"it stays", agentapi.AgentRunning, true, 4, agentapi.AgentRunning, false},
	} {
		a := opened(t, t.TempDir(), nil)
		a.spec, a.state = memberOf(0, 3), tt.state
		if err := a.queue.put("teardown", storedTeardown{Boot: proc.BootID(), Run: "r", Event: "stop", Last: tt.last, Epoch: 3}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.claim("stop", "r"); err != nil {
			t.Fatal(err)
		}
		if err := a.wantedAgain(tt.epoch); err != nil {
			t.Fatal(err)
		}
		var left storedTeardown
		_, err := a.queue.load("teardown", &left)
		mine, err2 := a.claim("down", "s")
		if a.state != tt.want || err != nil || err2 != nil || (left.Run == "") != tt.again || mine != tt.again {
			t.Errorf("%s: %s, %+v, a new claim: %v (%v, %v)", tt.name, a.state, left, mine, err, err2)
		}
	}
}

// Hooks are run by the first event that comes, once; it may go on after a restart.
func TestOneEventClaimsTheHooks(t *testing.T) {
	home := t.TempDir()
	a := opened(t, home, nil)
	claim := func(event, run string, want bool) {
		t.Helper()
		if mine, err := a.claim(event, run); mine != want || err != nil {
			t.Errorf("%s of %s: %v, %v", event, run, mine, err)
		}
	}
	claim("stop", "1", true)
	claim("stop", "1", true)
	claim("stop", "2", false)
	claim("preemption", "1", false)
	a.unclaim()
	claim("preemption", "1", true)
	if err := errors.Join(os.RemoveAll(a.hooksDir()), os.WriteFile(a.hooksDir(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if mine, err := a.claim("stop", "1"); mine || err == nil {
		t.Errorf("where nothing can be written: %v, %v", mine, err)
	}
}

// An agent whose records cannot be read does not start with half of them.
func TestAnAgentWithDamagedRecordsDoesNotStart(t *testing.T) {
	damage := func(bucket, key string) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte("{")) }
	}
	for name, change := range map[string]func(*bbolt.Tx) error{
		"the cluster":  damage("meta", "cluster"),
		"the autostop": damage("meta", "autostop"),
		"the teardown": damage("meta", "teardown"),
		"a job":        damage("jobs", string(idKey(1))),
		"a job's spec": damage("specs", string(idKey(1))),
		"an open job":  func(tx *bbolt.Tx) error { return tx.Bucket(bucketOpen).Put(idKey(7), nil) },
	} {
		home := t.TempDir()
		a := opened(t, home, nil)
		a.spec = memberOf(0, 1)
		if err := a.queue.put("cluster", a.spec); err != nil {
			t.Fatal(err)
		}
		if _, err := a.submit(&agentapi.SubmitRequest{Key: "k", Epoch: 1, Spec: agentapi.JobSpec{Run: "true"}}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.queue.db.Update(change), a.close()); err != nil {
			t.Fatal(err)
		}
		if a, err := tryOpen(t, home, nil); err == nil {
			t.Errorf("%s is damaged, and the agent starts", name)
			_ = a.close()
		}
	}
}

// reluctant is a machine that stops at the n-th try.
type reluctant struct {
	tries []time.Time
	after int
}

func (m *reluctant) Stop(context.Context) error {
	m.tries = append(m.tries, time.Now())
	if len(m.tries) < m.after {
		return errors.New("not yet")
	}
	return nil
}
func (m *reluctant) Terminate(ctx context.Context) error { return m.Stop(ctx) }

// standalone is what of an agent its end takes, in virtual time.
func standalone(t *testing.T, m Machine) *Agent {
	a := &Agent{o: Options{Machine: m}, log: slog.New(slog.DiscardHandler), now: time.Now, hub: newHub(), state: agentapi.AgentAutostopping}
	a.ctx, a.stop = context.WithCancelCause(t.Context())
	return a
}

// A machine that cannot be stopped is tried again, less and less often and for ever,
// and everybody is told why it is on.
func TestAMachineIsStoppedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &reluctant{after: 14}
		a := standalone(t, m)
		defer a.stop(nil)
		heard := a.hub.listen()
		a.stopMachine("stop")
		if !errors.Is(context.Cause(a.ctx), errShutDown) || len(m.tries) != m.after {
			t.Errorf("%v after %d tries", context.Cause(a.ctx), len(m.tries))
		}
		for i := range m.after - 1 {
			if pause, want := m.tries[i+1].Sub(m.tries[i]), min(time.Second<<i, stopPause); pause != want {
				t.Errorf("pause %d: %v, want %v", i, pause, want)
			}
		}
		if e := <-heard; e.Info.Stuck != "not yet" || e.Info.State != agentapi.AgentAutostopping {
			t.Errorf("told: %+v", e.Info)
		}
	})
}

func TestAMachineThatIsWantedAgainIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &reluctant{after: 100}
		a := standalone(t, m)
		defer a.stop(nil)
		time.AfterFunc(10*time.Second, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.state = agentapi.AgentRunning
		})
		a.stopMachine("terminate")
		if a.ctx.Err() != nil || len(m.tries) != 4 || a.info().Stuck != "" {
			t.Errorf("%v after %d tries: %q", a.ctx.Err(), len(m.tries), a.info().Stuck)
		}
		// One that nobody can stop keeps its agent.
		a.o.Machine = nil
		if a.stopMachine("stop"); a.ctx.Err() != nil {
			t.Error("the agent ended without its machine")
		}
		// An agent that ends leaves the machine to the next one.
		a.o.Machine = m
		a.state = agentapi.AgentAutostopping
		time.AfterFunc(time.Second/2, func() { a.stop(nil) })
		was := len(m.tries)
		if a.stopMachine("stop"); len(m.tries) != was+1 {
			t.Errorf("%d tries", len(m.tries)-was)
		}
	})
}

// lingering is a worker that acknowledges and goes on answering for a while.
type lingering struct{ until time.Time }

func (w lingering) Shutdown(context.Context, agentapi.ShutdownRequest) (*agentapi.Info, error) {
	return &agentapi.Info{}, nil
}
func (w lingering) Info(context.Context) (*agentapi.Info, error) {
	if time.Now().Before(w.until) {
		return &agentapi.Info{}, nil
	}
	return nil, errors.New("gone")
}

// A head stops its own machine when its workers are gone, or are not for too long.
func TestAHeadWaitsForItsWorkersToBeGone(t *testing.T) {
	for lingers, want := range map[time.Duration]time.Duration{0: 0, 5 * time.Second: 5 * time.Second, time.Hour: goneAfter} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			stopWorker(t.Context(), slog.New(slog.DiscardHandler), lingering{began.Add(lingers)}, "stop")
			if took := time.Since(began); took < want || took > want+time.Second {
				t.Errorf("it lingers for %v: the head waited %v", lingers, took)
			}
		})
	}
}

// An announcement stays until a later one, and what is only likely does not replace
// what is certain.
func TestTheLastAnnouncementStays(t *testing.T) {
	likely := &agentapi.Notice{Action: agentapi.NoticeRebalance, At: 1}
	stop, sooner := &agentapi.Notice{Action: "stop", At: 2}, &agentapi.Notice{Action: "stop", At: 1}
	for _, tt := range []struct {
		name  string
		said  []*agentapi.Notice
		want  *agentapi.Notice
		heard int
	}{
		{"nothing", []*agentapi.Notice{nil}, nil, 0},
		{"once", []*agentapi.Notice{likely, nil}, likely, 1},
		{"twice the same", []*agentapi.Notice{stop, {Action: "stop", At: 2}}, stop, 1},
		{"another time", []*agentapi.Notice{stop, sooner}, sooner, 2},
		{"certain after likely", []*agentapi.Notice{likely, stop}, stop, 2},
		{"likely after certain", []*agentapi.Notice{stop, likely}, stop, 1},
	} {
		a := opened(t, t.TempDir(), nil)
		a.o.endingDir = t.TempDir()
		heard := a.hub.listen()
		for _, n := range tt.said {
			a.noticed(n)
		}
		got := a.info().Notice
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want || len(heard) != tt.heard {
			t.Errorf("%s: %+v, told %d times", tt.name, got, len(heard))
		}
	}
}

// What a container's orchestrator says is when the container ends, until it was
// answered; it is answered only where it asks.
func TestWhatAnOrchestratorSaysOfTheEnd(t *testing.T) {
	a := opened(t, t.TempDir(), nil)
	a.o.endingDir = t.TempDir()
	asks := a.endingFile(agentapi.EndingFile)
	if a.ended(); a.ending() != nil {
		t.Errorf("nobody asks: %+v", a.ending())
	}
	if _, err := os.Stat(a.endingFile(agentapi.EndedFile)); err == nil {
		t.Error("nobody asked, and was answered")
	}
	at := time.Unix(1e9, 0)
	for text, want := range map[string]float64{"30\n": 1e9 + 30, "": 1e9, "soon": 1e9} {
		if err := errors.Join(os.WriteFile(asks, []byte(text), 0o600), os.Chtimes(asks, at, at)); err != nil {
			t.Fatal(err)
		}
		if n := a.ending(); n == nil || n.At != want || !n.Final() {
			t.Errorf("%q: %+v", text, n)
		}
	}
	if a.ended(); a.ending() != nil {
		t.Error("it was answered and asks still")
	}
}

// Listeners that are too slow are cut off, and others hear everything.
func TestASlowListenerIsCutOff(t *testing.T) {
	h := newHub()
	slow, quick, left := h.listen(), h.listen(), h.listen()
	h.leave(left)
	for i := range hubBacklog + 1 {
		h.publish(agentapi.Event{At: float64(i)})
		if e := <-quick; e.At != float64(i) {
			t.Fatalf("heard %v, want %d", e.At, i)
		}
	}
	n := 0
	for range slow { // it ends: the channel is closed
		n++
	}
	if n != hubBacklog || len(left) != 0 {
		t.Errorf("the slow one heard %d, who left %d", n, len(left))
	}
}

// The end of a job that asks for a report is told until it is stored, also by the next
// agent; of others it is not.
func TestWhichEndsAreReported(t *testing.T) {
	home := t.TempDir()
	a := opened(t, home, nil)
	a.spec = memberOf(0, 1)
	if err := a.queue.put("cluster", a.spec); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"asks", "does not", "runs", "stored"} {
		if _, err := a.submit(&agentapi.SubmitRequest{Key: key, Epoch: 1, Spec: agentapi.JobSpec{Run: "true"}, Report: key != "does not"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []int{1, 2, 4} {
		if _, err := a.update(id, func(r *record) error { return r.move(evFailed, a.now()) }); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(a *Agent) (out []int) {
		for _, j := range a.unreported() {
			out = append(out, j.ID)
		}
		return out
	}
	if got := ids(a); !slices.Equal(got, []int{1, 4}) {
		t.Errorf("told: %v", got)
	}
	if _, err := a.reported(t.Context(), &agentapi.ReportedRequest{IDs: []int{3, 4, 99}}); err != nil {
		t.Fatal(err)
	}
	if got := ids(a); !slices.Equal(got, []int{1}) {
		t.Errorf("told: %v", got)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	if got := ids(opened(t, home, nil)); !slices.Equal(got, []int{1}) {
		t.Errorf("told by the next agent: %v", got)
	}
	if _, err := a.reported(t.Context(), &agentapi.ReportedRequest{IDs: []int{1}}); err == nil || strings.Contains(err.Error(), "no such job") {
		t.Errorf("what could not be noted was: %v", err)
	}
}
