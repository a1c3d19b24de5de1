package state

import "context"

// Gated is the same open database with each change made through gate, which may
// refuse it, or keep its answer to itself: then the change is on disk. Tests end
// simulated servers there. Only the store that was opened is closed.
func (s *Store) Gated(gate func(change func() error) error) *Store {
	db := *s.db
	write := db.write
	db.write = func(ctx context.Context, f func(*session) error) error {
		return gate(func() error { return write(ctx, f) })
	}
	g := *s
	g.db = &db
	return &g
}

// AsShared is the same open database as servers see it that share it with others,
// see [Store.Shared]. Tests ask there what such a server does that does not reach it.
func (s *Store) AsShared() *Store {
	g := *s
	g.shared = true
	return &g
}
