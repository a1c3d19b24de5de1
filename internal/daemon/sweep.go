package daemon

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/installation"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
)

// registerProvision makes the questions about machines and places known to the
// engine.
func (d *daemon) registerProvision() {
	d.engine.Handle("sky.sweep", api.ScheduleLong, verb(d.sweepAsked))
	d.engine.HandleRead("sky.availability", verb(d.availability))
}

// sweepAgain is when the second sweep after a start comes.
const sweepAgain = 20 * time.Second

// grace is for how long a stray must have been there before it counts.
func grace(c *config.Config) time.Duration {
	return time.Duration(c.Float("provision", "sweep", "grace_minutes") * float64(time.Minute))
}

// onThisMachine selects what nobody but this server can have left.
func onThisMachine(s provision.Stray) bool { return s.Cloud == "local" }

// sweep settles attempts that ended nowhere and clusters that nobody launches any
// more, gives back what nodes of this machine nobody owns and what launches gave
// up, and reports other strays, or ends them too if the configuration says so.
func (d *daemon) sweep(ctx context.Context) {
	soon := time.After(sweepAgain)
	for ctx.Err() == nil {
		// What this machine lists is there and nothing else is: no grace.
		if !d.straysHeld(ctx) {
			if _, err := d.provision.Sweep(ctx, provision.SweepOptions{Clouds: []string{"local"}, Grace: -1, End: onThisMachine}); err != nil && ctx.Err() == nil {
				d.log.WarnContext(ctx, "sweep failed", "err", err)
			}
		}
		d.oncePer(ctx, sweepAgain, "sweep", d.sweepOnce)
		// Soon again at first: what a killed server was sweeping is locked for a
		// moment.
		again := time.NewTimer(time.Duration(d.settings.current().Float("provision", "sweep", "interval_minutes") * float64(time.Minute)))
		select {
		case <-ctx.Done():
		case <-soon:
		case <-again.C:
		}
		again.Stop()
		d.oncePer(ctx, sweepAgain, "settle", func(ctx context.Context) {
			if err := d.provision.Settle(ctx); err != nil && ctx.Err() == nil {
				d.log.WarnContext(ctx, "not every interrupted attempt could be settled", "err", err)
			}
			d.releaseOrphans(ctx)
		})
	}
}

// sweepOnce looks for strays on every cloud.
func (d *daemon) sweepOnce(ctx context.Context) {
	c := d.settings.current()
	all := c.Bool("provision", "sweep", "terminate")
	held := d.straysHeld(ctx)
	end := func(s provision.Stray) bool {
		return !held && (all || onThisMachine(s)) || d.provision.GivenUp(ctx, s)
	}
	report, err := d.provision.Sweep(ctx, provision.SweepOptions{Grace: grace(c), End: end})
	if err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "sweep failed", "err", err)
	}
	d.swept(ctx, report)
}

// releaseOrphans gives back clusters that never were up and that no request brings
// up any more: their launch was cancelled while no server ran, or could not give
// back what it had.
func (d *daemon) releaseOrphans(ctx context.Context) {
	clusters, err := d.store.Clusters().List(ctx, state.ClusterFilter{Statuses: []api.ClusterStatus{api.ClusterInit}})
	if err != nil {
		if ctx.Err() == nil {
			d.log.WarnContext(ctx, "clusters not listed", "err", err)
		}
		return
	}
	for _, c := range clusters {
		if c.EverUp || c.Held() || ctx.Err() != nil {
			continue
		}
		wanted := func(ctx context.Context) (bool, error) { return d.launching(ctx, c.Name) }
		if err := d.clusters.ReleaseOrphan(ctx, c.Name, c.Hash, wanted); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "a cluster whose launch has ended could not be given back", "cluster", c.Name, "err", err)
		}
	}
}

// swept tells operators of what a sweep found.
func (d *daemon) swept(ctx context.Context, report provision.SweepReport) {
	for name, why := range report.Unlisted {
		d.log.WarnContext(ctx, "a provider could not be swept", "cloud", name, "err", why)
	}
	left, ended := map[string]int{}, 0
	for _, p := range d.providers.All() {
		if _, failed := report.Unlisted[p.Name()]; !failed {
			left[p.Name()] = 0
		}
	}
	for _, s := range report.Strays {
		switch {
		case s.Ended:
			ended += len(s.Nodes)
			d.log.InfoContext(ctx, "stray machines ended", "cloud", s.Cloud, "cluster", s.Cluster, "machines", len(s.Nodes))
			continue
		case s.Error != "":
			d.log.WarnContext(ctx, "stray machines not removed", "cloud", s.Cloud, "cluster", s.Cluster, "err", s.Error)
		default:
			d.log.ErrorContext(ctx, "machines run that belong to no cluster; list and end them with: sky sweep", "cloud", s.Cloud, "cluster", s.Cluster, "machines", len(s.Nodes))
		}
		left[s.Cloud] += len(s.Nodes)
	}
	for _, i := range report.Images {
		if i.Error != "" {
			d.log.WarnContext(ctx, "an image of a disk from which no cluster starts was not removed", "cloud", i.Place.Cloud, "image", i.ID, "err", i.Error)
			continue
		}
		d.log.InfoContext(ctx, "an image of a disk from which no cluster starts was removed", "cloud", i.Place.Cloud, "image", i.ID)
	}
	d.metrics.Swept(time.Now(), left, ended)
}

// sweepAsked answers sky sweep.
func (d *daemon) sweepAsked(ctx context.Context, call cluster.Call, b api.SweepBody) (any, error) {
	for _, name := range b.Clouds {
		if _, ok := d.providers.Get(name); !ok {
			return nil, unknownCloud(name, d.providers)
		}
	}
	o := provision.SweepOptions{Clouds: b.Clouds, Grace: grace(d.settings.current())}
	if b.GraceMinutes != nil {
		if o.Grace = time.Duration(*b.GraceMinutes * float64(time.Minute)); o.Grace <= 0 {
			o.Grace = -1 // none
		}
	}
	if b.Adopt && b.Terminate {
		return nil, &api.Error{Type: api.ErrValue, Message: "Strays are either taken back or ended: choose one of adopt and terminate."}
	}
	if b.Adopt && b.GraceMinutes == nil {
		o.Grace = -1 // what is taken back does no harm if it is young
	}
	if b.Terminate {
		o.End = func(s provision.Stray) bool { return b.Strays == nil || slices.Contains(b.Strays, strayID(&s)) }
	}
	call.Out.Spin("Looking for machines that belong to no cluster")
	report, err := d.provision.Sweep(ctx, o)
	if err != nil {
		return nil, err
	}
	d.swept(ctx, report)
	out := sweepReport(report)
	if b.Adopt {
		for i, s := range report.Strays {
			if b.Strays != nil && !slices.Contains(b.Strays, strayID(&s.Stray)) {
				continue
			}
			name, err := d.adopt(ctx, call, s.Stray)
			if err != nil {
				out.Strays[i].Error = err.Error()
				continue
			}
			out.Strays[i].Adopted = name
		}
	}
	if (b.Adopt || b.Terminate) && !report.Elsewhere { // somebody has looked
		if err := d.store.Settings().Delete(ctx, installation.StraysHeld); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func strayID(s *provision.Stray) string { return s.Cloud + "/" + s.Cluster + "/" + s.Hash }

func sweepReport(r provision.SweepReport) api.SweepReport {
	out := api.SweepReport{Strays: []api.Stray{}, Unlisted: r.Unlisted, Elsewhere: r.Elsewhere}
	if out.Unlisted == nil {
		out.Unlisted = map[string]string{}
	}
	for _, s := range r.Strays {
		stray := api.Stray{
			ID: strayID(&s.Stray), Cloud: s.Cloud, Cluster: s.Cluster, ClusterHash: s.Hash, Since: s.Since.Unix(),
			Ended: s.Ended, Error: s.Error,
		}
		for _, n := range s.Nodes {
			m := api.StrayMachine{ID: n.ID, State: string(n.State), Region: n.Place.Region, Zone: n.Place.Zone, Account: n.Account, IP: n.ExternalIP}
			if m.IP == "" {
				m.IP = n.InternalIP
			}
			stray.Machines = append(stray.Machines, m)
		}
		out.Strays = append(out.Strays, stray)
	}
	return out
}

// availability answers sky gpus list --availability.
func (d *daemon) availability(ctx context.Context, call cluster.Call, b api.AvailabilityBody) (any, error) {
	if err := d.configure(&call, b.Envelope); err != nil {
		return nil, err
	}
	if b.Cloud != "" {
		if _, ok := d.providers.Get(b.Cloud); !ok {
			return nil, unknownCloud(b.Cloud, d.providers)
		}
	}
	f := provision.AvailabilityFilter{Cloud: b.Cloud, Region: b.Region, InstanceType: b.InstanceType, Accelerator: b.Accelerator}
	if b.Quantity != nil {
		f.Quantity = *b.Quantity
	}
	list := d.provision.Availability(ctx, f, execution.HalfLife(call.Config))
	if b.Ask {
		d.provision.AskNow(ctx, list)
	}
	out := make([]api.Availability, len(list))
	for i, a := range list {
		out[i] = api.Availability{
			Cloud: a.Cloud, Region: a.Region, Zone: a.Zone, InstanceType: a.InstanceType, Accelerators: a.Accelerators, UseSpot: a.Spot,
			Chance: a.Chance, Tries: a.Tries, Had: a.Had, Median: a.Median,
			LastTry: a.LastTry.Unix(), LastOutcome: a.LastOutcome, LastMessage: a.LastMessage, PassedOver: a.PassedOver,
			Now: string(a.Now.Verdict), NowReason: a.Now.Reason, Stock: string(a.Now.Stock),
		}
		if !a.Now.At.IsZero() {
			out[i].NowAt = a.Now.At.Unix()
		}
		if out[i].Accelerators == nil {
			out[i].Accelerators = map[string]float64{}
		}
		if !a.PassedOverTo.IsZero() {
			out[i].PassedOverUntil = a.PassedOverTo.Unix()
		}
	}
	return out, nil
}

func unknownCloud(name string, r *cloud.Registry) error {
	var names []string
	for _, p := range r.All() {
		names = append(names, p.Name())
	}
	return &api.Error{Type: api.ErrValue, Message: "There is no cloud \"" + name + "\" here; there are: " + strings.Join(names, ", ") + "."}
}
