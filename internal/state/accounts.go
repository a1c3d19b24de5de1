package state

import (
	"context"
	"slices"
)

// Passwords and roles of users. A password's hash is never part of a [User], so
// that it does not travel with one into logs and answers.

// Roles from the least to the most powerful.
var Roles = []string{"viewer", "user", "admin"}

// Above are the roles that allow more than role.
func Above(role string) []string { return Roles[slices.Index(Roles, role)+1:] }

// Credential is a user and the hash of the password; "" if there is none.
type Credential struct {
	User
	Hash string
}

func credentialFields(c *Credential) []any { return append(userFields(&c.User), text(&c.Hash)) }

// Credential is the user of that id with the password's hash, or [ErrNotFound].
func (t *Users) Credential(ctx context.Context, id string) (Credential, error) {
	var c Credential
	err := t.s.read(ctx).one(credentialFields(&c), "SELECT "+userColumns.list()+", password FROM users WHERE id = ?", id)
	return c, t.s.explain(err)
}

// Credentials is every user with a password, the longest known first.
func (t *Users) Credentials(ctx context.Context) ([]Credential, error) {
	list, err := all(t.s.read(ctx), credentialFields, "SELECT "+userColumns.list()+", password FROM users WHERE password <> '' ORDER BY created_at, id")
	return values(list), t.s.explain(err)
}

// Create adds a user with the hash of a password, "" for none; [ErrConflict] if
// the id is taken.
func (t *Users) Create(ctx context.Context, u User, hash string) error {
	if u.CreatedAt.IsZero() {
		u.CreatedAt = t.s.Now()
	}
	return t.s.write(ctx, func(s *session) error { return createUser(s, u, hash) })
}

func createUser(s *session, u User, hash string) error {
	return changed(s.exec("INSERT INTO users ("+userColumns.list()+", password) VALUES ("+marks(len(userColumns)+1)+") ON CONFLICT DO NOTHING",
		append(userFields(&u), hash)...))
}

// SeedAdmin makes sure that an administrator with a password exists: one that
// has a password already keeps it.
func (t *Users) SeedAdmin(ctx context.Context, u User, hash string) error {
	u.Role = "admin"
	if u.CreatedAt.IsZero() {
		u.CreatedAt = t.s.Now()
	}
	return t.s.write(ctx, func(s *session) error {
		_, err := s.exec("INSERT INTO users ("+userColumns.list()+", password) VALUES ("+marks(len(userColumns)+1)+`)
			ON CONFLICT (id) DO UPDATE SET password = excluded.password, name = excluded.name, role = excluded.role WHERE users.password = ''`,
			append(userFields(&u), hash)...)
		return err
	})
}

// SetPassword replaces the hash of a user's password.
func (t *Users) SetPassword(ctx context.Context, id, hash string) error {
	return t.s.write(ctx, func(s *session) error {
		return found(s.exec("UPDATE users SET password = ? WHERE id = ?", hash, id))
	})
}

// SetRole changes a user's role. Service accounts that the user made may do no
// more than the user from then on.
func (t *Users) SetRole(ctx context.Context, id, role string) error {
	return t.s.write(ctx, func(s *session) error {
		if err := found(s.exec("UPDATE users SET role = ? WHERE id = ?", role, id)); err != nil {
			return err
		}
		above := Above(role)
		if len(above) == 0 {
			return nil
		}
		_, err := s.once().exec("UPDATE users SET role = ? WHERE id IN (SELECT account_id FROM tokens WHERE creator_id = ?) AND role IN ("+marks(len(above))+")",
			append([]any{role, id}, anys(above)...)...)
		return err
	})
}

// Prefer notes the workspace that a user works in unless told otherwise; "" for
// none.
func (t *Users) Prefer(ctx context.Context, id, workspace string) error {
	return t.s.write(ctx, func(s *session) error {
		return found(s.exec("UPDATE users SET preferred_workspace = ? WHERE id = ?", workspace, id))
	})
}

// Delete forgets a user, the tokens that the user made or is, and the service
// accounts behind them.
func (t *Users) Delete(ctx context.Context, id string) error {
	return t.s.write(ctx, func(s *session) error {
		if err := found(s.exec("DELETE FROM users WHERE id = ?", id)); err != nil {
			return err
		}
		if _, err := s.exec("DELETE FROM users WHERE id IN (SELECT account_id FROM tokens WHERE creator_id = ?)", id); err != nil {
			return err
		}
		_, err := s.exec("DELETE FROM tokens WHERE creator_id = ? OR account_id = ?", id, id)
		return err
	})
}

// found turns an update of no row into [ErrNotFound].
func found(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}
