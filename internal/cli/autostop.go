package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
)

const defaultIdleMinutes = 5

func (a *app) autostopCommand() *cobra.Command {
	s := selection{verb: "autostop"}
	var yes, async, cancel, down bool
	var minutes *int
	var waitFor string
	return a.build(command{
		name: "autostop", args: "[CLUSTERS]...", needs: "CLUSTERS, --all or --all-users", short: "Let clusters stop or end by themselves when idle.", max: -1,
		example:  "sky autostop dev -i 60\nsky autostop dev -i 30 --down\nsky autostop dev --cancel",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.on(&s.all, "all", "a", "All your clusters.")
			f.on(&s.allUsers, "all-users", "u", "The clusters of all users.")
			f.number(&minutes, "idle-minutes", "i", "Minutes without work. [default: 5]")
			f.waitFor(&waitFor)
			f.on(&cancel, "cancel", "", "Do not stop the cluster by itself any more.")
			f.on(&down, "down", "", "Give the cluster back instead of stopping it.")
			f.yes(&yes)
			f.async(&async)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			s.names = names
			if cancel && minutes != nil {
				return usagef("Only one of --idle-minutes and --cancel should be specified. cancel: True, idle_minutes: %d", *minutes)
			}
			plan := autostopPlan(minutes, cancel, down)
			return a.endClusters(ctx, s, plan.doing+" on", yes, false, func(c *sky.Client, names []string) bulk {
				return bulk{
					doing: plan.doing + " on cluster", quote: true, names: names, async: async, done: plan.done,
					submit: func(ctx context.Context, name string) (*sky.Request[any], error) {
						return c.Autostop(ctx, api.AutostopBody{ClusterName: name, IdleMinutes: plan.minutes, Down: down, WaitFor: waitForOf(waitFor)})
					},
				}
			})
		},
	})
}

// waitForOf is nil for an option that was not given.
func waitForOf(s string) *api.WaitFor {
	if s == "" {
		return nil
	}
	w := api.WaitFor(s)
	return &w
}

// autostopping is what an autostop command does and says.
type autostopping struct {
	doing   string
	minutes int
	done    func(name string) string
}

func autostopPlan(minutes *int, cancel, down bool) autostopping {
	if cancel || minutes != nil && *minutes < 0 {
		return autostopping{"Cancelling auto{stop,down}", -1, nil}
	}
	n, kind, past := defaultIdleMinutes, "autostop", "autostopped"
	if minutes != nil {
		n = *minutes
	}
	if down {
		kind, past = "autodown", "autodowned"
	}
	return autostopping{"Scheduling " + kind, n, func(name string) string {
		return fmt.Sprintf("The cluster will be %s after %s of idleness.\nTo cancel the %s, run: sky autostop %s --cancel", past, format.Count(max(1, n), "minute"), kind, name) // as the server counts
	}}
}
