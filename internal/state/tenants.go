package state

import "context"

// Tenants is who has clusters or managed jobs under way, by workspace, as user
// ids.
func (s *Store) Tenants(ctx context.Context) (map[string][]string, error) {
	type tenant struct{ workspace, user string }
	r := s.read(ctx)
	list, err := all(r, func(t *tenant) []any { return []any{text(&t.workspace), text(&t.user)} },
		`SELECT workspace, user_hash FROM clusters
		UNION SELECT workspace, user_hash FROM managed_jobs WHERE schedule <> 'DONE'
		ORDER BY workspace, user_hash`)
	tenants := map[string][]string{}
	for _, t := range list {
		tenants[t.workspace] = append(tenants[t.workspace], t.user)
	}
	return tenants, s.explain(err)
}
