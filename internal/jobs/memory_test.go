package jobs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/state"
)

// memory is a database without a disk. It outlives the servers that use it.
// TestMemoryIsADatabase holds it to what the real one does.
type memory struct {
	managedJobs // what simulations do not use

	mu       sync.Mutex
	jobs     map[int]*state.ManagedJob
	waiting  []int // ids of jobs that wait, as [before] orders them
	live     map[int]bool
	asked    map[int]bool // to be cancelled and not done
	attempts map[attemptID]*state.ManagedAttempt
	events   map[int][]state.ManagedEvent
	leases   map[string]*state.Lease
	owned    map[string]map[string]*state.Lease // by owner
}

type attemptID struct{ job, task, number int }

func newMemory() *memory {
	return &memory{
		jobs: map[int]*state.ManagedJob{}, live: map[int]bool{}, asked: map[int]bool{}, attempts: map[attemptID]*state.ManagedAttempt{},
		events: map[int][]state.ManagedEvent{}, leases: map[string]*state.Lease{}, owned: map[string]map[string]*state.Lease{},
	}
}

// history is a job's events as text.
func (m *memory) history(job int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.events[job])
}

func (m *memory) Now() time.Time            { return time.Now() }
func (m *memory) ManagedJobs() managedJobs  { return m }
func (m *memory) Leases() lease.Store       { return memoryLeases{m} }
func (m *memory) Clusters() *state.Clusters { panic("not simulated") }

func (m *memory) ManagedSchedules() managedSchedules { return noSchedules{} }

// noSchedules is a store without a schedule.
type noSchedules struct{ managedSchedules }

func (noSchedules) Due(context.Context) ([]*state.ManagedSchedule, error) { return nil, nil }

// copied is a job that can be changed without changing what is stored.
func copied(j *state.ManagedJob) *state.ManagedJob {
	c := *j
	c.Tasks = make([]*state.ManagedTask, len(j.Tasks))
	for i, t := range j.Tasks {
		t := *t
		c.Tasks[i] = &t
	}
	return &c
}

func (m *memory) Submit(_ context.Context, j *state.ManagedJob) (*state.ManagedJob, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := copied(j)
	c.ID, c.Version, c.Schedule = len(m.jobs)+1, 1, api.ScheduleWaiting
	for i, t := range c.Tasks {
		t.JobID, t.Index, t.Status = c.ID, i, api.ManagedPending
	}
	m.jobs[c.ID], m.live[c.ID] = c, true
	at, _ := slices.BinarySearchFunc(m.waiting, c.ID, m.compare)
	m.waiting = slices.Insert(m.waiting, at, c.ID)
	return copied(c), nil
}

func (m *memory) compare(a, b int) int {
	return cmp.Or(cmp.Compare(m.jobs[b].Priority, m.jobs[a].Priority), cmp.Compare(a, b))
}

func (m *memory) Get(_ context.Context, id int) (*state.ManagedJob, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[id]
	if j == nil {
		return nil, state.ErrNotFound
	}
	return copied(j), nil
}

func (m *memory) Attempt(_ context.Context, id, task, number int) (*state.ManagedAttempt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.attempts[attemptID{id, task, number}]
	if a == nil {
		return nil, state.ErrNotFound
	}
	c := *a
	return &c, nil
}

func (m *memory) Attempts(_ context.Context, id int) ([]*state.ManagedAttempt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*state.ManagedAttempt
	for i := range m.jobs[id].Tasks {
		for n := 1; m.attempts[attemptID{id, i, n}] != nil; n++ {
			c := *m.attempts[attemptID{id, i, n}]
			out = append(out, &c)
		}
	}
	return out, nil
}

func (m *memory) Save(_ context.Context, c state.ManagedChange) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.jobs[c.Job.ID]
	if old == nil || old.Version != c.Job.Version || old.Epoch != c.Job.Epoch {
		return state.ErrConflict
	}
	if old.Schedule != c.Job.Schedule && !slices.Contains(fsm.Schedules().Into(c.Job.Schedule), old.Schedule) {
		return &state.ManagedTransitionError{Job: old.ID, Task: -1, From: string(old.Schedule), To: string(c.Job.Schedule)}
	}
	for i, t := range c.Job.Tasks {
		if was := old.Tasks[i].Status; was != t.Status && !slices.Contains(fsm.ManagedJobs().Into(t.Status), was) {
			return &state.ManagedTransitionError{Job: old.ID, Task: i, From: string(was), To: string(t.Status)}
		}
	}
	if a := c.Attempt; c.Unreported && a != nil {
		if was := m.attempts[attemptID{a.JobID, a.Task, a.Number}]; was != nil && was.Report != nil {
			return state.ErrReported
		}
	}
	m.put(c.Job)
	for _, a := range []*state.ManagedAttempt{c.Closed, c.Attempt} {
		if a != nil {
			a := *a
			if was := m.attempts[attemptID{a.JobID, a.Task, a.Number}]; was != nil {
				a.Report = was.Report
			}
			m.attempts[attemptID{a.JobID, a.Task, a.Number}] = &a
		}
	}
	m.events[old.ID] = append(m.events[old.ID], c.Events...)
	c.Job.Version++
	return nil
}

func (m *memory) Report(_ context.Context, id, task, number int, r state.ManagedReport) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.attempts[attemptID{id, task, number}]; a != nil && a.Report == nil {
		c := *a
		c.Report = &r
		m.attempts[attemptID{id, task, number}] = &c
	}
	return nil
}

// put stores what may change of a job, with the next version.
func (m *memory) put(j *state.ManagedJob) {
	old := m.jobs[j.ID]
	c := copied(old)
	c.Version++
	c.Schedule, c.EndedAt, c.Tasks = j.Schedule, j.EndedAt, copied(j).Tasks
	if old.Schedule == api.ScheduleWaiting && c.Schedule != api.ScheduleWaiting {
		m.claimed(j.ID)
	}
	if c.Schedule == api.ScheduleDone {
		delete(m.live, j.ID)
		delete(m.asked, j.ID)
		m.unlease(j.ID)
	}
	m.jobs[j.ID] = c
}

func (m *memory) claimed(id int) {
	if at, ok := slices.BinarySearchFunc(m.waiting, id, m.compare); ok {
		m.waiting = slices.Delete(m.waiting, at, at+1)
	}
}

func (m *memory) Adopt(_ context.Context, id int, l state.Lease) (*state.ManagedJob, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[id]
	if j == nil || j.Epoch > l.Epoch {
		return nil, state.ErrConflict
	}
	c := copied(j)
	c.Epoch, c.Version = l.Epoch, c.Version+1
	m.jobs[id] = c
	return copied(c), nil
}

func (m *memory) AdoptAll(ctx context.Context, leases map[int]state.Lease) (out []state.ManagedAdopted, err error) {
	for _, id := range slices.Sorted(maps.Keys(leases)) {
		j, err := m.Adopt(ctx, id, leases[id])
		if err != nil || j.Schedule == api.ScheduleDone {
			continue
		}
		attempts, err := m.Attempts(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, state.ManagedAdopted{Job: j, Attempts: attempts})
	}
	return out, nil
}

func (m *memory) Next(context.Context) (id, priority int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		return 0, 0, state.ErrNotFound
	}
	return m.waiting[0], m.jobs[m.waiting[0]].Priority, nil
}

func (m *memory) Orphans(_ context.Context, owner string) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var out []int
	for id := range m.live {
		if m.jobs[id].Schedule == api.ScheduleWaiting {
			continue
		}
		l := m.leases[state.ManagedLease+strconv.Itoa(id)]
		if l == nil || l.Owner == "" || l.Owner == owner || !l.Expires.After(now) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (m *memory) AskCancel(_ context.Context, ids []int, grace time.Duration) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var asked []int
	for _, id := range slices.Sorted(slices.Values(ids)) {
		j := m.jobs[id]
		if j == nil || j.Schedule == api.ScheduleDone {
			continue
		}
		asked = append(asked, id)
		c := copied(j)
		c.CancelAsked, c.CancelBy, c.Version = true, time.Time{}, c.Version+1
		if grace > 0 {
			c.CancelBy = time.Now().Add(grace)
		}
		if j.Schedule == api.ScheduleWaiting {
			m.claimed(id)
			c.Schedule, c.EndedAt = api.ScheduleDone, time.Now()
			for _, t := range c.Tasks {
				t.Status, t.EndedAt = api.ManagedCancelled, time.Now()
			}
			delete(m.live, id)
			m.unlease(id)
		} else {
			m.asked[id] = true
		}
		m.jobs[id] = c
	}
	return asked, nil
}

func (m *memory) Cancelled(context.Context) (map[int]time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int]time.Time{}
	for id := range m.asked {
		out[id] = m.jobs[id].CancelBy
	}
	return out, nil
}

func (m *memory) FilesInUse(context.Context) (map[string]bool, error) { return nil, nil }

type memoryLeases struct{ *memory }

func (m memoryLeases) Acquire(_ context.Context, name, owner string, ttl time.Duration) (state.Lease, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	l := m.leases[name]
	switch {
	case l == nil:
		l = &state.Lease{Name: name, Epoch: 1}
		m.leases[name] = l
	case l.Owner == owner:
	case l.Expires.After(now):
		return *l, false, nil
	default:
		l.Epoch++
	}
	m.own(l, owner)
	l.Expires = now.Add(ttl)
	return *l, true, nil
}

func (m memoryLeases) AcquireAll(ctx context.Context, names []string, owner string, ttl time.Duration) (out []state.Lease, err error) {
	for _, name := range names {
		if l, got, _ := m.Acquire(ctx, name, owner, ttl); got {
			out = append(out, l)
		}
	}
	return out, nil
}

func (m memoryLeases) own(l *state.Lease, owner string) {
	delete(m.owned[l.Owner], l.Name)
	l.Owner = owner
	if m.owned[owner] == nil {
		m.owned[owner] = map[string]*state.Lease{}
	}
	m.owned[owner][l.Name] = l
}

func (m memoryLeases) Beat(_ context.Context, prefix, owner string, ttl time.Duration) (map[string]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, out := time.Now().Add(ttl), make(map[string]int64, len(m.owned[owner]))
	for name, l := range m.owned[owner] {
		if strings.HasPrefix(name, prefix) {
			l.Expires = until
			out[name] = l.Epoch
		}
	}
	return out, nil
}

func (m memoryLeases) Release(_ context.Context, l state.Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.leases[l.Name]; have != nil && have.Owner == l.Owner && have.Epoch == l.Epoch {
		m.own(have, "")
		have.Expires = time.Time{}
	}
	return nil
}

// unlease removes the lease on a job that is done.
func (m *memory) unlease(id int) {
	if l := m.leases[state.ManagedLease+strconv.Itoa(id)]; l != nil {
		delete(m.leases, l.Name)
		delete(m.owned[l.Owner], l.Name)
	}
}
