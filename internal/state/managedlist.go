package state

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
)

// ManagedFilter selects managed jobs; zero fields select all.
type ManagedFilter struct {
	IDs         []int
	UserHash    string
	UserMatch   string // part of the user's name, or the user's id
	Workspace   string // part of it
	Scope       *Scope // jobs that a caller may see
	InWorkspace string // the whole name of the workspace
	NameMatch   string // part of the job's name
	Name        string // the whole name
	Members     int    // the jobs of the array that begins with this one, or this one alone
	Schedule    int    // jobs that this schedule submitted
	Statuses    []api.ManagedStatus
	Live        bool   // jobs that have a task which has not ended
	SortBy      string // see [ManagedSortKeys]; "": the id
	Ascending   bool
	Limit, Skip int // of jobs; Limit 0: no limit
}

// managedSort are the columns that lists can be sorted by.
var managedSort = map[string]string{
	"job_id": "j.id", "job_name": "j.name", "name": "j.name", "user_name": "j.user_name", "workspace": "j.workspace",
	"submitted_at": "j.submitted_at", "end_at": "j.ended_at", "priority": "j.priority", "schedule_state": "j.schedule",
	"status": "(SELECT MIN(status) FROM managed_tasks WHERE job_id = j.id)",
}

// ManagedSortKeys names what lists of managed jobs can be sorted by.
func ManagedSortKeys() []string { return slices.Sorted(maps.Keys(managedSort)) }

// ManagedRow is one task in a list of managed jobs; its Job has no Tasks, no Dag
// and no Config.
// Attempt is the latest, or nil.
type ManagedRow struct {
	Job     *ManagedJob
	Task    *ManagedTask
	Attempt *ManagedAttempt
}

// ManagedPage is a part of a list.
type ManagedPage struct {
	Rows   []ManagedRow // the tasks of a job stand together, in order
	Total  int          // jobs that the filter selects
	All    int          // jobs there are
	Counts map[api.ManagedStatus]int
}

// where are the conditions on jobs; with status, on what their tasks are, too.
func (f *ManagedFilter) where(status bool) where {
	var w where
	if len(f.IDs) > 0 {
		w.add("j.id IN ("+marks(len(f.IDs))+")", anys(f.IDs)...)
	}
	w.equal("j.user_hash", f.UserHash)
	w.equal("j.name", f.Name)
	if f.Members > 0 {
		w.add("(j.id = ? OR j.array_id = ?)", f.Members, f.Members)
	}
	if f.Schedule > 0 {
		w.add("j.schedule_id = ?", f.Schedule)
	}
	part := func(column, text string) {
		w.add("LOWER("+column+") LIKE ? ESCAPE '!'", "%"+likeEscape.Replace(strings.ToLower(text))+"%")
	}
	if f.UserMatch != "" {
		w.add("(LOWER(j.user_name) LIKE ? ESCAPE '!' OR j.user_hash = ?)", "%"+likeEscape.Replace(strings.ToLower(f.UserMatch))+"%", f.UserMatch)
	}
	if f.Workspace != "" {
		part("j.workspace", f.Workspace)
	}
	w.equal("j.workspace", f.InWorkspace)
	in(&w, "j.workspace", f.Scope.Within())
	if f.NameMatch != "" {
		part("j.name", f.NameMatch)
	}
	if f.Live {
		w.add("EXISTS (SELECT 1 FROM managed_tasks t WHERE t.job_id = j.id AND t.ended_at = 0)")
	}
	if status && len(f.Statuses) > 0 {
		w.add("EXISTS (SELECT 1 FROM managed_tasks t WHERE t.job_id = j.id AND t.status IN ("+marks(len(f.Statuses))+"))", anys(f.Statuses)...)
	}
	return w
}

var likeEscape = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// List is a page of the jobs that the filter selects, by task, the newest job
// first unless it says otherwise.
func (t *ManagedJobs) List(ctx context.Context, f ManagedFilter) (*ManagedPage, error) {
	s := t.s.read(ctx).once()
	p := &ManagedPage{Counts: map[api.ManagedStatus]int{}}
	seen := (&ManagedFilter{Scope: f.Scope}).where(false)
	if err := s.one([]any{&p.All}, "SELECT COUNT(*) FROM managed_jobs j "+seen.String(), seen.args...); err != nil {
		return nil, t.s.explain(err)
	}
	w := f.where(true)
	if err := s.one([]any{&p.Total}, "SELECT COUNT(*) FROM managed_jobs j "+w.String(), w.args...); err != nil {
		return nil, t.s.explain(err)
	}
	if err := t.count(s, f, p.Counts); err != nil {
		return nil, t.s.explain(err)
	}
	key, ok := managedSort[f.SortBy]
	if f.SortBy == "" {
		key, ok = "j.id", true
	}
	if !ok {
		return nil, fmt.Errorf("managed jobs cannot be sorted by %q; they can be by: %s", f.SortBy, strings.Join(ManagedSortKeys(), ", "))
	}
	dir := " DESC"
	if f.Ascending {
		dir = ""
	}
	order := " ORDER BY " + key + dir + ", j.id" + dir
	ids, args := page("SELECT j.id FROM managed_jobs j "+w.String()+order, w.args, f.Limit, f.Skip)
	cond := ""
	if len(f.Statuses) > 0 {
		cond = " AND t.status IN (" + marks(len(f.Statuses)) + ")"
		args = append(args, anys(f.Statuses)...)
	}
	rows, err := all(s, t.s.managedRowFields, "SELECT "+managedListColumns.of("j")+", "+managedTaskColumns.of("t")+`
		FROM managed_jobs j JOIN managed_tasks t ON t.job_id = j.id
		WHERE j.id IN (`+ids+")"+cond+order+", t.task", args...)
	if err != nil {
		return nil, t.s.explain(err)
	}
	p.Rows = values(rows)
	return p, t.s.explain(latest(s, p.Rows))
}

func (s *Store) managedRowFields(r *ManagedRow) []any {
	r.Job, r.Task = new(ManagedJob), new(ManagedTask)
	return append(s.managedJobFields(r.Job), managedTaskFields(r.Task)...)
}

// latestAtOnce is for how many rows the latest attempts are read with one query.
const latestAtOnce = 100

// latest adds the latest attempt to each row.
func latest(s *session, rows []ManagedRow) error {
	for some := range slices.Chunk(rows, latestAtOnce) {
		ids := make([]int, len(some))
		for i, r := range some {
			ids[i] = r.Job.ID
		}
		list, err := all(s, managedAttemptFields, "SELECT "+managedAttemptColumns.of("a")+` FROM managed_tasks t
			JOIN managed_attempts a ON a.job_id = t.job_id AND a.task = t.task AND a.attempt = t.attempt
			WHERE t.job_id IN (`+marks(len(ids))+")", anys(ids)...)
		if err != nil {
			return err
		}
		of := make(map[[2]int]*ManagedAttempt, len(list))
		for _, a := range list {
			of[[2]int{a.JobID, a.Task}] = a
		}
		for i, r := range some {
			some[i].Attempt = of[[2]int{r.Job.ID, r.Task.Index}]
		}
	}
	return nil
}

func (t *ManagedJobs) count(s *session, f ManagedFilter, into map[api.ManagedStatus]int) error {
	type count struct {
		status api.ManagedStatus
		n      int
	}
	w := f.where(false)
	counts, err := all(s, func(c *count) []any { return []any{text(&c.status), &c.n} },
		"SELECT t.status, COUNT(*) FROM managed_jobs j JOIN managed_tasks t ON t.job_id = j.id "+w.String()+" GROUP BY t.status", w.args...)
	for _, c := range counts {
		into[c.status] = c.n
	}
	return err
}
