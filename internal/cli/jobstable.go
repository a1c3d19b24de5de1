package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// jobsView says which columns of managed jobs are shown.
type jobsView struct{ verbose, allUsers, workspaces bool }

// jobColumn is a column of the table of managed jobs. all is the cell of the row
// that stands for a job of several tasks.
type jobColumn struct {
	title string
	shown bool
	cell  func(j api.ManagedJob) string
	all   func(tasks []api.ManagedJob) string
}

func jobColumns(t *term.Term, v jobsView, now time.Time) []jobColumn {
	blank := func([]api.ManagedJob) string { return "" }
	dash := func([]api.ManagedJob) string { return "-" }
	first := func(cell func(api.ManagedJob) string) func([]api.ManagedJob) string {
		return func(tasks []api.ManagedJob) string { return cell(tasks[0]) }
	}
	user := func(j api.ManagedJob) string { return format.OrDash(j.UserName) }
	hash := func(j api.ManagedJob) string { return format.OrDash(j.UserHash) }
	submitted := func(j api.ManagedJob) string { return format.Ago(value(j.SubmittedAt), now) }
	pool := func(j api.ManagedJob) string { return poolCell(j) }
	total := func(j api.ManagedJob) string { return totalDuration(j, j, now) }
	name := format.Name
	if v.verbose {
		name = func(whole string) string { return whole }
	}
	return []jobColumn{
		{"ID", true, func(j api.ManagedJob) string { return number(j.JobID) }, first(func(j api.ManagedJob) string { return number(j.JobID) })},
		{"TASK", true, taskCell, blank},
		{"WORKSPACE", v.workspaces || v.verbose, func(j api.ManagedJob) string { return format.OrDash(j.Workspace) }, blank},
		{"NAME", true, func(j api.ManagedJob) string { return name(nameCell(j)) }, first(func(j api.ManagedJob) string { return name(format.OrDash(j.JobName)) })},
		{"USER", v.allUsers, user, first(user)},
		{"USER_ID", v.allUsers && v.verbose, hash, first(hash)},
		{"REQUESTED", true, func(j api.ManagedJob) string { return format.OrDash(j.Resources) }, dash},
		{"SUBMITTED", true, submitted, first(submitted)},
		{"TOT. DURATION", true, total, func(tasks []api.ManagedJob) string { return totalDuration(tasks[0], tasks[len(tasks)-1], now) }},
		{"JOB DURATION", true, func(j api.ManagedJob) string { return format.Seconds(value(j.JobDuration)) }, func(tasks []api.ManagedJob) string {
			sum := 0.0
			for _, j := range tasks {
				sum += value(j.JobDuration)
			}
			return format.Seconds(sum)
		}},
		{"#RECOVERIES", true, func(j api.ManagedJob) string { return strconv.Itoa(j.RecoveryCount) }, func(tasks []api.ManagedJob) string {
			sum := 0
			for _, j := range tasks {
				sum += j.RecoveryCount
			}
			return strconv.Itoa(sum)
		}},
		{"STATUS", true, func(j api.ManagedJob) string { return managedStatusCell(t, shownStatus(j)) }, func(tasks []api.ManagedJob) string { return wholeStatus(t, tasks) }},
		{"PROGRESS", true, func(j api.ManagedJob) string { return progressCell(j.BatchTotal, j.BatchDone, j.Status) }, dash},
		{"POOL", true, pool, first(pool)},
		{"WORKER_CLUSTER", v.verbose, func(j api.ManagedJob) string { return format.OrDash(text(j.CurrentCluster)) }, dash},
		{"WORKER_JOB_ID", v.verbose, func(j api.ManagedJob) string { return number(j.JobIDOnPool) }, dash},
		{"STARTED", v.verbose, func(j api.ManagedJob) string { return format.Ago(value(j.StartAt), now) }, dash},
		{"INFRA", v.verbose, func(j api.ManagedJob) string { return format.OrDash(j.Infra) }, dash},
		{"RESOURCES", v.verbose, func(j api.ManagedJob) string { return format.OrDash(j.ClusterResources) }, dash},
		{"SCHED. STATE", v.verbose, func(j api.ManagedJob) string { return format.OrDash(string(j.ScheduleState)) }, dash},
		{"DETAILS", v.verbose, detailsCell, dash},
		{"GIT_COMMIT", v.verbose, func(j api.ManagedJob) string { s, _ := j.Metadata["git_commit"].(string); return format.OrDash(s) }, dash},
	}
}

// managedJobsTable lists managed jobs. A job of several tasks has a row of its
// own, then one per task, then a blank one.
func managedJobsTable(t *term.Term, jobs []api.ManagedJob, v jobsView, now time.Time) *table.Table {
	columns := slices.DeleteFunc(jobColumns(t, v, now), func(c jobColumn) bool { return !c.shown })
	tab := table.New().Whole("ID", "NAME", "USER_ID", "STATUS", "WORKER_CLUSTER", "GIT_COMMIT").Prose("DETAILS").
		Optional("GIT_COMMIT", "SCHED. STATE", "WORKER_JOB_ID", "STARTED", "USER_ID", "PROGRESS", "WORKER_CLUSTER", "TOT. DURATION", "RESOURCES",
			"POOL", "WORKSPACE", "INFRA", "#RECOVERIES", "JOB DURATION", "REQUESTED", "SUBMITTED", "USER")
	for _, c := range columns {
		tab.Header = append(tab.Header, c.title)
	}
	for tasks := range byJob(jobs) {
		if len(tasks) > 1 {
			row := make([]string, len(columns))
			for i, c := range columns {
				row[i] = c.all(tasks)
			}
			tab.Add(row...)
		}
		for _, j := range tasks {
			row := make([]string, len(columns))
			for i, c := range columns {
				row[i] = c.cell(j)
			}
			if len(tasks) > 1 {
				row[0] = " ↳"
			}
			tab.Add(row...)
		}
		if len(tasks) > 1 {
			tab.Add(make([]string, len(columns))...)
		}
	}
	return tab
}

// byJob yields the tasks of each job together, in the order of the list.
func byJob(jobs []api.ManagedJob) func(func([]api.ManagedJob) bool) {
	return func(yield func([]api.ManagedJob) bool) {
		for len(jobs) > 0 {
			n := 1
			for n < len(jobs) && jobs[0].JobID != nil && jobs[n].JobID != nil && *jobs[n].JobID == *jobs[0].JobID {
				n++
			}
			if !yield(jobs[:n]) {
				return
			}
			jobs = jobs[n:]
		}
	}
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

func taskCell(j api.ManagedJob) string {
	if j.TaskID == nil {
		return "-"
	}
	s := strconv.Itoa(*j.TaskID)
	if j.PrimaryInGroup != nil && *j.PrimaryInGroup {
		s += " [P]"
	}
	return s
}

func nameCell(j api.ManagedJob) string {
	if j.TaskName != "" {
		return j.TaskName
	}
	return format.OrDash(j.JobName)
}

func totalDuration(first, last api.ManagedJob, now time.Time) string {
	start, end := value(first.SubmittedAt), value(last.EndAt)
	if start <= 0 {
		return "-"
	}
	if end <= 0 {
		end = float64(now.Unix())
	}
	return format.Elapsed(start, end)
}

func poolCell(j api.ManagedJob) string {
	pool := text(j.Pool)
	if pool == "" {
		return "-"
	}
	if i := strings.LastIndexByte(text(j.CurrentCluster), '-'); i >= 0 {
		if worker := text(j.CurrentCluster)[i+1:]; worker != "" && strings.Trim(worker, "0123456789") == "" {
			return fmt.Sprintf("%s (worker=%s)", pool, worker)
		}
	}
	return pool
}

func detailsCell(j api.ManagedJob) string {
	var parts []string
	if d := text(j.Details); d != "" {
		parts = append(parts, d)
	}
	if f := text(j.FailureReason); f != "" {
		parts = append(parts, "Failure: "+f)
	}
	return format.OrDash(strings.Join(parts, "; "))
}

// wholeStatus is the state of a job of several tasks: that of the task that
// runs, or the worst one.
func wholeStatus(t *term.Term, tasks []api.ManagedJob) string {
	for i, j := range tasks {
		if !j.Status.Terminal() {
			return managedStatusCell(t, shownStatus(j)) + fmt.Sprintf(" (task: %d)", i)
		}
		if j.Status != api.ManagedSucceeded {
			return managedStatusCell(t, string(j.Status))
		}
	}
	return managedStatusCell(t, "SUCCEEDED")
}

// unreachable begins the details of a job whose agent does not answer.
const unreachable = "UNREACHABLE"

// shownStatus is a job's state for people. A job whose agent does not answer is what
// it was for programs; nobody knows whether it still runs.
func shownStatus(j api.ManagedJob) string {
	if j.Status == api.ManagedRunning && strings.HasPrefix(text(j.Details), unreachable) {
		return unreachable
	}
	return string(j.Status)
}

func managedStatusCell(t *term.Term, s string) string {
	switch {
	case s == "RUNNING" || s == "SUCCEEDED":
		return t.Style(term.Green, s)
	case strings.HasPrefix(s, "FAILED"):
		return t.Style(term.Red, s)
	case s == unreachable || s == "RECOVERING" || s == "CANCELLING" || s == "CANCELLED":
		return t.Style(term.Yellow, s)
	}
	return t.Style(term.Blue, s)
}
