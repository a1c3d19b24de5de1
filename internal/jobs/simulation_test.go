package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/state"
)

// TestJobsSurviveBadDays runs many managed jobs under several servers in
// virtual time: machines are taken away, networks are cut for up to half an
// hour, servers die at any call, the cloud's answers are late, lost, refused
// and wrong, and every other day machines hang for ever. Every job must reach its right end, no healthy job may be given
// up, none may run again after it succeeded, nothing may be left, and what a
// the provider confirmed must be acted upon within seconds.
//
//	SKY_SIM_JOBS=10000 SKY_SIM_SEEDS=100 go test -run TestJobsSurviveBadDays -timeout 0 ./internal/jobs
//	SKY_SIM_SEED=17 …    # one seed alone
func TestJobsSurviveBadDays(t *testing.T) {
	jobs, seeds, first := setting(t, "SKY_SIM_JOBS", 100), setting(t, "SKY_SIM_SEEDS", 3), setting(t, "SKY_SIM_FIRST", 0)
	if testing.Short() { // under the race detector, which needs one bad day
		jobs, seeds = min(jobs, 40), 1
	}
	if one := os.Getenv("SKY_SIM_SEED"); one != "" {
		first, seeds = setting(t, "SKY_SIM_SEED", 0), 1
	}
	var sum counts
	start := time.Now()
	for seed := first; seed < first+seeds; seed++ {
		var s *simulation
		synctest.Test(t, func(t *testing.T) { s = simulate(t, uint64(seed), jobs, newMemory()) })
		sum.add(s.count)
		t.Logf("seed %d: %v of virtual time, %d deaths, %+v", seed, s.took.Round(time.Second), s.deaths, s.count)
		if len(s.violations) > 0 {
			t.Fatalf("seed %d: play it again with SKY_SIM_SEED=%d SKY_SIM_JOBS=%d\n%s", seed, seed, jobs, strings.Join(s.violations, "\n"))
		}
	}
	t.Logf("%d jobs × %d seeds in %v: %+v", jobs, seeds, time.Since(start).Round(time.Second), sum)
}

// TestMemoryIsADatabase plays days on the real database: the one in memory
// must not be kinder.
func TestMemoryIsADatabase(t *testing.T) {
	jobs, seeds := 20, uint64(1)
	if testing.Short() { // see above
		jobs, seeds = 10, 1
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if s := simulate(t, seed, jobs, stored{db}); len(s.violations) > 0 {
				t.Errorf("seed %d:\n%s", seed, strings.Join(s.violations, "\n"))
			}
		})
	}
}

func setting(t *testing.T, name string, or int) int {
	s := os.Getenv(name)
	if s == "" {
		return or
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func (c *counts) add(d counts) {
	c.clusters += d.clusters
	c.preempted += d.preempted
	c.partitions += d.partitions
	c.hung += d.hung
	c.lies += d.lies
	c.lostRuns += d.lostRuns
	c.completed += d.completed
	c.repairs += d.repairs
	c.redone += d.redone
	c.slowest = max(c.slowest, d.slowest)
}

// simulation is one bad day.
type simulation struct {
	*outside
	t       *testing.T
	db      database
	rng     *rand.Rand
	dir     string
	servers []*server
	deaths  int
	took    time.Duration
	settled map[string]bool // attempts whose end was written, by key
	goneAt  []time.Time     // when a server began to go, and when it was gone
}

// server is one of the servers, in its present life.
type server struct {
	life    *life
	changes notify.Keyed[string]
	m       *Manager
	ended   chan struct{}
}

const (
	simServers  = 3
	simLaunches = 256
	simLimit    = 48 * time.Hour // by then every job must have ended
)

func simulate(t *testing.T, seed uint64, jobs int, db database) *simulation {
	c, provider, offers, err := newCloud(seed, jobs)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{
		outside: &outside{
			seed: seed, cloud: c, provider: provider, offers: offers, plans: map[int]*plan{},
			records: map[string]*row{}, machines: map[string]*gang{}, lastLost: map[attemptTask]loss{},
		},
		t: t, db: db, rng: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), servers: make([]*server, simServers), settled: map[string]bool{},
	}
	if seed%2 == 1 { // machines hang, and servers do not wait for ever
		s.patience = 45 * time.Minute
	}
	s.listen = func() []*notify.Keyed[string] {
		var out []*notify.Keyed[string]
		for _, v := range s.servers {
			if v != nil && !v.life.isDead() {
				out = append(out, &v.changes)
			}
		}
		return out
	}
	s.tell = func() []*Manager {
		var out []*Manager
		for _, v := range s.servers {
			if v != nil && !v.life.isDead() {
				out = append(out, v.m)
			}
		}
		return out
	}
	s.db = witness{database: db, managedJobs: db.ManagedJobs(), s: s}
	for n := range jobs {
		s.submit(n)
	}
	day, over := context.WithCancel(context.Background())
	gone := make(chan struct{}, simServers)
	for n := range simServers {
		go func() { s.keep(day, n); gone <- struct{}{} }()
	}
	s.untilDone(jobs)
	s.took = time.Since(epoch)
	over()
	for range simServers {
		<-gone
	}
	s.audit(jobs)
	return s
}

// submit makes a job up. What a run will do is settled here, so that it does
// not depend on what happens at the same time.
func (s *simulation) submit(n int) {
	r := rand.New(rand.NewPCG(s.seed, uint64(n)+1000))
	p := &plan{nodes: 1, work: time.Duration(1+r.IntN(20)) * time.Minute, spot: r.IntN(4) > 0, failover: r.IntN(4) == 0, results: []int{0}, want: []api.ManagedStatus{api.ManagedSucceeded}}
	if r.IntN(5) == 0 {
		p.nodes = 2 + r.IntN(3)
	}
	restarts, codes := 0, ""
	switch r.IntN(12) {
	case 0:
		p.results, p.want = []int{3}, []api.ManagedStatus{api.ManagedFailed}
	case 1:
		p.results, restarts = []int{1, 2, 0}, 2
	case 2:
		p.results, restarts, p.want = []int{1, 2, 4}, 2, []api.ManagedStatus{api.ManagedFailed}
	case 3:
		p.results, codes = []int{33, 33, 33, 0}, "33"
	case 4:
		p.results, p.setup, p.want = []int{5}, true, []api.ManagedStatus{api.ManagedFailedSetup}
	case 5:
		p.cancel = time.Duration(r.Int64N(int64(20 * time.Minute)))
		if r.IntN(2) == 0 {
			p.grace, p.leaves = time.Duration(r.Int64N(int64(10*time.Minute))), time.Duration(r.Int64N(int64(10*time.Minute)))
		}
		p.want = append(p.want, api.ManagedCancelled)
	}
	p.left = p.work
	strategy := "EAGER_NEXT_REGION"
	if p.failover {
		strategy = "FAILOVER"
	}
	recovery := "cluster"
	if p.perNode = p.nodes > 1 && r.IntN(2) == 0; p.perNode {
		recovery = "node"
	}
	dag := fmt.Sprintf("name: j%d\nnum_nodes: %d\nresources:\n  use_spot: %v\n  job_recovery: {strategy: %s, max_restarts_on_errors: %d, recover_on_exit_codes: [%s], recovery: %s}\nrun: work\n",
		n, p.nodes, p.spot, strategy, restarts, codes, recovery)
	j, err := s.db.ManagedJobs().Submit(context.Background(), &state.ManagedJob{
		RequestID: fmt.Sprint(n), Name: fmt.Sprintf("j%d", n), UserHash: "u", Dag: []byte(dag), Priority: r.IntN(3), SubmittedAt: time.Now(),
		Tasks: []*state.ManagedTask{{Name: fmt.Sprintf("j%d", n)}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.plans[j.ID] = p
}

// keep runs one server after the other, until the day is over.
func (s *simulation) keep(day context.Context, n int) {
	r := rand.New(rand.NewPCG(s.seed, uint64(n)+10))
	for lives := 1; day.Err() == nil; lives++ {
		ctx, end := context.WithCancel(day)
		v := &server{life: newLife(end), ended: make(chan struct{})}
		d := crashingDatabase{managedJobs: s.db.ManagedJobs(), d: s.db, l: v.life}
		m := newManager(d, &fakeEnvironment{outside: s.outside, life: v.life, changes: &v.changes}, slog.New(slog.DiscardHandler), fmt.Sprintf("s%d-%d", n, lives), s.dir, simLaunches)
		m.patience = func() time.Duration { return s.patience }
		v.m = m
		s.mu.Lock()
		s.servers[n] = v
		s.mu.Unlock()
		go func() { m.Run(ctx); close(v.ended) }()
		s.sleep(ctx, time.Duration(r.ExpFloat64()*float64(15*time.Minute)))
		switch r.IntN(4) {
		case 0: // it is asked to go
		default: // it dies, some calls from now
			v.life.light(r.IntN(2000))
			s.sleep(ctx, time.Minute)
			v.life.light(0)
			_ = v.life.breath()
		}
		if day.Err() == nil {
			s.goes()
		}
		end()
		<-v.ended // what it still does may take a while
		if day.Err() == nil {
			s.goes()
			s.mu.Lock()
			s.deaths++
			s.mu.Unlock()
			s.sleep(day, time.Duration(r.Int64N(int64(time.Minute))))
		}
		v.life.light(0)
		_ = v.life.breath()
	}
}

// goes notes that a server does not look after its jobs any more.
func (s *simulation) goes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goneAt = append(s.goneAt, time.Now())
}

func (s *simulation) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// untilDone waits until every job is, and cancels those that are to be.
func (s *simulation) untilDone(jobs int) {
	done := make([]bool, jobs+1)
	asked := make([]bool, jobs+1)
	left := jobs
	for left > 0 {
		time.Sleep(30 * time.Second)
		if time.Since(epoch) > simLimit {
			for id := 1; id <= jobs; id++ {
				if j, err := s.db.ManagedJobs().Get(context.Background(), id); err == nil && j.Schedule != api.ScheduleDone {
					attempts, _ := s.db.ManagedJobs().Attempts(context.Background(), id)
					s.violation("job %d is still %s, %s: %s; its latest attempt is %+v", id, j.Schedule, j.Current().Status, j.Current().Details, attempts[len(attempts)-1])
					if m, ok := s.db.(witness).database.(*memory); ok {
						s.violation("its lease is %+v, epoch %d", m.leases[state.ManagedLease+strconv.Itoa(id)], j.Epoch)
					}
					if b, err := os.ReadFile(filepath.Join(s.dir, strconv.Itoa(id), "controller.log")); err == nil {
						s.violation("its log ends: %s", b[max(0, len(b)-2000):])
					}
					if os.Getenv("SKY_SIM_STACKS") != "" {
						_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
					}
				}
			}
			return
		}
		for id := 1; id <= jobs; id++ {
			if done[id] {
				continue
			}
			if p := s.plans[id]; p.cancel > 0 && !asked[id] && time.Since(epoch) >= p.cancel {
				asked[id] = true
				if _, err := s.db.ManagedJobs().AskCancel(context.Background(), []int{id}, p.grace); err != nil {
					s.t.Fatal(err)
				}
			}
			j, err := s.db.ManagedJobs().Get(context.Background(), id)
			if err != nil {
				s.t.Fatal(err)
			}
			if done[id] = j.Schedule == api.ScheduleDone; done[id] {
				left--
			}
		}
	}
}
