// Package provision gets machines: it tries offers one after the other until
// one can be had whole, and leaves nothing behind where it could not. A pure
// [Planner] decides what to try, from prices and from what past attempts teach
// ([History], [Chances]); the engine acts, noting each attempt before the first
// call to a cloud, so that a crash never leaves a machine that nobody knows of.
//
// What a crash left open is taken up by the next Provision of the same cluster,
// or given back by [Engine.Settle]; machines under our tags that belong to
// nothing on record are found by [Engine.Sweep].
package provision

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/registry"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
)

// Engine acts on what the planner decides.
type Engine struct {
	providers *cloud.Registry
	records   records
	log       *slog.Logger
	install   string
	sightings sightings
	room      notify.Broadcast // when machines were given back
}

// New returns an engine for one installation of sky; its id is a tag on all
// that is created.
func New(installation string, providers *cloud.Registry, store *state.Store, log *slog.Logger) *Engine {
	return &Engine{providers: providers, records: database{store}, log: log, install: installation}
}

// Options change how places are chosen and tried. The zero value works.
type Options struct {
	// Ranking orders offers of a tier.
	Ranking Ranking
	// HalfLife is how soon what an attempt has seen counts half; 0:
	// [DefaultHalfLife].
	HalfLife time.Duration
	// Forget passes nothing over because of earlier refusals.
	Forget bool
	// NoProbes asks no cloud whether there is room before an attempt.
	NoProbes bool
	// Hedge is how many attempts may be under way at once: the next one starts
	// when the others take longer than most have. 0 and 1: one at a time.
	Hedge int
	// HedgePrice bounds what an additional attempt may cost, as a multiple of
	// the cheapest under way; 0: 2.
	HedgePrice float64
}

// Request asks for the machines of a cluster whose record exists already. The
// caller holds the cluster's lock.
type Request struct {
	Cluster *state.Cluster
	Nodes   int
	// Tiers are offers in the order of preference: nothing of one is tried
	// before all of those above are ruled out. In a tier they come best first.
	// For a cluster that exists: its own offer alone, see [Exactly].
	Tiers [][]cloud.Offer
	// Keep says that what exists has been up before: a failure neither
	// terminates it nor looks elsewhere.
	Keep    bool
	Out     io.Writer // progress for the user, whole lines
	Options Options

	// Most is what a node of an offer may cost an hour, in dollars, should its price have risen
	// since the plan was made; 0: anything. nil: the MaxHourlyCost of the offer itself.
	Most func(cloud.Offer) float64
	// Extra is what a node of an offer costs an hour, in dollars, by the plan beside its
	// price; it counts where offers are put in order. nil: nothing.
	Extra func(cloud.Offer) float64
	// Agreed is what a person has agreed to pay for a node an hour: before an offer is tried
	// whose price rose above it, the search ends with a [*RoseError]. nil: nobody is asked.
	Agreed *float64

	// For the specification of the machines, beside what the record says of them.
	AuthorizedKey string
	EndGrace      time.Duration
	// Login is as in [cloud.LaunchSpec].
	Login *registry.Login
	// Settings are those of a place's cloud for this task; nil: there are none.
	Settings func(cloud.Place) map[string]any
	// Volumes are what the nodes mount, at a place and in a cluster of that id; nil:
	// nothing.
	Volumes func(cloud.Place, cloud.ClusterID) []cloud.VolumeMount
}

// Provision returns the offer that was had and its nodes, in rank order. The
// cluster's record says then where they are. It is safe to call again after a
// crash: what an earlier call was doing is taken up where it was, and machines
// that exist are adopted.
//
// An [*UnplacedError] means that nothing could be had and nothing is left, a [*RoseError]
// that somebody has to be asked first; a [*LeftoverError] that something may be left. When ctx ends because the server
// hands over, everything stays as it is; otherwise it is undone.
func (e *Engine) Provision(ctx context.Context, r Request) (_ cloud.Offer, _ []cloud.Node, err error) {
	ctx, span := trace.Start(ctx, "get machines")
	span.Set("sky.nodes", r.Nodes)
	defer func() { span.End(err) }()
	return e.newSearch(ctx, r).do(ctx)
}

// ClusterID is how providers know the cluster.
func (e *Engine) ClusterID(c *state.Cluster) cloud.ClusterID {
	return cloud.ClusterID{Installation: e.install, Name: c.NameOnCloud, Hash: c.Hash}
}

// Listed is every machine of the installation on a cloud, in one question.
func (e *Engine) Listed(ctx context.Context, p cloud.Provider) ([]cloud.Node, error) {
	return p.Nodes(ctx, cloud.ClusterID{Installation: e.install})
}

// Noticed are the machines of the installation that a cloud says it will take back.
func (e *Engine) Noticed(ctx context.Context, p cloud.SpotNotices) ([]cloud.SpotNotice, error) {
	return p.SpotNotices(ctx, cloud.ClusterID{Installation: e.install})
}

// What is remembered of past attempts.
const (
	rememberFor  = 7 * 24 * time.Hour
	rememberMost = 2000
)

// history reads what past attempts teach. Not knowing is no reason to fail.
func (e *Engine) history(ctx context.Context) *History {
	now := e.records.Now()
	attempts, err := e.records.Since(ctx, now.Add(-rememberFor), rememberMost)
	if err != nil {
		e.log.WarnContext(ctx, "past attempts could not be read", "err", err)
	}
	return NewHistory(attempts, now)
}

// stamp tells apart the credentials that a cloud is used with.
func (e *Engine) stamp(name string) string {
	p, ok := e.providers.Get(name)
	if !ok {
		return ""
	}
	s, ok := cloud.As[cloud.CredentialStamper](p)
	if !ok {
		return ""
	}
	return s.CredentialStamp()
}
