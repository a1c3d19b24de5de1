package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/task"
)

func (a *app) jobsCommand() *cobra.Command {
	return a.build(command{
		name: "jobs", short: "Managed jobs: started again elsewhere when machines go away.",
		example: "sky jobs launch train.yaml\nsky jobs queue\nsky jobs logs 1\nsky jobs cancel 1",
		group: []*cobra.Command{
			a.jobsLaunchCommand(), a.jobsQueueCommand(), a.jobsCancelCommand(), a.jobsLogsCommand(), a.jobsScheduleCommand(),
			a.dashboardPage(command{name: "dashboard", example: "sky jobs dashboard", short: "Open the dashboard in a browser. It has no page of managed jobs yet: sky jobs queue lists them."}, "/dashboard/"),
			a.poolCommand(),
		},
	})
}

// jobsLaunchOptions are the flags of sky jobs launch beyond the task's.
type jobsLaunchOptions struct {
	cluster, pool, recovery string
	numJobs                 *int
	detach, async, yes      bool
}

func (a *app) jobsLaunchCommand() *cobra.Command {
	var o jobsLaunchOptions
	var t taskFlags
	return a.build(a.jobsLaunchSpec("launch", &o, &t))
}

func (a *app) jobsLaunchSpec(name string, o *jobsLaunchOptions, t *taskFlags) command {
	return command{
		name: name, args: "ENTRYPOINT...", short: "Submit a managed job: a task, a pipeline or a job group.", min: 1, max: -1,
		example: "sky jobs launch train.yaml\nsky jobs launch -n sweep --num-jobs 10 sweep.yaml",
		flags: func(f flags) {
			f.text(&o.cluster, "cluster", "c", "")
			f.hide("cluster")
			f.task(t)
			f.named(t)
			f.resources(t)
			f.prio(t)
			f.text(&o.recovery, "job-recovery", "", "How to recover: FAILOVER, EAGER_NEXT_REGION, none.")
			f.switchable(&o.detach, "detach-run", "d", "Return once the job is submitted; do not follow its output.")
			f.hedge(a)
			f.text(&o.pool, "pool", "p", "Run on the workers of this pool. Not available yet.")
			f.number(&o.numJobs, "num-jobs", "", "Submit the job this many times; each finds its number, from 0, in SKYPILOT_JOB_RANK.")
			f.text(&a.workspace, "workspace", "w", "Workspace to launch in.")
			f.yes(&o.yes)
			f.async(&o.async)
			f.git(t)
		},
		run: func(ctx context.Context, _ *cobra.Command, words []string) error {
			return a.jobsLaunch(ctx, words, t, *o)
		},
	}
}

func (o jobsLaunchOptions) check(t *taskFlags) error {
	switch {
	case o.numJobs != nil && *o.numJobs < 1:
		return usagef("--num-jobs must be a positive integer. Got: %d.", *o.numJobs)
	case o.cluster != "" && t.name != "" && o.cluster != t.name:
		return usagef("Cannot specify both --name and --cluster. Use one of the flags as they are alias.")
	}
	return nil
}

func (a *app) jobsLaunch(ctx context.Context, words []string, t *taskFlags, o jobsLaunchOptions) error {
	if err := o.check(t); err != nil {
		return err
	}
	if o.pool != "" {
		if err := a.able(ctx, "jobs.pool_apply", "--pool"); err != nil {
			return err
		}
	}
	if t.name == "" {
		t.name = o.cluster
	}
	t.recovery = o.recovery
	if err := a.checkClusterName(ctx, "-n", t.name, "sky jobs launch -n <job-name> ", o.yes); err != nil {
		return err
	}
	t.command = "sky jobs launch"
	dag, err := a.load(ctx, words, t, o.yes)
	if err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	dag.FillNames(c.User().Name)
	if dag, err = a.applyPolicy(ctx, c, policy.JobsLaunch, dag, nil); err != nil {
		return err
	}
	text, err := dag.YAML()
	if err != nil {
		return err
	}
	if err := c.Validate(ctx, api.DagBody{Dag: string(text)}); err != nil {
		return err
	}
	if err := a.confirmJob(ctx, c, dag, string(text), o); err != nil {
		return err
	}
	blob, err := a.upload(ctx, c, dag, move{ask: !o.yes, notes: true})
	if err != nil {
		return err
	}
	if blob != nil {
		if text, err = dag.YAML(); err != nil {
			return err
		}
	}
	body := api.JobsLaunchBody{Task: string(text), Name: optional(dag.Name), Pool: optional(o.pool), NumJobs: o.numJobs}
	body.FileMountsBlobID = blob
	req, err := c.LaunchJob(ctx, body)
	res, err := finish(ctx, a, o.async, "jobs.launch", req, err)
	if err != nil || o.async {
		return err
	}
	if res.ScheduleID > 0 {
		a.t.Print(scheduleHints(res.ScheduleID))
		return nil
	}
	return a.afterJobLaunch(ctx, c, res.JobID, dag.Name, o)
}

// confirmJob shows the plan and asks.
func (a *app) confirmJob(ctx context.Context, c *sky.Client, dag *task.Dag, text string, o jobsLaunchOptions) error {
	n := 1
	if o.numJobs != nil {
		n = *o.numJobs
	}
	if o.pool != "" {
		a.t.Printf("Submitting to pool '%s' with %s.\n", o.pool, format.Count(n, "job"))
		if needsSetup(dag) {
			a.t.Warn("Setup, file mounts and storage mounts have no effect on a pool's workers. To change the pool, use: sky jobs pool apply -p %s new-pool.yaml", o.pool)
		}
	}
	if o.yes {
		return nil
	}
	if o.pool == "" {
		a.t.Warn("Managed job '%s' will be launched on (estimated):", dag.Name)
		if _, err := a.showPlan(ctx, c, api.DagBody{Dag: text}); err != nil {
			return err
		}
	} else if err := a.showPoolResources(ctx, c, o.pool); err != nil {
		return err
	}
	question := fmt.Sprintf("Launching a managed job '%s'. Proceed?", dag.Name)
	if o.numJobs != nil {
		question = fmt.Sprintf("Launching %d managed jobs '%s'. Proceed?", n, dag.Name)
	}
	return a.t.Confirm(ctx, question, true)
}

func needsSetup(d *task.Dag) bool {
	for _, t := range d.Tasks {
		if t.Setup != "" || len(t.FileMounts) > 0 || len(t.StorageMounts) > 0 {
			return true
		}
	}
	return false
}

func (a *app) showPoolResources(ctx context.Context, c *sky.Client, pool string) error {
	req, err := c.PoolStatus(ctx, []string{pool})
	pools, err := quiet(ctx, req, err)
	if err != nil {
		return err
	}
	if len(pools) == 0 {
		return fmt.Errorf("Pool '%s' not found.", pool) //nolint:staticcheck // shown as is
	}
	a.t.Printf("Use resources from pool '%s': %s.\n", pool, pools[0].RequestedResources)
	return nil
}

func (a *app) afterJobLaunch(ctx context.Context, c *sky.Client, ids []int, name string, o jobsLaunchOptions) error {
	if len(ids) == 0 {
		return nil
	}
	var outcome error
	if len(ids) == 1 && !o.detach {
		follow := true
		l, err := c.JobLogs(api.JobsLogsBody{JobID: &ids[0], Follow: &follow})
		if err != nil {
			return err
		}
		outcome = a.tail(ctx, l, fmt.Sprintf("sky jobs logs %d", ids[0]), false)
		if ctx.Err() != nil {
			return outcome
		}
	}
	if !config.MinimizeLogging.On(a.lookupEnv) {
		a.t.Print(jobHints(ids, name, o.pool))
	}
	return outcome
}

// jobHints is the block after a managed job was submitted.
func jobHints(ids []int, name, pool string) string {
	var b strings.Builder
	if len(ids) > 1 {
		fmt.Fprintf(&b, "\nJobs submitted with IDs: %s\n\n📋 Useful Commands\n", joinInts(ids, ","))
		b.WriteString("├── To stream job logs:\t\tsky jobs logs <job-id>\n├── To stream controller logs:\tsky jobs logs --controller <job-id>\n")
		how := "--pool " + pool
		if pool == "" {
			how = "--name " + name
		}
		fmt.Fprintf(&b, "└── To cancel all jobs:\t\tsky jobs cancel %s\n", how)
		return b.String()
	}
	fmt.Fprintf(&b, "\n📋 Useful Commands\nManaged Job ID: %d\n", ids[0])
	fmt.Fprintf(&b, "├── To cancel the job:\t\tsky jobs cancel %d\n├── To stream job logs:\t\tsky jobs logs %[1]d\n"+
		"├── To stream controller logs:\tsky jobs logs --controller %[1]d\n└── To view all managed jobs:\tsky jobs queue\n", ids[0])
	return b.String()
}
