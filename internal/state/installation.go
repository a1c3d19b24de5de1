package state

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Settings that say which installation a database belongs to and how old it is.
const (
	settingInstallation = "installation"
	settingGeneration   = "generation"
)

// Claim makes the database that of the installation id, unless it belongs to one
// already, and moves its generation on: past the one that it has and, if it is
// id's, past the given one. It returns whose the database is and its generation,
// which are on disk then.
func (s *Store) Claim(ctx context.Context, id string, past int64) (owner string, generation int64, err error) {
	err = s.writeAgain(ctx, func(q *session) error {
		fresh, stored := []byte(id), []byte(nil)
		if _, err := q.exec("INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", settingInstallation, binary(&fresh)); err != nil {
			return err
		}
		if err := q.one([]any{binary(&stored)}, "SELECT value FROM settings WHERE name = ?", settingInstallation); err != nil {
			return err
		}
		if owner = string(stored); owner != id {
			past = 0
		}
		generation, err = advance(q, past)
		return err
	})
	return owner, generation, err
}

// Generation is the number that tells an older copy of the database from a newer
// one; 0: it has none yet.
func (s *Store) Generation(ctx context.Context) (int64, error) {
	v, err := s.Settings().Get(ctx, settingGeneration)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return parseGeneration(v)
}

// Advance moves the generation on and returns it. It is on disk then.
func (s *Store) Advance(ctx context.Context) (generation int64, err error) {
	err = s.writeAgain(ctx, func(q *session) error {
		generation, err = advance(q, 0)
		return err
	})
	return generation, err
}

func advance(q *session, past int64) (int64, error) {
	var v []byte
	var had int64
	err := q.one([]any{binary(&v)}, "SELECT value FROM settings WHERE name = ?"+q.d.inTurn, settingGeneration)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return 0, err
	default:
		if had, err = parseGeneration(v); err != nil {
			return 0, err
		}
	}
	generation := max(had, past) + 1
	return generation, setGeneration(q, generation)
}

func setGeneration(q *session, generation int64) error {
	v := []byte(strconv.FormatInt(generation, 10))
	_, err := q.exec("INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", settingGeneration, binary(&v))
	return err
}

func parseGeneration(v []byte) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the database's generation is %q, which is no number", v)
	}
	return n, nil
}

// Recovered is called for a database that is an older copy than what agents have
// heard from: they follow its clusters again, and no server that still has the
// newer one.
func (s *Store) Recovered(ctx context.Context) error {
	late := LateEpoch(s.Now())
	return s.writeAgain(ctx, func(q *session) error {
		_, err := q.exec("UPDATE clusters SET epoch = CASE WHEN epoch < ? THEN ? ELSE epoch + 1 END, version = version + 1", late, late)
		return err
	})
}

// A Witness remembers generations outside of the database.
type Witness struct {
	// Keep puts a generation on the disk.
	Keep func(generation int64) error
	// Saw notes a generation without waiting for the disk: a power cut may lose it, the
	// end of the process does not.
	Saw func(generation int64)
}

// Witness makes each change of a SQLite store carry a new generation, which is w's
// before the change is answered. w knows the given one. The first change after each
// checkpoint is kept: so nothing that only the write-ahead log holds has been
// acknowledged without a witness that the log existed, and a main file that lost its
// log is known by its generation. The others are seen, so that a log that was cut is
// known, too. PostgreSQL loses no log.
//
// The database is always first and the witness second: a crash in between leaves
// the database ahead, never behind. Keep is called again with the next change if it
// fails; the change itself stands.
func (s *Store) Witness(generation int64, w Witness) {
	if s.db.witnessed != nil {
		s.db.witnessed(generation, w)
	}
}

// Found is what a database turns out to be before anything in it is changed.
type Found struct {
	Where string // path or address, for messages
	// Missing: there is no file. Empty: there is a database, or a file without
	// content, that no installation has used.
	Missing, Empty bool
	Checked        bool  // the whole content was looked through, or looks after itself
	Damage         error // why the content cannot be relied on; nil: nothing was found
	ID             string
	Generation     int64
}

// foundIn reads what a database says of itself. There is a table of settings.
func foundIn(q *session, f *Found) error {
	type setting struct {
		name  string
		value []byte
	}
	list, err := all(q.once(), func(v *setting) []any { return []any{text(&v.name), binary(&v.value)} },
		"SELECT name, value FROM settings WHERE name IN (?, ?)", settingInstallation, settingGeneration)
	if err != nil {
		return err
	}
	for _, v := range list {
		switch v.name {
		case settingInstallation:
			f.ID = string(v.value)
		case settingGeneration:
			if f.Generation, err = parseGeneration(v.value); err != nil {
				return err
			}
		}
	}
	f.Empty = f.ID == ""
	return nil
}
