package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/state"
)

func wireUser(u state.User) api.User {
	w := api.User{ID: u.ID, Name: u.Name, UserType: optional(u.Type), PreferredWorkspace: optional(u.PreferredWorkspace)}
	if !u.CreatedAt.IsZero() {
		at := unix(u.CreatedAt)
		w.CreatedAt = &at
	}
	return w
}

// users lists the people who use the server; service accounts are not people.
func (s *Server) users(w http.ResponseWriter, r *http.Request) {
	list, err := s.Store.Users().List(r.Context())
	if err != nil {
		s.failed(w, r, err)
		return
	}
	out := []api.UserRecord{}
	for _, u := range list {
		if auth.IsAccount(u.ID) {
			continue
		}
		wire := wireUser(u)
		out = append(out, api.UserRecord{ID: u.ID, Name: u.Name, CreatedAt: wire.CreatedAt, Role: u.Role, UserType: wire.UserType})
	}
	writeJSON(w, http.StatusOK, out)
}

// role is what the caller may do; without a login, everything.
func (s *Server) role(w http.ResponseWriter, r *http.Request) {
	u := loggedIn(r)
	if u == nil {
		u = &state.User{Role: "admin"}
	}
	writeJSON(w, http.StatusOK, api.UserRole{ID: u.ID, Name: u.Name, Role: u.Role})
}

// refusal is a call about users that cannot be made: its status and why.
type refusal struct {
	status int
	why    string
}

func (e *refusal) Error() string { return e.why }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// answered writes the answer of a call, or why there is none.
func (s *Server) answered(w http.ResponseWriter, r *http.Request, v any, err error) {
	if no, ok := errors.AsType[*refusal](err); ok {
		fail(w, no.status, no.why)
		return
	}
	if err != nil {
		s.failed(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

func checkRole(role string) error {
	if roles[role] == 0 {
		return refuse(http.StatusBadRequest, "There is no role %s; there are admin, user and viewer.", quoted(role))
	}
	return nil
}

func (s *Server) createUser(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.UserCreateBody](s, w, r)
	if !ok {
		return
	}
	role := s.Rules().role()
	if b.Role != nil && *b.Role != "" {
		role = *b.Role
	}
	s.answered(w, r, nil, s.addUser(r.Context(), b.Username, b.Password, role, false))
}

// addUser adds a user who logs in with a password. hashes says that the password
// may come as its hash.
func (s *Server) addUser(ctx context.Context, name, password, role string, hashes bool) error {
	if err := auth.CheckName(name); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	if err := checkRole(role); err != nil {
		return err
	}
	hash := password
	if !hashes || !auth.IsHash(password) {
		var err error
		if hash, err = auth.HashPassword(password); err != nil {
			return refuse(http.StatusBadRequest, "%v", err)
		}
	}
	err := s.Store.Users().Create(ctx, state.User{ID: auth.UserID(name), Name: name, Type: "basic", Role: role}, hash)
	if errors.Is(err, state.ErrConflict) {
		return refuse(http.StatusBadRequest, "The user %s exists already.", quoted(name))
	}
	return err
}

// updateUser changes a role, which administrators do, or a password, which
// everybody does for themselves.
func (s *Server) updateUser(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.UserUpdateBody](s, w, r)
	if !ok {
		return
	}
	s.answered(w, r, nil, s.changeUser(r, b))
}

func (s *Server) changeUser(r *http.Request, b api.UserUpdateBody) error {
	users := s.Store.Users()
	if u := limited(r); u != nil && (u.ID != b.UserID || b.Role != nil && *b.Role != u.Role) {
		return refuse(http.StatusForbidden, "Only administrators change roles, or the passwords of others.")
	}
	if b.Role == nil && b.Password == nil {
		return refuse(http.StatusBadRequest, "Say what to change: role or password.")
	}
	var hash string
	if b.Password != nil {
		if auth.IsAccount(b.UserID) {
			return refuse(http.StatusBadRequest, "Service accounts have tokens, not passwords.")
		}
		var err error
		if hash, err = auth.HashPassword(*b.Password); err != nil {
			return refuse(http.StatusBadRequest, "%v", err)
		}
	}
	if b.Role != nil {
		if err := s.changeRole(r, b.UserID, *b.Role); err != nil {
			return err
		}
	}
	if b.Password == nil {
		return nil
	}
	return noUser(b.UserID, users.SetPassword(r.Context(), b.UserID, hash))
}

func (s *Server) changeRole(r *http.Request, id, role string) error {
	if err := checkRole(role); err != nil {
		return err
	}
	if u := loggedIn(r); u != nil && u.ID == id && u.Role != role {
		return refuse(http.StatusBadRequest, "Nobody changes their own role: ask another administrator.")
	}
	return noUser(id, s.Store.Users().SetRole(r.Context(), id, role))
}

func noUser(id string, err error) error {
	if errors.Is(err, state.ErrNotFound) {
		return refuse(http.StatusBadRequest, "There is no user %s.", quoted(id))
	}
	return err
}

// deleteUser forgets a user who has nothing left here: what a cluster costs is
// always somebody's.
func (s *Server) deleteUser(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.UserDeleteBody](s, w, r)
	if !ok {
		return
	}
	s.answered(w, r, nil, s.removeUser(r, b.UserID))
}

func (s *Server) removeUser(r *http.Request, id string) error {
	if u := loggedIn(r); u != nil && u.ID == id {
		return refuse(http.StatusBadRequest, "Nobody deletes themselves: ask another administrator.")
	}
	if id == s.Self.ID {
		return refuse(http.StatusBadRequest, "This is the server's own user.")
	}
	clusters, err := s.Store.Clusters().List(r.Context(), state.ClusterFilter{UserHash: id, Limit: 1})
	if err != nil {
		return err
	}
	if len(clusters) > 0 {
		return refuse(http.StatusBadRequest, "The user has clusters, %s for one: take them down first.", quoted(clusters[0].Name))
	}
	volumes, err := s.Store.Volumes().List(r.Context(), state.VolumeFilter{UserHash: id, Limit: 1})
	if err != nil {
		return err
	}
	if len(volumes) > 0 {
		return refuse(http.StatusBadRequest, "The user has volumes, %s for one: delete them first.", quoted(volumes[0].Name))
	}
	return noUser(id, s.Store.Users().Delete(r.Context(), id))
}

func (s *Server) updateUsers(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.UsersUpdateBody](s, w, r)
	if !ok {
		return
	}
	if err := checkRole(b.Role); err != nil {
		s.answered(w, r, nil, err)
		return
	}
	out := api.UsersUpdated{Succeeded: []string{}, Failed: []api.UserNotMoved{}}
	for _, id := range b.UserIDs {
		if err := s.changeRole(r, id, b.Role); err != nil {
			out.Failed = append(out.Failed, api.UserNotMoved{UserID: id, Error: err.Error()})
			continue
		}
		out.Succeeded = append(out.Succeeded, id)
	}
	writeJSON(w, http.StatusOK, out)
}
