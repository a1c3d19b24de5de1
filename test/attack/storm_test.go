//go:build attack && linux

package attack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// opLimit is how long one command may take, however often what it needs is killed.
const opLimit = 3 * time.Minute

// A storm is people who use one installation while somebody kills its parts.
//
// People work in rounds. After each round nothing is killed until all is quiet, and
// what is recorded is compared with what exists.
type storm struct {
	*counts
	t     *testing.T
	w     *harness.Workstation
	cloud *harness.Cloud // nil: nodes are on this machine
	team  *harness.Team  // nil: one server
	infra string
	runs  string          // the programs of jobs note here what they do
	told  map[string]bool // lines of logs that were judged

	mu        sync.Mutex
	marks     map[string]*program // by what a program notes
	cancelled map[string]bool     // managed jobs that somebody tried to cancel, by name
}

// A program is one job that was asked for.
type program struct {
	mark    string
	exit    int  // that it ends with
	managed bool // may run once for each attempt
	must    bool // whoever asked for it heard that it was submitted
}

func (s *storm) errorf(format string, args ...any) {
	s.t.Helper()
	s.add("wrong", 1)
	s.t.Errorf(format, args...)
}

// A result is how a command ended.
type result struct {
	code   int
	out    string
	killed bool // by the storm
	took   time.Duration
}

// do runs a command. One of ten is killed or interrupted on its way.
func (s *storm) do(r *rand.Rand, args ...string) result {
	var death time.Duration
	sig := syscall.SIGKILL
	if r.IntN(10) == 0 {
		death = time.Duration(20+r.IntN(1500)) * time.Millisecond
		if r.IntN(2) == 0 {
			sig = syscall.SIGINT
		}
	}
	return s.run(death, sig, args...)
}

func (s *storm) run(death time.Duration, sig syscall.Signal, args ...string) result {
	what := strings.Join(args[:1+min(1, len(args)-1)], " ")
	if args[0] != "jobs" {
		what = args[0]
	}
	s.add("operation "+what, 1)
	c := exec.Command(harness.Sky(), args...)
	c.Env, c.Dir = s.w.Env, s.w.Home
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = 5 * time.Second
	began := time.Now()
	if err := c.Start(); err != nil {
		s.errorf("sky %v: %v", args, err)
		return result{code: -1}
	}
	ended := make(chan struct{})
	go func() { c.Wait(); close(ended) }()
	var die <-chan time.Time
	if death > 0 {
		die = time.After(death)
	}
	res := result{}
	for limit := time.After(opLimit); ; {
		select {
		case <-ended:
			res.took = time.Since(began)
			res.code, res.out = c.ProcessState.ExitCode(), out.String()
			s.judge(args, res)
			return res
		case <-die:
			die = nil
			if c.Process.Signal(sig) == nil {
				res.killed = true
				s.add("kill command line "+sig.String(), 1)
			}
			if sig == syscall.SIGINT { // it may take its time to go, but goes
				limit = time.After(2 * time.Minute)
			}
		case <-limit:
			c.Process.Kill()
			<-ended
			s.add("hung", 1)
			s.errorf("sky %v hangs for %v:\n%s", args, time.Since(began).Round(time.Second), tail(out.String()))
			limit = nil
		}
	}
}

// judge looks at what every command owes: it did what it says or ends with a code
// and a message.
func (s *storm) judge(args []string, r result) {
	if r.killed {
		return
	}
	switch {
	case strings.Contains(r.out, "panic:") || strings.Contains(r.out, "goroutine 1 ["):
		s.errorf("sky %v panicked:\n%s", args, tail(r.out))
	case r.code < 0:
		s.errorf("sky %v was ended by a signal", args)
	case r.code != 0 && strings.TrimSpace(r.out) == "":
		s.errorf("sky %v: exit %d without a word", args, r.code)
	case r.code != 0 && strings.Contains(r.out, "cannot reach the API server"):
		s.add("gave up", 1)
		s.errorf("sky %v gave up after %v: exit %d\n%s", args, r.took.Round(time.Millisecond), r.code, tail(r.out))
	}
	if r.took > 30*time.Second {
		s.add("slower than 30 s", 1)
	}
}

func tail(s string) string { return s[max(0, len(s)-2500):] }

// program writes down what a job does when it runs and returns its script.
func (s *storm) program(p *program, seconds float64) string {
	s.mu.Lock()
	s.marks[p.mark] = p
	s.mu.Unlock()
	return fmt.Sprintf("echo start %[1]s >> %[2]s; sleep %.1[3]f; echo end %[1]s >> %[2]s; exit %[4]d", p.mark, s.runs, seconds, p.exit)
}

func (s *storm) must(mark string) {
	s.mu.Lock()
	s.marks[mark].must = true
	s.mu.Unlock()
}

// person is one user of clusters, whose clusters nobody else touches.
func (s *storm) person(r *rand.Rand, name string, until time.Time) {
	for n := 0; time.Now().Before(until); n++ {
		s.life(r, fmt.Sprintf("%s-%d", name, n), until)
	}
}

// life is one cluster from launch to down.
func (s *storm) life(r *rand.Rand, cluster string, until time.Time) {
	nodes := fmt.Sprint(1 + r.IntN(2))
	launch := &program{mark: cluster + "/launch"}
	args := []string{"launch", "-y", "-d", "-c", cluster, "--infra", s.infra, "--num-nodes", nodes, "--cpus", "1+", "--", "[ $SKYPILOT_NODE_RANK != 0 ] || { " + s.program(launch, 0.2) + "; }"}
	res := s.do(r, args...)
	switch {
	case res.code == 0 && !res.killed:
		s.must(launch.mark)
	case !res.killed && s.refused(res):
		s.add("launch refused", 1)
	case !res.killed:
		s.errorf("sky launch %s: exit %d\n%s", cluster, res.code, tail(res.out))
	}
	up := res.code == 0 && !res.killed
	for n := 0; up && n < 5 && time.Now().Before(until); n++ {
		switch r.IntN(9) {
		case 0, 1, 2:
			s.exec(r, cluster, n)
		case 3:
			s.want(r, 0, "queue", cluster)
		case 4:
			s.want(r, 0, "status", cluster)
		case 5:
			s.want(r, 0, "autostop", "-y", "-i", "60", cluster)
		case 6:
			// Its exit code is that of the last job: 100 failed, 101 not ended, 103 cancelled.
			if res := s.do(r, "logs", cluster, "--no-follow", "--tail", "5"); !res.killed && res.code != 0 && res.code != 100 && res.code != 101 && res.code != 103 {
				s.errorf("sky logs %s: exit %d\n%s", cluster, res.code, tail(res.out))
			}
		case 7:
			p := &program{mark: fmt.Sprintf("%s/cancelled%d", cluster, n)}
			if s.do(r, "exec", cluster, "-d", "--", "[ $SKYPILOT_NODE_RANK != 0 ] || { "+s.program(p, 60)+"; }").code == 0 {
				s.do(r, "cancel", "-y", "-a", cluster)
			}
		case 8:
			stop := s.do(r, "stop", "-y", cluster)
			if stop.code != 0 && !stop.killed {
				s.errorf("sky stop %s: exit %d\n%s", cluster, stop.code, tail(stop.out))
			}
			res := s.do(r, "start", "-y", cluster)
			if res.code != 0 && !res.killed && !s.refused(res) {
				s.errorf("sky start %s: exit %d\n%s", cluster, res.code, tail(res.out))
			}
			// A stop whose command line was killed goes on, perhaps on another server and
			// after the start.
			up = res.code == 0 && !res.killed && !stop.killed
		}
	}
	if r.IntN(5) == 0 { // this one lives on
		return
	}
	if res := s.do(r, "down", "-y", cluster); res.code == 0 && !res.killed && !s.gone(cluster) {
		s.errorf("sky down %s said that it is down, and it is there:\n%s", cluster, tail(res.out))
	} else if res.code != 0 && !res.killed && !strings.Contains(res.out, "not found") && !strings.Contains(res.out, "does not exist") && !strings.Contains(res.out, "o cluster") {
		s.errorf("sky down %s: exit %d\n%s", cluster, res.code, tail(res.out))
	}
}

// refused reports whether the cloud said no for reasons of its own.
func (s *storm) refused(r result) bool {
	return s.cloud != nil && r.code == 1 && (strings.Contains(r.out, "could not get") || strings.Contains(r.out, "could not be"))
}

// want runs a command that has to end with a code unless the storm killed it.
func (s *storm) want(r *rand.Rand, code int, args ...string) {
	if res := s.do(r, args...); res.code != code && !res.killed {
		s.errorf("sky %v: exit %d, want %d, after %v\n%s", args, res.code, code, res.took.Round(time.Millisecond), tail(res.out))
	}
}

// exec runs a program on a cluster that is up; its exit code comes back.
func (s *storm) exec(r *rand.Rand, cluster string, n int) {
	p := &program{mark: fmt.Sprintf("%s/exec%d", cluster, n)}
	want := 0
	if r.IntN(3) == 0 {
		p.exit, want = 7, 100
	}
	res := s.do(r, "exec", cluster, "--", "[ $SKYPILOT_NODE_RANK != 0 ] || { "+s.program(p, r.Float64()*2)+"; }")
	if res.killed {
		return
	}
	if res.code != want {
		s.errorf("sky exec %s: exit %d, want %d, after %v\n%s", cluster, res.code, want, res.took.Round(time.Millisecond), tail(res.out))
		return
	}
	s.must(p.mark)
	s.add("jobs", 1)
	if at := harness.Lines(s.runs); at["start "+p.mark] != 1 || at["end "+p.mark] != 1 {
		s.errorf("sky exec %s: exit %d, and its program began %d times and ended %d times", cluster, res.code, at["start "+p.mark], at["end "+p.mark])
	}
}

// manager is one user of managed jobs.
func (s *storm) manager(r *rand.Rand, name string, until time.Time) {
	for n := 0; time.Now().Before(until); n++ {
		p := &program{mark: fmt.Sprintf("%s-%d", name, n), managed: true}
		if r.IntN(4) == 0 {
			p.exit = 5
		}
		script := s.program(p, r.Float64()*6)
		res := s.do(r, "jobs", "launch", "-y", "-d", "-n", p.mark, "--infra", s.infra, "--cpus", "1+", "--", script)
		switch {
		case res.code == 0 && !res.killed:
			s.must(p.mark)
			s.add("managed jobs", 1)
		case !res.killed:
			s.errorf("sky jobs launch: exit %d\n%s", res.code, tail(res.out))
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		switch r.IntN(6) {
		case 0:
			s.mu.Lock()
			s.cancelled[p.mark] = true
			s.mu.Unlock()
			if res := s.do(r, "jobs", "cancel", "-y", "-n", p.mark); res.code != 0 && !res.killed && !strings.Contains(strings.ToLower(res.out), "no job") && !strings.Contains(res.out, "no managed job") {
				s.errorf("sky jobs cancel: exit %d\n%s", res.code, tail(res.out))
			}
		case 1:
			s.want(r, 0, "jobs", "queue")
		}
	}
}

// gone reports whether no node of a cluster is left.
func (s *storm) gone(cluster string) bool {
	if s.cloud != nil {
		for _, m := range s.cloud.Machines() {
			if owns(cluster, m.Tags[tagCluster]) {
				return false
			}
		}
		return true
	}
	for _, f := range s.w.Folders() {
		if owns(cluster, filepath.Base(filepath.Dir(f))) {
			return false
		}
	}
	return true
}

const tagCluster = "skypilot-cluster-name"

// owns reports whether a name on a cloud is that of a cluster: the name, a dash and
// the user's hash.
func owns(cluster, onCloud string) bool {
	rest, ok := strings.CutPrefix(onCloud, cluster+"-")
	return ok && !strings.Contains(rest, "-")
}

// kill is one disturbance: something is killed, held, or taken away.
func (s *storm) kill(r *rand.Rand) {
	agents := s.w.Agents()
	if s.cloud != nil {
		agents = s.cloud.Agents()
	}
	held := time.Duration(200+r.IntN(3000)) * time.Millisecond
	switch what := r.IntN(10); {
	case what < 3 && s.team != nil:
		one := s.team.Servers[r.IntN(len(s.team.Servers))]
		s.add("kill server", 1)
		s.team.Kill(one)
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		s.team.Start(one)
	case what < 3:
		s.add("kill server", 1)
		s.w.KillServer()
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		s.start()
	case what < 5 && len(agents) > 0:
		s.add("kill agent", 1)
		syscall.Kill(agents[r.IntN(len(agents))], syscall.SIGKILL)
	case what < 6 && s.team == nil:
		if pid := s.w.ServerPID(); pid != 0 {
			s.add("stop and continue server", 1)
			hold(pid, held)
		}
	case what < 7 && len(agents) > 0:
		s.add("stop and continue agent", 1)
		hold(agents[r.IntN(len(agents))], held)
	default:
		s.preempt(r)
	}
}

func hold(pid int, d time.Duration) {
	if syscall.Kill(pid, syscall.SIGSTOP) == nil {
		time.Sleep(d)
		syscall.Kill(pid, syscall.SIGCONT)
	}
}

// start starts the server; a command may have done so already.
func (s *storm) start() {
	if out, code := s.w.Run("api", "start"); code != 0 {
		s.errorf("sky api start: exit %d\n%s", code, tail(out))
	}
}

// preempt takes a machine of a managed job away.
func (s *storm) preempt(r *rand.Rand) {
	if s.cloud != nil {
		var own []string
		for _, m := range s.cloud.Machines() {
			if strings.HasPrefix(m.Tags[tagCluster], "job") && m.State == "running" {
				own = append(own, m.ID)
			}
		}
		if len(own) > 0 {
			s.add("preemptions", 1)
			s.cloud.Try("POST", "instances/"+own[r.IntN(len(own))]+"/preempt", map[string]any{"after": r.Float64() * 2})
		}
		return
	}
	var own []string
	for _, f := range s.w.Folders() {
		if name := filepath.Base(filepath.Dir(f)); strings.HasPrefix(name, "job") {
			own = append(own, name)
		}
	}
	if len(own) == 0 {
		return
	}
	name := own[r.IntN(len(own))]
	if s.w.Preempt(name[:strings.LastIndex(name, "-")]) {
		s.add("preemptions", 1)
	}
}

// trouble makes FluffyCloud misbehave for a while.
func (s *storm) trouble(r *rand.Rand) {
	faults := []map[string]any{
		{"kind": "lose", "op": "instances.create", "times": 1 + r.IntN(2)},
		{"kind": "lose", "op": "instances.terminate", "times": 1 + r.IntN(2)},
		{"kind": "lose", "op": "instances.*", "chance": 0.2, "times": 4},
		{"kind": "throttle", "op": "instances.*", "times": 1 + r.IntN(4)},
		{"kind": "cut", "op": "instances.*", "times": 1 + r.IntN(4)},
		{"kind": "hide", "op": "instances.create", "times": 1 + r.IntN(2)},
	}
	f := faults[r.IntN(len(faults))]
	s.add("fault "+fmt.Sprint(f["kind"]), 1)
	s.cloud.Try("POST", "faults", f)
}

// weather is the storm itself: rounds of people and kills, each with a quiet
// end.
func (s *storm) weather(r *rand.Rand, lasts, round time.Duration, people, managers int) {
	end := time.Now().Add(lasts)
	for n := 0; time.Now().Before(end); n++ {
		until := time.Now().Add(round)
		if until.After(end) {
			until = end
		}
		var everybody, killer sync.WaitGroup
		for p := range people {
			own := rand.New(rand.NewPCG(r.Uint64(), uint64(p)))
			everybody.Go(func() { s.person(own, fmt.Sprintf("c%d-%d", n, p), until) })
		}
		for p := range managers {
			own := rand.New(rand.NewPCG(r.Uint64(), uint64(p)))
			everybody.Go(func() { s.manager(own, fmt.Sprintf("job%d-%d", n, p), until) })
		}
		stop := make(chan struct{})
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		killer.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(300+own.IntN(3000)) * time.Millisecond):
				}
				if s.cloud != nil && own.IntN(4) == 0 {
					s.trouble(own)
				} else {
					s.kill(own)
				}
			}
		})
		// Kills outlast the round a little: what goes on then is disturbed as well.
		done := make(chan struct{})
		go func() { everybody.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Until(until) + 5*time.Second):
		}
		close(stop)
		killer.Wait()
		if s.cloud != nil {
			s.cloud.Operate("DELETE", "faults", nil)
		}
		if s.team == nil {
			s.start()
		}
		<-done
		s.add("quiet points", 1)
		s.quiet()
		if s.t.Failed() && !long() {
			return
		}
	}
}

func newStorm(t *testing.T, w *harness.Workstation, cloud *harness.Cloud, team *harness.Team, infra string) *storm {
	s := &storm{counts: count(t), t: t, w: w, cloud: cloud, team: team, infra: infra,
		marks: map[string]*program{}, cancelled: map[string]bool{}, told: map[string]bool{}, runs: filepath.Join(w.Home, "runs")}
	if err := os.WriteFile(s.runs, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStormOnThisMachine uses local nodes under kills of all parts.
func TestStormOnThisMachine(t *testing.T) {
	t.Parallel()
	r := random(t)
	s := newStorm(t, harness.New(t), nil, nil, "local")
	s.start()
	s.weather(r, length(t, 30*time.Second), 40*time.Second, 2, 2)
	s.end()
}

// TestStormOnFluffyCloud uses a cloud that loses answers and takes machines away.
func TestStormOnFluffyCloud(t *testing.T) {
	t.Parallel()
	r := random(t)
	w, cloud := harness.NewFluffy(t, 50*time.Millisecond)
	s := newStorm(t, w, cloud, nil, "fluffycloud")
	s.start()
	s.weather(r, length(t, 30*time.Second), 60*time.Second, 2, 2)
	s.end()
}

// TestStormOnThreeServers kills three servers on one PostgreSQL in rotation.
func TestStormOnThreeServers(t *testing.T) {
	t.Parallel()
	r := random(t)
	tm := harness.NewTeam(t, 3)
	s := newStorm(t, tm.Workstation, tm.Cloud, tm, "fluffycloud")
	s.weather(r, length(t, 25*time.Second), 60*time.Second, 2, 2)
	s.end()
}
