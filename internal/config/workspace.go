package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// DefaultWorkspace always exists.
const DefaultWorkspace = "default"

// Workspace is a division of an installation: who may use it.
type Workspace struct {
	Name         string
	Private      bool
	AllowedUsers []string // names or ids
	Removed      bool     // from the configuration: for what is in it still, and nothing new
}

// RemovedError refuses something new in a workspace that was removed.
type RemovedError struct{ Workspace string }

func (e *RemovedError) Error() string {
	return fmt.Sprintf("The workspace %q was removed from the API server's configuration. What is still in it can be used and ended, but nothing new begins there: "+
		"choose another one with -w NAME or sky workspace use NAME, or ask an administrator to put it back.", e.Workspace)
}

// Allows says whether a user, known by id or name, may use the workspace.
// Administrators may use any.
func (w Workspace) Allows(id, name string) bool {
	return !w.Private || id != "" && slices.Contains(w.AllowedUsers, id) || name != "" && slices.Contains(w.AllowedUsers, name)
}

// ActiveWorkspace returns the workspace that new things belong to.
func (c *Config) ActiveWorkspace() string {
	if name := c.Text("active_workspace"); name != "" {
		return name
	}
	return DefaultWorkspace
}

// ActiveWorkspaceGiven says whether somebody asked for the active workspace.
func (c *Config) ActiveWorkspaceGiven() bool { return c.root.Find("active_workspace") != nil }

// Workspaces returns every workspace, default first, the rest by name.
func (c *Config) Workspaces() []Workspace {
	names := []string{DefaultWorkspace}
	if all := c.root.Find("workspaces"); all != nil {
		for _, e := range all.Entries {
			if e.Key.Text != DefaultWorkspace {
				names = append(names, e.Key.Text)
			}
		}
	}
	slices.Sort(names[1:])
	out := make([]Workspace, len(names))
	for i, name := range names {
		out[i], _ = c.Workspace(name)
	}
	return out
}

// Workspace returns one workspace, if it exists.
func (c *Config) Workspace(name string) (Workspace, bool) {
	n := c.root.Find("workspaces", name)
	if n == nil {
		return Workspace{Name: name}, name == DefaultWorkspace
	}
	return Workspace{name, n.Lookup("private").IsTrue(), asTexts(n.Lookup("allowed_users")), c.removed[name]}, true
}

// InWorkspace returns the configuration with another active workspace, which
// must exist.
func (c *Config) InWorkspace(name string) (*Config, error) {
	at := yaml11.Place{Source: newSource(LayerRequest, "workspace")}
	out := *c
	out.root = overlay(c.root, yaml11.Nest([]string{"active_workspace"}, at, fromPlain(name, at)), Keys())
	out.warnings = nil
	if p := out.missingWorkspace(); p != nil {
		return nil, &Error{Problems: []Problem{*p}}
	}
	return &out, nil
}

// missingWorkspace says what is wrong if the active workspace does not exist.
func (c *Config) missingWorkspace() *Problem {
	name := c.ActiveWorkspace()
	if _, ok := c.Workspace(name); ok {
		return nil
	}
	var names []string
	for _, w := range c.Workspaces() {
		if !w.Removed {
			names = append(names, w.Name)
		}
	}
	text := fmt.Sprintf("the workspace %q does not exist on the API server%s", name, schema.DidYouMean(similar.Names(name, names)))
	p := ProblemAt(c.Origin("active_workspace"), "active_workspace", text+"; run sky check to see the workspaces you can use")
	return &p
}

// What a cloud may be used for: the words of its setting "capabilities".
const (
	Compute = "compute"
	Storage = "storage"
)

// CloudUseFor says whether a workspace may use a cloud for this; if not, why.
func (c *Config) CloudUseFor(workspace, cloud, use string) (ok bool, why string) {
	if ok, why = c.CloudUse(workspace, cloud); !ok {
		return false, why
	}
	for _, path := range [][]string{{"workspaces", workspace, cloud, "capabilities"}, {cloud, "capabilities"}} {
		if n := present(c.root.Find(path...)); n != nil {
			if slices.Contains(asTexts(n), use) {
				return true, ""
			}
			return false, use + " is not in " + strings.Join(path, ".") + " (" + originOf(n.Place).String() + ")"
		}
	}
	return true, ""
}

// CloudUse says whether a workspace may use a cloud at all; if not, why.
func (c *Config) CloudUse(workspace, cloud string) (ok bool, why string) {
	if allowed := c.root.Find("allowed_clouds"); allowed != nil {
		if !slices.ContainsFunc(asTexts(allowed), func(a string) bool { return strings.EqualFold(a, cloud) }) {
			return false, "it is not in allowed_clouds (" + originOf(allowed.Place).String() + ")"
		}
	}
	if why := c.withheld[cloud]; why != "" {
		return false, why
	}
	if n := c.root.Find("workspaces", workspace, cloud, "disabled"); n.IsTrue() {
		return false, "it is disabled in the workspace " + workspace + " (" + originOf(n.Place).String() + ")"
	}
	return true, ""
}

// Withhold returns a configuration by which a cloud is not used, for the reason
// why, unless allowed_clouds names it.
func (c *Config) Withhold(cloud, why string) *Config {
	allowed := c.root.Find("allowed_clouds")
	if allowed != nil && slices.ContainsFunc(asTexts(allowed), func(a string) bool { return strings.EqualFold(a, cloud) }) {
		return c
	}
	out := *c
	out.withheld = maps.Clone(c.withheld)
	if out.withheld == nil {
		out.withheld = map[string]string{}
	}
	out.withheld[cloud] = why
	return &out
}

// Namespace returns the Kubernetes namespace of a scope, "" for the one in the
// kubeconfig.
func (c *Config) Namespace(s Scope) string {
	s.Cloud = facts.Kubernetes
	return c.For(s).Text("namespace")
}

// Queue returns the queue for pods in a scope, "" for none. The narrowest place
// that names one decides; within a place quota.queue wins over
// kueue.local_queue_name.
func (c *Config) Queue(s Scope) string {
	s.Cloud = facts.Kubernetes
	settings := c.For(s)
	places := settings.inWorkspace()
	places = append(places, settings.inRegion()...)
	for _, section := range append(places, c.root.Find(facts.Kubernetes)) {
		for _, path := range [][]string{{"quota", "queue"}, {"kueue", "local_queue_name"}} {
			if name := asText(present(section.Find(path...))); name != "" {
				return name
			}
		}
	}
	return ""
}
