package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/task"
)

// gpusOptions are the flags of sky gpus list.
type gpusOptions struct {
	all, allRegions, verbose bool
	availability             bool
	infra, cloud, region     string
}

func (a *app) gpusCommand() *cobra.Command {
	return a.build(command{
		name: "gpus", short: "List accelerators and their prices; label GPU nodes.",
		example: "sky gpus list\nsky gpus list H100:8",
		group:   []*cobra.Command{a.gpusListCommand(), a.gpusLabelCommand()},
	})
}

func (f flags) gpus(o *gpusOptions) {
	f.on(&o.all, "all", "a", "Also the less common accelerators.")
	f.text(&o.infra, "infra", "", "Only this infrastructure: aws, aws/us-east-1, k8s, …")
	f.text(&o.cloud, "cloud", "", "")
	f.text(&o.region, "region", "", "")
	f.hide("cloud", "region")
	f.on(&o.allRegions, "all-regions", "", "Every region, not only the cheapest one.")
	f.on(&o.availability, "availability", "", "How likely machines are to be had where: what your own attempts have seen, and what clouds say that can tell.")
	f.on(&o.verbose, "verbose", "v", "Show the nodes of Kubernetes and Slurm clusters.")
}

func (a *app) gpusListCommand() *cobra.Command {
	var o gpusOptions
	return a.build(command{
		name: "list", args: "[ACCELERATOR[:QUANTITY]]", short: "List accelerators, or where one is offered and for how much.", max: 1,
		example: "sky gpus list\nsky gpus list H100:8\nsky gpus list A100 --infra aws --all-regions\nsky gpus list --availability",
		flags: func(f flags) {
			f.gpus(&o)
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error { return a.gpusList(ctx, args, o) },
	})
}

func (a *app) showGPUsCommand() *cobra.Command {
	var o gpusOptions
	return a.build(command{
		name: "show-gpus", args: "[ACCELERATOR[:QUANTITY]]", hidden: true, short: "Deprecated: use `sky gpus list`.", max: 1,
		example: "sky gpus list",
		flags:   func(f flags) { f.gpus(&o) },
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			a.t.Warn("`sky show-gpus` is deprecated; use `sky gpus list`.")
			return a.gpusList(ctx, args, o)
		},
	})
}

// query is what is asked of the catalog.
type gpuQuery struct {
	name     string
	quantity *float64
	place    task.Infra
}

// isMemory reports whether a name asks for accelerators by their memory.
func isMemory(name string) bool {
	_, ok := task.Accelerator{Name: name}.Memory()
	return ok
}

func (o gpusOptions) query(args []string) (q gpuQuery, err error) {
	if len(args) > 0 {
		name, n, counted := strings.Cut(args[0], ":")
		if memory, number, several := strings.Cut(n, ":"); isMemory(name + ":" + memory) { // nvidia:40GB+:2
			name, n, counted = name+":"+memory, number, several
		}
		name, n = strings.TrimSpace(name), strings.TrimSpace(n) // as in a task
		if name == "" || strings.Contains(n, ":") {
			return q, usagef("Invalid accelerator string %s. Expected format: <accelerator_name>[:<quantity>].", args[0])
		}
		q.name = name
		if counted {
			v, err := strconv.Atoi(n)
			if err != nil || v <= 0 {
				return q, usagef("Invalid accelerator quantity %s. Expected a positive integer.", n)
			}
			q.quantity = new(float64(v))
		}
	}
	switch {
	case o.region != "" && o.cloud == "":
		return q, usagef("The --region flag is only valid when the --cloud flag is set.")
	case o.infra != "" && o.cloud+o.region != "":
		return q, usagef("Cannot specify both --infra and --cloud or --region.")
	case o.allRegions && q.name == "":
		return q, usagef("The --all-regions flag is only valid when an accelerator is specified.")
	case o.all && q.name != "":
		return q, usagef("--all is only allowed without a GPU name.")
	}
	infra := o.infra
	if o.cloud != "" {
		infra = strings.TrimSuffix(o.cloud+"/"+o.region, "/")
	}
	if infra != "" {
		if q.place, err = task.ParseInfra(infra); err != nil {
			return q, err
		}
	}
	if o.allRegions && q.place.Region != "" {
		return q, usagef("--all-regions and --region flags cannot be used simultaneously.")
	}
	return q, nil
}

// isLive reports whether the accelerators of a cloud are asked for live.
func isLive(cloud string) bool { return facts.Of(cloud).Hardware == facts.Own }

func (a *app) gpusList(ctx context.Context, args []string, o gpusOptions) error {
	q, err := o.query(args)
	if err != nil {
		return err
	}
	if o.availability {
		if o.all || o.allRegions {
			return usagef("--availability shows all that is known; --all and --all-regions do not go with it.")
		}
		return a.gpusAvailability(ctx, q)
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var live liveGPUs
	var counts map[string][]float64
	var offers map[string][]api.AcceleratorOffer
	g, gctx := errgroup.WithContext(ctx)
	mine := isLive(q.place.Cloud) // only what the user has
	if !o.all || q.name != "" || mine {
		g.Go(func() (err error) {
			live, err = a.liveGPUs(gctx, c, q, o.verbose && a.output == "table")
			return err
		})
	}
	if !mine {
		g.Go(func() (err error) {
			body := q.body(o)
			if q.name == "" && a.output == "table" && !o.all {
				req, err := c.AcceleratorCounts(gctx, body)
				counts, err = quiet(gctx, req, err)
				return err
			}
			req, err := c.Accelerators(gctx, body)
			offers, err = quiet(gctx, req, err)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if a.output != "table" {
		_, err := a.emit(live.with(offers))
		return err
	}
	text := live.text(a.t, q, o.verbose)
	switch {
	case mine && live.any(), q.name != "" && len(offers) == 0 && live.any():
	case mine && q.name == "":
		text += "No GPUs on " + q.place.String() + ". Machines have some and are not listed? They need the labels of the NVIDIA device plugin or of their cloud.\n"
	case q.name != "":
		text += offersText(a.t, offers, q, o)
	case o.all:
		return a.page(ctx, allOffersText(a.t, offers))
	case counts != nil:
		if text != "" {
			text += a.t.Style(term.Title, "Cloud GPUs") + "\n"
		}
		text += countsText(a.t, counts)
		text += "\nHint: use -a/--all to see all accelerators (including non-common ones) and pricing.\n"
	}
	a.t.Print(text)
	return nil
}

func (q gpuQuery) body(o gpusOptions) api.ListAcceleratorsBody {
	yes, no := true, false
	b := api.ListAcceleratorsBody{
		GPUsOnly: &yes, QuantityFilter: q.quantity, AllRegions: o.allRegions, RequirePrice: &no, CaseSensitive: &no,
		NameFilter: optional(q.name), RegionFilter: optional(q.place.Region),
	}
	if q.name != "" {
		b.GPUsOnly = &no
	}
	if q.place.Cloud != "" {
		b.Clouds = api.Strings{q.place.Cloud}
	}
	return b
}

func (a *app) gpusLabelCommand() *cobra.Command {
	var kubeContext string
	var cleanup, async bool
	return a.build(command{
		name: "label", short: "Label the GPU nodes of a Kubernetes cluster, so that sky finds them. Not available yet.", max: 0,
		example: "sky gpus label\nsky gpus label -c my-context\nsky gpus label --cleanup",
		flags: func(f flags) {
			f.text(&kubeContext, "context", "c", "Kubernetes context; default: the current one.")
			f.on(&cleanup, "cleanup", "", "Remove what labelling has left behind.")
			f.on(&async, "async", "", "Do not wait until the nodes are labelled.")
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if err := a.able(ctx, "kubernetes_label_gpus", "`sky gpus label`"); err != nil {
				return err
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.LabelGPUs(ctx, optional(kubeContext), cleanup, !async)
			res, err := wait(ctx, a, req, err)
			if err != nil {
				return err
			}
			a.t.Println(res.Message)
			if !res.Success {
				return exitError(1)
			}
			return nil
		},
	})
}
