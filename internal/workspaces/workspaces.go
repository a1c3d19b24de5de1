// Package workspaces keeps the divisions of an installation: who may use each,
// and with which settings of the clouds.
//
// They are the section workspaces of the server's configuration. What may be
// changed is decided here by pure functions; writing it is the business of
// whoever keeps the configuration.
package workspaces

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// All are the settings of every workspace by name; the default one is always
// among them.
type All map[string]map[string]any

// Of are the workspaces of a configuration, less what is secret.
func Of(c *config.Config) All {
	all := All{}
	section, _ := c.WithoutSecrets()["workspaces"].(map[string]any)
	for name, v := range section {
		settings, _ := v.(map[string]any)
		if settings == nil {
			settings = map[string]any{}
		}
		all[name] = settings
	}
	if all[config.DefaultWorkspace] == nil {
		all[config.DefaultWorkspace] = map[string]any{}
	}
	return all
}

// Seen are those that names lists.
func (a All) Seen(sees func(name string) bool) All {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(name string, _ map[string]any) bool { return !sees(name) })
	return out
}

// A Resource is something that lives in a workspace and belongs to a user.
type Resource struct {
	What     string // cluster, volume, managed job
	Name     string
	UserID   string
	UserName string
	// IsAdmin says that the user may use every workspace.
	IsAdmin bool
}

func (r Resource) String() string {
	return fmt.Sprintf("%s %s (%s)", r.What, r.Name, cmp.Or(r.UserName, r.UserID))
}

var nameForm = lazyregexp.New(`^[a-z]([-_a-z0-9]*[a-z0-9])?$`)

const maxName = 63

// CheckName says what is wrong with the name of a new workspace.
func CheckName(name string) error {
	if len(name) <= maxName && nameForm.MatchString(name) {
		return nil
	}
	return &api.Error{Type: api.ErrInvalidWorkspace, Message: fmt.Sprintf(
		"%q cannot be a workspace's name: use at most %d lower-case letters, digits, dashes and underscores, beginning with a letter and ending with a letter or digit.", name, maxName)}
}

func invalid(format string, args ...any) error {
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf(format, args...)}
}

// Create says why there cannot be a new workspace; nil if there can.
func (a All) Create(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, exists := a[name]; exists {
		return invalid("The workspace %q exists already; change it with: sky workspace update %s", name, name)
	}
	return nil
}

// Update says why the settings of a workspace cannot become next; nil if they
// can. What lives in it keeps its owners, who must stay among its users, and its
// clouds, whose settings stay as they are as long as something lives there.
func (a All) Update(name string, next map[string]any, live []Resource) error {
	old, err := a.existing(name)
	if err != nil {
		return err
	}
	if len(live) == 0 {
		return nil
	}
	if !reflect.DeepEqual(clouds(old), clouds(next)) {
		return inUse(name, live, "While something lives in the workspace %q only private and allowed_users can be changed", name)
	}
	was, is := access(name, old), access(name, next)
	var lost []Resource
	for _, r := range live {
		if !r.IsAdmin && was.Allows(r.UserID, r.UserName) && !is.Allows(r.UserID, r.UserName) {
			lost = append(lost, r)
		}
	}
	if len(lost) > 0 {
		return inUse(name, lost, "This would shut people out of the workspace %q who have something there", name)
	}
	return nil
}

// Delete says why a workspace cannot go; nil if it can.
func (a All) Delete(name string, live []Resource) error {
	if name == config.DefaultWorkspace {
		return invalid("The workspace %q always exists and cannot be deleted.", name)
	}
	if _, err := a.existing(name); err != nil {
		return err
	}
	if len(live) > 0 {
		return inUse(name, live, "The workspace %q is not empty", name)
	}
	return nil
}

func (a All) existing(name string) (map[string]any, error) {
	settings, exists := a[name]
	if !exists {
		return nil, invalid("There is no workspace %q; there are: %s.", name, strings.Join(slices.Sorted(maps.Keys(a)), ", "))
	}
	return settings, nil
}

// shownResources is how many things an error names.
const shownResources = 5

func inUse(name string, live []Resource, format string, args ...any) error {
	var names []string
	for _, r := range live[:min(len(live), shownResources)] {
		names = append(names, r.String())
	}
	if more := len(live) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf(format, args...) + ": " + strings.Join(names, ", ") + ".",
		Hint: fmt.Sprintf("Take down what is in it first: sky status -u, sky jobs queue -u, sky volumes ls (with -w %s).", name)}
}

// accessKeys are the settings that say who may use a workspace.
var accessKeys = []string{"private", "allowed_users", "read_access"}

func clouds(settings map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range settings {
		if !slices.Contains(accessKeys, k) {
			out[k] = v
		}
	}
	return out
}

func access(name string, settings map[string]any) config.Workspace {
	private, _ := settings["private"].(bool)
	return config.Workspace{Name: name, Private: private, AllowedUsers: texts(settings["allowed_users"])}
}

func texts(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

var errPublic = errors.New("it is open to everybody; make it private first")

// AddUsers are the settings of a private workspace with more users.
func (a All) AddUsers(name string, ids []string) (map[string]any, error) {
	return a.changeUsers(name, func(users []string) []string {
		for _, id := range ids {
			if !slices.Contains(users, id) {
				users = append(users, id)
			}
		}
		return users
	})
}

// RemoveUsers are the settings of a private workspace without some users; names
// are what they may be listed by besides their ids.
func (a All) RemoveUsers(name string, ids, names []string) (map[string]any, error) {
	return a.changeUsers(name, func(users []string) []string {
		return slices.DeleteFunc(users, func(u string) bool { return slices.Contains(ids, u) || slices.Contains(names, u) })
	})
}

func (a All) changeUsers(name string, change func([]string) []string) (map[string]any, error) {
	old, err := a.existing(name)
	if err != nil {
		return nil, err
	}
	w := access(name, old)
	if !w.Private {
		return nil, errPublic
	}
	next := maps.Clone(old)
	users := []any{}
	for _, u := range change(slices.Clone(w.AllowedUsers)) {
		users = append(users, u)
	}
	next["allowed_users"] = users
	return next, nil
}
