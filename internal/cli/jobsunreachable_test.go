package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

// A job whose agent does not answer is RUNNING for programs; people see that nobody
// knows.
func TestAnUnreachableJobIsShownAsSuch(t *testing.T) {
	details := "UNREACHABLE since 2026-03-01 12:00:00 UTC: connection refused"
	out := managedJobsTable(plainTerm(), []api.ManagedJob{
		{JobID: new(1), TaskID: new(0), JobName: "a", Status: "RUNNING", Details: &details},
		{JobID: new(2), TaskID: new(0), JobName: "b", Status: "RUNNING"},
		{JobID: new(3), TaskID: new(0), JobName: "c", Status: "CANCELLING", Details: &details},
		{JobID: new(4), TaskID: new(0), JobName: "d", Status: "RUNNING", Details: &details},
		{JobID: new(4), TaskID: new(1), JobName: "d", Status: "PENDING"},
	}, jobsView{}, time.Now()).String()
	for name, want := range map[string]string{"a": "UNREACHABLE", "b": "RUNNING", "c": "CANCELLING", "d": "UNREACHABLE (task: 0)"} {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.Contains(line, " "+name+" ") && strings.Contains(line, want)
		}
		if !found {
			t.Errorf("%s is not shown as %s:\n%s", name, want, out)
		}
	}
}

// A long name does not push the other columns away; verbose tables have the whole.
func TestLongNamesOfJobsAreCut(t *testing.T) {
	name := strings.Repeat("n", 300)
	jobs := []api.ManagedJob{{JobName: name, TaskName: name, Status: "RUNNING"}}
	if out := managedJobsTable(plainTerm(), jobs, jobsView{}, testNow).String(); strings.Contains(out, name) || !strings.Contains(out, name[:10]) {
		t.Errorf("%s", out)
	}
	if out := managedJobsTable(plainTerm(), jobs, jobsView{verbose: true}, testNow).String(); !strings.Contains(out, name) {
		t.Errorf("%s", out)
	}
}
