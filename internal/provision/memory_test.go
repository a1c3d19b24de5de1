package provision

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// memory is records that outlive engines, without a disk. TestMemoryIsADatabase
// holds it to what the database does.
type memory struct {
	mu       sync.Mutex
	writes   int             // transactions that changed attempts or clusters
	attempts []state.Attempt // in the order of Begin
	clusters map[string]state.Cluster
	leases   map[string]state.Lease
}

func newMemory() *memory {
	return &memory{clusters: map[string]state.Cluster{}, leases: map[string]state.Lease{}}
}

func (m *memory) Now() time.Time { return time.Now() }

func (m *memory) Begin(_ context.Context, a state.Attempt) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if m.index(a.Token) >= 0 {
		return state.ErrConflict
	}
	m.attempts = append(m.attempts, a)
	return nil
}

func (m *memory) BeginPlacing(_ context.Context, a state.Attempt) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	c, ok := m.clusters[a.ClusterName]
	switch {
	case m.index(a.Token) >= 0:
		return state.ErrConflict
	case !ok || c.Hash != a.ClusterHash:
		return state.ErrNotFound
	}
	m.attempts = append(m.attempts, a)
	c.Offer, c.NameOnCloud = a.Offer, a.NameOnCloud
	c.Version++
	m.clusters[a.ClusterName] = c
	return nil
}

func (m *memory) index(token string) int {
	return slices.IndexFunc(m.attempts, func(a state.Attempt) bool { return a.Token == token })
}

func (m *memory) Abandon(_ context.Context, token, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if i := m.index(token); i >= 0 && m.attempts[i].Outcome == "" {
		m.attempts[i].Message = why
	}
	return nil
}

func (m *memory) End(_ context.Context, token string, e state.AttemptEnd) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	i := m.index(token)
	switch {
	case i < 0:
		return state.ErrNotFound
	case m.attempts[i].Outcome == "":
		m.attempts[i].AttemptEnd, m.attempts[i].EndedAt = e, time.Now()
	case m.attempts[i].Outcome != e.Outcome:
		return state.ErrConflict
	}
	return nil
}

func (m *memory) list(want func(*state.Attempt) bool) ([]state.Attempt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []state.Attempt
	for i := range m.attempts {
		if want(&m.attempts[i]) {
			out = append(out, m.attempts[i])
		}
	}
	slices.SortStableFunc(out, func(a, b state.Attempt) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Token, b.Token))
	})
	return out, nil
}

func (m *memory) Open(context.Context) ([]state.Attempt, error) {
	return m.list(func(a *state.Attempt) bool { return a.Outcome == "" })
}

func (m *memory) OfCluster(_ context.Context, hash string) ([]state.Attempt, error) {
	return m.list(func(a *state.Attempt) bool { return a.ClusterHash == hash })
}

func (m *memory) Since(_ context.Context, at time.Time, limit int) ([]state.Attempt, error) {
	all, err := m.list(func(a *state.Attempt) bool { return !a.StartedAt.Before(at) })
	return all[max(0, len(all)-limit):], err
}

func (m *memory) Create(_ context.Context, c *state.Cluster) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.clusters[c.Name]; ok {
		return state.ErrConflict
	}
	c.Version = 1
	m.clusters[c.Name] = *c
	return nil
}

func (m *memory) Cluster(_ context.Context, name string) (*state.Cluster, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.clusters[name]
	if !ok {
		return nil, state.ErrNotFound
	}
	return &c, nil
}

func (m *memory) Clusters(context.Context) ([]*state.Cluster, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*state.Cluster
	for _, name := range slices.Sorted(maps.Keys(m.clusters)) {
		c := m.clusters[name]
		out = append(out, &c)
	}
	return out, nil
}

func (m *memory) UpdateCluster(_ context.Context, name, hash string, f func(*state.Cluster) error) (*state.Cluster, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	c, ok := m.clusters[name]
	if !ok || c.Hash != hash {
		return nil, state.ErrNotFound
	}
	if err := f(&c); err != nil {
		return nil, err
	}
	c.Version++
	m.clusters[name] = c
	return &c, nil
}

func (m *memory) Delete(_ context.Context, name, hash string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.clusters[name]; !ok || c.Hash != hash {
		return state.ErrNotFound
	}
	delete(m.clusters, name)
	return nil
}

func (m *memory) Acquire(_ context.Context, name, owner string, ttl time.Duration) (state.Lease, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.leases[name]
	if ok && l.Owner != owner && time.Now().Before(l.Expires) {
		return l, false, nil
	}
	if l.Owner != owner {
		l.Epoch++
	}
	l.Name, l.Owner, l.Expires = name, owner, time.Now().Add(ttl)
	m.leases[name] = l
	return l, true, nil
}

func (m *memory) Renew(_ context.Context, l state.Lease, ttl time.Duration) (state.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.leases[l.Name]
	if held.Owner != l.Owner || held.Epoch != l.Epoch {
		return l, state.ErrConflict
	}
	held.Expires = time.Now().Add(ttl)
	m.leases[l.Name] = held
	return held, nil
}

func (m *memory) Release(_ context.Context, l state.Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.leases[l.Name]
	if held.Owner == l.Owner && held.Epoch == l.Epoch {
		held.Owner, held.Expires = "", time.Time{}
		m.leases[l.Name] = held
	}
	return nil
}
