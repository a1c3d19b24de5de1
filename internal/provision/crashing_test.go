package provision

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/state"
)

// life is one run of a server. It may die at any call to the database or to a
// cloud: before the call, or after it had its effect and before the answer is
// read. The dead touch nothing.
type life struct {
	ctx context.Context
	end context.CancelCauseFunc

	mu   sync.Mutex
	fuse int // calls left; negative: it does not die
	dead bool
}

var errDead = errors.New("this server is dead")

func newLife(parent context.Context, fuse int) *life {
	l := &life{fuse: fuse}
	l.ctx, l.end = context.WithCancelCause(parent)
	return l
}

// breath is where a life may end.
func (l *life) breath() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDead
	}
	if l.fuse == 0 {
		l.dead = true
		l.end(state.ErrHandover)
		return errDead
	}
	l.fuse--
	return nil
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// kill ends a life whatever it does.
func (l *life) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	l.end(state.ErrHandover)
}

// live makes a call as long as the life lasts.
func live[T any](l *life, f func() (T, error)) (T, error) {
	var none T
	if err := l.breath(); err != nil {
		return none, err
	}
	v, err := f()
	if dead := l.breath(); dead != nil {
		return none, dead
	}
	return v, err
}

func liveOnly(l *life, f func() error) error {
	_, err := live(l, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// mortalRecords is the database as a mortal server uses it.
type mortalRecords struct {
	l *life
	r store
}

// store is what the simulated server needs of its records.
type store interface {
	records
	Create(ctx context.Context, c *state.Cluster) error
	Delete(ctx context.Context, name, hash string) error
}

func (m mortalRecords) Now() time.Time { return m.r.Now() }
func (m mortalRecords) Begin(ctx context.Context, a state.Attempt) error {
	return liveOnly(m.l, func() error { return m.r.Begin(ctx, a) })
}
func (m mortalRecords) BeginPlacing(ctx context.Context, a state.Attempt) error {
	return liveOnly(m.l, func() error { return m.r.BeginPlacing(ctx, a) })
}
func (m mortalRecords) Abandon(ctx context.Context, token, why string) error {
	return liveOnly(m.l, func() error { return m.r.Abandon(ctx, token, why) })
}
func (m mortalRecords) End(ctx context.Context, token string, e state.AttemptEnd) error {
	return liveOnly(m.l, func() error { return m.r.End(ctx, token, e) })
}
func (m mortalRecords) Open(ctx context.Context) ([]state.Attempt, error) {
	return live(m.l, func() ([]state.Attempt, error) { return m.r.Open(ctx) })
}
func (m mortalRecords) OfCluster(ctx context.Context, hash string) ([]state.Attempt, error) {
	return live(m.l, func() ([]state.Attempt, error) { return m.r.OfCluster(ctx, hash) })
}
func (m mortalRecords) Since(ctx context.Context, at time.Time, limit int) ([]state.Attempt, error) {
	return live(m.l, func() ([]state.Attempt, error) { return m.r.Since(ctx, at, limit) })
}
func (m mortalRecords) Create(ctx context.Context, c *state.Cluster) error {
	return liveOnly(m.l, func() error { return m.r.Create(ctx, c) })
}
func (m mortalRecords) Delete(ctx context.Context, name, hash string) error {
	return liveOnly(m.l, func() error { return m.r.Delete(ctx, name, hash) })
}
func (m mortalRecords) Cluster(ctx context.Context, name string) (*state.Cluster, error) {
	return live(m.l, func() (*state.Cluster, error) { return m.r.Cluster(ctx, name) })
}
func (m mortalRecords) Clusters(ctx context.Context) ([]*state.Cluster, error) {
	return live(m.l, func() ([]*state.Cluster, error) { return m.r.Clusters(ctx) })
}
func (m mortalRecords) UpdateCluster(ctx context.Context, name, hash string, f func(*state.Cluster) error) (*state.Cluster, error) {
	return live(m.l, func() (*state.Cluster, error) { return m.r.UpdateCluster(ctx, name, hash, f) })
}
func (m mortalRecords) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (state.Lease, bool, error) {
	type got struct {
		state.Lease
		ok bool
	}
	g, err := live(m.l, func() (got, error) {
		l, ok, err := m.r.Acquire(ctx, name, owner, ttl)
		return got{l, ok}, err
	})
	return g.Lease, g.ok, err
}
func (m mortalRecords) Renew(ctx context.Context, l state.Lease, ttl time.Duration) (state.Lease, error) {
	return live(m.l, func() (state.Lease, error) { return m.r.Renew(ctx, l, ttl) })
}
func (m mortalRecords) Release(ctx context.Context, l state.Lease) error {
	return liveOnly(m.l, func() error { return m.r.Release(ctx, l) })
}

// mortalAPI is a cloud as a mortal server calls it.
type mortalAPI struct {
	fluffyapi.API
	l *life
}

func (m mortalAPI) Create(ctx context.Context, c fluffyapi.Create) (fluffyapi.Instance, error) {
	return live(m.l, func() (fluffyapi.Instance, error) { return m.API.Create(ctx, c) })
}
func (m mortalAPI) Instance(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return live(m.l, func() (fluffyapi.Instance, error) { return m.API.Instance(ctx, id) })
}
func (m mortalAPI) Instances(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Instance], error) {
	return live(m.l, func() (fluffyapi.Page[fluffyapi.Instance], error) { return m.API.Instances(ctx, q) })
}
func (m mortalAPI) Start(ctx context.Context, id string, s fluffyapi.Start) (fluffyapi.Instance, error) {
	return live(m.l, func() (fluffyapi.Instance, error) { return m.API.Start(ctx, id, s) })
}
func (m mortalAPI) Stop(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return live(m.l, func() (fluffyapi.Instance, error) { return m.API.Stop(ctx, id) })
}
func (m mortalAPI) Terminate(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return live(m.l, func() (fluffyapi.Instance, error) { return m.API.Terminate(ctx, id) })
}
func (m mortalAPI) Available(ctx context.Context, zone, machine string, spot bool) (int, error) {
	return live(m.l, func() (int, error) { return m.API.Available(ctx, zone, machine, spot) })
}
func (m mortalAPI) PutFirewall(ctx context.Context, f fluffyapi.Firewall) error {
	return liveOnly(m.l, func() error { return m.API.PutFirewall(ctx, f) })
}
func (m mortalAPI) Firewalls(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Firewall], error) {
	return live(m.l, func() (fluffyapi.Page[fluffyapi.Firewall], error) { return m.API.Firewalls(ctx, q) })
}
func (m mortalAPI) DeleteFirewall(ctx context.Context, name string) error {
	return liveOnly(m.l, func() error { return m.API.DeleteFirewall(ctx, name) })
}

// renamed is a provider under another name, so that there are two clouds.
type renamed struct {
	cloud.Provider
	stopper cloud.Stopper
	name    string
}

func (r renamed) Name() string { return r.name }
func (r renamed) Prepare(ctx context.Context, s cloud.LaunchSpec) error {
	return r.rename(r.Provider.Prepare(ctx, r.inside(s)))
}
func (r renamed) Launch(ctx context.Context, s cloud.LaunchSpec) ([]cloud.Node, error) {
	nodes, err := r.Provider.Launch(ctx, r.inside(s))
	return r.outside(nodes), r.rename(err)
}
func (r renamed) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	nodes, err := r.Provider.Nodes(ctx, id)
	return r.outside(nodes), r.rename(err)
}
func (r renamed) Terminate(ctx context.Context, id cloud.ClusterID) error {
	return r.rename(r.Provider.Terminate(ctx, id))
}
func (r renamed) Stop(ctx context.Context, id cloud.ClusterID) error {
	return r.rename(r.stopper.Stop(ctx, id))
}

func (r renamed) inside(s cloud.LaunchSpec) cloud.LaunchSpec {
	s.Offer.Cloud = r.Provider.Name()
	return s
}

func (r renamed) outside(nodes []cloud.Node) []cloud.Node {
	for i := range nodes {
		nodes[i].Place.Cloud = r.name
	}
	return nodes
}

func (r renamed) rename(err error) error {
	if e, ok := errors.AsType[*cloud.CapacityError](err); ok {
		e.Place.Cloud = r.name
	}
	if e, ok := errors.AsType[*cloud.QuotaError](err); ok {
		e.Place.Cloud = r.name
	}
	if e, ok := errors.AsType[*cloud.InvalidError](err); ok {
		e.Place.Cloud = r.name
	}
	if e, ok := errors.AsType[*cloud.PermissionError](err); ok {
		e.Place.Cloud = r.name
	}
	if e, ok := errors.AsType[*cloud.AuthError](err); ok {
		e.Cloud = r.name
	}
	return err
}
