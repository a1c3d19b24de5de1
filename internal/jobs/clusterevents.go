package jobs

import (
	"cmp"
	"context"
	"slices"
)

// withClusterEvents mixes in what happened to the clusters of a job.
func (m *Manager) withClusterEvents(ctx context.Context, id, which, limit int, events []map[string]any) ([]map[string]any, error) {
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
			events = append(events, map[string]any{
				"spot_job_id": id, "task_id": a.Task, "new_status": nil, "code": "CLUSTER", "reason": a.ClusterName + ": " + e.Reason, "timestamp": seconds(e.At),
			})
		}
	}
	slices.SortStableFunc(events, func(a, b map[string]any) int {
		x, _ := a["timestamp"].(float64)
		y, _ := b["timestamp"].(float64)
		return cmp.Compare(y, x)
	})
	if limit > 0 && len(events) > limit {
		events = events[:limit]
	}
	return events, nil
}
