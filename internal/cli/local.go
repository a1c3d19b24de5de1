package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func (a *app) localCommand() *cobra.Command {
	var async bool
	gpus, name := true, "skypilot"
	var port *int
	const pools = "`sky ssh up` and `sky ssh down`, with the machines in ~/.sky/ssh_node_pools.yaml"
	up := a.oldFlags(a.build(command{
		name: "up", short: "Look whether the Kubernetes cluster that kind made on this machine can be used.", max: 0,
		example: "sky local up\nsky local up --no-gpus --port-start 30000",
		flags: func(f flags) {
			f.async(&async)
			f.number(&port, "port-start", "", "First of 100 ports to use; a multiple of 100.")
			f.text(&name, "name", "", "What kind calls the cluster; its context is kind-NAME.")
			f.switchable(&gpus, "gpus", "", "Let the cluster use this machine's GPUs. [default: yes]")
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if port != nil && (*port <= 0 || *port%100 != 0) {
				return usagef("Invalid value for '--port-start': %d is not a multiple of 100.", *port)
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.LocalUp(ctx, gpus, name, port)
			_, err = finish(ctx, a, async, "local_up", req, err)
			return err
		},
	}),
		oldFlag{name: "ips", takes: true, instead: pools}, oldFlag{name: "ssh-user", takes: true, instead: pools},
		oldFlag{name: "ssh-key-path", takes: true, instead: pools}, oldFlag{name: "context-name", takes: true, instead: pools},
		oldFlag{name: "password", takes: true, instead: pools}, oldFlag{name: "cleanup", instead: pools})
	down := a.build(command{
		name: "down", short: "Look whether the Kubernetes cluster that kind made on this machine can go: whether sky has anything on it.", max: 0,
		example: "sky local down\nsky local down --name dev",
		flags: func(f flags) {
			f.async(&async)
			f.text(&name, "name", "", "What kind calls the cluster; its context is kind-NAME.")
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.LocalDown(ctx, name)
			_, err = finish(ctx, a, async, "local_down", req, err)
			return err
		},
	})
	return a.build(command{name: "local", example: "sky local up\nsky local down", hidden: true, short: "A Kubernetes cluster that kind made on this machine.", group: []*cobra.Command{up, down}})
}

func (a *app) statusKubernetesCommand() *cobra.Command {
	var verbose bool
	return a.build(command{
		name: "status-kubernetes", hidden: true, short: "Show what sky runs in the current Kubernetes context.", max: 0,
		example: "sky status-kubernetes -v",
		flags:   func(f flags) { f.on(&verbose, "verbose", "v", "Show unmanaged clusters too.") },
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.statusKubernetes(ctx, verbose)
		},
	})
}
