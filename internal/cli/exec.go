package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/config/policy"
)

func (a *app) execCommand() *cobra.Command {
	var t taskFlags
	var cluster string
	var detach, async bool
	return a.build(command{
		name: "exec", args: "[CLUSTER] [ENTRYPOINT]...", needs: "CLUSTER and ENTRYPOINT", short: "Run a task or command on a cluster that is up.", max: -1,
		long: "Nothing is set up: the work folder is synced and the task's run commands are queued. The exit code\n" +
			"is that of the job, as with `sky launch`.",
		example: "sky exec dev task.yaml\nsky exec dev -- python train.py --lr 0.1\nsky exec dev -d --gpus A100:1 -- nvidia-smi",
		complete: func(prefix string, args []string) []string {
			if len(args) == 0 && cluster == "" {
				return a.completer("cluster_name")(prefix, args)
			}
			return nil
		},
		flags: func(f flags) {
			f.text(&cluster, "cluster", "c", "")
			f.hide("cluster")
			f.switchable(&detach, "detach-run", "d", "Return once the job is submitted; do not follow its output.")
			f.task(&t)
			f.named(&t)
			f.resources(&t)
			f.async(&async)
			f.git(&t)
		},
		run: func(ctx context.Context, _ *cobra.Command, words []string) error {
			if cluster == "" {
				if len(words) == 0 {
					return usagef("Missing argument '[CLUSTER]' and '[ENTRYPOINT]...'")
				}
				cluster, words = words[0], words[1:]
			}
			if len(words) == 0 {
				return usagef("Missing argument '[ENTRYPOINT]...'")
			}
			return a.exec(ctx, cluster, words, &t, detach, async)
		},
	})
}

func (a *app) exec(ctx context.Context, cluster string, words []string, t *taskFlags, detach, async bool) error {
	if isAssignment(cluster) {
		return variablesFirst(typedAgain("sky exec", a.given), append([]string{cluster}, words...))
	}
	if kind := controllerOf(cluster); kind != "" {
		return usagef("Cluster %s is reserved for %s controller. Executing task on it is not allowed.", cluster, controllerTitle(kind))
	}
	for _, f := range [...]struct {
		name string
		to   *string
	}{{"cpus", &t.cpus}, {"memory", &t.memory}, {"disk_tier", &t.diskTier}, {"local_disk", &t.localDisk}} {
		if *f.to != "" {
			a.t.Warn("Override param %s=%s is ignored.", f.name, *f.to)
			*f.to = ""
		}
	}
	if t.networkTier != "" {
		return usagef("--network-tier chooses machines when they are rented, so it has no effect with `sky exec`: launch another cluster with it.")
	}
	if t.diskSize != nil {
		a.t.Warn("Override param disk_size=%d is ignored.", *t.diskSize)
		t.diskSize = nil
	}
	if len(t.ports) > 0 {
		a.t.Warn("Override param ports=%v is ignored.", t.ports)
		t.ports = nil
	}
	t.command = "sky exec " + cluster
	dag, err := a.load(ctx, words, t, false)
	if err != nil {
		return err
	}
	if _, err := single(dag, "YAML specifies a DAG, while `sky exec` supports a single task only."); err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	a.t.Println(a.t.Style(term.Dim, "Submitting job to cluster: ") + cluster)
	if dag, err = a.applyPolicy(ctx, c, policy.Exec, dag, &api.RequestOptions{ClusterName: &cluster}); err != nil {
		return err
	}
	text, err := dag.YAML()
	if err != nil {
		return err
	}
	if err := c.Validate(ctx, api.DagBody{Dag: string(text)}); err != nil {
		return err
	}
	blob, err := a.upload(ctx, c, dag, move{})
	if err != nil {
		return err
	}
	if blob != nil {
		if text, err = dag.YAML(); err != nil {
			return err
		}
	}
	body := api.ExecBody{Task: string(text), ClusterName: cluster}
	body.FileMountsBlobID = blob
	req, err := c.Exec(ctx, body)
	res, err := finish(ctx, a, async, "exec", req, err)
	if err != nil || async || detach || res.JobID == nil {
		return err
	}
	return a.tailJob(ctx, c, cluster, []int{*res.JobID}, true, 0)
}

// variablesFirst refuses variables where the cluster is expected: only the first of
// several belongs to one --env.
func variablesFirst(command string, words []string) error {
	vars := 0
	for ; vars < len(words) && isAssignment(words[vars]); vars++ {
		command += " --env " + shellQuote(words[vars])
	}
	rest := words[vars:]
	if len(rest) == 0 {
		rest = []string{"CLUSTER", "TASK.yaml"}
	}
	return usagef("'%s' is no cluster; variables need --env before each: %s %s", words[0], command, strings.Join(rest, " "))
}
