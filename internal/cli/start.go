package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// startOptions are the flags of sky start.
type startOptions struct {
	yes, down, retry, force, async bool
	minutes                        *int
	waitFor                        string
}

func (a *app) startCommand() *cobra.Command {
	s := selection{verb: "start"}
	var o startOptions
	return a.build(command{
		name: "start", args: "[CLUSTERS]...", short: "Start stopped clusters again.", max: -1,
		long:     "Without CLUSTERS, your only cluster is started.",
		example:  "sky start dev\nsky start -a -i 30",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.on(&s.all, "all", "a", "All your clusters.")
			f.yes(&o.yes)
			f.number(&o.minutes, "idle-minutes-to-autostop", "i", "Stop the cluster after this many idle minutes.")
			f.waitFor(&o.waitFor)
			f.on(&o.down, "down", "", "With -i: give the cluster back instead of stopping it.")
			f.on(&o.retry, "retry-until-up", "r", "Try again until the machines are there.")
			f.on(&o.force, "force", "f", "Set up a cluster again that is already up.")
			f.async(&o.async)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			s.names = names
			return a.start(ctx, s, o)
		},
	})
}

func (a *app) start(ctx context.Context, s selection, o startOptions) error {
	if o.down && o.minutes == nil {
		return usagef("--idle-minutes-to-autostop must be set if --down is set.")
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if len(s.names) == 0 && !s.all {
		records, err := a.listClusters(ctx, c, nil, false, false)
		if err != nil {
			return err
		}
		if len(records) > 1 {
			return usagef("`sky start` needs a cluster name or pattern (see `sky status`), or the -a/--all flag.")
		}
		s.names = namesOf(records)
		s.all = len(records) == 0
	}
	picked, err := a.find(ctx, c, s)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range picked {
		if r.Status == api.ClusterUp && !o.force && !beingEnded(ctx, c, r.Name) {
			a.t.Printf("Cluster %s already has status UP.\n", r.Name)
			if o.minutes != nil {
				a.t.Printf("Its autostop was not changed. To change it, run: sky autostop %s -i %d%s\n", r.Name, *o.minutes, downFlag(o.down))
			}
			continue
		}
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return nil
	}
	if !o.yes {
		if err := a.t.Confirm(ctx, "Restarting "+countedNames("cluster", names)+". Proceed?", true); err != nil {
			return err
		}
	}
	for _, name := range names {
		req, err := c.Start(ctx, api.StartBody{
			ClusterName: name, IdleMinutesAutostop: o.minutes, WaitFor: waitForOf(o.waitFor),
			RetryUntilUp: o.retry, Down: o.down, Force: o.force,
		})
		if _, err = finish(ctx, a, o.async, "start", req, err); err != nil {
			if !perCluster(err) || len(names) == 1 {
				return err
			}
			a.t.Print(a.t.Style(term.Red, fmt.Sprintf("Starting cluster %s...failed. ", name)) + "\nReason: " + plainText(err.Error()) + "\n")
			continue
		}
		if !o.async {
			a.t.Println(a.t.Style(term.Green, "Cluster "+name+" started."))
		}
	}
	if !o.async {
		if records, err := a.listClusters(ctx, c, names, false, true); err == nil {
			a.updateSSH(records, false)
		}
	}
	return nil
}

func downFlag(down bool) string {
	if down {
		return " --down"
	}
	return ""
}

// beingEnded reports whether a stop or down of a cluster is under way, so that its
// record is about to change. A start waits for it on the server.
func beingEnded(ctx context.Context, c *sky.Client, name string) bool {
	open, err := c.Requests(ctx, sky.RequestFilter{Cluster: name, Fields: []string{"request_id", "name"}})
	return err == nil && slices.ContainsFunc(open, func(r api.RequestPayload) bool { return r.Name == "sky.stop" || r.Name == "sky.down" })
}
