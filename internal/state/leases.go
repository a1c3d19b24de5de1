package state

import (
	"context"
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
