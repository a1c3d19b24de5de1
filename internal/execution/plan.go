package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/task"
)

// Optimize prints the plan for a Dag, and returns it if that is asked for.
func (x *Executor) Optimize(ctx context.Context, call cluster.Call, body api.DagBody) (*api.Plan, error) {
	dag, err := parse(body.Dag)
	if err != nil {
		return nil, err
	}
	var clone *cloud.DiskImage
	if from := body.CloneDiskFrom; from != nil && *from != "" {
		if len(dag.Tasks) != 1 {
			return nil, &api.Error{Type: api.ErrValue, Message: "A copy of a disk is for the cluster of one task."}
		}
		name := ""
		if body.RequestOptions != nil && body.RequestOptions.ClusterName != nil {
			name = *body.RequestOptions.ClusterName
		}
		l := &launch{x: x, call: call, task: dag.Tasks[0], name: name}
		if err := l.cloneSource(ctx, *from); err != nil {
			return nil, err
		}
		clone = l.clone
	}
	for _, t := range dag.Tasks {
		if _, err := x.bindVolumes(ctx, call, t, "", body.PlanOptions); err != nil {
			return nil, err
		}
		if err := x.checkBuckets(ctx, call, t, body.PlanOptions, true); err != nil {
			return nil, err
		}
	}
	p, plan, err := x.plan(ctx, call, planning{dag: dag, minimize: body.Minimize, options: body.PlanOptions, clone: clone})
	if err != nil {
		return nil, err
	}
	plan.Table(call.Out, false, body.Columns)
	if len(body.AssumeEnabled) == 0 {
		name := ""
		if body.RequestOptions != nil && body.RequestOptions.ClusterName != nil {
			name = *body.RequestOptions.ClusterName
		}
		for _, t := range plan.Tasks {
			if err := x.announceCredentials(ctx, call, t.Task, t.Chosen.Offer.Place, name); err != nil {
				return nil, err
			}
		}
	}
	if body.Explain {
		explain(call.Out, p, plan, body.Columns)
	}
	if !body.WantPlan {
		return nil, nil
	}
	return planOf(p, plan, body.Explain), nil
}

// planning is what is to be planned.
type planning struct {
	dag      *task.Dag
	placed   map[int]cloud.Place // as in [optimizer.Problem]
	minimize int                 // as clients send it
	options  api.PlanOptions
	replica  bool             // of a service
	clone    *cloud.DiskImage // which machines start with a copy of; nil: none
}

// plan asks the optimizer over everything that is enabled, or assumed to be.
func (x *Executor) plan(ctx context.Context, call cluster.Call, of planning) (_ optimizer.Problem, _ *optimizer.Plan, err error) {
	ctx, span := trace.Start(ctx, "plan")
	defer func() { span.End(err) }()
	p := optimizer.Problem{Dag: of.dag, Placed: of.placed, Minimize: optimizer.Cost, Replica: of.replica}
	if of.minimize == 1 {
		p.Minimize = optimizer.Time
	}
	if len(of.options.AssumeEnabled) > 0 {
		p.Sources, err = x.assumed(ctx, of.options)
	} else {
		var c *config.Config
		if c, err = settings(call, of.dag.Tasks[0]); err == nil {
			p.Sources, p.Reservations, p.Refused, err = x.enabled(ctx, call, c, of.dag)
			p.Only = reachable(c, p.Sources)
		}
	}
	if err != nil {
		return p, nil, err
	}
	p.Sources = x.cloneable(p.Sources, of.clone)
	plan, err := optimizer.Optimize(p)
	if err != nil {
		return p, nil, planError(err)
	}
	return p, plan, nil
}

// reachable are the regions of clouds whose machines are reached by ssh_proxy_command, where
// that names a way for some regions only.
func reachable(c *config.Config, sources []optimizer.Source) map[string]optimizer.Regions {
	only := map[string]optimizer.Regions{}
	for _, s := range sources {
		if regions, some := c.For(config.Scope{Cloud: s.Name()}).ProxyRegions(); some {
			only[s.Name()] = optimizer.Regions{Names: regions, Why: s.Name() + ".ssh_proxy_command names no way to machines there (with null they are reached directly)"}
		}
	}
	return only
}

// enabled are the clouds that c allows and whose credentials work, as the
// optimizer wants them. A cloud that does not answer is left out, and said to be:
// it must not keep the others from being used. Why a cloud is left out is also
// returned, by its name. Only those are asked that the tasks can run on. The reservations are
// those that the others have room in.
func (x *Executor) enabled(ctx context.Context, call cluster.Call, c *config.Config, dag *task.Dag) ([]optimizer.Source, []cloud.Reservation, map[string]string, error) {
	all := x.Providers.All()
	named := clouds(dag)
	if named != nil {
		all = slices.DeleteFunc(slices.Clone(all), func(p cloud.Provider) bool { return !slices.Contains(named, p.Name()) })
	}
	found := make([]optimizer.Source, len(all))
	errs := make([]error, len(all))
	reserved := make([][]cloud.Reservation, len(all))
	unlisted := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all { // at once: one that is slow keeps nobody waiting twice
		wg.Go(func() {
			if found[i], errs[i] = x.source(ctx, c, p); errs[i] == nil {
				reserved[i], unlisted[i] = reservations(ctx, c, p, dag)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, nil, nil, context.Cause(ctx)
	}
	var sources []optimizer.Source
	var refused []string
	reasons := map[string]string{}
	for i, p := range all {
		err := errs[i]
		if err == nil {
			sources = append(sources, found[i])
			if unlisted[i] != nil {
				fmt.Fprintf(call.Out, "Reservations of %s that could not be listed do not count in the plan: %v\n", p.DisplayName(), unlisted[i])
			}
			continue
		}
		reasons[p.Name()] = err.Error()
		refused = append(refused, fmt.Sprintf("%s: %v", p.DisplayName(), err))
		if _, said := errors.AsType[*notEnabled](err); !said {
			fmt.Fprintf(call.Out, "%s is left out of the plan: %v\n", p.DisplayName(), err)
		}
	}
	if len(sources) == 0 && named == nil { // else the plan says what there is no way to
		return nil, nil, nil, &api.Error{
			Type:    api.ErrNoCloudAccess,
			Message: "No infrastructure is enabled. " + strings.Join(refused, "; "),
			Hint:    "See what is missing with: sky check",
		}
	}
	return sources, slices.Concat(reserved...), reasons, nil
}

// reservationsWait is how long a plan waits for a cloud's reservations: it can be made without.
const reservationsWait = 30 * time.Second

// reservations are those that a cloud has in the regions where the tasks can run, if its
// settings say that they are used. Spot machines are never reserved.
func reservations(ctx context.Context, c *config.Config, p cloud.Provider, dag *task.Dag) ([]cloud.Reservation, error) {
	lister, ok := cloud.As[cloud.ReservationLister](p)
	regions, concerned := reservedRegions(dag, p.Name())
	if !ok || !concerned {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reservationsWait, fmt.Errorf("there was no answer in %v", reservationsWait))
	defer cancel()
	all, err := lister.ListReservations(ctx, c.Sections(config.Scope{Cloud: p.Name()})(""), regions)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return all, err
}

// reservedRegions are the regions of a cloud in which the tasks can have machines that are no spot
// machines; nil: any. concerned is false if they can have none there.
func reservedRegions(dag *task.Dag, cloudName string) (regions []string, concerned bool) {
	all := false
	for _, t := range dag.Tasks {
		resources := t.Resources
		if len(resources) == 0 {
			resources = []task.Resources{{}}
		}
		for _, r := range resources {
			if r.UseSpot != nil && *r.UseSpot || r.Cloud != "" && !strings.EqualFold(r.Cloud, cloudName) {
				continue
			}
			concerned = true
			named := r.Regions
			if r.Region != "" {
				named = []string{r.Region}
			}
			all = all || len(named) == 0
			for _, region := range named {
				regions = append(regions, strings.ToLower(region))
			}
		}
	}
	if all {
		return nil, concerned
	}
	return regions, concerned
}

// clouds are those that a plan has to know of: what every candidate of every task
// names. nil: all of them, as one may be anywhere.
func clouds(dag *task.Dag) []string {
	named := []string{}
	for _, t := range dag.Tasks {
		if len(t.Resources) == 0 {
			return nil
		}
		for _, r := range t.Resources {
			if r.Cloud == "" {
				return nil
			}
			named = append(named, strings.ToLower(r.Cloud))
		}
	}
	return named
}

// notEnabled is that a cloud is not to be used, or cannot be: nothing to tell who
// did not ask for it.
type notEnabled struct{ why string }

func (e *notEnabled) Error() string { return e.why }

// source is what one cloud has.
func (x *Executor) source(ctx context.Context, c *config.Config, p cloud.Provider) (none optimizer.Source, err error) {
	if ok, why := c.CloudUseFor(c.ActiveWorkspace(), p.Name(), config.Compute); !ok {
		return none, &notEnabled{why}
	}
	if _, err := p.Check(ctx); err != nil {
		if _, ok := errors.AsType[*cloud.AuthError](err); ok {
			return none, &notEnabled{err.Error()}
		}
		return none, err
	}
	sections := c.Sections(config.Scope{Cloud: p.Name()})
	lacks := p.Features().Lacks
	if f, ok := cloud.As[cloud.Configured](p); ok {
		lacks = f.LacksWith(sections(""))
	}
	if tailor, ok := cloud.As[catalog.Tailor](p); ok {
		if sections("")["allowed_node_pools"] != nil {
			offers, err := p.Offers(ctx)
			if err != nil {
				return none, fmt.Errorf("asking what it offers: %w", err)
			}
			if _, why := inAllowedPools(offers, p.Name(), sections("")); why != "" {
				return none, &notEnabled{why}
			}
		}
		t, err := tailor.Tailored(ctx, sections)
		if err != nil {
			return none, fmt.Errorf("asking what it offers: %w", err)
		}
		return optimizer.TailoredSource(p.Name(), p.DisplayName(), t, lacks), nil
	}
	offers, err := offersOf(ctx, p, sections)
	if err != nil {
		return none, fmt.Errorf("asking what it offers: %w", err)
	}
	if offers != nil {
		return optimizer.OffersSource(p.Name(), p.DisplayName(), offers, lacks), nil
	}
	table, err := x.Catalogs.Table(ctx, p.Name())
	if err != nil {
		return none, fmt.Errorf("its price list: %w", err)
	}
	return optimizer.CatalogSource(table, lacks), nil
}

func offersOf(ctx context.Context, p cloud.Provider, sections catalog.Sections) ([]cloud.Offer, error) {
	if o, ok := cloud.As[cloud.SettledOffers](p); ok {
		return o.OffersWith(ctx, sections(""))
	}
	return p.Offers(ctx)
}

// noPrices is what to do about price lists that cannot be had.
const noPrices = "Fetch them where there is a network with: sky catalog refresh, or name a folder that holds CLOUD/vms.csv with --catalog-dir"

// assumed are price lists of clouds that the caller wants a plan over, whether
// or not they are enabled.
func (x *Executor) assumed(ctx context.Context, o api.PlanOptions) ([]optimizer.Source, error) {
	store := x.Catalogs
	if o.CatalogDir != "" {
		store = catalog.NewStore(catalog.StoreOptions{Dir: o.CatalogDir, Offline: true, Logger: x.Log})
	}
	all := slices.Contains(o.AssumeEnabled, "all")
	names := o.AssumeEnabled
	if all {
		names = facts.Names(store.Has)
	}
	var sources []optimizer.Source
	var missing []error
	for _, name := range names {
		c, ok := facts.Find(name)
		if !ok || !store.Has(c) {
			return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("There is no price list for %q; there are: %s, or all.", name, strings.Join(facts.Names(store.Has), ", "))}
		}
		table, err := store.Table(ctx, c.Name)
		if err != nil {
			missing = append(missing, err)
			if all {
				continue // a plan over what there is
			}
			return nil, &api.Error{Type: api.ErrRuntime, Message: "No price list could be had: " + catalog.Missing(err), Err: err, Hint: noPrices}
		}
		sources = append(sources, optimizer.CatalogSource(table, c.Reasons()))
	}
	if len(sources) == 0 {
		return nil, &api.Error{
			Type:    api.ErrRuntime,
			Message: "No price list could be had: " + catalog.Missing(errors.Join(missing...)),
			Hint:    noPrices,
		}
	}
	return sources, nil
}

// planError gives a plan's failure the class that clients know and the details
// that programs want.
func planError(err error) error {
	var none *optimizer.NoFeasibleError
	if !errors.As(err, &none) {
		return &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	e := unavailable(err, nil)
	var reasons []map[string]any
	for _, x := range none.Clouds {
		r := map[string]any{"cloud": x.Cloud, "request": x.Request, "constraint": string(x.Constraint), "reason": x.Reason}
		if x.Nearest != nil {
			r["nearest"] = planOffer(optimizer.Candidate{Offer: *x.Nearest, NumNodes: max(none.Nodes, 1)})
			r["change"] = x.Change
		}
		reasons = append(reasons, r)
	}
	e.Details = map[string]any{"kind": api.KindNoFeasibleResources, "reasons": reasons, "similar": none.Similar}
	return e
}

// planOf is a plan as clients see it.
func planOf(p optimizer.Problem, plan *optimizer.Plan, withExplanation bool) *api.Plan {
	out := &api.Plan{TotalCost: plan.Cost, TotalTime: plan.Time}
	for i, t := range plan.Tasks {
		tp := api.TaskPlan{Task: t.Task.Name, NumNodes: max(t.Task.NumNodes, 1), Chosen: planOffer(t.Chosen)}
		for _, c := range t.Candidates {
			tp.Candidates = append(tp.Candidates, planOffer(c))
		}
		if withExplanation {
			tp.Explained = alternatives(p, plan, i)
		}
		out.Tasks = append(out.Tasks, tp)
	}
	return out
}

func planOffer(c optimizer.Candidate) api.PlanOffer {
	o := api.PlanOffer{
		Cloud: c.Offer.Cloud, Region: c.Offer.Region, InstanceType: c.Offer.InstanceType,
		Accelerators: c.Offer.Accelerators, UseSpot: c.Offer.Spot, CPUs: c.Offer.CPUs, MemoryGiB: c.Offer.MemoryGiB,
		HourlyPrice: c.Offer.HourlyPrice, TotalHourlyPrice: c.Offer.HourlyPrice * float64(c.NumNodes-c.Reserved()), Reserved: c.Reserved(), Unpriced: c.Unpriced,
	}
	if c.Offer.Zone != "" {
		o.Zone = &c.Offer.Zone
	}
	return o
}
