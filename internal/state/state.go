// Package state keeps what sky must not forget: clusters, requests, users,
// events, leases. One SQLite file for one user, PostgreSQL for a team; the
// stores behave alike on both.
//
// Every store changes a row only if it is still what the caller believes it to
// be (a status, an epoch), and says so with [ErrConflict]. Reads never block
// writes.
package state

import "errors"

// ErrNotFound means there is no such row.
var ErrNotFound = errors.New("not found")

// ErrConflict means the row changed since the caller looked: look again.
var ErrConflict = errors.New("changed meanwhile")
