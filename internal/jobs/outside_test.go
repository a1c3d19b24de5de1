package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/state"
)

// outside is what servers share besides the database: a cloud, the machines
// rented there with their agents, and the records of clusters. It knows what
// is true, so it notices when a server does something that it must not.
type outside struct {
	seed     uint64
	calm     bool // nothing goes wrong by itself
	cloud    *model.Cloud
	provider cloud.Provider
	offers   []cloud.Offer
	plans    map[int]*plan
	listen   func() []*cluster.Bells[string] // of the servers that live

	mu       sync.Mutex
	records  map[string]*row  // clusters by name
	machines map[string]*gang // by incarnation
	seq      int

	lastLost   map[attemptTask]string // region that took a task's machines last
	violations []string
	count      counts
}

type attemptTask struct{ job, task int }

// counts are what a simulation reports.
type counts struct {
	clusters, preempted, partitions, lies, lostRuns, completed, repairs int
	redone                                                              time.Duration
	slowest                                                             time.Duration // from a proof to the decision
}

// plan is what becomes of a job.
type plan struct {
	nodes    int
	spot     bool
	failover bool
	perNode  bool          // recovery: node
	work     time.Duration // of one run, less what checkpoints saved
	results  []int         // exit codes of the runs that were not cut off, in order; the last one counts for more
	setup    bool          // the first result is setup's
	cancel   time.Duration // after the beginning; 0: never
	want     []api.ManagedStatus

	// What happened, guarded by outside.mu.
	runs int           // that were not cut off
	left time.Duration // of the work
	won  bool          // a run succeeded and its record could be read
}

// row is a cluster's row, as durable as the database.
type row struct {
	state.Cluster
	request string
	locked  chan struct{} // holds one token while somebody works on the cluster
}

// lock waits for whoever works on the cluster.
func (c *row) lock(ctx context.Context) (func(), error) {
	select {
	case c.locked <- struct{}{}:
		return func() { <-c.locked }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// gang is the machines of one incarnation with their agents.
type gang struct {
	o       *outside
	id      cloud.ClusterID
	ids     []string // machines by rank
	dead    []bool
	plan    *plan
	rng     *rand.Rand
	cut     bool // nobody reaches the agents
	watched bool
	given   bool      // back, by somebody's wish
	lied    bool      // the cloud lies about one of the machines at the moment
	proven  time.Time // when the provider said so
	run     *run
	timers  []*time.Timer
}

// run is one job on a gang's head.
type run struct {
	job     agentapi.Job
	started time.Time
	over    chan struct{}
}

func (o *outside) violation(format string, a ...any) {
	if len(o.violations) < 20 {
		o.violations = append(o.violations, fmt.Sprintf("%v: ", time.Since(epoch).Round(time.Millisecond))+fmt.Sprintf(format, a...))
	}
}

// epoch is when the time in a bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// ring tells the servers that live that something happened to a cluster.
func (o *outside) ring(hash string) {
	for _, b := range o.listen() {
		b.Ring(hash)
	}
}

// persist asks a cloud again that did not answer or was busy, as the wrappers
// of package wrap do.
func persist(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		_, busy := errors.AsType[*cloud.ThrottledError](err)
		_, mute := errors.AsType[*cloud.UnreachableError](err)
		if !busy && !mute || try == 5 || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}

// The life of a gang.

// born gives a new incarnation its machines and plans its troubles.
func (o *outside) born(c *row, nodes []cloud.Node, p *plan, job int) *gang {
	g := o.machines[c.Hash]
	if g == nil {
		o.count.clusters++
		g = &gang{o: o, id: id(c), plan: p, dead: make([]bool, p.nodes), rng: rand.New(rand.NewPCG(o.seed, uint64(job)<<20|uint64(o.seq)))}
		o.machines[c.Hash] = g
		if !o.calm {
			g.plague()
		}
	}
	if g.ids == nil {
		g.ids = make([]string, p.nodes)
	}
	for _, n := range nodes {
		if n.Rank == 0 && g.ids[0] != "" && g.ids[0] != n.ID && g.run != nil {
			g.forgets() // a new head knows of nothing
		}
		g.ids[n.Rank], g.dead[n.Rank] = n.ID, false
	}
	return g
}

func (g *gang) after(d time.Duration, f func()) {
	g.timers = append(g.timers, time.AfterFunc(d, func() {
		g.o.mu.Lock()
		defer g.o.mu.Unlock()
		f()
	}))
}

// plague plans what goes wrong.
func (g *gang) plague() {
	if g.plan.spot && g.rng.IntN(3) == 0 {
		rank := g.rng.IntN(g.plan.nodes)
		g.after(time.Duration(g.rng.Int64N(int64(g.plan.work))), func() { g.lose(rank) })
	}
	if g.rng.IntN(6) == 0 {
		at, long := time.Duration(g.rng.Int64N(int64(g.plan.work))), time.Duration(g.rng.Int64N(int64(30*time.Minute)))
		g.after(at, g.partition)
		g.after(at+long, g.heal)
	}
	if g.rng.IntN(10) == 0 { // the cloud lies about a machine for a while
		rank := g.rng.IntN(g.plan.nodes)
		at, long := time.Duration(g.rng.Int64N(int64(g.plan.work))), time.Duration(g.rng.Int64N(int64(time.Minute)))
		g.after(at, func() {
			if g.cut || g.ids == nil || g.ids[rank] == "" || g.dead[rank] {
				return // with the agents out of reach, too, nobody could know better
			}
			g.lied = true
			g.o.count.lies++
			fault := model.Fault{ID: "lie-" + g.id.Hash, Kind: model.Lie, Instance: g.ids[rank], State: []string{"terminated", "stopped"}[g.rng.IntN(2)]}
			if err := g.o.cloud.Inject(fault); err != nil {
				panic(err)
			}
			g.after(long, func() {
				g.o.cloud.Remove(fault.ID)
				g.lied = false
			})
		})
	}
}

// lose takes a machine away, as clouds do with spot machines.
func (g *gang) lose(rank int) {
	if g.ids == nil || g.dead[rank] || g.ids[rank] == "" {
		return
	}
	if err := g.o.cloud.Kill(g.ids[rank], "preempted"); err != nil {
		return
	}
	g.o.count.preempted++
	g.dead[rank] = true
	r := g.run
	if r == nil || r.job.Status.Terminal() {
		g.broken()
		return
	}
	g.saved(r)
	if rank == 0 {
		g.broken()
		return
	}
	if g.rng.IntN(2) == 0 { // its peers know before the cloud tells
		late := model.Fault{ID: "lie-" + g.id.Hash, Kind: model.Lie, Instance: g.ids[rank], State: "running"}
		if err := g.o.cloud.Inject(late); err != nil {
			panic(err)
		}
		g.after(time.Duration(g.rng.Int64N(int64(40*time.Second))), func() { g.o.cloud.Remove(late.ID) })
	}
	g.after(time.Second, func() { // the head notices
		if !g.dead[0] && g.run == r {
			g.ends(r, api.JobFailedDriver, nil)
		}
		g.broken()
	})
}

// saved keeps what a run that was cut off had written to its checkpoint, one a
// minute.
func (g *gang) saved(r *run) {
	done := time.Since(r.started)
	kept := done.Truncate(time.Minute)
	g.plan.left -= min(kept, g.plan.left)
	g.o.count.redone += done - kept
	g.o.count.lostRuns++
}

func (g *gang) partition() {
	if !g.cut && !g.gone() && !g.lied {
		g.cut = true
		g.o.count.partitions++
		g.broken()
	}
}

func (g *gang) heal() {
	g.cut = false
	g.o.ring(g.id.Hash)
}

func (g *gang) gone() bool {
	for _, d := range g.dead {
		if !d {
			return false
		}
	}
	return true
}

func (g *gang) whole() bool {
	for _, d := range g.dead {
		if d {
			return false
		}
	}
	return true
}

// healthy tells whether a job runs undisturbed.
func (g *gang) healthy() bool {
	return !g.given && g.whole() && g.run != nil && !g.run.job.Status.Terminal()
}

// broken is what servers notice at once: their connection breaks. One of them
// looks until the agents are back or the cluster is gone, as the watcher of
// package cluster does.
func (g *gang) broken() {
	g.o.ring(g.id.Hash)
	if g.watched {
		return
	}
	g.watched = true
	var look func(wait time.Duration)
	look = func(wait time.Duration) {
		g.after(wait, func() {
			c := g.o.records[g.id.Name]
			if c == nil || c.Hash != g.id.Hash || c.Status != api.ClusterUp || g.whole() && !g.cut {
				g.watched = false
				return
			}
			if len(g.o.listen()) > 0 {
				select {
				case c.locked <- struct{}{}:
					g.o.mu.Unlock()
					_, _ = g.o.refresh(context.Background(), c)
					g.o.mu.Lock()
					<-c.locked
				default:
				}
			}
			look(min(2*wait, 10*time.Second))
		})
	}
	look(100 * time.Millisecond)
}

// submit runs a job once per key, whatever is sent how often.
func (g *gang) submit(key string) (int, error) {
	if g.cut || g.dead[0] {
		return 0, errors.New("the agent does not answer")
	}
	if g.run != nil && g.run.job.Key == key {
		return g.run.job.ID, nil
	}
	id := 1
	if g.run != nil {
		id = g.run.job.ID + 1
		if !g.run.job.Status.Terminal() {
			return 0, errors.New("a job of an earlier attempt still runs")
		}
	}
	p := g.plan
	if p.won {
		g.o.violation("cluster %s: %s runs again after it succeeded", g.id.Name, key)
	}
	r := &run{job: agentapi.Job{ID: id, Key: key, Status: api.JobRunning}, started: time.Now(), over: make(chan struct{})}
	g.run = r
	g.after(p.left, func() {
		if !g.whole() || g.run != r || r.job.Status.Terminal() {
			return
		}
		code := p.results[min(p.runs, len(p.results)-1)]
		p.runs++
		g.o.count.completed++
		switch {
		case code == 0:
			if !g.cut && len(g.o.listen()) > 0 {
				p.won = true
			}
			g.ends(r, api.JobSucceeded, []int{0})
		case p.setup:
			g.ends(r, api.JobFailedSetup, []int{code})
		default:
			p.left = p.work
			g.ends(r, api.JobFailed, []int{code})
		}
	})
	return id, nil
}

func (g *gang) ends(r *run, s api.JobStatus, codes []int) {
	if r.job.Status.Terminal() {
		return
	}
	r.job.Status, r.job.ExitCodes, r.job.EndedAt = s, codes, float64(time.Now().UnixMicro())/1e6
	close(r.over)
	if !g.cut {
		g.o.ring(g.id.Hash)
	}
}

// forgets is what a new head does with the job of the one before.
func (g *gang) forgets() {
	if !g.run.job.Status.Terminal() {
		close(g.run.over)
	}
	g.run = nil
}

// end is what remains of a gang whose machines are given back.
func (g *gang) end() {
	for _, t := range g.timers {
		t.Stop()
	}
	g.o.cloud.Remove("lie-" + g.id.Hash)
	if g.run != nil && !g.run.job.Status.Terminal() {
		close(g.run.over)
		g.run.job.Status = api.JobCancelled
	}
}

// Clusters, as package cluster keeps them.

func id(c *row) cloud.ClusterID {
	return cloud.ClusterID{Installation: "sim", Name: c.Name, Hash: c.Hash}
}

// refresh brings a record up to date with what the provider and the agents say.
func (o *outside) refresh(ctx context.Context, c *row) (cluster.Verdict, error) {
	nodes, err := o.provider.Nodes(ctx, id(c))
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.records[c.Name]; now == nil || now.Hash != c.Hash {
		return cluster.Verdict{Gone: true, Reason: "the cluster is gone"}, nil
	}
	g := o.machines[c.Hash]
	seen := cluster.Observation{Nodes: nodes, NodesErr: err, AgentErr: errors.New("no answer")}
	for rank, dead := range g.dead {
		if dead || g.cut {
			seen.Silent++
			continue
		}
		seen.Answered = append(seen.Answered, rank)
		if rank == 0 {
			seen.Agent = &agentapi.Info{State: agentapi.AgentRunning}
		}
	}
	v := cluster.Decide(&c.Cluster, seen, time.Now())
	switch {
	case v.Unknown:
		return v, errors.New(v.Reason)
	case v.Gone:
		if g.healthy() {
			o.violation("cluster %s of a healthy job is given back: %s (cut %v, lied %v, dead %v, machines %v, listed %+v)", c.Name, v.Reason, g.cut, g.lied, g.dead, g.ids, nodes)
		}
		o.mu.Unlock()
		err := persist(ctx, func() error { return o.provider.Terminate(ctx, id(c)) })
		o.mu.Lock()
		if err != nil {
			return v, err
		}
		o.forget(c)
	case v.Status != c.Status:
		c.Status, c.LastEvent, c.StatusUpdatedAt = v.Status, v.Reason, time.Now()
		if v.Status != api.ClusterUp && g.proven.IsZero() {
			g.proven = time.Now()
		}
		o.ring(c.Hash)
	}
	return v, nil
}

func (o *outside) forget(c *row) {
	if now := o.records[c.Name]; now != nil && now.Hash == c.Hash {
		delete(o.records, c.Name)
	}
	if g := o.machines[c.Hash]; g != nil {
		if g.proven.IsZero() {
			g.proven = time.Now()
		}
		g.end()
	}
	o.ring(c.Hash)
}

// down gives a cluster back.
func (o *outside) down(ctx context.Context, c *row) error {
	if err := persist(ctx, func() error { return o.provider.Terminate(ctx, id(c)) }); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget(c)
	return nil
}

// hands is the world as one server touches it, as long as it lives.
type hands struct {
	*outside
	life  *life
	bells *cluster.Bells[string]
}

var _ world = (*hands)(nil)

func (h *hands) get(name, hash string) *row {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.records[name]
	if c == nil || hash != "" && c.Hash != hash {
		return nil
	}
	return c
}

func (h *hands) Taken(_ context.Context, name string, job int) (bool, error) {
	return live(h.life, func() (bool, error) {
		c := h.get(name, "")
		return c != nil && !cluster.ManagedBy(&c.Cluster, job), nil
	})
}

func (h *hands) Launch(ctx context.Context, l launch) (placed, error) {
	return live(h.life, func() (placed, error) { return h.launch(ctx, l) })
}

func (h *hands) launch(ctx context.Context, l launch) (placed, error) {
	a, p := l.attempt, h.plans[l.attempt.JobID]
	if s := execution.ParseProgress(a.Progress).Submitting; s != "" && h.get(a.ClusterName, s) == nil {
		return placed{}, &lostError{"the cluster was gone before its job was seen"}
	}
	c := h.get(a.ClusterName, "")
	if c == nil || c.Status != api.ClusterUp {
		var err error
		if c, err = h.bringUp(ctx, l, c, p); err != nil {
			return placed{}, err
		}
	}
	if err := h.life.breath(); err != nil {
		return placed{}, err
	}
	if err := l.call.Save(ctx, fmt.Appendf(nil, `{"submitting": %q}`, c.Hash)); err != nil {
		return placed{}, err
	}
	h.mu.Lock()
	job, err := h.machines[c.Hash].submit(l.call.RequestID)
	h.mu.Unlock()
	if err != nil {
		return placed{}, err
	}
	if err := h.life.breath(); err != nil {
		return placed{}, err
	}
	if err := l.call.Save(ctx, fmt.Appendf(nil, `{"submitting": %q, "job_id": %d}`, c.Hash, job)); err != nil {
		return placed{}, err
	}
	return placed{Hash: c.Hash, Job: job, Offer: c.Offer, Nodes: p.nodes}, nil
}

// bringUp gets the machines of an attempt.
func (h *hands) bringUp(ctx context.Context, l launch, c *row, p *plan) (*row, error) {
	a := l.attempt
	keep := c != nil && c.EverUp
	if keep {
		h.mu.Lock()
		h.count.repairs++
		if g := h.machines[c.Hash]; g.run != nil && !g.dead[0] {
			g.ends(g.run, api.JobCancelled, nil)
		}
		h.mu.Unlock()
	}
	if c == nil {
		h.mu.Lock()
		h.seq++
		c = &row{request: l.call.RequestID, locked: make(chan struct{}, 1), Cluster: state.Cluster{
			Name: a.ClusterName, Hash: fmt.Sprintf("%s-%d", a.ClusterName, h.seq), NameOnCloud: a.ClusterName,
			Status: api.ClusterInit, NumNodes: p.nodes, LaunchedAt: time.Now(), Metadata: map[string]any{},
		}}
		cluster.Managed(&c.Cluster, a.JobID)
		h.records[c.Name] = c
		h.mu.Unlock()
	}
	offers := []cloud.Offer{c.Offer}
	if !keep {
		var all []cloud.Offer
		for _, o := range h.offers {
			if o.Spot == p.spot {
				all = append(all, o)
			}
		}
		offers = nil
		for _, tier := range l.managed.Order(all) {
			offers = append(offers, tier...)
		}
		h.judgeOrder(a, p, offers[0])
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if now := h.get(c.Name, c.Hash); now == nil {
		return nil, errors.New("the cluster was given back meanwhile")
	} else if now.Status == api.ClusterUp {
		return now, nil
	}
	var errs []error
	for _, offer := range offers {
		if err := h.life.breath(); err != nil {
			return nil, err
		}
		h.mu.Lock()
		c.Offer = offer
		h.mu.Unlock()
		spec := cloud.LaunchSpec{ID: id(c), Offer: offer, Nodes: p.nodes, Token: fmt.Sprint(l.call.RequestID, offer.Place), DiskGB: 10}
		err := persist(ctx, func() error { return h.provider.Prepare(ctx, spec) })
		var nodes []cloud.Node
		if err == nil {
			err = persist(ctx, func() (err error) { nodes, err = h.provider.Launch(ctx, spec); return err })
		}
		if err == nil {
			return h.up(ctx, c, nodes, p, a.JobID)
		}
		if err := h.life.breath(); err != nil {
			return nil, err
		}
		if errors.Is(context.Cause(ctx), state.ErrHandover) {
			return nil, err // left as it is
		}
		errs = append(errs, err)
		if keep {
			return nil, errors.Join(errs...)
		}
		clean := h.life.ctx // not ended by a cancel
		if err := persist(clean, func() error { return h.provider.Terminate(clean, id(c)) }); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if err := h.down(ctx, c); err != nil {
		return nil, err
	}
	return nil, errors.Join(errs...)
}

func (h *hands) up(_ context.Context, c *row, nodes []cloud.Node, p *plan, job int) (*row, error) {
	if err := h.life.breath(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.born(c, nodes, p, job)
	c.Status, c.EverUp, g.proven = api.ClusterUp, true, time.Time{}
	return c, nil
}

// judgeOrder: the eager strategy leaves the region that took machines away, the
// other one stays.
func (h *hands) judgeOrder(a *state.ManagedAttempt, p *plan, first cloud.Offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := h.lastLost[attemptTask{a.JobID, a.Task}]
	if lost != "" && (first.Region == lost) != p.failover {
		h.violation("job %d lost machines in %s and asks %s first (failover %v)", a.JobID, lost, first.Region, p.failover)
	}
}

func (h *hands) Look(_ context.Context, a *state.ManagedAttempt) observation {
	o, err := live(h.life, func() (observation, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		o := observation{looked: true}
		c := h.records[a.ClusterName]
		if c == nil || c.Hash != a.ClusterHash {
			o.cluster, o.proven, o.reason = clusterGone, true, "the cluster is gone"
			return o, nil
		}
		g := h.machines[c.Hash]
		if o.recorded(&c.Cluster, time.Now()); o.cluster == clusterBroken && a.Nodes == 1 {
			return o, nil
		}
		switch {
		case g.cut || g.dead[0]:
			o.silent = "no answer"
		case g.run == nil || g.run.job.ID != a.ClusterJob:
			o.noJob = true
		default:
			job := g.run.job
			o.job = &job
		}
		return o, nil
	})
	if err != nil {
		return observation{looked: true}
	}
	return o
}

func (h *hands) Prove(ctx context.Context, a *state.ManagedAttempt) (clusterState, string, error) {
	c, err := live(h.life, func() (*row, error) { return h.get(a.ClusterName, a.ClusterHash), nil })
	if err != nil {
		return clusterUnknown, "", err
	}
	if c == nil {
		return clusterGone, "the cluster is gone", nil
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return clusterUnknown, "", err
	}
	defer unlock()
	v, err := live(h.life, func() (cluster.Verdict, error) { return h.refresh(ctx, c) })
	switch {
	case err != nil:
		return clusterUnknown, "", err
	case v.Gone:
		return clusterGone, v.Reason, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s, reason := stateOf(&c.Cluster)
	return s, reason, nil
}

func (h *hands) Down(ctx context.Context, a *state.ManagedAttempt, _ cluster.Call) error {
	return liveOnly(h.life, func() error {
		c := h.get(a.ClusterName, "")
		if c == nil || !cluster.ManagedBy(&c.Cluster, a.JobID) {
			return nil
		}
		unlock, err := c.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		h.mu.Lock()
		if g := h.machines[c.Hash]; g != nil && g.healthy() && outcome(a.Outcome) != outAborted {
			h.violation("cluster %s of a healthy job is given back: attempt %d %s: %s", c.Name, a.Number, a.Outcome, a.Reason)
		}
		if g := h.machines[c.Hash]; g != nil {
			g.given = true
		}
		h.mu.Unlock()
		return h.down(ctx, c)
	})
}

func (h *hands) Log(ctx context.Context, a *state.ManagedAttempt, _ int64) (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.machines[a.ClusterHash]
	if g == nil || g.run == nil || g.cut || g.dead[0] {
		return nil, errors.New("no answer")
	}
	return &logStream{ctx, g.run.over}, nil
}

// logStream is an empty log that ends with its job.
type logStream struct {
	ctx  context.Context
	over chan struct{}
}

func (s *logStream) Close() error { return nil }
func (s *logStream) Read([]byte) (int, error) {
	select {
	case <-s.over:
		return 0, io.EOF
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (h *hands) Changed(a *state.ManagedAttempt) (<-chan struct{}, func()) {
	return h.bells.Listen(a.ClusterHash)
}

// newCloud is a cloud on a bad day.
func newCloud(seed uint64, jobs int) (*model.Cloud, cloud.Provider, []cloud.Offer, error) {
	cfg := model.Default(seed)
	cfg.Capacity, cfg.PageSize, cfg.Linger = max(jobs/4, 4), 50, 20*time.Minute
	c, err := model.New(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, f := range []model.Fault{
		{ID: "bad-day", Kind: model.Lose, Op: "instances.*", Chance: 0.02},
		{ID: "bad-day", Kind: model.Cut, Chance: 0.02},
		{ID: "bad-day", Kind: model.Throttle, Chance: 0.02},
		{ID: "bad-day", Kind: model.Slow, Chance: 0.03, Delay: 20 * time.Second},
	} {
		if err := c.Inject(f); err != nil {
			return nil, nil, nil, err
		}
	}
	var offers []cloud.Offer
	for _, r := range cfg.Regions {
		for _, z := range r.Zones {
			for _, spot := range []bool{false, true} {
				offers = append(offers, cloud.Offer{Place: cloud.Place{Cloud: fluffycloud.Name, Region: r.Name, Zone: z}, InstanceType: "puff-2", Spot: spot, HourlyPrice: 0.08})
			}
		}
	}
	return c, fluffycloud.New(fluffycloud.Options{API: c.Account("ann", "owner"), Poll: 5 * time.Second}), offers, nil
}
