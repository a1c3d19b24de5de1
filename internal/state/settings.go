package state

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
)

// Settings keeps a few values under names, such as the installation's id.
type Settings struct{ s *Store }

// secretSettings are the names, or what they begin with, of values that are
// encrypted.
var secretSettings = []string{"config", "jwt_secret", "ssh-key/", "workspace/"}

// column is the column of a setting's value.
func (t *Settings) column(key *string, v *[]byte) settingColumn { return settingColumn{t.s, key, v} }

type settingColumn struct {
	s   *Store
	key *string
	v   *[]byte
}

func (c settingColumn) Value() (driver.Value, error) {
	if isSecretSetting(*c.key) {
		return c.s.in("settings", c.key, "value").bytes(c.v).Value()
	}
	return binary(c.v).Value()
}

func (c settingColumn) Scan(src any) error {
	return c.s.in("settings", c.key, "value").bytes(c.v).Scan(src)
}

func isSecretSetting(name string) bool {
	return slices.ContainsFunc(secretSettings, func(s string) bool { return strings.HasPrefix(name, s) })
}

// Get is the value, or [ErrNotFound].
func (t *Settings) Get(ctx context.Context, key string) ([]byte, error) {
	var v []byte
	err := t.s.read(ctx).one([]any{t.column(&key, &v)}, "SELECT value FROM settings WHERE name = ?", key)
	return v, t.s.explain(err)
}

// List is the values whose names begin with prefix, by name.
func (t *Settings) List(ctx context.Context, prefix string) (map[string][]byte, error) {
	type setting struct {
		name  string
		value []byte
	}
	cond, args := t.s.db.d.prefixed("name", prefix)
	list, err := all(t.s.read(ctx), func(v *setting) []any { return []any{text(&v.name), t.column(&v.name, &v.value)} },
		"SELECT name, value FROM settings WHERE "+cond, args...)
	found := map[string][]byte{}
	for _, v := range list {
		found[v.name] = v.value
	}
	return found, t.s.explain(err)
}

// Set writes the value.
func (t *Settings) Set(ctx context.Context, key string, v []byte) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", key, t.column(&key, &v))
		return err
	})
}

// SetIfAbsent writes the value unless there is one, and returns what is
// stored: of many callers at once all get the same.
func (t *Settings) SetIfAbsent(ctx context.Context, key string, v []byte) ([]byte, error) {
	var stored []byte
	err := t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", key, t.column(&key, &v))
		if err != nil {
			return err
		}
		return s.one([]any{t.column(&key, &stored)}, "SELECT value FROM settings WHERE name = ?", key)
	})
	return stored, err
}

// Delete removes the value, if there is one.
func (t *Settings) Delete(ctx context.Context, key string) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("DELETE FROM settings WHERE name = ?", key)
		return err
	})
}
