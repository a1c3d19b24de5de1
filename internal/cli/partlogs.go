package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// partLogsOptions are the flags of a partLogs command.
type partLogsOptions struct {
	follow, controller, balancer, syncDown bool
	tail                                   *int
}

// target chooses the one log to follow.
func (o partLogsOptions) target(ids []int, p partLogs) (string, *int, error) {
	n := len(ids)
	if o.controller {
		n++
	}
	if o.balancer {
		n++
	}
	switch {
	case n == 0 && p.balancer:
		return "", nil, usagef("Which log? Name one: --controller, --load-balancer or a %s.", p.part)
	case n == 0:
		return "", nil, usagef("Which log? Name one: --controller or a %s.", p.part)
	case len(ids) > 1:
		return "", nil, usagef("Only one log can be followed at a time. Name one %s, or download several with --sync-down.", p.part)
	case n > 1:
		return "", nil, usagef("Only one log can be followed at a time. Name one, or download several with --sync-down.")
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
	return a.partLogsCommand(partLogs{
		whole: "service", args: "SERVICE_NAME [REPLICA_IDS]...", part: "REPLICA_ID", balancer: true,
		needs:   "one REPLICA_ID, --controller or --load-balancer; with --sync-down several, or none for all",
		example: "sky serve logs chat 1\nsky serve logs chat --load-balancer --tail 100\nsky serve logs chat -s",
		stream: func(c *sky.Client, name string, s partLogsStream) (*sky.LogStream, error) {
			return c.ServeLogs(api.ServeLogsBody{ServiceName: name, Target: s.target, ReplicaID: s.id, Follow: &s.follow, Tail: s.tail})
		},
		gather: func(ctx context.Context, c *sky.Client, name string, g partLogsGather) (*sky.Request[string], error) {
			return c.SyncServeLogs(ctx, api.ServeSyncLogsBody{ServiceName: name, LocalDir: "~/sky_logs/service", Targets: g.targets, ReplicaIDs: g.ids, Tail: g.tail})
		},
	})
}

// partLogs is a command that shows the logs of a service or a pool: of its
// controller, its load balancer, or one of its machines.
type partLogs struct {
	whole    string // what has the logs: "service"
	args     string
	part     string // what a machine's number is called: "REPLICA_ID"
	needs    string
	balancer bool // it has a load balancer
	example  string
	stream   func(c *sky.Client, name string, s partLogsStream) (*sky.LogStream, error)
	gather   func(ctx context.Context, c *sky.Client, name string, g partLogsGather) (*sky.Request[string], error)
}

// partLogsStream is the one log to follow.
type partLogsStream struct {
	target string
	id     *int // of the machine, for the target "replica"
	follow bool
	tail   *int
}

// partLogsGather are the logs to download.
type partLogsGather struct {
	targets []string // none: all
	ids     []int
	tail    *int
}

func (a *app) partLogsCommand(p partLogs) *cobra.Command {
	o := partLogsOptions{follow: true}
	return a.build(command{
		name: "logs", args: p.args, short: "Follow or download the logs of a " + p.whole + ".", min: 1, max: -1,
		needs: p.needs, example: p.example,
		flags: func(f flags) {
			f.switchable(&o.follow, "follow", "", "Go on until the log ends. [default: yes]")
			f.on(&o.controller, "controller", "", "The log of the "+p.whole+"'s controller.")
			if p.balancer {
				f.on(&o.balancer, "load-balancer", "", "The log of the load balancer.")
			}
			f.on(&o.syncDown, "sync-down", "s", "Download the logs to ~/sky_logs.")
			f.number(&o.tail, "tail", "", "Show this many last lines.")
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			name := args[0]
			ids, err := jobIDs(args[1:])
			if err != nil {
				return err
			}
			if err := o.check(a); err != nil {
				return err
			}
			s := partLogsStream{follow: o.follow, tail: o.tail}
			if !o.syncDown {
				if s.target, s.id, err = o.target(ids, p); err != nil {
					return err
				}
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if o.syncDown {
				req, err := p.gather(ctx, c, name, partLogsGather{targets: o.targets(ids), ids: ids, tail: o.tail})
				return a.saveLogs(ctx, c, req, err, strings.ToUpper(p.whole[:1])+p.whole[1:]+" "+name)
			}
			l, err := p.stream(c, name, s)
			if err != nil {
				return err
			}
			return a.tail(ctx, l, "sky "+strings.Join(a.p.Args, " "), true)
		},
	})
}

// saveLogs downloads the folder that a request gathers.
func (a *app) saveLogs(ctx context.Context, c *sky.Client, req *sky.Request[string], err error, what string) error {
	dir, err := wait(ctx, a, req, err)
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
