package config

import "github.com/skypilot-go/sky/internal/yaml11"

// WithRemoved returns the configuration together with workspaces that were taken
// out of it, by name with their last settings. They stay in force for what is in
// them still; [Workspace.Removed] tells. Settings that are not valid any more are
// reduced to who may use the workspace.
func (c *Config) WithRemoved(workspaces map[string]map[string]any) *Config {
	if len(workspaces) == 0 {
		return c
	}
	out := *c
	out.removed = map[string]bool{}
	at := yaml11.Place{Source: newSource(LayerServer, "the last settings of a removed workspace")}
	for name, settings := range workspaces {
		n := yaml11.Nest([]string{"workspaces", name}, at, fromPlain(settings, at))
		if problems, _ := validate(n, Server); len(problems) > 0 {
			n = yaml11.Nest([]string{"workspaces", name}, at, fromPlain(accessOf(settings), at))
		}
		out.root = overlay(out.root, n, Keys())
		out.removed[name] = true
	}
	return &out
}

// accessOf is the part of a workspace's settings that says who may use it; what
// cannot be understood closes it.
func accessOf(settings map[string]any) map[string]any {
	private, known := settings["private"].(bool)
	users := []any{}
	list, _ := settings["allowed_users"].([]any)
	for _, u := range list {
		if text, ok := u.(string); ok {
			users = append(users, text)
		}
	}
	_, given := settings["private"]
	return map[string]any{"private": private || given && !known, "allowed_users": users}
}
