package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// interactive is a command that brings up a machine and opens a shell on it.
type interactive struct {
	name        string // of the command
	short       string
	example     string
	option      string // that names the accelerators; "" if there are none
	accelerator string // without that option and without an instance type

	launch       launchOptions
	task         taskFlags
	ports        portFlags
	screen, tmux bool
	tpuVM        bool
}

// interactiveCommands are sky gpunode, cpunode and tpunode.
func (a *app) interactiveCommands() []*cobra.Command {
	return []*cobra.Command{
		a.interactiveCommand(&interactive{name: "gpunode", short: "Open a shell on a machine with GPUs, launching it if need be.", option: "gpus", accelerator: "K80:1",
			example: "sky gpunode\nsky gpunode --gpus A100:8 -i 30\nsky gpunode -c lab --infra aws --gpus V100 -p 8888   # the node's port 8888 is http://localhost:8888\nsky gpunode --gpus V100 --tmux                       # what runs in tmux outlives the connection"}),
		a.interactiveCommand(&interactive{name: "cpunode", short: "Open a shell on a machine without GPUs, launching it if need be.",
			example: "sky cpunode\nsky cpunode --cpus 16+ --memory 64+ -i 60 --down\nsky cpunode -c build --infra gcp -t n2-standard-8\necho hostname | sky cpunode -y"}),
		a.interactiveCommand(&interactive{name: "tpunode", short: "Open a shell on a machine with a TPU, launching it if need be.", option: "tpus", accelerator: "tpu-v2-8",
			example: "sky tpunode\nsky tpunode --tpus tpu-v5litepod-8 --use-spot -i 30\nsky tpunode -p 6006                                  # TensorBoard"}),
	}
}

func (a *app) interactiveCommand(n *interactive) *cobra.Command {
	o, t := &n.launch, &n.task
	return a.build(command{
		name: n.name, short: n.short, max: 0, example: n.example,
		long: "The first time the cheapest machine that fits is launched; after that the command connects\n" +
			"to the same one, which is started again if it was stopped. Leaving the shell leaves the\n" +
			"machine up: -i stops it when it was idle for that long, which it is not while a shell is open.",
		flags: func(f flags) {
			f.text(&o.cluster, "cluster", "c", "Name of the cluster. [default: sky-"+n.name+"-USER]")
			f.yes(&o.yes)
			f.ports(&n.ports)
			f.number(&o.minutes, "idle-minutes-to-autostop", "i", "Stop the node after this many minutes without work.")
			f.on(&o.down, "down", "", "Give the node back instead of stopping it.")
			f.on(&o.retry, "retry-until-up", "r", "Try again until there is capacity.")
			f.text(&t.infra, "infra", "", "Where to run: a cloud, cloud/region, cloud/region/zone, k8s/context, ssh/pool, slurm/cluster or local.")
			if n.option != "tpus" {
				f.text(&t.cloud, "cloud", "", "")
				f.hide("cloud")
			}
			f.text(&t.region, "region", "", "")
			f.text(&t.zone, "zone", "", "")
			f.hide("region", "zone")
			f.text(&t.instance, "instance-type", "t", "Instance type of a cloud.")
			f.text(&t.cpus, "cpus", "", "vCPUs: 4, or 4+ for at least 4.")
			f.text(&t.memory, "memory", "", "Memory in GB: 16, or 16+ for at least 16.")
			switch n.option {
			case "gpus":
				f.text(&t.gpus, "gpus", "", "GPUs: A100, or A100:8. [default: "+n.accelerator+"]")
			case "tpus":
				f.text(&t.gpus, "tpus", "", "TPU: tpu-v5litepod-8. [default: "+n.accelerator+"]")
				f.on(&n.tpuVM, "tpu-vm", "", "Log into the TPU's own machine. That is always so: there are no others any more.")
			}
			f.tri(&t.useSpot, "use-spot", "", "Use spot (preemptible) machines.")
			f.number(&t.diskSize, "disk-size", "", "Size of the system disk in GB.")
			f.choice(&t.diskTier, "disk-tier", "", "Speed of the system disk.", "low", "medium", "high", "ultra", "best", "none")
			f.on(&n.screen, "screen", "", "Attach to a session of screen, which outlives the connection.")
			f.on(&n.tmux, "tmux", "", "Attach to a session of tmux, which outlives the connection.")
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error { return a.interact(ctx, n) },
	})
}

// asks reports whether an option says what the machine must have.
func (n *interactive) asks() bool {
	t := &n.task
	return t.infra+t.cloud+t.region+t.zone+t.instance+t.cpus+t.memory+t.gpus+t.diskTier != "" || t.useSpot != nil || t.diskSize != nil
}

// again is the command that comes back to the node.
func (n *interactive) again(user string) string {
	if n.launch.cluster == interactiveName(n.name, user) {
		return "sky " + n.name
	}
	return "sky " + n.name + " -c " + n.launch.cluster
}

func interactiveName(command, user string) string {
	return "sky-" + command + "-" + task.CleanUser(user)
}

func (a *app) interact(ctx context.Context, n *interactive) error {
	o := &n.launch
	if n.screen && n.tmux {
		return usagef("--screen and --tmux exclude each other.")
	}
	tty := a.t.InTTY && a.t.OutTTY
	if (n.screen || n.tmux) && !tty {
		return usagef("--screen and --tmux need a terminal.")
	}
	if kind := controllerOf(o.cluster); kind != "" {
		return usagef("Cluster %s is reserved for %s controller.", o.cluster, controllerTitle(kind))
	}
	defer n.ports.close()
	if err := n.ports.listen(ctx); err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	user := c.User().Name
	if o.cluster == "" {
		o.cluster = interactiveName(n.name, user)
	}
	records, err := a.listClusters(ctx, c, []string{o.cluster}, true, true)
	if err != nil {
		return err
	}
	if err := a.bringUp(ctx, c, n, records, n.again(user)); err != nil {
		return err
	}
	err = a.shellAndPorts(ctx, c, sky.ShellOptions{Cluster: o.cluster, Command: n.session(), TTY: tty, Term: a.env("TERM")}, &n.ports, false)
	if _, exited := errors.AsType[exitError](err); exited { // with what the last command of the shell did
		err = nil
	}
	if err != nil || config.MinimizeLogging.On(a.lookupEnv) {
		return err
	}
	if records, err = a.listClusters(ctx, c, []string{o.cluster}, false, true); err == nil && len(records) > 0 {
		a.t.Print(interactiveHints(a.t, o.cluster, n.again(user), records[0].Handle != nil && records[0].Handle.CannotStop))
	}
	return err
}

// bringUp launches or starts the node, unless it is up and as asked for.
func (a *app) bringUp(ctx context.Context, c *sky.Client, n *interactive, records []api.StatusRecord, again string) error {
	o := n.launch
	up := len(records) > 0 && records[0].Status == api.ClusterUp
	if up && !n.asks() {
		return a.idleAfter(ctx, c, o)
	}
	if len(records) == 0 && n.task.gpus == "" && n.task.instance == "" {
		n.task.gpus = n.accelerator
	}
	n.task.command = "sky " + n.name
	dag, err := a.load(ctx, nil, &n.task, o.yes)
	if err != nil {
		return err
	}
	dag.Name, dag.Tasks[0].Name = n.name, n.name
	if err := o.autostop(dag.Tasks[0]); err != nil {
		return err
	}
	if !up {
		a.t.Warn("Setting up interactive node %s…", o.cluster)
	}
	o.detach, o.quiet = true, true
	err = a.launchDag(ctx, c, dag, o)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Type == api.ErrResourcesMismatch && len(records) > 0 {
		return usagef("Interactive node '%s' exists and is not what the options ask for: %s\nTo log in to it: %s\nTo have another one: sky %s -c NEW_NAME", o.cluster, strings.TrimSuffix(e.Message, "."), again, n.name)
	}
	return err
}

// idleAfter sets what -i and --down ask for, on a node that is up.
func (a *app) idleAfter(ctx context.Context, c *sky.Client, o launchOptions) error {
	if o.minutes == nil && !o.down {
		return nil
	}
	minutes := 1
	if o.minutes != nil {
		minutes = max(-1, *o.minutes)
	}
	req, err := c.Autostop(ctx, api.AutostopBody{ClusterName: o.cluster, IdleMinutes: minutes, Down: o.down})
	_, err = wait(ctx, a, req, err)
	return err
}

// session is the command of the shell; "" is a login shell. The session is the cluster's own,
// as several clusters may share a machine.
func (n *interactive) session() string {
	program, run := "tmux", `tmux -L "$SKY_CLUSTER_NAME" new-session -A -s sky`
	switch {
	case n.screen:
		program, run = "screen", `screen -S "$SKY_CLUSTER_NAME" -D -R`
	case !n.tmux:
		return ""
	}
	return fmt.Sprintf(`command -v %[1]s >/dev/null || { echo "%[1]s is not installed on the node. Install it there (sudo apt-get install %[1]s), or leave --%[1]s out." >&2; exit 127; }; exec %[2]s`, program, run)
}

// interactiveHints is the block after an interactive shell.
func interactiveHints(t *term.Term, cluster, again string, cannotStop bool) string {
	var b strings.Builder
	line := func(what, command string) {
		fmt.Fprintf(&b, "%-32s%s\n", what, t.Style(term.Bold, command))
	}
	line("To connect again:", again)
	line("To upload a folder:", "rsync -rP /local/path "+cluster+":/remote/path")
	if cannotStop {
		line("To give it back when idle:", "sky autostop "+cluster+" -i 60 --down")
	} else {
		line("To stop the node:", "sky stop "+cluster)
		line("To stop it when idle:", "sky autostop "+cluster+" -i 60")
	}
	line("To tear down the node:", "sky down "+cluster)
	return b.String()
}
