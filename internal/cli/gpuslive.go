package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// liveGPUs are the accelerators of clusters that the user already has.
type liveGPUs struct {
	kubernetes, ssh, slurm []sky.ContextGPUs
	nodes                  map[string]sky.KubernetesNodes // by context
}

// liveGPUs asks those kinds of clusters that are enabled.
func (a *app) liveGPUs(ctx context.Context, c *sky.Client, q gpuQuery, verbose bool) (live liveGPUs, err error) {
	req, err := c.EnabledClouds(ctx, "", false)
	enabled, err := quiet(ctx, req, err)
	if err != nil {
		return live, err
	}
	on := func(cloud string) bool {
		return (q.place.Cloud == "" || q.place.Cloud == cloud) &&
			slices.ContainsFunc(enabled, func(s string) bool { return strings.EqualFold(s, cloud) })
	}
	region := optional(q.place.Region)
	g, gctx := errgroup.WithContext(ctx)
	if on("kubernetes") {
		g.Go(func() (err error) {
			req, err := c.KubernetesGPUs(gctx, region, optional(q.name), q.quantity, false)
			live.kubernetes, err = quiet(gctx, req, err)
			return softly(err)
		})
	}
	if on("ssh") {
		g.Go(func() (err error) {
			req, err := c.KubernetesGPUs(gctx, region, optional(q.name), q.quantity, true)
			live.ssh, err = quiet(gctx, req, err)
			return softly(err)
		})
	}
	if on("slurm") {
		g.Go(func() (err error) {
			req, err := c.SlurmGPUs(gctx, optional(q.name), q.quantity)
			live.slurm, err = quiet(gctx, req, err)
			return softly(err)
		})
	}
	if err := g.Wait(); err != nil {
		return live, err
	}
	live.nodes = map[string]sky.KubernetesNodes{}
	if verbose || q.name == "" {
		for _, k := range slices.Concat(live.kubernetes, live.ssh) {
			req, err := c.KubernetesNodeInfo(ctx, &k.Context)
			nodes, err := quiet(ctx, req, err)
			if softly(err) != nil {
				return live, err
			}
			live.nodes[k.Context] = nodes
		}
	}
	return live, nil
}

// softly drops failures of the server's side: a cluster that does not answer
// hides no catalog.
func softly(err error) error {
	if _, ok := asAPIError(err); ok {
		return nil
	}
	return ignoreRefusal(err)
}

func (l liveGPUs) text(t *term.Term, q gpuQuery, verbose bool) string {
	var b strings.Builder
	column := "REQUESTABLE_QTY_PER_NODE"
	if q.quantity != nil {
		column = "QTY_FILTER"
	}
	for _, kind := range [...]struct {
		title string
		list  []sky.ContextGPUs
	}{{"Kubernetes GPUs", l.kubernetes}, {"SSH Node Pool GPUs", l.ssh}, {"Slurm GPUs", l.slurm}} {
		for _, k := range kind.list {
			if len(k.GPUs) == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s\n%s\n", t.Style(term.Title, kind.title), t.Style(term.Dim, "Context: "+k.Context))
			tab := table.New("GPU", column, "UTILIZATION")
			for _, g := range k.GPUs {
				tab.Add(g.GPU, quantities(g.Counts), fmt.Sprintf("%s of %s free", format.Number(g.Available), format.Number(g.Capacity)))
			}
			b.WriteString(tab.String() + "\n")
		}
	}
	if tab := nodeTable(l.nodes); verbose && len(tab.Rows) > 0 {
		b.WriteString(t.Style(term.Title, "Nodes") + "\n" + tab.String() + "\n")
	}
	return b.String()
}

func nodeTable(nodes map[string]sky.KubernetesNodes) *table.Table {
	tab := table.New("CONTEXT", "NODE", "vCPU", "Memory (GB)", "GPU", "GPU UTILIZATION", "NODE STATUS")
	for _, kubeContext := range slices.Sorted(maps.Keys(nodes)) {
		list := nodes[kubeContext].Nodes
		for _, name := range slices.Sorted(maps.Keys(list)) {
			n := list[name]
			free := fmt.Sprintf("%d of %d free", n.Free.Available, n.Total.Count)
			if n.Free.Available < 0 {
				free = "unknown"
			}
			state := "Healthy"
			switch {
			case n.Ready != nil && !*n.Ready:
				state = "NotReady"
			case n.Cordoned != nil && *n.Cordoned:
				state = "Cordoned"
			}
			tab.Add(kubeContext, name, free2(n.CPUFree, n.CPUs), free2(n.MemFree, n.MemoryGB), format.OrDash(text(n.AcceleratorType)), free, state)
		}
	}
	return tab
}

func free2(free, total *float64) string {
	if total == nil {
		return "-"
	}
	if free == nil {
		return fmt.Sprintf("%.0f", *total)
	}
	return fmt.Sprintf("%.0f of %.0f free", *free, *total)
}
