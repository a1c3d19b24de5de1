package state

import (
	"errors"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/skypilot-go/sky/internal/diskspace"
)

// Full reports whether err means that the database cannot grow because its disk
// is full. The change was not made.
func Full(err error) bool {
	return sqliteCode(err)&0xff == sqlite3.SQLITE_FULL || diskspace.Full(err)
}

// KeepReserve lets changes that find the disk full take room from r. A database
// elsewhere looks after itself.
func (s *Store) KeepReserve(r *diskspace.Reserve) {
	if s.db.reserve != nil {
		s.db.reserve(r)
	}
}

// keepReserve is KeepReserve of a SQLite file.
func (b *batcher) keepReserve(r *diskspace.Reserve) { b.reserve.Store(r) }

// insist makes a transaction, and again with room from the reserve if the disk
// is full.
func (b *batcher) insist(f func(*session) error) error {
	for {
		err := b.transaction(f)
		if err == nil || !Full(err) {
			return err
		}
		if r := b.reserve.Load(); r == nil || !r.Release() {
			return errors.Join(errDiskFull, err)
		}
	}
}

var errDiskFull = errors.New("disk full")
