package state

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/envelope"
)

// sealedTable is a table with encrypted columns.
type sealedTable struct {
	name, key string // key identifies a row, and its values are bound to it
	number    bool   // the key is a number
	columns   []string
	text      bool // the columns are text
	// ended is what a row must be for dropped to lose its secrets.
	ended   string
	dropped func(column string, plain []byte) []byte
	// secret picks the rows that are encrypted; nil: all.
	secret func(key string) bool
}

// sealedTables is every column that is encrypted.
var sealedTables = []sealedTable{
	{name: "requests", key: "id", columns: []string{"body", "return_value", "error", "state"},
		ended: "finished_at > 0", dropped: func(column string, plain []byte) []byte {
			if column == "body" {
				return retained(plain)
			}
			return plain
		}},
	{name: "managed_jobs", key: "id", number: true, columns: []string{"dag", "config"},
		ended: "schedule = 'DONE'", dropped: func(column string, plain []byte) []byte {
			if column == "dag" {
				return endedDag(plain)
			}
			return nil
		}},
	{name: "managed_schedules", key: "id", number: true, columns: []string{"job"}, text: true},
	{name: "service_versions", key: "id", columns: []string{"task", "config"}},
	{name: "clusters", key: "hash", columns: []string{"certs"}},
	{name: "logins", key: "challenge", columns: []string{"token"}, text: true},
	{name: "settings", key: "name", columns: []string{"value"}, secret: isSecretSetting},
}

// Bounds of one step of [Store.Reseal].
const (
	resealRows  = 100
	resealBytes = 4 << 20
)

// Resealed counts what a step of [Store.Reseal] did.
type Resealed struct {
	Changed int // values
	// Lost are values that no key opens: the key is not there, or they were
	// damaged.
	Lost []envelope.Place
	Err  error // of the last of them
}

// ResealMark is how far Reseal is; the zero value is the beginning.
type ResealMark struct {
	table int
	after string
	Done  bool
}

// Reseal encrypts the values of some rows with the current key, those in clear
// and those that another key encrypted, and drops secrets of what has ended and
// still has them in clear. It goes on from where at is and moves it; a crash
// between two steps costs nothing, and beginning again finds little to do.
func (s *Store) Reseal(ctx context.Context, at *ResealMark) (Resealed, error) {
	var done Resealed
	ring := s.ring.Load()
	if ring == nil {
		return done, ErrLocked
	}
	if at.table >= len(sealedTables) {
		at.Done = true
		return done, nil
	}
	t := &sealedTables[at.table]
	rows, err := s.sealedRows(ctx, t, at.after)
	if err != nil {
		return done, err
	}
	for _, r := range rows {
		if err := s.resealRow(ctx, t, r, ring, &done); err != nil {
			return done, err
		}
		at.after = r.key
	}
	if len(rows) == 0 {
		at.table, at.after = at.table+1, ""
	}
	return done, nil
}

// sealedRow is the stored values of a row.
type sealedRow struct {
	key    string
	ended  bool
	values [][]byte
}

func (t *sealedTable) cast() string {
	if t.number {
		return "CAST(" + t.key + " AS TEXT)"
	}
	return t.key
}

// sealedRows is some rows after one, in the order of their keys.
func (s *Store) sealedRows(ctx context.Context, t *sealedTable, after string) ([]*sealedRow, error) {
	ended := "FALSE"
	if t.ended != "" {
		ended = "(" + t.ended + ")"
	}
	bound, mark := any(after), "?"
	if t.number {
		mark = "CAST(? AS BIGINT)"
		if after == "" {
			bound = "0"
		}
	}
	fields := func(r *sealedRow) []any {
		r.values = make([][]byte, len(t.columns))
		out := []any{text(&r.key), truth(&r.ended)}
		for i := range r.values {
			out = append(out, binary(&r.values[i]))
		}
		return out
	}
	list, err := all(s.read(ctx).varying(), fields, "SELECT "+t.cast()+", "+ended+", "+strings.Join(t.columns, ", ")+" FROM "+t.name+
		" WHERE "+t.key+" > "+mark+" ORDER BY "+t.key+" LIMIT ?", bound, resealRows)
	if err != nil {
		return nil, s.explain(err)
	}
	size := 0
	for i, r := range list {
		for _, v := range r.values {
			size += len(v)
		}
		if size > resealBytes {
			return list[:i+1], nil
		}
	}
	return list, nil
}

func (s *Store) resealRow(ctx context.Context, t *sealedTable, r *sealedRow, ring *envelope.Ring, done *Resealed) error {
	if t.secret != nil && !t.secret(r.key) {
		return nil
	}
	for i, column := range t.columns {
		stored := r.values[i]
		if t.text {
			stored = envelope.FromText(string(stored))
		}
		at := envelope.Place{Table: t.name, Row: r.key, Column: column}
		plain := stored
		if r.ended && !envelope.Sealed(stored) && len(stored) > 0 {
			plain = t.dropped(column, stored)
		}
		fresh, differs, err := ring.Rewrap(plain, at)
		if err != nil {
			done.Lost, done.Err = append(done.Lost, at), err
			continue
		}
		if !differs && len(plain) == len(stored) {
			continue
		}
		err = s.replaceValue(ctx, t, r.key, column, r.values[i], fresh)
		if errors.Is(err, ErrConflict) { // somebody wrote it meanwhile, and encrypted it
			continue
		}
		if err != nil {
			return err
		}
		done.Changed++
	}
	return nil
}

// replaceValue writes a value if the one before is still there.
func (s *Store) replaceValue(ctx context.Context, t *sealedTable, key, column string, before, after []byte) error {
	was, is := any(before), any(after)
	if t.text {
		was, is = string(before), envelope.Text(after)
	} else if len(after) == 0 {
		is = nil
	}
	return s.writeAgain(ctx, func(w *session) error {
		return changed(w.exec(fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s = ? AND %s = ?", t.name, column, t.cast(), column), is, key, was))
	})
}

// GiveUp ends what cannot go on because its secrets cannot be read: values in the
// places are removed, requests that have not ended fail, managed jobs and
// schedules end, and clusters lose their certificates. why is what their owners
// are told.
func (s *Store) GiveUp(ctx context.Context, lost []envelope.Place, why string) error {
	for _, at := range lost {
		if err := s.writeAgain(ctx, func(w *session) error { return s.giveUp(w, at, why) }); err != nil {
			return err
		}
	}
	return nil
}

// ClearFree leaves nothing of values that were replaced or deleted in free parts
// of the database file: whoever writes waits meanwhile. PostgreSQL does it by
// itself, some time after ([autovacuum]).
//
// [autovacuum]: https://www.postgresql.org/docs/current/routine-vacuuming.html
func (s *Store) ClearFree(ctx context.Context) error {
	if s.db.clear == nil {
		return nil
	}
	return s.explain(s.db.clear(ctx))
}
