package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

func (a *app) downCommand() *cobra.Command {
	s := selection{verb: "down"}
	var yes, purge, async bool
	var g grace
	return a.build(command{
		name: "down", args: "[CLUSTERS]...", needs: "CLUSTERS, --all or --all-users", short: "Give clusters back: machines and disks are deleted.", max: -1,
		example:  "sky down dev\nsky down 'train-*' -y\nsky down -a",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.on(&s.all, "all", "a", "All your clusters.")
			f.on(&s.allUsers, "all-users", "u", "The clusters of all users.")
			f.yes(&yes)
			f.on(&purge, "purge", "p", "Forget the cluster even when its machines cannot be deleted; you may have to delete them by hand.")
			f.grace(&g)
			f.async(&async)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			s.names = names
			return a.endClusters(ctx, s, "Terminating", yes, purge, func(c *sky.Client, names []string) bulk {
				return bulk{
					doing: "Terminating cluster", names: names, async: async,
					submit: func(ctx context.Context, name string) (*sky.Request[any], error) {
						return c.Down(ctx, api.StopBody{ClusterName: name, Purge: purge, Graceful: g.on, GracefulTimeout: g.timeout})
					},
					tip: "To drop a cluster from the list although that failed, use: sky down --purge NAME",
				}
			})
		},
	})
}

func (a *app) stopCommand() *cobra.Command {
	s := selection{verb: "stop"}
	var yes, async bool
	var g grace
	return a.build(command{
		name: "stop", args: "[CLUSTERS]...", needs: "CLUSTERS, --all or --all-users", short: "Stop clusters: machines end, disks stay.", max: -1,
		long:     "A stopped cluster costs its disks only. `sky start` brings it back.",
		example:  "sky stop dev\nsky stop -a",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.on(&s.all, "all", "a", "All your clusters.")
			f.on(&s.allUsers, "all-users", "u", "The clusters of all users.")
			f.yes(&yes)
			f.grace(&g)
			f.async(&async)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			s.names = names
			return a.endClusters(ctx, s, "Stopping", yes, false, func(c *sky.Client, names []string) bulk {
				return bulk{
					doing: "Stopping cluster", names: names, async: async,
					submit: func(ctx context.Context, name string) (*sky.Request[any], error) {
						return c.Stop(ctx, api.StopBody{ClusterName: name, Graceful: g.on, GracefulTimeout: g.timeout})
					},
					done: func(name string) string { return "To restart the cluster, run: sky start " + name },
				}
			})
		},
	})
}

// endClusters picks clusters, asks, and does what plan says to them.
func (a *app) endClusters(ctx context.Context, s selection, doing string, yes, purge bool, plan func(*sky.Client, []string) bulk) error {
	if err := s.check(); err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	picked, err := a.find(ctx, c, s)
	if err != nil || len(picked) == 0 {
		return err
	}
	if problem := controllerProblem(doing, picked); problem != "" {
		return usagef("%s", problem)
	}
	names := namesOf(picked)
	if kind := controllerOf(names[0]); kind != "" {
		if err := a.mayEndController(ctx, c, kind, names[0], purge, yes); err != nil {
			return err
		}
	} else if !yes {
		for _, r := range picked {
			if text := unsavedText(r); text != "" {
				a.t.Warn("WARNING: %s", text)
			}
		}
		if err := a.t.Confirm(ctx, fmt.Sprintf("%s %s. Proceed?", doing, countedNames("cluster", names)), true); err != nil {
			return err
		}
	}
	return plan(c, names).run(ctx, a)
}

// mayEndController refuses to end a controller that still has work, and asks
// twice otherwise.
func (a *app) mayEndController(ctx context.Context, c *sky.Client, kind, name string, purge, yes bool) error {
	if purge {
		return nil
	}
	if kind == "jobs" {
		req, err := c.JobsQueue(ctx, api.JobsQueueBody{SkipFinished: true, AllUsers: true})
		page, err := quiet(ctx, req, err)
		if err != nil {
			return err
		}
		if len(page.Jobs) > 0 {
			return fmt.Errorf("managed jobs are in progress, and their clusters would be left behind. End them first: sky jobs cancel -a")
		}
	} else {
		req, err := c.ServeStatus(ctx, nil)
		services, err := quiet(ctx, req, err)
		if err != nil {
			return err
		}
		if len(services) > 0 {
			var live []string
			for _, s := range services {
				live = append(live, s.Name)
			}
			slices.Sort(live)
			return fmt.Errorf("the controller still runs services: %s. End them first: sky serve down -a", strings.Join(live, ", "))
		}
	}
	a.t.Warn("WARNING: Tearing down %s. Its history and logs are lost.", name)
	if yes {
		return nil
	}
	return a.t.Type(ctx, "To proceed, please type 'delete'", "delete")
}
