package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/state"
)

// The route table says which roles may make a call at all, and the policy what
// an installation changes about that; here is what a call may be about. Callers
// without a login may do everything, as on a machine of one's own.

// permitted reports whether the caller's role may use a route. The life of
// requests and the pages are open to every role.
func (s *Server) permitted(c *auth.Caller, rt Route, path string) bool {
	if c == nil || rt.Role == Anyone || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/dashboard/") {
		return true
	}
	role := roles[c.Role]
	return role != 0 && s.Rules().Policy.Allows(c.Role, rt.Method, path, role >= rt.Role)
}

// about says which things a body names.
type about struct {
	Cluster    string
	Command    string
	AllUsers   bool
	RequestIDs []string
}

func (h head) about() about {
	return about{Cluster: cmp.Or(h.ClusterName, h.Cluster), AllUsers: h.AllUsers, RequestIDs: h.RequestIDs, Command: h.Command}
}

func denied(format string, args ...any) error {
	return &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf(format, args...)}
}

// limited is the caller, if they log in and do not administer the server: their
// calls must be about their own things.
func limited(r *http.Request) *state.User {
	if u := loggedIn(r); u != nil && u.Role != "admin" {
		return u
	}
	return nil
}

// scope is what the caller's calls may touch; nil: everything.
func (s *Server) scope(r *http.Request) *state.Scope {
	u := limited(r)
	if u == nil {
		return narrowed(r)
	}
	return &state.Scope{User: u.ID, Workspaces: s.Rules().accessible(*u)}
}

// narrowed is what a caller who may touch everything wants to be held to: another
// server that hands on the call of one of its users says what that user may
// touch. It can only take away. What cannot be read leaves nothing.
func narrowed(r *http.Request) *state.Scope {
	text := r.Header.Get(api.HeaderScope)
	if text == "" {
		return nil
	}
	scope := &state.Scope{}
	if json.Unmarshal([]byte(text), scope) != nil {
		return &state.Scope{}
	}
	return scope
}

// mayAsk reports why a call may not be about what it names: nil if it may. Of
// the cluster that it names, if there is one, it returns the record.
func (s *Server) mayAsk(r *http.Request, rt Route, scope *state.Scope, a about) (*state.Cluster, error) {
	switch {
	case rt.Name == "api_cancel" && scope != nil:
		return nil, s.ownRequests(r, scope, a.RequestIDs)
	case a.AllUsers && scope != nil && rt.Role >= User:
		return nil, denied("Only administrators may do this to what belongs to all users.")
	case a.Cluster != "":
		return s.mayTouch(r.Context(), scope, a.Cluster, rt.Role >= User)
	}
	return nil, nil
}

// mayTouch reports why a call may not be about a cluster: it is in a workspace
// that the caller may not use or, for a call that changes it, another's. A name
// that is a pattern stands for every cluster that it matches; the first is
// returned.
func (s *Server) mayTouch(ctx context.Context, scope *state.Scope, name string, change bool) (*state.Cluster, error) {
	clusters, err := s.Store.Clusters().List(ctx, state.ClusterFilter{Names: []string{name}})
	if err != nil || len(clusters) == 0 {
		return nil, err
	}
	for _, c := range clusters {
		switch {
		case !scope.Sees(c.Workspace):
			return nil, denied("Cluster %s is in a workspace that you may not use.", quoted(c.Name))
		case change && !scope.Owns(c.UserHash):
			return nil, denied("Cluster %s belongs to %s: only they or an administrator may change it.", quoted(c.Name), c.UserName)
		}
	}
	return clusters[0], nil
}

// ownRequests reports why somebody may not cancel requests: one is another's.
// Ids that are unknown are passed over later.
func (s *Server) ownRequests(r *http.Request, scope *state.Scope, prefixes []string) error {
	for _, p := range prefixes {
		q, err := s.Engine.Resolve(r.Context(), p)
		if err == nil && !scope.Owns(q.UserID) {
			return denied("Request %s is another user's: only they or an administrator may cancel it.", quoted(q.ID))
		}
	}
	return nil
}

// limitToCaller is a body less what the caller may not ask for: viewers make no
// provider work and get no keys; only administrators cancel what is not theirs.
func (s *Server) limitToCaller(r *http.Request, rt Route, raw []byte) ([]byte, error) {
	u := limited(r)
	if u == nil {
		return raw, nil
	}
	if rt.Name == "api_cancel" {
		return overridden(raw, map[string]any{"user_id": u.ID})
	}
	if u.Role == "viewer" {
		return overridden(raw, map[string]any{"refresh": nil, "include_credentials": false})
	}
	return raw, nil
}

// overridden replaces fields of a body; nil takes one out. Readers of JSON may
// ignore case, so the field goes in every spelling.
func overridden(raw []byte, with map[string]any) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, err
		}
	}
	for name, value := range with {
		for k := range fields {
			if strings.EqualFold(k, name) {
				delete(fields, k)
			}
		}
		if value == nil {
			continue
		}
		b, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fields[name] = b
	}
	return json.Marshal(fields)
}
