package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/state"
)

// agentContact is what is known of what the head's agent of a cluster said.
type agentContact struct {
	storing sync.Mutex // held while the ends of jobs that it told are stored

	mu   sync.Mutex
	last time.Time // when it was heard last, by any server that noted it; zero: never
}

func (w *agentContact) since(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.After(w.last) {
		w.last = t
	}
}

// wordsKept is for how long it is remembered when the agent of a cluster that is gone
// was heard last: until then whoever ran jobs there has asked.
const wordsKept = time.Hour

// wordsLocked is what is known of a cluster's agent.
func (w *watcher) wordsLocked(hash string) *agentContact {
	if w.words[hash] == nil {
		w.words[hash] = &agentContact{}
	}
	return w.words[hash]
}

func (w *watcher) wordsOf(hash string) *agentContact {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wordsLocked(hash)
}

// forgetLocked forgets clusters that nobody is connected to and that were heard last
// before a time.
func (w *watcher) forgetLocked(before time.Time) {
	for hash, of := range w.words {
		if w.running[hash] == nil && of.at().Before(before) {
			delete(w.words, hash)
		}
	}
}

func (w *agentContact) at() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// report stores how jobs ended of which an event tells, and says so to the agent. If
// that is lost, or the server dies in between, the agent tells it again, and storing
// it again changes nothing.
func (w *watcher) report(ctx context.Context, client *agentclient.Client, hash string, e agentapi.Event) error {
	of := w.wordsOf(hash)
	of.since(now())
	if w.m.Ended == nil {
		return nil
	}
	ended := endedJobs(e)
	if len(ended) == 0 {
		return nil
	}
	ids, err := func() (ids []int, err error) {
		of.storing.Lock()
		defer of.storing.Unlock()
		for _, j := range ended {
			if err := w.m.Ended(ctx, hash, j); err != nil {
				return ids, err
			}
			ids = append(ids, j.ID)
		}
		return ids, nil
	}()
	w.changes.Notify(hash)
	if len(ids) > 0 {
		actx, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		_ = client.Reported(actx, ids) // or it comes again
	}
	return err
}

// endedJobs is the jobs of an event whose end is to be reported.
func endedJobs(e agentapi.Event) (jobs []agentapi.Job) {
	all := e.Jobs
	if e.Job != nil {
		all = append(all[:len(all):len(all)], *e.Job)
	}
	for _, j := range all {
		if j.Report && j.Status.Terminal() {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// Heard waits until every end of a job that this server heard of from a cluster is
// stored, or could not be, and says when its head's agent was heard last. The time is
// zero if that is not known. It may be up to a minute too early if another server, or
// an earlier life of this one, heard it.
func (m *Manager) Heard(ctx context.Context, hash string) time.Time {
	of := m.watcher.wordsOf(hash)
	stored := make(chan struct{})
	go func() {
		of.storing.Lock()
		defer of.storing.Unlock()
		close(stored)
	}()
	select {
	case <-stored:
	case <-ctx.Done():
	}
	return of.at()
}

// HeardLast is when the head's agent of a cluster was heard last, as far as this server
// knows; zero: it does not.
func (m *Manager) HeardLast(hash string) time.Time {
	w := m.watcher
	w.mu.Lock()
	of := w.words[hash]
	w.mu.Unlock()
	if of == nil {
		return time.Time{}
	}
	return of.at()
}

// noteHeard notes the agent's last contact in the record. That is done together with
// the record's status, about once a minute.
func noteHeard(c *state.Cluster, at time.Time) { c.Notes.LastContact = float64(at.UnixMilli()) }

// heardAt is when the head's agent of a cluster was heard, as its record says.
func heardAt(c *state.Cluster) time.Time {
	if c.Notes.LastContact == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(c.Notes.LastContact))
}
