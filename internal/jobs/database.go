package jobs

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/state"
)

// database is what managed jobs need of the database. Tests put one in memory
// in its place.
type database interface {
	Now() time.Time
	ManagedJobs() managedJobs
	ManagedSchedules() managedSchedules
	Leases() lease.Store
	Clusters() *state.Clusters
}

// managedSchedules is the store of schedules, see [state.ManagedSchedules].
type managedSchedules interface {
	Submit(ctx context.Context, m *state.ManagedSchedule) (*state.ManagedSchedule, error)
	List(ctx context.Context, f state.ScheduleFilter) ([]*state.ManagedSchedule, error)
	Due(ctx context.Context) ([]*state.ManagedSchedule, error)
	Fire(ctx context.Context, m *state.ManagedSchedule, job *state.ManagedJob) error
	End(ctx context.Context, ids []int) ([]int, error)
}

// managedJobs is the store of managed jobs, see [state.ManagedJobs].
type managedJobs interface {
	Submit(ctx context.Context, j *state.ManagedJob) (*state.ManagedJob, error)
	Get(ctx context.Context, id int) (*state.ManagedJob, error)
	List(ctx context.Context, f state.ManagedFilter) (*state.ManagedPage, error)
	Attempts(ctx context.Context, id int) ([]*state.ManagedAttempt, error)
	Attempt(ctx context.Context, id, task, attempt int) (*state.ManagedAttempt, error)
	Save(ctx context.Context, c state.ManagedChange) error
	Report(ctx context.Context, id, task, attempt int, r state.ManagedReport) error
	Adopt(ctx context.Context, id int, l state.Lease) (*state.ManagedJob, error)
	AdoptAll(ctx context.Context, leases map[int]state.Lease) ([]state.ManagedAdopted, error)
	Next(ctx context.Context) (id, priority int, err error)
	Orphans(ctx context.Context, owner string) ([]int, error)
	AskCancel(ctx context.Context, ids []int, grace time.Duration) ([]int, error)
	Cancelled(ctx context.Context) (map[int]time.Time, error)
	Note(ctx context.Context, e state.ManagedEvent) error
	Events(ctx context.Context, id, task, limit int) ([]state.ManagedEvent, error)
	FilesInUse(ctx context.Context) (map[string]bool, error)
}

// stored is the real database.
type stored struct{ *state.Store }

func (s stored) ManagedJobs() managedJobs { return s.Store.ManagedJobs() }
func (s stored) Leases() lease.Store      { return s.Store.Leases() }

func (s stored) ManagedSchedules() managedSchedules { return s.Store.ManagedSchedules() }
