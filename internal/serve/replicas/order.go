package replicas

import (
	"cmp"
	"slices"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

// removalOrder is which replicas go first: those that are the furthest from
// being ready.
var removalOrder = []api.ReplicaStatus{api.ReplicaPending, api.ReplicaProvisioning, api.ReplicaStarting, api.ReplicaNotReady, api.ReplicaReady}

// spare lists n of the replicas that are needed least, by index. A worker with
// jobs is never among them.
func spare(sp *spec.Spec, rows []Replica, of []int, n int) []int {
	of = slices.Clone(of)
	if sp.Kind == spec.Pool {
		of = slices.DeleteFunc(of, func(i int) bool { return rows[i].InFlight > 0 })
	}
	slices.SortFunc(of, func(i, j int) int {
		a, b := &rows[i], &rows[j]
		byRate := 0
		if len(sp.Scale.QPSByAccelerator) > 0 {
			byRate = cmp.Compare(rateOf(&sp.Scale, a), rateOf(&sp.Scale, b))
		}
		byJobs := 0
		if sp.Kind == spec.Pool {
			byJobs = cmp.Compare(a.InFlight, b.InFlight)
		}
		return cmp.Or(
			cmp.Compare(slices.Index(removalOrder, a.Status), slices.Index(removalOrder, b.Status)),
			byRate,
			cmp.Compare(a.Version, b.Version),
			byJobs,
			cmp.Compare(b.ID, a.ID),
		)
	})
	return of[:min(max(n, 0), len(of))]
}
