package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/state"
)

// controller looks after one service. All its fields but those of work in progress
// belong to the goroutine of Run.
type controller struct {
	m        *Manager
	hold     *lease.Hold
	over     atomic.Bool // see Over
	begin    time.Time   // when this server began to look after the service
	name     string
	hash     string
	owner    state.User
	out      *logstore.Journal
	requests balancerJournal

	svc      *state.Service
	memory   memory
	versions []*version
	rows     map[int]row
	stale    bool // the database may know more

	workers map[int]*worker
	reports chan report // of workers
	pending []report    // of these, what is not stored yet
	offers  offers
	traffic traffic
	said    string // why the service is not where it should be, as the journal has it

	metricsMu sync.Mutex
	metrics   map[int]float64 // of replicas, as they were read last
}

// report is what a worker has to say about its replica.
type report struct {
	id   int
	fact replicas.Fact
	set  func(*state.ServiceReplica) // changes its row with the fact; nil: nothing
}

func newController(m *Manager, v *state.Service, h *lease.Hold) *controller {
	return &controller{
		m: m, begin: time.Now(), hold: h, name: v.Name, hash: v.Hash, stale: true,
		owner:    state.User{ID: v.UserHash, Name: v.UserName},
		out:      logstore.NewJournal(m.Kept, controllerLog(v.Hash), func() { m.logs.Notify(v.Hash) }),
		requests: balancerJournal{out: logstore.NewJournal(m.Kept, balancerLog(v.Hash), func() { m.logs.Notify(v.Hash) })},
		workers:  map[int]*worker{}, reports: make(chan report, 16), metrics: map[int]float64{},
	}
}

// Over reports that the end of the service is written, or just being written.
func (c *controller) Over() bool { return c.over.Load() }

// failAgain is the pause after a step that failed.
const failAgain = 5 * time.Second

// Run looks after the service until it has ended, or the server goes.
func (c *controller) Run(ctx context.Context) {
	changed, unlisten := c.m.rows.Subscribe(c.name)
	defer unlisten()
	work, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		for _, w := range c.workers {
			<-w.done
		}
	}()
	for ctx.Err() == nil && !c.over.Load() {
		after, err := c.step(ctx, work)
		switch {
		case errors.Is(err, lease.ErrLost):
			c.hold.Lost()
			return
		case gone(err):
			c.stale = true
			after = 10 * time.Millisecond
		case err != nil:
			if ctx.Err() == nil {
				c.m.Log.ErrorContext(ctx, "service's step failed", "service", c.name, "err", err)
				c.out.Printf("An error, to be tried again: %v", err)
			}
			c.stale = true
			after = failAgain
		}
		t := time.NewTimer(after)
		select {
		case <-ctx.Done():
		case <-changed:
			c.stale = true
		case r := <-c.reports:
			c.pending = append(c.pending, r)
		case <-t.C:
		}
		t.Stop()
	}
}

// load reads the service, if it is still this server's.
func (c *controller) load(ctx context.Context) error {
	a, err := c.m.Store.Services().Load(ctx, c.hash)
	if errors.Is(err, state.ErrNotFound) { // removed, and the answer was lost
		c.over.Store(true)
		return nil
	}
	if err != nil {
		return err
	}
	if a.Service.Epoch != c.hold.Lease.Epoch {
		return lease.ErrLost
	}
	c.svc = a.Service
	if c.memory, err = readMemory(a.Service.State); err != nil {
		return fmt.Errorf("the stored state of service %s: %w", c.name, err)
	}
	known := map[int]*version{}
	for _, v := range c.versions {
		known[v.Number] = v
	}
	c.versions = nil
	for _, v := range a.Versions {
		read := known[v.Number]
		if read == nil {
			if read, err = readVersion(v); err != nil {
				c.out.Printf("%v", err)
				continue
			}
		}
		c.versions = append(c.versions, read)
	}
	c.rows = map[int]row{}
	for _, r := range a.Replicas {
		read, err := readRow(r)
		if err != nil {
			return err
		}
		c.rows[r.ID] = read
	}
	c.stale = false
	return nil
}

// step observes, decides, stores and acts. It returns when to decide again, at the
// latest.
func (c *controller) step(ctx, work context.Context) (time.Duration, error) {
	if c.stale {
		if err := c.load(ctx); err != nil || c.over.Load() {
			return 0, err
		}
	}
	c.gather()
	now := time.Now()
	c.requests.note(&c.m.tally, c.name, now)
	rows := c.learned(now)
	mem, err := c.begun(rows)
	if err != nil {
		return 0, err
	}
	s := replicas.Situation{Now: now, State: mem.State, Down: c.svc.DownAsked, Load: c.load60(now)}
	for _, v := range c.versions {
		s.Versions = append(s.Versions, replicas.Version{Number: v.Number, Spec: v.spec})
	}
	s.Offers = c.offers.get(ctx, c, now)
	for _, id := range sortedIDs(rows) {
		r := rows[id].Replica
		r.InFlight = c.traffic.inFlight[id]
		if x, ok := c.metric(id); ok {
			r.Metric = &x
		}
		s.Replicas = append(s.Replicas, r)
	}
	d := replicas.Decide(s)
	mem.State, mem.Routing = d.State, d.Routing
	if err := c.store(ctx, rows, mem, d); err != nil {
		return 0, err
	}
	if c.over.Load() {
		return 0, nil
	}
	if again := c.act(work); again > 0 {
		return min(again, d.After), nil
	}
	return d.After, nil
}

// gather takes what workers have reported so far.
func (c *controller) gather() {
	for {
		select {
		case r := <-c.reports:
			c.pending = append(c.pending, r)
		default:
			return
		}
	}
}

// learned is the rows with what has happened since they were stored.
func (c *controller) learned(now time.Time) map[int]row {
	rows := map[int]row{}
	for id, r := range c.rows {
		rows[id] = r
	}
	apply := func(id int, f replicas.Fact) bool {
		r := rows[id]
		next, err := r.After(f, now)
		if err != nil {
			return false
		}
		if next.Status != r.Status {
			c.out.Printf("Replica %d is %s%s", id, shown(next.Status), because(next.Reason))
		}
		r.Replica = next
		rows[id] = r
		return true
	}
	for _, p := range c.pending {
		r, ok := rows[p.id]
		if !ok {
			continue
		}
		if p.set != nil {
			p.set(&r.at)
			rows[p.id] = r
		}
		if w := c.workers[p.id]; p.fact.Event != "" && !apply(p.id, p.fact) && w != nil {
			w.again = true // it knew an older state
		}
	}
	for id, r := range rows {
		switch {
		case r.at.Asked == state.AskedNothing:
		case r.Status == api.ReplicaFailedCleanup && r.at.Asked == state.AskedPurge, r.Status.Failed() && r.Status != api.ReplicaFailedCleanup:
			apply(id, replicas.Fact{Event: fsm.ReplicaForget})
		case r.Status == api.ReplicaPending:
			apply(id, replicas.Fact{Event: fsm.ReplicaForget})
		default:
			if w := c.workers[id]; w != nil && r.Status == api.ReplicaFailedCleanup {
				w.again = true // at once
			}
			apply(id, replicas.Fact{Event: fsm.ReplicaStop, Detail: "a user ended it"})
		}
		if c.svc.Purge && rows[id].Status == api.ReplicaFailedCleanup {
			apply(id, replicas.Fact{Event: fsm.ReplicaForget})
		}
	}
	return rows
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func shown(s api.ReplicaStatus) string {
	if s == fsm.ReplicaAbsent {
		return "gone"
	}
	return string(s)
}

// begun is the memory after what users have asked for. Replicas of the version before
// become a new version's as they are where nothing that they were launched with has
// changed.
func (c *controller) begun(rows map[int]row) (memory, error) {
	mem := c.memory
	for i, v := range c.versions {
		if v.Number <= mem.Seen {
			continue
		}
		if mem.Seen > 0 {
			mode, weight := v.mode()
			c.out.Printf("Version %d begins (%s)", v.Number, mode)
			mem.State = mem.State.Begin(mode, weight)
			c.traffic.begin()
		}
		if i > 0 && replicas.SameReplicas(c.versions[i-1].task, v.task) {
			for id, r := range rows {
				if r.Version == c.versions[i-1].Number {
					r.Version = v.Number
					rows[id] = r
				}
			}
		}
		mem.Seen = v.Number
	}
	var err error
	switch c.svc.Asked {
	case state.AskedPromote:
		var next replicas.State
		if next, err = mem.State.Promote(); err == nil {
			mem.State = next
		}
	case state.AskedRollback:
		var next replicas.State
		if next, err = mem.State.Rollback(mem.Seen, "a user rolled it back"); err == nil {
			mem.State = next
		}
	}
	if err != nil { // it was possible when the user asked
		c.out.Printf("Not done: %v", err)
	}
	return mem, nil
}

// store writes a decision, if anything of it is new.
func (c *controller) store(ctx context.Context, rows map[int]row, mem memory, d replicas.Decision) error {
	next := map[int]row{}
	var changed []*state.ServiceReplica
	for _, r := range d.Replicas {
		now := rows[r.ID]
		was, known := c.rows[r.ID]
		if !known {
			now.at = state.ServiceReplica{Hash: c.hash, ID: r.ID, ClusterName: fmt.Sprintf("%s-%d", c.name, r.ID)}
			c.out.Printf("Replica %d of version %d is wanted%s", r.ID, r.Version, because(r.Reason))
		} else if now.Status != r.Status {
			c.out.Printf("Replica %d is %s%s", r.ID, r.Status, because(r.Reason))
		}
		r.InFlight, r.Metric = 0, nil
		now.Replica = r
		stored, err := now.stored()
		if err != nil {
			return err
		}
		now.at.State = stored.State
		if !known || !same(stored, &was.at) {
			changed = append(changed, stored)
		}
		next[r.ID] = now
	}
	removed := slices.Clone(d.Removed)
	for id := range c.rows {
		if _, stays := next[id]; !stays && !slices.Contains(removed, id) {
			removed = append(removed, id)
		}
	}
	var dropped []int
	for _, v := range c.versions {
		if !mem.State.Update.Needed(v.Number, d.Replicas) {
			dropped = append(dropped, v.Number)
		}
	}
	svc := *c.svc
	svc.Status, svc.Shown = d.Status, c.show(d, mem, next)
	if svc.ReadyAt.IsZero() && len(d.Routing.Ready) > 0 {
		svc.ReadyAt = time.Now()
	}
	b, err := json.Marshal(mem)
	if err != nil {
		return err
	}
	svc.State = b
	d.Why = append(d.Why, unheard(c.requests.heard)...)
	if why := strings.Join(d.Why, "; "); why != c.said {
		if c.said = why; why != "" {
			c.out.Printf("%s", why)
		}
	}
	if c.svc.DownAsked && len(next) == 0 {
		return c.finish(ctx)
	}
	if len(changed) > 0 || len(removed) > 0 || len(dropped) > 0 || svc.Asked != "" || svc.Status != c.svc.Status || !bytes.Equal(b, c.svc.State) || !sameShown(svc.Shown, c.svc.Shown) {
		routed := !bytes.Equal(b, c.svc.State) || len(changed) > 0 || len(removed) > 0
		if err := c.m.Store.Services().Save(ctx, state.ServiceChange{Service: &svc, Replicas: changed, Removed: removed, Dropped: dropped}); err != nil {
			return err
		}
		svc.Asked = state.AskedNoChange
		c.versions = slices.DeleteFunc(c.versions, func(v *version) bool { return slices.Contains(dropped, v.Number) })
		c.m.knows(c.hash, svc.Version)
		if len(dropped) > 0 {
			c.sweepFiles(ctx)
		}
		if routed {
			c.m.publish(ctx)
		}
	}
	c.svc, c.memory, c.rows, c.pending = &svc, mem, next, nil
	return nil
}

func sameShown(a, b state.ServiceShown) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// finish forgets the service: nothing of it is left.
func (c *controller) finish(ctx context.Context) error {
	c.over.Store(true)
	if err := c.m.Store.Services().Remove(ctx, c.svc); err != nil {
		c.over.Store(false)
		return err
	}
	c.m.publish(ctx)
	c.m.forgetLogs(ctx, c.hash)
	c.sweepFiles(ctx)
	return nil
}

// sweepFiles removes files that no version needs any more; what it leaves goes with the
// next ones.
func (c *controller) sweepFiles(ctx context.Context) {
	if err := c.m.Files.Sweep(ctx); err != nil && ctx.Err() == nil {
		c.m.Log.WarnContext(ctx, "files that a service needs no more are not removed", "service", c.name, "err", err)
	}
}

// version is the one of that number; nil: there is none.
func (c *controller) version(number int) *version {
	for _, v := range c.versions {
		if v.Number == number {
			return v
		}
	}
	return nil
}

// latest is the newest version; nil: none can be read.
func (c *controller) latest() *version {
	if len(c.versions) == 0 {
		return nil
	}
	return c.versions[len(c.versions)-1]
}

func sortedIDs(rows map[int]row) []int {
	ids := make([]int, 0, len(rows))
	for id := range rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
