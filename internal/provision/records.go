package provision

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// records is the part of the database that this package needs.
type records interface {
	Now() time.Time

	Begin(ctx context.Context, a state.Attempt) error
	BeginPlacing(ctx context.Context, a state.Attempt) error
	Abandon(ctx context.Context, token, why string) error
	End(ctx context.Context, token string, e state.AttemptEnd) error
	Open(ctx context.Context) ([]state.Attempt, error)
	OfCluster(ctx context.Context, hash string) ([]state.Attempt, error)
	Since(ctx context.Context, at time.Time, limit int) ([]state.Attempt, error)

	Cluster(ctx context.Context, name string) (*state.Cluster, error)
	Clusters(ctx context.Context) ([]*state.Cluster, error)
	UpdateCluster(ctx context.Context, name, hash string, f func(*state.Cluster) error) (*state.Cluster, error)

	Acquire(ctx context.Context, name, owner string, ttl time.Duration) (state.Lease, bool, error)
	Renew(ctx context.Context, l state.Lease, ttl time.Duration) (state.Lease, error)
	Release(ctx context.Context, l state.Lease) error
}

// database is records in the store.
type database struct{ *state.Store }

func (d database) Begin(ctx context.Context, a state.Attempt) error {
	return d.Attempts().Begin(ctx, a)
}
func (d database) BeginPlacing(ctx context.Context, a state.Attempt) error {
	return d.Attempts().BeginPlacing(ctx, a)
}
func (d database) Abandon(ctx context.Context, token, why string) error {
	return d.Attempts().Abandon(ctx, token, why)
}
func (d database) End(ctx context.Context, token string, e state.AttemptEnd) error {
	return d.Attempts().End(ctx, token, e)
}
func (d database) Open(ctx context.Context) ([]state.Attempt, error) { return d.Attempts().Open(ctx) }
func (d database) OfCluster(ctx context.Context, hash string) ([]state.Attempt, error) {
	return d.Attempts().OfCluster(ctx, hash)
}
func (d database) Since(ctx context.Context, at time.Time, limit int) ([]state.Attempt, error) {
	return d.Attempts().Since(ctx, at, limit)
}
func (d database) Cluster(ctx context.Context, name string) (*state.Cluster, error) {
	return d.Store.Clusters().Get(ctx, name)
}
func (d database) Clusters(ctx context.Context) ([]*state.Cluster, error) {
	return d.Store.Clusters().List(ctx, state.ClusterFilter{})
}
func (d database) UpdateCluster(ctx context.Context, name, hash string, f func(*state.Cluster) error) (*state.Cluster, error) {
	return d.Store.Clusters().Update(ctx, name, hash, f)
}
func (d database) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (state.Lease, bool, error) {
	return d.Leases().Acquire(ctx, name, owner, ttl)
}
func (d database) Renew(ctx context.Context, l state.Lease, ttl time.Duration) (state.Lease, error) {
	return d.Leases().Renew(ctx, l, ttl)
}
func (d database) Release(ctx context.Context, l state.Lease) error {
	return d.Leases().Release(ctx, l)
}
