package state

import (
	"database/sql/driver"
	"encoding/json"
	"slices"
)

// DefaultWorkspace is where everything belongs that names no other workspace.
const DefaultWorkspace = "default"

// Scope is what a caller may touch: things in some workspaces, of which they
// change their own only. Nil is everything: an administrator, or a server
// without logins.
type Scope struct {
	User       string   `json:"user"`
	Workspaces []string `json:"workspaces"`
}

// Sees reports whether things of a workspace are shown to the caller; "" is the
// default one.
func (s *Scope) Sees(workspace string) bool {
	if workspace == "" {
		workspace = DefaultWorkspace
	}
	return s == nil || slices.Contains(s.Workspaces, workspace)
}

// Owns reports whether the caller may change what belongs to a user.
func (s *Scope) Owns(user string) bool { return s == nil || s.User == user }

// Within is what Sees means to filters: the names of the workspaces, nil for
// all.
func (s *Scope) Within() []string {
	if s == nil {
		return nil
	}
	return append([]string{noWorkspace}, s.Workspaces...)
}

// noWorkspace is no workspace's name: with it a list of none selects nothing,
// not everything.
const noWorkspace = "-"

// optionalColumn keeps a value as JSON; nil is NULL.
type optionalColumn[T any] struct{ v **T }

func (c optionalColumn[T]) Value() (driver.Value, error) {
	if *c.v == nil {
		return nil, nil
	}
	return json.Marshal(*c.v)
}

func (c optionalColumn[T]) Scan(src any) error {
	var b []byte
	if err := (bytesColumn{&b}).Scan(src); err != nil || b == nil {
		*c.v = nil
		return err
	}
	return json.Unmarshal(b, c.v)
}

func optional[T any](v **T) optionalColumn[T] { return optionalColumn[T]{v} }

func scoped(s **Scope) optionalColumn[Scope] { return optional(s) }
