package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
)

// jobsLogsOptions are the flags of sky jobs logs.
type jobsLogsOptions struct {
	name                                  string
	follow, controller, refresh, syncDown bool
	tail                                  *int
}

func (a *app) jobsLogsCommand() *cobra.Command {
	o := jobsLogsOptions{follow: true}
	return a.build(command{
		name: "logs", args: "[JOB_ID] [TASK]", short: "Follow, print or download the output of a managed job.", max: 2,
		long:    "Without JOB_ID and --name, the latest job is meant. TASK is the number or name of a task.",
		example: "sky jobs logs\nsky jobs logs 3 --tail 100\nsky jobs logs --controller 3",
		flags: func(f flags) {
			f.text(&o.name, "name", "n", "The job of this name.")
			f.switchable(&o.follow, "follow", "", "Go on until the job ends. [default: yes]")
			f.on(&o.controller, "controller", "", "Show what the controller does with the job.")
			f.on(&o.refresh, "refresh", "r", "Restart the controller if it is stopped.")
			f.on(&o.syncDown, "sync-down", "s", "Download the logs to ~/sky_logs.")
			f.number(&o.tail, "tail", "", "Begin with this many last lines; 0 means all. [default: 1000 when following]")
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error { return a.jobsLogs(ctx, args, o) },
	})
}

func (a *app) jobsLogs(ctx context.Context, args []string, o jobsLogsOptions) error {
	body := api.JobsLogsBody{Name: optional(o.name), Follow: &o.follow, Controller: o.controller, Refresh: o.refresh}
	if len(args) > 0 {
		ids, err := jobIDs(args[:1])
		if err != nil {
			return err
		}
		if o.name != "" {
			return usagef("Cannot specify both --name and a job ID.")
		}
		body.JobID = &ids[0]
	}
	if len(args) > 1 {
		which := api.Text(args[1])
		if n, err := strconv.Atoi(args[1]); err == nil {
			which = api.Number(n)
		}
		body.Task = &which
	}
	if o.syncDown {
		if o.tail != nil {
			return usagef("--tail is not supported with --sync-down. Use `sky jobs logs --no-follow --tail N <id>` to view the tail, or redirect stdout to save it to a file.")
		}
		return a.jobsSyncDown(ctx, body)
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if n := a.tailLines(o.tail, o.follow); n > 0 {
		body.Tail = &n
	}
	l, err := c.JobLogs(body)
	if err != nil {
		return err
	}
	again := "sky jobs logs"
	if len(args) > 0 {
		again += " " + args[0]
	}
	return a.tail(ctx, l, again, !o.follow)
}

func (a *app) jobsSyncDown(ctx context.Context, b api.JobsLogsBody) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	req, err := c.DownloadJobLogs(ctx, api.JobsDownloadLogsBody{Name: b.Name, JobID: b.JobID, Refresh: b.Refresh, Controller: b.Controller, LocalDir: "~/sky_logs"})
	dirs, err := wait(ctx, a, req, err)
	if err != nil {
		return err
	}
	local, err := a.download(ctx, c, dirs)
	if err != nil {
		return err
	}
	which := ""
	if b.Controller {
		which = " (controller)"
	}
	for _, id := range sortedNumbers(local) {
		a.t.Printf("Job %s logs%s: %s\n", id, which, tilde(local[id], a.home))
	}
	if len(local) == 0 {
		a.t.Println("No matching job found.")
		return exitError(api.ExitJobNotFound)
	}
	return nil
}
