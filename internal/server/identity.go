package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
)

type callerKey struct{}

func withCaller(r *http.Request, c *auth.Caller) *http.Request {
	if c == nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// callerOf is who sent the request and how they are known; nil without a login.
func callerOf(r *http.Request) *auth.Caller {
	c, _ := r.Context().Value(callerKey{}).(*auth.Caller)
	return c
}

// loggedIn is who sent the request, if a login told.
func loggedIn(r *http.Request) *state.User {
	if c := callerOf(r); c != nil {
		return &c.User
	}
	return nil
}

// identify finds the caller; nil is somebody whom no login names and who is let in all
// the same. It reports whether the request goes on.
func (s *Server) identify(w http.ResponseWriter, r *http.Request, rt Route) (*auth.Caller, bool) {
	c, err := s.Gate.Identify(r)
	if err != nil {
		s.failed(w, r, err)
		return nil, false
	}
	if c != nil || rt.Path == auth.HealthPath || rt.Role == Anyone && s.Gate.Options().Demanded() {
		return c, true
	}
	if d := s.Gate.Stranger(r); d != nil {
		deny(w, r, d)
		return nil, false
	}
	return nil, true
}

// deny answers who is not let in.
func deny(w http.ResponseWriter, r *http.Request, d *auth.Denial) {
	for k, v := range d.Header {
		w.Header()[k] = v
	}
	if d.Redirect != "" {
		http.Redirect(w, r, d.Redirect, http.StatusFound)
		return
	}
	fail(w, d.Status, d.Message)
}

// userID is what an id may look like: it also names folders.
var userID = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9-]{0,127}$`)

// head is what the server itself reads of a body, all at once.
type head struct {
	EnvVars map[string]string `json:"env_vars"` // who sent it

	// What it is about.
	ClusterName string   `json:"cluster_name"`
	Cluster     string   `json:"cluster"`
	AllUsers    bool     `json:"all_users"`
	RequestIDs  []string `json:"request_ids"`
	Command     string   `json:"entrypoint_command"`

	// Where it belongs.
	Config struct {
		Active string `json:"active_workspace"`
	} `json:"override_skypilot_config"`
	Workspace  string   `json:"workspace"`  // that a call asks about
	Workspaces []string `json:"workspaces"` // or some

	Task   string  `json:"task"`
	BlobID *string `json:"file_mounts_blob_id"` // the upload that its files are in

	CatalogDir string `json:"catalog_dir"` // on this machine
}

// headOf reads it. Its type was checked: what has a wrong type nevertheless is
// left out here and refused by whoever needs it. A body of a route without one
// says nothing.
func headOf(raw []byte) (h head) {
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &h)
	}
	return h
}

// identityError means that a body names a caller that cannot be.
type identityError struct{ id string }

func (e *identityError) Error() string {
	return fmt.Sprintf("The user id %s is not valid: %s may hold letters, digits and dashes.", quoted(e.id), api.EnvUserID)
}

// caller is whom a request runs as: who logged in, else whom the body names,
// else the server's own user. Callers become known by this.
func (s *Server) caller(r *http.Request, h head) (state.User, error) {
	if known := loggedIn(r); known != nil {
		return *known, nil // the login has made sure of all that follows
	}
	u := s.Self
	if told := h.EnvVars[api.EnvUserID]; told != "" {
		u = state.User{ID: told, Name: h.EnvVars[api.EnvUser]}
	}
	if !userID.MatchString(u.ID) {
		return state.User{}, &identityError{u.ID}
	}
	if u.Role == "" {
		u.Role = s.Rules().role()
	}
	return s.Store.Users().Touch(r.Context(), u)
}

// stampIdentity is the body as it is kept: with the identity, the client's versions and
// the workspace that the server found in place of what the body claims, and the
// span that the request belongs to.
func stampIdentity(raw []byte, u state.User, client clientVersions, workspace, parent string) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, err
		}
	}
	env := map[string]string{}
	if b, ok := fields["env_vars"]; ok {
		if err := json.Unmarshal(b, &env); err != nil {
			return nil, err
		}
	}
	if env == nil {
		env = map[string]string{}
	}
	override := map[string]any{}
	if b, ok := fields["override_skypilot_config"]; ok && workspace != "" {
		if err := json.Unmarshal(b, &override); err != nil {
			return nil, err
		}
	}
	env[api.EnvUserID], env[api.EnvUser] = u.ID, u.Name
	for k := range fields { // readers of JSON may ignore case
		if strings.EqualFold(k, "env_vars") || strings.EqualFold(k, "client_api_version") || strings.EqualFold(k, "client_version") || strings.EqualFold(k, requests.TraceField) ||
			workspace != "" && strings.EqualFold(k, "override_skypilot_config") {
			delete(fields, k)
		}
	}
	if workspace != "" {
		if override == nil { // it was null
			override = map[string]any{}
		}
		override["active_workspace"] = workspace
		var err error
		if fields["override_skypilot_config"], err = json.Marshal(override); err != nil {
			return nil, err
		}
	}
	fields["env_vars"], _ = json.Marshal(env)
	if client.api > 0 {
		fields["client_api_version"], _ = json.Marshal(client.api)
	}
	if client.version != "" {
		fields["client_version"], _ = json.Marshal(client.version)
	}
	if parent != "" {
		fields[requests.TraceField], _ = json.Marshal(parent)
	}
	return json.Marshal(fields)
}
