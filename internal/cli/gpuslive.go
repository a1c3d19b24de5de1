package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/table"
)

// liveGPUs are the accelerators of clusters that the user already has.
type liveGPUs struct {
	kubernetes, ssh, slurm []api.ContextGPUs
	nodes                  map[string]api.KubernetesNodes // by context
}

// any reports whether one of the clusters has an accelerator that was asked for.
func (l liveGPUs) any() bool {
	for _, kind := range l.kinds() {
		if slices.ContainsFunc(kind.list, func(k api.ContextGPUs) bool { return len(k.GPUs) > 0 }) {
			return true
		}
	}
	return false
}

// liveGPUs asks those kinds of clusters that are enabled. What fails is left out,
// unless it was asked for by name.
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
	soft := softly
	if only := q.place.Cloud; isLive(only) {
		if !on(only) {
			return live, &api.Error{Type: api.ErrNotSupported, Message: "There is no " + only + " that sky can use.", Hint: "What is missing says: sky check " + only}
		}
		soft = func(err error) error { return err }
	}
	region := optional(q.place.Region)
	g, gctx := errgroup.WithContext(ctx)
	if on(facts.Kubernetes) {
		g.Go(func() (err error) {
			req, err := c.KubernetesGPUs(gctx, region, optional(q.name), q.quantity, false)
			live.kubernetes, err = quiet(gctx, req, err)
			return soft(err)
		})
	}
	if on(facts.SSH) {
		g.Go(func() (err error) {
			req, err := c.KubernetesGPUs(gctx, region, optional(q.name), q.quantity, true)
			live.ssh, err = quiet(gctx, req, err)
			return soft(err)
		})
	}
	if on(facts.Slurm) {
		g.Go(func() (err error) {
			req, err := c.SlurmGPUs(gctx, optional(q.name), q.quantity)
			live.slurm, err = quiet(gctx, req, err)
			return soft(err)
		})
	}
	if err := g.Wait(); err != nil {
		return live, err
	}
	live.nodes = map[string]api.KubernetesNodes{}
	if verbose {
		for _, k := range slices.Concat(live.kubernetes, live.ssh) {
			req, err := c.KubernetesNodeInfo(ctx, &k.Context)
			nodes, err := quiet(ctx, req, err)
			if err := soft(err); err != nil {
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

// listedOffer is an offer, and for machines that the user already has how many
// of the accelerator they have and how many are free now.
type listedOffer struct {
	plainOffer
	Capacity  *float64 `json:"capacity,omitempty"`
	Available *float64 `json:"available,omitempty"`
}

// plainOffer is an offer as a JSON object.
type plainOffer api.AcceleratorOffer

// with adds what the user already has to what clouds offer, by accelerator. It
// is pure.
func (l liveGPUs) with(offers map[string][]api.AcceleratorOffer) map[string][]listedOffer {
	out := map[string][]listedOffer{}
	for name, list := range offers {
		out[name] = make([]listedOffer, len(list))
		for i, o := range list {
			out[name][i].plainOffer = plainOffer(o)
		}
	}
	for _, kind := range l.kinds() {
		for _, k := range kind.list {
			for _, g := range k.GPUs {
				for _, count := range g.Counts {
					out[g.GPU] = append(out[g.GPU], listedOffer{
						plainOffer: plainOffer{Cloud: kind.cloud, AcceleratorName: g.GPU, AcceleratorCount: count, Region: &k.Context},
						Capacity:   &g.Capacity, Available: &g.Available,
					})
				}
			}
		}
	}
	return out
}

// liveKind is one kind of clusters that users have.
type liveKind struct {
	cloud, title string
	list         []api.ContextGPUs
}

func (l liveGPUs) kinds() []liveKind {
	return []liveKind{{"Kubernetes", "Kubernetes GPUs", l.kubernetes}, {"SSH", "SSH Node Pool GPUs", l.ssh}, {"Slurm", "Slurm GPUs", l.slurm}}
}

func (l liveGPUs) text(t *term.Term, q gpuQuery, verbose bool) string {
	var b strings.Builder
	column := "REQUESTABLE_QTY_PER_NODE"
	if q.quantity != nil {
		column = "QTY_FILTER"
	}
	for _, kind := range l.kinds() {
		for _, k := range kind.list {
			if len(k.GPUs) == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s\n%s\n", t.Style(term.Title, kind.title), t.Style(term.Dim, "Context: "+k.Context))
			b.WriteString(t.Table(freeTable(k.GPUs, column)) + "\n")
		}
	}
	if tab := nodeTable(l.nodes); verbose && len(tab.Rows) > 0 {
		b.WriteString(t.Style(term.Title, "Nodes") + "\n" + t.Table(tab) + "\n")
	}
	return b.String()
}

// freeTable lists the accelerators of a cluster; column is the title of their counts.
func freeTable(list []api.GPUAvailability, column string) *table.Table {
	tab := table.New("GPU", column, "UTILIZATION").Prose(column)
	for _, g := range list {
		tab.Add(g.GPU, quantities(g.Counts), fmt.Sprintf("%s of %s free", format.Number(g.Available), format.Number(g.Capacity)))
	}
	return tab
}

func nodeTable(nodes map[string]api.KubernetesNodes) *table.Table {
	tab := table.New("CONTEXT", "NODE", "vCPU", "Memory (GB)", "GPU", "GPU UTILIZATION", "NODE STATUS").Whole("CONTEXT", "NODE", "NODE STATUS").Optional("Memory (GB)", "vCPU")
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
