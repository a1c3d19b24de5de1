package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// partLogsOptions are the flags of serve logs and pool logs.
type partLogsOptions struct {
	follow, controller, balancer, syncDown bool
	tail                                   *int
}

// target chooses the one log to follow.
func (o partLogsOptions) target(ids []int, idName string) (string, *int, error) {
	n := len(ids)
	if o.controller {
		n++
	}
	if o.balancer {
		n++
	}
	switch {
	case n == 0 && idName == "REPLICA_ID":
		return "", nil, usagef("Specify a target to tail: --controller, --load-balancer, or a %s.", idName)
	case n == 0:
		return "", nil, usagef("Specify a target to tail: --controller or a %s.", idName)
	case len(ids) > 1:
		return "", nil, usagef("Can only tail logs from a single one at a time. Provide exactly one %s or use --sync-down to download logs from several.", idName)
	case n > 1:
		return "", nil, usagef("Can only tail logs from one target at a time. Use --sync-down to download logs from multiple sources.")
	case o.controller:
		return "controller", nil, nil
	case o.balancer:
		return "load_balancer", nil, nil
	}
	return "replica", &ids[0], nil
}

// targets are the logs to download; none means all.
func (o partLogsOptions) targets(ids []int) (list []string) {
	if o.controller {
		list = append(list, "controller")
	}
	if o.balancer {
		list = append(list, "load_balancer")
	}
	if len(ids) > 0 {
		list = append(list, "replica")
	}
	return list
}

// check also settles --tail together with --follow.
func (o *partLogsOptions) check(a *app) error {
	if o.tail == nil {
		return nil
	}
	if *o.tail < 0 {
		return usagef("--tail must be a non-negative integer.")
	}
	if o.follow && !o.syncDown {
		a.t.Warn("--tail shows the end of the log and does not follow it; using --no-follow.")
		o.follow = false
	}
	return nil
}

func (a *app) serveLogsCommand() *cobra.Command {
	o := partLogsOptions{follow: true}
	return a.build(command{
		name: "logs", args: "SERVICE_NAME [REPLICA_IDS]...", short: "Follow or download the logs of a service.", min: 1, max: -1,
		example: "sky serve logs chat 1\nsky serve logs chat --load-balancer --tail 100\nsky serve logs chat -s",
		flags: func(f flags) {
			f.switchable(&o.follow, "follow", "", "Go on until the log ends. [default: yes]")
			f.on(&o.controller, "controller", "", "The log of the service's controller.")
			f.on(&o.balancer, "load-balancer", "", "The log of the load balancer.")
			f.on(&o.syncDown, "sync-down", "s", "Download the logs to ~/sky_logs.")
			f.number(&o.tail, "tail", "", "Show this many last lines.")
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			ids, err := jobIDs(args[1:])
			if err != nil {
				return err
			}
			if err := o.check(a); err != nil {
				return err
			}
			var target string
			var replica *int
			if !o.syncDown {
				if target, replica, err = o.target(ids, "REPLICA_ID"); err != nil {
					return err
				}
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if o.syncDown {
				req, err := c.SyncServeLogs(ctx, api.ServeSyncLogsBody{ServiceName: args[0], LocalDir: "~/sky_logs/service", Targets: o.targets(ids), ReplicaIDs: ids, Tail: o.tail})
				return a.saveLogs(ctx, c, req, err, "Service "+args[0])
			}
			l, err := c.ServeLogs(api.ServeLogsBody{ServiceName: args[0], Target: target, ReplicaID: replica, Follow: &o.follow, Tail: o.tail})
			if err != nil {
				return err
			}
			return a.tail(ctx, l, "sky "+strings.Join(a.p.Args, " "), true)
		},
	})
}

// saveLogs downloads the folder that a request gathers.
func (a *app) saveLogs(ctx context.Context, c *sky.Client, req *sky.Request[string], err error, what string) error {
	if err != nil {
		return err
	}
	dir, err := wait(ctx, a, req)
	if err != nil {
		return err
	}
	local, err := a.download(ctx, c, map[string]string{"0": dir})
	if err != nil {
		return err
	}
	a.t.Printf("%s logs: %s\n", what, tilde(local["0"], a.home))
	return nil
}
