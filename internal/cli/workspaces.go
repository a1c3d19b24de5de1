package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/table"
)

// workspaceAdminCommands change the workspaces of an installation.
func (a *app) workspaceAdminCommands() []*cobra.Command {
	return []*cobra.Command{a.workspaceListCommand(), a.workspaceWriteCommand(true), a.workspaceWriteCommand(false), a.workspaceDeleteCommand(),
		a.workspaceUsersCommand(true), a.workspaceUsersCommand(false)}
}

func (a *app) workspaceListCommand() *cobra.Command {
	return a.build(command{
		name: "list", short: "List the workspaces that you may use, with their settings.",
		example: "sky workspace list\nsky workspace list -o yaml",
		flags:   func(f flags) { f.out(a) },
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.Workspaces(ctx)
			all, err := wait(ctx, a, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(all); done {
				return err
			}
			a.t.Print(a.t.Table(workspacesTable(all)))
			return nil
		},
	})
}

func workspacesTable(all map[string]map[string]any) *table.Table {
	tab := table.New("NAME", "ACCESS", "USERS", "SETTINGS").Prose("USERS", "SETTINGS")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		access, users := "everybody", "-"
		if private, _ := all[name]["private"].(bool); private {
			access = "private"
			users = "administrators only"
			if list, _ := all[name]["allowed_users"].([]any); len(list) > 0 {
				var names []string
				for _, u := range list {
					names = append(names, fmt.Sprint(u))
				}
				users = strings.Join(names, ", ")
			}
		}
		var keys []string
		for _, k := range slices.Sorted(maps.Keys(all[name])) {
			if k != "private" && k != "allowed_users" {
				keys = append(keys, k)
			}
		}
		tab.Add(name, access, users, format.OrDash(strings.Join(keys, ", ")))
	}
	return tab
}

// workspaceWriteCommand is workspace create or workspace update.
func (a *app) workspaceWriteCommand(create bool) *cobra.Command {
	var file string
	var users []string
	var private *bool
	c := command{
		name: "update", args: "NAME", short: "Change who may use a workspace, and its settings.", min: 1, max: 1,
		example: "sky workspace update research --user ada --user bob\nsky workspace update batch -f batch.yaml",
		long:    "What no option names stays as it is. A FILE replaces all settings; it holds what stands under workspaces.NAME in a configuration.",
		flags: func(f flags) {
			f.tri(&private, "private", "", "Only --user and administrators may use it.")
			f.texts(&users, "user", "u", "A user, by name or id, who may use it (may be repeated).")
			f.text(&file, "file", "f", "Settings as YAML.")
		},
	}
	if create {
		c.name, c.short = "create", "Make a workspace."
		c.example = "sky workspace create research --private --user ada --user bob\nsky workspace create batch -f batch.yaml"
		c.long = "A FILE holds what stands under workspaces.NAME in a configuration."
	}
	c.run = func(ctx context.Context, _ *cobra.Command, args []string) error {
		client, err := a.connect(ctx)
		if err != nil {
			return err
		}
		settings := map[string]any{}
		switch {
		case file != "":
			if settings, err = readWorkspace(expandHome(file, a.home)); err != nil {
				return err
			}
		case !create:
			if settings, err = a.workspaceSettings(ctx, client, args[0]); err != nil {
				return err
			}
		}
		if private != nil {
			settings["private"] = *private
		}
		if users != nil {
			settings["allowed_users"] = users
		}
		write, done := client.UpdateWorkspace, "updated"
		if create {
			write, done = client.CreateWorkspace, "created"
		}
		req, err := write(ctx, args[0], settings)
		if _, err := wait(ctx, a, req, err); err != nil {
			return err
		}
		a.t.Printf("Workspace '%s' %s.\n", args[0], done)
		return nil
	}
	return a.build(c)
}

func (a *app) workspaceSettings(ctx context.Context, c *sky.Client, name string) (map[string]any, error) {
	req, err := c.Workspaces(ctx)
	all, err := wait(ctx, a, req, err)
	if err != nil {
		return nil, err
	}
	if all[name] == nil {
		return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("There is no workspace '%s'.%s", name, didYouMean(similar.Names(name, slices.Sorted(maps.Keys(all)))))}
	}
	return all[name], nil
}

func readWorkspace(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the workspace: %w", err)
	}
	v, err := config.DecodeYAML(text, path)
	if err != nil {
		return nil, err
	}
	settings, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s holds no settings: write keys such as private: true", path)
	}
	return settings, nil
}

func (a *app) workspaceDeleteCommand() *cobra.Command {
	var yes bool
	return a.build(command{
		name: "delete", args: "NAME", short: "Remove a workspace that nothing lives in.", min: 1, max: 1,
		example: "sky workspace delete research",
		flags:   func(f flags) { f.yes(&yes) },
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if !yes {
				if err := a.t.Confirm(ctx, fmt.Sprintf("Deleting workspace '%s'. Proceed?", args[0]), false); err != nil {
					return err
				}
			}
			req, err := c.DeleteWorkspace(ctx, args[0])
			if _, err := wait(ctx, a, req, err); err != nil {
				return err
			}
			a.t.Printf("Workspace '%s' deleted.\n", args[0])
			return nil
		},
	})
}

// workspaceUsersCommand is workspace add-users or workspace remove-users.
func (a *app) workspaceUsersCommand(add bool) *cobra.Command {
	c := command{name: "remove-users", args: "NAME USER...", short: "Take users out of a private workspace.", example: "sky workspace remove-users research bob", min: 2, max: -1}
	if add {
		c.name, c.short, c.example = "add-users", "Let users into a private workspace.", "sky workspace add-users research bob"
	}
	c.run = func(ctx context.Context, _ *cobra.Command, args []string) error {
		client, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var ids []string
		for _, name := range args[1:] {
			u, err := userNamed(ctx, client, name)
			if err != nil {
				return err
			}
			ids = append(ids, u.ID)
		}
		change := client.RemoveWorkspaceUsers
		if add {
			change = client.AddWorkspaceUsers
		}
		req, err := change(ctx, args[:1], ids)
		out, err := wait(ctx, a, req, err)
		if err != nil {
			return err
		}
		for _, f := range out.Failed {
			return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Workspace '%s' stays as it is: %s", f.WorkspaceName, f.Error)}
		}
		a.t.Printf("Workspace '%s' updated.\n", args[0])
		return nil
	}
	return a.build(c)
}
