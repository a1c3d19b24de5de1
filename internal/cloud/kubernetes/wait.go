package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skypilot-go/sky/internal/cloud"
)

// wait follows the pods until all run, one cannot, or one has waited long enough:
// for a node, and from then on for what it needs there.
func (l *launch) wait(ctx context.Context, version string) error {
	patience := l.conf.patience(l.spec.Nodes, l.slowVolumes)
	begun := time.Now()
	placed := begun         // when the last of those that are there was given a node
	var admitted time.Time  // when it was admitted by its queue, if there is one
	var grown time.Duration // how long pods may wait at least, as an autoscaler adds machines
	if l.conf.Kueue.Queue != "" {
		admitted = begun
	}
	stuck := stuck{launch: l}
	hold := holding{gangTimes: l.times}
	f := l.follow(nodesOf(l.spec.ID), version)
	defer func() { f.stop() }()
	for {
		now := time.Now()
		c, err := l.count(f.have, now)
		switch {
		case err != nil:
			return err
		case f.synced && c.running >= l.spec.Nodes && c.running == len(f.have):
			return nil
		case f.synced && len(f.have) < l.spec.Nodes && f.shrank:
			return &cloud.CapacityError{Place: l.place(), Err: fmt.Errorf("%d of %d pods were deleted before all of them ran", l.spec.Nodes-len(f.have), l.spec.Nodes)}
		}
		switch {
		case c.queued > 0:
			admitted, placed = now, now
		case c.unscheduled > 0:
			placed = now
		case !f.synced:
			c.waits = "the API server to list the pods"
		case c.slow != nil:
			c.waits += stuck.why(ctx, c.slow, now)
			c.restless = true
		default:
			c.waits = "all pods to be listed"
		}
		from, limit := c.window(begun, admitted, placed, patience, grown)
		if !limit.IsZero() && !now.Before(limit) {
			if c.queued > 0 {
				why := &cloud.CapacityError{Place: l.place(), Err: fmt.Errorf("%d of %d pods were not admitted within %v (kubernetes.kueue.admission_timeout): waited for %s",
					c.queued, l.spec.Nodes, now.Sub(from).Round(time.Second), c.waits)}
				return errors.Join(why, l.withdraw(ctx, f.have))
			}
			if c.unscheduled == 0 {
				return &cloud.UnreachableError{Err: &cloud.OverdueError{Err: fmt.Errorf("waited %v for %s", startPatience, c.waits)}}
			}
			if more := l.conf.growing(); more > 0 && grown == 0 && l.grows(ctx, f.have) {
				grown = more
				continue
			}
			why := l.full(ctx, c.unscheduled, c.waits, now.Sub(from))
			return errors.Join(why, l.withdraw(ctx, f.have))
		}
		if held := len(f.have) - c.unscheduled; l.conf.Kueue.Queue == "" && f.synced && held > 0 && c.unscheduled > 0 {
			c.restless = true
			if hold.due(held, c.unscheduled, now) {
				if to := l.rival(ctx, f.have); to != nil {
					if err := l.yield(ctx, f.have, to, &hold, limit); err != nil {
						return err
					}
					f.stop()
					f = l.follow(nodesOf(l.spec.ID), "")
					continue
				}
			}
		}
		if grown > 0 && c.unscheduled > 0 {
			c.waits += ", for which the autoscaler adds machines"
		}
		cloud.ReportWait(ctx, c.waits)
		if err := f.next(ctx, limit, c.restless); err != nil {
			return fmt.Errorf("while waiting for %s: %w", c.waits, err)
		}
	}
}

// leastPatience is what a call waits for pods that have waited long enough, as
// under an earlier call that a crash cut off: the API server, and with it the
// scheduler, may have been away.
const leastPatience = 10 * time.Second

// earlier is when a wait that now begins has really begun: at, if that is known
// and clearly before. Clocks differ by a little.
func earlier(now, at time.Time) time.Time {
	if at.IsZero() || now.Sub(at) < leastPatience {
		return now
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// window is since when the pods have waited for what they wait for now, and until
// when they may; zero: for ever. begun is when this call began to wait, admitted
// when it last saw a pod that its queue had not admitted (zero: there is no
// queue), placed when it last saw one without a node. It is pure.
func (c *census) window(begun, admitted, placed time.Time, may patience, grown time.Duration) (from, limit time.Time) {
	if c.queued+c.unscheduled == 0 {
		from = earlier(placed, c.placed)
		return from, later(from.Add(startPatience), begun.Add(leastPatience))
	}
	from = earlier(begun, c.made)
	least, most := may.queue, may.queue
	if c.queued == 0 {
		least, most = may.nodes, max(may.nodes, grown)
		from = later(from, admitted) // nothing else says when pods were admitted
	}
	if least == 0 {
		return from, time.Time{}
	}
	return from, later(from.Add(most), begun.Add(min(least, leastPatience)))
}

// census is how far the pods of a launch have come.
type census struct {
	queued, unscheduled, running int
	waits                        string // for what, of the pod that is furthest behind
	slow                         *pod   // that pod
	restless                     bool   // time alone may change what is to be done
	// When the youngest pod without a node was made, and when the last of those that
	// do not run yet got theirs, by our clock; zero: there is none.
	made, placed time.Time
}

// count judges the pods; an error is that one of them cannot come right.
func (l *launch) count(have map[string]*pod, now time.Time) (census, error) {
	var c census
	for _, p := range slices.SortedFunc(maps.Values(have), func(a, b *pod) int { return cmp.Compare(a.rank(), b.rank()) }) {
		in := troubled(p)
		c.restless = c.restless || in
		j := judge(p, l.place(), now.Sub(l.trouble.since(p.Metadata.UID, in, now)))
		if j.err != nil {
			return c, j.err
		}
		first := false
		switch j.stage {
		case queued:
			c.queued++
			first = c.queued == 1
			c.made = later(c.made, l.clock.ours(p.Metadata.CreationTimestamp.Time))
		case unscheduled:
			c.unscheduled++
			first = c.queued == 0 && c.unscheduled == 1
			c.made = later(c.made, l.clock.ours(p.Metadata.CreationTimestamp.Time))
		case running:
			c.running++
		case starting:
			first = c.slow == nil
			if at := p.Status.Conditions.of("PodScheduled").Since; !at.IsZero() {
				c.placed = later(c.placed, l.clock.ours(at.Time))
			}
		}
		if first {
			c.waits, c.slow = j.doing, p
		}
	}
	return c, nil
}

// LaunchLimit is what pods may wait for a node, and for what they need on it.
func (p *Provider) LaunchLimit(spec cloud.LaunchSpec) time.Duration {
	w, _, err := p.valid(spec)
	if err != nil {
		return 0
	}
	// Whether its volumes are slow shows later.
	may := w.conf.patience(spec.Nodes, len(spec.Volumes) > 0)
	limit := max(may.nodes, w.conf.growing()) + startPatience + aroundWait
	if may.nodes == 0 {
		return cloud.Forever
	}
	if w.conf.Kueue.Queue != "" {
		if may.queue == 0 {
			return cloud.Forever
		}
		limit += may.queue
	}
	return limit
}

// aroundWait is for what a launch does before its pods are waited for, such as
// seeing earlier ones off, and after.
const aroundWait = 10 * time.Minute

// full is why no node was found in time, with what is free and what is nearest.
func (l *launch) full(ctx context.Context, pods int, scheduler string, waited time.Duration) error {
	sctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	why := l.volumeTroubles(sctx)
	if inv, err := l.target.survey(sctx, true); err == nil {
		why += inv.full(l.pod.size, l.choice(), l.spec.Nodes) + "; "
	}
	return &cloud.CapacityError{Place: l.place(), Err: fmt.Errorf("%s%d of %d pods got no node within %v (kubernetes.provision_timeout): waited for %s",
		why, pods, l.spec.Nodes, waited.Round(time.Second), scheduler)}
}

// withdraw removes the pods that got no node: they are not to get one when
// nobody waits for it any more.
func (l *launch) withdraw(ctx context.Context, have map[string]*pod) error {
	var idle []pod
	for _, p := range have {
		if judge(p, l.place(), 0).stage <= unscheduled {
			idle = append(idle, *p)
		}
	}
	return l.remove(ctx, nodesOf(l.spec.ID), idle)
}

// grows reports whether a cluster autoscaler has said that it adds nodes for one
// of the pods.
func (l *launch) grows(ctx context.Context, have map[string]*pod) bool {
	for _, reason := range l.conf.growth() {
		events, _, err := list[event](ctx, l.client, eventsResource, l.namespace, metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,reason=" + reason})
		if err != nil {
			continue
		}
		for _, p := range have {
			if slices.ContainsFunc(events, func(e event) bool { return e.Reason == reason && e.about(p) }) {
				return true
			}
		}
	}
	return false
}

// about reports whether it was said about the pod, and not about an earlier one of
// its name.
func (e *event) about(p *pod) bool {
	return e.About.Name == p.Metadata.Name && (e.About.UID == "" || e.About.UID == p.Metadata.UID)
}
