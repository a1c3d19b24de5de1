package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skypilot-go/sky/internal/cloud"
)

// gangTimes are how long gangs wait for each other; tests shorten them.
type gangTimes struct {
	// patience is how long a gang holds a part of its nodes, without getting another
	// one, before it looks for gangs that do the same.
	patience time.Duration
	// look is the time between two looks at the others.
	look time.Duration
	// retake is how long a gang that has given its nodes back waits at most for the
	// one before it, the first time; it doubles up to retakeMax. It bounds what a
	// wrong guess about competition costs.
	retake, retakeMax time.Duration
	jitter            time.Duration // spreads gangs that wait for the same one
}

var defaultGangTimes = gangTimes{patience: 20 * time.Second, look: 5 * time.Second, retake: 5 * time.Minute, retakeMax: time.Hour, jitter: 3 * time.Second}

// holding is how long one launch has held a part of its nodes.
type holding struct {
	gangTimes
	held   int
	since  time.Time // when held last changed
	looked time.Time
	yields int // how often the launch gave its nodes back
}

// due reports whether it is time to look for other gangs.
func (h *holding) due(held, missing int, now time.Time) bool {
	if held == 0 || missing == 0 || held != h.held {
		h.held, h.since = held, now
		return false
	}
	if now.Sub(h.since) < h.patience || now.Sub(h.looked) < h.look {
		return false
	}
	h.looked = now
	return true
}

// patienceBehind is how long the next wait behind another gang may take.
func (h *holding) patienceBehind() time.Duration {
	return min(h.retake<<min(h.yields, 10), h.retakeMax)
}

// gangs lists the gangs that can be seen: in all namespaces if that is allowed.
func (w *target) gangs(ctx context.Context) ([]gang, error) {
	by := metav1.ListOptions{LabelSelector: cloud.TagInstallation + "," + cloud.TagRank, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	pods, _, err := list[pod](ctx, w.client, podsResource, "", by)
	if apierrors.IsForbidden(err) {
		pods, _, err = list[pod](ctx, w.client, podsResource, w.namespace, by)
	}
	return gangsOf(pods), err
}

// rival is the gang that this one has to give its nodes to; nil: none, or none
// that can be seen.
func (l *launch) rival(ctx context.Context, have map[string]*pod) *gang {
	mine := l.gang(have)
	if mine == nil || !mine.half() {
		return nil
	}
	others, err := l.gangs(ctx)
	if err != nil {
		return nil // it is looked again
	}
	return yieldTo(mine, others)
}

// gang is this launch's own.
func (l *launch) gang(have map[string]*pod) *gang {
	var pods []pod
	for _, p := range have {
		pods = append(pods, *p)
	}
	if all := gangsOf(pods); len(all) == 1 {
		return &all[0]
	}
	return nil
}

// yield gives all pods back, waits until the other gang has all its nodes or is
// gone, and makes the pods anew. Cut off anywhere, the next launch makes what is
// missing and comes here again if it has to. limit, if not zero, is when the
// launch has waited long enough.
func (l *launch) yield(ctx context.Context, have map[string]*pod, to *gang, h *holding, limit time.Time) error {
	mine := l.gang(have)
	if mine == nil {
		return nil
	}
	l.pod.waiting = mine.since
	doing := fmt.Sprintf("its turn: yielded to cluster %s, which has waited longer (each held a part of the nodes that both need)", to.name)
	cloud.ReportWait(ctx, doing)
	pods := make([]pod, 0, len(have))
	for _, p := range slices.Collect(maps.Values(have)) {
		pods = append(pods, *p)
	}
	if err := l.remove(ctx, nodesOf(l.spec.ID), pods); err != nil {
		return err
	}
	behind := time.Now().Add(h.patienceBehind())
	h.yields++
	for time.Now().Before(behind) && (limit.IsZero() || time.Now().Before(limit)) {
		cloud.ReportWait(ctx, doing)
		others, err := l.gangs(ctx)
		if err == nil && !slices.ContainsFunc(others, func(g gang) bool { return g.key == to.key && g.missing > 0 }) {
			break
		}
		if err := pause(ctx, h.look); err != nil {
			return fmt.Errorf("while waiting for %s: %w", doing, err)
		}
	}
	if err := pause(ctx, time.Duration(rand.Float64()*float64(h.jitter))); err != nil {
		return err
	}
	ranks := make([]int, l.spec.Nodes)
	for i := range ranks {
		ranks[i] = i
	}
	return l.create(ctx, ranks)
}
