package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/task"
)

func (a *app) poolCommand() *cobra.Command {
	return a.build(command{
		name: "pool", short: "Pools: warm workers for managed jobs. Not available yet.",
		example: "sky jobs pool apply -p gpus pool.yaml\nsky jobs launch -p gpus train.yaml\nsky jobs pool down gpus",
		group:   []*cobra.Command{a.poolApplyCommand(), a.poolStatusCommand(), a.poolDownCommand(), a.poolLogsCommand()},
	})
}

// poolApplyOptions are the flags of sky jobs pool apply.
type poolApplyOptions struct {
	name, mode string
	workers    *int
	yes, async bool
}

func (a *app) poolApplyCommand() *cobra.Command {
	var t taskFlags
	o := poolApplyOptions{mode: "rolling"}
	return a.build(command{
		name: "apply", args: "[POOL_YAML]", needs: "POOL_YAML or --workers", short: "Make a pool, or change one. Not available yet.", max: -1,
		example: "sky jobs pool apply -p gpus pool.yaml\nsky jobs pool apply -p gpus --workers 5",
		flags: func(f flags) {
			f.text(&o.name, "pool", "p", "Name of the pool.")
			f.choice(&o.mode, "mode", "", "How workers are replaced: one by one, or all at once.", "rolling", "blue_green")
			f.number(&o.workers, "workers", "", "Change the number of workers only.")
			f.task(&t)
			f.resources(&t)
			f.async(&o.async)
			f.yes(&o.yes)
		},
		run: func(ctx context.Context, _ *cobra.Command, words []string) error {
			switch {
			case o.workers != nil && len(words) > 0:
				return usagef("Cannot specify both --workers and POOL_YAML. Please use one of them.")
			case o.workers == nil && len(words) == 0:
				return usagef("Missing argument '[POOL_YAML]'; to change the number of workers only, use --workers.")
			case o.workers != nil && o.name == "":
				return usagef("A pool name must be provided to update the number of workers.")
			}
			return a.poolApply(ctx, words, &t, o)
		},
	})
}

func (a *app) poolApply(ctx context.Context, words []string, t *taskFlags, o poolApplyOptions) error {
	if err := a.able(ctx, "jobs.pool_apply", "`sky jobs pool apply`"); err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	body := api.PoolApplyBody{Workers: o.workers, PoolName: o.name, Mode: o.mode}
	if o.workers == nil {
		t.command = "sky jobs pool apply"
		d, err := a.read(ctx, words, t, o.yes)
		if err != nil {
			return err
		}
		one, err := single(d.Dag, "A pool is a single task; the file has several.")
		if err != nil {
			return err
		}
		if one.Pool == nil {
			return usagef("Pool section not found in the YAML file. To fix, add a valid `pool` field.")
		}
		for _, r := range one.Resources {
			if len(r.Ports) > 0 {
				return usageAt(one, "resources.ports", "Cannot specify ports in a pool.")
			}
		}
		dag, err := a.ready(d)
		if err != nil {
			return err
		}
		if body.PoolName == "" {
			if body.PoolName = one.Name; body.PoolName == "" {
				body.PoolName = task.GeneratedPoolName()
			}
		}
		s := serviceLaunch{dag: dag, name: body.PoolName, yes: o.yes, pool: true,
			each:     "Each pool worker will use the following resources (estimated):",
			question: fmt.Sprintf("Applying config to pool '%s'. Proceed?", body.PoolName)}
		text, blob, err := a.prepareService(ctx, c, s)
		if err != nil {
			return err
		}
		body.Task, body.FileMountsBlobID = &text, blob
	}
	req, err := c.ApplyPool(ctx, body)
	if _, err = finish(ctx, a, o.async, "jobs.pool_apply", req, err); err != nil || o.async {
		return err
	}
	a.t.Print(poolHints(body.PoolName))
	return nil
}

func poolHints(name string) string {
	return fmt.Sprintf("\nPool name: %[1]s\n📋 Useful Commands\n"+
		"├── To submit jobs to the pool:\tsky jobs launch --pool %[1]s <yaml_file>\n"+
		"├── To submit multiple jobs:\tsky jobs launch --pool %[1]s --num-jobs 10 <yaml_file>\n"+
		"├── To check the pool status:\tsky jobs pool status %[1]s\n"+
		"├── To terminate the pool:\tsky jobs pool down %[1]s\n"+
		"└── To update the number of workers:\tsky jobs pool apply --pool %[1]s --workers 5\n\nSuccessfully created pool '%[1]s'.\n", name)
}

func (a *app) poolStatusCommand() *cobra.Command {
	var verbose, all bool
	return a.build(command{
		name: "status", args: "[POOL_NAMES]...", short: "Show pools and their workers.", max: -1,
		example: "sky jobs pool status\nsky jobs pool status gpus -v\nsky jobs pool status -o json",
		flags: func(f flags) {
			f.on(&verbose, "verbose", "v", "Show everything about each pool.")
			f.on(&all, "all", "a", "Show all workers.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.PoolStatus(ctx, names)
			list, err := quiet(ctx, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(list)); done {
				return err
			}
			a.t.Print(servicesText(a.t, names, list, true, verbose, all || verbose, a.now()))
			return nil
		},
	})
}

func (a *app) poolDownCommand() *cobra.Command {
	var all, purge, yes, async bool
	return a.build(command{
		name: "down", args: "[POOL_NAMES]...", needs: "POOL_NAMES or --all", short: "End pools.", max: -1,
		example: "sky jobs pool down gpus\nsky jobs pool down -a -y",
		flags: func(f flags) {
			f.on(&all, "all", "a", "All pools.")
			f.on(&purge, "purge", "p", "Forget pools that failed, even when something may be left behind.")
			f.yes(&yes)
			f.async(&async)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usagef("Can only specify one of POOL_NAMES or --all. Provided '%s'.", strings.Join(names, " "))
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if err := a.mayEndPools(ctx, c, names, all, yes); err != nil {
				return err
			}
			req, err := c.DownPools(ctx, api.PoolDownBody{PoolNames: names, All: all, Purge: purge})
			_, err = finish(ctx, a, async, "jobs.pool_down", req, err)
			return err
		},
	})
}

const (
	poolPatience = 300 * time.Second
	poolPoll     = 2 * time.Second
)

// mayEndPools asks, and ends the jobs that still run on the pools first.
func (a *app) mayEndPools(ctx context.Context, c *sky.Client, names []string, all, yes bool) error {
	live, err := a.poolJobs(ctx, c, names, all)
	if err != nil {
		return err
	}
	if len(live) == 0 {
		question := "Terminating all pools. Proceed?"
		if !all {
			question = fmt.Sprintf("Terminating pool(s) %s. Proceed?", quoteAll(names))
		}
		if yes {
			return nil
		}
		return a.t.Confirm(ctx, question, true)
	}
	a.t.Warn("Pool(s) has %d nonterminal jobs: %s so it is not yet safe to down.", len(live), joinInts(live, ","))
	if !yes {
		if err := a.t.Confirm(ctx, "Would you like to cancel all jobs and down the pool(s)?", false); err != nil {
			return err
		}
	}
	req, err := c.CancelJobs(ctx, api.JobsCancelBody{JobIDs: live})
	if _, err = quiet(ctx, req, err); err != nil {
		return err
	}
	spin := a.t.Spin("[bold cyan]Waiting for the jobs to end[/]")
	defer spin.Stop()
	ctx, cancel := context.WithTimeout(ctx, poolPatience)
	defer cancel()
	for {
		if live, err = a.poolJobs(ctx, c, names, all); err != nil || len(live) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("jobs %s did not end within %v; the pools are left alone", joinInts(live, ","), poolPatience)
		case <-time.After(poolPoll):
		}
	}
}

// poolJobs are the managed jobs on pools that have not ended.
func (a *app) poolJobs(ctx context.Context, c *sky.Client, names []string, all bool) ([]int, error) {
	req, err := c.JobsQueue(ctx, api.JobsQueueBody{SkipFinished: true, AllUsers: true})
	page, err := quiet(ctx, req, err)
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, j := range page.Jobs {
		pool := text(j.Pool)
		if pool == "" || j.JobID == nil || j.Status.Terminal() || len(ids) > 0 && ids[len(ids)-1] == *j.JobID {
			continue
		}
		for _, n := range names {
			if matches(n, pool) {
				ids = append(ids, *j.JobID)
				break
			}
		}
		if all {
			ids = append(ids, *j.JobID)
		}
	}
	return ids, nil
}

func (a *app) poolLogsCommand() *cobra.Command {
	return a.partLogsCommand(partLogs{
		whole: "pool", args: "POOL_NAME [WORKER_IDS]...", part: "WORKER_ID",
		needs:   "one WORKER_ID or --controller; with --sync-down several, or none for all",
		example: "sky jobs pool logs gpus 1\nsky jobs pool logs gpus --controller\nsky jobs pool logs gpus -s",
		stream: func(c *sky.Client, name string, s partLogsStream) (*sky.LogStream, error) {
			return c.PoolLogs(api.PoolLogsBody{PoolName: name, Target: s.target, WorkerID: s.id, Follow: &s.follow, Tail: s.tail})
		},
		gather: func(ctx context.Context, c *sky.Client, name string, g partLogsGather) (*sky.Request[string], error) {
			return c.SyncPoolLogs(ctx, api.PoolSyncLogsBody{PoolName: name, LocalDir: "~/sky_logs/pool", Targets: g.targets, WorkerIDs: g.ids, Tail: g.tail})
		},
	})
}
