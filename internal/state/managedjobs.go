package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/task"
)

// ManagedJobs is the store of managed jobs.
type ManagedJobs struct{ s *Store }

// ManagedJobs is the store of managed jobs.
func (s *Store) ManagedJobs() *ManagedJobs { return &ManagedJobs{s} }

// ManagedTransitionError means that a task of a managed job, or its schedule,
// cannot go from what it is to another state.
type ManagedTransitionError struct {
	Job, Task int // Task -1: the schedule
	From, To  string
}

func (e *ManagedTransitionError) Error() string {
	if e.Task < 0 {
		return fmt.Sprintf("managed job %d cannot go from %s to %s", e.Job, e.From, e.To)
	}
	return fmt.Sprintf("task %d of managed job %d cannot go from %s to %s", e.Task, e.Job, e.From, e.To)
}

var (
	managedJobColumns = columns{"id", "request_id", "version", "epoch", "name", "user_hash", "user_name", "workspace",
		"priority", "priority_class", "entrypoint", "dag", "config", "user_yaml", "files", "parallel", "array_id", "array_rank", "array_size", "schedule_id", "schedule", "cancel_asked", "cancel_by", "submitted_at", "ended_at"}
	managedTaskColumns = columns{"job_id", "task", "name", "status", "resources", "user_yaml", "metadata", "auxiliary",
		"attempt", "tries", "not_before", "restarts", "recoveries", "submitted_at", "started_at", "ended_at", "last_recovered_at", "ran_for",
		"details", "failure"}
	managedAttemptColumns = columns{"job_id", "task", "attempt", "cluster_name", "cluster_hash", "cluster_job", "offer", "nodes", "node_names",
		"resources", "resources_full", "progress", "started_at", "ran_at", "ended_at", "outcome", "reason", "exit_codes", "log_kept", "closed_at", "report"}
	managedEventColumns = columns{"job_id", "task", "status", "code", "reason", "at"}
)

func (s *Store) managedJobFields(j *ManagedJob) []any {
	return []any{number(&j.ID), text(&j.RequestID), number(&j.Version), number(&j.Epoch), text(&j.Name), text(&j.UserHash), text(&j.UserName), text(&j.Workspace),
		number(&j.Priority), text(&j.PriorityClass), text(&j.Entrypoint), s.inNumbered("managed_jobs", &j.ID, "dag").bytes(&j.Dag), s.inNumbered("managed_jobs", &j.ID, "config").bytes(&j.Config), text(&j.UserYAML), nested(&j.Files),
		truth(&j.Parallel), number(&j.Array), number(&j.Rank), number(&j.Size), number(&j.ScheduleID),
		text(&j.Schedule), truth(&j.CancelAsked), instant(&j.CancelBy), instant(&j.SubmittedAt), instant(&j.EndedAt)}
}

// managedListColumns are those that lists show.
var managedListColumns = managedJobColumns.without("dag", "config")

func managedTaskFields(t *ManagedTask) []any {
	return []any{number(&t.JobID), number(&t.Index), text(&t.Name), text(&t.Status), text(&t.Resources), text(&t.UserYAML), nested(&t.Metadata), truth(&t.Auxiliary),
		number(&t.Attempt), number(&t.Tries), instant(&t.NotBefore), number(&t.Restarts), number(&t.Recoveries),
		instant(&t.SubmittedAt), instant(&t.StartedAt), instant(&t.EndedAt), instant(&t.LastRecoveredAt), number(&t.RanFor),
		text(&t.Details), text(&t.Failure)}
}

func managedAttemptFields(a *ManagedAttempt) []any {
	return []any{number(&a.JobID), number(&a.Task), number(&a.Number), text(&a.ClusterName), text(&a.ClusterHash), number(&a.ClusterJob),
		nested(&a.Offer), number(&a.Nodes), nested(&a.NodeNames), text(&a.Resources), text(&a.Full), binary(&a.Progress),
		instant(&a.StartedAt), instant(&a.RanAt), instant(&a.EndedAt), text(&a.Outcome), text(&a.Reason), nested(&a.ExitCodes), truth(&a.LogKept), instant(&a.ClosedAt), nested(&a.Report)}
}

func managedEventFields(e *ManagedEvent) []any {
	return []any{number(&e.JobID), number(&e.Task), text(&e.Status), text(&e.Code), text(&e.Reason), instant(&e.At)}
}

var (
	selectManagedJobs     = "SELECT " + managedJobColumns.list() + " FROM managed_jobs "
	insertManagedJob      = "INSERT INTO managed_jobs (" + managedJobColumns.list() + ") VALUES (" + managedJobColumns.marks() + ") ON CONFLICT DO NOTHING"
	insertManagedTask     = "INSERT INTO managed_tasks (" + managedTaskColumns.list() + ") VALUES (" + managedTaskColumns.marks() + ")"
	selectManagedAttempts = "SELECT " + managedAttemptColumns.list() + " FROM managed_attempts "
	upsertManagedAttempt  = "INSERT INTO managed_attempts (" + managedAttemptColumns.list() + ") VALUES (" + managedAttemptColumns.marks() +
		") ON CONFLICT (job_id, task, attempt) DO UPDATE SET " + excluded(managedAttemptColumns[3:len(managedAttemptColumns)-1])
	insertManagedEvent = "INSERT INTO managed_events (seq, " + managedEventColumns.list() +
		") VALUES ((SELECT COALESCE(MAX(seq), 0) + 1 FROM managed_events WHERE job_id = ?), " + managedEventColumns.marks() + ")"
)

// Submit writes a new job, PENDING and WAITING, and gives it the next id; of an
// array (Size > 0) it writes all jobs, with ids one after the other, and returns
// the first. A request that submitted before gets what it got then.
func (t *ManagedJobs) Submit(ctx context.Context, j *ManagedJob) (*ManagedJob, error) {
	for {
		var id int
		err := t.s.write(ctx, func(s *session) error {
			err := s.one([]any{number(&id)}, "SELECT id FROM managed_jobs WHERE request_id = ?", j.RequestID)
			if !errors.Is(err, ErrNotFound) {
				return err
			}
			id, err = t.s.insertManaged(s, j)
			return err
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

// insertManaged writes a new job, or the jobs of an array, and returns the first
// id. [ErrConflict] if another server took it at the same time.
func (t *Store) insertManaged(s *session, j *ManagedJob) (int, error) {
	var first int
	if err := s.one([]any{number(&first)}, "SELECT COALESCE(MAX(id), 0) + 1 FROM managed_jobs"); err != nil {
		return 0, err
	}
	for rank := range max(j.Size, 1) {
		row := *j
		row.ID, row.Version, row.Schedule, row.Rank = first+rank, 1, api.ScheduleWaiting, rank
		if j.Size > 0 {
			row.Array = first
		}
		if rank > 0 {
			row.RequestID += "/" + strconv.Itoa(rank)
		}
		if err := changed(s.exec(insertManagedJob, t.managedJobFields(&row)...)); err != nil {
			return 0, err
		}
		for i, task := range j.Tasks {
			task := *task
			task.JobID, task.Index, task.Status = row.ID, i, api.ManagedPending
			if _, err := s.exec(insertManagedTask, managedTaskFields(&task)...); err != nil {
				return 0, err
			}
			e := ManagedEvent{JobID: row.ID, Task: i, Status: api.ManagedPending, Code: "SUBMITTED", Reason: "submitted", At: j.SubmittedAt}
			if err := addManagedEvent(s, e); err != nil {
				return 0, err
			}
		}
	}
	return first, nil
}

// Get is the job of that id with its tasks, or [ErrNotFound].
func (t *ManagedJobs) Get(ctx context.Context, id int) (*ManagedJob, error) {
	s := t.s.read(ctx)
	j := new(ManagedJob)
	if err := s.one(t.s.managedJobFields(j), selectManagedJobs+"WHERE id = ?", id); err != nil {
		return nil, t.s.explain(err)
	}
	tasks, err := all(s, managedTaskFields, "SELECT "+managedTaskColumns.list()+" FROM managed_tasks WHERE job_id = ? ORDER BY task", id)
	j.Tasks = tasks
	return j, t.s.explain(err)
}

// Attempts is every attempt of a job, in order.
func (t *ManagedJobs) Attempts(ctx context.Context, id int) ([]*ManagedAttempt, error) {
	list, err := all(t.s.read(ctx), managedAttemptFields, selectManagedAttempts+"WHERE job_id = ? ORDER BY task, attempt", id)
	return list, t.s.explain(err)
}

// Attempt is one attempt of a task, or [ErrNotFound].
func (t *ManagedJobs) Attempt(ctx context.Context, id, task, attempt int) (*ManagedAttempt, error) {
	a := new(ManagedAttempt)
	err := t.s.read(ctx).one(managedAttemptFields(a), selectManagedAttempts+"WHERE job_id = ? AND task = ? AND attempt = ?", id, task, attempt)
	if err != nil {
		return nil, t.s.explain(err)
	}
	return a, nil
}

// ManagedChange is what a controller decided, to be written all or not at all.
type ManagedChange struct {
	Job     *ManagedJob // with its tasks as they are to be
	Attempt *ManagedAttempt
	Closed  *ManagedAttempt // the one before, which ends as Attempt begins
	Events  []ManagedEvent
	// Unreported makes Save refuse with [ErrReported] if it is known how the job of
	// Attempt ended.
	Unreported bool
}

// ErrReported means that a change was not written because the agent's word on the end
// of the attempt's job was stored meanwhile.
var ErrReported = errors.New("it is known by now how the job ended")

// Save writes a change if the job's Version and Epoch are still what is
// stored, and increments the Version in place; else [ErrConflict]. A move that
// a task or the schedule cannot make is a [*ManagedTransitionError]; what has
// ended never changes. With the job's end go the lease on it
// and the secrets of its tasks.
func (t *ManagedJobs) Save(ctx context.Context, c ManagedChange) error {
	row := *c.Job
	row.Version++
	var kept []byte
	if row.Schedule == api.ScheduleDone {
		kept = endedDag(row.Dag)
		for _, secret := range task.SecretsIn(row.Dag) { // an error may say what a program was given
			for _, t := range row.Tasks {
				t.Failure = strings.ReplaceAll(t.Failure, secret, task.Redacted)
				t.Details = strings.ReplaceAll(t.Details, secret, task.Redacted)
			}
			for i := range c.Events {
				c.Events[i].Reason = strings.ReplaceAll(c.Events[i].Reason, secret, task.Redacted)
			}
		}
	}
	err := t.s.write(ctx, func(s *session) error {
		from := append(fsm.Schedules().Into(row.Schedule), row.Schedule)
		args := append([]any{row.Version, text(&row.Schedule), instant(&row.EndedAt), row.ID, c.Job.Version, row.Epoch}, anys(from)...)
		n, err := s.exec("UPDATE managed_jobs SET version = ?, schedule = ?, ended_at = ? WHERE id = ? AND version = ? AND epoch = ? AND schedule IN ("+marks(len(from))+")", args...)
		if err != nil {
			return err
		}
		if n == 0 {
			return t.refused(s, c.Job)
		}
		for _, task := range row.Tasks {
			if err := saveTask(s, task); err != nil {
				return err
			}
		}
		for _, a := range []*ManagedAttempt{c.Closed, c.Attempt} {
			if a == nil {
				continue
			}
			if _, err := s.exec(upsertManagedAttempt, managedAttemptFields(a)...); err != nil {
				return err
			}
		}
		if a := c.Attempt; c.Unreported && a != nil { // after the row was written: it is locked now
			var report *ManagedReport
			if err := s.one([]any{nested(&report)}, "SELECT report FROM managed_attempts WHERE job_id = ? AND task = ? AND attempt = ?", a.JobID, a.Task, a.Number); err != nil {
				return err
			}
			if report != nil {
				return ErrReported
			}
		}
		for _, e := range c.Events {
			if e.At.IsZero() {
				e.At = t.s.Now()
			}
			e.JobID = row.ID
			if err := addManagedEvent(s, e); err != nil {
				return err
			}
		}
		if row.Schedule != api.ScheduleDone {
			return nil
		}
		if err := t.keepDag(s, row.ID, kept); err != nil {
			return err
		}
		_, err = s.exec("DELETE FROM leases WHERE name = ?", ManagedLease+strconv.Itoa(row.ID))
		return err
	})
	if err == nil {
		c.Job.Version = row.Version
	}
	return err
}

// Report stores how the job of an attempt ended. The first report counts; one of an
// attempt that is unknown is dropped. It needs no lease: whoever hears it stores it.
func (t *ManagedJobs) Report(ctx context.Context, id, task, attempt int, r ManagedReport) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("UPDATE managed_attempts SET report = ? WHERE job_id = ? AND task = ? AND attempt = ? AND report = 'null'", nested(&r), id, task, attempt)
		return err
	})
}

// dropSecrets leaves of a job's tasks what is no secret, and nothing of the
// configuration that came with it: it has ended. ended is [endedDag].
func (t *ManagedJobs) dropSecrets(s *session, id int, ended func([]byte) []byte) error {
	var dag []byte
	var stored any
	if err := s.one([]any{&stored}, "SELECT dag FROM managed_jobs WHERE id = ?", id); err != nil {
		return err
	}
	if err := t.s.inNumbered("managed_jobs", &id, "dag").bytes(&dag).Scan(stored); err != nil {
		dag = nil // what cannot be decrypted holds nothing that is needed
	}
	return t.keepDag(s, id, ended(dag))
}

// keepDag writes what is left of the tasks of a job that has ended.
func (t *ManagedJobs) keepDag(s *session, id int, dag []byte) error {
	_, err := s.exec("UPDATE managed_jobs SET dag = ?, config = NULL WHERE id = ?", t.s.inNumbered("managed_jobs", &id, "dag").bytes(&dag), id)
	return err
}

// refused says why a job was not updated.
func (t *ManagedJobs) refused(s *session, j *ManagedJob) error {
	var is api.ScheduleState
	err := s.one([]any{text(&is)}, "SELECT schedule FROM managed_jobs WHERE id = ? AND version = ? AND epoch = ?", j.ID, j.Version, j.Epoch)
	if err == nil {
		return &ManagedTransitionError{j.ID, -1, string(is), string(j.Schedule)}
	}
	if errors.Is(err, ErrNotFound) {
		return ErrConflict
	}
	return err
}

func saveTask(s *session, task *ManagedTask) error {
	from := append(fsm.ManagedJobs().Into(task.Status), task.Status)
	args := append(managedTaskFields(task)[2:], task.JobID, task.Index)
	n, err := s.exec("UPDATE managed_tasks SET "+managedTaskColumns[2:].set()+" WHERE job_id = ? AND task = ? AND status IN ("+marks(len(from))+")", append(args, anys(from)...)...)
	if err != nil || n > 0 {
		return err
	}
	var is api.ManagedStatus
	if err := s.one([]any{text(&is)}, "SELECT status FROM managed_tasks WHERE job_id = ? AND task = ?", task.JobID, task.Index); err != nil {
		return fmt.Errorf("task %d of managed job %d: %w", task.Index, task.JobID, err)
	}
	return &ManagedTransitionError{task.JobID, task.Index, string(is), string(task.Status)}
}

func addManagedEvent(s *session, e ManagedEvent) error {
	_, err := s.exec(insertManagedEvent, append([]any{e.JobID}, managedEventFields(&e)...)...)
	return err
}

// excluded is "a = excluded.a, …" for an upsert.
func excluded(c columns) string {
	out := ""
	for i, name := range c {
		if i > 0 {
			out += ", "
		}
		out += name + " = excluded." + name
	}
	return out
}

// Adopt makes the holder of a lease the only one who may save the job, and
// returns it. [ErrConflict] if a later lease was used already.
func (t *ManagedJobs) Adopt(ctx context.Context, id int, l Lease) (*ManagedJob, error) {
	err := t.s.write(ctx, func(s *session) error {
		return changed(s.exec("UPDATE managed_jobs SET epoch = ?, version = version + 1 WHERE id = ? AND epoch <= ?", l.Epoch, id, l.Epoch))
	})
	if err != nil {
		return nil, err
	}
	return t.Get(ctx, id)
}

// Next is the job that waits for its first launch and comes first: the
// highest priority, then the lowest id. [ErrNotFound] if none waits.
func (t *ManagedJobs) Next(ctx context.Context) (id, priority int, err error) {
	err = t.s.read(ctx).one([]any{&id, &priority}, "SELECT id, priority FROM managed_jobs WHERE schedule = 'WAITING' ORDER BY priority DESC, id LIMIT 1")
	return id, priority, t.s.explain(err)
}

// Orphans is the jobs under way that nobody holds a lease on, or owner does.
func (t *ManagedJobs) Orphans(ctx context.Context, owner string) ([]int, error) {
	ids, err := all(t.s.read(ctx), func(id *int) []any { return []any{id} }, `SELECT j.id FROM managed_jobs j
		LEFT JOIN leases l ON l.name = '`+ManagedLease+`' || CAST(j.id AS TEXT)
		WHERE j.schedule <> 'DONE' AND j.schedule <> 'WAITING' AND (l.name IS NULL OR l.owner = '' OR l.owner = ? OR l.expires <= ?) ORDER BY j.id`, owner, nanos(t.s.Now()))
	return values(ids), t.s.explain(err)
}

// ManagedLease begins the names of leases on managed jobs.
const ManagedLease = "job/"

// AskCancel notes that jobs are to be ended, with as much time to end by
// themselves as grace, and returns those that had not ended, in order. One that
// waits for its first launch ends at once. The latest call counts. Many jobs are
// asked some at a time: with an error comes which were.
func (t *ManagedJobs) AskCancel(ctx context.Context, ids []int, grace time.Duration) ([]int, error) {
	now := t.s.Now()
	var by time.Time
	if grace > 0 {
		by = now.Add(grace)
	}
	asked := []int{}
	for some := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), askedAtOnce) {
		var of []int
		ended := endedDags() // the jobs of an array have one text
		err := t.s.write(ctx, func(s *session) (err error) {
			of = nil
			for _, id := range some {
				if err := t.askCancel(s, id, by, now, ended); errors.Is(err, ErrNotFound) {
					continue
				} else if err != nil {
					return err
				}
				of = append(of, id)
			}
			return nil
		})
		if err != nil {
			return asked, err
		}
		asked = append(asked, of...)
	}
	return asked, nil
}

// askedAtOnce is how many jobs a transaction cancels: others that write do not
// wait for long.
const askedAtOnce = 100

// askCancel notes that a job is to be ended; [ErrNotFound] if there is none that
// has not.
func (t *ManagedJobs) askCancel(s *session, id int, by, now time.Time, ended func([]byte) []byte) error {
	var is api.ScheduleState
	err := s.one([]any{text(&is)}, `UPDATE managed_jobs SET cancel_asked = TRUE, cancel_by = ?, version = version + 1,
		ended_at = CASE WHEN schedule = 'WAITING' THEN ? ELSE ended_at END,
		schedule = CASE WHEN schedule = 'WAITING' THEN 'DONE' ELSE schedule END
		WHERE id = ? AND schedule <> 'DONE' RETURNING schedule`, instant(&by), nanos(now), id)
	if err != nil || is != api.ScheduleDone {
		return err
	}
	if _, err := s.exec("UPDATE managed_tasks SET status = 'CANCELLED', ended_at = ? WHERE job_id = ? AND status = 'PENDING'", nanos(now), id); err != nil {
		return err
	}
	if err := t.dropSecrets(s, id, ended); err != nil {
		return err
	}
	return addManagedEvent(s, ManagedEvent{JobID: id, Status: api.ManagedCancelled, Code: "CANCELLED", Reason: "cancelled before it was launched", At: now})
}

// Cancelled is the jobs under way that are to be ended, and until when each may
// end by itself, as its CancelBy.
func (t *ManagedJobs) Cancelled(ctx context.Context) (map[int]time.Time, error) {
	list, err := all(t.s.read(ctx), func(j *ManagedJob) []any { return []any{number(&j.ID), instant(&j.CancelBy)} },
		"SELECT id, cancel_by FROM managed_jobs WHERE schedule <> 'DONE' AND cancel_asked")
	out := make(map[int]time.Time, len(list))
	for _, j := range list {
		out[j.ID] = j.CancelBy
	}
	return out, t.s.explain(err)
}

// Note adds an event to a job's history that changes nothing else.
func (t *ManagedJobs) Note(ctx context.Context, e ManagedEvent) error {
	return t.s.write(ctx, func(s *session) error { return addManagedEvent(s, e) })
}

// Events is the latest events of a job, the newest first; task -1 is all of
// them, limit 0 no limit.
func (t *ManagedJobs) Events(ctx context.Context, id, task, limit int) ([]ManagedEvent, error) {
	var w where
	w.add("job_id = ?", id)
	if task >= 0 {
		w.add("task = ?", task)
	}
	q, args := page("SELECT "+managedEventColumns.list()+" FROM managed_events "+w.String()+" ORDER BY seq DESC", w.args, limit, 0)
	list, err := all(t.s.read(ctx).once(), managedEventFields, q, args...)
	return values(list), t.s.explain(err)
}

// FilesInUse is every folder of files that a job under way or a schedule needs.
func (t *ManagedJobs) FilesInUse(ctx context.Context) (map[string]bool, error) {
	lists, err := all(t.s.read(ctx), func(f *[]string) []any { return []any{nested(f)} },
		"SELECT files FROM managed_jobs WHERE schedule <> 'DONE' UNION ALL SELECT files FROM managed_schedules WHERE ended_at = 0")
	used := map[string]bool{}
	for _, l := range lists {
		for _, f := range *l {
			used[f] = true
		}
	}
	return used, t.s.explain(err)
}
