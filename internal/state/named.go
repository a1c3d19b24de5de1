package state

import "context"

// table is a table whose rows have a name, the incarnation of that name, which is
// another one each time that the name is used again, and a version.
type table[T any] struct {
	columns                       columns
	fields                        func(*T) []any
	key                           func(*T) (name, incarnation string, version *int64)
	find, insert, replace, remove string
}

// newTable is the table of that name; incarnation is a column, and so are name and
// version.
func newTable[T any](name, incarnation string, c columns, fields func(*T) []any, key func(*T) (name, incarnation string, version *int64)) *table[T] {
	return &table[T]{columns: c, fields: fields, key: key,
		find:    "SELECT " + c.list() + " FROM " + name + " ",
		insert:  "INSERT INTO " + name + " (" + c.list() + ") VALUES (" + c.marks() + ") ON CONFLICT DO NOTHING",
		replace: "UPDATE " + name + " SET " + c.set() + " WHERE name = ? AND " + incarnation + " = ? AND version = ?",
		remove:  "DELETE FROM " + name + " WHERE name = ? AND " + incarnation + " = ?",
	}
}

// named is the store of the rows of a table.
type named[T any] struct {
	s *Store
	*table[T]
}

// Get is the row of that name, or [ErrNotFound].
func (t *named[T]) Get(ctx context.Context, name string) (*T, error) {
	row := new(T)
	if err := t.s.read(ctx).one(t.fields(row), t.find+"WHERE name = ?", name); err != nil {
		return nil, t.s.explain(err)
	}
	return row, nil
}

// Create writes a new row with Version 1; [ErrConflict] if the name is taken.
func (t *named[T]) Create(ctx context.Context, row *T) error { return t.createWith(ctx, row, nil) }

// createWith is Create that makes another change, if not nil, in the same transaction.
func (t *named[T]) createWith(ctx context.Context, row *T, also func(*session, *T) error) error {
	made := *row
	_, _, version := t.key(&made)
	*version = 1
	err := t.s.createOnce(ctx, func(s *session) error {
		if err := changed(s.exec(t.insert, t.fields(&made)...)); err != nil || also == nil {
			return err
		}
		return also(s, &made)
	})
	if err == nil {
		_, _, version := t.key(row)
		*version = 1
	}
	return err
}

// Save writes the row if its Version is still what is stored, and increments it in
// place; else [ErrConflict].
func (t *named[T]) Save(ctx context.Context, row *T) error {
	next := *row
	_, _, version := t.key(row)
	name, incarnation, to := t.key(&next)
	from := *version
	*to = from + 1
	err := t.s.write(ctx, func(s *session) error {
		return changed(s.exec(t.replace, append(t.fields(&next), name, incarnation, from)...))
	})
	if err == nil {
		*version = *to
	}
	return err
}

// Update reads the row, lets f change it and saves it, again and again until nobody
// interfered. An error of f ends it and is returned. [ErrNotFound] if that incarnation
// of the name is gone.
func (t *named[T]) Update(ctx context.Context, name, incarnation string, f func(*T) error) (*T, error) {
	return update(func() (*T, error) {
		row, err := t.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if _, is, _ := t.key(row); is != incarnation {
			return nil, ErrNotFound
		}
		return row, nil
	}, f, func(row *T) error { return t.Save(ctx, row) })
}

// Delete removes one incarnation of a row; one that is gone is success.
func (t *named[T]) Delete(ctx context.Context, name, incarnation string) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec(t.remove, name, incarnation)
		return err
	})
}
