package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/task"
)

func (a *app) serveCommand() *cobra.Command {
	return a.build(command{
		name: "serve", short: "Services: replicas behind one endpoint.",
		example: "sky serve up -n chat service.yaml\nsky serve status chat\nsky serve logs chat 1\nsky serve down chat",
		group:   []*cobra.Command{a.serveUpCommand(), a.serveUpdateCommand(), a.serveTurnCommand("promote"), a.serveTurnCommand("rollback"), a.serveStatusCommand(), a.serveDownCommand(), a.serveLogsCommand(), a.serveBalancerCommand(), a.serveSimulateCommand()},
	})
}

func (a *app) serveUpCommand() *cobra.Command {
	var t taskFlags
	var name string
	var yes, async bool
	return a.build(command{
		name: "up", args: "SERVICE_YAML", short: "Start a service.", min: 1, max: -1,
		example: "sky serve up -n chat service.yaml",
		flags: func(f flags) {
			f.text(&name, "service-name", "n", "Name of the service; without it a name is made up.")
			f.git(&t)
			f.task(&t)
			f.resources(&t)
			f.async(&async)
			f.yes(&yes)
		},
		run: func(ctx context.Context, _ *cobra.Command, words []string) error {
			dag, err := a.loadService(ctx, words, &t, yes)
			if err != nil {
				return err
			}
			if name == "" {
				name = task.GeneratedServiceName()
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			s := serviceLaunch{dag: dag, name: name, yes: yes, each: "Each replica will use the following resources (estimated):",
				question: fmt.Sprintf("Launching a new service '%s'. Proceed?", name)}
			text, blob, err := a.prepareService(ctx, c, s)
			if err != nil {
				return err
			}
			body := api.ServeUpBody{Task: text, ServiceName: name}
			body.FileMountsBlobID = blob
			req, err := c.ServeUp(ctx, body)
			res, err := finish(ctx, a, async, "serve.up", req, err)
			if err != nil || async {
				return err
			}
			endpoint := "-"
			if len(res) > 1 {
				endpoint = res[1]
			}
			a.t.Print(serviceHints(name, endpoint))
			return nil
		},
	})
}

func (a *app) serveUpdateCommand() *cobra.Command {
	var t taskFlags
	mode := "rolling"
	var yes, async bool
	var weight *int
	return a.build(command{
		name: "update", args: "SERVICE_NAME SERVICE_YAML", short: "Move a service to a new version of its task.", min: 2, max: -1,
		example: "sky serve update chat service.yaml\nsky serve update chat service.yaml --mode blue_green\nsky serve update chat service.yaml --mode canary --weight 10",
		flags: func(f flags) {
			f.task(&t)
			f.resources(&t)
			f.async(&async)
			f.choice(&mode, "mode", "", "How traffic moves: replica by replica, all at once, or a share of it until you decide.", "rolling", "blue_green", "canary")
			f.number(&weight, "weight", "", "Percent of the requests that a canary gets (10).")
			f.yes(&yes)
		},
		run: func(ctx context.Context, _ *cobra.Command, words []string) error {
			name := words[0]
			if weight != nil && (mode != "canary" || *weight <= 0 || *weight >= 100) {
				return usagef("--weight is the share of the requests that a canary gets: above 0 and below 100 percent, with --mode canary.")
			}
			dag, err := a.loadService(ctx, words[1:], &t, yes)
			if err != nil {
				return err
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			s := serviceLaunch{dag: dag, name: name, yes: yes, each: "New replica will use the following resources (estimated):",
				question: fmt.Sprintf("Updating service '%s'. Proceed?", name)}
			text, blob, err := a.prepareService(ctx, c, s)
			if err != nil {
				return err
			}
			body := api.ServeUpdateBody{Task: text, ServiceName: name, Mode: mode}
			if weight != nil {
				body.Weight = float64(*weight)
			}
			body.FileMountsBlobID = blob
			req, err := c.ServeUpdate(ctx, body)
			_, err = finish(ctx, a, async, "serve.update", req, err)
			return err
		},
	})
}

// serveTurnCommand decides about the version of a service that is about to take over.
func (a *app) serveTurnCommand(name string) *cobra.Command {
	short := "Let a canary take over."
	if name == "rollback" {
		short = "Give up a version that has not taken over."
	}
	var async bool
	return a.build(command{
		name: name, args: "SERVICE_NAME", short: short, min: 1, max: 1, example: map[string]string{"promote": "sky serve promote chat", "rollback": "sky serve rollback chat"}[name],
		flags: func(f flags) { f.async(&async) },
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			ask := c.ServePromote
			if name == "rollback" {
				ask = c.ServeRollback
			}
			req, err := ask(ctx, args[0])
			_, err = finish(ctx, a, async, "serve."+name, req, err)
			return err
		},
	})
}

// loadService reads a task that must be a service.
func (a *app) loadService(ctx context.Context, words []string, t *taskFlags, yes bool) (*task.Dag, error) {
	path := strings.Join(words, " ")
	if fileProblem(expandHome(path, a.home)) != "" && !strings.HasPrefix(path, "recipes:") {
		return nil, usagef("SERVICE_YAML must be a valid YAML file; '%s' is not.", path)
	}
	t.command = "sky serve up"
	d, err := a.read(ctx, words, t, yes)
	if err != nil {
		return nil, err
	}
	one, err := single(d.Dag, "A service is a single task; the file has several.")
	if err != nil {
		return nil, err
	}
	if one.Service == nil {
		return nil, usagef("Service section not found in the YAML file. To fix, add a valid `service` field.")
	}
	if err := checkServicePorts(one); err != nil {
		return nil, err
	}
	return a.ready(d)
}

// serviceLaunch is what is shown and asked before a service or pool is started
// or changed.
type serviceLaunch struct {
	dag            *task.Dag
	name           string
	yes, pool      bool
	each, question string
}

// prepareService shows the plan, asks, uploads files and returns the Dag's text.
func (a *app) prepareService(ctx context.Context, c *sky.Client, s serviceLaunch) (text string, blob *string, err error) {
	raw, err := s.dag.YAML()
	if err != nil {
		return "", nil, err
	}
	if err := c.Validate(ctx, api.DagBody{Dag: string(raw)}); err != nil {
		return "", nil, err
	}
	if s.pool {
		a.t.Print("Pool spec:\n" + poolSpec(s.dag.Tasks[0].Pool))
	} else {
		shown, err := serviceSpec(s.dag.Tasks[0])
		if err != nil {
			return "", nil, err
		}
		a.t.Print("Service spec:\n" + shown)
	}
	a.t.Println("\n" + s.each)
	if _, err := a.showPlan(ctx, c, api.DagBody{Dag: string(raw)}); err != nil {
		return "", nil, err
	}
	if !s.yes {
		if err := a.t.Confirm(ctx, s.question, true); err != nil {
			return "", nil, err
		}
	}
	if blob, err = a.upload(ctx, c, s.dag, move{ask: !s.yes, notes: true}); err != nil {
		return "", nil, err
	}
	if blob != nil {
		raw, err = s.dag.YAML()
	}
	return string(raw), blob, err
}

func (a *app) serveStatusCommand() *cobra.Command {
	var verbose, endpoint bool
	return a.build(command{
		name: "status", args: "[SERVICE_NAMES]...", short: "Show services and their replicas.", max: -1,
		example: "sky serve status\nsky serve status --endpoint chat\nsky serve status -o json",
		flags: func(f flags) {
			f.on(&verbose, "verbose", "v", "Show everything about each service.")
			f.on(&endpoint, "endpoint", "", "Print the endpoint of one service.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.ServeStatus(ctx, names)
			list, err := quiet(ctx, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(list)); done {
				return err
			}
			if endpoint {
				if len(list) != 1 {
					return usagef("%d services found. Please specify an existing service to show its endpoint. Usage: sky serve status --endpoint <service-name>", len(list))
				}
				a.t.Println(dashIfEmpty(text(list[0].Endpoint)))
				return nil
			}
			a.t.Print(servicesText(a.t, names, list, false, verbose, verbose, a.now()))
			return nil
		},
	})
}

func (a *app) serveDownCommand() *cobra.Command {
	var all, purge, yes, async bool
	var replica *int
	return a.build(command{
		name: "down", args: "[SERVICE_NAMES]...", needs: "SERVICE_NAMES or --all", short: "End services, or one replica.", max: -1,
		example: "sky serve down chat\nsky serve down chat --replica-id 2\nsky serve down -a -y",
		flags: func(f flags) {
			f.on(&all, "all", "a", "All services.")
			f.on(&purge, "purge", "p", "Forget services that failed, even when something may be left behind.")
			f.yes(&yes)
			f.number(&replica, "replica-id", "", "Only this replica; another one takes its place.")
			f.async(&async)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usagef("Can only specify one of SERVICE_NAMES or --all. Provided '%s'.", strings.Join(names, " "))
			}
			if replica != nil && len(names) != 1 {
				return usagef("The --replica-id option can only be used with a single service name. Got: %s.", strings.Join(names, ", "))
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			question := "Terminating all services. Proceed?"
			switch {
			case replica != nil:
				question = fmt.Sprintf("Terminating replica ID %d in '%s'. Proceed?", *replica, names[0])
			case !all:
				question = fmt.Sprintf("Terminating service(s) %s. Proceed?", quoteAll(names))
			}
			if !yes {
				if err := a.t.Confirm(ctx, question, true); err != nil {
					return err
				}
			}
			var req *sky.Request[any]
			if replica != nil {
				req, err = c.TerminateReplica(ctx, api.ServeTerminateReplicaBody{ServiceName: names[0], ReplicaID: *replica, Purge: purge})
			} else {
				req, err = c.ServeDown(ctx, api.ServeDownBody{ServiceNames: names, All: all, Purge: purge})
			}
			_, err = finish(ctx, a, async, "serve.down", req, err)
			return err
		},
	})
}
