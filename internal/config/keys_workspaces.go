package config

import (
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/config/keys"
)

// cloudKeys are the sections of clouds. Clouds without one are set up by their own
// credential files.
func cloudKeys() []keys.Key {
	var out []keys.Key
	for _, c := range facts.All() {
		if c.Settings != nil {
			out = append(out, keys.New(c.Name, c.Settings()))
		}
	}
	return out
}

func workspaceKeys() *keys.Spec {
	w := keys.Section("A workspace.",
		keys.New("private", keys.YesNo("Only allowed_users and administrators see it.", false)),
		keys.New("allowed_users", keys.List("Who may use a private workspace, by name or id.", keys.Text("A user."))))
	disabled := keys.New("disabled", keys.YesNo("Do not use the cloud in this workspace.", false))
	for _, c := range facts.All() {
		section := keys.Section("This cloud in this workspace.")
		if c.Workspace != nil {
			section = c.Workspace()
		}
		section.Keys = append(section.Keys, disabled)
		w.Keys = append(w.Keys, keys.New(c.Name, section))
	}
	s := keys.Dict("Workspaces by name; default always exists.", w).OnServer()
	s.OthersNamed = keys.Regexp(`^[a-z]([-_a-z0-9]{0,61}[a-z0-9])?$`,
		"at most 63 lower-case letters, digits, - and _, beginning with a letter and ending with a letter or digit")
	return s
}
