package state

import (
	"context"
	"errors"
)

// Users is the store of known callers.
type Users struct{ s *Store }

var userColumns = columns{"id", "name", "type", "role", "preferred_workspace", "created_at"}

func userFields(u *User) []any {
	return []any{text(&u.ID), text(&u.Name), text(&u.Type), text(&u.Role), text(&u.PreferredWorkspace), instant(&u.CreatedAt)}
}

// Touch makes a caller known and returns what is stored. Of one that is known
// already only the name is taken over, if one is given; that costs no write
// when nothing changes.
func (t *Users) Touch(ctx context.Context, u User) (User, error) {
	known, err := t.Get(ctx, u.ID)
	if err == nil && (u.Name == "" || u.Name == known.Name) {
		return known, nil
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return User{}, err
	}
	if u.CreatedAt.IsZero() {
		u.CreatedAt = t.s.Now()
	}
	var stored User
	err = t.s.writeAgain(ctx, func(s *session) error {
		return s.one(userFields(&stored), "INSERT INTO users ("+userColumns.list()+") VALUES ("+userColumns.marks()+`)
			ON CONFLICT (id) DO UPDATE SET name = CASE WHEN excluded.name = '' THEN users.name ELSE excluded.name END
			RETURNING `+userColumns.list(), userFields(&u)...)
	})
	return stored, err
}

// Get is the user of that id, or [ErrNotFound].
func (t *Users) Get(ctx context.Context, id string) (User, error) {
	var u User
	err := t.s.read(ctx).one(userFields(&u), "SELECT "+userColumns.list()+" FROM users WHERE id = ?", id)
	return u, t.s.explain(err)
}

// List is every user, the longest known first.
func (t *Users) List(ctx context.Context) ([]User, error) {
	list, err := all(t.s.read(ctx), userFields, "SELECT "+userColumns.list()+" FROM users ORDER BY created_at, id")
	return values(list), t.s.explain(err)
}
