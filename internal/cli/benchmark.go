package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/bench"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/internal/table"
	"github.com/skypilot-go/sky/internal/yaml11"
	"github.com/skypilot-go/sky/task"
)

func (a *app) benchCommand() *cobra.Command {
	return a.build(command{
		name: "bench", short: "Run one task on several resources and compare time and cost.",
		example: "sky bench launch train.yaml -b bert --gpus T4,V100\nsky bench show bert\nsky bench down bert\nsky bench delete bert",
		group:   []*cobra.Command{a.benchLaunchCommand(), a.benchListCommand(), a.benchShowCommand(), a.benchDownCommand(), a.benchDeleteCommand()},
	})
}

// benchLaunchOptions are the flags of sky bench launch beyond the task's.
type benchLaunchOptions struct {
	name    string
	minutes *int
	yes     bool
}

// benchAutostop is after how many idle minutes the clusters of a benchmark stop.
const benchAutostop = 5

func (a *app) benchLaunchCommand() *cobra.Command {
	var o benchLaunchOptions
	var t taskFlags
	return a.build(command{
		name: "launch", args: "YAML", short: "Launch a task on each of several candidates.", min: 1, max: 1,
		long: "The candidates are those of resources.candidates in the task file, a list of which each is laid over the\n" +
			"other resources, or those of --gpus. Each gets a cluster, sky-bench-NAME-0 and so on.",
		example: "sky bench launch train.yaml -b bert --gpus T4:4,V100:8\nsky bench launch train.yaml -b bert -i 10 -y",
		flags: func(f flags) {
			f.text(&o.name, "benchmark", "b", "Name of the benchmark.")
			f.task(&t)
			f.named(&t)
			f.text(&t.gpus, "gpus", "", "Accelerators of the candidates: T4:4,V100:8.")
			f.text(&t.instance, "instance-type", "t", "Instance type of a cloud.")
			f.texts(&t.ports, "ports", "", "Ports to open: 8080, or 10000-10010 (may be repeated).")
			f.number(&o.minutes, "idle-minutes-to-autostop", "i", "Stop each cluster after this many minutes without work; 5 unless the task says otherwise, -1: never.")
			f.yes(&o.yes)
			f.text(&a.workspace, "workspace", "w", "Workspace to launch in.")
		},
		run: func(ctx context.Context, _ *cobra.Command, words []string) error {
			return a.benchLaunch(ctx, words[0], t, o)
		},
	})
}

// benchCandidate is one cluster to launch.
type benchCandidate struct {
	cluster string
	dag     *task.Dag
	offer   *api.PlanOffer
}

func (a *app) benchLaunch(ctx context.Context, file string, t taskFlags, o benchLaunchOptions) error {
	if o.name == "" {
		return usagef("Missing option '-b' / '--benchmark'.")
	}
	if err := bench.CheckName(o.name); err != nil {
		return usagef("Invalid value for '--benchmark': %s.", err)
	}
	t.command = "sky bench launch"
	dags, err := a.benchDags(file, t)
	if err != nil {
		return err
	}
	names := bench.Clusters(o.name, len(dags))
	list := make([]benchCandidate, len(dags))
	for i, dag := range dags {
		if err := o.prepare(dag.Tasks[0]); err != nil {
			return err
		}
		list[i] = benchCandidate{cluster: names[i], dag: dag}
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].dag, err = a.applyPolicy(ctx, c, policy.Launch, list[i].dag, &api.RequestOptions{ClusterName: &names[i]}); err != nil {
			return err
		}
	}
	if err := a.planBenchmark(ctx, c, list); err != nil {
		return err
	}
	a.t.Print(a.t.Table(benchPlan(list)))
	if !o.yes {
		if err := a.t.Confirm(ctx, "Launching "+format.Count(len(list), "cluster")+". Proceed?", true); err != nil {
			return err
		}
	}
	return a.launchBenchmark(ctx, c, o.name, list)
}

// benchDags is the task of each candidate.
func (a *app) benchDags(file string, t taskFlags) ([]*task.Dag, error) {
	path := expandHome(file, a.home)
	data, err := a.readFile(path)
	if err != nil {
		return nil, usagef("A benchmark needs a task file, and %s cannot be read: %s.", file, err)
	}
	text, listed, err := orderedCandidates(path, string(data))
	if err != nil {
		return nil, err
	}
	gpus := strings.FieldsFunc(t.gpus, func(r rune) bool { return r == ',' || r == ' ' })
	switch {
	case listed && len(gpus) > 0:
		return nil, usagef("Candidates are given both by --gpus and by resources.candidates in %s: use one of them.", file)
	case !listed && len(gpus) == 0:
		return nil, usagef("There are no candidates: give them with --gpus T4,V100 or as resources.candidates in %s.", file)
	}
	read := func(gpu string) (*task.Dag, error) {
		t := t
		t.gpus = gpu
		o, err := t.overrides(a)
		if err != nil {
			return nil, err
		}
		dag, err := task.Parse(path, []byte(text))
		if err != nil {
			return nil, err
		}
		if _, err := single(dag, "A benchmark runs a single task, and the file has several."); err != nil {
			return nil, err
		}
		d, err := a.overridden(dag, &t, o)
		if err != nil {
			return nil, err
		}
		return a.ready(d)
	}
	var dags []*task.Dag
	for i := 0; ; i++ {
		if !listed && i == len(gpus) {
			return dags, nil
		}
		gpu := ""
		if !listed {
			gpu = gpus[i]
		}
		dag, err := read(gpu)
		if err != nil {
			return nil, err
		}
		if one := dag.Tasks[0]; listed {
			if i == len(one.Resources) {
				return dags, nil
			}
			one.Resources, one.Preference = one.Resources[i:i+1:i+1], task.AnyOf
		}
		dags = append(dags, dag)
	}
}

// orderedCandidates is a task file with the key resources.candidates as resources.ordered,
// which has the same form, and reports whether it has any. All else keeps its place, so
// that errors name the right one.
func orderedCandidates(name, text string) (string, bool, error) {
	docs, err := (&yaml11.Source{Name: name, Text: text}).Read()
	if err != nil {
		return "", false, err
	}
	lines, found := strings.SplitAfter(text, "\n"), false
	for _, doc := range docs {
		if doc.Find("resources", "candidates") == nil {
			continue
		}
		key := doc.Get("resources").Key("candidates")
		const old, today = "candidates", "ordered"
		line := []rune(lines[key.Line-1])
		before, rest := string(line[:key.Column-1]), string(line[key.Column-1:])
		replaced := false
		for _, quote := range []string{"", "'", `"`} {
			if after, ok := strings.CutPrefix(rest, quote+old+quote); ok && !replaced {
				lines[key.Line-1] = before + quote + today + quote + strings.Repeat(" ", len(old)-len(today)) + after
				replaced = true
			}
		}
		if !replaced {
			return "", false, fmt.Errorf("%s:%d: write the key as resources.candidates, without an anchor or a merge", name, key.Line)
		}
		found = true
	}
	return strings.Join(lines, ""), found, nil
}

// prepare makes a task one that is measured.
func (o benchLaunchOptions) prepare(t *task.Task) error {
	if strings.TrimSpace(t.Run) == "" {
		return usagef("A benchmark measures the run commands of a task, and this one has none.")
	}
	t.Run = bench.Wrap(t.Run)
	l := launchOptions{minutes: o.minutes}
	if o.minutes == nil && !slices.ContainsFunc(t.Resources, func(r task.Resources) bool { return r.Autostop != nil }) {
		l.minutes = new(benchAutostop)
	}
	return l.autostop(t)
}

// planBenchmark checks each candidate and finds out what it would get.
func (a *app) planBenchmark(ctx context.Context, c *sky.Client, list []benchCandidate) error {
	spin := a.t.Spin("[bold cyan]Planning " + format.Count(len(list), "candidate") + "[/]")
	defer spin.Stop()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(bulkLimit)
	for i := range list {
		g.Go(func() error {
			b := &list[i]
			text, err := b.dag.YAML()
			if err != nil {
				return err
			}
			if err := c.Validate(ctx, api.DagBody{Dag: string(text), RequestOptions: &api.RequestOptions{ClusterName: &b.cluster}}); err != nil {
				return err
			}
			body := api.LaunchBody{Task: string(text), ClusterName: b.cluster, Dryrun: true, QuietOptimizer: true}
			body.WantPlan = true
			req, err := c.Launch(ctx, body)
			res, err := quiet(ctx, req, err)
			if err != nil {
				return fmt.Errorf("candidate %s: %w", b.dag.Tasks[0].Requested(), err)
			}
			if res.Plan == nil || len(res.Plan.Tasks) == 0 {
				return fmt.Errorf("there is a cluster %s already, and the candidates of a benchmark need new ones. Choose another name with -b, or end it: sky down %[1]s", b.cluster)
			}
			b.offer = &res.Plan.Tasks[0].Chosen
			return nil
		})
	}
	return g.Wait()
}

// benchPlan is the table of what is about to be launched.
func benchPlan(list []benchCandidate) *table.Table {
	tab := table.New("CLUSTER", "CLOUD", "# NODES", "INSTANCE", "vCPUs", "Mem(GB)", "ACCELERATORS", "PRICE ($/hr)").Whole("CLUSTER", "INSTANCE").Optional("Mem(GB)", "vCPUs", "# NODES")
	for _, b := range list {
		var gpus []string
		for name, n := range b.offer.Accelerators {
			gpus = append(gpus, name+":"+format.Number(n))
		}
		slices.Sort(gpus)
		price := strconv.FormatFloat(b.offer.TotalHourlyPrice, 'f', 2, 64)
		if b.offer.Unpriced {
			price = "-"
		}
		tab.Add(b.cluster, b.offer.Cloud, strconv.Itoa(max(1, b.dag.Tasks[0].NumNodes)), format.OrDash(b.offer.InstanceType), format.Float(b.offer.CPUs),
			format.Float(b.offer.MemoryGiB), format.OrDash(strings.Join(gpus, ", ")), price)
	}
	return tab
}

// launchBenchmark records a benchmark, and then launches its clusters.
func (a *app) launchBenchmark(ctx context.Context, c *sky.Client, name string, list []benchCandidate) error {
	body := api.BenchCreateBody{Name: name, Task: list[0].dag.Tasks[0].Name}
	for _, b := range list {
		body.Candidates = append(body.Candidates, api.BenchCandidate{ClusterName: b.cluster, Resources: b.dag.Tasks[0].Requested()})
	}
	req, err := c.BenchCreate(ctx, body)
	if _, err := quiet(ctx, req, err); err != nil {
		return err
	}
	launches := make([]api.LaunchBody, len(list))
	for i, b := range list {
		blob, err := a.upload(ctx, c, b.dag, move{silent: i > 0})
		if err != nil {
			return err
		}
		text, err := b.dag.YAML()
		if err != nil {
			return err
		}
		launches[i] = api.LaunchBody{Task: string(text), ClusterName: b.cluster, QuietOptimizer: true, IncludeCredentials: true}
		launches[i].FileMountsBlobID = blob
	}
	spin := a.t.Spin("[bold cyan]Launching " + format.Count(len(list), "cluster") + "[/]")
	failed := make([]error, len(list))
	var g errgroup.Group
	for i, b := range list {
		g.Go(func() error {
			req, err := c.Launch(ctx, launches[i])
			_, failed[i] = quiet(ctx, req, err)
			switch {
			case ctx.Err() != nil:
			case failed[i] != nil:
				a.t.Print(a.t.Style(term.Red, "Launching cluster "+b.cluster+"...failed. ") + "\nReason: " + plainText(failed[i].Error()) + "\n")
			default:
				a.t.Println(a.t.Style(term.Green, "Launching cluster "+b.cluster+"...done."))
			}
			return nil
		})
	}
	_ = g.Wait()
	spin.Stop()
	if err := ctx.Err(); err != nil {
		a.t.Warn("Launches that were sent go on. To end them: sky bench down %s", name)
		return err
	}
	a.t.Printf("\n📋 Useful Commands\nBenchmark: %s\n├── To see its results:\t\tsky bench show %[1]s\n├── To end its clusters:\tsky bench down %[1]s\n└── To forget it:\t\tsky bench delete %[1]s\n", name)
	if errors.Join(failed...) != nil {
		return exitError(1)
	}
	return nil
}

func (a *app) benchListCommand() *cobra.Command {
	return a.build(command{
		name: "ls", short: "List benchmarks.", max: 0,
		example: "sky bench ls\nsky bench ls -o json",
		flags:   func(f flags) { f.out(a) },
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			_, list, err := a.benchmarks(ctx)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(list)); done {
				return err
			}
			if len(list) == 0 {
				a.t.Println("No benchmarks.")
				return nil
			}
			a.t.Print(a.t.Table(benchTable(list, a.now())))
			return nil
		},
	})
}

func (a *app) benchmarks(ctx context.Context) (*sky.Client, []api.Benchmark, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	req, err := c.Benchmarks(ctx)
	list, err := quiet(ctx, req, err)
	return c, list, err
}

// benchTable lists benchmarks; each candidate has a column.
func benchTable(list []api.Benchmark, now time.Time) *table.Table {
	most := 0
	for _, b := range list {
		most = max(most, len(b.Candidates))
	}
	tab := table.New("BENCHMARK", "TASK", "LAUNCHED")
	for i := range most {
		title := "CANDIDATE"
		if most > 1 {
			title += " " + strconv.Itoa(i+1)
		}
		tab.Header = append(tab.Header, title)
	}
	optional := slices.Clone(tab.Header[1:])
	slices.Reverse(optional)
	tab.Optional(optional...)
	for _, b := range list {
		row := []string{b.Name, format.OrDash(b.Task), format.Ago(b.LaunchedAt, now)}
		for i := range most {
			cell := "-"
			if i < len(b.Candidates) {
				cell = candidateResources(b.Candidates[i])
			}
			row = append(row, cell)
		}
		tab.Add(row...)
	}
	return tab
}

// candidateResources is what a candidate has, or asked for.
func candidateResources(c api.BenchmarkCandidate) string {
	if c.Resources != "" {
		return c.Resources
	}
	return format.OrDash(c.Requested)
}

func (a *app) benchShowCommand() *cobra.Command {
	return a.build(command{
		name: "show", args: "BENCHMARK", short: "Show what the candidates of a benchmark took and cost.", min: 1, max: 1,
		long: "Steps are those that the task counts with sky_callback; see docs/bench.md. EST is for all of its steps.\n" +
			"What was read last stays when clusters have ended.",
		example: "sky bench show bert\nsky bench show bert -o json",
		flags:   func(f flags) { f.out(a) },
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.BenchShow(ctx, names[0])
			b, err := quiet(ctx, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(b); done {
				return err
			}
			a.t.Print(a.t.Table(benchReport(b)))
			for _, c := range b.Candidates {
				if c.Problem != "" {
					a.t.Warn("Cluster %s was not asked: %s", c.ClusterName, c.Problem)
				}
			}
			return nil
		},
	})
}

// benchReport is the table of a benchmark's results.
func benchReport(b api.Benchmark) *table.Table {
	tab := table.New("CLUSTER", "RESOURCES", "STATUS", "DURATION", "SPENT($)", "#STEPS", "SEC/STEP", "$/STEP", "EST(hr)", "EST($)").
		Whole("CLUSTER", "STATUS").Optional("#STEPS", "DURATION", "SEC/STEP", "EST(hr)", "RESOURCES")
	for _, c := range b.Candidates {
		r := c.Report
		if r == nil {
			r = new(api.BenchmarkReport)
		}
		duration, steps := "-", "-"
		if r.Duration != nil {
			duration = format.Seconds(*r.Duration)
		}
		if r.Steps != nil {
			steps = strconv.Itoa(*r.Steps)
		}
		decimals := func(x *float64, n int) string {
			if x == nil {
				return "-"
			}
			return strconv.FormatFloat(*x, 'f', n, 64)
		}
		tab.Add(c.ClusterName, candidateResources(c), c.Status, duration, decimals(r.Spent, 4), steps, decimals(r.SecondsPerStep, 4), decimals(r.CostPerStep, 6),
			decimals(r.EstimatedHours, 2), decimals(r.EstimatedCost, 2))
	}
	return tab
}

func (a *app) benchDownCommand() *cobra.Command {
	var exclude []string
	var yes bool
	return a.build(command{
		name: "down", args: "BENCHMARK", short: "End the clusters of a benchmark; its results stay.", min: 1, max: 1,
		example: "sky bench down bert\nsky bench down bert -e sky-bench-bert-1 -y",
		flags: func(f flags) {
			f.texts(&exclude, "exclude", "e", "Cluster to keep (may be repeated).")
			f.yes(&yes)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.BenchShow(ctx, args[0]) // reads the results for the last time
			b, err := quiet(ctx, req, err)
			if err != nil {
				return err
			}
			var names []string
			for _, c := range b.Candidates {
				if i := slices.Index(exclude, c.ClusterName); i >= 0 {
					exclude = slices.Delete(exclude, i, i+1)
				} else if c.ClusterExists {
					names = append(names, c.ClusterName)
				}
			}
			if len(exclude) > 0 {
				return usagef("Benchmark %s has no cluster %s.", b.Name, strings.Join(exclude, ", "))
			}
			if len(names) == 0 {
				a.t.Println("No clusters to end.")
				return nil
			}
			if !yes {
				if err := a.t.Confirm(ctx, "Terminating "+countedNames("cluster", names)+". Proceed?", true); err != nil {
					return err
				}
			}
			return bulk{
				doing: "Terminating cluster", names: names,
				submit: func(ctx context.Context, name string) (*sky.Request[any], error) {
					return c.Down(ctx, api.StopBody{ClusterName: name})
				},
				tip: "A launch that has not begun yet can be cancelled with: sky api cancel",
			}.run(ctx, a)
		},
	})
}

func (a *app) benchDeleteCommand() *cobra.Command {
	var all, yes bool
	return a.build(command{
		name: "delete", args: "[BENCHMARKS]...", needs: "BENCHMARKS or --all", short: "Forget benchmarks whose clusters have ended.", max: -1,
		example: "sky bench delete bert\nsky bench delete -a -y",
		flags: func(f flags) {
			f.on(&all, "all", "a", "All benchmarks.")
			f.yes(&yes)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			if err := allOrNames(all, names); err != nil {
				return err
			}
			c, list, err := a.benchmarks(ctx)
			if err != nil {
				return err
			}
			var have []string
			for _, b := range list {
				have = append(have, b.Name)
			}
			picked, err := a.pick(ctx, "benchmark", have, names, all, yes, nil)
			if err != nil {
				return err
			}
			failed := false
			for _, name := range picked {
				req, err := c.BenchDelete(ctx, []string{name})
				if _, err = finish(ctx, a, false, "bench.delete", req, err); err != nil {
					if !perCluster(err) {
						return err
					}
					failed = true
					a.t.Warn("Benchmark %s was not deleted: %s", name, errorText(err))
				}
			}
			if failed {
				return exitError(1)
			}
			return nil
		},
	})
}
