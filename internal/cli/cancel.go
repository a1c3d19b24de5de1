package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

func (a *app) cancelCommand() *cobra.Command {
	var all, allUsers, yes, async bool
	return a.build(command{
		name: "cancel", args: "CLUSTER [JOBS]...", short: "Cancel jobs on a cluster.", min: 1, max: -1,
		long:     "Without JOBS and without -a or -u, your latest running job is cancelled.",
		example:  "sky cancel dev 1 2\nsky cancel dev -a\nsky cancel dev -y",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.on(&all, "all", "a", "All your jobs on the cluster.")
			f.on(&allUsers, "all-users", "u", "The jobs of all users on the cluster.")
			f.yes(&yes)
			f.async(&async)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			ids, err := jobIDs(args[1:])
			if err != nil {
				return err
			}
			return a.cancelJobs(ctx, args[0], ids, all, allUsers, yes, async)
		},
	})
}

// jobIDs reads job ids.
func jobIDs(args []string) ([]int, error) {
	var ids []int
	for _, s := range args {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return nil, usagef("Invalid job ID %s. Job ID must be integers.", s)
		}
		ids = append(ids, n)
	}
	return ids, nil
}

func (a *app) cancelJobs(ctx context.Context, pattern string, ids []int, all, allUsers, yes, async bool) error {
	if kind := controllerOf(pattern); kind != "" {
		return usagef("Cancelling the %s controller's jobs is not allowed.\nTo cancel managed jobs, use: sky jobs cancel <managed job IDs> [--all]", kind)
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	clusters, err := a.expand(ctx, c, []string{pattern}, allUsers)
	if err != nil {
		return err
	}
	switch {
	case len(clusters) == 0:
		return usagef("No clusters match pattern: '%s'", pattern) // a plain name is left to the server
	case len(clusters) > 1 && len(ids) > 0:
		return usagef("Cannot specify job IDs when cluster pattern matches multiple clusters. Pattern '%s' matches: %s", pattern, strings.Join(clusters, ", "))
	}
	if len(ids) == 0 && !all && !allUsers {
		a.t.Println("No job IDs or --all/--all-users provided; cancelling the latest running job.")
	}
	if !yes {
		question := fmt.Sprintf("Cancelling %s on cluster(s): %s. Proceed?", whatJobs(ids, all, allUsers), strings.Join(clusters, ", "))
		if err := a.t.Confirm(ctx, question, true); err != nil {
			return err
		}
	}
	failures := 0
	for _, name := range clusters {
		req, err := c.Cancel(ctx, api.CancelBody{ClusterName: name, JobIDs: ids, All: all, AllUsers: allUsers})
		if _, err = finish(ctx, a, async, "cancel", req, err); err != nil {
			if !perCluster(err) || len(clusters) == 1 {
				return err
			}
			failures++
			a.t.Warn("Cancelling jobs on cluster %s failed: %s", name, errorText(err))
		}
	}
	if failures == len(clusters) {
		return exitError(1)
	}
	return nil
}

// whatJobs is what a cancellation is about, in words.
func whatJobs(ids []int, all, allUsers bool) string {
	var parts []string
	switch {
	case allUsers:
		parts = append(parts, "all users' jobs")
	case all:
		parts = append(parts, "all your jobs")
	}
	switch len(ids) {
	case 0:
	case 1:
		parts = append(parts, fmt.Sprintf("job %d", ids[0]))
	default:
		words := make([]string, len(ids))
		for i, id := range ids {
			words[i] = strconv.Itoa(id)
		}
		parts = append(parts, "jobs "+strings.Join(words, " "))
	}
	if len(parts) == 0 {
		return "the latest running job"
	}
	return strings.Join(parts, " and ")
}
