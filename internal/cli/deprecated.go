package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// deprecatedCommands are commands of earlier versions. Those with a successor run
// it and say its name; the others say what to type today.
func (a *app) deprecatedCommands() []*cobra.Command {
	return []*cobra.Command{
		a.spotCommand(),
		a.build(command{name: "admin", example: "sky ssh up", hidden: true, short: "Deprecated; use `sky ssh up`.", group: []*cobra.Command{a.adminDeployCommand()}}),
	}
}

// spotCommand is "sky jobs" under its earlier name.
func (a *app) spotCommand() *cobra.Command {
	old := func(c *cobra.Command, modern string) *cobra.Command {
		run := c.RunE
		c.RunE = func(cmd *cobra.Command, args []string) error {
			a.t.Warn("`%s` is deprecated; use `%s`.", cmd.CommandPath(), modern)
			return run(cmd, args)
		}
		return c
	}
	var o jobsLaunchOptions
	var t taskFlags
	launch := a.jobsLaunchSpec("launch", &o, &t)
	modernFlags := launch.flags
	var retry bool
	launch.flags = func(f flags) {
		modernFlags(f)
		f.StringVar(&o.recovery, "spot-recovery", "", "")
		f.switchable(&retry, "retry-until-up", "r", "")
		f.hide("spot-recovery", "retry-until-up")
	}
	modernRun := launch.run
	launch.run = func(ctx context.Context, cmd *cobra.Command, words []string) error {
		if t.useSpot == nil {
			t.useSpot = new(true)
		}
		return modernRun(ctx, cmd, words)
	}
	queue := a.jobsQueueCommand()
	queue.Aliases = []string{"status"}
	dashboard := a.oldFlags(a.dashboardPage(command{name: "dashboard", example: "sky dashboard", short: "Open the dashboard."}, "/dashboard/"),
		oldFlag{name: "port", short: "p", takes: true, note: "the dashboard is a page of the API server"})
	return a.build(command{name: "spot", example: "sky jobs launch train.yaml\nsky jobs queue", hidden: true, short: "Deprecated: use `sky jobs`.", group: []*cobra.Command{
		old(a.build(launch), "sky jobs launch"), old(queue, "sky jobs queue"), old(a.jobsCancelCommand(), "sky jobs cancel"),
		old(a.jobsLogsCommand(), "sky jobs logs"), old(dashboard, "sky dashboard"),
	}})
}

// oldFlag is an option of earlier versions. It stands for today's option, or
// has no effect, or its work is done by another command today.
type oldFlag struct {
	name, short string
	takes       bool   // a value
	today       string // the option that it stands for
	note        string // why it has no effect
	instead     string // the commands to use
}

// oldFlags accepts options of earlier versions. They are hidden, and say so when
// used.
func (a *app) oldFlags(cmd *cobra.Command, list ...oldFlag) *cobra.Command {
	for _, f := range list {
		if f.takes {
			cmd.Flags().StringArrayP(f.name, f.short, nil, "")
		} else {
			cmd.Flags().BoolP(f.name, f.short, false, "")
		}
		cmd.Flags().Lookup(f.name).Hidden = true
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, f := range list {
			switch {
			case !cmd.Flags().Changed(f.name):
			case f.instead != "":
				return fmt.Errorf("--%s is an option of an earlier version. Use %s", f.name, f.instead)
			case f.note != "":
				a.t.Warn("--%s is deprecated and has no effect: %s.", f.name, f.note)
			default:
				a.t.Warn("--%s is deprecated; use --%s.", f.name, f.today)
				if err := cmd.Flags().Set(f.today, "true"); err != nil {
					return err
				}
			}
		}
		return run(cmd, args)
	}
	return cmd
}
