package cli

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
)

// keepOrder lists commands as they are defined.
var keepOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

// root is the tree of all commands, in the order of the help page.
func (a *app) root() *cobra.Command {
	keepOrder()
	var version, commit bool
	var install, uninstall string
	root := a.build(command{
		name: "sky", noConfig: true,
		short: "Run AI and batch jobs on any infrastructure: clouds, Kubernetes, Slurm, your own machines.",
		example: "sky launch -c dev --gpus A100:1 task.yaml   # rent a machine, run a task on it\n" +
			"sky status                                  # what is running\n" +
			"sky logs dev                                # follow the task's output\n" +
			"sky down dev                                # give it back",
		flags: func(f flags) {
			f.on(&version, "version", "v", "Show the version and exit.")
			f.on(&commit, "commit", "c", "Show the commit and exit.")
			f.choice(&install, "install-shell-completion", "", "Install completion for a shell and exit.", "bash", "zsh", "fish", "auto")
			f.choice(&uninstall, "uninstall-shell-completion", "", "Remove completion for a shell and exit.", "bash", "zsh", "fish", "auto")
		},
		group: slices.Concat(
			[]*cobra.Command{
				a.launchCommand(), a.execCommand(), a.statusCommand(), a.statusKubernetesCommand(), a.costReportCommand(),
				a.queueCommand(), a.logsCommand(), a.cancelCommand(), a.stopCommand(), a.autostopCommand(), a.startCommand(),
				a.downCommand(), a.checkCommand(), a.showGPUsCommand(), a.gpusCommand(), a.catalogCommand(), a.sweepCommand(), a.storageCommand(), a.volumesCommand(),
				a.jobsCommand(), a.benchCommand(), a.dashboardCommand(), a.serveCommand(), a.localCommand(), a.apiCommand(), a.workspaceCommand(), a.usersCommand(), a.tokensCommand(), a.taskCommand(), a.configCommand(),
				a.sshCommand(), a.debugDumpCommand(), a.auditCommand(), a.versionCommand(), a.completionCommand(), a.helpCommand(),
			},
			a.interactiveCommands(),
			a.deprecatedCommands(),
		),
	})
	file := root.PersistentFlags().String("timeline", "", "Write where the time of the command goes to a file that Perfetto and chrome://tracing open.")
	root.PersistentPreRun = func(*cobra.Command, []string) { a.beginTimeline(*file) }
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(find(root, "help"))
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case version:
			a.t.Println("skypilot, version " + api.ProductVersion)
		case commit:
			a.t.Println("skypilot, commit " + api.Commit())
		case install != "":
			return a.installCompletion(cmd.Context(), install)
		case uninstall != "":
			return a.uninstallCompletion(uninstall)
		default:
			return cmd.Help()
		}
		return nil
	}
	return root
}

func (a *app) versionCommand() *cobra.Command {
	return a.build(command{
		name: "version", short: "Show the version and commit.", noConfig: true, max: 0,
		example: "sky version",
		run: func(context.Context, *cobra.Command, []string) error {
			a.t.Printf("skypilot, version %s\nskypilot, commit %s\n", api.ProductVersion, api.Commit())
			return nil
		},
	})
}

// helpCommand is "sky help launch", for "sky launch -h".
func (a *app) helpCommand() *cobra.Command {
	return a.build(command{
		name: "help", args: "[COMMAND]...", hidden: true, short: "Show the help of a command.", max: -1, noConfig: true,
		example: "sky help jobs launch",
		run: func(_ context.Context, cmd *cobra.Command, words []string) error {
			about := cmd.Root()
			for _, w := range words {
				if about = find(about, w); about == nil {
					return unknownCommand(cmd.Root(), words)
				}
			}
			return about.Help()
		},
	})
}

// hookEvents are the values of logs --hook.
var hookEvents = []string{"stop", "preemption", "down"}

// rewrite turns the few spellings that the option parser does not know into ones
// that it does. Words after "--" stay.
func rewrite(args []string) []string {
	var words []string // the command
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") && len(words) < 2 {
			words = append(words, arg)
		}
	}
	is := func(want ...string) bool { return len(words) >= len(want) && slices.Equal(words[:len(want)], want) }
	out := make([]string, 0, len(args))
	for i, arg := range args {
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case arg == "--":
			return append(out, args[i:]...)
		case arg == "-no-d" && (is("launch") || is("exec") || is("jobs", "launch")):
			arg = "--no-detach-run"
		case arg == "-no-r" && is("spot", "launch"):
			arg = "--no-retry-until-up"
		case arg == "--hook" && is("logs"):
			arg = "--hook=auto"
			if slices.Contains(hookEvents, next) {
				arg = "--hook=" + next
			}
		case i > 0 && args[i-1] == "--hook" && is("logs") && slices.Contains(hookEvents, arg):
			continue
		case arg == "-s" && is("jobs", "queue") && (next == "" || strings.HasPrefix(next, "-")):
			arg = "--bare-s"
		}
		out = append(out, arg)
	}
	return out
}
