package state

import "testing"

func TestTenants(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for name, of := range map[string][2]string{"c1": {"lab", "u1"}, "c2": {"lab", "u1"}, "c3": {"", "u2"}} {
			c := fullCluster(name)
			c.Workspace, c.UserHash = of[0], of[1]
			ok(t, s.Clusters().Create(ctx, c))
		}
		for request, of := range map[string][2]string{"live": {"lab", "u0"}, "ended": {"gone", "u3"}} {
			j := newManaged(request, 1)
			j.Workspace, j.UserHash = of[0], of[1]
			if j = must(s.ManagedJobs().Submit(ctx, j))(t); request == "ended" {
				must(s.ManagedJobs().AskCancel(ctx, []int{j.ID}, 0))(t)
			}
		}
		same(t, "tenants", must(s.Tenants(ctx))(t), map[string][]string{"lab": {"u0", "u1"}, "": {"u2"}})
	})
}
