package state

import (
	"context"
	"errors"
	"slices"
	"time"
)

// ManagedSchedule submits a managed job again and again.
type ManagedSchedule struct {
	ID        int
	RequestID string // that submitted it: the same request never makes two
	Version   int64

	Name               string
	UserHash, UserName string
	Workspace          string

	Cron, Timezone  string
	Missed, Overlap string

	Job   *ManagedJob // as it is submitted each time; not part of lists
	Files []string    // folders of files that the job needs

	SubmittedAt time.Time
	NextAt      time.Time // the first time that nothing was decided about yet
	LastAt      time.Time // the time of the last run
	LastJob     int       // its job, the first of an array; 0: none yet
	Runs        int
	LeftOut     int // times without a run
	EndedAt     time.Time
}

// ManagedSchedules is the store of schedules of managed jobs.
type ManagedSchedules struct{ s *Store }

// ManagedSchedules is the store of schedules of managed jobs.
func (s *Store) ManagedSchedules() *ManagedSchedules { return &ManagedSchedules{s} }

var (
	managedScheduleColumns = columns{"id", "request_id", "version", "name", "user_hash", "user_name", "workspace", "cron", "timezone", "missed", "overlap",
		"files", "submitted_at", "next_at", "last_at", "last_job", "runs", "left_out", "ended_at", "job"}
	selectManagedSchedules = "SELECT " + managedScheduleColumns.list() + " FROM managed_schedules "
)

func (s *Store) managedScheduleFields(m *ManagedSchedule) []any {
	return []any{number(&m.ID), text(&m.RequestID), number(&m.Version), text(&m.Name), text(&m.UserHash), text(&m.UserName), text(&m.Workspace),
		text(&m.Cron), text(&m.Timezone), text(&m.Missed), text(&m.Overlap), nested(&m.Files),
		instant(&m.SubmittedAt), instant(&m.NextAt), instant(&m.LastAt), number(&m.LastJob), number(&m.Runs), number(&m.LeftOut), instant(&m.EndedAt), s.inNumbered("managed_schedules", &m.ID, "job").of(nested(&m.Job))}
}

// Submit writes a new schedule and gives it the next id. A request that
// submitted one before gets that one.
func (t *ManagedSchedules) Submit(ctx context.Context, m *ManagedSchedule) (*ManagedSchedule, error) {
	for {
		var id int
		err := t.s.write(ctx, func(s *session) error {
			err := s.one([]any{number(&id)}, "SELECT id FROM managed_schedules WHERE request_id = ?", m.RequestID)
			if !errors.Is(err, ErrNotFound) {
				return err
			}
			if err := s.one([]any{number(&id)}, "SELECT COALESCE(MAX(id), 0) + 1 FROM managed_schedules"); err != nil {
				return err
			}
			row := *m
			row.ID, row.Version = id, 1
			return changed(s.exec("INSERT INTO managed_schedules ("+managedScheduleColumns.list()+") VALUES ("+managedScheduleColumns.marks()+") ON CONFLICT DO NOTHING",
				t.s.managedScheduleFields(&row)...))
		})
		if errors.Is(err, ErrConflict) { // another server took the id
			continue
		}
		if err != nil {
			return nil, err
		}
		return t.Get(ctx, id)
	}
}

// Get is the schedule of that id, or [ErrNotFound].
func (t *ManagedSchedules) Get(ctx context.Context, id int) (*ManagedSchedule, error) {
	m := new(ManagedSchedule)
	err := t.s.read(ctx).one(t.s.managedScheduleFields(m), selectManagedSchedules+"WHERE id = ?", id)
	return m, t.s.explain(err)
}

// Due is the live schedules whose next time has come, the earliest first.
func (t *ManagedSchedules) Due(ctx context.Context) ([]*ManagedSchedule, error) {
	list, err := all(t.s.read(ctx), t.s.managedScheduleFields, selectManagedSchedules+"WHERE ended_at = 0 AND next_at <= ? ORDER BY next_at, id LIMIT 100", nanos(t.s.Now()))
	return list, t.s.explain(err)
}

// ScheduleFilter selects schedules; zero fields select all.
type ScheduleFilter struct {
	IDs      []int
	UserHash string
	Name     string
	Scope    *Scope // schedules that a caller may see
	Live     bool   // that have not ended
}

// List is the schedules that the filter selects, in order of their ids.
func (t *ManagedSchedules) List(ctx context.Context, f ScheduleFilter) ([]*ManagedSchedule, error) {
	var w where
	if len(f.IDs) > 0 {
		w.add("id IN ("+marks(len(f.IDs))+")", anys(f.IDs)...)
	}
	w.equal("user_hash", f.UserHash)
	w.equal("name", f.Name)
	in(&w, "workspace", f.Scope.Within())
	if f.Live {
		w.add("ended_at = 0")
	}
	list, err := all(t.s.read(ctx).once(), t.s.managedScheduleFields, "SELECT "+managedScheduleColumns.without("job").list()+" FROM managed_schedules "+w.String()+" ORDER BY id", w.args...)
	return list, t.s.explain(err)
}

// Fire writes what was decided about the times of a schedule up to its new
// NextAt: with a job, that is submitted in the same breath, and LastJob becomes
// its id. [ErrConflict] if another server decided first, or the schedule ended.
func (t *ManagedSchedules) Fire(ctx context.Context, m *ManagedSchedule, job *ManagedJob) error {
	row := *m
	row.Version++
	err := t.s.write(ctx, func(s *session) error {
		if job != nil {
			id, err := t.s.insertManaged(s, job)
			if err != nil {
				return err
			}
			row.LastJob = id
		}
		err := changed(s.exec("UPDATE managed_schedules SET version = ?, next_at = ?, last_at = ?, last_job = ?, runs = ?, left_out = ?, ended_at = ? WHERE id = ? AND version = ? AND ended_at = 0",
			row.Version, instant(&row.NextAt), instant(&row.LastAt), row.LastJob, row.Runs, row.LeftOut, instant(&row.EndedAt), row.ID, m.Version))
		if err != nil || row.EndedAt.IsZero() {
			return err
		}
		return t.dropSecrets(s, row.ID)
	})
	if err == nil {
		*m = row
	}
	return err
}

// dropSecrets leaves of a schedule's job what is no secret: it has ended.
func (t *ManagedSchedules) dropSecrets(s *session, id int) error {
	m := ManagedSchedule{ID: id}
	cell := t.s.inNumbered("managed_schedules", &m.ID, "job")
	var stored any
	if err := s.one([]any{&stored}, "SELECT job FROM managed_schedules WHERE id = ?", id); err != nil {
		return err
	}
	if err := cell.of(nested(&m.Job)).Scan(stored); err != nil || m.Job == nil {
		m.Job = &ManagedJob{} // what cannot be decrypted holds nothing that is needed
	}
	m.Job.Dag, m.Job.Config = endedDag(m.Job.Dag), nil
	_, err := s.exec("UPDATE managed_schedules SET job = ? WHERE id = ?", cell.of(nested(&m.Job)), id)
	return err
}

// End ends schedules and returns those that had not ended, in order.
func (t *ManagedSchedules) End(ctx context.Context, ids []int) ([]int, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var ended []*int
	err := t.s.write(ctx, func(s *session) (err error) {
		ended, err = all(s.once(), func(id *int) []any { return []any{id} },
			"UPDATE managed_schedules SET ended_at = ?, version = version + 1 WHERE ended_at = 0 AND id IN ("+marks(len(ids))+") RETURNING id", append([]any{nanos(t.s.Now())}, anys(ids)...)...)
		for _, id := range ended {
			if err == nil {
				err = t.dropSecrets(s, *id)
			}
		}
		return err
	})
	ids = values(ended)
	slices.Sort(ids)
	return ids, err
}
