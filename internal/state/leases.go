package state

import (
	"context"
	"slices"
	"time"
)

// Leases is the store of who owns what for how long.
type Leases struct{ s *Store }

// Lease is the right to act on something until it expires. The epoch grows
// with each change of owner: whoever shows an older one has lost the lease.
type Lease struct {
	Name, Owner string
	Epoch       int64
	Expires     time.Time // by the database's clock, see [Store.Now]
}

func leaseFields(l *Lease) []any {
	return []any{text(&l.Name), text(&l.Owner), number(&l.Epoch), instant(&l.Expires)}
}

// Acquire takes the lease if nobody holds it, if it expired, or if owner holds
// it already, which then holds it for ttl from now. If somebody else holds it
// the result is their lease and false.
func (t *Leases) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Lease, bool, error) {
	now := t.s.Now()
	var l Lease
	var got bool
	err := t.s.writeAgain(ctx, func(s *session) error {
		rows, err := all(s, leaseFields, `INSERT INTO leases (name, owner, epoch, expires) VALUES (?, ?, 1, ?)
			ON CONFLICT (name) DO UPDATE SET
				epoch = CASE WHEN leases.owner = excluded.owner THEN leases.epoch ELSE leases.epoch + 1 END,
				owner = excluded.owner, expires = excluded.expires
			WHERE leases.owner = excluded.owner OR leases.expires <= ?
			RETURNING name, owner, epoch, expires`, name, owner, nanos(now.Add(ttl)), nanos(now))
		if err != nil {
			return err
		}
		if got = len(rows) > 0; got {
			l = *rows[0]
			return nil
		}
		return s.one(leaseFields(&l), "SELECT name, owner, epoch, expires FROM leases WHERE name = ?", name)
	})
	return l, got && err == nil, err
}

// AcquireAll takes those of the leases that nobody holds, that expired, or that
// owner holds already, and returns them. One that somebody changes at this moment
// is passed over: nobody waits for anybody who holds many.
func (t *Leases) AcquireAll(ctx context.Context, names []string, owner string, ttl time.Duration) ([]Lease, error) {
	if len(names) == 0 {
		return nil, nil
	}
	now := t.s.Now()
	wanted, list := anys(names), " IN ("+marks(len(names))+")"
	var got []*Lease
	err := t.s.writeAgain(ctx, func(s *session) error {
		s = s.once()
		known, err := all(s, func(name *string) []any { return []any{name} }, "SELECT name FROM leases WHERE name"+list, wanted...)
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for _, name := range known {
			have[*name] = true
		}
		// Whoever adds several does so in the same order.
		for _, name := range slices.Sorted(slices.Values(names)) {
			if have[name] {
				continue
			}
			if _, err := s.exec("INSERT INTO leases (name, owner, epoch, expires) VALUES (?, '', 0, 0) ON CONFLICT DO NOTHING", name); err != nil {
				return err
			}
		}
		args := append([]any{owner, owner, nanos(now.Add(ttl))}, wanted...)
		args = append(args, owner, nanos(now), owner, nanos(now))
		got, err = all(s, leaseFields, `UPDATE leases SET epoch = CASE WHEN owner = ? THEN epoch ELSE epoch + 1 END, owner = ?, expires = ?
			WHERE name IN (SELECT name FROM leases WHERE name`+list+" AND (owner = ? OR expires <= ?) ORDER BY name"+s.d.free+`)
			AND (owner = ? OR expires <= ?) RETURNING name, owner, epoch, expires`, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return values(got), nil
}

// Renew holds the lease for ttl from now; [ErrConflict] if somebody else took it.
func (t *Leases) Renew(ctx context.Context, l Lease, ttl time.Duration) (Lease, error) {
	l.Expires = t.s.Now().Add(ttl)
	err := t.s.writeAgain(ctx, func(s *session) error {
		return changed(s.exec("UPDATE leases SET expires = ? WHERE name = ? AND owner = ? AND epoch = ?", nanos(l.Expires), l.Name, l.Owner, l.Epoch))
	})
	return l, err
}

// Release gives the lease up; one that was lost is given up already.
func (t *Leases) Release(ctx context.Context, l Lease) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("UPDATE leases SET owner = '', expires = 0 WHERE name = ? AND owner = ? AND epoch = ?", l.Name, l.Owner, l.Epoch)
		return err
	})
}

// Beat renews all leases of an owner whose names begin with prefix and tells
// which they are.
func (t *Leases) Beat(ctx context.Context, prefix, owner string, ttl time.Duration) (map[string]int64, error) {
	cond, args := t.s.db.d.prefixed("name", prefix)
	var held []*Lease
	err := t.s.writeAgain(ctx, func(s *session) (err error) {
		held, err = all(s, func(l *Lease) []any { return []any{text(&l.Name), number(&l.Epoch)} },
			"UPDATE leases SET expires = ? WHERE owner = ? AND "+cond+" RETURNING name, epoch", append([]any{nanos(t.s.Now().Add(ttl)), owner}, args...)...)
		return err
	})
	out := make(map[string]int64, len(held))
	for _, l := range held {
		out[l.Name] = l.Epoch
	}
	return out, err
}
