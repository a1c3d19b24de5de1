package server

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// chooseWorkspace decides where the calls of a user go: where the configuration
// says, else where the user prefers, else the default one, else the only one.
func chooseWorkspace(requested, preferred string, accessible []string) (name, source string) {
	may := func(name string) bool { return name != "" && slices.Contains(accessible, name) }
	switch {
	case may(requested):
		return requested, "explicit"
	case requested != "":
		return "", "permission-denied"
	case may(preferred):
		return preferred, "preferred"
	case may(config.DefaultWorkspace):
		return config.DefaultWorkspace, "default-fallback"
	case len(accessible) == 1:
		return accessible[0], "single-membership"
	case len(accessible) == 0:
		return "", "no-access"
	}
	return "", "ambiguous"
}

// choosesWorkspace is the version from which clients leave the choice of a
// workspace to the server; before, it is the default one.
const choosesWorkspace = 53

// workspaceOf decides which workspace a request belongs to: that of the cluster
// that it is about, else what its configuration asks for, else the user's. "" is
// the default one, unasked. Calls about workspaces themselves belong to none.
func (s *Server) workspaceOf(r *http.Request, rt Route, u state.User, b head, c *state.Cluster) (string, error) {
	if strings.HasPrefix(rt.Path, "/workspaces") || rt.Name == "api_cancel" {
		return "", nil
	}
	rules, scope := s.Rules(), s.scope(r)
	for _, name := range append(b.Workspaces, b.Workspace) {
		if name != "" && !scope.Sees(name) {
			return "", denied("The workspace %s does not exist, or you may not use it.", quoted(name))
		}
	}
	asked := cmp.Or(b.Config.Active, rules.Active)
	if c != nil {
		at := cmp.Or(c.Workspace, config.DefaultWorkspace)
		if rt.begins() && rules.removed(at) {
			return "", removed(at)
		}
		if asked != "" && asked != at && (rt.Name == "launch" || rt.Name == "exec") {
			return "", &api.Error{Type: api.ErrValue, Message: "Cluster " + quoted(c.Name) + " is in the workspace " + quoted(at) +
				", not in " + quoted(asked) + ". Choose another name, or the cluster's workspace."}
		}
		return at, nil
	}
	if loggedIn(r) == nil {
		u.Role = "admin"
	}
	if asked != "" && rules.removed(asked) && slices.Contains(rules.accessible(u), asked) {
		if rt.begins() {
			return "", removed(asked)
		}
		return asked, nil
	}
	accessible := rules.usable(u)
	preferred := u.PreferredWorkspace
	if clientAPI(r) < choosesWorkspace {
		preferred = config.DefaultWorkspace
	}
	name, source := chooseWorkspace(asked, preferred, accessible)
	switch {
	case source == "permission-denied" && limited(r) == nil:
		return asked, nil // there is none of that name, which is told with names that are close
	case source == "permission-denied":
		return "", denied("The workspace %s does not exist, or you may not use it. You may use: %s.", quoted(asked), strings.Join(accessible, ", "))
	case rt.Role < User: // looking needs none
	case source == "no-access":
		return "", &api.Error{Type: api.ErrNoWorkspaceAccess, Message: "There is no workspace that you may use. Ask an administrator to add you to one."}
	case source == "ambiguous":
		return "", &api.Error{Type: api.ErrWorkspaceAmbiguous, Attributes: map[string]any{"accessible": accessible},
			Message: "You may use several workspaces (" + strings.Join(accessible, ", ") + "): choose one with sky workspace use NAME, or with -w NAME."}
	}
	if name == config.DefaultWorkspace && asked == "" {
		name = ""
	}
	return name, nil
}

// begins reports whether a call makes something new, of which a workspace that was
// removed takes none.
func (r Route) begins() bool {
	switch r.Name {
	case "launch", "jobs.launch", "jobs.pool_apply", "serve.up", "volume_apply":
		return true
	}
	return false
}

func removed(workspace string) error {
	err := &config.RemovedError{Workspace: workspace}
	return &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
}

func (s *Server) workspace(w http.ResponseWriter, r *http.Request) {
	u := loggedIn(r)
	if u == nil {
		fail(w, http.StatusUnauthorized, "Nobody is logged in.")
		return
	}
	rules := s.Rules()
	accessible := rules.usable(*u)
	name, source := chooseWorkspace(cmp.Or(r.URL.Query().Get("requested"), rules.Active), u.PreferredWorkspace, accessible)
	out := api.WorkspaceChoice{Workspace: optional(name), Source: source, Preferred: optional(u.PreferredWorkspace), Accessible: accessible}
	if source == "default-fallback" && u.PreferredWorkspace != "" {
		note := "You prefer the workspace " + u.PreferredWorkspace + ", which you may not use any more."
		out.Note = &note
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) preferWorkspace(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.UserWorkspaceBody](s, w, r)
	if !ok {
		return
	}
	u := loggedIn(r)
	if u == nil {
		fail(w, http.StatusUnauthorized, "Nobody is logged in.")
		return
	}
	name := ""
	if b.Preferred != nil {
		name = *b.Preferred
		rules := s.Rules()
		accessible := rules.usable(*u)
		switch {
		case !slices.ContainsFunc(rules.all(), func(w config.Workspace) bool { return w.Name == name && !w.Removed }):
			fail(w, http.StatusNotFound, "There is no workspace "+quoted(name)+".")
			return
		case !slices.Contains(accessible, name):
			fail(w, http.StatusForbidden, "The workspace "+quoted(name)+" is private, and you are not among its users.")
			return
		}
	}
	s.answered(w, r, api.UserWorkspaceBody{Preferred: b.Preferred}, s.Store.Users().Prefer(r.Context(), u.ID, name))
}
