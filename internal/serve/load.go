package serve

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/replicas"
)

// traffic is what balancers said of a service lately.
type traffic struct {
	inFlight map[int]int
	base     map[int]balancerapi.Counts // of versions, when the update began
	last     map[int]balancerapi.Counts
}

// begin makes counts of versions start now.
func (t *traffic) begin() { t.base = t.last }

// window is the time over which rates are measured.
const window = time.Minute

// load60 is what was observed of the service in the last minute.
func (c *controller) load60(now time.Time) replicas.Load {
	s := c.m.tally.Summary(c.name, now)
	t := &c.traffic
	t.inFlight = s.InFlight
	l := replicas.Load{Known: s.Balancers > 0, Waiting: s.Waiting, Versions: map[int]replicas.Traffic{}}
	l.QPS = float64(c.m.tally.Arrivals(c.name, now.Add(-window))) / window.Seconds()
	for _, n := range s.InFlight {
		l.InFlight += n
	}
	for number, counts := range s.Versions {
		l.Versions[number] = since(counts, t.base[number])
	}
	for _, r := range c.rows {
		h := r.watched()
		v := l.Versions[r.Version]
		v.Probes += h.Probes
		v.ProbeFailures += h.Failures
		l.Versions[r.Version] = v
	}
	t.last = s.Versions
	l.Latency = time.Duration(c.m.tally.FirstByte(c.name, now.Add(-window)).Quantile(0.95) * float64(time.Second))
	return l
}

// since is what happened to a version after base.
func since(counts, base balancerapi.Counts) replicas.Traffic {
	bad := func(c balancerapi.Counts) int64 { return c.Errors + c.Statuses["5xx"] }
	return replicas.Traffic{Requests: int(max(counts.Requests-base.Requests, 0)), Errors: int(max(bad(counts)-bad(base), 0))}
}

// offers are where replicas of the latest version can be launched, for a spot placer.
type offers struct {
	list    []replicas.Offer
	version int
	at      time.Time
}

// offersFor is how long a list of offers is good.
const offersFor = 10 * time.Minute

func (o *offers) get(ctx context.Context, c *controller, now time.Time) []replicas.Offer {
	v := c.latest()
	if v == nil || v.spec.Scale.Placer == "" || c.svc.DownAsked {
		return nil
	}
	if o.version == v.Number && now.Sub(o.at) < offersFor {
		return o.list
	}
	list, err := c.places(ctx, v)
	if err != nil {
		c.out.Printf("Where spot machines can be had is not known: %v", err)
		o.at, o.version = now.Add(failAgain-offersFor), v.Number // soon again
		return o.list
	}
	o.list, o.version, o.at = nil, v.Number, now
	for _, p := range list {
		o.list = append(o.list, replicas.Offer{Offer: p.Offer, Chance: p.Chance})
	}
	return o.list
}

func (c *controller) places(ctx context.Context, v *version) ([]execution.Place, error) {
	t, err := v.copy()
	if err != nil {
		return nil, err
	}
	r := &row{Replica: replicas.Replica{Spot: true}}
	t = replicaTask(&version{v.ServiceVersion, t, v.spec}, r)
	call := c.caller("service-"+c.hash+"-places", v.Entrypoint)
	call.Out = quiet{}
	if c.m.Admit != nil {
		sent, err := v.config()
		if err != nil {
			return nil, err
		}
		text, err := dagOf(t)
		if err != nil {
			return nil, err
		}
		if _, call.Config, err = c.m.Admit(ctx, call.User, text, sent, quiet{}); err != nil {
			return nil, err
		}
	}
	return c.m.Executor.Places(ctx, call, t)
}

// quiet is an output that nobody reads.
type quiet struct{}

func (quiet) Write(p []byte) (int, error) { return len(p), nil }
func (quiet) Spin(string)                 {}
func (quiet) StopSpin()                   {}
