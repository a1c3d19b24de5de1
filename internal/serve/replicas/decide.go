package replicas

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

// State is what a service, or a pool, remembers beside its rows. It is stored
// with them.
type State struct {
	NextID    int                   `json:"next_id"` // of the next replica; ids are never used again
	Scale     Scale                 `json:"scale"`
	Update    Update                `json:"update"`
	Places    map[string]PlaceState `json:"places,omitempty"`
	SpotReady time.Time             `json:"spot_ready,omitzero"` // since when there are more on-demand replicas than needed
}

// Situation is all that a decision depends on.
type Situation struct {
	Now      time.Time
	State    State
	Versions []Version // ascending; those with replicas, the stable one and the newest
	Replicas []Replica
	Load     Load
	Offers   []Offer // for a spot placer; may be empty
	Down     bool    // the service is to go
}

// Decision is what comes next. State, changed rows and removed rows are stored in
// one transaction, before anything is done about them.
type Decision struct {
	State    State
	Replicas []Replica // all rows that stay, new ones included
	Removed  []int     // ids of rows to delete

	Routing Routing
	Status  api.ServiceStatus
	Target  int           // replicas that the load asks for
	Final   int           // with those beyond the target
	Why     []string      // why the service is not where it should be
	After   time.Duration // decide again then, at the latest
}

// Routing says which replicas take requests.
type Routing struct {
	Ready   []int           // ids
	Weights map[int]float64 // percent of the requests by version; nil: no preference
}

const (
	usualInterval = 20 * time.Second
	zeroInterval  = 5 * time.Second // while the target is 0
	// atOnce is how many replicas of a service are launched at the same time.
	atOnce = 4
	// grace is how long a drained replica is kept although nothing is heard of
	// requests: balancers may not have the new table yet.
	grace = 5 * time.Second
)

// Decide says what comes next.
func Decide(s Situation) Decision {
	d := &decider{
		Situation: s, st: s.State, rows: slices.Clone(s.Replicas), specs: map[int]*spec.Spec{},
	}
	for _, v := range s.Versions {
		d.specs[v.Number] = v.Spec
	}
	d.st.Places = noteTrouble(d.st.Places, d.rows)
	d.st.Update.prove(d.rows)
	for i := range d.rows {
		d.st.NextID = max(d.st.NextID, d.rows[i].ID+1)
	}
	d.st.NextID = max(d.st.NextID, 1)

	if s.Down {
		for i := range d.rows {
			d.stop(i, 0, "the service is going down")
		}
	} else if d.judgeCanary(); len(s.Versions) > 0 {
		d.scale()
		d.roles()
		d.replace()
		d.provision()
	}
	d.drains()
	out := Decision{State: d.st, Target: d.target, Final: d.final, Why: d.why, Routing: d.routing()}
	out.Replicas, out.Removed = d.keep()
	out.Status = status(out.Replicas, d.current, s.Down)
	out.Why = append(out.Why, d.short(out.Replicas)...)
	if out.After = usualInterval; d.target == 0 && !s.Down {
		out.After = zeroInterval
	}
	if wait := d.next.Sub(s.Now); !d.next.IsZero() && wait < out.After {
		out.After = max(wait, time.Second)
	}
	return out
}

// short says how many replicas are missing, and where the others are.
func (d *decider) short(rows []Replica) []string {
	by := map[api.ReplicaStatus]int{}
	for i := range rows {
		by[rows[i].Status]++
	}
	if d.Down || by[api.ReplicaReady] >= d.final {
		return nil
	}
	text := fmt.Sprintf("%d of %d replicas are ready", by[api.ReplicaReady], d.final)
	for _, s := range api.ReplicaStatuses {
		if n := by[s]; n > 0 && s != api.ReplicaReady {
			text += fmt.Sprintf(", %d %s", n, s)
		}
	}
	return []string{text}
}

type decider struct {
	Situation
	st    State
	rows  []Replica
	specs map[int]*spec.Spec

	current       int // the version whose numbers count: the stable one while a canary runs
	newest        int // the version that is to take over
	target, final int
	mix           mix
	why           []string
	next          time.Time
}

func (d *decider) because(format string, args ...any) {
	d.why = append(d.why, fmt.Sprintf(format, args...))
}

// at asks for another decision at a time.
func (d *decider) at(t time.Time) {
	if d.next.IsZero() || t.Before(d.next) {
		d.next = t
	}
}

// judgeCanary rolls a canary back that is worse than the version before.
func (d *decider) judgeCanary() {
	u := &d.st.Update
	newest := u.wanted(d.Versions)
	if u.Mode != Canary || u.Stable == 0 || newest <= u.Stable || d.specs[newest] == nil {
		return
	}
	why := worse(&d.Load, d.specs[newest].Update, u.Stable, newest)
	if why == "" {
		if text := u.hopeless(d.rows, newest); text != "" {
			why = "it did not get ready: " + text
		}
	}
	if why == "" {
		return
	}
	if st, err := d.st.Rollback(newest, why); err == nil {
		d.st = st
	}
}

// scale sets the target.
func (d *decider) scale() {
	u := &d.st.Update
	d.newest = u.wanted(d.Versions)
	d.current = d.newest
	if u.Mode == Canary && u.Stable != 0 && d.newest > u.Stable && d.specs[u.Stable] != nil {
		d.current = u.Stable
	}
	for _, v := range slices.Sorted(maps.Keys(u.Failed)) {
		if v > u.Stable {
			d.because("version %d was rolled back: %s", v, u.Failed[v])
		}
	}
	sp := d.specs[d.current]
	if sp == nil {
		return
	}
	m := d.st.Scale
	want, known := demand(&sp.Scale, &d.Load, d.rows, &m, d.Now)
	m = m.after(&sp.Scale, d.current, want, known, m.floor(&sp.Scale, d.Now), d.Now)
	if known && sp.Scale.Predictive {
		m = m.remember(want, d.Now)
	}
	d.st.Scale = m
	d.target = m.Target
	d.final = d.target
	if d.target > 0 {
		d.final += sp.Scale.Overprovision
	}
	mem := &memory{now: d.Now, changeover: changeover(d.rows), spotReady: d.st.SpotReady,
		troubled: anyTrouble(d.Offers, d.st.Places, d.Now)}
	d.mix = split(sp, d.target, d.final, d.rows, mem)
	d.st.SpotReady = mem.spotReady
	if !known && !d.Load.Known && sp.Scale.Follows() {
		d.because("the load is not known at the moment; the target stays at %d", d.target)
	}
}

// roles says what each version needs, and lets a version take over that is
// ready to.
func (d *decider) roles() {
	u := &d.st.Update
	if d.newest <= u.Stable {
		u.Mode, u.Weight = "", 0
		return
	}
	ready, before := d.ready(d.newest), 0
	for i := range d.rows {
		if r := &d.rows[i]; (r.Ready() || r.Status == api.ReplicaNotReady) && r.Version < d.newest {
			before++
		}
	}
	switch {
	case u.Stable == 0, u.Mode == Canary:
	case u.Mode == BlueGreen:
		if ready >= max(1, d.specs[d.newest].Scale.Min, min(d.final, before)) {
			u.Stable = d.newest
		}
	default:
		if ready >= max(1, d.final) {
			u.Stable = d.newest
		}
	}
	if u.Stable == d.newest {
		u.Mode, u.Weight = "", 0
	}
}

func (d *decider) ready(version int) int {
	n := 0
	for i := range d.rows {
		if r := &d.rows[i]; r.Ready() && r.Version == version {
			n++
		}
	}
	return n
}

// live lists the live replicas that match, by index.
func (d *decider) live(match func(r *Replica) bool) []int {
	var out []int
	for i := range d.rows {
		if r := &d.rows[i]; r.Live() && match(r) {
			out = append(out, i)
		}
	}
	return out
}

// replace launches and removes replicas until each version has what it should.
func (d *decider) replace() {
	u := &d.st.Update
	sp := d.specs[d.current]
	if sp == nil {
		return
	}
	if d.current != d.newest { // a canary
		d.fit(d.newest, mix{}.with(d.specs[d.newest], canaries(d.final, or(u.Weight, d.specs[d.newest].Update.CanaryWeight))))
		d.fit(d.current, d.mix)
		d.shrinkOthers(d.current, max(d.final-d.ready(d.current), 0))
		return
	}
	keep := 0
	switch {
	case u.Stable == d.newest && len(u.Failed) > 0: // what was rolled back goes as it is replaced
		keep = max(d.final-d.ready(d.newest), 0)
	case u.Stable == 0 || u.Stable >= d.newest: // it has taken over
	case u.Mode == BlueGreen:
		keep = d.final
	default:
		keep = max(d.final-d.ready(d.newest), 0)
	}
	d.shrinkOthers(d.newest, keep)
	// While the new version has proven nothing, the old one makes up for what it loses.
	if st := d.specs[u.Stable]; u.Stable < d.newest && st != nil && !u.proven(d.newest) {
		old := len(d.live(func(r *Replica) bool { return r.Version < d.newest }))
		d.launch(u.Stable, mix{}.with(st, keep-old))
	}
	d.fit(d.newest, d.mix)
}

// with is a mix of n replicas of one kind.
func (mix) with(sp *spec.Spec, n int) mix {
	if sp.Spot {
		return mix{spot: max(n, 0)}
	}
	return mix{onDemand: max(n, 0)}
}

// shrinkOthers leaves at most keep live replicas of versions that are neither
// the given one nor the newest.
func (d *decider) shrinkOthers(version, keep int) {
	old := d.live(func(r *Replica) bool { return r.Version != version && r.Version != d.newest })
	for _, i := range spare(d.specs[version], d.rows, old, len(old)-keep) {
		d.retire(i, "version %d replaces it", version)
	}
}

// fit makes a version have the replicas of a mix.
func (d *decider) fit(version int, want mix) {
	sp := d.specs[version]
	spot := d.live(func(r *Replica) bool { return r.Version == version && r.Spot })
	onDemand := d.live(func(r *Replica) bool { return r.Version == version && !r.Spot })
	for _, i := range spare(sp, d.rows, spot, len(spot)-want.spot) {
		d.retire(i, "it is not needed any more")
	}
	for _, i := range spare(sp, d.rows, onDemand, len(onDemand)-max(want.onDemand, want.keep)) {
		d.retire(i, "it is not needed any more")
	}
	d.launch(version, mix{spot: want.spot - len(spot), onDemand: want.onDemand - len(onDemand)})
}

// launch adds replicas of a version, unless it cannot work.
func (d *decider) launch(version int, more mix) {
	if more.spot <= 0 && more.onDemand <= 0 {
		return
	}
	if why := d.st.Update.hopeless(d.rows, version); why != "" {
		d.because("version %d is not launched again: %s. Update the service, or terminate that replica with --purge to try once more", version, why)
		return
	}
	if n, until := crashes(d.rows, version, d.Now); until.After(d.Now) {
		times := fmt.Sprintf("%d times", n)
		if n == 1 {
			times = "once"
		}
		d.because("replicas of version %d failed %s in the last hour; the next launch is at %s", version, times, clock(until))
		d.at(until)
		return
	}
	room := d.room(version)
	for _, kind := range []struct {
		spot bool
		n    int
	}{{false, more.onDemand}, {true, more.spot}} {
		for range kind.n {
			if room <= 0 {
				return
			}
			room--
			d.rows = append(d.rows, Replica{ID: d.st.NextID, Version: version, Status: api.ReplicaPending, Spot: kind.spot, CreatedAt: d.Now})
			d.st.NextID++
		}
	}
}

// room is how many replicas may be added beyond the target while versions change.
func (d *decider) room(version int) int {
	surge := d.specs[version].Update.MaxSurge
	others := d.live(func(r *Replica) bool { return r.Version != version })
	if surge == 0 || len(others) == 0 {
		return 1 << 30
	}
	all := d.live(func(r *Replica) bool { return true })
	return d.mix.spot + d.mix.onDemand + surge - len(all)
}

// provision lets replicas begin whose turn it is.
func (d *decider) provision() {
	busy := 0
	var waiting []int
	for i := range d.rows {
		switch d.rows[i].Status {
		case api.ReplicaProvisioning:
			busy++
		case api.ReplicaPending:
			waiting = append(waiting, i)
		}
	}
	slices.SortFunc(waiting, func(i, j int) int {
		a, b := &d.rows[i], &d.rows[j]
		return cmp.Or(a.NotBefore.Compare(b.NotBefore), cmp.Compare(a.ID, b.ID))
	})
	nowhere := 0
	for _, i := range waiting {
		r := &d.rows[i]
		if busy >= atOnce {
			break
		}
		if r.NotBefore.After(d.Now) {
			d.at(r.NotBefore)
			d.because("replica %d is tried again at %s: %s", r.ID, clock(r.NotBefore), r.Reason)
			continue
		}
		sp := d.specs[r.Version]
		if sp == nil {
			continue
		}
		if placer := sp.Scale.Placer; r.Spot && placer != "" && len(d.Offers) > 0 {
			at := pick(placer, d.Offers, d.st.Places, d.rows, d.Now)
			if at < 0 {
				nowhere++
				continue
			}
			r.Place, r.InstanceType = d.Offers[at].Place, d.Offers[at].InstanceType
		}
		r.Status, _ = fsm.Replicas().Next(r.Status, fsm.ReplicaProvision)
		r.ProvisionedAt = d.Now
		busy++
	}
	if nowhere > 0 {
		d.because("%d spot replicas wait: every place had none, or took one away, a moment ago", nowhere)
	}
}

func (d *decider) drainOf(i int) time.Duration {
	if sp := d.specs[d.rows[i].Version]; sp != nil {
		return sp.Drain
	}
	return 0
}

// retire stops a replica that is not needed, unless fewer ready ones than needed
// would be left.
func (d *decider) retire(i int, format string, args ...any) {
	if d.rows[i].Ready() {
		ready := 0
		for j := range d.rows {
			if d.rows[j].Ready() {
				ready++
			}
		}
		if ready <= d.final {
			return
		}
	}
	d.stop(i, d.drainOf(i), format, args...)
}

// stop takes a replica out of service; what it works on may take so long.
func (d *decider) stop(i int, drain time.Duration, format string, args ...any) {
	r := &d.rows[i]
	reason := fmt.Sprintf(format, args...)
	if r.Status == api.ReplicaPending {
		r.Status, r.Reason = fsm.ReplicaAbsent, reason
		return
	}
	if d.Down && (r.Status == api.ReplicaShuttingDown || r.Status == api.ReplicaPreempted) {
		r.DrainTo, r.Ending = d.Now, true
		return
	}
	if d.Down && r.Status == api.ReplicaFailedCleanup {
		return // it is tried; purge gives it up
	}
	if stopped, err := r.After(Fact{Event: fsm.ReplicaStop, Detail: reason, Until: d.Now.Add(drain)}, d.Now); err == nil {
		*r = stopped
	}
}

// drains ends replicas whose requests have ended, or had their time.
func (d *decider) drains() {
	for i := range d.rows {
		r := &d.rows[i]
		if r.Work() != Drain {
			continue
		}
		quiet := r.InFlight == 0 && d.Load.Known && d.Now.Sub(r.DrainFrom) >= grace
		if quiet || !d.Now.Before(r.DrainTo) {
			r.Ending = true
			continue
		}
		d.at(r.DrainTo)
		if r.InFlight == 0 {
			d.at(r.DrainFrom.Add(grace))
		}
	}
}

// keep lists the rows that stay, and the ids of those that go.
func (d *decider) keep() (rows []Replica, removed []int) {
	failed := 0
	for i := range slices.Backward(d.rows) { // the newest failures stay
		r := &d.rows[i]
		if r.Status.Failed() && r.Status != api.ReplicaFailedCleanup {
			if failed++; failed > keptFailures || d.Down {
				r.Status, _ = fsm.Replicas().Next(r.Status, fsm.ReplicaForget)
			}
		}
	}
	rows = make([]Replica, 0, len(d.rows))
	for i := range d.rows {
		if d.rows[i].Status == fsm.ReplicaAbsent {
			if i < len(d.Situation.Replicas) { // others are new, and were never stored
				removed = append(removed, d.rows[i].ID)
			}
			continue
		}
		rows = append(rows, d.rows[i])
	}
	return rows, removed
}

// routing says which replicas take requests.
func (d *decider) routing() Routing {
	var out Routing
	u := &d.st.Update
	not := 0 // the version that has to wait until it takes over
	if u.Mode == BlueGreen && u.Stable != 0 && d.newest > u.Stable &&
		slices.ContainsFunc(d.rows, func(r Replica) bool { return r.Ready() && r.Version != d.newest }) { // rather a few of the new version than none
		not = d.newest
	}
	// Workers of an older version finish their jobs, and get no others.
	sp := d.specs[d.newest]
	finished := sp != nil && sp.Kind == spec.Pool && u.Stable == d.newest && d.ready(d.newest) >= max(d.final, 1)
	byVersion := map[int]int{}
	for i := range d.rows {
		r := &d.rows[i]
		if !r.Ready() || r.Version == not || finished && r.Version != d.newest {
			continue
		}
		out.Ready = append(out.Ready, r.ID)
		byVersion[r.Version]++
	}
	if d.current != d.newest && byVersion[d.newest] > 0 && len(byVersion) > 1 {
		weight := or(u.Weight, d.specs[d.newest].Update.CanaryWeight)
		out.Weights = map[int]float64{d.newest: weight}
		rest := 0
		for v, n := range byVersion {
			if v != d.newest {
				rest += n
			}
		}
		for v, n := range byVersion {
			if v != d.newest {
				out.Weights[v] = (100 - weight) * float64(n) / float64(rest)
			}
		}
	}
	return out
}

// status is the status of a service with these rows.
func status(rows []Replica, current int, down bool) api.ServiceStatus {
	failed, uncleaned := false, false
	for i := range rows {
		r := &rows[i]
		if r.Ready() && !down {
			return api.ServiceReady
		}
		uncleaned = uncleaned || r.Status == api.ReplicaFailedCleanup
		failed = failed || r.Status.Failed() && r.Version >= current
	}
	switch {
	case down && uncleaned && !slices.ContainsFunc(rows, func(r Replica) bool { return r.Status != api.ReplicaFailedCleanup }):
		return api.ServiceFailedCleanup
	case down:
		return api.ServiceShuttingDown
	case failed:
		return api.ServiceFailed
	case len(rows) == 0:
		return api.ServiceNoReplica
	}
	return api.ServiceReplicaInit
}

// clock is a time as users read it: the same however often it is decided.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
