package config

import (
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/schema"
)

// cloudKeys are the sections of clouds. Clouds without one are set up by their own
// credential files.
func cloudKeys() []schema.Key {
	var out []schema.Key
	for _, c := range facts.All() {
		if c.Settings != nil {
			out = append(out, schema.New(c.Name, c.Settings()))
		}
	}
	return out
}

func readAccess() schema.Key {
	return schema.New("read_access", schema.Choice("Who may look into a private workspace.", "allowed_users", "all").Defaults("allowed_users").
		NoEffect("only its users and administrators see what is in a private workspace"))
}

func workspaceKeys() *schema.Spec {
	w := schema.Section("A workspace.",
		schema.New("private", schema.YesNo("Only allowed_users and administrators see it.", false)),
		schema.New("allowed_users", schema.List("Who may use a private workspace, by name or id.", schema.Text("A user."))),
		readAccess())
	disabled := schema.New("disabled", schema.YesNo("Do not use the cloud in this workspace.", false))
	for _, c := range facts.All() {
		section := schema.Section("This cloud in this workspace.")
		if c.Workspace != nil {
			section = c.Workspace()
		}
		section.Keys = append(section.Keys, disabled)
		w.Keys = append(w.Keys, schema.New(c.Name, section))
	}
	s := schema.Dict("Workspaces by name; default always exists.", w).OnServer()
	s.OthersNamed = schema.Regexp(`^[a-z]([-_a-z0-9]{0,61}[a-z0-9])?$`,
		"at most 63 lower-case letters, digits, - and _, beginning with a letter and ending with a letter or digit")
	return s
}
