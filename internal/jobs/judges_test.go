package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/state"
)

// Judges of the simulated env: they know what is true and notice when a server
// does what it must not.

func (o *outside) violation(format string, a ...any) {
	if len(o.violations) < 20 {
		o.violations = append(o.violations, fmt.Sprintf("%v: ", time.Since(epoch).Round(time.Millisecond))+fmt.Sprintf(format, a...))
	}
}

// judgeOrder: the eager strategy leaves the region that took machines away last,
// as long as it remembers; the other one stays.
func (e *fakeEnvironment) judgeOrder(a *state.ManagedAttempt, p *plan, first cloud.Offer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, ok := e.lastLost[attemptTask{a.JobID, a.Task}]
	if !ok || !p.failover && time.Since(last.at) >= remembered {
		return
	}
	if (first.Region == last.place.Region) != p.failover {
		e.violation("job %d lost machines in %s %v ago and asks %s first (failover %v)", a.JobID, last.place.Region, time.Since(last.at), first.Region, p.failover)
	}
}

// judgeLeave: processes that may end by themselves have the time for it.
func (e *fakeEnvironment) judgeLeave(g *gang) {
	if r := g.run; r != nil && !r.by.IsZero() && !r.left && g.whole() && !g.cut && time.Now().Before(r.by) {
		e.violation("cluster %s is given back %v before its processes must have ended", g.id.Name, time.Until(r.by))
	}
}

// audit looks at what is left when all is over.
func (s *simulation) audit(jobs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := 1; id <= jobs; id++ {
		j, err := s.db.ManagedJobs().Get(context.Background(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		if got := j.Current().Status; !slices.Contains(s.plans[id].want, got) {
			s.violation("job %d ended as %s (%s), not as %v", id, got, j.Current().Failure, s.plans[id].want)
		}
	}
	for name, c := range s.records {
		g := s.machines[c.Hash]
		s.violation("cluster %s is left: %s, %+v", name, c.Status, g)
		if g != nil && g.run != nil {
			s.violation("its job is %+v", g.run.job)
		}
	}
	for _, m := range s.cloud.Machines() {
		if m.State != fluffyapi.Terminated && m.State != fluffyapi.Terminating {
			s.violation("machine %s is left: %s", m.Name, m.State)
		}
	}
}

// witness sees what is written.
type witness struct {
	database
	managedJobs
	s *simulation
}

func (w witness) ManagedJobs() managedJobs { return w }

func (w witness) Save(ctx context.Context, c state.ManagedChange) error {
	err := w.managedJobs.Save(ctx, c)
	if a := c.Attempt; err == nil && a != nil && (outcome(a.Outcome) == outLost || outcome(a.Outcome) == outNode) && a.ClusterHash != "" && w.s.first(a) {
		w.s.lost(a)
	}
	if a := c.Attempt; err == nil && a != nil && outcome(a.Outcome) == outHung && w.s.first(a) {
		w.s.gaveUp(a)
	}
	return err
}

// first reports whether an attempt's end is written for the first time.
func (s *simulation) first(a *state.ManagedAttempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.settled[attemptKey(a)]
	s.settled[attemptKey(a)] = true
	return !was
}

// lost notes when a loss was acted upon.
func (s *simulation) lost(a *state.ManagedAttempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome(a.Outcome) == outLost {
		s.lastLost[attemptTask{a.JobID, a.Task}] = loss{a.Offer.Place, a.EndedAt}
	}
	confirmed := s.confirmedAt(a)
	if confirmed.IsZero() {
		s.violation("job %d, attempt %d: lost unconfirmed: %s", a.JobID, a.Number, a.Reason)
		return
	}
	took := time.Since(confirmed)
	for _, at := range s.goneAt {
		if !at.Before(confirmed.Add(-lease.TTL)) {
			return // whoever had it was going; the next one was not there yet
		}
	}
	s.count.slowest = max(s.count.slowest, took)
	if took > 5*time.Second && len(s.listen()) == simServers {
		s.violation("job %d, attempt %d: decided %v after the provider confirmed it", a.JobID, a.Number, took)
	}
}

// gaveUp: nothing that works is given up for being silent.
func (s *simulation) gaveUp(a *state.ManagedAttempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.records[a.ClusterName]; c != nil && !s.machines[c.Hash].hung {
		s.violation("job %d, attempt %d: given up although it does not hang: %s", a.JobID, a.Number, a.Reason)
	}
}

func (s *simulation) confirmedAt(a *state.ManagedAttempt) time.Time {
	return s.machines[a.ClusterHash].confirmed
}
