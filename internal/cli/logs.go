package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// logsOptions are the flags of sky logs.
type logsOptions struct {
	provision, autostop bool
	hook                string // "", an event, or "auto"
	worker, tail        *int
	syncDown, status    bool
	follow              bool
}

func (a *app) logsCommand() *cobra.Command {
	o := logsOptions{follow: true}
	return a.build(command{
		name: "logs", args: "CLUSTER [JOB_IDS]...", short: "Follow, print or download the output of a job.", min: 1, max: -1,
		long: "Without JOB_IDS, the latest job is meant. The exit code tells how the job ended: 0 succeeded,\n" +
			"100 failed, 101 not finished, 102 no such job, 103 cancelled.",
		example:  "sky logs dev\nsky logs dev 2 --tail 100\nsky logs dev 1 2 --sync-down\nsky logs dev 2 --status",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.on(&o.provision, "provision", "", "Show how the cluster was set up.")
			f.text(&o.hook, "hook", "", "Show the output of the cluster's hook for an event: stop, preemption or down.")
			f.Lookup("hook").NoOptDefVal = "auto"
			f.note("hook", noteMeta, "[stop|preemption|down]")
			f.on(&o.autostop, "autostop", "", "Deprecated: --hook stop.")
			f.hide("autostop")
			f.number(&o.worker, "worker", "w", "With --provision: the number of a worker node, from 1.")
			f.on(&o.syncDown, "sync-down", "s", "Download the logs to ~/sky_logs.")
			f.on(&o.status, "status", "", "Print the job's status; the exit code is that of the job.")
			f.switchable(&o.follow, "follow", "", "Go on until the job ends. [default: yes]")
			f.number(&o.tail, "tail", "", "Begin with this many last lines; 0 means all. [default: 1000 when following]")
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.logs(ctx, args[0], args[1:], o)
		},
	})
}

func (o *logsOptions) check(ids []string) error {
	if o.autostop {
		if o.hook != "" {
			return usagef("--autostop is a deprecated alias for --hook stop and cannot be combined with --hook.")
		}
		o.hook = "stop"
	}
	jobOptions := o.syncDown || o.status || len(ids) > 0
	switch {
	case o.hook != "" && o.hook != "auto" && !slices.Contains(hookEvents, o.hook):
		return usagef("Invalid value for --hook: '%s' is not one of 'stop', 'preemption', 'down'.", o.hook)
	case o.worker != nil && !o.provision:
		return usagef("--worker can only be used with --provision.")
	case o.worker != nil && *o.worker < 1:
		return usagef("--worker must be a positive integer.")
	case o.provision && o.hook != "":
		return usagef("--provision and --hook cannot be used together.")
	case o.provision && jobOptions:
		return usagef("--provision cannot be combined with job log options (--sync-down/--status/job IDs).")
	case o.hook != "" && (jobOptions || o.worker != nil):
		return usagef("--hook cannot be combined with job log options (--sync-down/--status/--worker/job IDs).")
	case o.syncDown && o.status:
		return usagef("Both --sync_down and --status are specified (ambiguous). To fix: specify at most one of them.")
	}
	return nil
}

func (a *app) logs(ctx context.Context, cluster string, words []string, o logsOptions) error {
	if err := o.check(words); err != nil {
		return err
	}
	if o.syncDown {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		return a.syncDown(ctx, c, cluster, words)
	}
	ids, err := jobIDs(words)
	if err != nil {
		return err
	}
	if len(ids) > 1 && !o.status {
		return usagef("Cannot stream logs of multiple jobs (IDs: %s).\nPass -s/--sync-down to download the logs instead.", joinInts(ids, ", "))
	}
	c, err := a.connect(ctx)
	switch {
	case err != nil:
		return err
	case o.provision:
		return a.provisionLogs(ctx, c, cluster, o)
	case o.hook != "":
		return a.hookLogs(ctx, c, cluster, o)
	case o.status:
		return a.jobStatus(ctx, c, cluster, ids)
	}
	what := "the last job"
	if len(ids) == 1 {
		what = fmt.Sprintf("job %d", ids[0])
	}
	a.t.Note("%s", a.t.ErrStyle(term.Yellow, fmt.Sprintf("Tailing logs of %s on cluster '%s'...", what, cluster)))
	return a.tailJob(ctx, c, cluster, ids, o.follow, a.tailLines(o.tail, o.follow))
}

const defaultTail = 1000

// tailLines is how many last lines to ask for; 0 means all.
func (a *app) tailLines(asked *int, follow bool) int {
	switch {
	case asked != nil:
		return max(0, *asked)
	case follow:
		a.t.Note("Showing the last %d lines (default). Pass --tail 0 to print the entire log.", defaultTail)
		return defaultTail
	}
	return 0
}

// tailJob shows the log of one job (ids empty: the latest) and ends with the
// job's exit code.
func (a *app) tailJob(ctx context.Context, c *sky.Client, cluster string, ids []int, follow bool, tail int) error {
	body := api.LogsBody{ClusterName: cluster, Follow: &follow, Tail: tail}
	again := "sky logs " + cluster
	if len(ids) == 1 {
		body.JobID = &ids[0]
		again += fmt.Sprintf(" %d", ids[0])
	}
	l, err := c.Logs(body)
	if err != nil {
		return err
	}
	return a.tail(ctx, l, again, !follow)
}

// tail shows a log and ends with its exit code; unfinished is no failure when
// the log was not followed.
func (a *app) tail(ctx context.Context, l *sky.LogStream, again string, unfinishedOK bool) error {
	detached, err := a.follow(ctx, l)
	if err != nil {
		return err
	}
	if detached {
		a.t.Note("\nDetached; the job goes on. To see its output again, run: %s", again)
		return exitError(1)
	}
	code, err := l.ExitCode(ctx)
	switch {
	case err != nil:
		return err
	case code == 0, unfinishedOK && code == api.ExitJobNotFinished:
		return nil
	}
	return exitError(code)
}

func (a *app) provisionLogs(ctx context.Context, c *sky.Client, cluster string, o logsOptions) error {
	l, err := c.ProvisionLogs(api.ProvisionLogsBody{ClusterName: cluster, Worker: o.worker}, o.follow, tailOrAll(o.tail))
	if err != nil {
		return err
	}
	detached, err := a.follow(ctx, l)
	if detached {
		return exitError(1)
	}
	return err
}

func (a *app) hookLogs(ctx context.Context, c *sky.Client, cluster string, o logsOptions) error {
	body := api.HookLogsBody{ClusterName: cluster, Follow: &o.follow, Tail: tailOrAll(o.tail)}
	if o.hook != "auto" {
		body.Event = &o.hook
	}
	l, err := c.HookLogs(body)
	if err != nil {
		return err
	}
	return a.tail(ctx, l, "sky logs --hook "+cluster, true)
}

func tailOrAll(tail *int) int {
	if tail == nil || *tail < 0 {
		return 0
	}
	return *tail
}

// jobStatus prints the state of jobs and ends with the worst exit code.
func (a *app) jobStatus(ctx context.Context, c *sky.Client, cluster string, ids []int) error {
	req, err := c.JobStatus(ctx, api.JobStatusBody{ClusterName: cluster, JobIDs: ids})
	states, err := quiet(ctx, req, err)
	if err != nil {
		return err
	}
	code, found := 0, false
	for _, id := range sortedNumbers(states) {
		s := states[id]
		if s == nil {
			if id != "None" && id != "null" {
				a.t.Printf("Job %s: not found on cluster '%s'.\n", id, cluster)
				found = true
			}
			code = max(code, api.ExitJobNotFound)
			continue
		}
		found = true
		a.t.Printf("Job %s: %s\n", id, *s)
		code = max(code, s.ExitCode())
	}
	if !found {
		a.t.Printf("No job found on cluster '%s'.\n", cluster)
		code = api.ExitJobNotFound
	}
	if code != 0 {
		return exitError(code)
	}
	return nil
}

// syncDown downloads the logs of jobs (ids may be patterns; none: the latest).
func (a *app) syncDown(ctx context.Context, c *sky.Client, cluster string, ids []string) error {
	req, err := c.DownloadLogs(ctx, api.DownloadLogsBody{ClusterName: cluster, JobIDs: ids})
	dirs, err := wait(ctx, a, req, err)
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		a.t.Printf("No job found on cluster '%s'.\n", cluster)
		return exitError(api.ExitJobNotFound)
	}
	local, err := a.download(ctx, c, dirs)
	if err != nil {
		return err
	}
	for _, id := range sortedNumbers(local) {
		a.t.Printf("Job %s logs: %s\n", id, tilde(local[id], a.home))
	}
	return nil
}

// download copies the folders on the server, by key, to this machine and returns
// where they are here.
func (a *app) download(ctx context.Context, c *sky.Client, dirs map[string]string) (map[string]string, error) {
	remote := make([]string, 0, len(dirs))
	for _, d := range dirs {
		remote = append(remote, d)
	}
	slices.Sort(remote)
	where, err := c.Download(ctx, slices.Compact(remote), a.home)
	if err != nil {
		return nil, err
	}
	local := map[string]string{}
	for key, d := range dirs {
		local[key] = where[d]
	}
	return local, nil
}

func joinInts(ids []int, sep string) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(id)
	}
	return strings.Join(words, sep)
}
