package jobs

import (
	"cmp"
	"context"
	"slices"

	"github.com/skypilot-go/sky/api"
)

// withClusterEvents mixes in what happened to the clusters of a job.
func (m *Manager) withClusterEvents(ctx context.Context, id, which, limit int, events []api.JobsEvent) ([]api.JobsEvent, error) {
	attempts, err := m.store.ManagedJobs().Attempts(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, a := range attempts {
		if a.ClusterHash == "" || which >= 0 && a.Task != which {
			continue
		}
		list, err := m.store.Clusters().Events(ctx, a.ClusterName, a.ClusterHash, nil, limit)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			events = append(events, api.JobsEvent{JobID: id, TaskID: &a.Task, Code: "CLUSTER", Reason: a.ClusterName + ": " + e.Reason, Timestamp: secondsOf(e.At)})
		}
	}
	at := func(e api.JobsEvent) float64 {
		if e.Timestamp == nil {
			return 0
		}
		return *e.Timestamp
	}
	slices.SortStableFunc(events, func(a, b api.JobsEvent) int { return cmp.Compare(at(b), at(a)) })
	if limit > 0 && len(events) > limit {
		events = events[:limit]
	}
	return events, nil
}
