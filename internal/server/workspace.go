package server

import (
	"net/http"
	"slices"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// workspaces are all there are, and the names of those that a user may use.
func (s *Server) workspaces(u state.User) (all []config.Workspace, accessible []string) {
	all = []config.Workspace{{Name: config.DefaultWorkspace}}
	if s.Workspaces != nil {
		all = s.Workspaces()
	}
	accessible = []string{}
	for _, w := range all {
		if u.Role == "admin" || w.Allows(u.ID, u.Name) {
			accessible = append(accessible, w.Name)
		}
	}
	return all, accessible
}

// chooseWorkspace decides where the calls of a user go: where the configuration
// says, else where the user prefers, else the default one, else the only one.
func chooseWorkspace(requested, preferred string, accessible []string) (name, source string) {
	may := func(name string) bool { return name != "" && slices.Contains(accessible, name) }
	switch {
	case requested != "" && may(requested):
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

func (s *Server) workspace(w http.ResponseWriter, r *http.Request) {
	u := loggedIn(r)
	if u == nil {
		fail(w, http.StatusUnauthorized, "Nobody is logged in.")
		return
	}
	_, accessible := s.workspaces(*u)
	name, source := chooseWorkspace(r.URL.Query().Get("requested"), u.PreferredWorkspace, accessible)
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
		all, accessible := s.workspaces(*u)
		switch {
		case !slices.ContainsFunc(all, func(w config.Workspace) bool { return w.Name == name }):
			fail(w, http.StatusNotFound, "There is no workspace "+quoted(name)+".")
			return
		case !slices.Contains(accessible, name):
			fail(w, http.StatusForbidden, "The workspace "+quoted(name)+" is private, and you are not among its users.")
			return
		}
	}
	s.answered(w, r, api.UserWorkspaceBody{Preferred: b.Preferred}, s.Store.Users().Prefer(r.Context(), u.ID, name))
}
