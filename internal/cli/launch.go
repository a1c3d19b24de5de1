package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/task"
)

// launchOptions are the flags of sky launch beyond the task's.
type launchOptions struct {
	cluster, waitFor, clone            string
	minutes                            *int
	dryrun, detach, async, down, retry bool
	yes, noSetup, fast, docker         bool
	quiet                              bool // no hints at the end
	plan                               planFlags
}

func (a *app) launchCommand() *cobra.Command {
	var o launchOptions
	var t taskFlags
	return a.oldFlags(a.build(command{
		name: "launch", args: "[ENTRYPOINT]...", short: "Run a task on a new cluster, or on one that exists.", max: -1,
		long: "ENTRYPOINT is a task file (YAML) or a shell command. The cheapest place that fits is\n" +
			"rented; when it has no capacity, the next one is tried. A price that rose since the plan was\n" +
			"made is asked about at a terminal, without -y. Options win over the task file.\n\n" +
			"With -o json, which goes with -d and -y, the log is on the error stream, with lines of JSON\n" +
			"that tell how far uploads and copies of buckets are ({\"progress\": …}).\n\n" +
			"The exit code is that of the job: 0 succeeded, 100 failed, 103 cancelled.",
		example: "sky launch -c dev task.yaml\nsky launch -c dev --gpus A100:8 --use-spot task.yaml\nsky launch --infra aws/us-east-1 -- nvidia-smi\n" +
			"sky launch --dryrun --gpus H100\nsky launch --dryrun --assume-enabled all -o json --gpus A100:8",
		flags: func(f flags) {
			f.text(&o.cluster, "cluster", "c", "Name of the cluster; without it a name is made up.")
			f.on(&o.dryrun, "dryrun", "", "Show the plan and rent nothing.")
			f.switchable(&o.detach, "detach-run", "d", "Return once the job is submitted; do not follow its output.")
			f.task(&t)
			f.named(&t)
			f.resources(&t)
			f.prio(&t)
			f.number(&o.minutes, "idle-minutes-to-autostop", "i", "Stop the cluster after this many minutes without work.")
			f.waitFor(&o.waitFor)
			f.on(&o.down, "down", "", "Give the cluster back when all jobs have ended, or with -i after that many idle minutes.")
			f.on(&o.retry, "retry-until-up", "r", "Try again until there is capacity.")
			f.yes(&o.yes)
			f.hedge(a)
			f.on(&o.noSetup, "no-setup", "", "Skip the task's setup.")
			f.text(&o.clone, "clone-disk-from", "", "Start with a copy of the disk of this cluster, which is stopped and on the same cloud.")
			f.StringVar(&o.clone, "clone", "", "")
			f.on(&o.fast, "fast", "", "If the cluster is up, skip provisioning and setup.")
			f.on(&o.docker, "docker", "", "Run in a container on this machine.")
			f.hide("clone", "docker")
			f.text(&a.workspace, "workspace", "w", "Workspace to launch in.")
			f.async(&o.async)
			f.git(&t)
			f.plan(&o.plan)
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, words []string) error {
			if err := o.checkPlan(a); err != nil {
				return err
			}
			return a.inFormat(a.launch(ctx, words, &t, o))
		},
	}), oldFlag{name: "detach-setup", short: "s", note: "setup is always a part of the job"})
}

func (a *app) launch(ctx context.Context, words []string, t *taskFlags, o launchOptions) error {
	if o.docker {
		if err := a.inDocker(t); err != nil {
			return err
		}
	}
	t.command = "sky launch"
	dag, err := a.load(ctx, words, t, o.yes)
	if err != nil {
		return err
	}
	one, err := single(dag, "YAML specifies a DAG which is only supported by `sky jobs launch`. `sky launch` supports a single task only.")
	if err != nil {
		return err
	}
	a.noticeIgnored(one)
	if err := o.autostop(one); err != nil {
		return err
	}
	if err := a.checkClusterName(ctx, "-c", o.cluster, "sky launch -c <cluster-name> ", o.yes); err != nil {
		return err
	}
	if kind := controllerOf(o.cluster); kind != "" {
		return usagef("Cluster %s is reserved for %s controller. Launching tasks on it is not allowed.", o.cluster, controllerTitle(kind))
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if o.cluster == "" {
		o.cluster = task.GeneratedClusterName(c.User().Name)
	}
	return a.launchDag(ctx, c, dag, o)
}

func controllerTitle(kind string) string {
	if kind == "jobs" {
		return "managed jobs"
	}
	return "sky serve"
}

// launchDag validates, asks, launches and follows.
func (a *app) launchDag(ctx context.Context, c *sky.Client, dag *task.Dag, o launchOptions) error {
	options := &api.RequestOptions{ClusterName: &o.cluster, IdleMinutesAutostop: o.minutes, Down: o.down, Dryrun: o.dryrun}
	dag, err := a.applyPolicy(ctx, c, policy.Launch, dag, options)
	if err != nil {
		return err
	}
	text, err := dag.YAML()
	if err != nil {
		return err
	}
	minimize, err := o.plan.minimize()
	if err != nil {
		return err
	}
	body := api.DagBody{Dag: string(text), RequestOptions: options, Minimize: minimize}
	if o.clone != "" {
		body.CloneDiskFrom = &o.clone
	}
	if err := c.Validate(ctx, body); err != nil {
		return err
	}
	asked := false
	var agreed *float64 // what a node may cost an hour that costs more than was shown
	if !o.yes && !o.dryrun {
		var shown *api.Plan
		if asked, shown, err = a.mayLaunch(ctx, c, body, o.cluster); err != nil {
			return err
		}
		if !o.async {
			agreed = priceOf(shown)
		}
	} else if o.clone != "" && !o.dryrun { // what cannot be is refused before anything is uploaded
		if _, err := a.showPlan(ctx, c, body); err != nil {
			return err
		}
		asked = true
	} else if a.output == "table" && !o.dryrun {
		a.t.Println("Running on cluster: " + o.cluster)
	}
	blob, err := a.upload(ctx, c, dag, move{silent: o.dryrun, ask: !o.yes})
	if err != nil {
		return err
	}
	if blob != nil {
		if text, err = dag.YAML(); err != nil {
			return err
		}
	}
	launch := api.LaunchBody{
		Task: string(text), ClusterName: o.cluster, RetryUntilUp: o.retry, Dryrun: o.dryrun,
		OptimizeTarget: minimize, NoSetup: o.noSetup, Fast: o.fast, QuietOptimizer: asked, IncludeCredentials: true,
	}
	launch.FileMountsBlobID, launch.CloneDiskFrom, launch.AgreedPrice = blob, body.CloneDiskFrom, agreed
	if launch.PlanOptions, err = o.plan.options(a); err != nil {
		return err
	}
	if o.dryrun && a.output != "table" {
		return a.printPlan(ctx, c, launch)
	}
	res, err := a.launchAgreed(ctx, c, launch, o)
	if err != nil || o.async || o.dryrun {
		return err
	}
	if done, err := a.emit(launched{o.cluster, res.JobID}); done {
		return err
	}
	return a.afterLaunch(ctx, c, o, res)
}

// launchAgreed launches, and asks as often as a price has risen above what was agreed to.
func (a *app) launchAgreed(ctx context.Context, c *sky.Client, launch api.LaunchBody, o launchOptions) (api.LaunchResult, error) {
	for {
		req, err := c.Launch(ctx, launch)
		res, err := finish(ctx, a, o.async, "launch", req, err)
		price, rose := risenTo(err)
		if !rose {
			return res, err
		}
		a.t.Warn("%v", err)
		if err := a.t.Confirm(ctx, "Launching at that price. Proceed?", true); err != nil {
			return res, err
		}
		launch.AgreedPrice = &price
	}
}

// risenTo is the price that has to be agreed to, if that is why a launch ended.
func risenTo(err error) (price float64, rose bool) {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Details["kind"] != api.KindPriceRose {
		return 0, false
	}
	price, rose = e.Details["hourly_price"].(float64)
	return price, rose
}

// priceOf is what a node costs an hour by a plan for one task; nil: nobody knows.
func priceOf(p *api.Plan) *float64 {
	if p == nil || len(p.Tasks) != 1 || p.Tasks[0].Chosen.HourlyPrice == 0 {
		return nil
	}
	return &p.Tasks[0].Chosen.HourlyPrice
}

// mayLaunch asks before something is rented or a cluster of somebody else is
// used. asked reports whether a plan was shown and agreed to.
func (a *app) mayLaunch(ctx context.Context, c *sky.Client, body api.DagBody, name string) (asked bool, shown *api.Plan, err error) {
	records, err := a.listClusters(ctx, c, []string{name}, false, true)
	if err != nil {
		return false, nil, err
	}
	me := c.User()
	if a.health != nil && a.health.User != nil {
		me = *a.health.User
	}
	if len(records) == 0 || body.CloneDiskFrom != nil {
		if shown, err = a.showPlan(ctx, c, body); err != nil {
			return false, nil, err
		}
	}
	question := launchQuestion(name, records, me)
	if question == "" {
		a.t.Println("Running on cluster: " + name)
		return false, nil, nil
	}
	return len(records) == 0, shown, a.t.Confirm(ctx, question, true)
}

// showPlan shows the plan for a task. Servers of older versions do not return it.
func (a *app) showPlan(ctx context.Context, c *sky.Client, body api.DagBody) (*api.Plan, error) {
	body.WantPlan, body.Columns = true, a.t.Columns()
	req, err := c.Optimize(ctx, body)
	return wait(ctx, a, req, err)
}

// launchQuestion is what to ask before launching on a cluster; "" is nothing.
func launchQuestion(name string, records []api.StatusRecord, me api.User) string {
	if len(records) == 0 {
		return fmt.Sprintf("Launching a new cluster '%s'. Proceed?", name)
	}
	r, owner := records[0], ""
	if r.UserHash != "" && me.ID != "" && r.UserHash != me.ID {
		owner = fmt.Sprintf(" created by another user '%s'", r.UserName)
		if r.UserName == me.Name {
			owner = fmt.Sprintf("%s (hash: %s)", owner, r.UserHash)
		}
	}
	switch {
	case r.Status == api.ClusterStopped:
		return fmt.Sprintf("Restarting the stopped cluster '%s'%s. Proceed?", name, owner)
	case owner != "":
		return fmt.Sprintf("Cluster '%s' was%s. Reusing the cluster. Proceed?", name, owner)
	}
	return ""
}

// afterLaunch follows the job and says what can be done next.
func (a *app) afterLaunch(ctx context.Context, c *sky.Client, o launchOptions, res api.LaunchResult) error {
	reach := "sky ssh " + o.cluster
	if records, err := a.listClusters(ctx, c, []string{o.cluster}, false, true); err == nil {
		a.updateSSH(records, false)
		if _, err := os.Stat(filepath.Join(a.home, ".sky", "generated", "ssh", o.cluster)); err == nil { // written here, or by a server on this machine
			reach = "ssh " + o.cluster
		}
	}
	var outcome error
	if res.JobID != nil && !o.detach {
		outcome = a.tailJob(ctx, c, o.cluster, []int{*res.JobID}, true, 0)
		if ctx.Err() != nil {
			return outcome
		}
	}
	stops := res.Handle == nil || !res.Handle.CannotStop
	if !o.quiet && !config.MinimizeLogging.On(a.lookupEnv) {
		a.t.Print(launchHints(a.t, o.cluster, res.JobID, reach, stops))
	}
	return outcome
}

// hintColumn is where commands stand in hints.
const hintColumn = 32

// launchHints is the block after a launch; stops reports whether the cluster can be
// stopped.
func launchHints(t *term.Term, cluster string, job *int, reach string, stops bool) string {
	var b strings.Builder
	b.WriteString("\n📋 Useful Commands\n")
	tree := func(items [][2]string) {
		for i, it := range items {
			branch := "├── "
			if i == len(items)-1 {
				branch = "└── "
			}
			b.WriteString(branch + it[0])
			for n := len([]rune(branch)) + len(it[0]); n < hintColumn; n += 8 - n%8 {
				b.WriteByte('\t')
			}
			b.WriteString(t.Style(term.Bold, it[1]) + "\n")
		}
	}
	if job != nil {
		fmt.Fprintf(&b, "Job ID: %d\n", *job)
		tree([][2]string{
			{"To cancel the job:", fmt.Sprintf("sky cancel %s %d", cluster, *job)},
			{"To stream job logs:", fmt.Sprintf("sky logs %s %d", cluster, *job)},
			{"To view job queue:", "sky queue " + cluster},
		})
	}
	b.WriteString("Cluster name: " + cluster + "\n")
	items := [][2]string{
		{"To log into the head VM:", reach},
		{"To submit a job:", "sky exec " + cluster + " yaml_file"},
	}
	if stops {
		items = append(items, [2]string{"To stop the cluster:", "sky stop " + cluster})
	}
	tree(append(items, [2]string{"To teardown the cluster:", "sky down " + cluster}))
	return b.String()
}

// single is the only task of a Dag; with several the text says what to do.
func single(dag *task.Dag, several string) (*task.Task, error) {
	if len(dag.Tasks) != 1 || dag.Execution == task.Parallel {
		return nil, usagef("%s", several)
	}
	return dag.Tasks[0], nil
}

func (a *app) noticeIgnored(t *task.Task) {
	switch {
	case t.Pool != nil:
		a.t.Warn("The pool section has no effect with `sky launch`. To make a pool, use: sky jobs pool apply")
	case t.Service != nil:
		a.t.Warn("The service section has no effect with `sky launch`. To start a service, use: sky serve up")
	}
	for _, r := range t.Resources {
		if r.Priority != nil {
			a.t.Warn("Priority %d has no effect with `sky launch`: it orders managed jobs. Use: sky jobs launch", *r.Priority)
			break
		}
	}
}

// autostop puts -i, --down and --wait-for into the task.
func (o *launchOptions) autostop(t *task.Task) error {
	if o.minutes == nil && !o.down && o.waitFor == "" {
		return nil
	}
	if o.minutes != nil && *o.minutes < 0 {
		for i := range t.Resources {
			t.Resources[i].Autostop = &task.Autostop{Enabled: false}
		}
		return nil
	}
	for i := range t.Resources {
		var s task.Autostop
		if old := t.Resources[i].Autostop; old != nil {
			s = *old
		}
		switch {
		case o.minutes != nil:
			s.Enabled, s.IdleMinutes, s.Down = true, max(1, *o.minutes), o.down
		case o.down:
			s = task.Autostop{Enabled: true, Down: true, WaitFor: s.WaitFor}
		case !s.Enabled:
			return usagef("--wait-for has an effect only with -i/--idle-minutes-to-autostop or --down.")
		}
		if o.waitFor != "" {
			s.WaitFor = o.waitFor
		}
		t.Resources[i].Autostop = &s
	}
	return nil
}

// checkClusterName asks about a name that looks like a file, which is most
// often a slip: "sky launch -c task.yaml".
func (a *app) checkClusterName(ctx context.Context, flag, name, meant string, yes bool) error {
	if name == "" {
		return nil
	}
	_, err := os.Stat(name)
	if err != nil && !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".yml") && !strings.HasSuffix(name, ".json") {
		return nil
	}
	if info, statErr := os.Stat(name); statErr == nil && info.IsDir() {
		return nil // folders are often named like clusters
	}
	text := fmt.Sprintf("Cluster name '%s' looks like a file path. Did you mean: %s%s", name, meant, name)
	if flag == "-n" {
		text = strings.Replace(text, "Cluster", "Job", 1)
	}
	if yes {
		a.t.Warn("%s", text)
		return nil
	}
	return a.t.Confirm(ctx, text+"\nProceed anyway?", false)
}
