package execution

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/task"
)

// usesBuckets reports whether a task has to do with buckets.
func usesBuckets(t *task.Task) bool {
	for _, src := range t.FileMounts {
		if isURL(src) {
			return true
		}
	}
	return len(t.StorageMounts) > 0
}

// bucketCall is a call with the configuration that holds for a task.
func (x *Executor) bucketCall(call cluster.Call, t *task.Task) (cluster.Call, error) {
	c, err := settings(call, t)
	call.Config = c
	return call, err
}

// checkBuckets refuses tasks whose buckets cannot be had; with say it prints what is done
// with them. A plan over clouds that are only assumed to be enabled asks for none.
func (x *Executor) checkBuckets(ctx context.Context, call cluster.Call, t *task.Task, o api.PlanOptions, say bool) error {
	if !usesBuckets(t) || len(o.AssumeEnabled) > 0 {
		return nil
	}
	call, err := x.bucketCall(call, t)
	if err != nil {
		return err
	}
	return trace.Do(ctx, "look at buckets", func(ctx context.Context) error { return x.Buckets.Check(ctx, call, t, say) })
}

// sayBuckets prints what the place of an offer means for the task's buckets: how nodes mount
// them, where there are several ways, and which are far away.
func (l *launch) sayBuckets(ctx context.Context, offer cloud.Offer) error {
	if !usesBuckets(l.task) || len(l.body.AssumeEnabled) > 0 {
		return nil
	}
	call, err := l.x.bucketCall(l.call, l.task)
	if err != nil {
		return err
	}
	lines, err := l.x.Buckets.Far(ctx, call, l.task, offer.Cloud, offer.Region)
	if err != nil {
		return err
	}
	p, ok := l.x.Providers.Get(offer.Cloud)
	how, several := cloud.As[cloud.MountExplainer](p)
	if ok && several && slices.ContainsFunc(slices.Collect(maps.Values(l.task.StorageMounts)), func(s task.StorageMount) bool { return s.Mode != "COPY" }) {
		if way := how.MountsBy(call.Config.Sections(config.Scope{Cloud: p.Name()})(offer.Region)); way != "" {
			lines = append(lines, fmt.Sprintf("On %s %s.", p.DisplayName(), way))
		}
	}
	if len(lines) > 0 {
		l.call.Out.StopSpin()
	}
	for _, line := range lines {
		fmt.Fprintln(l.call.Out, line)
	}
	return nil
}

// placeable refuses a task that runs nowhere before buckets are made and filled for it.
func (l *launch) placeable(ctx context.Context) error {
	_, err := l.x.Store.Clusters().Get(ctx, l.name)
	if !errors.Is(err, state.ErrNotFound) {
		return err
	}
	l.call.Out.Spin("Optimizing")
	_, plan, err := l.best(ctx)
	if err != nil {
		return err
	}
	return mountable(ranked(plan)[0][0].Cloud, l.task)
}

// prepareBuckets makes and fills the buckets that the task names.
func (l *launch) prepareBuckets(ctx context.Context) error {
	if len(l.task.StorageMounts) == 0 {
		return nil
	}
	call, err := l.x.bucketCall(l.call, l.task)
	if err != nil {
		return err
	}
	if err := l.placeable(ctx); err != nil {
		return err
	}
	by := []state.Holder{{Kind: state.HeldByRequest, ID: l.call.RequestID}}
	if l.held != nil {
		by = append(by, l.held.Holder)
	}
	return trace.Do(ctx, "fill buckets", func(ctx context.Context) error { return l.x.Buckets.Prepare(ctx, call, l.task, by...) })
}

// holdBuckets notes that the cluster needs them from now on.
func (l *launch) holdBuckets(ctx context.Context, c *state.Cluster) error {
	if len(l.task.StorageMounts) == 0 {
		return nil
	}
	return l.x.Buckets.Hold(ctx, l.task, state.Holder{Kind: state.HeldByCluster, ID: c.Hash})
}
