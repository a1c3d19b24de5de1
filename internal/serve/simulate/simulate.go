// Package simulate replays requests and the availability of spot machines, in
// virtual time, against the decisions of package replicas: what a scaling policy
// would have cost, and how many requests would have waited or failed.
//
// A run is deterministic: the same options give the same result.
package simulate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

// Machine is what a replica does, and what it takes to get one. The zero value
// has the usual numbers.
type Machine struct {
	Work     time.Duration // mean time that a replica works on a request; 10 s
	Slots    int           // requests that it works on at the same time; 8
	First    time.Duration // to the first byte, for each request that the replica has; 100 ms
	Launch   time.Duration // mean from asking for a machine to a program that starts; 150 s
	Start    time.Duration // mean from there to a replica that is ready; 90 s
	Refuse   time.Duration // until a place says that it has no machine; 20 s
	Notice   time.Duration // before a spot machine is taken away; 2 min. Negative: none
	Patience time.Duration // that requests wait for a replica; what the task says
	OnDemand float64       // $ an hour; 3
	Spot     float64       // $ an hour where a zone has no price of its own; a third of that
}

func (m Machine) filled(sp *spec.Spec) Machine {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&m.Work, 10*time.Second)
	def(&m.First, 100*time.Millisecond)
	def(&m.Launch, 150*time.Second)
	def(&m.Start, 90*time.Second)
	def(&m.Refuse, 20*time.Second)
	def(&m.Notice, 2*time.Minute)
	def(&m.Patience, sp.Balance.QueueWait)
	m.Notice = max(m.Notice, 0)
	if m.Slots == 0 {
		m.Slots = 8
	}
	if m.OnDemand == 0 {
		m.OnDemand = 3
	}
	if m.Spot == 0 {
		m.Spot = m.OnDemand / 3.15
	}
	return m
}

// Options are one run.
type Options struct {
	Spec     *spec.Spec
	Requests []float64 // when they come, in seconds from the start, ascending
	Zones    []Zone    // of spot machines; none: spot is always to be had
	Span     time.Duration
	Start    time.Time // zero: a Monday at midnight, UTC
	Seed     uint64
	Machine  Machine

	// stored: the state is written and read back before each decision.
	stored bool
}

// Result is what a run came to.
type Result struct {
	Requests      int     `json:"requests"`
	Waited        int     `json:"waited"`      // more than a second for a replica
	Failed        int     `json:"failed"`      // gave up, or lost their replica
	P95           float64 `json:"p95_seconds"` // to the first byte
	ReplicaHours  float64 `json:"replica_hours"`
	SpotHours     float64 `json:"spot_hours"`
	Cost          float64 `json:"cost"`
	MeanReady     float64 `json:"mean_ready"`
	Most          int     `json:"most_replicas"`
	Launches      int     `json:"launches"`
	Preemptions   int     `json:"preemptions"`
	TargetChanges int     `json:"target_changes"`
}

// Served is the share of requests that were answered.
func (r Result) Served() float64 {
	if r.Requests == 0 {
		return 1
	}
	return 1 - float64(r.Failed)/float64(r.Requests)
}

type kind int

const (
	tick kind = iota // decide
	done             // a request
	step             // of a launch
	zone             // the samples of all zones
	gone             // a machine that was announced to go
)

type event struct {
	at   float64
	seq  int // order of events at the same time
	kind kind
	id   int // of a replica
	arg  int // of a launch, or the request
}

// events is a heap: the earliest first.
type events []event

func (e events) before(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}

func (e *events) push(x event) {
	*e = append(*e, x)
	h := *e
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(i, up) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (e *events) pop() event {
	h := *e
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	*e = h
	for i := 0; ; {
		least := i
		for _, down := range []int{2*i + 1, 2*i + 2} {
			if down < last && h.before(down, least) {
				least = down
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// machine is a replica as it really is.
type machine struct {
	row     replicas.Replica
	phase   int // of its launch: 0 nothing, 1 asked for, 2 starts, 3 ready
	launch  int // counts launches, so that steps of an earlier one are known
	slots   int
	busy    int
	billed  float64 // since; < 0: not
	price   float64
	zone    int   // -1: none
	working []int // requests
}

type run struct {
	Options
	m        Machine
	rng      *rand.Rand
	now      float64
	queue    events
	seq      int
	state    replicas.State
	rows     map[int]*machine
	order    []int // ids, ascending
	chosen   replicas.Decision
	next     float64 // of the next decision
	waiting  []int   // requests, oldest first
	old      int     // first request of the last minute
	arrived  int
	inFlight int
	at       []int // replica of a request; 0: none
	recent   []sample
	firsts   []float32
	seen     []provision.Seen
	learned  int // sightings so far

	known     []replicas.Offer
	knownSeen int
	knownAt   float64

	readySum float64
	readyAt  float64
	ready    int
	result   Result
}

type sample struct{ at, first float64 }

// Run replays the requests.
func Run(o Options) Result {
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	}
	if o.Span == 0 && len(o.Requests) > 0 {
		o.Span = time.Duration((o.Requests[len(o.Requests)-1] + 60) * float64(time.Second))
	}
	r := &run{Options: o, m: o.Machine.filled(o.Spec), rng: rand.New(rand.NewPCG(o.Seed, 0x5ca1e)), rows: map[int]*machine{}, at: make([]int, len(o.Requests))}
	r.result.Requests = len(o.Requests)
	if len(o.Zones) > 0 {
		r.push(0, zone, 0, 0)
	}
	end := o.Span.Seconds()
	for {
		arrival := math.Inf(1)
		if r.arrived < len(o.Requests) {
			arrival = o.Requests[r.arrived]
		}
		other := math.Inf(1)
		if len(r.queue) > 0 {
			other = r.queue[0].at
		}
		at := min(arrival, other, r.next)
		if at > end {
			break
		}
		r.now = at
		switch at {
		case other:
			r.handle(r.queue.pop())
		case arrival:
			r.arrive()
		default:
			r.decide()
		}
	}
	r.now = end
	r.finish()
	return r.result
}

func (r *run) push(after float64, k kind, id, arg int) {
	r.seq++
	r.queue.push(event{r.now + after, r.seq, k, id, arg})
}

func (r *run) time() time.Time { return r.Start.Add(time.Duration(r.now * float64(time.Second))) }

// around is a random time with this mean.
func (r *run) around(mean time.Duration) float64 {
	return mean.Seconds() * (0.7 + 0.6*r.rng.Float64())
}

func (r *run) handle(e event) {
	switch e.kind {
	case done:
		r.finished(e)
	case step:
		r.launched(e)
	case zone:
		r.zones()
	case gone:
		if m := r.rows[e.id]; m != nil {
			r.lose(m)
		}
	}
}

// tell reports a fact, and has a decision made.
func (r *run) tell(m *machine, f replicas.Fact) {
	row, err := m.row.After(f, r.time())
	if err != nil {
		return // it happened to a replica that is on its way out
	}
	m.row = row
	r.next = r.now
}

// Requests.

func (r *run) arrive() {
	req := r.arrived
	r.arrived++
	if m := r.free(); m != nil {
		r.begin(m, req)
		return
	}
	if len(r.waiting) == 0 && r.chosen.Target == 0 {
		r.next = r.now
	}
	r.waiting = append(r.waiting, req)
}

// free is the ready replica with the most room, by share.
func (r *run) free() *machine {
	var best *machine
	for _, id := range r.chosen.Routing.Ready {
		m := r.rows[id]
		if m == nil || m.busy >= m.slots || m.phase != 3 {
			continue
		}
		if best == nil || m.busy*best.slots < best.busy*m.slots {
			best = m
		}
	}
	return best
}

func (r *run) begin(m *machine, req int) {
	m.busy++
	m.working = append(m.working, req)
	r.inFlight++
	r.at[req] = m.row.ID
	waited := r.now - r.Requests[req]
	if waited > 1 {
		r.result.Waited++
	}
	first := waited + r.m.First.Seconds()*float64(m.busy)
	r.firsts = append(r.firsts, float32(first))
	if r.Spec.Scale.Latency > 0 {
		r.recent = append(r.recent, sample{r.now, first})
	}
	r.push(r.rng.ExpFloat64()*r.m.Work.Seconds(), done, m.row.ID, req)
}

func (r *run) finished(e event) {
	m := r.rows[e.id]
	if m == nil || r.at[e.arg] != e.id {
		return // its replica was lost
	}
	r.at[e.arg] = 0
	m.busy--
	r.inFlight--
	m.working = slices.DeleteFunc(m.working, func(x int) bool { return x == e.arg })
	r.serveWaiting()
	if m.busy == 0 && m.row.Work() == replicas.Drain {
		r.next = r.now
	}
}

func (r *run) serveWaiting() {
	for len(r.waiting) > 0 {
		req := r.waiting[0]
		if r.now-r.Requests[req] > r.m.Patience.Seconds() {
			r.result.Failed++
			r.result.Waited++
			r.waiting = r.waiting[1:]
			continue
		}
		m := r.free()
		if m == nil {
			return
		}
		r.waiting = r.waiting[1:]
		r.begin(m, req)
	}
}

// Machines.

// act does what the rows ask for.
func (r *run) act() {
	for _, id := range r.order {
		m := r.rows[id]
		switch m.row.Work() {
		case replicas.Launch:
			if m.phase == 0 {
				m.phase = 1
				m.launch++
				r.ask(m)
			}
		case replicas.End:
			r.bill(m)
			for len(m.working) > 0 { // drained for long enough
				r.fail(m)
			}
			m.phase = 0
			r.tell(m, replicas.Fact{Event: fsm.ReplicaGone})
		}
	}
	r.order = slices.DeleteFunc(r.order, func(id int) bool {
		if r.rows[id].row.Status == fsm.ReplicaAbsent {
			delete(r.rows, id)
			return true
		}
		return false
	})
}

// ask begins a launch.
func (r *run) ask(m *machine) {
	m.zone = -1
	if m.row.Spot && len(r.Zones) > 0 {
		m.zone = slices.IndexFunc(r.Zones, func(z Zone) bool { return z.Place == m.row.Place })
		if m.zone < 0 { // no placer: the cheapest that has one
			for i := range r.Zones {
				if r.Zones[i].at(r.now) && (m.zone < 0 || r.price(i) < r.price(m.zone)) {
					m.zone = i
				}
			}
		}
		had := m.zone >= 0 && r.Zones[m.zone].at(r.now)
		if m.zone >= 0 {
			r.note(m.zone, had)
		}
		if !had {
			r.push(r.m.Refuse.Seconds(), step, m.row.ID, -m.launch)
			return
		}
	}
	m.billed, m.price = r.now, r.m.OnDemand
	if m.row.Spot {
		m.price = r.m.Spot
		if m.zone >= 0 {
			m.price = r.price(m.zone)
		}
	}
	r.result.Launches++
	r.push(r.around(r.m.Launch), step, m.row.ID, m.launch)
}

func (r *run) price(i int) float64 {
	if p := r.Zones[i].Price; p > 0 {
		return p
	}
	return r.m.Spot
}

// note is what launches learn of a place.
func (r *run) note(i int, had bool) {
	r.learned++
	r.seen = append(r.seen, provision.Seen{Offer: r.offer(i), At: r.time(), Had: had})
	if len(r.seen) > 400 {
		r.seen = slices.Clone(r.seen[200:])
	}
}

func (r *run) offer(i int) cloud.Offer {
	return cloud.Offer{Place: r.Zones[i].Place, InstanceType: instanceType, Spot: true, HourlyPrice: r.price(i)}
}

const instanceType = "machine"

// launched is a step of a launch.
func (r *run) launched(e event) {
	m := r.rows[e.id]
	switch {
	case m == nil:
	case e.arg == -m.launch && m.phase == 1:
		m.phase = 0
		r.tell(m, replicas.Fact{Event: fsm.ReplicaRetry, Failure: replicas.NoCapacity})
	case e.arg != m.launch:
	case m.phase == 1:
		m.phase = 2
		place := m.row.Place
		if m.zone >= 0 {
			place = r.Zones[m.zone].Place
		}
		m.slots = r.m.Slots
		accelerator := r.accelerator(m)
		r.tell(m, replicas.Fact{Event: fsm.ReplicaLaunched, Place: place, InstanceType: instanceType, Accelerator: accelerator})
		// Probes come every interval.
		interval := max(r.Spec.Probe.Interval.Seconds(), 1)
		r.push(math.Ceil(r.around(r.m.Start)/interval)*interval, step, e.id, e.arg)
	case m.phase == 2:
		m.phase = 3
		r.tell(m, replicas.Fact{Event: fsm.ReplicaReady})
	}
}

// accelerator gives replicas of a task that names several one after the other.
func (r *run) accelerator(m *machine) string {
	by := r.Spec.Scale.QPSByAccelerator
	if len(by) == 0 {
		return ""
	}
	var names []string
	most := 0.0
	for a, q := range by {
		names = append(names, a)
		most = max(most, q)
	}
	slices.Sort(names)
	name := names[m.row.ID%len(names)]
	m.slots = max(1, int(math.Round(float64(r.m.Slots)*by[name]/most)))
	m.price *= by[name] / most
	return name
}

// zones looks at the next samples.
func (r *run) zones() {
	gap := math.Inf(1)
	for i := range r.Zones {
		gap = min(gap, r.Zones[i].Gap.Seconds())
	}
	for _, id := range r.order {
		m := r.rows[id]
		if m.zone < 0 || m.phase == 0 || r.Zones[m.zone].at(r.now) {
			continue
		}
		switch {
		case m.phase == 1 && m.billed >= 0: // it goes while it boots
			r.bill(m)
			m.phase = 0
			r.result.Preemptions++
			r.note(m.zone, false)
			r.tell(m, replicas.Fact{Event: fsm.ReplicaRetry, Failure: replicas.NoCapacity})
		case m.phase >= 2 && m.phase < 4:
			r.result.Preemptions++
			r.note(m.zone, false)
			until := r.time().Add(r.m.Notice)
			r.tell(m, replicas.Fact{Event: fsm.ReplicaPreempt, Failure: replicas.Preempted, Until: until})
			m.phase = 4 // announced
			r.push(r.m.Notice.Seconds(), gone, id, 0)
		}
	}
	r.push(gap, zone, 0, 0)
}

// lose takes a machine away with what it works on.
func (r *run) lose(m *machine) {
	r.bill(m)
	for len(m.working) > 0 {
		r.fail(m)
	}
	m.phase = 0
	r.next = r.now
}

func (r *run) fail(m *machine) {
	req := m.working[len(m.working)-1]
	m.working = m.working[:len(m.working)-1]
	m.busy--
	r.inFlight--
	r.at[req] = 0
	r.result.Failed++
}

func (r *run) bill(m *machine) {
	if m.billed < 0 {
		return
	}
	hours := (r.now - m.billed) / 3600
	m.billed = -1
	r.result.ReplicaHours += hours
	r.result.Cost += hours * m.price
	if m.row.Spot {
		r.result.SpotHours += hours
	}
}

// Decisions.

func (r *run) load() replicas.Load {
	for r.old < r.arrived && r.Requests[r.old] < r.now-60 {
		r.old++
	}
	l := replicas.Load{Known: true, QPS: float64(r.arrived-r.old) / 60, InFlight: r.inFlight, Waiting: len(r.waiting)}
	if r.Spec.Scale.Latency > 0 {
		first := 0
		for first < len(r.recent) && r.recent[first].at < r.now-60 {
			first++
		}
		r.recent = slices.Clone(r.recent[first:])
		var took []float64
		for _, s := range r.recent {
			took = append(took, s.first)
		}
		for _, req := range r.waiting {
			took = append(took, r.now-r.Requests[req])
		}
		if len(took) > 0 {
			slices.Sort(took)
			l.Latency = time.Duration(took[len(took)*95/100] * float64(time.Second))
		}
	}
	return l
}

// offers are the zones with their chances, which are worked out again when
// something was learned or some time has passed.
func (r *run) offers() []replicas.Offer {
	if r.known != nil && r.knownSeen == r.learned && r.now-r.knownAt < 1200 {
		return r.known
	}
	r.knownSeen, r.knownAt = r.learned, r.now
	chances := provision.NewChances(r.seen, r.time(), 0)
	out := make([]replicas.Offer, len(r.Zones))
	for i := range r.Zones {
		o := r.offer(i)
		out[i] = replicas.Offer{Offer: o, Chance: chances.Of(&o)}
	}
	r.known = out
	return out
}

func (r *run) decide() {
	r.serveWaiting()
	s := replicas.Situation{Now: r.time(), State: r.state, Versions: []replicas.Version{{Number: 1, Spec: r.Spec}}, Load: r.load()}
	if r.Spec.Scale.Placer != "" && r.Spec.Spot && len(r.Zones) > 0 {
		s.Offers = r.offers()
	}
	for _, id := range r.order {
		m := r.rows[id]
		row := m.row
		row.InFlight = m.busy
		if r.Spec.Scale.Metric != "" && m.phase == 3 {
			v := float64(m.busy) + float64(len(r.waiting))/float64(max(r.ready, 1))
			row.Metric = &v
		}
		s.Replicas = append(s.Replicas, row)
	}
	if r.stored {
		s.State = throughJSON(s.State)
	}
	before := r.chosen.Target
	d := replicas.Decide(s)
	if d.Target != before {
		r.result.TargetChanges++
	}
	r.chosen, r.state = d, d.State
	for _, id := range d.Removed {
		if m := r.rows[id]; m != nil {
			m.row.Status = fsm.ReplicaAbsent
		}
	}
	live := 0
	for _, row := range d.Replicas {
		m := r.rows[row.ID]
		if m == nil {
			m = &machine{billed: -1, zone: -1}
			r.rows[row.ID] = m
			r.order = append(r.order, row.ID)
		}
		m.row = row
		if row.Live() {
			live++
		}
	}
	r.result.Most = max(r.result.Most, live)
	r.readySum += float64(r.ready) * (r.now - r.readyAt)
	r.ready, r.readyAt = len(d.Routing.Ready), r.now
	r.next = r.now + d.After.Seconds()
	r.act()
	r.serveWaiting()
}

func throughJSON(s replicas.State) replicas.State {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("the state cannot be stored: %v", err)) // a bug: it has plain fields only
	}
	var out replicas.State
	if err := json.Unmarshal(text, &out); err != nil {
		panic(fmt.Sprintf("the state cannot be read back: %v", err))
	}
	return out
}

func (r *run) finish() {
	for _, id := range r.order {
		r.bill(r.rows[id])
	}
	for _, req := range r.waiting { // what waits at the end, and would not have been answered
		if r.now-r.Requests[req] > r.m.Patience.Seconds() {
			r.result.Failed++
			r.result.Waited++
		}
	}
	r.readySum += float64(r.ready) * (r.now - r.readyAt)
	r.result.MeanReady = r.readySum / max(r.now, 1)
	if len(r.firsts) > 0 {
		slices.Sort(r.firsts)
		r.result.P95 = float64(r.firsts[len(r.firsts)*95/100])
	}
}
