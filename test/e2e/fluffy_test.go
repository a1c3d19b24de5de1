//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/serve"
	"github.com/skypilot-go/sky/test/harness"
)

// fluffy is a workstation with a FluffyCloud of its own: a process whose machines are
// real process trees with an sshd each.
type fluffy struct {
	*workstation
	cloud *harness.Cloud
}

// newFluffy is a workstation with an account on FluffyCloud, whose machines take boot
// to start. When the test ends the cloud must have no machine left.
func newFluffy(t testing.TB, boot time.Duration) *fluffy {
	t.Helper()
	w, c := harness.NewFluffy(t, boot)
	return &fluffy{of(w), c}
}

func (f *fluffy) try(method, path string, body any) error { return f.cloud.Try(method, path, body) }

func (f *fluffy) operate(method, path string, body any) {
	f.t.Helper()
	f.cloud.Operate(method, path, body)
}

func (f *fluffy) machines() []model.Machine {
	f.t.Helper()
	return f.cloud.Machines()
}

// full sells a machine out in some zones.
func (f *fluffy) full(machine string, zones ...string) {
	f.t.Helper()
	for _, z := range zones {
		f.operate("POST", "capacity", serve.Capacity{Zone: z, Type: machine, Total: 0})
	}
}

// bring runs a command to its end, however long a loaded machine takes.
func (f *fluffy) bring(args ...string) (string, int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Env, c.Dir = f.env, f.home
	out, _ := c.CombinedOutput()
	if ctx.Err() != nil {
		f.t.Errorf("sky %s did not end in time\n%s", strings.Join(args, " "), out)
	}
	return string(out), c.ProcessState.ExitCode()
}

var (
	eastern  = []string{"east-a", "east-b", "east-c"}
	western  = []string{"west-a", "west-b", "west-c"}
	northern = []string{"north-a", "north-b", "north-c", "north-d"}
)

// TestTheServerDiesWhileACloudIsInTrouble kills the server at random moments of
// launching clusters of four machines, while the cloud is full, throttles, loses
// answers after their effect and hangs. Every launch ends UP or with a full
// report, and no machine is left that belongs to nothing.
func TestTheServerDiesWhileACloudIsInTrouble(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 50*time.Millisecond)
	r := seed(t)
	f.sky("api", "start")
	usual := 8 * time.Second // how long a launch takes; kills are spread over that
	ups, reports, unheard := 0, 0, 0
	n := kills(t, 4)
	for round := range n {
		trouble := f.trouble(r)
		name := fmt.Sprintf("f%d", round)
		c := f.command("launch", "-y", "-d", "-c", name, "--infra", "fluffycloud", "--num-nodes", "4", "--cpus", "1", "--", "true")
		out, err := os.CreateTemp(f.home, "out-")
		if err != nil {
			t.Fatal(err)
		}
		c.Stdout, c.Stderr = out, out
		start := time.Now()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		time.Sleep(rand.N(usual))
		f.killServer()
		f.operate("DELETE", "faults", nil) // calls that hang hang no longer than the fault
		f.sky("api", "start")
		select {
		case <-ended:
		case <-time.After(10 * time.Minute):
			t.Errorf("round %d (%s): the launch hangs after the server came back:\n%s", round, trouble, tailOf(out.Name(), 3000))
			c.Process.Kill()
			<-ended
		}
		out.Close()
		f.settled()
		text := tailOf(out.Name(), 20_000)
		switch status := f.status(name); {
		case c.ProcessState.ExitCode() == 0 && status == "UP":
			ups++
			usual = (3*usual + time.Since(start)) / 4
		case strings.Contains(text, "could not get 4 machines") && status == "":
			reports++
			wants(t, text, "✗ fluffycloud/")
		case round == 0 && status == "": // the request was not accepted yet
		case strings.Contains(text, "cannot reach the API server") && (status == "UP" || status == ""):
			// The server died before it told the request's id: what it had accepted
			// goes on, and only its client does not know.
			unheard++
		default:
			t.Errorf("round %d (%s): exit %d, status %q\n%s", round, trouble, c.ProcessState.ExitCode(), status, text)
		}
		f.reset()
		f.run("down", "-y", name)
		f.settled()
	}
	t.Logf("%d kills: %d launches ended UP, %d with a report, of %d the client never heard", n, ups, reports, unheard)
	// A call of a dead server that was still on its way may make a machine late;
	// a whole gang that nobody owns is one that was forgotten.
	gangs := map[string]int{}
	for _, m := range f.machines() {
		if gangs[m.Tags[cloud.TagCluster]]++; gangs[m.Tags[cloud.TagCluster]] == 4 {
			t.Errorf("all machines of %s run, and no cluster owns them", m.Tags[cloud.TagCluster])
		}
	}
	f.nothingLeft()
}

// nothingLeft is when neither a cluster nor a sweep finds a machine.
func (f *fluffy) nothingLeft() {
	f.t.Helper()
	eventually(f.t, "no cluster is left", 5*time.Minute, func() bool {
		out := f.stdout("status", "-o", "json", "-r")
		return strings.TrimSpace(out) == "[]"
	})
	// What a dead server's call made after its attempt was settled has no owner;
	// the server would find it after the grace time.
	strays, code := f.run("sweep", "--grace", "0", "--terminate", "-y")
	if code != 0 {
		f.t.Errorf("sky sweep: exit %d\n%s", code, strays)
	}
	if !strings.Contains(strays, "No machines without a cluster") {
		f.t.Logf("the sweep found something:\n%s", strays)
	}
	if left := f.machines(); len(left) > 0 {
		f.t.Errorf("%d machines are left: %+v", len(left), left)
	}
}

// trouble makes the cloud misbehave in a random way, and says how.
func (f *fluffy) trouble(r *rand.Rand) string {
	var said []string
	fault := func(x model.Fault) {
		said = append(said, fmt.Sprintf("%s %s ×%d", x.Kind, x.Op, x.Times))
		f.operate("POST", "faults", x)
	}
	if r.IntN(2) == 0 {
		zones := append(append([]string{}, northern...), eastern...)
		zones = zones[:1+r.IntN(len(zones))]
		said = append(said, fmt.Sprintf("full: %v", zones))
		f.full("puff-1", zones...)
	}
	if r.IntN(8) == 0 {
		said = append(said, "full everywhere")
		for _, zones := range [][]string{northern, eastern, western} {
			for _, machine := range []string{"puff-1", "puff-2", "puff-4", "puff-8", "puff-32", "puff-8-mem", "fluff-t4", "fluff-l4", "fluff-l4-8", "fluff-a100", "fluff-a100-8", "fluff-h100-8"} {
				for _, z := range zones {
					_ = f.try("POST", "capacity", serve.Capacity{Zone: z, Type: machine, Total: 0}) // not all are sold everywhere
				}
			}
		}
	}
	switch r.IntN(5) {
	case 0:
		fault(model.Fault{Kind: model.Throttle, Op: "instances.*", Times: 1 + r.IntN(4)})
	case 1:
		fault(model.Fault{Kind: model.Lose, Op: "instances.create", Times: 1 + r.IntN(4)})
	case 2:
		fault(model.Fault{Kind: model.Hang, Op: "instances.create", Times: 1})
	case 3:
		fault(model.Fault{Kind: model.Cut, Op: "instances.*", Times: 1 + r.IntN(4)})
	}
	return strings.Join(said, "; ")
}

// reset makes the cloud well again.
func (f *fluffy) reset() {
	f.t.Helper()
	f.operate("DELETE", "faults", nil)
	for _, zones := range [][]string{northern, eastern, western} {
		for _, machine := range []string{"puff-1", "puff-2", "puff-4", "puff-8", "puff-32", "puff-8-mem", "fluff-t4", "fluff-l4", "fluff-l4-8", "fluff-a100", "fluff-a100-8", "fluff-h100-8"} {
			for _, z := range zones {
				_ = f.try("POST", "capacity", serve.Capacity{Zone: z, Type: machine, Total: -1})
			}
		}
	}
}

// TestManyClustersAtOnce launches many clusters at the same moment; none fails.
// SKY_E2E_CLUSTERS says how many.
func TestManyClustersAtOnce(t *testing.T) {
	t.Parallel()
	n := 4
	if v := os.Getenv("SKY_E2E_CLUSTERS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	f := newFluffy(t, 0)
	f.sky("api", "start")
	start := time.Now()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16) // of commands that send; all requests are under way at once
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out, code := f.bring("launch", "-y", "--async", "-c", fmt.Sprintf("m%d", i), "--infra", "fluffycloud", "--cpus", "1", "--", "echo hi")
			if code != 0 {
				t.Errorf("launch %d: exit %d\n%s", i, code, out)
			}
		})
	}
	wg.Wait()
	eventually(t, "all launches end", 30*time.Minute, func() bool {
		time.Sleep(time.Second)
		for _, status := range f.requestsOf("sky.launch") {
			if status == "PENDING" || status == "RUNNING" {
				return false
			}
		}
		return true
	})
	t.Logf("%d clusters at once in %v", n, time.Since(start).Round(time.Second))
	for id, status := range f.requestsOf("sky.launch") {
		if status != "SUCCEEDED" {
			t.Errorf("launch %s is %s", id, status)
		}
	}
	if up := len(f.machines()); up != n {
		t.Errorf("%d machines run, not %d", up, n)
	}
	if out, code := f.bring("down", "-a", "-y"); code != 0 {
		t.Errorf("down: exit %d\n%s", code, out)
	}
	f.nothingLeft()
}

// TestAFailedLaunchTellsEverything reads the report of a launch that finds no
// room anywhere, as a user does.
func TestAFailedLaunchTellsEverything(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 0)
	f.full("fluff-h100-8", northern...)
	f.operate("POST", "faults", model.Fault{ID: "quota", Kind: model.Fail, Op: "instances.create", Code: fluffyapi.QuotaExceeded, Message: "you may have 0 H100 in east"})
	launch := func(options ...string) (string, int) {
		args := append([]string{"launch", "-y", "-c", "c1", "--infra", "fluffycloud", "--gpus", "H100:8", "--no-use-spot"}, options...)
		return f.bring(append(args, "--", "true")...)
	}
	out, code := launch("--num-nodes", "2")
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	wants(t, out, "could not get 2 machines for cluster c1", "✗ fluffycloud/east/east-a — fluff-h100-8 — quota", "you may have 0 H100 in east",
		"Quota: ask fluffycloud for more", "more offers were not tried")
	f.operate("DELETE", "faults", nil)
	f.full("fluff-h100-8", eastern...)
	out, _ = launch()
	wants(t, out, "could not get a machine for cluster c1 in any of 7 places", "no capacity", "No capacity: wait and try again", "--retry-until-up")
	for _, zone := range append(append([]string{}, northern...), eastern...) {
		wants(t, out, zone)
	}
	f.operate("POST", "faults", model.Fault{Kind: model.Cut, Op: "instances.create"})
	f.operate("POST", "capacity", serve.Capacity{Zone: "east-a", Type: "fluff-h100-8", Total: -1})
	out, _ = launch("--infra", "fluffycloud/east/east-a")
	wants(t, out, "we could not tell", "We could not tell: fluffycloud gave no proper answer; see whether it works with: sky check fluffycloud")
	f.operate("DELETE", "faults", nil)
	f.operate("POST", "faults", model.Fault{Kind: model.Fail, Op: "instances.create", Code: fluffyapi.Unauthorized, Message: "the token was revoked"})
	out, _ = launch("--infra", "fluffycloud/east/east-a")
	wants(t, out, "credentials", "the token was revoked")
	f.operate("DELETE", "faults", nil)
	if left := f.machines(); len(left) > 0 {
		t.Errorf("failed launches left %d machines", len(left))
	}
	wants(t, f.sky("gpus", "list", "--availability", "H100"), "fluffycloud/north/north-a", "fluff-h100-8", "0 of ")
}

// TestStrays makes machines that belong to nothing, as a lost database would, and
// sweeps them.
func TestStrays(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 0)
	f.sky("launch", "-y", "-d", "-c", "c1", "--infra", "fluffycloud", "--cpus", "1", "--", "true")
	wants(t, f.sky("sweep", "--grace", "0"), "No machines without a cluster.")
	// A cluster that is purged while its cloud refuses to end machines leaves them.
	f.operate("POST", "faults", model.Fault{Kind: model.Fail, Op: "instances.terminate", Code: fluffyapi.Forbidden, Message: "not you"})
	out, _ := f.run("down", "-y", "c1")
	wants(t, out, "not you")
	if s := f.status("c1"); s != "INIT" {
		t.Errorf("a cluster whose machines could not be ended is %q", s)
	}
	wants(t, f.sky("status", "-v", "c1"), "could not be given back")
	f.fails(0, []string{"cost money"}, "down", "-y", "--purge", "c1")
	f.fails(1, []string{"fluffycloud", "1 machine cost"}, "sweep", "--grace", "0")
	f.fails(1, []string{"-y"}, "sweep", "--grace", "0", "--terminate")
	f.operate("DELETE", "faults", nil)
	f.fails(1, []string{`"ended": false`}, "sweep", "--grace", "0", "-o", "json")
	f.fails(0, []string{"1 machine ended."}, "sweep", "--grace", "0", "--terminate", "-y")
	f.nothingLeft()
}

// TestAStartThatFailsLosesNoAutostop starts a stopped cluster while the cloud
// refuses to, and again: its machines must not run for ever then.
func TestAStartThatFailsLosesNoAutostop(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 0)
	f.sky("launch", "-y", "-d", "-c", "c", "--infra", "fluffycloud", "--cpus", "1", "-i", "1440", "--", "true")
	f.sky("stop", "-y", "c")
	f.operate("POST", "faults", model.Fault{Kind: model.Fail, Op: "instances.start", Code: fluffyapi.Unauthorized, Message: "the token was revoked"})
	f.fails(1, []string{"the token was revoked"}, "start", "-y", "c")
	f.operate("DELETE", "faults", nil)
	f.sky("start", "-y", "c")
	wants(t, f.sky("status", "-o", "json", "c"), `"status": "UP"`, `"autostop": 1440`)
	wants(t, f.sky("start", "-y", "c", "-i", "5", "--down"), "autostop was not changed", "sky autostop c -i 5 --down")
	f.sky("down", "-y", "c")
}
