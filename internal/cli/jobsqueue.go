package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/similar"
)

const jobsLimit = 50

// jobsQueueOptions are the flags of sky jobs queue.
type jobsQueueOptions struct {
	verbose, refresh, skipFinished, bareS, allUsers, all bool
	limit                                                *int
	statuses                                             []string
}

func (a *app) jobsQueueCommand() *cobra.Command {
	o := jobsQueueOptions{limit: new(jobsLimit)}
	return a.build(command{
		name: "queue", short: "List managed jobs.", max: 0,
		example: "sky jobs queue\nsky jobs queue -s RUNNING,PENDING\nsky jobs queue --all -o json",
		flags: func(f flags) {
			f.on(&o.verbose, "verbose", "v", "Show everything about each job.")
			f.number(&o.limit, "limit", "l", "Show at most this many jobs.")
			f.on(&o.refresh, "refresh", "r", "Restart the controller if it is stopped.")
			f.on(&o.skipFinished, "skip-finished", "", "Show only jobs that have not ended.")
			f.texts(&o.statuses, "status", "s", "Show only jobs in these states, separated by commas (may be repeated).")
			f.on(&o.bareS, "bare-s", "", "")
			f.hide("bare-s")
			f.on(&o.allUsers, "all-users", "u", "Show the jobs of all users.")
			f.on(&o.all, "all", "a", "Show all jobs.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error { return a.jobsQueue(ctx, o) },
	})
}

// managedStatuses are the states that --status accepts.
var managedStatuses = []string{
	"PENDING", "SUBMITTED", "STARTING", "RUNNING", "WINDING_DOWN", "RECOVERING", "CANCELLING", "SUCCEEDED", "CANCELLED", "FAILED",
	"FAILED_SETUP", "FAILED_PRECHECKS", "FAILED_NO_RESOURCE", "FAILED_CONTROLLER",
}

// jobStates reads the values of --status.
func jobStates(values []string) ([]string, error) {
	var out []string
	for _, v := range values {
		for s := range strings.SplitSeq(v, ",") {
			s = strings.ToUpper(strings.TrimSpace(s))
			if s == "" {
				continue
			}
			if !slices.Contains(managedStatuses, s) {
				return nil, usagef("Invalid value for '-s' / '--status': '%s' is not one of %s.%s", s, strings.Join(managedStatuses, ", "),
					didYouMean(similar.Names(s, managedStatuses)))
			}
			out = append(out, s)
		}
	}
	return out, nil
}

func (a *app) jobsQueue(ctx context.Context, o jobsQueueOptions) error {
	if o.bareS {
		a.t.Warn("`-s` without states is deprecated; use --skip-finished.")
		o.skipFinished = true
	}
	states, err := jobStates(o.statuses)
	if err != nil {
		return err
	}
	if *o.limit < 1 {
		return usagef("Invalid value for '--limit': %d is not at least 1. All jobs: --all.", *o.limit)
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	a.progress("Fetching managed job statuses...")
	body := api.JobsQueueBody{Refresh: o.refresh, SkipFinished: o.skipFinished, AllUsers: o.allUsers, Statuses: states, Attempts: o.verbose || a.output != ""}
	if !o.all {
		body.Limit = o.limit
	}
	req, err := c.JobsQueue(ctx, body)
	page, err := quiet(ctx, req, err)
	if e, ok := asAPIError(err); ok && e.Type == api.ErrClusterNotUp {
		a.t.Println(plainText(e.Message))
		return nil
	}
	if err != nil {
		return err
	}
	if done, err := a.emit(nonNil(page.Jobs)); done {
		return err
	}
	title := a.t.Style(term.Title, "Managed jobs")
	if o.skipFinished {
		title += " (showing in-progress jobs only)"
	}
	a.t.Println(title)
	a.t.Println(jobsSummary(page.StatusCounts))
	if len(page.Jobs) > 0 {
		workspaces := map[string]bool{}
		for _, j := range page.Jobs {
			workspaces[j.Workspace] = true
		}
		view := jobsView{verbose: o.verbose, allUsers: o.allUsers, workspaces: len(workspaces) > 1}
		a.t.Print(a.t.Table(managedJobsTable(a.t, page.Jobs, view, a.now())))
		if tab := attemptsTable(page.Jobs, a.now()); o.verbose && len(tab.Rows) > 0 {
			a.t.Println("\n" + a.t.Style(term.Title, "Attempts"))
			a.t.Print(a.t.Table(tab))
		}
	}
	if body.Limit != nil && page.Total > *body.Limit {
		a.t.Printf("Only showing the latest %d managed jobs (use --limit to show more managed jobs or --all to show all managed jobs)\n", *body.Limit)
	}
	return nil
}

// jobsSummary counts tasks in progress by state.
func jobsSummary(counts map[string]int) string {
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[s]; n > 0 && !api.ManagedStatus(s).Terminal() {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) == 0 {
		return "No in-progress managed jobs."
	}
	return "In progress tasks: " + strings.Join(parts, ", ")
}

// jobsCancelOptions are the flags of sky jobs cancel.
type jobsCancelOptions struct {
	name, pool         string
	all, allUsers, yes bool
	grace              grace
}

func (a *app) jobsCancelCommand() *cobra.Command {
	var o jobsCancelOptions
	return a.build(command{
		name: "cancel", args: "[JOB_IDS]...", needs: "JOB_IDS, --name, --pool, --all or --all-users", short: "Cancel managed jobs.", max: -1,
		example: "sky jobs cancel 1 2\nsky jobs cancel -n train\nsky jobs cancel -a",
		flags: func(f flags) {
			f.text(&o.name, "name", "n", "The job of this name.")
			f.text(&o.pool, "pool", "p", "All jobs on this pool. Not available yet.")
			f.grace(&o.grace)
			f.on(&o.all, "all", "a", "All your managed jobs.")
			f.yes(&o.yes)
			f.on(&o.allUsers, "all-users", "u", "The managed jobs of all users.")
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error { return a.jobsCancel(ctx, args, o) },
	})
}

// what says which jobs are meant; exactly one way to choose must be given.
func (o jobsCancelOptions) what(ids []int) (string, error) {
	var given []string
	what := ""
	if len(ids) > 0 {
		given = append(given, "JOB_IDS="+joinInts(ids, ","))
		what = "managed jobs with IDs " + joinInts(ids, ",")
		if len(ids) == 1 {
			what = "managed job with ID " + joinInts(ids, ",")
		}
	}
	if o.name != "" {
		given = append(given, "--name "+o.name)
		what = "'" + o.name + "'"
	}
	if o.pool != "" {
		given = append(given, "--pool "+o.pool)
		what = "managed jobs in pool '" + o.pool + "'"
	}
	if o.all || o.allUsers {
		given = append(given, "--all/--all-users")
		what = "all managed jobs"
		if o.allUsers {
			what += " FOR ALL USERS"
		}
	}
	if len(given) != 1 {
		return "", usagef("Can only specify one of JOB_IDS, --name, --pool, or --all/--all-users. Provided '%s'.", strings.Join(given, " "))
	}
	return what, nil
}

func (a *app) jobsCancel(ctx context.Context, args []string, o jobsCancelOptions) error {
	ids, err := jobIDs(args)
	if err != nil {
		return err
	}
	what, err := o.what(ids)
	if err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if !o.yes {
		if err := a.t.Confirm(ctx, "Cancelling "+what+". Proceed?", true); err != nil {
			return err
		}
	}
	req, err := c.CancelJobs(ctx, api.JobsCancelBody{
		Name: optional(o.name), JobIDs: ids, All: o.all, AllUsers: o.allUsers, Pool: optional(o.pool),
		Graceful: o.grace.on, GracefulTimeout: o.grace.timeout,
	})
	_, err = wait(ctx, a, req, err)
	return err
}

// progressCell is the PROGRESS of a batch.
func progressCell(total, done *int, status api.ManagedStatus) string {
	switch {
	case status == "WINDING_DOWN":
		return "Winding down"
	case total == nil || *total == 0:
		return "-"
	}
	n := 0
	if done != nil {
		n = *done
	}
	return fmt.Sprintf("%d%% %s/%d", n*100 / *total, format.Number(float64(n)), *total)
}
